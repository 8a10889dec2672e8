"""Which iterations a loop makes, and which of them need no masks (index-set splitting).

Tiles that a mask makes neutral throughout are left out, as in causal attention. At least one tile stays: a row that is
masked throughout has the result that the source says, NaN for a softmax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from cleave.dialects.dims import Size
from cleave.dialects.graph import Value
from cleave.schedule.affine import Affine, Limit, limits, sign
from cleave.schedule.masked_tiles import masking
from cleave.schedule.region import Region
from cleave.schedule.scope import Scope, Span
from cleave.schedule.spans import Spans
from cleave.schedule.tile_program import Ref
from cleave.schedule.tile_sizes import value_of


@dataclass(frozen=True)
class Range:
    """Elements along a dim."""

    start: Ref
    stop: Ref


@dataclass(frozen=True)
class Trips:
    """How many iterations a loop over dim ``name`` makes, on the average over thread blocks.

    ``lower`` and ``upper``: what limits them; ``sizes``: of all dims. ``rest``: those that are made and not full.
    """

    name: str
    sizes: Mapping[str, Size]
    lower: tuple[Affine, ...]
    upper: tuple[Affine, ...]
    kind: Literal["made", "full", "rest"] = "made"

    def count(self, tiles: Mapping[str, int], values: Mapping[str, int]) -> int:
        """The number where tiles have these extents and symbols these values."""
        tile = tiles[self.name]
        made = -(-self._elements(tiles, values, widest=True) // tile)
        if self.kind == "made":
            return made
        full = self._elements(tiles, values, widest=False) // tile
        return full if self.kind == "full" else max(0, made - full)

    def _elements(self, tiles: Mapping[str, int], values: Mapping[str, int], *, widest: bool) -> int:
        start, stop = 0, value_of(self.sizes[self.name], values)
        for end in self.lower:
            start = max(start, self._mean(end, tiles, values, largest=not widest))
        for end in self.upper:
            stop = min(stop, self._mean(end, tiles, values, largest=widest) + 1)
        return max(stop - start, 0)

    def _mean(self, form: Affine, tiles: Mapping[str, int], values: Mapping[str, int], *, largest: bool) -> int:
        """The largest or smallest value of a form over a tile, on the average over thread blocks, roughly."""
        total = value_of(form.constant, values)
        for name, coefficient in form.coefficients.items():
            half = (tiles[name] - 1) // 2
            away = half if (sign(coefficient) > 0) == largest else -half
            total += value_of(coefficient, values) * (value_of(self.sizes[name], values) // 2 + away)
        return total


@dataclass(frozen=True)
class Iterations:
    """``made``: all iterations, from a multiple of the tile on. ``full``: those that need no masks, whole tiles; none
    where it stops before it starts.

    ``outcomes``: how comparisons come out throughout ``full``. ``before``: whether some may lie before ``full``.
    ``all_full``, ``none_full``: what is known of that for all sizes. ``computed``: whether constants say so in which
    tile extents are more than factors.
    """

    made: Range
    full: Range
    trips: Trips
    outcomes: Mapping[Value, bool]
    before: bool
    all_full: bool
    none_full: bool
    computed: bool


class Ranges:
    """The loops' ranges in one kernel."""

    def __init__(self, region: Region, spans: Spans) -> None:
        self.region, self.spans = region, spans

    def of(self, group: Sequence[Value], name: str, tile: int, scope: Scope) -> Iterations:
        """The iterations of a loop over dim ``name`` in ``scope`` that computes the reductions of ``group``."""
        known = self._limits(group, name, scope)
        found = [limit for several in known.values() for limit in several]
        outcomes = {comparison: truth for (comparison, truth), several in known.items() if several}
        lower, upper = ([limit for limit in found if limit.upper is side] for side in (False, True))
        made, full = self._made(lower, upper, name, tile, scope), self._full(lower, upper, name, tile, scope)
        if lower:
            full = replace(full, start=scope.builder.arith("maxsi", full.start, made.start))
        stops = [scope.builder.constant_of(each) for each in (full.stop, made.stop)]
        all_full = not outcomes and (tile == 1 or (stops[0] is not None and stops[0] == stops[1]))
        ends = [tuple(limit.end for limit in side) for side in (lower, upper)]
        trips = Trips(name, self.spans.sizes, ends[0], ends[1])
        computed = bool(found) and stops[0] is not None
        return Iterations(made, full, trips, outcomes, bool(lower), all_full, stops[0] == 0, computed)

    def _limits(self, group: Sequence[Value], name: str, scope: Scope) -> dict[tuple[Value, bool], tuple[Limit, ...]]:
        """For each comparison that masks, what it says of this dim where it does not mask."""
        found: dict[tuple[Value, bool], tuple[Limit, ...]] = {}
        for comparison, truth in masking(group, name, self.region).items():
            several = limits(comparison, truth, name)
            if all(scope.span(other) for limit in several for other in limit.end.coefficients):
                found[comparison, truth] = several
        return found

    def _made(self, lower: list[Limit], upper: list[Limit], name: str, tile: int, scope: Scope) -> Range:
        builder, bound = scope.builder, self.spans.bound(scope, name)
        start, stop = builder.index(0), bound
        for limit in lower:
            start = builder.arith("maxsi", start, self._end(limit.end, scope, largest=False))
        if lower:
            last = builder.arith("subi", builder.arith("maxsi", bound, builder.index(1)), builder.index(1))
            start = self._down(builder.arith("minsi", start, last), tile, scope)
        for limit in upper:
            end = builder.arith("addi", self._end(limit.end, scope, largest=True), builder.index(1))
            end = builder.arith("maxsi", end, builder.arith("addi", start, builder.index(1)))
            stop = builder.arith("minsi", stop, end)
        return Range(start, stop)

    def _full(self, lower: list[Limit], upper: list[Limit], name: str, tile: int, scope: Scope) -> Range:
        builder, zero = scope.builder, scope.builder.index(0)
        start, stop = zero, self.spans.bound(scope, name)
        for limit in lower:
            start = builder.arith("maxsi", start, self._end(limit.end, scope, largest=True))
        for limit in upper:
            end = builder.arith("addi", self._end(limit.end, scope, largest=False), builder.index(1))
            stop = builder.arith("minsi", stop, builder.arith("maxsi", end, zero))
        if lower:
            start = self._down(builder.arith("addi", start, builder.index(tile - 1)), tile, scope)
        return Range(start, self._down(stop, tile, scope))

    def _down(self, index: Ref, tile: int, scope: Scope) -> Ref:
        """The last multiple of ``tile`` that is not above an index ≥ 0."""
        size = scope.builder.index(tile)
        return scope.builder.arith("muli", scope.builder.arith("divui", index, size), size)

    def _end(self, form: Affine, scope: Scope, *, largest: bool) -> Ref:
        """The largest or smallest value of a form over the tiles in hand."""
        builder = scope.builder
        total = builder.extent(form.constant, self.spans.extents)
        for name, coefficient in form.coefficients.items():
            positive = sign(coefficient) > 0
            index = _last(scope, scope.required_span(name)) if positive == largest else scope.required_span(name).offset
            step = builder.extent(coefficient if positive else -coefficient, self.spans.extents)
            total = builder.arith("addi" if positive else "subi", total, builder.arith("muli", index, step))
        return total


@lru_cache(maxsize=256)
def growing(region: Region) -> frozenset[str]:
    """Dims of the outputs along which masks leave more and more to do: the last tiles take longest, and go first."""
    found: dict[str, set[bool]] = {}
    for reduction in region.reductions:
        for name in reduction.attrs["over"]:
            for comparison, truth in masking([reduction], name, region).items():
                for limit in limits(comparison, truth, name):
                    for other, coefficient in limit.end.coefficients.items():
                        found.setdefault(other, set()).add((sign(coefficient) > 0) == limit.upper)
    return frozenset(name for name, grows in found.items() if grows == {True} and name in region.parallel)


def _last(scope: Scope, span: Span) -> Ref:
    return scope.builder.arith("addi", span.offset, scope.builder.index(span.extent - 1))
