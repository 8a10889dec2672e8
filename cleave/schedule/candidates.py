"""Kernels for the regions of a graph, ranked by predicted time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cleave.dialects.graph import Value
from cleave.dialects.size import SizeLike
from cleave.errors import CleaveError
from cleave.schedule.balance import longest_first_pays, rounds_of_most
from cleave.schedule.coarsening import leaves_enough
from cleave.schedule.cost import Cost, Costs, Workload, specialised_cost
from cleave.schedule.emit import Emitted, emit_kernel, tile_counts
from cleave.schedule.explore import Score, explore
from cleave.schedule.forms import Form, form_of
from cleave.schedule.ranges import growing
from cleave.schedule.region import Region, region_of
from cleave.schedule.rename import viewed
from cleave.schedule.structure import structure_of_region
from cleave.schedule.target import Target
from cleave.schedule.tile_program import Kernel
from cleave.schedule.tiling import Fusion, Tiling
from cleave.schedule.tilings import Point, comes_first, space_of
from cleave.schedule.traffic import GROUPS, best_group
from cleave.schedule.warp_specialised import BLOCKS, THREE, TWO, specialised_form
from cleave.schedule.warp_specialised import Form as SpecialisedForm
from cleave.schedule.workload import columns_lost

STAGES = (2, 3, 4, 5, 6, 8)
NO_PIPELINE = 1
"""Stages of kernels without loops."""
WARPS = (4, 8)
L2_COPIES = 2
"""Parts of an L2 cache that each keep what their multiprocessors read: what all read is there as often."""
CROWDED, DOUBT = 8, 1.04
"""Elements of a thread up to which fewer warps are better; what is doubted counts as so many times as long. Where equal
times are predicted, swapped operands took 5 to 20 % longer on an H200 at 64 rows, and eight warps 17 to 37 % at 16."""
FEWEST_COLUMNS = 32
"""Of a product whose operands are loaded through descriptors."""
LONG = 40
"""Values in a region, past which fewer tilings are weighed."""


@dataclass(frozen=True)
class Candidate:
    """A kernel for one region, which ``emit`` makes, and what it is predicted to cost.

    ``swapped``: what it leaves in memory has other dims last than its tiles. ``rejected``: why it is not taken although
    it was predicted to fit; empty if it may be.
    """

    emit: Callable[[], Emitted]
    tiling: Tiling
    cost: Cost
    num_warps: int
    num_stages: int
    descriptors: bool = False
    warp_specialised: bool = False
    swapped: bool = False
    rejected: str = ""

    @cached_property
    def kernel(self) -> Kernel:
        return replace(
            self.emit().kernel,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            descriptors=self.descriptors,
            warp_specialised=self.warp_specialised,
        )

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.emit().operands

    @property
    def doubt(self) -> float:
        """How many times as long as predicted it counts: swapped operands and many warps for a small tile do worse."""
        small = math.prod(self.tiling.grid.values()) <= CROWDED * 32 * self.num_warps
        return DOUBT ** (self.swapped + (small and self.num_warps > WARPS[0] and not self.warp_specialised))


@dataclass(frozen=True)
class _Emission:
    """The kernel of a region with a tiling, which is emitted when it is asked for."""

    kernels: Candidates
    region: Region
    tiling: Tiling
    fusion: Fusion

    def __call__(self) -> Emitted:
        return self.kernels.kernel(self.region, self.tiling, self.fusion)


def distinct(candidates: Iterable[Candidate], count: int) -> list[Candidate]:
    """The first ``count``; of those that differ in stages which change nothing, one."""
    found: dict[Hashable, Candidate] = {}
    for candidate in candidates:
        if len(found) == count:
            break
        found.setdefault((candidate.kernel.body, candidate.num_warps, candidate.cost), candidate)
    return list(found.values())


@dataclass(frozen=True)
class Sizes:
    """``values``: what the cost model takes each symbol for. ``known``: what kernels are told of symbols."""

    values: Mapping[str, int]
    known: Mapping[str, SizeLike]

    def of(self, symbols: Sequence[str]) -> Hashable:
        """What is said of these symbols."""
        return tuple((self.values.get(symbol), str(self.known.get(symbol))) for symbol in symbols)


class Candidates:
    """The candidates for regions of graphs that have the same static sizes, ``extents``.

    Each kernel is made once and weighed once at given sizes, be it for several partitions of a graph, for other numbers
    of parts, or for other graphs with the same values in them.
    """

    def __init__(
        self, extents: Mapping[str, int], target: Target, fusion: Fusion, *, warp_specialise: bool = False
    ) -> None:
        self.extents, self.target, self.fusion, self.warp_specialise = extents, target, fusion, warp_specialise
        self._regions: dict[tuple[tuple[Value, ...], frozenset[Value]], Region] = {}
        self._alike: dict[tuple[frozenset[Value], frozenset[Value]], Region] = {}
        self._emitted: dict[tuple[Region, Hashable, Fusion], Emitted] = {}
        self._forms: dict[tuple[Region, Hashable, Fusion], list[Form]] = {}
        self._weighed: dict[tuple[Region, Hashable, Hashable], list[tuple[Score, Candidate]]] = {}
        self._ranked: dict[tuple[Region, int, Hashable], tuple[Candidate, ...]] = {}
        self._structures: dict[Hashable, Region] = {}

    def region(self, outputs: tuple[Value, ...], boundary: frozenset[Value]) -> Region:
        """As ``region_of``; regions that compute the same from the same memory are one."""
        if (outputs, boundary) not in self._regions:
            region = region_of(outputs, boundary, self.extents)
            key = (frozenset(outputs), frozenset(viewed(value) for value in region.memory))
            self._regions[outputs, boundary] = self._alike.setdefault(key, region)
        return self._regions[outputs, boundary]

    def are_ranked(self, region: Region, count: int, sizes: Sizes) -> bool:
        """Whether ``ranked`` takes no time."""
        return (region, count, sizes.of(region.symbols)) in self._ranked

    def ranked(self, region: Region, count: int, sizes: Sizes) -> tuple[Candidate, ...]:
        """The candidates for a region, best first, from ``count`` of its tilings."""
        key = (region, count, sizes.of(region.symbols))
        if key not in self._ranked:
            first = self._structures.setdefault(structure_of_region(region), region)
            if first is region:
                self._ranked[key] = self._explored(region, count, sizes)
            else:
                self._ranked[key] = tuple(self._of_another(region, c) for c in self.ranked(first, count, sizes))
        return self._ranked[key]

    def _of_another(self, region: Region, candidate: Candidate) -> Candidate:
        """The candidate of a region of the same structure, for this one."""
        assert isinstance(candidate.emit, _Emission)
        return replace(candidate, emit=replace(candidate.emit, region=region))

    def score(self, candidate: Candidate) -> Score:
        return (not candidate.cost.fits(self.target), candidate.cost.running * candidate.doubt)

    def _explored(self, region: Region, count: int, sizes: Sizes) -> tuple[Candidate, ...]:
        extents = {dim.name: dim.size.evaluate(sizes.values) for value in region.upstream for dim in value.dims}
        space = space_of(region, extents)
        found: list[tuple[Score, Candidate]] = []

        def judge(point: Point) -> Score:
            tiling = space.tiling(point)
            candidates = self._of(region, tiling, sizes) if tiling else []
            found.extend(candidates)
            return min([score for score, _ in candidates], default=(True, math.inf))

        explore(space, judge, min(count, effort(len(region.values))))
        if not found:
            raise CleaveError("no tiling of this function fits a thread block", region.outputs[0].location)
        found.sort(key=lambda pair: (pair[0], -pair[1].num_stages))
        return tuple(candidate for _, candidate in found)

    def _of(self, region: Region, tiling: Tiling, sizes: Sizes) -> list[tuple[Score, Candidate]]:
        """A tiling with each number of stages and warps, and each way to load."""
        key = (region, tiling.key, sizes.of(region.symbols))
        if key not in self._weighed:
            found, estimates = self._variants(region, tiling, self.fusion, sizes)
            if estimates:  # There is a kernel with more loops that does without.
                found = [*self._variants(region, tiling, replace(self.fusion, estimates=False), sizes)[0], *found]
            self._weighed[key] = [(self.score(candidate), candidate) for candidate in found]
        return self._weighed[key]

    def _variants(self, region: Region, tiling: Tiling, fusion: Fusion, sizes: Sizes) -> tuple[list[Candidate], bool]:
        """In the order of blocks that reads least from DRAM; and whether the kernels use estimates."""
        form = self._form(region, tiling, fusion)
        tiling, work = self._ordered(form, tiling, sizes, self.target.sms)
        if not leaves_enough(region, tiling.coarsened, work.blocks, self.target.sms):
            return [], False
        works = {False: work}
        if self.target.has_descriptors and work.describable and _gains_by_descriptors(work):
            works[True] = form.workload(tiling, sizes.values, sizes.known, descriptors=True)
        emit = _Emission(self, region, tiling, fusion)
        resources = list(itertools.product(STAGES if form.has_loops else (NO_PIPELINE,), WARPS))
        found: list[Candidate] = []
        swapped = _swaps(region, tiling)
        for through, each in works.items():
            costs = Costs(each, self.target)
            for stages, warps in resources:
                cost = costs.of(stages, warps)
                found.append(Candidate(emit, tiling, cost, warps, stages, through, swapped=swapped))
        described = works.get(True) if work.describable else self._of_threads(form, tiling, sizes)
        if self.warp_specialise and described:
            special = list(self._specialised(emit, tiling, form, described, sizes))
            three = special and any(chain.chained for chain in described.chains)
            found += [*special, *(self._for_three(tiling, fusion, form, sizes) if three else ())]
        return found, form.emitted.estimates

    def _ordered(
        self, form: Form, tiling: Tiling, sizes: Sizes, running: int, *, in_rounds: bool = False
    ) -> tuple[Tiling, Workload]:
        """With the order of tiles that shares the work evenly among so many blocks, and reads least from DRAM.

        ``in_rounds``: of warp-specialised kernels, which load through descriptors.
        """
        grown, tiling = growing(form.region), replace(tiling, longest_first=False, group=1)
        if grown:
            tiles = tile_counts(form.region, tiling, sizes.values)
            longest = longest_first_pays(tiles, grown, running, in_rounds=in_rounds)
            tiling = replace(tiling, longest_first=longest)
        work = form.workload(tiling, sizes.values, sizes.known, descriptors=in_rounds)
        if grown and in_rounds:
            tiles = tile_counts(form.region, tiling, sizes.values)
            work = replace(work, rounds=rounds_of_most(tiles, grown, running))
        cache = self.target.l2_size // L2_COPIES
        group = 1 if tiling.longest_first else best_group(work.walk, work.streams, self.target.sms, cache)
        return replace(tiling, group=group), replace(work, walk=replace(work.walk, group=group))

    def _of_threads(self, form: Form, tiling: Tiling, sizes: Sizes) -> Workload | None:
        """What the kernel does where no descriptor describes anything, if threads can copy operands of its products."""
        work = form.workload(tiling, sizes.values, sizes.known, descriptors=True) if self.warp_specialise else None
        gains = work and any(chain.multiplied for chain in work.chains) and _gains_by_descriptors(work)
        return work if gains else None

    def _specialised(
        self, emit: _Emission, tiling: Tiling, alike: Form, work: Workload, sizes: Sizes
    ) -> Iterator[Candidate]:
        """The tiling in its warp-specialised form, if it has one."""
        form = specialised_form(alike.kernel(tiling), work, sizes.known, self.target, alike.emitted.operands)
        if form:
            if growing(alike.region):
                blocks = BLOCKS[form.division.consumers] * self.target.sms
                tiling, work = self._ordered(alike, tiling, sizes, blocks, in_rounds=True)
            group, cost = self._in_bands(work, form)
            tiling = replace(tiling, group=group)
            emit = replace(emit, tiling=tiling)
            found = Candidate(emit, tiling, cost, form.warps, form.stages, descriptors=True, warp_specialised=True)
            yield replace(found, swapped=_swaps(alike.region, tiling))

    def _in_bands(self, work: Workload, form: SpecialisedForm) -> tuple[int, Cost]:
        """Higher bands, where blocks then have more tiles of a row of which they keep something."""
        found = [work]
        if any(chain.kept for chain in work.chains):
            found += [replace(work, walk=replace(work.walk, group=each)) for each in GROUPS if each > work.walk.group]
        costs = [(each.walk.group, specialised_cost(each, form, self.target)) for each in found]
        return min(costs, key=lambda pair: (pair[1].running, pair[0]))

    def _for_three(self, tiling: Tiling, fusion: Fusion, alike: Form, sizes: Sizes) -> Iterator[Candidate]:
        """For two consumers' tiles those with half as many rows again, in loops that compute between their products.

        Triton has no tiles of such an extent: there are none without consumers.
        """
        for name in (name for name, extent in tiling.grid.items() if extent == TWO):
            wider = replace(tiling, grid={**tiling.grid, name: THREE})
            work = alike.workload(wider, sizes.values, sizes.known, descriptors=True)
            form = specialised_form(alike.kernel(wider), work, sizes.known, self.target, alike.emitted.operands)
            if form and form.division.dim == name and form.division.consumers == 3:
                emit = _Emission(self, alike.region, wider, fusion)
                yield from self._specialised(emit, wider, alike, work, sizes)

    def _form(self, region: Region, tiling: Tiling, fusion: Fusion) -> Form:
        """That which the tiling's kernel has."""
        forms = self._forms.setdefault((region, form_of(region, tiling), fusion), [])
        found = next((form for form in forms if form.has(tiling)), None)
        if found is None:
            forms.append(found := Form(region, tiling, self.kernel(region, tiling, fusion)))
        return found

    def kernel(self, region: Region, tiling: Tiling, fusion: Fusion) -> Emitted:
        key = (region, tiling.key, fusion)
        if key not in self._emitted:
            self._emitted[key] = emit_kernel("kernel", region, tiling, self.extents, fusion)
        return self._emitted[key]


def _swaps(region: Region, tiling: Tiling) -> bool:
    return any(comes_first(tiling.columns, value) for value in region.outputs)


def _gains_by_descriptors(work: Workload) -> bool:
    """Whether all products are by ``wgmma``, of tiles with enough columns: others take longer to fetch a descriptor
    than it saves them."""
    return not work.mma and work.narrow * FEWEST_COLUMNS <= work.tensor * columns_lost(FEWEST_COLUMNS)


def effort(values: int) -> int:
    """How many tilings of a region with so many values are weighed: one takes time in the square of their number."""
    return max(2, int(64 * min(1.0, (LONG / max(values, 1)) ** 2)))
