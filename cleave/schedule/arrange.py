"""How the launches of a program follow one another, by option or by cost.

``plain``: one after the other. ``pdl``: overlapping, on GPUs that can (``overlap``). ``share``: two in one launch
wherever that is possible (``share``), the others overlapping. ``auto``: two in one where that should be faster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cleave.schedule.anchors import suit
from cleave.schedule.cost import Cost, kernel_cost, known_of, specialised_cost, workload
from cleave.schedule.emit import Emitted
from cleave.schedule.overlap import overlapping, triggering
from cleave.schedule.product import is_product, written
from cleave.schedule.region import region_of
from cleave.schedule.scheduler import Candidate, Scheduled, ScheduleOptions, default_sizes
from cleave.schedule.share import Pair, Shared, emit_shared
from cleave.schedule.tile_program import Launch, TileProgram
from cleave.schedule.tiling import Fusion, Tiling
from cleave.schedule.warp_specialised import specialised_form
from cleave.schedule.whole_operands import with_whole_operands

TILINGS = 12
"""Candidates for the parts that are tried as one launch with their combination."""
MOST_UNITS = 64
PER_THREAD = 32
"""Elements of the parts that a thread combines at a time, at most."""
WARP, CONSUMER = 32, 4
"""Threads of a warp, and warps of one that computes."""


@dataclass(frozen=True)
class _Choice:
    """Launches ``first`` and ``first + 1`` in one."""

    first: int
    shared: Shared
    cost: Cost


def arranged(scheduled: Scheduled, options: ScheduleOptions) -> TileProgram:
    """The program of the chosen candidates, with its launches overlapping or in one."""
    return _Arrangement(scheduled, options).program()


class _Arrangement:
    def __init__(self, scheduled: Scheduled, options: ScheduleOptions) -> None:
        self.scheduled, self.options, self.plain = scheduled, options, scheduled.program
        self.graph = self.plain.graph
        self.sizes = {
            **default_sizes(self.graph, {**options.sizes, **self.plain.choices}),
            **self.graph.extents,
        }
        self.fusion = Fusion(options.horizontal_fusion, estimates=False, anchors=suit(self.graph))
        boundary = frozenset(self.plain.allocated)
        self.regions = [region_of(written(launch), boundary, self.graph.extents) for launch in self.plain.launches]

    def program(self) -> TileProgram:
        choices = list(self._choices()) if self.options.combine in ("share", "auto") else []
        launches = self._launches()
        if self.options.combine != "plain" and self.options.target.overlaps_launches:
            launches = overlapping(launches)
        counters = tuple(choice.shared.counters for choice in choices)
        made = (with_whole_operands(launch, self.graph.extents) for launch in self._merged(launches, choices))
        return replace(self.plain, launches=tuple(made), counters=counters)

    def _launches(self) -> tuple[Launch, ...]:
        """One after the other; plain products are a library's if that is asked for."""
        if not self.options.library:
            return self.plain.launches
        pairs = zip(self.plain.launches, self.regions, strict=True)
        return tuple(replace(launch, product=self.options.library * is_product(region)) for launch, region in pairs)

    def _merged(self, launches: Sequence[Launch], choices: Sequence[_Choice]) -> Iterator[Launch]:
        """Ahead of two launches that are one launch elsewhere, that one."""
        shared = {choice.first: choice.shared.emitted for choice in choices}
        for index, launch in enumerate(launches):
            emitted, name = shared.get(index), launch.kernel.name
            if emitted:
                kernel, rest = replace(emitted.kernel, name=f"{name}_shared"), launches[index + 2 :]
                kernel = triggering(kernel, rest[0].kernel) if rest and rest[0].overlaps else kernel
                yield Launch(kernel, emitted.operands, cooperative=True)
                yield replace(launch, unless=f"{name}_shared", product=0)
            elif index - 1 in shared:
                yield replace(launch, unless=f"{launches[index - 1].kernel.name}_shared", product=0)
            else:
                yield launch

    def _choices(self) -> Iterator[_Choice]:
        taken = -1
        for first, (parts, combine) in enumerate(itertools.pairwise(self.regions)):
            alone = not any(launch.kernel.beside for launch in self.plain.launches[first : first + 2])
            if first > taken and alone and Pair(parts, combine).is_shareable:
                choice = self._best(first, Pair(parts, combine))
                if choice and (self.options.combine == "share" or self._time(choice) < self._time_apart(first)):
                    taken = first + 1
                    yield choice

    def _time(self, choice: _Choice) -> float:
        return choice.cost.running + self.options.target.barrier_latency

    def _time_apart(self, first: int) -> float:
        running = sum(candidates[0].cost.running for candidates in self.scheduled.candidates[first : first + 2])
        return running + self.options.target.between_launches

    def _best(self, first: int, pair: Pair) -> _Choice | None:
        """The cheapest kernel for both whose blocks all run at once; None if there is none."""
        found: list[_Choice] = []
        for candidate in self._tried(first):
            shared = self._emitted(pair, candidate, self._units(pair, candidate))
            cost = self._cost(shared.emitted)
            if cost and cost.fits(self.options.target) and cost.waves <= 1:
                found.append(_Choice(first, shared, cost))
        return min(found, key=lambda choice: choice.cost.running, default=None)

    def _cost(self, emitted: Emitted) -> Cost | None:
        """None for a kernel that has not the form that it is to have."""
        kernel, known, target = emitted.kernel, known_of(self.graph), self.options.target
        if kernel.warp_specialised:
            work = workload(kernel, self.sizes, known)
            form = specialised_form(kernel, work, known, target, emitted.operands)
            return specialised_cost(work, form, target) if form else None
        return kernel_cost(kernel, self.sizes, target, known)

    def _tried(self, first: int) -> list[Candidate]:
        """Of the form that the launch has."""
        form = self.plain.launches[first].kernel.warp_specialised
        alike = [c for c in self.scheduled.candidates[first] if c.warp_specialised == form]
        fitting = [c for c in alike if c.cost.fits(self.options.target) and not c.rejected]
        single = [c for c in fitting if not c.tiling.coarsened]  # a block combines shares of one tile
        return [candidate for candidate in single if candidate.cost.waves <= 1][:TILINGS]

    def _emitted(self, pair: Pair, candidate: Candidate, units: Tiling) -> Shared:
        shared = emit_shared("kernel", pair, candidate.tiling, units, self.graph.extents, self.fusion)
        kernel, own = shared.emitted.kernel, candidate.kernel
        kernel = replace(kernel, num_warps=own.num_warps, num_stages=own.num_stages, descriptors=own.descriptors)
        kernel = replace(kernel, warp_specialised=own.warp_specialised)
        return replace(shared, emitted=replace(shared.emitted, kernel=kernel))

    def _units(self, pair: Pair, candidate: Candidate) -> Tiling:
        """Units of a tile, cut until each block has one and a thread's share of it is small.

        The last dim is cut last: its elements lie side by side in memory. The others are cut in turn, so that dims
        which are packed in tiles of the parts have other sizes in those of the combination, all of them.
        """
        grid, members = candidate.tiling.grid, pair.members
        blocks = math.prod(-(-self._size(pair, dim) // grid[dim]) for dim in members)
        warps = candidate.kernel.num_warps
        if candidate.warp_specialised:  # each consumer has units of its own
            blocks, warps = blocks * warps // CONSUMER, CONSUMER
        reduced = dict.fromkeys(self._reduced(pair), 1)
        reduced |= {dim: min(32, 1 << max(0, self._size(pair, dim) - 1).bit_length()) for dim in members}
        units = {dim: grid[dim] for dim in pair.combine.parallel}
        most = PER_THREAD * WARP * warps // math.prod(reduced[dim] for dim in members)
        count, wanted = 1, min(blocks, MOST_UNITS)
        for dims in (pair.combine.parallel[:-1], pair.combine.parallel[-1:]):
            for dim in itertools.cycle(dims):
                if all(units[each] == 1 for each in dims) or (count >= wanted and math.prod(units.values()) <= most):
                    break
                if units[dim] > 1:
                    units[dim], count = units[dim] // 2, 2 * count
        return Tiling(units, reduced)

    def _reduced(self, pair: Pair) -> set[str]:
        return {name for value in pair.combine.reductions for name in value.attrs["over"]}

    def _size(self, pair: Pair, name: str) -> int:
        sizes = {dim.name: dim.size for value in pair.parts.outputs for dim in value.dims}
        return sizes[name].evaluate(self.sizes)
