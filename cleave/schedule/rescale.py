"""Exponentials of differences from a running maximum: the correction of online softmax."""

from __future__ import annotations

import math

from cleave.dialects.graph import Value
from cleave.schedule import anchors
from cleave.schedule.anchors import Anchor, Anchored
from cleave.schedule.recentre import times
from cleave.schedule.scope import Scope, Tiles
from cleave.schedule.separability import unguarded
from cleave.schedule.tile_program import Ref, tile_type


class Rescaling:
    """The factors by which the accumulators of one kernel follow running maxima."""

    def __init__(self, tiles: Tiles) -> None:
        self.tiles = tiles

    def factor(self, w: Value, kappa: float, old: Scope, scope: Scope) -> Ref:
        """exp(κ·(w before − w now)), w now being 0 while it is −inf (nothing has been summed then)."""
        key = ("exp", w, kappa)
        if key not in scope.notes:
            scope.notes[key] = self._factor(w, kappa, old, scope)
        return scope.notes[key]

    def _factor(self, w: Value, kappa: float, old: Scope, scope: Scope) -> Ref:
        builder = scope.builder
        of = next((each for each in scope.anchored.values() if each.w is w), None)
        if of:
            return anchors.follows(builder, old.notes[_key("shift", of)], self.anchor(of, scope), of)
        moved = builder.compute("sub", self.tiles.value(unguarded(w), old), self.guarded(w, scope))
        if kappa != 1.0:
            moved = builder.compute("mul", moved, builder.fill(kappa, tile_type([], moved.tile.dtype)))
        return builder.compute("exp", moved)

    def anchor(self, of: Anchored, scope: Scope) -> Anchor:
        """Where this iteration's exponentials are taken from; ``scope`` is that of the loop's body."""
        keys = [_key(part, of) for part in ("scale", "shift")]
        if keys[0] not in scope.notes:
            found = anchors.anchor(scope.builder, self.tiles.value(unguarded(of.w), scope), of)
            scope.notes |= dict(zip(keys, (found.scale, found.shift), strict=True))
        return Anchor(*(scope.notes[key] for key in keys))

    def keep(self, of: Anchored, shift: Ref, old: Scope) -> None:
        """Let ``old`` have the anchor that sums have been relative to."""
        old.notes[_key("shift", of)] = shift

    def settled(self, tile: Ref, of: Anchored, scope: Scope) -> Ref:
        """The sum behind the loop, relative to the maximum and not to its anchor."""
        key = _key("settles", of)
        if key not in scope.notes:
            at = anchors.anchor(scope.builder, self.tiles.value(unguarded(of.w), scope), of)
            scope.notes[key] = anchors.settles(scope.builder, self.tiles.value(of.w, scope), at)
        return times(scope.builder, tile, scope.notes[key])

    def guarded(self, w: Value, scope: Scope) -> Ref:
        """w with 0 in place of −inf; everything in this scope uses it from here on."""
        if w not in scope.guarded:
            tile = self.tiles.value(w, scope)
            scope.tiles[w] = self._where_empty(tile, 0.0, tile, scope)
            scope.guarded.add(w)
        return scope.tiles[w]

    def as_in_source(self, tile: Ref, w: Value, scope: Scope) -> Ref:
        """NaN where w has stayed −inf, as exp(−inf − (−inf)) in the source (a maximum is never over an empty dim)."""
        return self._where_empty(self.tiles.value(w, scope), math.nan, tile, scope)

    def _where_empty(self, w: Ref, then: float, otherwise: Ref, scope: Scope) -> Ref:
        builder = scope.builder
        empty = builder.compute("cmp", w, builder.fill(-math.inf, tile_type([], w.tile.dtype)), predicate="eq")
        replacement = builder.fill(then, tile_type([], otherwise.tile.dtype))
        return builder.compute("select", empty, replacement, otherwise, order=otherwise.names)


def _key(part: str, of: Anchored) -> tuple[object, ...]:
    return (part, of.w, of.factor)
