"""Cascades in a loop: what has been summed so far follows the running values that its body uses.

While the loop runs, a body is computed with *centres* in place of the final values that it uses: estimates of them from
what has been seen. Whenever these move, the accumulators are corrected; at the end they are at the final values. A sum
is estimated as if the elements to come were like those seen, which makes a mean the mean of what has been seen; any
centre is right, but differences from a good one do not cancel. docs/cascades.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import TensorType, is_float
from cleave.schedule.anchors import Anchored, anchored
from cleave.schedule.derivatives import State
from cleave.schedule.grouping import Grouping
from cleave.schedule.recentre import Moved, times
from cleave.schedule.rescale import Rescaling
from cleave.schedule.scope import Scope, Tiles, tile_type_of
from cleave.schedule.separability import is_sum
from cleave.schedule.tile_program import Ref, TileBuilder, tile_type


@dataclass(frozen=True)
class Carried:
    """What a loop carries for a group: reductions, the centres at which they are kept, and anchors.

    ``bounds``: the running maxima that exponents are taken from. ``anchored``: those whose anchors it carries.
    """

    reductions: tuple[Value, ...]
    centres: tuple[Value, ...]
    bounds: frozenset[Value]
    anchored: tuple[Anchored, ...]

    def unpack(self, refs: Sequence[Ref]) -> tuple[dict[Value, Ref], dict[Value, Ref]]:
        """The reductions and the centres."""
        count, end = len(self.reductions), len(self.reductions) + len(self.centres)
        return (
            dict(zip(self.reductions, refs[:count], strict=True)),
            dict(zip(self.centres, refs[count:end], strict=True)),
        )

    def anchors(self, refs: Sequence[Ref]) -> Sequence[tuple[Anchored, Ref]]:
        return list(zip(self.anchored, refs[len(self.reductions) + len(self.centres) :], strict=True))


class Cascades:
    """The corrections of the accumulators of one kernel."""

    def __init__(self, tiles: Tiles, grouping: Grouping) -> None:
        self.tiles, self.grouping = tiles, grouping
        self.rescaling = Rescaling(tiles)
        self._anchored: dict[tuple[Value, ...], Mapping[Value, Anchored]] = {}

    def carried(self, group: Sequence[Value]) -> Carried:
        states = [self.grouping.state(member, group) for member in group]
        reductions = tuple(reduction for state in states for reduction in state.reductions)
        centres = tuple(dict.fromkeys(a for state in states for a in state.centres))
        bounds = frozenset(w for state in states for w in state.form.exponents)
        return Carried(reductions, centres, bounds, tuple({of.w: of for of in self.anchored(group).values()}.values()))

    def anchored(self, group: Sequence[Value]) -> Mapping[Value, Anchored]:
        """The exponentials of a group's loop that are taken from anchors."""
        key = tuple(group)
        if key not in self._anchored:
            states = [self.grouping.state(member, group) for member in group] if self.grouping.fusion.anchors else []
            self._anchored[key] = anchored(states, self.tiles.region, self.grouping.tiling.looped(group[0]))
        return self._anchored[key]

    def initial(self, centre: Value, group: Sequence[Value], scope: Scope) -> Ref:
        """Where a centre is before anything has been seen: a factor at 1."""
        factor = any(centre in self.grouping.state(member, group).form.powers for member in group)
        return scope.builder.fill(1.0 if factor else 0.0, tile_type_of(centre, scope))

    def corrected(
        self, state: State, carried: Carried, accumulators: Sequence[Ref], old: Scope, scope: Scope
    ) -> dict[Value, Ref]:
        """The accumulators of a state at this iteration's centres; ``old`` has the running values before it."""
        sums, centres = carried.unpack(accumulators)
        new = {a: self._centre(a, a in state.form.powers, carried, scope) for a in state.centres}
        found = Moved(state, scope.builder, centres, new).all(sums)
        for w, kappa in state.form.exponents.items():
            factor = self.rescaling.factor(w, kappa, old, scope)
            found = {reduction: times(scope.builder, tile, factor) for reduction, tile in found.items()}
        return found

    def centre(self, a: Value, scope: Scope) -> Ref:
        """Where a centre is in this iteration, as the loop carries it."""
        wanted, builder = tile_type_of(a, scope), scope.builder
        tile = scope.tiles[a]
        return tile if tile.names == wanted.names else builder.compute("add", builder.fill(0.0, wanted), tile)

    def finished(
        self, state: State, group: Sequence[Value], results: Sequence[Ref], count: Ref | None, scope: Scope
    ) -> Ref:
        """The reduction after the loop, which is over ``count`` elements (None if there are no centres)."""
        carried = self.carried(group)
        sums, centres = carried.unpack(results)
        tile = sums[state.reduction]
        if count and state.centres:
            tile = self._at_the_end(state, sums, centres, count, scope)
        for of in (each for each in carried.anchored if each.w in state.form.exponents):
            tile = self.rescaling.settled(tile, of, scope)
        tile = scope.builder.cast(tile, state.reduction.dtype)
        for w in state.form.exponents:
            tile = self.rescaling.as_in_source(tile, w, scope)
        return tile

    def _at_the_end(
        self, state: State, sums: Mapping[Value, Ref], centres: Mapping[Value, Ref], count: Ref, scope: Scope
    ) -> Ref:
        """The reduction at the final values; the last centres differ from them only where these were guarded."""
        builder, tile = scope.builder, sums[state.reduction]
        final = {a: self.tiles.value(a, scope) for a in state.centres}
        there = [builder.compute("cmp", final[a], centres[a], predicate="eq") for a in final]
        good = there[0] if len(there) == 1 else reduce(partial(builder.compute, "min"), there)
        if not builder.constant_of(count):
            seen = builder.add("splat", [count], TensorType((), "i64"))
            none = builder.compute("cmp", seen, builder.fill(0, tile_type([], "i64")), predicate="le")
            good = builder.compute("max", good, none)
        return builder.compute("select", good, tile, Moved(state, builder, centres, final).main(sums), order=tile.names)

    def estimate(self, reduction: Value, running: Ref, loop: str, scope: Scope) -> Ref:
        """A running sum as if what is to come were like what has been seen; other reductions as they are."""
        builder = scope.builder
        if not is_sum(reduction) or not is_float(reduction.dtype):
            return builder.cast(running, reduction.dtype)
        key = ("share", loop, running.tile.dtype)
        if key not in scope.notes:
            scope.notes[key] = self._inverse_share(loop, running.tile.dtype, scope)
        return builder.cast(times(builder, running, scope.notes[key]), reduction.dtype)

    def _inverse_share(self, loop: str, dtype: str, scope: Scope) -> Ref:
        """The number of elements of a loop by the number seen after this iteration; 1 in the last one."""
        span, builder = scope.required_span(loop), scope.builder
        seen = builder.arith("minui", builder.arith("addi", span.offset, builder.index(span.extent)), span.bound)
        numbers = [builder.add("splat", [index], TensorType((), "i64")) for index in (span.bound, seen)]
        return builder.compute("div", *(builder.cast(number, dtype) for number in numbers))

    def _centre(self, a: Value, factor: bool, carried: Carried, scope: Scope) -> Ref:
        """Where this iteration's bodies are computed; everything in this scope uses it from here on."""
        if a in carried.bounds:
            return self.rescaling.guarded(a, scope)
        if a not in scope.guarded:
            scope.guarded.add(a)
            scope.tiles[a] = _guarded(scope.builder, self.tiles.value(a, scope), nonzero=factor)
        return scope.tiles[a]


def _guarded(builder: TileBuilder, tile: Ref, *, nonzero: bool) -> Ref:
    """The tile where it is finite, 0 elsewhere; ``nonzero``: where it is finite and not zero, 1 elsewhere."""
    scalar = tile_type([], tile.tile.dtype)
    size = builder.compute("abs", tile)
    good = builder.compute("cmp", size, builder.fill(math.inf, scalar), predicate="lt")
    if nonzero:
        good = builder.compute("min", good, builder.compute("cmp", size, builder.fill(0.0, scalar), predicate="gt"))
    return builder.compute("select", good, tile, builder.fill(1.0 if nonzero else 0.0, scalar), order=tile.names)
