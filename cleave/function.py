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

if TYPE_CHECKING:
    from cleave.bindings import ir
    from cleave.runtime.call import Operands
    from cleave.runtime.cuda import Program
    from cleave.runtime.cuda_driver import Driver
    from cleave.runtime.launch_plan import LaunchPlan
    from cleave.runtime.package import Package, Variant

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
    ) -> None:
        self.source, self.name, self._arguments, self._static = source, name, tuple(arguments), tuple(static)
        self._asked, self._superopt = _checked_sizes(sizes), superopt
        self._schedule, self._tuned = dict(schedule or {}), tuned or knobs.TUNED.value
        self._variants: dict[tuple[tuple[str, int], ...], Variant] = {}
        self._special: dict[tuple[tuple[str, int], ...], Function] = {}
        self._best: dict[tuple[tuple[str, int], ...], Variant | None] = {}
        self._programs: dict[tuple[int, str], Program] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<cleave.Function {self.name}({', '.join(map(str, self.signature.arguments))})>"

    def __call__(self, *tensors: Any, sizes: Sizes | None = None, stream: int | None = None) -> Any:
        """The results for PyTorch's tensors, NumPy's arrays or anything with DLPack, of the same kind; one or a tuple.

        On a GPU it returns before they are computed, on ``stream`` or the current one. ``sizes`` gives symbols that no
        tensor binds, such as the number of parts of a split. CleaveError, before any launch, for tensors that do not
        fit the function or each other.
        """
        from cleave.runtime.call import Operands, run

        operands = Operands.of(tensors)
        bound = self._bound(operands)
        special = self.specialised(**{name: bound[name] for name in self._static if name in bound})
        variant = special._variant_for(bound, on_gpu=operands.kind != "host")
        results = run(variant, special._program, operands, sizes or {}, stream)
        return results[0] if len(results) == 1 else tuple(results)

    # --- what it was compiled to ---

    @functools.cached_property
    def optimised(self) -> str:
        """The module with the source and its alternatives, as MLIR."""
        ctx, module = _parsed(self.source, self.name)
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
        from cleave.passes.functions import name_of

        _, module = _parsed(self.optimised, self.name)
        rows = [
            f"{name_of(op.operation)}: {plain('string', op.operation.attributes['cleave.cost'])}"
            for op in module.body.operations
            if "cleave.cost" in op.operation.attributes
        ]
        return "".join(f"{row}\n" for row in rows)

    def candidates(self, count: int, *targets: str, **sizes: int) -> Package:
        """The ``count`` programs of least predicted time for these sizes, compiled, the model's choice first."""
        from cleave.lowering.package import package
        from cleave.lowering.targets import Target
        from cleave.passes import registry
        from cleave.tuner.candidates import variants

        text = ",".join(f"{name}={size}" for name, size in sorted(sizes.items()))
        schedule = cast(Any, registry.create("cleave-schedule", sizes=text, **self._schedule))
        found = variants(self.optimised, self.name, schedule, count, [Target.parse(target) for target in targets])
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
        bound = self._bound(Operands.of(tensors))
        special = self.specialised(**{name: bound[name] for name in self._static if name in bound})
        sizes = {name: bucket(size) for name, size in bound.items() if name not in special.signature.extents}
        driver = _current_driver()
        package = special.candidates(candidates, driver.architecture(), **sizes)
        plain = Function(special.source, name=self.name, superopt=False, schedule={"iterative_tiling": False})
        check, what = like(plain(*tensors)), f"{self.name} {sizes}"
        key, timer = special._key(sizes), Timer()
        yield from tune(package, tensors, check, timer.microseconds, store=Store(path), key=key, what=what)

    # --- compiling ---

    def specialised(self, **sizes: int) -> Function:
        """The same function for these sizes of some symbols alone."""
        if not sizes:
            return self
        for name, size in sizes.items():
            if not isinstance(size, int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise CleaveError(f"the size '{name}' is {size!r}, no integer")
        key = tuple(sorted(sizes.items()))
        with self._lock:
            if key not in self._special:
                text = _with_extents(self.source, self.name, sizes)
                self._special[key] = Function(
                    text,
                    name=self.name,
                    arguments=self._arguments,
                    sizes=self._asked,
                    superopt=self._superopt,
                    schedule=self._schedule,
                    tuned=self._tuned,
                )
            return self._special[key]

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
        from cleave.tuner.store import key_of

        options = {**self._schedule, "superopt": self._superopt}
        driver = _current_driver()
        return key_of(_without_locations(self.source, self.name), sizes, options, driver.device_name(), versions())

    def _bound(self, operands: Operands) -> dict[str, int]:
        """The dynamic symbols' values, from the shapes."""
        from cleave.runtime.bind_sizes import bind_sizes
        from cleave.runtime.call import check_ranks

        plan = self.signature
        check_ranks(plan, operands)
        values = bind_sizes(plan, operands.shapes).values
        return {name: value for name, value in values.items() if name not in plan.extents}

    @functools.cached_property
    def signature(self) -> LaunchPlan:
        """The arguments and what is known of the sizes, without steps."""
        from cleave.bindings import ir
        from cleave.dialects.cleave import facts_of
        from cleave.runtime.launch_plan import LaunchPlan
        from cleave.tools import run_functions

        ctx, module = _parsed(self.source, self.name)
        with ctx, ir.Location.unknown():
            self._apply(module, "cleave-import-linalg")
            func = run_functions.entry(module, self.name)
            arguments, _ = run_functions.signature(func)
            extents = {
                str(dim.size): extent
                for spec in arguments
                for dim, extent in zip(map(Dim.parse, spec.dims), spec.extents, strict=True)
                if extent is not None and str(dim.size) in dim.size.symbols
            }
            return self._named(LaunchPlan(self.name, tuple(arguments), (), (), facts_of(func).texts, extents))

    def _named(self, plan: LaunchPlan) -> LaunchPlan:
        return plan.with_argument_names(self._arguments) if self._arguments else plan

    def _compiled(self, sizes: Sizes) -> Variant:
        from cleave.lowering.package import variant_of

        ctx, module = self._lowered(sizes)
        with ctx:
            variant = variant_of(module, self.name, sizes=sizes)
        return replace(variant, plan=self._named(variant.plan))

    def _lowered(self, sizes: Sizes, *, explain: bool = False) -> tuple[ir.Context, ir.Module]:
        ctx, module = _parsed(self.optimised, self.name)
        with ctx:
            text = ",".join(f"{name}={size}" for name, size in sorted(sizes.items()))
            self._apply(module, "cleave-schedule", sizes=text, explain=explain, **{"aligned": True, **self._schedule})
            self._apply(module, "cleave-lower-to-triton")
        return ctx, module

    def _apply(self, module: ir.Module, name: str, **options: Any) -> None:
        from cleave.passes import pipelines, registry

        pipelines.run([registry.create(name, **options)], module)

    def _program(self, variant: Variant) -> Program:
        from cleave.lowering.package import compiled_for
        from cleave.lowering.targets import Target
        from cleave.runtime.cuda import Program

        driver = _current_driver()
        target = driver.architecture()
        with self._lock:
            key = (id(variant), target)
            if key not in self._programs:
                binaries = compiled_for(variant, [Target.parse(target)]).binaries[target]
                self._programs[key] = Program(variant.plan, binaries, driver)
            return self._programs[key]


def _checked_sizes(sizes: Any) -> tuple[dict[str, int], ...]:
    if isinstance(sizes, str) or not all(isinstance(each, Mapping) for each in sizes):
        raise CleaveError(f"sizes={sizes!r}: a list of dictionaries", notes=('as in sizes=[{"m": 16}, {"m": 4096}]',))
    return tuple(dict(each) for each in sizes)


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
    static: str = "",
    superopt: bool = True,
    schedule: Mapping[str, Any] | None = None,
    tuned: str | os.PathLike[str] | None = None,
) -> Any:
    """Decorate a function whose parameters are annotated with tensor types: it becomes a ``Function``.

        @cleave.jit
        def attention(q: f16["h m d"], k: f16["h n d"], v: f16["h n e"]) -> f16: ...

    ``facts`` on sizes, such as "n = 16*n16"; ``sizes`` and ``static`` ("d e") as in ``Function``.
    """
    if function is not None and not inspect.isfunction(function):
        raise CleaveError(f"a {type(function).__name__} is no function to trace")
    if function is None:
        return functools.partial(
            jit, facts=facts, sizes=sizes, static=static, superopt=superopt, schedule=schedule, tuned=tuned
        )
    from cleave.language.trace import parameter_names, trace

    text = _graph_text(trace(function, facts))
    made = Function(
        text,
        name=function.__name__,
        arguments=parameter_names(function),
        sizes=sizes,
        static=static.split(),
        superopt=superopt,
        schedule=schedule,
        tuned=tuned,
    )
    return functools.update_wrapper(made, function)


def compile(
    source: Graph | ir.Module | str | os.PathLike[str],
    function: str | None = None,
    *,
    sizes: Sequence[Sizes] = (),
    static: str = "",
    superopt: bool = True,
) -> Function:
    """A ``Function`` from a graph, an MLIR module (linalg on tensors or our dialect), its text, or a file of it.

    ``function`` chooses one of several; ``sizes`` and ``static`` as in ``Function``. CleaveError, located, for what
    cannot be read.
    """
    text = _text_of(source)
    return Function(text, name=_chosen(text, function), sizes=sizes, static=static.split(), superopt=superopt)


def _text_of(source: Any) -> str:
    if isinstance(source, Graph):
        return _graph_text(source)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source and source.endswith(".mlir")):
        try:
            with open(source, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            raise CleaveError(f"cannot read {source}: {error.strerror}") from None
    if isinstance(source, str) or type(source).__name__ == "Module":
        return str(source)
    raise CleaveError(f"a {type(source).__name__} is no program", notes=("give a graph, MLIR, or the path of a file",))


def _graph_text(graph: Graph, *, empty_rows: bool = False) -> str:
    """As MLIR, with locations; ``empty_rows``: with ``cleave.empty_rows = "zero"``."""
    from cleave.bindings import context, ir
    from cleave.passes.graph_io import EMPTY_ROWS, from_graph

    with context(allow_unregistered=True), ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module, {EMPTY_ROWS: ir.StringAttr.get("zero")} if empty_rows else {})
        return str(module.operation.get_asm(enable_debug_info=True))


def _without_locations(text: str, name: str) -> str:
    """The same module whatever file it was written in."""
    _, module = _parsed(text, name)
    return str(module)


def _with_extents(text: str, name: str, sizes: Sizes) -> str:
    """The function alone, with static sizes for some symbols."""
    from cleave.passes import pipelines, registry
    from cleave.passes.graph_io import EMPTY_ROWS, to_graph
    from cleave.tools.run_functions import entry

    ctx, module = _parsed(text, name)
    with ctx:
        pipelines.run([registry.create("cleave-import-linalg")], module)
        func = entry(module, name)
        graph, empty_rows = to_graph(func), EMPTY_ROWS in func.attributes
    known = {symbol for value in graph.topological() for dim in value.dims for symbol in dim.size.symbols}
    for size in sizes.keys() - known:
        raise CleaveError(f"{name} has no size '{size}'", notes=(f"its sizes: {', '.join(sorted(known)) or 'none'}",))
    return _graph_text(replace(graph, extents={**graph.extents, **sizes}), empty_rows=empty_rows)


def _parsed(text: str, name: str) -> tuple[ir.Context, ir.Module]:
    """A context and the module; CleaveError, located, where the text is none."""
    from cleave.bindings import MLIRError, context, ir
    from cleave.passes import diagnostics

    ctx = context(allow_unregistered=True)
    found: list[Any] = []

    def keep(info: ir.Diagnostic) -> bool:
        found.append(diagnostics.from_mlir(info))
        return True

    handler: Any = ctx.attach_diagnostic_handler(keep)
    try:
        with ctx, ir.Location.unknown():
            return ctx, ir.Module.parse(text)
    except MLIRError:
        first = found[0] if found else None
        message = first.message if first else f"the module of '{name}' cannot be parsed"
        raise CleaveError(message, first.position if first else None) from None
    finally:
        handler.detach()


def _chosen(text: str, function: str | None) -> str:
    """The name of the function: the one asked for, or the only one."""
    from cleave.passes.functions import name_of
    from cleave.tools.run_functions import entry

    ctx, module = _parsed(text, function or "source")
    with ctx:
        return name_of(entry(module, function))
