"""Calling a function on whatever holds tensors: PyTorch's, NumPy's, or anything with DLPack.

On a GPU the kernels are launched on the caller's stream; arrays in the host's memory go through the interpreter of
Triton's IR, which is exact and slow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from cleave.dialects.given_sizes import LARGEST_EXTENT, too_large
from cleave.errors import CleaveError
from cleave.runtime.cuda_tensors import (
    ALIGNMENT,
    TORCH_DTYPES,
    address_of,
    check_count,
    check_device,
    layout_of,
    shape_of,
)
from cleave.runtime.dlpack import DlpackTensor, is_on_host, on_host
from cleave.runtime.launch_plan import LaunchPlan
from cleave.runtime.layout import BYTES, Layout
from cleave.runtime.pitched import Around, Layouts, Pitched
from cleave.runtime.remembered import on_stream

if TYPE_CHECKING:
    from cleave.runtime.package import Variant
    from cleave.runtime.remembered import Remembered

ProgramOf = Callable[[Any], Any]


@dataclass(frozen=True)
class Operands:
    """The tensors of a call: ``values`` as given or, behind DLPack, as memory; ``kind`` says how to run.

    Tensors on a GPU that are not row-major, or not aligned to 16 bytes, are copied. With ``parts``, those that are
    parts of row-major ones are not: ``pitched`` has these, by number.
    """

    kind: str  # "torch", "host" or "gpu"
    values: tuple[Any, ...]
    pitched: Mapping[int, tuple[Pitched, Layout]] = field(default_factory=dict[int, tuple[Pitched, Layout]])

    @staticmethod
    def of(tensors: Sequence[Any], stream: int | None = None, *, parts: bool = False) -> Operands:
        """CleaveError for what is no tensor, and for tensors of which some are on a GPU and some are not."""
        if tensors and all(_is_torch(tensor) for tensor in tensors):
            tensors = [tensor.resolve_neg() if tensor.is_neg() else tensor for tensor in tensors]
            places = {bool(tensor.is_cuda) for tensor in tensors}
            if len(places) == 2:
                where = ", ".join(f"argument {n} on {tensor.device}" for n, tensor in enumerate(tensors))
                raise CleaveError(f"the tensors of a call are in different places: {where}")
            if places == {False}:
                return Operands("host", tuple(tensors))
            pitched = _pitched(tensors) if parts else {}
            kept = (tensor if n in pitched else _aligned_and_dense(tensor, stream) for n, tensor in enumerate(tensors))
            return Operands("torch", tuple(kept), pitched)
        host = [is_on_host(tensor) for tensor in tensors]
        if all(host):
            return Operands("host", tuple(on_host(number, tensor) for number, tensor in enumerate(tensors)))
        if any(host):
            raise CleaveError(f"argument {host.index(True)} is in the host's memory, others are on a GPU")
        values = tuple(DlpackTensor.of(number, tensor) for number, tensor in enumerate(tensors))
        pitched = _pitched(values) if parts else {}
        kept = (value if n in pitched else _readable(n, value, stream or 0) for n, value in enumerate(values))
        return Operands("gpu", tuple(kept), pitched)

    @property
    def in_memory(self) -> tuple[Any, ...]:
        """The row-major tensors: those around the ones that are parts, otherwise the tensors themselves."""
        if not self.pitched:
            return self.values
        return tuple(
            Around(value, self.pitched[number][1].shape) if number in self.pitched else value
            for number, value in enumerate(self.values)
        )

    def has_copies(self, tensors: Sequence[Any]) -> bool:
        """Whether some of these are not read where they lie."""
        return any(value is not tensor for value, tensor in zip(self.values, tensors, strict=True))

    @property
    def layouts(self) -> Layouts:
        """How those that are parts lie."""
        return tuple(sorted((number, pitched) for number, (pitched, _) in self.pitched.items()))

    def lying(self, layouts: Layouts) -> Operands | None:
        """The same as parts of the tensors around them in these ways; None where one lies otherwise."""
        if not self.pitched.keys() <= dict(layouts).keys():
            return None
        found: dict[int, tuple[Pitched, Layout]] = {}
        for number, layout in layouts:
            around = layout.around(layout_of(f"argument {number}", self.values[number])[0])
            if around is None:
                return None
            found[number] = layout, around
        return replace(self, pitched=found)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(map(shape_of, self.values))


def in_order(plan: LaunchPlan, tensors: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """The tensors of a call in the order of the plan's arguments, those by name after those by place.

    CleaveError for a name that the plan has not, or that is given twice; and for a tensor that is missing.
    """
    names = [spec.name for spec in plan.arguments]
    rest = names[len(tensors) :]
    for name in named:
        if name not in rest:
            what = "is given twice" if name in names else f"is no argument of {plan.function}"
            raise CleaveError(f"'{name}' {what}", notes=(f"arguments: {', '.join(names)}",))
    missing = [name for name in rest if name not in named] if named else []
    if missing:
        raise CleaveError(f"the argument '{missing[0]}' of {plan.function} is missing")
    return (*tensors, *(named[name] for name in rest if name in named))


def check_sizes(sizes: Any) -> None:
    """CleaveError unless it maps names to integers."""
    if not isinstance(sizes, Mapping):
        raise CleaveError(f"sizes={sizes!r}: a dictionary of integers", notes=('as in sizes={"s": 4}',))
    for name, size in cast(Mapping[Any, Any], sizes).items():
        if not isinstance(size, int) or size < 0:
            notes = ("int(...) makes it one of Python's",) if hasattr(size, "__index__") and size >= 0 else ()
            raise CleaveError(f"the size '{name}' is {size!r}; sizes are integers from 0 on", notes=notes)
        if size > LARGEST_EXTENT:
            raise too_large(name, size)


def check_stream(stream: Any) -> None:
    """CleaveError unless it is a CUstream as an integer, or None."""
    if not (stream is None or (isinstance(stream, int) and stream >= 0)):
        notes = ("as in stream=torch.cuda.current_stream().cuda_stream",)
        raise CleaveError(f"stream={stream!r}: a CUstream's handle, an integer", notes=notes)


def check_names(function: str, sizes: Iterable[str], known: Collection[str]) -> None:
    """CleaveError for a size that the function has not."""
    for name in sizes:
        if name not in known:
            notes = (f"its sizes: {', '.join(sorted(known)) or 'none'}",)
            raise CleaveError(f"{function} has no size '{name}'", notes=notes)


def check_ranks(plan: LaunchPlan, shapes: Sequence[Sequence[int]]) -> None:
    """CleaveError for a wrong number of tensors, and for one of a wrong rank."""
    check_count(plan, shapes)
    for spec, shape in zip(plan.arguments, shapes, strict=True):
        if len(shape) != len(spec.dims):
            dims = ", ".join(spec.dims)
            raise CleaveError(f"{spec.name} has rank {len(shape)}; the function takes rank {len(spec.dims)}: [{dims}]")


def run(
    variant: Variant,
    program_of: ProgramOf,
    operands: Operands,
    sizes: Mapping[str, int],
    stream: int | None,
    remembered: Remembered,
    learnt: Mapping[str, int] | None = None,
) -> list[Any]:
    """The results of one call, of the same kind as the operands. ``program_of`` gives a variant's ``cuda.Program``.

    A call with PyTorch's tensors on a GPU is ``remembered`` for the next one. ``learnt``: sizes of the parts of
    tensors, which those around them do not tell.
    """
    if operands.kind == "host":
        return _on_host(variant, operands.values, sizes)
    program, tensors, known = program_of(variant), operands.in_memory, {**(learnt or {}), **sizes}
    if operands.kind == "torch":
        torch, first = sys.modules["torch"], operands.values[0]

        def allocate(shape: tuple[int, ...], dtype: str) -> Any:
            return torch.empty(shape, dtype=getattr(torch, TORCH_DTYPES[dtype]), device=first.device)

        with torch.cuda.device(first.device):
            current = torch.cuda.current_stream().cuda_stream
            where = current if stream is None else stream
            with nullcontext() if where == current else on_stream(torch, where, first.device):
                results = program(tensors, allocate, where, known)
            remembered.keep(operands.values, sizes, program, program.ready(tensors, known))
            return results
    return program(tensors, program.driver.array, stream or 0, known)


def _on_host(variant: Variant, values: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    from cleave.runtime.execute import execute

    arrays = [_array(value) for value in values]
    results = execute(variant.plan, variant.ttir, arrays, sizes)
    if values and _is_torch(values[0]):
        return [_to_torch(result) for result in results]
    return list(results)


def _array(value: Any) -> Any:
    import numpy as np

    if not _is_torch(value):
        return np.asarray(value)
    tensor = value.detach().contiguous()
    if str(tensor.dtype) == "torch.bfloat16":  # which NumPy has not
        import ml_dtypes

        return tensor.view(sys.modules["torch"].int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _to_torch(array: Any) -> Any:
    import numpy as np

    torch = sys.modules["torch"]
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _aligned_and_dense(tensor: Any, stream: int | None) -> Any:
    """The tensor or, where kernels could not read it as it lies, a copy, made on the stream of the launches."""
    if tensor.is_contiguous() and tensor.data_ptr() % ALIGNMENT == 0:
        return tensor
    torch = sys.modules["torch"]
    with nullcontext() if stream is None else on_stream(torch, stream, tensor.device):
        return tensor.clone(memory_format=torch.contiguous_format)


def _readable(number: int, value: Any, stream: int) -> Any:
    """The tensor of another library or, where kernels could not read it as it lies, a copy, made on the stream.

    CleaveError for one to be copied that is not on the current GPU.
    """
    layout, dtype = layout_of(f"argument {number}", value)
    address = address_of(value)
    if dtype not in BYTES or not layout.count or (layout.is_row_major and address % ALIGNMENT == 0):
        return value
    from cleave.runtime.cuda_driver import shared_driver
    from cleave.runtime.strided_copy import copied

    driver = shared_driver()
    driver.context()
    check_device(f"argument {number}", driver.device_of(address), driver.current_device())
    return copied(driver, address, layout, dtype, stream)


def _pitched(tensors: Sequence[Any]) -> dict[int, tuple[Pitched, Layout]]:
    """Those that are no row-major tensors themselves but aligned parts of such, by number."""
    found: dict[int, tuple[Pitched, Layout]] = {}
    for number, tensor in enumerate(tensors):
        layout, dtype = layout_of(f"argument {number}", tensor)
        if (
            not layout.is_row_major
            and address_of(tensor) % ALIGNMENT == 0
            and dtype in BYTES
            and (part := Pitched.of(layout, dtype))
        ):
            found[number] = part
    return found


def _is_torch(value: Any) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)
