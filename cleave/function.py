"""A tensor function that is compiled when it is called.

The algebra is done once, on symbols. Schedules are made for sizes: one for each bucket of sizes that is met (or those
that are asked for), and each of them takes all sizes.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from cleave import knobs
from cleave.arguments import check_options, checked
from cleave.buckets import agreeing, buckets, checked_sizes
from cleave.compilation import Compilation, Sizes
from cleave.dialects.dims import Dim, Facts
from cleave.dialects.given_sizes import admitted, check_given
from cleave.errors import CleaveError
from cleave.runtime.bind_sizes import bind_sizes
from cleave.runtime.pitched import Layouts, checked_layouts, layouts_of
from cleave.runtime.remembered import Remembered
from cleave.tuned import Tuned
from cleave.wider import Wider

if TYPE_CHECKING:
    from cleave.lowering.targets import Target
    from cleave.runtime.call import Operands
    from cleave.runtime.launch_plan import LaunchPlan
    from cleave.runtime.package import Package, Variant
    from cleave.runtime.programs import Programs

DEFAULT_TARGET = "sm_90"


@dataclass(frozen=True)
class _Taken:
    """The function that takes a call, the operands as it takes them, the sizes they have and those that parts tell."""

    function: Function
    operands: Operands
    bound: Sizes
    learnt: Sizes = field(default_factory=dict[str, int])


class Function:
    """A compiled tensor function; usable from several threads.

    ``sizes``: those to schedule for; a call takes the schedule of the nearest. Without any, a schedule is made when
    sizes are met that are far (a factor of ``RATIO``) from all known ones. ``arguments``: what messages call them.
    ``static``: symbols whose sizes are compiled in, once for each value that is met. ``schedule``: options of
    ``cleave-schedule``. ``tuned``: a file of tuning results, whose programs are taken on the GPU they were measured on.
    ``warp_specialise``: kernels may be lowered to TTGIR for sm_90, where the cost model expects that to be faster; they
    run on no other architecture. None: only where numbers are compared before a program is taken, as ``tune`` does.
    ``library``: launches that are plain products of two tensors are cuBLAS's, where there is one. None: only where
    ``tune`` measured that to be faster; False: nowhere.
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
        library: bool | None = None,
    ) -> None:
        tuned = tuned or knobs.TUNED.value
        check_options(superopt, schedule, tuned, warp_specialise=warp_specialise, library=library)
        options = tuple(arguments), superopt, dict(schedule or {}), warp_specialise, library
        self._compilation = Compilation(source, name, *options)
        self._static, self._asked = tuple(static), checked_sizes(sizes)
        self._tuned = Tuned(tuned, self._compilation)
        self._variants: dict[tuple[tuple[str, int], ...], Variant] = {}
        self._special: dict[tuple[tuple[str, int], ...], Function] = {}
        self._wider = Wider(self._around)
        self._remembered = Remembered()
        self._lock = threading.RLock()
        if self._static or self._asked:
            self._check_names()

    def _check_names(self) -> None:
        """CleaveError for a size that no argument has, or that is another one in an argument's type."""
        from cleave.runtime.call import check_names

        plan = self.signature
        dims = [Dim.parse(text) for spec in plan.arguments for text in spec.dims]
        known = {symbol for dim in dims for symbol in dim.size.symbols} | plan.extents.keys()
        check_names(self.name, self._static, known)
        facts = Facts.parse(plan.facts)
        known |= {symbol for dim in dims for symbol in facts.simplify(dim.size).symbols} | self._compilation.free
        for sizes in self._asked:
            check_names(self.name, sizes, known)
            check_given(sizes, plan.extents, facts)

    def __repr__(self) -> str:
        return f"<cleave.Function {self.name}({', '.join(map(str, self.signature.arguments))})>"

    def __reduce__(self) -> str:
        """Pickled by name, as functions are. CleaveError for one that none was made of, which has no name."""
        if not hasattr(self, "__wrapped__"):
            notes = ("f.package(...) is pickled, and cleave.compile(f.source) makes it again",)
            raise CleaveError(f"{self.name} is no function of a module, which would be pickled by name", notes=notes)
        return cast(Any, self).__qualname__

    def __call__(self, /, *tensors: Any, sizes: Sizes | None = None, stream: int | None = None, **named: Any) -> Any:
        """The results for PyTorch's tensors, NumPy's arrays or anything with DLPack, of the same kind; one or a tuple.

        Tensors may be given by name. On a GPU it returns before they are computed, on ``stream`` or the current one;
        parts of row-major tensors, such as slices and transposed ones, are read where they lie, and other tensors of
        PyTorch's that are not row-major are copied first. ``sizes`` gives symbols that no tensor binds: those
        of the function must be given, others, such as the number of parts of a split, may. CleaveError, before any
        launch, for tensors and sizes that do not fit the function or each other.
        """
        if not named and (known := self._remembered.call(tensors, sizes, stream)) is not None:
            return known
        from cleave.runtime.call import check_sizes, check_stream, in_order

        check_sizes(sizes or {})
        check_stream(stream)
        return self._results(in_order(self.signature, tensors, named), sizes or {}, stream)

    def _results(self, given: Sequence[Any], sizes: Sizes, stream: int | None) -> Any:
        from cleave.runtime.call import Operands, check_names, run

        operands = Operands.of(given, stream, parts=True)
        known = self._remembered.call(operands.values, sizes, stream) if operands.has_copies(given) else None
        if known is not None:
            return known
        taken = self._as_parts(operands, sizes) or self._as_it_is(Operands.of(given, stream))
        if not sizes.keys() <= self._compilation.free:
            check_names(self.name, sizes, taken.function._compilation.known_sizes)
        units = taken.function._compilation.compiled_in(sizes)
        variant = taken.function._variant_for(taken.bound, units, on_gpu=operands.kind != "host")
        programs, learnt = taken.function._programs, taken.learnt
        results = run(variant, programs, taken.operands, sizes, stream, self._remembered, learnt)
        return results[0] if len(results) == 1 else tuple(results)

    def _as_it_is(self, operands: Operands) -> _Taken:
        """By the function of static sizes."""
        bound = self._bound(operands)
        return _Taken(self._of_static(bound), operands, bound)

    def _as_parts(self, operands: Operands, sizes: Sizes) -> _Taken | None:
        """By a function of the tensors around parts; None where there are none, or they are to be copied."""
        if not operands.pitched:
            return None
        bound = self._bound(operands, sizes)  # which refuses sizes that are not those of the parts
        special = self._of_static(bound)
        found = special._wider(operands)
        if found is None:
            return None
        wider, fitting = found
        learnt = {name: size for name, size in bound.items() if name not in special.signature.extents}
        return _Taken(wider, fitting, learnt, learnt)  # how much lies around the parts makes no other schedule

    def _of_static(self, bound: Sizes) -> Function:
        return self.specialised(**{name: bound[name] for name in self._static if name in bound})

    # --- what it was compiled to ---

    @property
    def name(self) -> str:
        return self._compilation.name

    @property
    def source(self) -> str:
        """The module, as MLIR."""
        return self._compilation.source

    @property
    def optimised(self) -> str:
        """The module with the source and its alternatives, as MLIR."""
        return self._compilation.optimised

    @property
    def signature(self) -> LaunchPlan:
        """The arguments and what is known of the sizes, without steps."""
        return self._compilation.signature

    @checked
    def variant(self, **sizes: int) -> Variant:
        """The schedule for these sizes; others are taken for what the cost model assumes."""
        key = tuple(sorted(sizes.items()))
        with self._lock:
            if key not in self._variants:
                self._variants[key] = self._compilation.variant(dict(sizes))
            return self._variants[key]

    @checked
    def ttir(self, **sizes: int) -> str:
        """The kernels for these sizes as Triton IR."""
        function, rest = self._static_in(sizes)
        return "\n".join(function.variant(**rest).ttir.values())

    @checked
    def ptx(self, target: str = DEFAULT_TARGET, **sizes: int) -> str:
        """The kernels for these sizes as PTX."""
        from cleave.lowering.emit import emit
        from cleave.lowering.targets import Target

        wanted, (function, rest) = Target.parse(target), self._static_in(sizes)
        _, module = function._compilation.lowered(rest)
        return cast(str, emit(module, "ptx", wanted))

    def _static_in(self, sizes: Sizes) -> tuple[Function, Sizes]:
        """The function that calls of these sizes use, whose static ones are compiled in, and the other sizes."""
        static = {name: size for name, size in sizes.items() if name in self._static}
        return self.specialised(**static), {name: size for name, size in sizes.items() if name not in static}

    @checked
    def explain(self, **sizes: int) -> str:
        """The alternatives with their costs, the schedules that were weighed for these sizes, and what a call launches
        otherwise: a program that was measured to be faster, and cuBLAS's products. What is assumed of sizes that are
        not given stands in the last line."""
        import contextlib
        import io

        function, rest = self._static_in(sizes)
        if function is not self:
            return function.explain(**rest)
        text = io.StringIO(self._compilation.assumed(sizes) + self._compilation.alternatives())
        text.seek(0, io.SEEK_END)
        with contextlib.redirect_stderr(text):
            self._compilation.lowered(sizes, explain=True)
        return text.getvalue() + self._launched(sizes)

    def _launched(self, sizes: Sizes) -> str:
        """What calls of these sizes launch that is not the model's choice of kernels; empty where there is none."""
        try:
            measured = self._tuned.best(self._scheduled_for(sizes))
        except CleaveError:  # without a GPU the model decides
            measured = None
        lines = [f"measured to be the fastest here: {measured.label}"] if measured else []
        lines += (measured or self.variant(**sizes)).library() if measured or self._compilation.library else []
        return "".join(f"\n{line}" for line in lines)

    @checked
    def package(
        self,
        *targets: str,
        sizes: Sequence[Sizes] = (),
        layouts: Sequence[Mapping[str, str]] | None = None,
    ) -> Package:
        """All of it as one object to ``save``, with schedules for ``sizes`` (or for all that have been used).

        ``layouts``: ways in which arguments lie that it takes beside row-major ones, as in ``[{"x": "m k+"}]``: the
        dims from the outermost in memory to the one whose elements are neighbours, with a ``+`` where more lies along
        it than the tensor has. None: those that have been used.
        """
        from cleave.lowering.package import package
        from cleave.lowering.targets import Target

        wanted = [Target.parse(target) for target in targets or (DEFAULT_TARGET,)]
        asked = [self._lying(each) for each in checked_layouts(layouts or ())]
        found = self._packed(checked_sizes(sizes), wanted, default=True)
        for wider in [*self._wider.known.values()] if layouts is None else asked:
            found += wider._packed(sizes, wanted, default=layouts is not None)
        return package(self.name, found)

    def _packed(self, sizes: Sequence[Sizes], targets: Sequence[Target], *, default: bool = False) -> list[Variant]:
        """For these sizes, those asked for, or all that were used; if there is none, the ``default``."""
        found = [self.variant(**each) for each in sizes or self._asked] or [*self._variants.values()]
        found = found or ([self.variant()] if default else [])
        return [each for variant in found for each in self._compilation.compiled(variant, targets)]

    def _lying(self, texts: Mapping[str, str]) -> Function:
        """For arguments that lie as these texts say. CleaveError where that would leave a result no memory."""
        found = self._wider.of(layouts_of(texts, self.signature.arguments, self.name))
        if found is None:
            raise CleaveError(f"a result of {self.name} is one of {', '.join(texts)}, which is row-major then")
        return found

    @checked
    def candidates(self, count: int, *targets: str, **sizes: int) -> Package:
        """The ``count`` programs of least predicted time for these sizes, compiled, the model's choice first; of two
        or more some warp-specialised ones are there with a part of their exponentials by a polynomial, too.

        They are there to be compared and measured: for sm_90 some are warp-specialised, and some have plain products
        made by cuBLAS, unless that is switched off. Where the form is asked for, the first of these is there without
        each part of it, too.
        """
        from cleave.lowering.package import package
        from cleave.lowering.targets import Target

        wanted = [Target.parse(target) for target in targets]
        return package(self.name, self._compilation.candidates(count, wanted, sizes))

    @checked
    def tune(self, *tensors: Any, candidates: int = 16, store: str | os.PathLike[str] | None = None) -> Iterator[Any]:
        """Measure candidates on the GPU with PyTorch's tensors, and keep the fastest in the file ``store``.

        Gives a ``Progress`` after each; what is in the file already is not measured again. Results are compared with
        the function as written, each reduction in a kernel of its own.
        """
        from cleave.runtime.call import Operands
        from cleave.tuned import current_driver
        from cleave.tuner.check import like
        from cleave.tuner.store import Store
        from cleave.tuner.timing import Timer
        from cleave.tuner.tune import tune

        path = store or self._tuned.path
        if not path:
            raise CleaveError("tuning needs a file for its results", notes=("give store=..., or set CLEAVE_TUNED",))
        taken = self._as_parts(Operands.of(tensors, parts=True), {}) or self._as_it_is(Operands.of(tensors))
        special = taken.function
        sizes = special._scheduled_for(taken.bound)
        package = special.candidates(candidates, current_driver().architecture(), **sizes)
        options: dict[str, Any] = {"superopt": False, "schedule": {"iterative_tiling": False}}
        plain = Function(self.source, name=self.name, static=self._static, **options)
        check, what = like(plain(*tensors)), f"{self.name} {sizes}"
        key, timer = special._tuned.key(sizes), Timer()
        yield from tune(package, tensors, check, timer.microseconds, store=Store(path), key=key, what=what)
        self._remembered = Remembered()  # so that calls take what was found
        special._tuned.forget()

    # --- compiling ---

    @functools.cached_property
    def _programs(self) -> Programs:
        from cleave.lowering.targets import Target
        from cleave.runtime.programs import Programs

        return Programs(lambda variant, target: self._compilation.compiled(variant, [Target.parse(target)])[0])

    @checked
    def specialised(self, **sizes: int) -> Function:
        """The same function for these sizes of some symbols alone."""
        from cleave.lowering.source import with_extents

        if not sizes:
            return self
        key = tuple(sorted(sizes.items()))
        with self._lock:
            if key not in self._special:
                text = with_extents(self.source, self.name, sizes)
                self._special[key] = self._like(replace(self._compilation, source=text))
            return self._special[key]

    def _around(self, layouts: Layouts) -> Function | None:
        """The same function of the row-major tensors around arguments that are parts of them."""
        found = self._compilation.around(layouts)
        return found and self._like(found)

    def _like(self, compilation: Compilation) -> Function:
        """Another one with the same options, and those of the asked sizes that it may have."""
        plan = compilation.signature
        made = Function(compilation.source, name=self.name)
        made._asked = self._asked and agreeing(self._asked, plan.extents, plan.facts)
        made._compilation, made._tuned = compilation, Tuned(self._tuned.path, compilation)
        return made

    def _variant_for(self, bound: Sizes, units: Sizes, *, on_gpu: bool) -> Variant:
        if self._asked:
            bound = {name: size for name, size in bound.items() if name not in self.signature.extents}
            found = (self.variant(**self._admitted({**units, **each})) for each in self._asked)
            return min(found, key=lambda variant: variant.distance(bound))
        sizes = self._scheduled_for(bound, units)
        return (on_gpu and self._tuned.best(sizes)) or self.variant(**sizes)

    def _scheduled_for(self, bound: Sizes, units: Sizes | None = None) -> dict[str, int]:
        """The sizes that stand for these when a schedule is chosen, and others that are compiled in."""
        plan = self.signature
        free = {name: size for name, size in bound.items() if name not in plan.extents}
        return self._admitted({**(units or {}), **buckets(free, Facts.parse(plan.facts))})

    def _admitted(self, sizes: Sizes) -> dict[str, int]:
        return admitted(sizes, self.signature.extents, Facts.parse(self.signature.facts))

    def _bound(self, operands: Operands, given: Sizes | None = None) -> dict[str, int]:
        """The dynamic symbols' values, from the shapes."""
        from cleave.runtime.call import check_ranks

        plan = self.signature
        check_ranks(plan, operands.shapes)
        values = bind_sizes(plan, operands.shapes, given).values
        return {name: value for name, value in values.items() if name not in plan.extents}
