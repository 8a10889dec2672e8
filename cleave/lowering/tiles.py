"""Tiles: Triton tensors whose dimensions have names, and their alignment by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.errors import CleaveError
from cleave.lowering import tt
from cleave.lowering.scalars import fits


@dataclass(frozen=True)
class Tile:
    """A tensor, or a scalar where there are no names.

    ``dtype`` is the element type in the program. An integer tile whose elements are known to lie within ``bounds``, a
    range of i32, may be held in i32 whatever its dtype.
    """

    value: ir.Value
    names: tuple[str, ...]
    shape: tt.Shape
    dtype: str
    bounds: tuple[int, int] | None = None

    @property
    def element(self) -> str:
        """The element type in registers."""
        return tt.element_name(self.value)

    def extent(self, name: str) -> int:
        return self.shape[self.names.index(name)]


@dataclass(frozen=True)
class Layout:
    """What the type of an op's result says: names, extents and dtype."""

    names: tuple[str, ...]
    shape: tt.Shape
    dtype: str

    @property
    def element(self) -> str:
        return {"tf32": "f32", "index": "i64"}.get(self.dtype, self.dtype)


def layout_of(type_: ir.Type) -> Layout:
    """The layout of an encoded tile type; CleaveError if it is no static tile that Triton can have."""
    tile, extents = cleave.decode(type_)
    shape = tuple(extent for extent in extents if extent is not None)
    if len(shape) != len(extents):
        raise CleaveError(f"the tile {tile} must have static extents")
    for name, extent in zip(tile.names, shape, strict=True):
        tt.check_tile((extent,), f"dimension '{name}' of a tile")
    tt.check_tile(shape, f"the tile {tile}")
    return Layout(tile.names, shape, tile.dtype)


def permuted(tile: Tile, names: Sequence[str]) -> Tile:
    """The same tile with its dimensions in another order."""
    order = [tile.names.index(name) for name in names]
    if order == sorted(order):
        return tile
    shape = tuple(tile.shape[i] for i in order)
    return replace(tile, value=tt.trans(tile.value, order), names=tuple(names), shape=shape)


def aligned(tile: Tile, names: Sequence[str], shape: tt.Shape) -> Tile:
    """The tile with dimensions ``names`` of these extents: transposed, with new dimensions, and broadcast."""
    if not tile.names:
        return replace(tile, value=tt.splat(tile.value, shape), names=tuple(names), shape=shape)
    missing = set(tile.names) - set(names)
    if missing:
        raise CleaveError(f"a tile with dimensions {list(tile.names)} cannot become one with {list(names)}")
    tile = permuted(tile, [name for name in names if name in tile.names])
    value = tile.value
    for axis, name in enumerate(names):
        if name not in tile.names:
            value = tt.expand_dims(value, axis)
    return replace(tile, value=tt.broadcast(value, shape), names=tuple(names), shape=shape)


def common(tiles: Sequence[Tile]) -> tuple[tuple[str, ...], tt.Shape]:
    """The union of the tiles' dimensions, in the order in which they first occur."""
    extents: dict[str, int] = {}
    for tile in tiles:
        for name, extent in zip(tile.names, tile.shape, strict=True):
            extents[name] = max(extent, extents.get(name, 1))
    return tuple(extents), tuple(extents.values())


def of_dtype(tile: Tile) -> ir.Value:
    """The value in its dtype's own register type."""
    return tt.cast(tile.value, {"tf32": "f32", "index": "i64"}.get(tile.dtype, tile.dtype))


def full_width(tile: Tile) -> Tile:
    return replace(tile, value=of_dtype(tile), bounds=None)


def narrow_bounds(bounds: tuple[int, int] | None) -> bool:
    return bounds is not None and fits(*bounds)


Values = Mapping[ir.Value, Tile]
