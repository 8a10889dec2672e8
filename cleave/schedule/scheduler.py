"""From a graph to the best tile program that the cost model can find."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from cleave.dialects.dims import const
from cleave.dialects.graph import Graph, Value
from cleave.errors import CleaveError
from cleave.schedule.agreement import kernels_that_agree
from cleave.schedule.anchors import suit
from cleave.schedule.candidates import LONG, Candidate, Candidates, Sizes
from cleave.schedule.cost import BYTES, known_of, launch_time, program_cost
from cleave.schedule.depth_last import with_depth_last
from cleave.schedule.depth_parts import in_whole_tiles
from cleave.schedule.explore import Score
from cleave.schedule.free_symbols import free_symbols
from cleave.schedule.part_lengths import in_whole_vectors, part_lengths
from cleave.schedule.partition import cuts, one_kernel_each
from cleave.schedule.region import Region
from cleave.schedule.rename import in_memory_order
from cleave.schedule.scaled_extrema import with_scaled_extrema
from cleave.schedule.sections import Effort, Kernels, Sections, finalists_in_sections
from cleave.schedule.side_by_side import levels
from cleave.schedule.target import Target, target_named
from cleave.schedule.tile_program import Launch, TileProgram
from cleave.schedule.tiling import Fusion
from cleave.schedule.together import together

PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Numbers of parts that the scheduler considers for a split, beside those that fill the GPU; a launch may take any."""
WAVES = 4
"""Blocks for each multiprocessor with which numbers of parts fill it."""
STARTS = (2, 8, 24, 128)
SHORTEST = 128
"""Numbers of parts with which schedules are first compared, where a part has as many elements as the second says."""
NEAR = (0.5, 2.0)
"""Multiples of a number of parts that is best for one schedule, with which others may be faster."""
COARSE = 16
"""Tilings on which partitions are judged before the best ``FINALISTS`` are searched in full."""
FINALISTS = 2
QUICK = 4
"""Tilings on which each of more than ``PROMISING`` partitions is judged first."""
PROMISING = 8
FEW = 4
"""Partitions that are weighed of a graph of more than twice ``LONG`` values, if it has but one section."""
ROUNDING = 1e-9
"""What the order of a sum may change in it, of the sum."""
DEFAULT_SIZE = 1024
"""What the cost model takes a dynamic size for when nobody says."""


Combine = Literal["auto", "plain", "pdl", "share"]


@dataclass(frozen=True)
class ScheduleOptions:
    """``sizes``: representative values of dynamic symbols, for the cost model only; the kernels take any.

    ``iterative_tiling`` and ``horizontal_fusion`` off are the ablations: one kernel for each reduction, and one loop
    for each reduction. ``combine``: how launches follow one another (see ``arrange``). ``warp_specialise``: kernels may
    be warp-specialised where they have such a form. ``library``: launches that are plain products are a
    library's, made by its first algorithm, the second and so on; 0: none are. ``progress`` is told what is being
    scheduled where that takes long.
    """

    target: Target = field(default_factory=lambda: target_named("h200"))
    sizes: Mapping[str, int] = field(default_factory=dict)
    iterative_tiling: bool = True
    horizontal_fusion: bool = True
    max_tilings: int = 64
    combine: Combine = "auto"
    warp_specialise: bool = False
    library: int = 0
    progress: Callable[[str], None] = field(default=lambda _: None, repr=False, compare=False)


@dataclass(frozen=True)
class Scheduled:
    """The chosen program and its predicted time; ``candidates`` has, for each launch, all that were weighed, the chosen
    one first. The launches follow one another; ``arrange`` has them overlap, or puts two in one."""

    program: TileProgram
    candidates: tuple[tuple[Candidate, ...], ...]
    seconds: float


def schedule(graph: Graph, options: ScheduleOptions) -> Scheduled:
    """The program of least predicted time. CleaveError, located, where an op cannot be scheduled.

    Symbols that no input binds, such as split counts, are chosen at launch; the program says what to choose.
    """
    return Schedules(graph, options).best(options.max_tilings)


class Schedules:
    """Schedules of one graph of more and of less care: what is known from one is not found out again for the next.

    ``candidates``: of graphs that share values with this one.
    """

    def __init__(self, graph: Graph, options: ScheduleOptions, candidates: Candidates | None = None) -> None:
        self.graph, self.options = _schedulable(graph, options), options
        self.candidates = candidates or _no_candidates(graph, options)
        self._known_counts: dict[int, tuple[Mapping[str, int], Mapping[str, int]]] = {}

    def best(self, tilings: int) -> Scheduled:
        """As ``schedule`` with so many tilings for each kernel at most."""
        ranked, choices = self._ranked(tilings)
        return ranked[0].scheduled(choices)

    def finalists(self, tilings: int, share: float = 1.0) -> list[Scheduled]:
        """The best schedules that write different values to memory, best first, for ``share`` times as many parts of
        splits as are predicted to be best."""
        ranked, choices = self._ranked(tilings, share)
        return [each.scheduled(choices) for each in ranked]

    @property
    def splits(self) -> bool:
        """Whether there are numbers of parts to choose."""
        return bool(free_symbols(self.graph) - self.options.sizes.keys())

    def _ranked(self, tilings: int, share: float = 1.0) -> tuple[list[_Ranked], Mapping[str, int]]:
        """The finalists, and the values of free symbols."""
        if not self.splits:
            return self._at(self.options.sizes, tilings), {}
        sizes, choices = self._counts(min(COARSE, tilings))
        choices = self._several(choices, share)
        return self._at({**sizes, **choices}, tilings), choices

    def _counts(self, tilings: int) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Sizes, and numbers of parts: the best for the best schedule of a few, or one near to it that suits another
        schedule better."""
        if tilings not in self._known_counts:
            free, options = free_symbols(self.graph), self.options
            sizes, ranked = self._first_counts(free, tilings)
            first = ranked.scheduled({})
            best = {name: options.sizes.get(name) or _best_count(name, first, sizes, options) for name in sorted(free)}
            near = [self._several(best, share) for share in self._shares(best)]
            seconds = [self._at({**sizes, **choices}, tilings)[0].seconds for choices in near] if near[1:] else [0.0]
            self._known_counts[tilings] = sizes, near[seconds.index(min(seconds))]
        return self._known_counts[tilings]

    def shares(self, tilings: int) -> list[float]:
        """Multiples of the numbers of parts that are predicted to be best, with which others may be faster."""
        return sorted(self._shares(self._counts(min(COARSE, tilings))[1])) if self.splits else [1.0]

    def _shares(self, counts: Mapping[str, int]) -> list[float]:
        """Of those that give the same numbers the first."""
        found: dict[tuple[int, ...], float] = {}
        for share in (1.0, *NEAR):
            found.setdefault(tuple(self._several(counts, share).values()), share)
        return list(found.values())

    def _several(self, counts: Mapping[str, int], share: float) -> dict[str, int]:
        """So many times these numbers of parts, but for those that are given."""
        given = self.options.sizes
        return {name: given.get(name) or max(1, int(count * share)) for name, count in counts.items()}

    def _first_counts(self, free: set[str], tilings: int) -> tuple[Mapping[str, int], _Ranked]:
        """Few, some or many parts: with which of these the best of few tilings is fastest."""
        starts = [{**dict.fromkeys(sorted(free), count), **self.options.sizes} for count in STARTS]
        long = [sizes for sizes in starts if self._longest_part(sizes) >= SHORTEST] or starts[:1]
        return min(((sizes, self._at(sizes, tilings)[0]) for sizes in long), key=lambda pair: pair[1].seconds)

    def _longest_part(self, sizes: Mapping[str, int]) -> int:
        known = {**default_sizes(self.graph, sizes), **self.graph.extents}
        return max((length.evaluate(known) for length in part_lengths(self.graph)), default=SHORTEST)

    def _at(self, sizes: Mapping[str, int], tilings: int) -> list[_Ranked]:
        return _Scheduler(self.graph, replace(self.options, sizes=sizes), self.candidates).run(tilings)


def schedules_of(graphs: Sequence[Graph], options: ScheduleOptions) -> list[Schedules]:
    """Schedules of alternatives, which share what they have in common."""
    made: dict[Hashable, Value] = {}
    found: dict[Hashable, Candidates] = {}
    schedules: list[Schedules] = []
    for graph in graphs:
        ordered = _schedulable(graph, options).deduplicated(made)
        key = frozenset(graph.extents.items()), suit(graph)
        candidates = found.setdefault(key, _no_candidates(graph, options))
        schedules.append(Schedules(ordered, options, candidates))
    return schedules


def _schedulable(graph: Graph, options: ScheduleOptions) -> Graph:
    graph.require_one_size_each()
    whole = in_whole_tiles(in_whole_vectors(graph, options.sizes))
    return in_memory_order(with_depth_last(with_scaled_extrema(whole)))


def _no_candidates(graph: Graph, options: ScheduleOptions) -> Candidates:
    fusion = Fusion(options.horizontal_fusion, anchors=suit(graph))
    return Candidates(graph.extents, options.target, fusion, warp_specialise=options.warp_specialise)


def _best_count(name: str, scheduled: Scheduled, sizes: Mapping[str, int], options: ScheduleOptions) -> int:
    """The number of parts of least predicted time for the program in hand."""
    graph = scheduled.program.graph
    known = {**default_sizes(graph, sizes), **graph.extents}
    counts = dict.fromkeys((*PARTS, *_filling(name, scheduled.program, known, options.target)))
    return min(counts, key=lambda count: program_cost(scheduled.program, {**known, name: count}, options.target))


def _filling(name: str, program: TileProgram, sizes: Mapping[str, int], target: Target) -> list[int]:
    """Numbers of parts with which the kernel of most blocks fills the GPU, once and several times."""
    grids = [math.prod(kernel.grid, start=const(1)) for kernel in program.kernels]
    blocks = max((grid.evaluate({**sizes, name: 1}) for grid in grids if name in grid.symbols), default=0)
    return [count for wave in range(1, WAVES + 1) if blocks and (count := wave * target.sms // blocks)]


def default_sizes(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """What the cost model takes every symbol of the graph for; ``sizes`` has what is said of dynamic ones."""
    symbols = {symbol for value in graph.topological() for dim in value.dims for symbol in dim.size.symbols}
    return {symbol: sizes.get(symbol, graph.extents.get(symbol, DEFAULT_SIZE)) for symbol in symbols}


@dataclass(frozen=True)
class _Ranked:
    """What kernels that write ``written`` are predicted to take; the program, whose code takes time, is made on demand.

    ``candidates``: as in ``Scheduled``.
    """

    graph: Graph
    written: tuple[Value, ...]
    candidates: tuple[tuple[Candidate, ...], ...]
    seconds: float

    def scheduled(self, choices: Mapping[str, int]) -> Scheduled:
        program = TileProgram(self.graph, self.written, (), choices=choices)
        program = with_candidates(program, [candidates[0] for candidates in self.candidates])
        return Scheduled(program, self.candidates, self.seconds)


class _Scheduler:
    """Schedules at given sizes."""

    def __init__(self, graph: Graph, options: ScheduleOptions, candidates: Candidates) -> None:
        self.graph, self.options, self.candidates = graph, options, candidates
        self.sizes = Sizes({**default_sizes(graph, options.sizes), **graph.extents}, known_of(graph))

    def run(self, tilings: int) -> list[_Ranked]:
        """The finalists on all tilings."""
        programs = [self._program(kernels, tilings) for kernels in self._finalists(tilings)]
        return sorted(programs, key=lambda ranked: self._score(ranked.candidates))

    def _finalists(self, tilings: int) -> list[Kernels]:
        """The best partitions; those of a long graph are put together from those of its sections."""
        long = self.options.iterative_tiling and len(self.graph.topological()) > LONG
        choose, sections = partial(self._of_section, tilings=tilings), Sections(self.graph, self._bytes) if long else ()
        found = finalists_in_sections(sections, choose, self.options.progress) if sections else []
        return found or list(self._best(tilings).values())

    def _of_section(self, graph: Graph, effort: Effort, tilings: int) -> list[tuple[float, Kernels]]:
        """The best kernels of a part of this graph, with times that add up; none where there are none."""
        part = _Scheduler(graph, self.options, self.candidates)
        try:
            found = part._best(tilings) if effort == "careful" else part._quickly(tilings, fused=effort == "fused")
        except CleaveError:
            return []
        overlap = launch_time(1, self.options.target) - self.options.target.between_launches
        return [(seconds - overlap, kernels) for seconds, kernels in found.items()]

    def _quickly(self, tilings: int, *, fused: bool) -> dict[float, Kernels]:
        """The best of all partitions, or of those without cuts, on very few tilings."""
        return self._best_of(self._ways(cuts(self.graph)[:1]) if fused else self._partitions(), min(QUICK, tilings), 1)

    def _best(self, tilings: int) -> dict[float, Kernels]:
        """All partitions on very few tilings each, and the best of them on a few.

        That of fewest kernels is never left out by the first: with few of its many tilings it looks worst.
        """
        found = self._partitions()
        if len(found) > PROMISING:
            found = list(dict.fromkeys((found[0], *self._best_of(found, min(QUICK, tilings), PROMISING).values())))
        return self._best_of(found, min(COARSE, tilings), FINALISTS)

    def _best_of(self, partitions: Sequence[Kernels], tilings: int, count: int) -> dict[float, Kernels]:
        """The ``count`` best; of those that take as long as one another, such as mirror images, one.

        CleaveError where none of them can be scheduled.
        """
        weighed: list[tuple[float, Kernels]] = []
        failure: CleaveError | None = None
        for kernels in partitions:
            try:
                weighed.append((self._time_below(_limits(weighed, count), kernels, tilings), kernels))
            except CleaveError as error:
                failure = failure or error
        found: dict[float, Kernels] = {}
        for seconds, kernels in sorted(weighed, key=lambda pair: pair[0]):
            if seconds < math.inf:
                found.setdefault(seconds, kernels)
        if not found:
            raise failure or CleaveError("nothing to schedule")
        return dict(list(found.items())[:count])

    def _time_below(self, limits: tuple[float, float], kernels: Kernels, tilings: int) -> float:
        """The best candidates one after the other; infinite where that is certainly no less than the second limit, or
        the least that kernels could take no less than the first."""
        regions = self._regions_of(kernels)
        seconds = sum(map(self._at_least, regions)) + launch_time(len(regions), self.options.target)
        if seconds >= limits[0]:
            return math.inf
        for region in sorted(regions, key=lambda region: not self.candidates.are_ranked(region, tilings, self.sizes)):
            best = self.candidates.ranked(region, tilings, self.sizes)[0]
            seconds += best.cost.running - self._at_least(region)
            if seconds * (1 - ROUNDING) >= limits[1]:
                return math.inf
        return self._time(self._ranked_kernels(kernels, tilings))

    def _time(self, ranked: tuple[tuple[Candidate, ...], ...]) -> float:
        """The best candidates one after the other."""
        running = sum(candidates[0].cost.running for candidates in ranked)
        return running + launch_time(len(ranked), self.options.target)

    def _score(self, ranked: tuple[tuple[Candidate, ...], ...]) -> Score:
        """As that of a candidate."""
        return any(self.candidates.score(candidates[0])[0] for candidates in ranked), self._time(ranked)

    def _ranked_kernels(self, kernels: Kernels, tilings: int) -> tuple[tuple[Candidate, ...], ...]:
        return tuple(self.candidates.ranked(region, tilings, self.sizes) for region in self._regions_of(kernels))

    def _ways(self, cuts: Sequence[frozenset[Value]]) -> list[Kernels]:
        """What the kernels write, each way once, in the order of the cuts."""
        both = (tuple(kernels_that_agree(self.graph, cut, wide=wide)) for cut in cuts for wide in (True, False))
        return list(dict.fromkeys(both))

    def _partitions(self) -> list[Kernels]:
        """All that are weighed."""
        if not self.options.iterative_tiling:
            return [one_kernel_each(self.graph)]
        found = self._ways(cuts(self.graph))
        return found if len(self.graph.topological()) <= 2 * LONG else [*found[:FEW], one_kernel_each(self.graph)]

    def _regions_of(self, kernels: Kernels) -> list[Region]:
        boundary = frozenset(v for values in (*kernels, self.graph.inputs) for v in values if v.op != "input")
        return [self.candidates.region(outputs, boundary) for outputs in kernels]

    def _together(self, apart: Sequence[Sequence[Candidate]]) -> tuple[Candidate, ...]:
        """Independent kernels side by side, best first; none if there are no such."""
        found = together(apart, self.graph.extents, self.sizes, self.options.target)
        return tuple(sorted(found, key=self.candidates.score))

    def _at_least(self, region: Region) -> float:
        """Seconds that no kernel for the region goes below: it moves its tensors once."""
        moved = sum(self._bytes(value) for value in (*region.loaded, *region.outputs))
        return moved / self.options.target.dram_bandwidth + self.options.target.kernel_latency

    def _bytes(self, value: Value) -> int:
        return math.prod(dim.size.evaluate(self.sizes.values) for dim in value.dims) * BYTES.get(value.dtype, 1)

    def _program(self, kernels: Kernels, tilings: int) -> _Ranked:
        written = tuple(value for outputs in kernels for value in outputs)
        ranked = self._ranked_kernels(kernels, tilings)
        merged = self._side_by_side(ranked, kernels) if self.options.horizontal_fusion else ranked
        return _Ranked(self.graph, written, merged, self._time(merged))

    def _side_by_side(
        self, ranked: tuple[tuple[Candidate, ...], ...], kernels: Kernels
    ) -> tuple[tuple[Candidate, ...], ...]:
        """The launches, independent ones as one where that is predicted to take less time."""
        found: list[tuple[Candidate, ...]] = []
        regions = self._regions_of(kernels)
        for level in levels([((*region.reads, *region.outputs), region.outputs) for region in regions]):
            apart = tuple(ranked[index] for index in level)
            together = self._together(apart) if len(level) > 1 else ()
            better = together and self._score((together,)) < self._score(apart)
            found += [together] if together and better else apart
        return tuple(found)


def with_candidates(program: TileProgram, chosen: Sequence[Candidate]) -> TileProgram:
    """The program with these candidates as its launches, in turn."""
    name = identifier(program.graph.name)
    kernels = (replace(candidate.kernel, name=f"{name}__k{index}") for index, candidate in enumerate(chosen))
    launches = (Launch(kernel, candidate.operands) for kernel, candidate in zip(kernels, chosen, strict=True))
    return replace(program, launches=tuple(launches))


def _limits(weighed: Sequence[tuple[float, Kernels]], count: int) -> tuple[float, float]:
    """The least of these times and the greatest of the least ``count`` different ones, infinite if there are fewer."""
    least = sorted({seconds for seconds, _ in weighed})
    return least[0] if least else math.inf, least[count - 1] if len(least) >= count else math.inf


def identifier(name: str) -> str:
    """``name`` as Triton's symbols may be spelt; a number keeps two names apart that become alike."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return name
    return f"{re.sub('[^A-Za-z0-9_]', '_', name)}_{zlib.crc32(name.encode()):08x}"
