"""Loads at positions that are computed in the kernel: gathers, and what concat and merge become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import TensorType
from cleave.schedule.region import Region
from cleave.schedule.scope import Scope, Tiles, masked, tile_type_of
from cleave.schedule.tile_program import Ref


def source_of(gather: Value, region: Region) -> tuple[Value, list[Value]]:
    """The tensor in memory that is read, and the gathers along its dims, innermost first."""
    chain: list[Value] = []
    while gather not in region.memory:
        chain.append(gather)
        gather = gather.operands[0]
    return gather, chain[::-1]


class Gathers:
    """The gathers of one kernel; ``extents`` has the symbols whose sizes are static."""

    def __init__(self, tiles: Tiles, extents: Mapping[str, int]) -> None:
        self.tiles, self.extents = tiles, extents

    def load(self, value: Value, arguments: Mapping[Value, Ref], scope: Scope) -> Ref:
        """The tile of a gather; where an index is outside of the dim that it picks from, 0."""
        builder = scope.builder
        source, chain = source_of(value, self.tiles.region)
        tiles = _of_one_type([self._indices(gather, scope) for gather in chain], scope)
        indices = dict(zip((gather.attrs["dim"] for gather in chain), tiles, strict=True))
        spans = {name: scope.required_span(name) for name in source.names if name not in indices}
        offsets = [spans[name].offset if name in spans else builder.index(0) for name in source.names]
        bounds = [
            spans[dim.name].bound if dim.name in spans else builder.extent(dim.size, self.extents)
            for dim in source.dims
        ]
        exact = tuple(name for name, span in spans.items() if span.exact)
        rank = len(source.dims)
        attrs = {
            "dims": tuple(indices),
            "fill": 0,
            "segments": (1, len(indices), rank, rank),
            "varying": value.names,
            "contiguous": all("bounded" in gather.attrs for gather in chain),
            **({"in_bounds": exact} if exact else {}),
        }
        operands = [arguments[source], *indices.values(), *offsets, *bounds]
        return builder.add("gather_load", operands, tile_type_of(value, scope), value.location, **attrs)

    def _indices(self, gather: Value, scope: Scope) -> Ref:
        """The tile of indices, with −1, which picks nothing, where they do not exist."""
        indices = gather.operands[1]
        tile = self.tiles.value(indices, scope)
        for name in tile.names if "bounded" not in gather.attrs else ():
            if not scope.required_span(name).exact:
                tile = masked(tile, name, -1, scope)
        return tile


def _of_one_type(tiles: Sequence[Ref], scope: Scope) -> list[Ref]:
    """The tiles with the dims of all of them, in i64: IRDL wants a group of operands to have one type."""
    if len({tile.type for tile in tiles}) == 1:
        return list(tiles)
    dims = {dim.name: dim for tile in tiles for dim in tile.tile.dims}
    zero = scope.builder.fill(0, TensorType(tuple(dims.values()), "i64"))
    wide = [scope.builder.cast(tile, "i64") for tile in tiles]
    return [tile if tile.names == tuple(dims) else scope.builder.compute("add", zero, tile) for tile in wide]
