"""From a graph to the best tile program that the cost model can find."""

from __future__ import annotations

import itertools
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from cleave.dialects.dims import Size
from cleave.dialects.graph import Graph, Value
from cleave.errors import CleaveError
from cleave.schedule.cost import BYTES, Cost, Workload, cost_of, known_of, launch_time, program_cost, workload
from cleave.schedule.emit import emit_kernel
from cleave.schedule.explore import Score, explore
from cleave.schedule.partition import cuts, kernels_of, one_kernel_each
from cleave.schedule.region import Region, region_of
from cleave.schedule.rename import in_memory_order, viewed
from cleave.schedule.side_by_side import levels, side_by_side
from cleave.schedule.target import Target, target_named
from cleave.schedule.tile_program import Kernel, Launch, TileProgram, has_loops
from cleave.schedule.tiling import Fusion, Tiling
from cleave.schedule.tilings import Point, space_of
from cleave.schedule.traffic import best_group

STAGES = (2, 3, 4, 5, 6, 8)
WARPS = (4, 8)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
"""Numbers of parts that the scheduler considers for a split; a launch may take any."""
L2_COPIES = 2
"""Parts of an L2 cache that each keep what their multiprocessors read: what all read is there as often."""
STARTS = (2, 8, 24)
"""Numbers of parts with which schedules are first compared."""
COARSE = 12
"""Tilings on which each partition is judged before the best ``FINALISTS`` are searched in full."""
FINALISTS = 2
LONG = 40
"""Values in a region, past which fewer tilings are weighed, and past twice which only ``FEW`` partitions of a graph."""
FEW = 4
DEFAULT_SIZE = 1024
"""What the cost model takes a dynamic size for when nobody says."""


Combine = Literal["auto", "plain", "pdl", "share"]


@dataclass(frozen=True)
class ScheduleOptions:
    """``sizes``: representative values of dynamic symbols, for the cost model only; the kernels take any.

    ``iterative_tiling`` and ``horizontal_fusion`` off are the ablations: one kernel for each reduction, and one loop
    for each reduction. ``combine``: how launches follow one another (see ``arrange``).
    """

    target: Target = field(default_factory=lambda: target_named("h200"))
    sizes: Mapping[str, int] = field(default_factory=dict)
    iterative_tiling: bool = True
    horizontal_fusion: bool = True
    max_tilings: int = 64
    combine: Combine = "auto"


@dataclass(frozen=True)
class Candidate:
    """A kernel for one region and what it is predicted to cost.

    ``rejected``: why it is not taken although it was predicted to fit; empty if it may be.
    """

    kernel: Kernel
    operands: tuple[Value, ...]
    tiling: Tiling
    cost: Cost
    rejected: str = ""


@dataclass(frozen=True)
class Scheduled:
    """The chosen program and its predicted time; ``candidates`` has, for each launch, all that were weighed, the chosen
    one first. The launches follow one another; ``arrange`` has them overlap, or puts two in one."""

    program: TileProgram
    candidates: tuple[tuple[Candidate, ...], ...]
    seconds: float


Kernels = tuple[tuple[Value, ...], ...]
"""What each kernel of a program writes."""


def schedule(graph: Graph, options: ScheduleOptions) -> Scheduled:
    """The program of least predicted time. CleaveError, located, where an op cannot be scheduled.

    Symbols that no input binds, such as split counts, are chosen at launch; the program says what to choose.
    """
    free = _free_symbols(graph)
    if not free - options.sizes.keys():
        return _Scheduler(graph, options).run()
    sizes, first = _first_counts(graph, free, options)
    choices = {name: options.sizes.get(name) or _best_count(name, first, sizes, options) for name in sorted(free)}
    best = _Scheduler(graph, replace(options, sizes={**sizes, **choices})).run()
    return replace(best, program=replace(best.program, choices=choices))


def _first_counts(graph: Graph, free: set[str], options: ScheduleOptions) -> tuple[Mapping[str, int], Scheduled]:
    """Few, some or many parts: with which of these the best of few tilings is fastest."""
    found: list[tuple[Mapping[str, int], Scheduled]] = []
    for count in STARTS:
        sizes = {**dict.fromkeys(sorted(free), count), **options.sizes}
        rough = replace(options, sizes=sizes, max_tilings=min(COARSE, options.max_tilings))
        found.append((sizes, _Scheduler(graph, rough).run()))
    return min(found, key=lambda pair: pair[1].seconds)


def _free_symbols(graph: Graph) -> set[str]:
    """Symbols of dims that neither an input's size nor a definition among the facts fixes."""
    bound = {symbol for value in graph.inputs for dim in value.dims for symbol in dim.size.symbols} | set(graph.extents)
    used = {symbol for value in graph.topological() for dim in value.dims for symbol in dim.size.symbols}
    return used - bound


def _best_count(name: str, scheduled: Scheduled, sizes: Mapping[str, int], options: ScheduleOptions) -> int:
    """The number of parts of least predicted time for the program in hand."""
    graph = scheduled.program.graph
    known = {**default_sizes(graph, sizes), **graph.extents}
    return min(PARTS, key=lambda count: program_cost(scheduled.program, {**known, name: count}, options.target))


def default_sizes(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """What the cost model takes every symbol of the graph for; ``sizes`` has what is said of dynamic ones."""
    symbols = {symbol for value in graph.topological() for dim in value.dims for symbol in dim.size.symbols}
    return {symbol: sizes.get(symbol, graph.extents.get(symbol, DEFAULT_SIZE)) for symbol in symbols}


class _Scheduler:
    def __init__(self, graph: Graph, options: ScheduleOptions) -> None:
        self.graph, self.options = in_memory_order(graph), options
        self.sizes = {**default_sizes(graph, options.sizes), **graph.extents}
        self._ranked: dict[tuple[frozenset[Value], frozenset[Value], int], tuple[Candidate, ...]] = {}
        self._regions: dict[tuple[tuple[Value, ...], frozenset[Value]], Region] = {}

    def run(self) -> Scheduled:
        """All partitions on a few tilings each; then the best of them on all tilings."""
        coarse = min(COARSE, self.options.max_tilings)
        weighed: list[tuple[float, Kernels]] = []
        failure: CleaveError | None = None
        for kernels in self._partitions():
            try:
                best = min((seconds for seconds, _ in weighed), default=math.inf)
                if self._at_least(kernels) < best:
                    weighed.append((self._time(self._ranked_kernels(kernels, coarse)), kernels))
            except CleaveError as error:
                failure = failure or error
        if not weighed:
            raise failure or CleaveError("nothing to schedule")
        finalists = [kernels for _, kernels in sorted(weighed, key=lambda pair: pair[0])[:FINALISTS]]
        ranked = ((self._ranked_kernels(kernels, self.options.max_tilings), kernels) for kernels in finalists)
        return min((self._program(*pair) for pair in ranked), key=lambda scheduled: scheduled.seconds)

    def _time(self, ranked: tuple[tuple[Candidate, ...], ...]) -> float:
        """The best candidates one after the other."""
        running = sum(candidates[0].cost.running for candidates in ranked)
        return running + launch_time(len(ranked), self.options.target)

    def _ranked_kernels(self, kernels: Kernels, tilings: int) -> tuple[tuple[Candidate, ...], ...]:
        return tuple(self._rank(region, tilings) for region in self._regions_of(kernels))

    def _partitions(self) -> list[Kernels]:
        """What the kernels write, each way once, in the order of ``cuts``."""
        if not self.options.iterative_tiling:
            return [one_kernel_each(self.graph)]
        both = (tuple(kernels_of(self.graph, cut, wide=wide)) for cut in cuts(self.graph) for wide in (True, False))
        found = list(dict.fromkeys(both))
        return found if len(self.graph.topological()) <= 2 * LONG else [*found[:FEW], one_kernel_each(self.graph)]

    def _regions_of(self, kernels: Kernels) -> list[Region]:
        boundary = frozenset(value for outputs in kernels for value in outputs)
        found: list[Region] = []
        for outputs in kernels:
            if (outputs, boundary) not in self._regions:
                self._regions[outputs, boundary] = region_of(outputs, boundary, self.graph.extents)
            found.append(self._regions[outputs, boundary])
        return found

    def _at_least(self, kernels: Kernels) -> float:
        """Seconds that no schedule of these kernels goes below: each is launched and moves its tensors once."""
        target, seconds = self.options.target, 0.0
        for region in self._regions_of(kernels):
            moved = sum(self._bytes(value) for value in (*region.loaded, *region.outputs))
            seconds += moved / target.dram_bandwidth + target.kernel_latency
        return seconds + launch_time(len(kernels), target)

    def _bytes(self, value: Value) -> int:
        return math.prod(self._evaluate(dim.size) for dim in value.dims) * BYTES.get(value.dtype, 1)

    def _rank(self, region: Region, count: int) -> tuple[Candidate, ...]:
        """The candidates for a region, best first, from ``count`` of its tilings."""
        key = (frozenset(region.outputs), frozenset(viewed(value) for value in region.memory), count)
        if key not in self._ranked:
            self._ranked[key] = self._weigh(region, count)
        return self._ranked[key]

    def _weigh(self, region: Region, count: int) -> tuple[Candidate, ...]:
        sizes = {dim.name: self._evaluate(dim.size) for value in region.upstream for dim in value.dims}
        space = space_of(region, sizes)
        found: list[Candidate] = []

        def judge(point: Point) -> Score:
            tiling = space.tiling(point)
            candidates = self._candidates(region, tiling) if tiling else []
            found.extend(candidates)
            return min(map(self._score, candidates), default=(True, math.inf))

        explore(space, judge, min(count, effort(len(region.values))))
        if not found:
            raise CleaveError("no tiling of this function fits a thread block", region.outputs[0].location)
        return tuple(sorted(found, key=lambda candidate: (*self._score(candidate), -candidate.kernel.num_stages)))

    def _candidates(self, region: Region, tiling: Tiling) -> list[Candidate]:
        """A tiling with each number of stages and warps, and each way to load."""
        fusion = Fusion(self.options.horizontal_fusion)
        found, estimates = self._variants(region, tiling, fusion)
        if estimates:  # There is a kernel with more loops that does without.
            found = [*self._variants(region, tiling, replace(fusion, estimates=False))[0], *found]
        return found

    def _variants(self, region: Region, tiling: Tiling, fusion: Fusion) -> tuple[list[Candidate], bool]:
        """In the order of blocks that reads least from DRAM; and whether the kernels use estimates."""
        target, extents, known = self.options.target, self.graph.extents, known_of(self.graph)
        emitted = emit_kernel("kernel", region, tiling, extents, fusion)
        work = workload(emitted.kernel, self.sizes, known)
        group = best_group(work.walk, work.streams, target.sms, target.l2_size // L2_COPIES)
        if group != tiling.group:
            tiling = replace(tiling, group=group)
            emitted = emit_kernel("kernel", region, tiling, extents, fusion)
            work = replace(work, walk=replace(work.walk, group=group))
        works = {False: work}
        if target.has_descriptors and work.describable and self._is_contraction_bound(work):
            works[True] = workload(replace(emitted.kernel, descriptors=True), self.sizes, known)
        choices = itertools.product(works, STAGES if has_loops(emitted.kernel) else (1,), WARPS)
        found = [
            Candidate(
                replace(emitted.kernel, num_stages=stages, num_warps=warps, descriptors=descriptors),
                emitted.operands,
                tiling,
                cost_of(works[descriptors], stages, warps, target),
            )
            for descriptors, stages, warps in choices
        ]
        return found, emitted.estimates

    def _is_contraction_bound(self, work: Workload) -> bool:
        """Whether tensor cores take longer than DRAM: elsewhere pointers are as good, and no descriptor is fetched."""
        cost = cost_of(work, STAGES[0], WARPS[0], self.options.target)
        return cost.tensor > cost.dram

    def _score(self, candidate: Candidate) -> Score:
        return (not candidate.cost.fits(self.options.target), candidate.cost.running)

    def _evaluate(self, size: Size) -> int:
        return size.evaluate(self.sizes)

    def _program(self, ranked: tuple[tuple[Candidate, ...], ...], kernels: Kernels) -> Scheduled:
        written = [value for outputs in kernels for value in outputs]
        merged = self._side_by_side(ranked) if self.options.horizontal_fusion else list(ranked)
        launches: list[Launch] = []
        for index, candidates in enumerate(merged):
            chosen, name = candidates[0], f"{identifier(self.graph.name)}__k{index}"
            launches.append(Launch(replace(chosen.kernel, name=name), chosen.operands))
        program = TileProgram(self.graph, tuple(written), tuple(launches))
        return Scheduled(program, tuple(merged), self._time(tuple(merged)))

    def _side_by_side(self, ranked: tuple[tuple[Candidate, ...], ...]) -> list[tuple[Candidate, ...]]:
        """The launches, independent ones as one where that is predicted to take less time."""
        launches = [Launch(candidates[0].kernel, candidates[0].operands) for candidates in ranked]
        found: list[tuple[Candidate, ...]] = []
        for level in levels(launches):
            apart = [ranked[index] for index in level]
            together = self._together(apart) if len(level) > 1 else None
            better = together and self._time((together,)) < self._time(tuple(apart))
            found += [together] if together and better else apart
        return found

    def _together(self, ranked: Sequence[tuple[Candidate, ...]]) -> tuple[Candidate, ...]:
        """Independent kernels side by side, best first: for each number of warps and stages, the best of each."""
        found: list[Candidate] = []
        for key in dict.fromkeys(
            (c.kernel.num_stages, c.kernel.num_warps) for candidates in ranked for c in candidates
        ):
            chosen = [_with_resources(candidates, *key) for candidates in ranked]
            parts = [Launch(candidate.kernel, candidate.operands) for candidate in chosen if candidate]
            if len(parts) == len(ranked):
                launch = side_by_side("kernel", parts, self.graph.extents)
                cost = cost_of(workload(launch.kernel, self.sizes, known_of(self.graph)), *key, self.options.target)
                tiling = next(candidate.tiling for candidate in chosen if candidate)
                found.append(Candidate(launch.kernel, launch.operands, tiling, cost))
        return tuple(sorted(found, key=self._score))


def _with_resources(candidates: Sequence[Candidate], num_stages: int, num_warps: int) -> Candidate | None:
    """The best candidate of so many stages (fewer, if it has no loops) and warps."""
    kernels = ((c, c.kernel) for c in candidates)
    alike = (c for c, k in kernels if k.num_warps == num_warps and (k.num_stages == num_stages or not has_loops(k)))
    found = next(alike, None)
    return found and replace(found, kernel=replace(found.kernel, num_stages=num_stages))


def effort(values: int) -> int:
    """How many tilings of a region with so many values are weighed: one takes time in the square of their number."""
    return max(2, int(64 * min(1.0, (LONG / max(values, 1)) ** 2)))


def identifier(name: str) -> str:
    """``name`` as Triton's symbols may be spelt; a number keeps two names apart that become alike."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return name
    return f"{re.sub('[^A-Za-z0-9_]', '_', name)}_{zlib.crc32(name.encode()):08x}"
