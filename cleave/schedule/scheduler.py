"""From a graph to the best tile program that the cost model can find."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from cleave.dialects.dims import Size
from cleave.dialects.graph import Graph, Value
from cleave.errors import CleaveError
from cleave.schedule.cost import BYTES, Cost, kernel_cost
from cleave.schedule.emit import Fusion, Tiling, emit_kernel
from cleave.schedule.partition import cuts, kernels_of
from cleave.schedule.region import Region, region_of
from cleave.schedule.rename import VIEWS
from cleave.schedule.target import Target, target_named
from cleave.schedule.tile_program import Kernel, Launch, TileProgram
from cleave.schedule.tilings import tilings

DEFAULT_SIZE = 1024
"""What the cost model takes a dynamic size for when nobody says."""


@dataclass(frozen=True)
class ScheduleOptions:
    """``sizes``: representative values of dynamic symbols, for the cost model only; the kernels take any.

    ``iterative_tiling`` and ``horizontal_fusion`` off are the ablations: one kernel for each reduction, and one loop
    for each reduction.
    """

    target: Target = field(default_factory=lambda: target_named("h200"))
    sizes: Mapping[str, int] = field(default_factory=dict)
    iterative_tiling: bool = True
    horizontal_fusion: bool = True
    max_tilings: int = 64


@dataclass(frozen=True)
class Candidate:
    """A kernel for one region and what it is predicted to cost."""

    kernel: Kernel
    operands: tuple[Value, ...]
    tiling: Tiling
    cost: Cost


@dataclass(frozen=True)
class Scheduled:
    """The chosen program; ``candidates`` has, for each launch, all that were weighed, the chosen one first."""

    program: TileProgram
    candidates: tuple[tuple[Candidate, ...], ...]

    @property
    def seconds(self) -> float:
        return sum(ranked[0].cost.total for ranked in self.candidates)


def schedule(graph: Graph, options: ScheduleOptions) -> Scheduled:
    """The program of least predicted time. CleaveError, located, where an op cannot be scheduled."""
    return _Scheduler(graph, options).run()


class _Scheduler:
    def __init__(self, graph: Graph, options: ScheduleOptions) -> None:
        self.graph, self.options = graph, options
        symbols = {symbol for value in graph.topological() for dim in value.dims for symbol in dim.size.symbols}
        known = {symbol: options.sizes.get(symbol, graph.extents.get(symbol, DEFAULT_SIZE)) for symbol in symbols}
        self.sizes = {**known, **graph.extents}
        self._ranked: dict[tuple[frozenset[Value], frozenset[Value]], tuple[Candidate, ...]] = {}
        self._regions: dict[tuple[tuple[Value, ...], frozenset[Value]], Region] = {}

    def run(self) -> Scheduled:
        best: tuple[tuple[Candidate, ...], ...] | None = None
        best_cut: frozenset[Value] = frozenset()
        failure: CleaveError | None = None
        for cut in self._cuts():
            try:
                if best is not None and self._at_least(cut) >= _seconds(best):
                    continue
                found = self._candidates(cut)
            except CleaveError as error:
                failure = failure or error
                continue
            if best is None or _seconds(found) < _seconds(best):
                best, best_cut = found, cut
        if best is None:
            raise failure or CleaveError("nothing to schedule")
        return self._program(best, best_cut)

    def _cuts(self) -> list[frozenset[Value]]:
        found = list(cuts(self.graph))
        return found if self.options.iterative_tiling else found[-1:]

    def _regions_of(self, cut: frozenset[Value]) -> list[Region]:
        boundary = cut | frozenset(self.graph.outputs)
        found: list[Region] = []
        for outputs in kernels_of(self.graph, cut):
            if (outputs, boundary) not in self._regions:
                self._regions[outputs, boundary] = region_of(outputs, boundary, self.graph.extents)
            found.append(self._regions[outputs, boundary])
        return found

    def _at_least(self, cut: frozenset[Value]) -> float:
        """Seconds that no schedule of this cut goes below: each kernel reads and writes its tensors once."""
        target, seconds = self.options.target, 0.0
        for index, region in enumerate(self._regions_of(cut)):
            moved = sum(self._bytes(value) for value in (*region.memory, *region.outputs))
            seconds += moved / target.dram_bandwidth + (target.next_launch if index else target.launch)
        return seconds

    def _bytes(self, value: Value) -> int:
        return math.prod(self._evaluate(dim.size) for dim in value.dims) * BYTES.get(value.dtype, 1)

    def _candidates(self, cut: frozenset[Value]) -> tuple[tuple[Candidate, ...], ...]:
        return tuple(self._rank(region) for region in self._regions_of(cut))

    def _rank(self, region: Region) -> tuple[Candidate, ...]:
        key = (frozenset(region.outputs), frozenset(_root(value) for value in region.memory))
        if key not in self._ranked:
            self._ranked[key] = self._weigh(region)
        return self._ranked[key]

    def _weigh(self, region: Region) -> tuple[Candidate, ...]:
        sizes = {dim.name: self._evaluate(dim.size) for value in region.upstream for dim in value.dims}
        found: list[Candidate] = []
        for count, tiling in enumerate(tilings(region, sizes)):
            if count == self.options.max_tilings:
                break
            kernel = emit_kernel("kernel", region, tiling, self.graph.extents, Fusion(self.options.horizontal_fusion))
            cost = kernel_cost(kernel.kernel, self.sizes, self.options.target)
            found.append(Candidate(kernel.kernel, kernel.operands, tiling, cost))
        if not found:
            raise CleaveError("no tiling of this function fits a thread block", region.outputs[0].location)
        target = self.options.target
        return tuple(sorted(found, key=lambda candidate: (not candidate.cost.fits(target), candidate.cost.total)))

    def _evaluate(self, size: Size) -> int:
        return size.evaluate(self.sizes)

    def _program(self, ranked: tuple[tuple[Candidate, ...], ...], cut: frozenset[Value]) -> Scheduled:
        written = [value for outputs in kernels_of(self.graph, cut) for value in outputs]
        launches: list[Launch] = []
        for index, candidates in enumerate(ranked):
            chosen = candidates[0]
            launches.append(Launch(renamed(chosen.kernel, f"{self.graph.name}__k{index}"), chosen.operands))
        return Scheduled(TileProgram(self.graph, tuple(written), tuple(launches)), ranked)


def _root(value: Value) -> Value:
    """The tensor that a view looks at."""
    while value.op in VIEWS:
        value = value.operands[0]
    return value


def renamed(kernel: Kernel, name: str) -> Kernel:
    return Kernel(name, kernel.arguments, kernel.outputs, kernel.grid, kernel.body, kernel.num_warps, kernel.num_stages)


def _seconds(ranked: tuple[tuple[Candidate, ...], ...]) -> float:
    return sum(candidates[0].cost.total for candidates in ranked)
