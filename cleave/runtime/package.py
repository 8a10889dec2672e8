"""A compiled function as one file, and how it is called: no compiler is needed.

A package is a zip file: ``package.json`` has for each variant the launch plan and what its kernels need, the kernels
lie beside it as TTIR text and as a cubin for each GPU architecture. Variants are schedules of the same function for
different sizes; each takes all sizes, and a call takes the one that was made for the nearest ones.
"""

from __future__ import annotations

import io
import json
import math
import os
import warnings
import zipfile
import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleave.errors import CleaveError
from cleave.runtime.cuda import Kernel, Program
from cleave.runtime.cuda_driver import shared_driver
from cleave.runtime.descriptors import Box
from cleave.runtime.launch_plan import LaunchPlan
from cleave.runtime.pitched import Parts, generality
from cleave.runtime.programs import Programs
from cleave.runtime.remembered import Remembered

if TYPE_CHECKING:
    from cleave.runtime.call import Operands

FORMAT, READ = 4, (1, 2, 3, 4)
"""What is written, and what is read: 1 had no layouts of arguments, 2 no products by libraries, 3 the same variants for
all architectures."""
_INDEX = "package.json"
_MALFORMED = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError, AttributeError, RuntimeError)
"""What reading a damaged file raises; RuntimeError for encryption and unknown compression."""


@dataclass(frozen=True)
class Variant:
    """One schedule. ``sizes``: those it was made for. ``ttir``: the text of each kernel. ``label``: says which it is.

    ``binaries``: for each architecture ("sm_90") the kernels by name. ``parts``: where the plan is for the row-major
    tensors around arguments.
    """

    plan: LaunchPlan
    ttir: Mapping[str, str]
    binaries: Mapping[str, Mapping[str, Kernel]] = field(default_factory=dict[str, Mapping[str, Kernel]])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    label: str = ""
    parts: Parts | None = None

    @property
    def signature(self) -> LaunchPlan:
        """With the arguments as callers give them."""
        return self.parts.plain(self.plan) if self.parts else self.plan

    @property
    def purpose(self) -> Hashable:
        """What it is for, beside an architecture."""
        return tuple(sorted(self.sizes.items())), self.parts, self.label

    @property
    def symbols(self) -> set[str]:
        """Of all its sizes that callers may give."""
        from cleave.runtime.choose_sizes import symbols_of

        found = symbols_of(self.plan)
        return found - self.parts.around_only(self.plan) if self.parts else found

    def library(self) -> list[str]:
        """What is made by a library here, or by the plan's own kernels for want of one: a line for each such launch."""
        from cleave.runtime.cublas import shared_cublas

        names = dict.fromkeys(launch.kernel for launch in self.plan.possible_launches if launch.product)
        found = shared_cublas() if names else ""
        how = f"its kernel, for {found}" if isinstance(found, str) else f"{found}, in place of its kernel"
        return [f"the product {name} is made by {how}" for name in names]

    def distance(self, sizes: Mapping[str, int]) -> float:
        """How far from the sizes it was made for these are: the sum of the logarithms of their ratios."""
        shared = self.sizes.keys() & sizes.keys()
        return sum(abs(math.log2(max(self.sizes[name], 1) / max(sizes[name], 1))) for name in shared)


def _for_this_gpu(variants: list[Variant]) -> list[Variant]:
    """Those with binaries for the current GPU, where architectures have variants of their own."""
    if all(variant.binaries.keys() == variants[0].binaries.keys() for variant in variants):
        return variants
    driver = shared_driver()
    driver.context()
    target = driver.architecture()
    found = [variant for variant in variants if target in variant.binaries]
    if not found:
        raise _no_kernels(variants, target)
    return found


def _for_target(variant: Variant, target: str) -> Variant:
    if target not in variant.binaries:
        raise _no_kernels([variant], target)
    return variant


def _no_kernels(variants: Sequence[Variant], target: str) -> CleaveError:
    known = ", ".join(sorted({name for variant in variants for name in variant.binaries})) or "none"
    text = f"package '{variants[0].plan.function}' has no kernels for {target}"
    return CleaveError(text, notes=(f"it was compiled for: {known}",))


@dataclass(frozen=True, repr=False)
class Package:
    """A function in one or more variants, all with the same arguments and results. ``versions``: of what made it."""

    name: str
    variants: tuple[Variant, ...]
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    # of this object alone: one with other variants, by ``replace``, has its own
    _programs: Programs = field(default_factory=lambda: Programs(_for_target), init=False, compare=False)
    _remembered: Remembered = field(default_factory=Remembered, init=False, compare=False)
    _remarked: set[str] = field(default_factory=set[str], init=False, compare=False)

    def __repr__(self) -> str:
        variants = f"{len(self.variants)} variant{'s' * (len(self.variants) != 1)}"
        return f"<cleave.Package {self.name}: {variants}, {', '.join(self.targets) or 'no targets'}>"

    @property
    def targets(self) -> tuple[str, ...]:
        """The architectures that have binaries for all the sizes and layouts that any has."""
        every = {target: set[Hashable]() for variant in self.variants for target in variant.binaries}
        for variant in self.variants:
            for target in variant.binaries:
                every[target].add(variant.purpose)
        wanted = {variant.purpose for variant in self.variants}
        return tuple(sorted(target for target, found in every.items() if found == wanted))

    def __call__(
        self, /, *tensors: Any, sizes: Mapping[str, int] | None = None, stream: int | None = None, **named: Any
    ) -> Any:
        """The results for PyTorch's tensors, NumPy's arrays or anything with DLPack, of the same kind; one or a tuple.

        Tensors may be given by name. On a GPU it returns before they are computed, on ``stream`` or the current one;
        parts of row-major tensors, such as slices and transposed ones, are read where they lie if a variant was made
        for that, and copied otherwise, as PyTorch's other tensors that are not row-major are. CleaveError, before any
        launch, for tensors and sizes that do not fit the function or each other.
        """
        if not named and (known := self._remembered.call(tensors, sizes, stream)) is not None:
            return known
        from cleave.runtime.bind_sizes import bind_sizes
        from cleave.runtime.call import check_names, check_ranks, check_sizes, check_stream, in_order, run

        check_sizes(sizes or {})
        check_stream(stream)
        plan = self.variants[0].signature
        given = in_order(plan, tensors, named)
        operands, variants = self._taken(given, stream)
        variants = variants if operands.kind == "host" else _for_this_gpu(variants)
        known = self._remembered.call(operands.values, sizes, stream) if operands.has_copies(given) else None
        if known is not None:
            return known
        check_ranks(plan, operands.shapes)
        if sizes:
            check_names(self.name, sizes, {name for variant in self.variants for name in variant.symbols})
        bound = bind_sizes(plan, operands.shapes, sizes).values
        variant = min(variants, key=lambda variant: variant.distance(bound))
        learnt = {name: bound[name] for name in bound.keys() - plan.extents.keys()} if variant.parts else None
        results = run(variant, self._programs, operands, sizes or {}, stream, self._remembered, learnt)
        return results[0] if len(results) == 1 else tuple(results)

    def _taken(self, tensors: Sequence[Any], stream: int | None) -> tuple[Operands, list[Variant]]:
        """The operands as the package takes them, and the variants that take them so.

        Where no variant takes parts of tensors as they lie, these are copied. CleaveError where none takes others.
        """
        from cleave.runtime.call import Operands

        lying = Operands.of(tensors, stream, parts=True)
        ways = {variant.parts for variant in self.variants if variant.parts} if lying.pitched else set[Parts]()
        for parts in sorted(ways, key=lambda parts: generality(parts.layouts)):
            if fitting := lying.lying(parts.layouts):
                return fitting, [variant for variant in self.variants if variant.parts == parts]
        plain = [variant for variant in self.variants if variant.parts is None]
        if not plain:
            raise CleaveError(f"package '{self.name}' takes no row-major tensors", notes=(self._layouts(),))
        if not lying.pitched:
            return lying, plain
        self._remark(lying)
        return Operands.of(tensors, stream), plain

    def _layouts(self) -> str:
        ways = {variant.parts: variant.parts.spelt() for variant in self.variants if variant.parts}
        return f"it takes: {'; '.join(ways.values()) or 'row-major tensors'}"

    def _remark(self, operands: Operands) -> None:
        """Say once for each way in which arguments lie that they are copied."""
        text = Parts(self.variants[0].signature.arguments, operands.layouts).spelt()
        if text not in self._remarked:
            self._remarked.add(text)
            advice = f"layouts=[{{{text}}}] of Function.package makes kernels that read them where they lie"
            warnings.warn(f"package '{self.name}' copies arguments at each call; {advice}", stacklevel=4)

    @property
    def kept(self) -> Mapping[str, str]:
        """By kernel, why calls on a GPU have launched it although a library might have made its product."""
        return self._programs.kept

    def nearest(self, sizes: Mapping[str, int]) -> Variant:
        """The variant for sizes nearest to these."""
        return min(self.variants, key=lambda variant: variant.distance(sizes))

    def program(self, variant: Variant, target: str) -> Program:
        """A variant for the GPUs of one architecture; CleaveError where the package has no binaries for it."""
        return Program(variant.plan, _for_target(variant, target).binaries[target])

    # --- the file ---

    def to_bytes(self) -> bytes:
        """The file's contents; the same package gives the same bytes."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            entries = [self._written(archive, number, variant) for number, variant in enumerate(self.variants)]
            index = {"format": FORMAT, "name": self.name, "versions": dict(self.versions), "variants": entries}
            _add(archive, _INDEX, json.dumps(index, indent=1).encode())
        return buffer.getvalue()

    def _written(self, archive: zipfile.ZipFile, number: int, variant: Variant) -> dict[str, Any]:
        for name, text in variant.ttir.items():
            _add(archive, f"{number}/{name}.ttir", text.encode())
        binaries: dict[str, Any] = {}
        for target, kernels in variant.binaries.items():
            for name, kernel in kernels.items():
                _add(archive, f"{number}/{target}/{name}.cubin", kernel.cubin)
            binaries[target] = {name: _described(kernel) for name, kernel in kernels.items()}
        plan = json.loads(variant.plan.to_json())
        return {
            "label": variant.label,
            "sizes": dict(variant.sizes),
            "plan": plan,
            "kernels": list(variant.ttir),
            "binaries": binaries,
            "parts": variant.parts and variant.parts.to_json(),
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the file's contents: what has been called or loaded stays behind."""
        return Package.from_bytes, (self.to_bytes(),)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file whole or not at all."""
        target = Path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            partial.write_bytes(self.to_bytes())
            partial.replace(target)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise CleaveError(f"cannot write {target}: {error.strerror}") from None

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Package:
        """Read a file that ``save`` wrote; CleaveError where it is none."""
        try:
            return Package.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise CleaveError(f"cannot read {path}: {error.strerror}") from None
        except TypeError:
            raise CleaveError(f"{path!r} is no path of a file") from None
        except CleaveError as error:
            raise error.at(f"{path}:1:1") from None

    @staticmethod
    def from_bytes(data: bytes) -> Package:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                index = json.loads(archive.read(_INDEX))
                if index["format"] not in READ:
                    raise CleaveError(f"this is a package of format {index['format']}; this Cleave reads {FORMAT}")
                variants = tuple(_read(archive, number, entry) for number, entry in enumerate(index["variants"]))
                if not variants:
                    raise CleaveError("this package holds no variant")
                return Package(index["name"], variants, index["versions"])
        except _MALFORMED as error:
            raise CleaveError(f"this is no package: {error}", notes=("cleave-opt --emit=package writes one",)) from None


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """With a fixed date, so that equal packages are equal files."""
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


def _described(kernel: Kernel) -> dict[str, Any]:
    return {key: value for key, value in asdict(kernel).items() if key != "cubin"}


def _read(archive: zipfile.ZipFile, number: int, entry: dict[str, Any]) -> Variant:
    ttir = {name: archive.read(f"{number}/{name}.ttir").decode() for name in entry["kernels"]}
    binaries = {
        target: {
            name: _kernel(described, archive.read(f"{number}/{target}/{name}.cubin"))
            for name, described in kernels.items()
        }
        for target, kernels in entry["binaries"].items()
    }
    sizes = {name: int(size) for name, size in entry["sizes"].items()}
    plan, parts = LaunchPlan.from_json(json.dumps(entry["plan"])), entry.get("parts")
    return Variant(plan, ttir, binaries, sizes, entry["label"], Parts.from_json(parts) if parts else None)


def _kernel(described: dict[str, Any], cubin: bytes) -> Kernel:
    known = {entry.name for entry in fields(Kernel)}
    values = {key: value for key, value in described.items() if key in known}
    boxes = tuple(Box(tuple(box["extents"]), box["swizzle"]) for box in values.pop("boxes", ()))
    return Kernel(cubin=cubin, boxes=boxes, **values)
