"""The grid: which thread block computes which tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleave.dialects.dims import Size, ceildiv, const
from cleave.schedule.tile_program import Ref, TileBuilder


@dataclass(frozen=True)
class Grid:
    """Thread blocks in one row (axis x has room for 2³¹); the last of ``axes`` varies fastest.

    ``axes``: (dim, number of tiles, tile extent).
    """

    axes: tuple[tuple[str, Size, int], ...]

    @property
    def size(self) -> Size:
        total = const(1)
        for _, count, _ in self.axes:
            total = total * count
        return total

    def offsets(self, builder: TileBuilder, extents: Mapping[str, int]) -> dict[str, Ref]:
        """The first index of this block's tile along each dim."""
        offsets: dict[str, Ref] = {}
        rest = builder.add("program_id", (), None, axis=0) if self.axes else builder.index(0)
        for position in range(len(self.axes) - 1, -1, -1):
            name, count, tile = self.axes[position]
            tiles = builder.extent(count, extents)
            if builder.constant_of(tiles) == 0:
                tiles = builder.index(1)  # No block runs, and 0 is no divisor.
            coordinate = builder.arith("remui", rest, tiles) if position else rest
            if position:
                rest = builder.arith("divui", rest, tiles)
            offsets[name] = builder.arith("muli", coordinate, builder.index(tile))
        return offsets


def grid_of(tiles: Sequence[tuple[str, Size, int]]) -> Grid:
    """The grid over dims of these (name, size, tile extent)."""
    return Grid(tuple((name, ceildiv(size, const(extent)), extent) for name, size, extent in tiles))
