"""Blocks that go through several tiles of an output dim, one after the other (thread coarsening).

    for m in [offset, min(offset + count*tile, bound)) step tile:
        store(x[m] @ w)                 # w is loaded, and cast, ahead of the loop

A product that is summed over few elements is one tile deep: without a loop nothing of a block overlaps with anything,
and it loads its other operand for a single tile. In a loop over rows loads of the next tiles are in flight while one
is multiplied and stored, and what has not the dim is there once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cleave.dialects.dims import Size
from cleave.schedule.region import Region
from cleave.schedule.tile_sizes import value_of

COUNTS = (2, 4, 8, 16, 32)
"""Tiles of a block."""
MANY = 1024
"""Elements of a dim from which a block may go through several tiles of it."""
SHORT = 128
"""Elements of a dim that is summed over and held at once meanwhile: of more its own loop has iterations to overlap."""
SPREAD, ENOUGH = 4, 0.9
"""By how much sizes differ that are scheduled alike (``cleave/buckets.py``), and blocks for each multiprocessor that
must be left at the least of them."""


@dataclass(frozen=True)
class BlockTrips:
    """How many of all tiles of dim ``name`` a block goes through, on the average, where it takes ``count`` of them."""

    name: str
    size: Size
    count_of_block: int

    def count(self, tiles: Mapping[str, int], values: Mapping[str, int]) -> int:
        """The number where tiles have these extents and symbols these values."""
        all_ = -(-value_of(self.size, values) // tiles[self.name])
        blocks = -(-all_ // self.count_of_block)
        return -(-all_ // max(blocks, 1))


def coarsenable(region: Region, sizes: Mapping[str, int]) -> dict[str, frozenset[str]]:
    """The output dims of which a block may go through several tiles, each with the dims that are held whole for that:
    what is summed over for each of its elements. One side of a contraction must have the dim and the other one not."""
    reduced = {name for value in region.reductions for name in value.attrs["over"]}
    split = region.parts.keys() | {part.outer for part in region.parts.values()}  # a block has tiles of one part
    found: dict[str, frozenset[str]] = {}
    for name in region.parallel:
        sums = [value for value in region.reductions if name in value.names]
        summed = frozenset(over for value in sums for over in value.attrs["over"])
        one_sided = any(
            value.op == "contract" and sum(name in operand.names for operand in value.operands) == 1 for value in sums
        )
        free = name not in split | reduced and sizes[name] >= MANY
        if free and one_sided and all(_is_short(over, region) for over in summed):
            found[name] = summed
    return found


def leaves_enough(region: Region, coarsened: Iterable[str], blocks: float, sms: int) -> bool:
    """Whether so many ``blocks``, at the sizes of a schedule, are enough: how many tiles a block takes is compiled in,
    and what is scheduled for a dynamic size is called with a fourth of it, too."""
    dynamic = any(region.static_size(name) is None for name in coarsened)
    return not dynamic or blocks >= SPREAD * ENOUGH * sms


def _is_short(name: str, region: Region) -> bool:
    return 0 < (region.static_size(name) or 0) <= SHORT
