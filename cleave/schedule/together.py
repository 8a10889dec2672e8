"""Candidates for independent kernels side by side, in one launch (``side_by_side``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from cleave.schedule.candidates import NO_PIPELINE, Candidate, Sizes
from cleave.schedule.cost import Costs, specialised_cost
from cleave.schedule.emit import Emitted
from cleave.schedule.side_by_side import arguments_of, parts_of, side_by_side
from cleave.schedule.target import Target
from cleave.schedule.tile_program import Launch
from cleave.schedule.warp_specialised import specialised_form
from cleave.schedule.workload import workload_beside

Ranked = Sequence[Sequence[Candidate]]
"""For each of the kernels its candidates, best first."""


def together(ranked: Ranked, extents: Mapping[str, int], sizes: Sizes, target: Target) -> Iterator[Candidate]:
    """Of those that are not warp-specialised for each number of warps and stages the best of each; and of either form
    those whose tiles agree."""
    plain, special = (
        [[each for each in candidates if each.warp_specialised == form] for candidates in ranked]
        for form in (False, True)
    )
    resources = dict.fromkeys((c.num_stages, c.num_warps) for candidates in plain for c in candidates)
    for key in resources:
        chosen = [_with_resources(candidates, *key) for candidates in plain]
        if None not in chosen:
            yield _Together([each for each in chosen if each], extents, sizes, target).plain(*key)
    for chosen in _agreeing(plain):
        found = _Together(chosen, extents, sizes, target)
        yield from (found.plain(*key) for key in resources)
    for chosen in _agreeing(special):
        yield from _Together(chosen, extents, sizes, target).specialised()


def _with_resources(candidates: Sequence[Candidate], num_stages: int, num_warps: int) -> Candidate | None:
    """The best candidate of so many stages (fewer, if it has no loops) and warps."""
    alike = (c for c in candidates if c.num_warps == num_warps and c.num_stages in (num_stages, NO_PIPELINE))
    return next(alike, None)


def _agreeing(ranked: Ranked) -> Iterator[list[Candidate]]:
    """Candidates whose tiles agree along the dims that all have, by which consumers divide them, and those which agree
    along the others as well, so that they take equally long and share buffers: for each way the best of each kernel."""
    if not all(ranked):
        return
    common = set[str].intersection(*({*candidates[0].tiling.tiles} for candidates in ranked))
    found: dict[tuple[int, ...], list[Candidate]] = {}
    for alike in (False, True):
        keyed = [_firsts(candidates, common, alike=alike) for candidates in ranked]
        for key in keyed[0]:
            chosen = [firsts[key] for firsts in keyed if key in firsts]
            if len(chosen) == len(keyed):
                found.setdefault(tuple(map(id, chosen)), chosen)
    yield from found.values()


def _firsts(candidates: Sequence[Candidate], common: set[str], *, alike: bool) -> dict[Hashable, Candidate]:
    """The best candidate of each kind of tiles."""
    found: dict[Hashable, Candidate] = {}
    for candidate in candidates:
        tiles = candidate.tiling.tiles
        shared = tuple(sorted((name, extent) for name, extent in tiles.items() if name in common))
        own = tuple(extent for name, extent in tiles.items() if name not in common)
        found.setdefault((shared, own if alike else (), candidate.descriptors), candidate)
    return found


class _Together:
    """These candidates in one launch."""

    def __init__(self, chosen: Sequence[Candidate], extents: Mapping[str, int], sizes: Sizes, target: Target) -> None:
        self.tiling, self.extents, self.sizes, self.target = chosen[0].tiling, extents, sizes, target
        self.swapped = any(candidate.swapped for candidate in chosen)
        self.launches = [Launch(candidate.kernel, candidate.operands) for candidate in chosen]
        self.parts = parts_of(self.launches)
        arguments = tuple(arguments_of(self.launches).values())
        self.work = workload_beside(self.parts, arguments, sizes.values, sizes.known)
        self.costs = Costs(self.work, target)

    def plain(self, stages: int, warps: int) -> Candidate:
        cost = self.costs.of(stages, warps)
        described = self.parts[0].descriptors
        return Candidate(self._emit, self.tiling, cost, warps, stages, described, swapped=self.swapped)

    def specialised(self) -> Iterator[Candidate]:
        """Nothing where they have no common form."""
        whole = replace(self.parts[0], beside=self.parts)
        form = specialised_form(whole, self.work, self.sizes.known, self.target)
        if form:
            cost, rest = specialised_cost(self.work, form, self.target), (form.warps, form.stages)
            yield Candidate(
                self._emit, self.tiling, cost, *rest, descriptors=True, warp_specialised=True, swapped=self.swapped
            )

    @cached_property
    def _emitted(self) -> Emitted:
        launch = side_by_side("kernel", self.launches, self.extents)
        return Emitted(launch.kernel, launch.operands, estimates=False)

    def _emit(self) -> Emitted:
        return self._emitted
