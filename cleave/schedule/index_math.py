"""The grid: which thread block computes which tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleave.dialects.dims import Size, ceildiv, const, maximum
from cleave.schedule.tile_program import Order, Ref, TileBuilder


@dataclass(frozen=True)
class Grid:
    """Thread blocks in one row (axis x has room for 2³¹), which go through the tiles in an ``Order``.

    ``axes``: (dim, number of tiles, tile extent). ``backwards``: dims of which the last tile comes first.
    """

    axes: tuple[tuple[str, Size, int], ...]
    group: int = 1
    backwards: frozenset[str] = frozenset()

    @property
    def size(self) -> Size:
        total = const(1)
        for _, count, _ in self.axes:
            total = total * count
        return total

    @property
    def order(self) -> Order:
        return Order(tuple((name, count) for name, count, _ in self.axes), self.group)

    def offsets(self, builder: TileBuilder, extents: Mapping[str, int]) -> dict[str, Ref]:
        """The first index of this block's tile along each dim."""
        counts = [self._divisor(count, builder, extents) for _, count, _ in self.axes]
        rest = builder.add("program_id", (), None, axis=0) if self.axes else builder.index(0)
        coordinates: list[Ref] = []
        if self.group > 1 and len(self.axes) > 1:
            coordinates = self._banded(builder, rest, counts)
            rest, counts = coordinates.pop(0), counts[:-2]
        for position in range(len(counts) - 1, -1, -1):
            coordinates.insert(0, builder.arith("remui", rest, counts[position]) if position else rest)
            if position:
                rest = builder.arith("divui", rest, counts[position])
        for position, (name, count, _) in enumerate(self.axes):
            if name in self.backwards:
                last = builder.arith("subi", self._divisor(count, builder, extents), builder.index(1))
                left = builder.arith("subi", last, coordinates[position])
                coordinates[position] = builder.arith("maxsi", left, builder.index(0))
        tiles = zip(self.axes, coordinates, strict=True)
        return {name: builder.arith("muli", at, builder.index(tile)) for (name, _, tile), at in tiles}

    def _divisor(self, count: Size, builder: TileBuilder, extents: Mapping[str, int]) -> Ref:
        tiles = builder.extent(count, extents)
        return builder.index(1) if builder.constant_of(tiles) == 0 else tiles  # No block runs, and 0 is no divisor.

    def _banded(self, builder: TileBuilder, rest: Ref, counts: Sequence[Ref]) -> list[Ref]:
        """What the axes before the last two share out, and the coordinates on these."""
        rows, columns = counts[-2:]
        group, one = builder.index(self.group), builder.index(1)
        plane = builder.arith("muli", rows, columns)
        within = builder.arith("remui", rest, plane) if len(counts) > 2 else rest
        outer = builder.arith("divui", rest, plane) if len(counts) > 2 else builder.index(0)
        band = builder.arith("muli", group, columns)
        last = builder.arith("subi", rows, one)
        # Here as elsewhere the minima and maxima change nothing; what is known of an index is read from them.
        first = builder.arith("minsi", builder.arith("muli", builder.arith("divui", within, band), group), last)
        height = builder.arith("maxsi", builder.arith("minsi", builder.arith("subi", rows, first), group), one)
        at = builder.arith("remui", within, band)
        row = builder.arith("minsi", builder.arith("addi", first, builder.arith("remui", at, height)), last)
        column = builder.arith("minsi", builder.arith("divui", at, height), builder.arith("subi", columns, one))
        return [outer, row, column]


def grid_of(
    tiles: Sequence[tuple[str, Size, int]],
    group: int = 1,
    backwards: frozenset[str] = frozenset(),
    occupied: frozenset[str] = frozenset(),
) -> Grid:
    """The grid over dims of these (name, size, tile extent); along ``occupied`` there is a tile even of no elements."""
    counts = [ceildiv(size, const(extent)) for _, size, extent in tiles]
    counts = [
        maximum(count, const(1)) if name in occupied else count
        for (name, _, _), count in zip(tiles, counts, strict=True)
    ]
    axes = tuple((name, count, extent) for (name, _, extent), count in zip(tiles, counts, strict=True))
    return Grid(axes, group, backwards)
