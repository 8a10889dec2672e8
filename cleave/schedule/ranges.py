"""Which iterations a loop makes, and which of them need no masks (index-set splitting).

Tiles that a mask makes neutral throughout are left out, as in causal attention and past lengths that are in memory. At
least one tile stays: a row that is masked throughout has the result that the source says, NaN for a softmax.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from typing import Literal

from cleave.dialects.dims import Size
from cleave.dialects.graph import Value
from cleave.dialects.ops import REDUCTIONS
from cleave.schedule.affine import Affine, sign
from cleave.schedule.conditions import Condition, Limit, condition
from cleave.schedule.masked_tiles import masking
from cleave.schedule.region import Region
from cleave.schedule.scope import Scope, Span, Tiles
from cleave.schedule.spans import Spans
from cleave.schedule.tile_program import Ref
from cleave.schedule.tile_sizes import value_of

SAMPLES = 8
"""Blocks along a dim of which the mean length of a loop is taken."""
FAR = 2**61
"""Beyond all positions along dims, and so near to 0 that sums with them fit in 64 bits."""


@dataclass(frozen=True)
class Range:
    """Elements along a dim."""

    start: Ref
    stop: Ref


@dataclass(frozen=True)
class Trips:
    """How many iterations a loop over dim ``name`` makes, on the average over thread blocks.

    ``limits``: of them, those by data are not considered; ``sizes``: of all dims. ``rest``: those that are made and not
    full.
    """

    name: str
    sizes: Mapping[str, Size]
    limits: tuple[Limit, ...] = ()
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
        """The mean over thread blocks: those that have nothing left count as nothing, not as less than that."""
        whole = value_of(self.sizes[self.name], values)
        pairs = [(limit.upper, [end for end in limit.ends if not end.data]) for limit in self.limits]
        limits = [
            (upper, [_line(end, tiles, values, largest=upper is widest) for end in ends])
            for upper, ends in pairs
            if ends
        ]
        names = sorted({name for _, ends in limits for _, coefficients in ends for name in coefficients})
        places = (_places(value_of(self.sizes[name], values), tiles[name]) for name in names)
        blocks = [dict(zip(names, point, strict=True)) for point in itertools.product(*places)]
        return round(sum(_left(whole, limits, block) for block in blocks) / len(blocks))

    def _lines(self, limit: Limit, tiles: Mapping[str, int], values: Mapping[str, int], *, widest: bool) -> list[_Line]:
        largest = limit.upper is widest
        return [_line(end, tiles, values, largest=largest) for end in limit.ends if not end.data]


_Line = tuple[int, Mapping[str, int]]
"""A constant, and coefficients of the first positions of a block along dims."""


def _line(end: Affine, tiles: Mapping[str, int], values: Mapping[str, int], *, largest: bool) -> _Line:
    """The largest or smallest value of a form over a block's tile."""
    coefficients = {name: value_of(coefficient, values) for name, coefficient in end.coefficients.items()}
    further = sum(c * (tiles[name] - 1) for name, c in coefficients.items() if (c > 0) == largest)
    return value_of(end.constant, values) + further, coefficients


def _left(whole: int, limits: Sequence[tuple[bool, Sequence[_Line]]], block: Mapping[str, int]) -> int:
    """Of ``whole`` elements those that all limits leave to a block."""
    start, stop = 0, whole
    for upper, lines in limits:
        ends = [constant + sum(c * block[name] for name, c in coefficients.items()) for constant, coefficients in lines]
        if upper:
            stop = min(stop, max(ends) + 1)
        else:
            start = max(start, min(ends))
    return max(stop - start, 0)


def _places(size: int, tile: int) -> list[int]:
    """The first positions of up to ``SAMPLES`` tiles, evenly spread over a dim."""
    blocks = max(-(-size // tile), 1)
    taken = min(blocks, SAMPLES)
    return [(2 * number + 1) * blocks // (2 * taken) * tile for number in range(taken)]


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

    def __init__(self, tiles: Tiles, spans: Spans) -> None:
        self.tiles, self.region, self.spans = tiles, tiles.region, spans

    def of(self, group: Sequence[Value], name: str, tile: int, scope: Scope) -> Iterations:
        """The iterations of a loop over dim ``name`` in ``scope`` that computes the reductions of ``group``."""
        known = self._conditions(group, name, scope)
        outcomes = {value: truth for (value, truth), each in known.items() if each.exact}
        found = [limit for each in known.values() for limit in each.limits]
        exact = [limit for each in known.values() if each.exact for limit in each.limits]
        made, full = self._made(found, name, tile, scope), self._full(exact, name, tile, scope)
        before = any(not limit.upper for limit in found)
        if before:
            full = replace(full, start=scope.builder.arith("maxsi", full.start, made.start))
        if len(exact) < len(found):
            full = replace(full, stop=self._down(scope.builder.arith("minsi", full.stop, made.stop), tile, scope))
        stops = [scope.builder.constant_of(each) for each in (full.stop, made.stop)]
        all_full = not outcomes and (tile == 1 or (stops[0] is not None and stops[0] == stops[1]))
        trips = Trips(name, self.spans.sizes, tuple(found))
        computed = bool(found) and stops[0] is not None
        return Iterations(made, full, trips, outcomes, before, all_full, stops[0] == 0, computed)

    def _conditions(self, group: Sequence[Value], name: str, scope: Scope) -> dict[tuple[Value, bool], Condition]:
        """For each condition that masks, what it says of this dim where it does not mask."""
        found: dict[tuple[Value, bool], Condition] = {}
        for value, truth in masking(group, name, self.region).items():
            said = condition(value, truth, name)
            if said and all(self._is_known(limit, scope) for limit in said.limits):
                found[value, truth] = said
        return found

    def _is_known(self, limit: Limit, scope: Scope) -> bool:
        """Whether its ends can be computed ahead of the loop, from positions and from what is in memory."""
        data = {value for end in limit.ends for value in end.data}
        sources = [{value, *self.region.upstream[value]} for value in data]
        available = all(scope.span(name) for name in limit.names)
        return available and all(
            each & self.region.memory and not any(value.op in REDUCTIONS for value in each) for each in sources
        )

    def _made(self, limits: Sequence[Limit], name: str, tile: int, scope: Scope) -> Range:
        builder, bound = scope.builder, self.spans.bound(scope, name)
        start, stop = builder.index(0), bound
        lower, upper = ([limit for limit in limits if limit.upper is side] for side in (False, True))
        for limit in lower:
            start = builder.arith("maxsi", start, self._end(limit, scope, widest=True))
        if lower:
            last = builder.arith("subi", builder.arith("maxsi", bound, builder.index(1)), builder.index(1))
            start = self._down(builder.arith("minsi", start, last), tile, scope)
        for limit in upper:
            end = builder.arith("addi", self._end(limit, scope, widest=True), builder.index(1))
            end = builder.arith("maxsi", end, builder.arith("addi", start, builder.index(1)))
            stop = builder.arith("minsi", stop, end)
        return Range(start, stop)

    def _full(self, limits: Sequence[Limit], name: str, tile: int, scope: Scope) -> Range:
        builder, zero = scope.builder, scope.builder.index(0)
        start, stop = zero, self.spans.bound(scope, name)
        lower, upper = ([limit for limit in limits if limit.upper is side] for side in (False, True))
        for limit in lower:
            start = builder.arith("maxsi", start, self._end(limit, scope, widest=False))
        for limit in upper:
            end = builder.arith("addi", self._end(limit, scope, widest=False), builder.index(1))
            stop = builder.arith("minsi", stop, builder.arith("maxsi", end, zero))
        if lower:
            start = self._down(builder.arith("addi", start, builder.index(tile - 1)), tile, scope)
        return Range(start, self._down(stop, tile, scope))

    def _down(self, index: Ref, tile: int, scope: Scope) -> Ref:
        """The last multiple of ``tile`` that is not above an index ≥ 0."""
        size = scope.builder.index(tile)
        return scope.builder.arith("muli", scope.builder.arith("divui", index, size), size)

    def _end(self, limit: Limit, scope: Scope, *, widest: bool) -> Ref:
        """Where the limit is over the tiles in hand: for some of their elements (``widest``), or for all of them."""
        ends = [self._extreme(end, scope, largest=limit.upper is widest) for end in limit.ends]
        return reduce(partial(scope.builder.arith, "maxsi" if limit.upper else "minsi"), ends)

    def _extreme(self, form: Affine, scope: Scope, *, largest: bool) -> Ref:
        """The largest or smallest value of a form over the tiles in hand."""
        builder = scope.builder
        total = builder.extent(form.constant, self.spans.extents)
        for term, coefficient in (*form.coefficients.items(), *form.data.items()):
            positive = sign(coefficient) > 0
            index = self._extreme_of(term, scope, largest=positive is largest)
            step = builder.extent(coefficient if positive else -coefficient, self.spans.extents)
            total = builder.arith("addi" if positive else "subi", total, builder.arith("muli", index, step))
        return total

    def _extreme_of(self, term: str | Value, scope: Scope, *, largest: bool) -> Ref:
        """The largest or smallest position along a dim, or element; what a tile has past a dim's end only makes that
        more extreme."""
        if isinstance(term, str):
            span = scope.required_span(term)
            return _last(scope, span) if largest else span.offset
        builder, tile = scope.builder, self.tiles.value(term, scope)
        tile = builder.cast(tile, "i64") if term.dtype == "index" else tile
        if tile.names:
            tile = builder.compute("reduce", tile, kind="max" if largest else "min", over=tile.names)
        index = builder.add("scalar", [tile], None)
        return builder.arith("maxsi", builder.arith("minsi", index, builder.index(FAR)), builder.index(-FAR))


@lru_cache(maxsize=256)
def growing(region: Region) -> frozenset[str]:
    """Dims of the outputs along which masks leave more and more to do: the last tiles take longest, and go first."""
    found: dict[str, set[bool]] = {}
    for summed, name in [(reduction, name) for reduction in region.reductions for name in reduction.attrs["over"]]:
        conditions = (condition(*mask, name) for mask in masking([summed], name, region).items())
        for other, grows in (grown for said in conditions if said for grown in said.growth):
            found.setdefault(other, set()).add(grows)
    return frozenset(name for name, grows in found.items() if grows == {True} and name in region.parallel)


def _last(scope: Scope, span: Span) -> Ref:
    return scope.builder.arith("addi", span.offset, scope.builder.index(span.extent - 1))
