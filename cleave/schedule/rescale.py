"""Cascades in a loop: what has been summed so far follows the running values that its body uses (online softmax)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cleave.dialects.graph import Value
from cleave.schedule.grouping import Grouping
from cleave.schedule.scope import Scope, Tiles
from cleave.schedule.separability import unguarded
from cleave.schedule.tile_program import Ref, tile_type


class Rescaling:
    """The corrections of the accumulators of one kernel."""

    def __init__(self, tiles: Tiles, grouping: Grouping) -> None:
        self.tiles, self.grouping = tiles, grouping

    def rescaled(self, member: Value, accumulated: Ref, group: Sequence[Value], old: Scope, scope: Scope) -> Ref:
        """The accumulator, corrected for the movement of the running values that its body uses."""
        for w, kappa in self.grouping.factors(member, group).items():
            factor = self._factor(w, kappa, old, scope)
            factor = scope.builder.cast(factor, accumulated.tile.dtype)
            accumulated = scope.builder.compute("mul", accumulated, factor, order=accumulated.names)
        return accumulated

    def as_in_source(self, member: Value, group: Sequence[Value], scope: Scope) -> Ref:
        """NaN where w has stayed −inf, as exp(−inf − (−inf)) in the source (a maximum is never over an empty dim)."""
        for w in self.grouping.factors(member, group):
            scope.tiles[member] = self._where_empty(self.tiles.value(w, scope), math.nan, scope.tiles[member], scope)
        return scope.tiles[member]

    def _factor(self, w: Value, kappa: float, old: Scope, scope: Scope) -> Ref:
        """exp(κ·(w before − w now)), w now being 0 while it is −inf (nothing has been summed then)."""
        key = Value("exp", (w,), w.type, {"kappa": kappa})
        known = next(
            (k for k in scope.tiles if k.op == "exp" and k.attrs.get("kappa") == kappa and k.operands == (w,)), None
        )
        if known:
            return scope.tiles[known]
        builder = scope.builder
        before = self.tiles.value(unguarded(w), old)
        now = self._guarded(w, scope)
        moved = builder.compute("sub", before, now)
        if kappa != 1.0:
            moved = builder.compute("mul", moved, builder.fill(kappa, tile_type([], moved.tile.dtype)))
        scope.tiles[key] = builder.compute("exp", moved)
        return scope.tiles[key]

    def _guarded(self, w: Value, scope: Scope) -> Ref:
        """w with 0 in place of −inf; everything in this scope uses it from here on."""
        if w not in scope.guarded:
            tile = self.tiles.value(w, scope)
            scope.tiles[w] = self._where_empty(tile, 0.0, tile, scope)
            scope.guarded.add(w)
        return scope.tiles[w]

    def _where_empty(self, w: Ref, then: float, otherwise: Ref, scope: Scope) -> Ref:
        builder = scope.builder
        empty = builder.compute("cmp", w, builder.fill(-math.inf, tile_type([], w.tile.dtype)), predicate="eq")
        replacement = builder.fill(then, tile_type([], otherwise.tile.dtype))
        return builder.compute("select", empty, replacement, otherwise, order=otherwise.names)
