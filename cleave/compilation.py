"""From the text of a function to what runs: algebra once, on symbols; schedules and kernels for sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from cleave.dialects.dims import Dim, Facts
from cleave.errors import CleaveError
from cleave.runtime.pitched import Layouts, Parts

if TYPE_CHECKING:
    from cleave.bindings import ir
    from cleave.dialects.graph import Graph
    from cleave.lowering.targets import Target
    from cleave.runtime.launch_plan import LaunchPlan
    from cleave.runtime.package import Variant

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Compilation:
    """One function of a module and the options of its compilation, which are those of ``Function``.

    ``parts``: where it takes the row-major tensors around arguments.
    """

    source: str
    name: str
    arguments: tuple[str, ...]
    superopt: bool
    schedule: Mapping[str, Any]
    warp_specialise: bool | None
    library: bool | None
    parts: Parts | None = None

    def around(self, layouts: Layouts) -> Compilation | None:
        """Of the same function of the row-major tensors around parts; None if a result is such an argument."""
        from cleave.lowering.pitches import with_pitches

        text = with_pitches(self.source, self.name, layouts)
        return None if text is None else replace(self, source=text, parts=Parts(self.signature.arguments, layouts))

    def key(self, sizes: Sizes, device: str) -> str:
        """Under which tuning results for these sizes on such a GPU are kept."""
        from cleave.lowering.package import versions
        from cleave.lowering.source import without_locations
        from cleave.runtime.cublas import shared_cublas
        from cleave.tuner.store import key_of

        given = {"warp_specialise": self.warp_specialise, "library": self.library}
        options = {**self.schedule, "superopt": self.superopt}
        options |= {name: value for name, value in given.items() if value is not None}
        options |= {} if self.library is False else {"cublas": str(shared_cublas())}
        return key_of(without_locations(self.source), sizes, options, device, versions())

    # --- the source ---

    @property
    def signature(self) -> LaunchPlan:
        """The arguments and what is known of the sizes, without steps."""
        return self._read[0]

    @property
    def free(self) -> frozenset[str]:
        """The symbols of the source that no argument binds."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[LaunchPlan, frozenset[str]]:
        from cleave.bindings import ir
        from cleave.dialects.cleave import facts_of
        from cleave.lowering import run_functions
        from cleave.lowering.source import parsed
        from cleave.runtime.launch_plan import LaunchPlan

        ctx, module = parsed(self.source)
        with ctx, ir.Location.unknown():
            _apply(module, "cleave-import-linalg")
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
        return plan.with_argument_names(self.arguments) if self.arguments else plan

    # --- the algebra ---

    @property
    def optimised(self) -> str:
        """The module with the source and its alternatives, as MLIR."""
        from cleave.lowering.source import without_locations

        return without_locations(self._optimised)

    @cached_property
    def _optimised(self) -> str:
        """The same with the places of the source, for what is said of ops later on."""
        from cleave.lowering.run_functions import check_compilable, entry
        from cleave.lowering.source import parsed
        from cleave.passes.functions import names_by_place

        ctx, module = parsed(self.source)
        with ctx:
            written = names_by_place(entry(module, self.name))
            _apply(module, "cleave-import-linalg")
            check_compilable(entry(module, self.name), written)
            if self.superopt:
                _apply(module, "cleave-superopt")
            return str(module.operation.get_asm(enable_debug_info=True))

    def alternatives(self) -> str:
        """The source and what the superoptimiser found beside it, each with its cost on symbols."""
        from cleave.dialects.cleave import plain
        from cleave.lowering.source import parsed
        from cleave.passes.functions import name_of

        _, module = parsed(self._optimised)
        rows = [
            f"{name_of(op.operation)}: {plain('string', op.operation.attributes['cleave.cost'])}"
            for op in module.body.operations
            if "cleave.cost" in op.operation.attributes
        ]
        return "".join(f"{row}\n" for row in rows)

    def assumed(self, sizes: Sizes) -> str:
        """A line that says which sizes are not among these, and what is assumed of them; empty where all are."""
        from cleave.runtime.pitched import argument_symbols
        from cleave.schedule.scheduler import DEFAULT_SIZE

        plan = self.signature
        known = {*sizes, *plan.extents, *Facts.parse(plan.facts).definitions}
        unknown = sorted(argument_symbols(plan.arguments) - known)
        return f"not given, taken to be {DEFAULT_SIZE}: {', '.join(unknown)}\n" if unknown else ""

    @cached_property
    def known_sizes(self) -> frozenset[str]:
        """The symbols of the source as it is called, static ones too, and of what the superoptimiser made of it."""
        from cleave.lowering.run_functions import symbols
        from cleave.lowering.source import parsed

        ctx, module = parsed(self._optimised)
        with ctx:
            found = frozenset(name for op in module.body.operations for name in symbols(op.operation))
        found |= self.signature.extents.keys()
        return found - self.parts.around_only(self.signature) if self.parts else found

    def compiled_in(self, sizes: Sizes) -> dict[str, int]:
        """Those of a call's sizes that kernels are compiled for: what the parts of splits are multiples of.

        CleaveError for a size that no tensor binds, against the facts of any program, whichever a call takes.
        """
        from cleave.schedule.part_lengths import given_units

        units = [given_units(graph, sizes) for graph in self._graphs] if sizes else []
        return {name: size for each in units for name, size in each.items()}

    @cached_property
    def _graphs(self) -> list[Graph]:
        from cleave.lowering.source import parsed
        from cleave.passes.functions import tensor_functions
        from cleave.passes.graph_io import to_graph

        ctx, module = parsed(self._optimised)
        with ctx:
            return [to_graph(func) for group in tensor_functions(module) for func in group]

    # --- schedules ---

    def lowered(
        self, sizes: Sizes, *, explain: bool = False, warp_specialise: bool = True
    ) -> tuple[ir.Context, ir.Module]:
        """The module of host function and kernels for these sizes; ``warp_specialise``: if that is asked for."""
        from cleave.lowering.source import parsed

        ctx, module = parsed(self._optimised)
        with ctx:
            specialise = warp_specialise and bool(self.warp_specialise)
            chosen = {"warp_specialise": specialise, "library": int(bool(self.library))}
            options = {"aligned": True, **chosen, **self.schedule}
            _apply(module, "cleave-schedule", sizes=_spelt(sizes), explain=explain, **options)
            if specialise:
                _apply(module, "cleave-lower-to-ttgir", chosen=True)
            else:
                _apply(module, "cleave-lower-to-triton")
        return ctx, module

    def variant(self, sizes: Sizes, *, warp_specialise: bool = True) -> Variant:
        """The model's choice for these sizes."""
        from cleave.lowering.package import variant_of

        ctx, module = self.lowered(sizes, warp_specialise=warp_specialise)
        with ctx:
            return self._own(variant_of(module, self.name, sizes=sizes))

    def compiled(self, variant: Variant, targets: Sequence[Target]) -> list[Variant]:
        """The variant with binaries for these targets too.

        If one of its kernels is warp-specialised and the compiler refuses a kernel for a target, or makes one that is
        not what was meant, that target has a variant of its own, the choice among other kernels, with a remark.
        """
        from cleave.lowering.package import compiled_for
        from cleave.lowering.targets import TTGIR_TARGET
        from cleave.passes.diagnostics import remark

        if not any(TTGIR_TARGET in text for text in variant.ttir.values()):
            return [compiled_for(variant, targets)]
        others: list[Target] = []
        found = variant
        for target in targets:
            try:
                found = compiled_for(found, [target])
            except CleaveError as error:
                others.append(target)
                remark(error.location, f"'{self.name}' is lowered to TTIR for {target}: {error.message}", error.notes)
        own = [found] if len(others) < len(targets) else []
        return own + ([compiled_for(self.variant(variant.sizes, warp_specialise=False), others)] if others else [])

    def candidates(self, count: int, targets: Sequence[Target], sizes: Sizes) -> list[Variant]:
        """The ``count`` programs of least predicted time, compiled for these targets, the model's choice first."""
        from cleave.dialects.given_sizes import check_given
        from cleave.passes import registry
        from cleave.runtime.call import check_names
        from cleave.schedule.warp_specialised import ARCHITECTURES
        from cleave.tuner.candidates import variants

        if not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CleaveError(f"{count!r} candidates: a number from 1 on")
        check_names(self.name, sizes, self.known_sizes)
        check_given(sizes, self.signature.extents, Facts.parse(self.signature.facts))
        possible = bool(targets) and all(target.name in ARCHITECTURES for target in targets)
        specialise = possible if self.warp_specialise is None else self.warp_specialise
        options = {"warp_specialise": specialise, **self.schedule}
        schedule = cast(Any, registry.create("cleave-schedule", sizes=_spelt(sizes), **options))
        every = self.warp_specialise is True
        library = self.library is not False
        found = variants(self._optimised, self.name, schedule, count, targets, ablations=every, library=library)
        return [self._own(variant) for variant in found]

    def _own(self, variant: Variant) -> Variant:
        """With the names of the arguments, and how these lie. What the source leaves open is no schedule's choice."""
        plan = self._with_names(variant.plan.without_choices(self.free))
        return replace(variant, plan=plan, parts=self.parts)


def _spelt(sizes: Sizes) -> str:
    return ",".join(f"{name}={size}" for name, size in sorted(sizes.items()))


def _apply(module: ir.Module, name: str, **options: Any) -> None:
    from cleave.passes import pipelines, registry

    pipelines.run([registry.create(name, **options)], module)
