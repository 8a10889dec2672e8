"""``cleave.jit`` and ``cleave.compile``: a tensor function that is compiled when it is called.

The algebra is done once, on symbols. Schedules are made for sizes: one for each bucket of sizes that is met (or those
that are asked for), and each of them takes all sizes.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from cleave import knobs
from cleave.dialects.dims import Dim
from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.runtime.remembered import Remembered

if TYPE_CHECKING:
    from cleave.bindings import ir
    from cleave.runtime.cuda_driver import Driver
    from cleave.runtime.launch_plan import LaunchPlan
    from cleave.runtime.package import Package, Variant
    from cleave.runtime.pitched import Pitched
    from cleave.runtime.programs import Programs

SMALLEST_BUCKET, RATIO = 16, 4
"""Sizes up to the first are scheduled alike, and further ones by powers of the second."""
DEFAULT_TARGET = "sm_90"

Sizes = Mapping[str, int]


class Function:
    """A compiled tensor function; usable from several threads.

    ``sizes``: those to schedule for; a call takes the schedule of the nearest. Without any, a schedule is made when
    sizes are met that are far (a factor of ``RATIO``) from all known ones. ``arguments``: what messages call them.
    ``static``: symbols whose sizes are compiled in, once for each value that is met. ``schedule``: options of
    ``cleave-schedule``. ``tuned``: a file of tuning results, whose programs are taken on the GPU they were measured on.
    ``warp_specialise``: kernels may be lowered to TTGIR for sm_90, where the cost model expects that to be faster; they
    run on no other architecture. None: only where numbers are compared before a program is taken, as ``tune`` does.
    """

    def __init__(
        self,
        source: str,
        *,
        name: str,
        arguments: Sequence[str] = (),
        sizes: Sequence[Sizes] = (),
        static: Sequence[str] = (),
        superopt: bool = True,
        schedule: Mapping[str, Any] | None = None,
        tuned: str | os.PathLike[str] | None = None,
        warp_specialise: bool | None = None,
    ) -> None:
        self.source, self.name, self._arguments, self._static = source, name, tuple(arguments), tuple(static)
        self._asked, self._superopt = _checked_sizes(sizes), superopt
        self._schedule, self._tuned = dict(schedule or {}), tuned or knobs.TUNED.value
        self._warp_specialise = warp_specialise
        self._variants: dict[tuple[tuple[str, int], ...], Variant] = {}
        self._special: dict[tuple[tuple[str, int], ...], Function] = {}
        self._wider: dict[tuple[tuple[int, Pitched], ...], Function | None] = {}
        self._best: dict[tuple[tuple[str, int], ...], Variant | None] = {}
        self._remembered = Remembered()
        self._lock = threading.RLock()
        if self._static:
            self._check_static()

    def _check_static(self) -> None:
        """CleaveError for a size that no argument has."""
        from cleave.runtime.call import check_names

        plan = self.signature
        known = {symbol for spec in plan.arguments for text in spec.dims for symbol in Dim.parse(text).size.symbols}
        check_names(self.name, self._static, known | plan.extents.keys())

    def __repr__(self) -> str:
        return f"<cleave.Function {self.name}({', '.join(map(str, self.signature.arguments))})>"

    def __call__(self, *tensors: Any, sizes: Sizes | None = None, stream: int | None = None, **named: Any) -> Any:
        """The results for PyTorch's tensors, NumPy's arrays or anything with DLPack, of the same kind; one or a tuple.

        Tensors may be given by name. On a GPU it returns before they are computed, on ``stream`` or the current one;
        parts of row-major tensors, such as slices and transposed ones, are read where they lie, and other tensors of
        PyTorch's that are not row-major are copied first. ``sizes`` gives symbols that no tensor binds: those
        of the function must be given, others, such as the number of parts of a split, may. CleaveError, before any
        launch, for tensors and sizes that do not fit the function or each other.
        """
        if not named and (known := self._remembered.call(tensors, sizes, stream)) is not None:
            return known
        from cleave.runtime.call import check_sizes, in_order

        check_sizes(sizes or {})
        given = in_order(self.signature, tensors, named)
        results = self._results(given, sizes or {}, stream)
        return results[0] if len(results) == 1 else tuple(results)

    def _results(self, given: Sequence[Any], sizes: Sizes, stream: int | None, *, parts: bool = True) -> list[Any]:
        """``parts``: tensors that are parts of row-major ones are taken as they lie, unless they would be results."""
        from cleave.runtime.call import Operands, check_names, run

        operands = Operands.of(given, stream, parts=parts)
        bound = self._bound(operands.values)
        special = self.specialised(**{name: bound[name] for name in self._static if name in bound})
        learnt: Sizes = {}
        if operands.pitched:
            self._bound(operands.values, sizes)  # which refuses sizes that are not those of the parts
            learnt = {name: size for name, size in bound.items() if name not in special.signature.extents}
            wider = special._around({number: part for number, (part, _) in operands.pitched.items()})
            if wider is None:
                return self._results(given, sizes, stream, parts=False)
            special, bound = wider, wider._bound(operands.in_memory, learnt)
        if not sizes.keys() <= self._read[1]:
            check_names(self.name, sizes, special._known_sizes)
        variant = special._variant_for(bound, on_gpu=operands.kind != "host")
        return run(variant, special._programs, operands, sizes, stream, self._remembered, learnt)

    # --- what it was compiled to ---

    @functools.cached_property
    def optimised(self) -> str:
        """The module with the source and its alternatives, as MLIR."""
        from cleave.lowering.source import parsed

        ctx, module = parsed(self.source)
        with ctx:
            self._apply(module, "cleave-import-linalg")
            if self._superopt:
                self._apply(module, "cleave-superopt")
            return str(module)

    def variant(self, **sizes: int) -> Variant:
        """The schedule for these sizes; others are taken for what the cost model assumes."""
        key = tuple(sorted(sizes.items()))
        with self._lock:
            if key not in self._variants:
                self._variants[key] = self._compiled(dict(sizes))
            return self._variants[key]

    def ttir(self, **sizes: int) -> str:
        """The kernels for these sizes as Triton IR."""
        return "\n".join(self.variant(**sizes).ttir.values())

    def ptx(self, target: str = DEFAULT_TARGET, **sizes: int) -> str:
        """The kernels for these sizes as PTX."""
        from cleave.lowering.emit import emit

        _, module = self._lowered(sizes)
        return cast(str, emit(module, "ptx", target))

    def explain(self, **sizes: int) -> str:
        """The alternatives with their costs, and the schedules that were weighed for these sizes."""
        import contextlib
        import io

        text = io.StringIO(self._alternatives())
        text.seek(0, io.SEEK_END)
        with contextlib.redirect_stderr(text):
            self._lowered(sizes, explain=True)
        return text.getvalue()

    def package(self, *targets: str, sizes: Sequence[Sizes] = ()) -> Package:
        """All of it as one object to ``save``, with schedules for ``sizes`` (or for all that have been used)."""
        from cleave.lowering.package import compiled_for, package
        from cleave.lowering.targets import Target

        wanted = [Target.parse(target) for target in targets or (DEFAULT_TARGET,)]
        found = [self.variant(**each) for each in sizes or self._asked] or [*self._variants.values()]
        found = found or [self.variant()]
        return package(self.name, [compiled_for(variant, wanted) for variant in found])

    def _alternatives(self) -> str:
        """The source and what the superoptimiser found beside it, each with its cost on symbols."""
        from cleave.dialects.cleave import plain
        from cleave.lowering.source import parsed
        from cleave.passes.functions import name_of

        _, module = parsed(self.optimised)
        rows = [
            f"{name_of(op.operation)}: {plain('string', op.operation.attributes['cleave.cost'])}"
            for op in module.body.operations
            if "cleave.cost" in op.operation.attributes
        ]
        return "".join(f"{row}\n" for row in rows)

    def candidates(self, count: int, *targets: str, **sizes: int) -> Package:
        """The ``count`` programs of least predicted time for these sizes, compiled, the model's choice first.

        They are there to be compared and measured: for sm_90 some are warp-specialised unless that is switched off, and
        where it is asked for, the first of these is there without each part of the form, too.
        """
        from cleave.lowering.package import package
        from cleave.lowering.targets import Target
        from cleave.passes import registry
        from cleave.schedule.warp_specialised import ARCHITECTURES
        from cleave.tuner.candidates import variants

        text = ",".join(f"{name}={size}" for name, size in sorted(sizes.items()))
        wanted = [Target.parse(target) for target in targets]
        possible = bool(wanted) and all(target.name in ARCHITECTURES for target in wanted)
        specialise = possible if self._warp_specialise is None else self._warp_specialise
        options = {"warp_specialise": specialise, **self._schedule}
        schedule = cast(Any, registry.create("cleave-schedule", sizes=text, **options))
        every = self._warp_specialise is True
        found = variants(self.optimised, self.name, schedule, count, wanted, ablations=every)
        return package(self.name, [replace(variant, plan=self._named(variant.plan)) for variant in found])

    def tune(self, *tensors: Any, candidates: int = 16, store: str | os.PathLike[str] | None = None) -> Iterator[Any]:
        """Measure candidates on the GPU with PyTorch's tensors, and keep the fastest in the file ``store``.

        Gives a ``Progress`` after each; what is in the file already is not measured again. Results are compared with
        the function as written, each reduction in a kernel of its own.
        """
        from cleave.runtime.call import Operands
        from cleave.tuner.check import like
        from cleave.tuner.store import Store
        from cleave.tuner.timing import Timer
        from cleave.tuner.tune import tune

        path = store or self._tuned
        if not path:
            raise CleaveError("tuning needs a file for its results", notes=("give store=..., or set CLEAVE_TUNED",))
        bound = self._bound(Operands.of(tensors).values)
        special = self.specialised(**{name: bound[name] for name in self._static if name in bound})
        sizes = {name: bucket(size) for name, size in bound.items() if name not in special.signature.extents}
        driver = _current_driver()
        package = special.candidates(candidates, driver.architecture(), **sizes)
        plain = Function(special.source, name=self.name, superopt=False, schedule={"iterative_tiling": False})
        check, what = like(plain(*tensors)), f"{self.name} {sizes}"
        key, timer = special._key(sizes), Timer()
        yield from tune(package, tensors, check, timer.microseconds, store=Store(path), key=key, what=what)

    # --- compiling ---

    @functools.cached_property
    def _programs(self) -> Programs:
        from cleave.runtime.programs import Programs

        return Programs(_compiled_for)

    def specialised(self, **sizes: int) -> Function:
        """The same function for these sizes of some symbols alone."""
        from cleave.lowering.source import with_extents

        if not sizes:
            return self
        for name, size in sizes.items():
            if not isinstance(size, int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise CleaveError(f"the size '{name}' is {size!r}, no integer")
        key = tuple(sorted(sizes.items()))
        with self._lock:
            if key not in self._special:
                self._special[key] = self._like(with_extents(self.source, self.name, sizes))
            return self._special[key]

    def _around(self, parts: Mapping[int, Pitched]) -> Function | None:
        """The same function of the row-major tensors around arguments that are parts of them."""
        from cleave.lowering.pitches import with_pitches

        key = tuple(sorted(parts.items()))
        with self._lock:
            if key not in self._wider:
                text = with_pitches(self.source, self.name, parts)
                self._wider[key] = None if text is None else self._like(text)
            return self._wider[key]

    def _like(self, source: str) -> Function:
        """Another source with the same options."""
        return Function(
            source,
            name=self.name,
            arguments=self._arguments,
            sizes=self._asked,
            superopt=self._superopt,
            schedule=self._schedule,
            tuned=self._tuned,
            warp_specialise=self._warp_specialise,
        )

    def _variant_for(self, bound: Sizes, *, on_gpu: bool) -> Variant:
        bound = {name: size for name, size in bound.items() if name not in self.signature.extents}
        if self._asked:
            return min((self.variant(**each) for each in self._asked), key=lambda variant: variant.distance(bound))
        sizes = {name: bucket(size) for name, size in bound.items()}
        return (on_gpu and self._tuned_for(sizes)) or self.variant(**sizes)

    def _tuned_for(self, sizes: Sizes) -> Variant | None:
        """What tuning found fastest on this GPU; None if it has not been here."""
        if not self._tuned:
            return None
        found = tuple(sorted(sizes.items()))
        with self._lock:
            if found not in self._best:
                from cleave.runtime.package import Package
                from cleave.tuner.store import Store

                data = Store(self._tuned).best(self._key(sizes))
                self._best[found] = Package.from_bytes(data).variants[0] if data else None
            return self._best[found]

    def _key(self, sizes: Sizes) -> str:
        """Under which tuning results for these sizes are kept."""
        from cleave.lowering.package import versions
        from cleave.lowering.source import without_locations
        from cleave.tuner.store import key_of

        options = {**self._schedule, "superopt": self._superopt}
        options |= {} if self._warp_specialise is None else {"warp_specialise": self._warp_specialise}
        driver = _current_driver()
        return key_of(without_locations(self.source), sizes, options, driver.device_name(), versions())

    def _bound(self, tensors: Sequence[Any], given: Sizes | None = None) -> dict[str, int]:
        """The dynamic symbols' values, from the shapes."""
        from cleave.runtime.bind_sizes import bind_sizes
        from cleave.runtime.call import check_ranks

        plan, shapes = self.signature, [tuple(map(int, tensor.shape)) for tensor in tensors]
        check_ranks(plan, shapes)
        values = bind_sizes(plan, shapes, given).values
        return {name: value for name, value in values.items() if name not in plan.extents}

    @property
    def signature(self) -> LaunchPlan:
        """The arguments and what is known of the sizes, without steps."""
        return self._read[0]

    @functools.cached_property
    def _read(self) -> tuple[LaunchPlan, frozenset[str]]:
        """The signature, and the symbols of the source that no argument binds."""
        from cleave.bindings import ir
        from cleave.dialects.cleave import facts_of
        from cleave.lowering import run_functions
        from cleave.lowering.source import parsed
        from cleave.runtime.launch_plan import LaunchPlan

        ctx, module = parsed(self.source)
        with ctx, ir.Location.unknown():
            self._apply(module, "cleave-import-linalg")
            func = run_functions.entry(module, self.name)
            arguments, _ = run_functions.signature(func)
            facts, dims = facts_of(func), [Dim.parse(text) for spec in arguments for text in spec.dims]
            extents = {
                str(dim.size): extent
                for spec in arguments
                for dim, extent in zip(map(Dim.parse, spec.dims), spec.extents, strict=True)
                if extent is not None and str(dim.size) in dim.size.symbols
            }
            bound = {symbol for dim in dims for symbol in facts.simplify(dim.size).symbols} | extents.keys()
            plan = LaunchPlan(self.name, tuple(arguments), (), (), facts.texts, extents)
            return self._with_names(plan), frozenset(run_functions.symbols(func) - bound)

    def _with_names(self, plan: LaunchPlan) -> LaunchPlan:
        return plan.with_argument_names(self._arguments) if self._arguments else plan

    def _named(self, plan: LaunchPlan) -> LaunchPlan:
        """A schedule's plan, with the names of the arguments. What the source leaves open is no schedule's choice."""
        return self._with_names(plan.without_choices(self._read[1]))

    @functools.cached_property
    def _known_sizes(self) -> frozenset[str]:
        """Of the source and of what the superoptimiser made of it."""
        from cleave.lowering.run_functions import symbols
        from cleave.lowering.source import parsed

        ctx, module = parsed(self.optimised)
        with ctx:
            return frozenset(name for op in module.body.operations for name in symbols(op.operation))

    def _compiled(self, sizes: Sizes) -> Variant:
        from cleave.lowering.package import variant_of

        ctx, module = self._lowered(sizes)
        with ctx:
            variant = variant_of(module, self.name, sizes=sizes)
        return replace(variant, plan=self._named(variant.plan))

    def _lowered(self, sizes: Sizes, *, explain: bool = False) -> tuple[ir.Context, ir.Module]:
        from cleave.lowering.source import parsed

        ctx, module = parsed(self.optimised)
        with ctx:
            text = ",".join(f"{name}={size}" for name, size in sorted(sizes.items()))
            options = {"aligned": True, "warp_specialise": bool(self._warp_specialise), **self._schedule}
            self._apply(module, "cleave-schedule", sizes=text, explain=explain, **options)
            if self._warp_specialise:
                self._apply(module, "cleave-lower-to-ttgir", chosen=True)
            else:
                self._apply(module, "cleave-lower-to-triton")
        return ctx, module

    def _apply(self, module: ir.Module, name: str, **options: Any) -> None:
        from cleave.passes import pipelines, registry

        pipelines.run([registry.create(name, **options)], module)


def _compiled_for(variant: Variant, target: str) -> Variant:
    from cleave.lowering.package import compiled_for
    from cleave.lowering.targets import Target

    return compiled_for(variant, [Target.parse(target)])


def _checked_sizes(sizes: Any) -> tuple[dict[str, int], ...]:
    from cleave.runtime.call import check_sizes

    if isinstance(sizes, str) or not all(isinstance(each, Mapping) for each in sizes):
        raise CleaveError(f"sizes={sizes!r}: a list of dictionaries", notes=('as in sizes=[{"m": 16}, {"m": 4096}]',))
    for each in sizes:
        check_sizes(each)
    return tuple(dict(each) for each in sizes)


def _names(static: Any) -> list[str]:
    names = static.split() if isinstance(static, str) else static
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise CleaveError(f"static={static!r}: names of sizes", notes=('as in static="d e"',))
    return list(names)


def _current_driver() -> Driver:
    """The driver, in a context."""
    from cleave.runtime.cuda_driver import shared_driver

    driver = shared_driver()
    driver.context()
    return driver


def bucket(size: int) -> int:
    """The size that stands for ``size`` when a schedule is chosen: 16, 64, 256, …, the nearest one above."""
    found = SMALLEST_BUCKET
    while found < size:
        found *= RATIO
    return found


def jit(
    function: Callable[..., Any] | None = None,
    *,
    facts: Sequence[str] = (),
    sizes: Sequence[Sizes] = (),
    static: str | Sequence[str] = "",
    superopt: bool = True,
    schedule: Mapping[str, Any] | None = None,
    tuned: str | os.PathLike[str] | None = None,
    warp_specialise: bool | None = None,
) -> Any:
    """Decorate a function whose parameters are annotated with tensor types: it becomes a ``Function``.

        @cleave.jit
        def attention(q: f16["h m d"], k: f16["h n d"], v: f16["h n e"]) -> f16: ...

    ``facts`` on sizes, such as "n = 16*n16"; ``sizes``, ``static`` ("d e") and the others as in ``Function``.
    """
    if function is not None and not inspect.isfunction(function):
        raise CleaveError(f"a {type(function).__name__} is no function to trace")
    if function is None:
        return functools.partial(
            jit,
            facts=facts,
            sizes=sizes,
            static=static,
            superopt=superopt,
            schedule=schedule,
            tuned=tuned,
            warp_specialise=warp_specialise,
        )
    from cleave.language.trace import parameter_names, trace
    from cleave.lowering.source import graph_text

    text = graph_text(trace(function, facts))
    made = Function(
        text,
        name=function.__name__,
        arguments=parameter_names(function),
        sizes=sizes,
        static=_names(static),
        superopt=superopt,
        schedule=schedule,
        tuned=tuned,
        warp_specialise=warp_specialise,
    )
    return functools.update_wrapper(made, function)


def compile(
    source: Graph | ir.Module | str | os.PathLike[str],
    function: str | None = None,
    *,
    sizes: Sequence[Sizes] = (),
    static: str | Sequence[str] = "",
    superopt: bool = True,
) -> Function:
    """A ``Function`` from a graph, an MLIR module (linalg on tensors or our dialect), its text, or a file of it.

    ``function`` chooses one of several; ``sizes`` and ``static`` as in ``Function``. CleaveError, located, for what
    cannot be read.
    """
    from cleave.lowering.source import chosen, text_of

    text = text_of(source)
    name = chosen(text, function)
    return Function(text, name=name, sizes=sizes, static=_names(static), superopt=superopt)
