"""``cleave-schedule``: tensor functions become kernels over tiles and a host function that launches them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.bindings import ir
from cleave.dialects.given_sizes import check_given, check_static
from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.passes import diagnostics
from cleave.passes.functions import name_of, tensor_functions
from cleave.passes.graph_io import meant_graph, to_graph
from cleave.passes.options import parse_sizes
from cleave.passes.tile_io import from_tile_program
from cleave.schedule.alignment import aligned
from cleave.schedule.arrange import arranged
from cleave.schedule.explain import LEGEND, Outlook, table
from cleave.schedule.explain import alternatives as alternatives_table
from cleave.schedule.scheduler import COARSE, FINALISTS, Combine, Scheduled, ScheduleOptions, schedule, schedules_of
from cleave.schedule.target import target_named
from cleave.schedule.tile_program import TileProgram

CHOSEN = "cleave.alternative"
"""On a host function: which of several alternatives was scheduled, by its name."""


@dataclass(frozen=True)
class Schedule:
    """Schedule each tensor function, or the best of its alternatives, as kernels and their launches.

    ``sizes``: representative sizes of dynamic dims for the cost model, as in "m=128,n=4096"; the kernels take any.
    Ablations: ``superopt=off`` passes over all alternatives, ``split=off`` over those that cut a dim into parts (parts
    that the source itself has stay), ``iterative_tiling=off`` and ``horizontal_fusion=off`` fuse no reductions.
    ``aligned``: also a form for sizes of which rows are whole vectors, which launches take where it is one of them.
    ``combine``: launches one after the other (plain), overlapping (pdl), in one where that is possible (share), or what
    costs least (auto).
    ``warp_specialise``: kernels may be chosen in a form for ``cleave-lower-to-ttgir{chosen}``.
    ``library``: kernels that are plain products are launched only where there is no cuBLAS, of which 1 takes the first
    algorithm, 2 the second.
    """

    target: str = "h200"
    sizes: str = ""
    explain: bool = False
    iterative_tiling: bool = True
    horizontal_fusion: bool = True
    split: bool = True
    superopt: bool = True
    aligned: bool = False
    combine: Combine = "auto"
    warp_specialise: bool = False
    library: int = 0

    def __post_init__(self) -> None:
        _ = self.options
        if self.library < 0:
            raise CleaveError(f"library is {self.library}, but must be the number of an algorithm, 0 for none")

    @property
    def options(self) -> ScheduleOptions:
        """What the scheduler is told. CleaveError for sizes that are none and an unknown target."""
        return ScheduleOptions(
            target_named(self.target),
            parse_sizes(self.sizes),
            self.iterative_tiling,
            self.horizontal_fusion,
            combine=self.combine,
            warp_specialise=self.warp_specialise,
            library=self.library,
        )

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        options = self.options
        with ctx, ir.Location.unknown(ctx):
            functions = tensor_functions(module)
            _check_sizes(options.sizes, functions)
            for alternatives in functions:
                admitted = self.admitted(alternatives)
                names = [name_of(func) for func in admitted]
                program, index = self._program(admitted, options)
                for func in alternatives:
                    func.erase()
                host = from_tile_program(program, module)
                if len(names) > 1:
                    host.attributes[CHOSEN] = ir.StringAttr.get(names[index])
            if self.explain and functions:
                print(LEGEND, end="", file=sys.stderr)

    def _program(self, alternatives: list[ir.Operation], options: ScheduleOptions) -> tuple[TileProgram, int]:
        """The program of the best alternative, judged in its aligned form if it has one; and which one that is."""
        graphs = [meant_graph(func).named(name_of(alternatives[0])).deduplicated() for func in alternatives]
        forms = [aligned(graph, options.sizes) if self.aligned else None for graph in graphs]
        found = [form or graph for form, graph in zip(forms, graphs, strict=True)]
        name = name_of(alternatives[0])
        told = replace(options, progress=lambda text: diagnostics.progress(f"schedule: {name}, {text}"))
        best, index, outlooks = _best(found, alternatives, told)
        diagnostics.progress("")
        if self.explain:
            print(alternatives_table(outlooks, outlooks[index].name), file=sys.stderr)
        program = self._arranged(best, options)
        if forms[index] is None:
            return program, index
        return replace(self._arranged(schedule(graphs[index], options), options), aligned=program), index

    def _arranged(self, scheduled: Scheduled, options: ScheduleOptions) -> TileProgram:
        refined = self.refined(scheduled, options)
        if self.explain:
            print(table(refined, options.target), file=sys.stderr)
        return arranged(refined, options)

    def refined(self, scheduled: Scheduled, options: ScheduleOptions) -> Scheduled:
        """The schedule after a closer look at its candidates; here the model's own choice."""
        return scheduled

    def admitted(self, alternatives: list[ir.Operation]) -> list[ir.Operation]:
        """The source function and the alternatives that no ablation switches off."""
        source, *others = alternatives
        if not self.superopt:
            return [source]
        return [source, *(func for func in others if self.split or not _has_split(func))]


def _has_split(func: ir.Operation) -> bool:
    return any(op.operation.name == "cleave.split" for op in func.regions[0].blocks[0].operations)


def _check_sizes(sizes: Mapping[str, int], functions: Sequence[Sequence[ir.Operation]]) -> None:
    """CleaveError for a size that no function has, or that is another one in the type of each that has it."""
    groups = [[to_graph(func) for func in group] for group in functions] if sizes else []
    known = {symbol for group in groups for graph in group for symbol in _symbols(graph)}
    strange = next((name for name in sizes if name not in known), None)
    if groups and strange is not None:
        raise CleaveError(f"no function has a size '{strange}'", notes=(f"their sizes: {', '.join(sorted(known))}",))
    sources = [(graphs[0], funcs[0].location) for graphs, funcs in zip(groups, functions, strict=False)]
    for name, size in sizes.items():
        having = [(graph, location) for graph, location in sources if name in _symbols(graph)]
        if having and all(graph.extents.get(name, size) != size for graph, _ in having):
            graph, location = having[0]
            check_static({name: size}, graph.extents, location)
    _check_facts(sizes, sources)


def _check_facts(sizes: Mapping[str, int], sources: Sequence[tuple[Graph, ir.Location]]) -> None:
    """CleaveError for sizes that each function that has one of them refuses."""
    refused: list[CleaveError] = []
    for graph, location in sources:
        own = {name: size for name, size in sizes.items() if name in _symbols(graph)}
        try:
            check_given(own, graph.extents, graph.facts, location)
        except CleaveError as error:
            refused.append(error)
            continue
        if own:
            return
    if refused:
        raise refused[0]


def _symbols(graph: Graph) -> set[str]:
    """Of the dims and of what the facts define."""
    sizes = [dim.size for value in graph.topological() for dim in value.dims]
    return {symbol for size in (*sizes, *graph.facts.definitions.values()) for symbol in size.symbols}


def _best(
    graphs: Sequence[Graph], functions: Sequence[ir.Operation], options: ScheduleOptions
) -> tuple[Scheduled, int, list[Outlook]]:
    """The cheapest schedule of the functions' graphs, which one it is of, and what each is predicted to take.

    A graph that cannot be scheduled is passed over if another one can.
    All are judged on few tilings, the best ``FINALISTS`` of them on all.
    """
    try:
        schedules = schedules_of(graphs, options)
    except CleaveError as error:
        raise error.at(functions[0].location) from None
    tilings = COARSE if len(graphs) > 1 else options.max_tilings
    outlooks: list[Outlook] = []
    failure: CleaveError | None = None
    for number, (each, function) in enumerate(zip(schedules, functions, strict=True)):
        options.progress(f"program {number + 1} of {len(functions)}")
        try:
            outlooks.append(Outlook(name_of(function), each.best(tilings).seconds))
        except CleaveError as error:
            failure = failure or error.at(function.location)
            outlooks.append(Outlook(name_of(function), refused=error.message))
    finalists = sorted(range(len(graphs)), key=lambda index: outlooks[index].seconds)[:FINALISTS]
    found: dict[int, Scheduled] = {}
    for index in finalists:
        if not outlooks[index].refused:
            found[index] = schedules[index].best(options.max_tilings)
            outlooks[index] = replace(outlooks[index], seconds=found[index].seconds, careful=True)
    if not found:
        raise failure or CleaveError("nothing to schedule", functions[0].location)
    best = min(found, key=lambda index: found[index].seconds)
    return found[best], best, outlooks
