"""The programs worth measuring: the cost model's best, over alternatives, schedules and split counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.lowering.form import Form, ablations
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.package import variant_of
from cleave.lowering.targets import Target
from cleave.lowering.verify_ttir import TTGIR_TARGET
from cleave.passes.functions import name_of, tensor_functions
from cleave.passes.graph_io import meant_graph
from cleave.passes.schedule import Schedule
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.package import Variant
from cleave.schedule.arrange import arranged
from cleave.schedule.cost import program_cost
from cleave.schedule.scheduler import (
    COARSE,
    Candidate,
    Scheduled,
    ScheduleOptions,
    default_sizes,
    schedules_of,
    with_candidates,
)  # fmt: skip
from cleave.schedule.tile_program import TileProgram

ALTERNATIVES = 4
"""Alternatives of which schedules are tried: those of least predicted time."""
SHARE = (0.5, 1.0, 2.0)
"""Split counts that are tried, as multiples of the model's choice."""


@dataclass(frozen=True)
class Choice:
    """One program; ``seconds`` are predicted."""

    label: str
    scheduled: Scheduled
    seconds: float


def choices(graphs: Sequence[Graph], options: ScheduleOptions, count: int) -> list[Choice]:
    """The ``count`` programs of least predicted time, the model's choice first.

    ``graphs``: the source and its alternatives. CleaveError, located, where none can be scheduled.
    """
    rough: list[tuple[float, int]] = []
    failure: CleaveError | None = None
    schedules = schedules_of(graphs, options)
    for index, each in enumerate(schedules):
        try:
            rough.append((each.best(COARSE).seconds, index))
        except CleaveError as error:
            failure = failure or error
    if not rough:
        raise failure or CleaveError("nothing to schedule")
    found: list[Choice] = []
    for _, index in sorted(rough)[:ALTERNATIVES]:
        found += _of_alternative(index, schedules[index].best(options.max_tilings), options, count)
    return sorted(found, key=lambda choice: choice.seconds)[:count]


def _of_alternative(index: int, scheduled: Scheduled, options: ScheduleOptions, count: int) -> Iterator[Choice]:
    """The first candidates of all launches, and other numbers of parts for the very first."""
    sizes = default_sizes(scheduled.program.graph, options.sizes)
    for rank in range(count):
        chosen = [_fitting(candidates, options)[rank:][:1] for candidates in scheduled.candidates]
        if not all(chosen):
            return
        program = with_candidates(scheduled.program, [candidate for (candidate,) in chosen])
        for counts in _counts(program) if rank < 2 else [dict(program.choices)]:
            each = replace(scheduled, program=replace(program, choices=counts))
            seconds = program_cost(program, {**sizes, **scheduled.program.graph.extents, **counts}, options.target)
            yield Choice(_label(index, [c for (c,) in chosen], counts), each, seconds)


def _fitting(candidates: Sequence[Candidate], options: ScheduleOptions) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.cost.fits(options.target)]


def _counts(program: TileProgram) -> Iterator[dict[str, int]]:
    for shares in itertools.product(SHARE, repeat=len(program.choices)):
        pairs = zip(program.choices.items(), shares, strict=True)
        yield {name: max(1, int(count * share)) for (name, count), share in pairs}


def _label(index: int, candidates: Sequence[Candidate], counts: Mapping[str, int]) -> str:
    kernels = "; ".join(_described(candidate) for candidate in candidates)
    parts = "".join(f", {name} = {count}" for name, count in counts.items())
    return f"alternative {index}: {kernels}{parts}"


def _described(candidate: Candidate) -> str:
    tiling, kernel = candidate.tiling, candidate.kernel
    shape = " ".join(f"{name}={extent}{'*' * (name in tiling.resident)}" for name, extent in tiling.tiles.items())
    return f"{shape} / {kernel.num_warps} warps, {kernel.num_stages} stages"


def variants(
    text: str,
    function: str,
    pass_: Schedule,
    count: int,
    targets: Sequence[Target] = (),
    *,
    warp_specialise: bool = False,
) -> list[Variant]:
    """The candidates for one function of a module after ``cleave-superopt``, compiled; those that the
    compiler refuses or that do not fit are left out. ``pass_`` has the options. CleaveError if none is left.

    ``warp_specialise``: those whose kernels have a warp-specialised form are there in that form, too, the first of them
    also without each part of the form.
    """
    options = pass_.options
    ctx = context(allow_unregistered=True)
    with ctx, ir.Location.unknown(ctx):
        module = ir.Module.parse(text)
        graphs = [
            meant_graph(func).named(function).deduplicated()
            for group in tensor_functions(module)
            if name_of(group[0]) == function
            for func in pass_.admitted(group)
        ]
        lowered: list[tuple[str, ir.Module]] = []
        forms = list(ablations()) if warp_specialise else []
        for choice in choices(graphs, options, count):
            program = arranged(choice.scheduled, options)
            lowered.append((choice.label, _lowered(program, LowerToTriton(), ctx)))
            specialised = list(_specialised(program, choice.label, ctx, forms))
            lowered += specialised
            forms = forms[:1] if specialised else forms
        found: list[Variant] = []
        failure: CleaveError | None = None
        for label, each in _distinct(lowered):
            try:
                variant = variant_of(each, function, targets, sizes=options.sizes)
                found.append(replace(variant, label=label))
            except CleaveError as error:
                failure = failure or error
        if not found:
            raise failure or CleaveError("nothing to schedule")
        return found


def _distinct(lowered: Sequence[tuple[str, ir.Module]]) -> list[tuple[str, ir.Module]]:
    """The first of equal modules: a warp-specialised form has as many stages as fit, whatever the program says."""
    found: dict[str, tuple[str, ir.Module]] = {}
    for label, module in lowered:
        found.setdefault(str(module), (label, module))
    return list(found.values())


def _specialised(
    program: TileProgram, label: str, ctx: ir.Context, forms: Sequence[Form]
) -> Iterator[tuple[str, ir.Module]]:
    """The program with what kernels of it can be warp-specialised in these forms; nothing if none can."""
    for form in forms:
        module = _lowered(program, LowerToTtgir(**asdict(form)), ctx)
        if any(TTGIR_TARGET in op.operation.attributes for op in module.body.operations):
            yield f"{label}, warp-specialised{form.label}", module


def _lowered(program: TileProgram, lowering: LowerToTriton, ctx: ir.Context) -> ir.Module:
    module = ir.Module.create()
    from_tile_program(program, module)
    lowering.apply(ctx, module)
    return module
