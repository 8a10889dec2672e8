"""The programs worth measuring: the cost model's best, over alternatives, schedules and split counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.lowering.form import BESIDE_THE_USUAL, MARK, Form
from cleave.lowering.form import ablations as each_ablation
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.package import variant_of
from cleave.lowering.targets import TTGIR_TARGET, Target
from cleave.passes.functions import name_of, tensor_functions
from cleave.passes.graph_io import meant_graph
from cleave.passes.schedule import Schedule
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.package import Variant
from cleave.schedule.arrange import arranged
from cleave.schedule.candidates import distinct
from cleave.schedule.cost import program_cost
from cleave.schedule.product import products
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

SPARE = 3
"""Programs that are chosen for each one wanted, some of which may prove equal."""
DEPTH = 4
"""Candidates of a launch that are looked at, as a multiple of the programs wanted."""
ALTERNATIVES = 4
"""Alternatives of which schedules are tried: those of least predicted time."""
FORM = 0.25
"""Share of the programs that each form has at least: with warp-specialised kernels, and without."""
ALGORITHMS, LATER = 2, 1.05
"""How many of a library's algorithms are tried for a program, and how many times as long a later one counts to take as
the one before it."""
LIBRARY = 3
"""Of so many candidates one has a library's products, where there are enough of these."""
BOTH = 4
"""Of so many candidates one is there as two launches and as one, where its second launch can be part of the first."""
IN_TWO_FORMS = 5
"""Of so many candidates one that is warp-specialised is there in other forms (``BESIDE_THE_USUAL``), too; of two at
least."""
ONE_LAUNCH = ", in one launch"
LIKE_KERNELS, LIKE_TILES = 1.02, 1.15
"""How many times as long a program counts to take for each one before it of the same alternative whose kernels write
the same values to memory, and for each one with the same tiles: what the model misjudges it misjudges in all alike."""


@dataclass(frozen=True)
class Choice:
    """One program; ``seconds`` are predicted. Programs with the same ``kernels`` or the same ``tiles`` are alike.

    ``alternative`` is its number; ``launches`` and ``parts`` say what these are and how many parts splits have.
    ``warp_specialised``: whether any of its kernels is. ``library``: its plain products are made by this algorithm
    of a library.
    """

    alternative: int
    launches: tuple[str, ...]
    parts: str
    scheduled: Scheduled
    seconds: float
    kernels: Hashable
    tiles: Hashable
    warp_specialised: bool = False
    library: int = 0

    @property
    def label(self) -> str:
        return f"alternative {self.alternative}: {'; '.join(self.launches)}{self.parts}"


def choices(graphs: Sequence[Graph], options: ScheduleOptions, count: int, *, library: int = 0) -> list[Choice]:
    """``count`` programs of little predicted time and some variety, the model's choice first.

    ``graphs``: the source and its alternatives. ``library``: so many with plain products by a library, at most, stand
    right behind the first one. CleaveError, located, where none can be scheduled.
    """
    rough: dict[float, int] = {}
    failure: CleaveError | None = None
    schedules = schedules_of(graphs, options)
    for index, each in enumerate(schedules):
        try:
            rough.setdefault(each.best(COARSE).seconds, index)  # others that take as long are the same in another order
        except CleaveError as error:
            failure = failure or error
    if not rough:
        raise failure or CleaveError("nothing to schedule")
    found: list[Choice] = []
    for _, index in sorted(rough.items())[:ALTERNATIVES]:
        for share in schedules[index].shares(options.max_tilings):
            for place, scheduled in enumerate(schedules[index].finalists(options.max_tilings, share)):
                found += _of_kernels(index, place, scheduled, options, count)
    ranked = _different(sorted(found, key=lambda choice: choice.seconds))
    taken = _varied(ranked, count)
    return [*taken[:1], *_by_library(ranked)[:library], *taken[1:]][:count]


def _different(ranked: Sequence[Choice]) -> list[Choice]:
    """Of those with the same tiles in the same time, to a percent, the first: alternatives that do the same work."""
    found: dict[Hashable, Choice] = {}
    for choice in ranked:
        found.setdefault((choice.launches, choice.parts, round(math.log(choice.seconds), 2)), choice)
    return list(found.values())


def _by_library(ranked: Sequence[Choice]) -> list[Choice]:
    """Programs in which a launch is a plain product, these made by a library, of little time by their own kernels.

    One of those that write the same values to memory: its products' own kernels run on any GPU, if one has such.
    """
    groups: dict[Hashable, list[Choice]] = {}
    for choice in ranked:
        groups.setdefault(choice.kernels, []).append(choice)
    found: list[Choice] = []
    for alike in groups.values():
        plain = products(alike[0].scheduled.program)
        if any(plain):
            chosen = next((each for each in alike if not _specialised_of(each, plain)), alike[0])
            found += [_with_products(chosen, plain, rank) for rank in range(1, ALGORITHMS + 1)]
    return sorted(found, key=lambda choice: choice.seconds * LATER ** (choice.library - 1))


def _specialised_of(choice: Choice, plain: Sequence[bool]) -> bool:
    """Whether the kernel of a plain product is warp-specialised."""
    pairs = zip(choice.scheduled.program.kernels, plain, strict=True)
    return any(kernel.warp_specialised for kernel, is_plain in pairs if is_plain)


def _with_products(choice: Choice, plain: Sequence[bool], rank: int) -> Choice:
    how = f"cuBLAS, algorithm {rank}" if rank > 1 else "cuBLAS"
    pairs = zip(choice.launches, plain, strict=True)
    return replace(choice, library=rank, launches=tuple(how if is_plain else own for own, is_plain in pairs))


def _varied(ranked: Sequence[Choice], count: int) -> list[Choice]:
    """The first, and then each time the best of the rest as it counts beside those taken, of one form where that would
    have less than its share."""
    left, taken = list(ranked), list[Choice]()
    seen: dict[Hashable, int] = {}

    def counted(choice: Choice) -> float:
        like = LIKE_KERNELS ** seen.get(choice.kernels, 0)
        return choice.seconds * like * LIKE_TILES ** seen.get(choice.tiles, 0)

    while left and len(taken) < count:
        certain = int(FORM * (len(taken) + 1))
        scarce = [choice for choice in left if seen.get(choice.warp_specialised, 0) < certain]
        best = min(scarce or left, key=counted)
        left.remove(best)
        taken.append(best)
        for key in (best.kernels, best.tiles, best.warp_specialised):
            seen[key] = seen.get(key, 0) + 1
    return taken


def _of_kernels(index: int, place: int, scheduled: Scheduled, options: ScheduleOptions, count: int) -> Iterator[Choice]:
    """Of one schedule: the first candidates of all launches."""
    graph = scheduled.program.graph
    sizes = default_sizes(graph, options.sizes)
    for chosen in _combinations(scheduled.candidates, options, DEPTH * count):
        program = with_candidates(scheduled.program, chosen)
        form = any(candidate.warp_specialised for candidate in chosen)
        tiles = tuple(_tiles(candidate) for candidate in chosen)
        seconds = program_cost(program, {**sizes, **graph.extents, **program.choices}, options.target)
        seconds *= max(candidate.doubt for candidate in chosen)
        described, parts = tuple(map(_described, chosen)), _parts(program.choices)
        each = replace(scheduled, program=program, candidates=tuple((candidate,) for candidate in chosen))
        yield Choice(index, described, parts, each, seconds, (index, place), tiles, form)


def _tiles(candidate: Candidate) -> Hashable:
    tiling = candidate.tiling
    return (*tiling.tiles.items(), tiling.resident, *tiling.coarsened.items(), candidate.warp_specialised)


def _combinations(
    launches: Sequence[Sequence[Candidate]], options: ScheduleOptions, count: int
) -> Iterator[list[Candidate]]:
    """Candidates for all launches, each choice once: of any form, of those that are not warp-specialised, and of those
    that are, beside launches that cannot be."""
    every = [_fitting(candidates, options, count) for candidates in launches]
    plain, special = (
        [_fitting([each for each in tried if each.warp_specialised == form], options, count) for tried in launches]
        for form in (False, True)
    )
    mixed = [one or other for one, other in zip(special, plain, strict=True)]
    steps = [step for tried in (every, plain, mixed) for step in _in_step(tried)]
    yield from {tuple(map(id, chosen)): chosen for chosen in steps}.values()


def _in_step(tried: Sequence[Sequence[Candidate]]) -> Iterator[list[Candidate]]:
    """For each launch the first, the second and so on, the last again where there are no more."""
    for rank in range(max(map(len, tried)) if all(tried) else 0):
        yield [candidates[min(rank, len(candidates) - 1)] for candidates in tried]


def _fitting(candidates: Sequence[Candidate], options: ScheduleOptions, count: int) -> list[Candidate]:
    return distinct((candidate for candidate in candidates if candidate.cost.fits(options.target)), count)


def _parts(counts: Mapping[str, int]) -> str:
    return "".join(f", {name} = {count}" for name, count in counts.items())


def _described(candidate: Candidate) -> str:
    tiling, kernel = candidate.tiling, candidate.kernel
    shape = " ".join(f"{name}={extent}{'*' * (name in tiling.resident)}" for name, extent in tiling.tiles.items())
    form = f" {tiling.form}" if tiling.form else ""
    loads = ", descriptors" if kernel.descriptors else ""
    return f"{shape}{form} / {kernel.num_warps} warps, {kernel.num_stages} stages{loads}"


def variants(
    text: str,
    function: str,
    pass_: Schedule,
    count: int,
    targets: Sequence[Target] = (),
    *,
    ablations: bool = False,
    library: bool = False,
) -> list[Variant]:
    """The candidates for one function of a module after ``cleave-superopt``, compiled; those that the
    compiler refuses or that do not fit are left out. ``pass_`` has the options. CleaveError if none is left.

    Of two or more the first warp-specialised ones that are not refused, one in ``IN_TWO_FORMS`` of all, are there in
    other forms, too (``BESIDE_THE_USUAL``). ``ablations``: the first one is there without each part of its form.
    ``library``: some have plain products made by a library.
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
        further: list[Sequence[Form]] = [BESIDE_THE_USUAL] * (-(-count // IN_TWO_FORMS) if count > 1 else 0)
        if ablations:
            further[:1] = [each_ablation()]
        by_library = -(-count // LIBRARY) if library and count > 1 else 0
        ranked = choices(graphs, options, SPARE * count, library=by_library)
        lowered = _lowered_choices(ranked, options, count, ctx)
        compiled = partial(_compiled, function=function, targets=targets, sizes=options.sizes)
        outcomes = list(_outcomes(lowered, further, compiled, ctx))
        found = [outcome for outcome in outcomes if isinstance(outcome, Variant)]
        if not found:
            raise next((each for each in outcomes if isinstance(each, CleaveError)), CleaveError("nothing to schedule"))
        return found


@dataclass(frozen=True)
class _Lowered:
    """A program in the usual form, as a module; ``warp_specialised``: whether a kernel of it is."""

    label: str
    program: TileProgram
    module: ir.Module
    warp_specialised: bool


Outcome = Variant | CleaveError


def _compiled(
    label: str, module: ir.Module, *, function: str, targets: Sequence[Target], sizes: Mapping[str, int]
) -> Outcome:
    try:
        return replace(variant_of(module, function, targets, sizes=sizes), label=label)
    except CleaveError as error:
        return error


def _outcomes(
    programs: Sequence[_Lowered],
    further: Sequence[Sequence[Form]],
    compiled: Callable[[str, ir.Module], Outcome],
    ctx: ir.Context,
) -> Iterator[Outcome]:
    """The programs compiled. Of the warp-specialised ones those that are not refused are compiled in ``further`` forms,
    too: the first that these make another program of in the first group, and so on."""
    left = list(further)
    for each in programs:
        outcome = compiled(each.label, each.module)
        yield outcome
        if left and each.warp_specialised and isinstance(outcome, Variant):
            others = _in_forms(each, left[0], ctx)
            left = left[1:] if others else left
            yield from (compiled(f"{each.label}{form.label}", module) for form, module in others)


def _lowered_choices(ranked: Sequence[Choice], options: ScheduleOptions, count: int, ctx: ir.Context) -> list[_Lowered]:
    """``count`` different programs. Of equal modules the first: alternatives may have a program in common."""
    found: dict[str, _Lowered] = {}
    both = count // BOTH
    for choice in ranked:
        arrangements = list(islice(_arranged(choice, options), 2 if both and len(found) + 1 < count else 1))
        both -= len(arrangements) > 1
        for label, program in arrangements:
            if choice.warp_specialised:
                module, label = _specialised(program, Form(), ctx), label + MARK
            else:
                module = _lowered(program, LowerToTriton(), ctx)
            if module:
                found.setdefault(str(module), _Lowered(label, program, module, choice.warp_specialised))
        if len(found) == count:
            break
    return list(_told_apart(found.values()))


def _arranged(choice: Choice, options: ScheduleOptions) -> Iterator[tuple[str, TileProgram]]:
    """The program as is predicted to be faster, and the other way: a split in one launch, or in two that overlap."""
    options = replace(options, library=choice.library)
    program = arranged(choice.scheduled, options)
    meets = _meets(program)
    yield choice.label + ONE_LAUNCH * meets, program
    if options.combine == "auto":
        other = arranged(choice.scheduled, replace(options, combine="pdl" if meets else "share"))
        if _meets(other) != meets:
            yield choice.label + ONE_LAUNCH * (not meets), other


def _meets(program: TileProgram) -> bool:
    return any(launch.cooperative for launch in program.launches)


def _told_apart(programs: Iterable[_Lowered]) -> Iterator[_Lowered]:
    """Numbers on labels that came before: results are kept by label."""
    seen: dict[str, int] = {}
    for each in programs:
        number = seen[each.label] = seen.get(each.label, 0) + 1
        yield replace(each, label=f"{each.label} ({number})") if number > 1 else each


def _specialised(program: TileProgram, form: Form, ctx: ir.Context) -> ir.Module | None:
    """The program in this form; None if no kernel of it is lowered so."""
    module = _lowered(program, LowerToTtgir(**asdict(form), chosen=True), ctx)
    return module if any(TTGIR_TARGET in op.operation.attributes for op in module.body.operations) else None


def _in_forms(usual: _Lowered, forms: Sequence[Form], ctx: ir.Context) -> list[tuple[Form, ir.Module]]:
    """The program in those of these forms in which it is another one; of equal ones the first."""
    found = {str(usual.module): (Form(), usual.module)}
    for form in forms:
        if module := _specialised(usual.program, form, ctx):
            found.setdefault(str(module), (form, module))
    return [*found.values()][1:]


def _lowered(program: TileProgram, lowering: LowerToTriton, ctx: ir.Context) -> ir.Module:
    module = ir.Module.create()
    from_tile_program(program, module)
    lowering.apply(ctx, module)
    return module
