"""Exponentials of differences from a running maximum: the correction of online softmax."""

from __future__ import annotations

import math

from cleave.dialects.graph import Value
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
            builder = scope.builder
            before = self.tiles.value(unguarded(w), old)
            moved = builder.compute("sub", before, self.guarded(w, scope))
            if kappa != 1.0:
                moved = builder.compute("mul", moved, builder.fill(kappa, tile_type([], moved.tile.dtype)))
            scope.notes[key] = builder.compute("exp", moved)
        return scope.notes[key]

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
