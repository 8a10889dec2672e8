"""How much of what thread blocks read comes from DRAM: which tiles the blocks share that run at about the same time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

GROUPS = (4, 8, 16, 32)
"""Heights of bands, in tiles."""

WRITTEN = 2
"""Part of the cache that holds what is to be read a second time: what is written meanwhile takes as much."""


@dataclass(frozen=True)
class Stream:
    """What each block reads of one tensor of ``size`` bytes: ``bytes``, the same for blocks alike along ``axes``.

    ``axes`` are positions in the grid's order. ``tensor``: which one it is; a block may read it several times.
    """

    bytes: float
    axes: frozenset[int]
    size: int
    tensor: int


@dataclass(frozen=True)
class Walk:
    """The order of a grid in numbers: tiles along each axis, the last one fastest, in bands (see ``Order``)."""

    tiles: tuple[int, ...]
    group: int = 1

    @property
    def blocks(self) -> int:
        return math.prod(self.tiles)

    def in_row(self, running: int) -> int:
        """How many tiles one after the other a block has of one row, along the last axis, where ``running`` blocks go
        through the grid in rounds; 1 where bands do not divide these."""
        if len(self.tiles) < 2 or not self.blocks:
            return 1
        *_, rows, columns = self.tiles
        band = max(1, min(self.group, rows))
        rounds = math.ceil(self.blocks / running)
        return max(1, min(band * columns // running, rounds)) if running % band == 0 else 1

    def spans(self, window: int) -> tuple[int, ...]:
        """About how many tiles along each axis so many blocks in a row have."""
        tiles, group = list(self.tiles), 1
        if len(tiles) > 1 and self.group > 1:
            # A band as an axis of its own: bands, columns, then the rows of a band.
            group = min(self.group, tiles[-2])
            tiles[-2:] = [math.ceil(tiles[-2] / group), tiles[-1], group]
        found: list[int] = []
        for position, extent in enumerate(tiles):
            inner = math.prod(tiles[position + 1 :])
            found.append(min(extent, math.ceil(window / max(1, inner))))
        if group > 1:
            bands, columns, rows = found[-3:]
            found[-3:] = [min(bands * rows, self.tiles[-2]), columns]
        return tuple(found)


def blocks_in_bands(tiles: int, running: int) -> int:
    """How many blocks go through the tiles where they keep what tiles of a row have in common: so many that all bands
    divide them, unless it would take one round more."""
    fewer = running - running % GROUPS[-1]
    same = fewer and math.ceil(tiles / fewer) == math.ceil(tiles / max(1, running))
    return fewer if same else running


@lru_cache(maxsize=1024)
def dram_reads(walk: Walk, streams: tuple[Stream, ...], running: int, cache: int) -> float:
    """Bytes read from DRAM when ``running`` blocks at a time go through the grid, behind a cache of ``cache`` bytes.

    Blocks that run together read each tile once; those after them find it in the cache if all that was read by then
    fits. So does a block what it reads a second time.
    """
    window = max(1, min(running, walk.blocks))
    once = tuple({(stream.tensor, stream.axes): stream for stream in sorted(streams, key=lambda s: s.bytes)}.values())
    if len(once) < len(streams) and _distinct(walk, once, window) <= cache / WRITTEN:
        streams = once
    while window < walk.blocks and _distinct(walk, streams, 2 * window) <= cache:
        window *= 2
    return math.ceil(walk.blocks / window) * _distinct(walk, streams, window) if walk.blocks else 0.0


def best_group(walk: Walk, streams: tuple[Stream, ...], running: int, cache: int) -> int:
    """The height of bands that reads least from DRAM; 1 where bands are no better."""

    def reads(group: int) -> float:
        return dram_reads(replace(walk, group=group), streams, running, cache)

    bands = [group for group in GROUPS if len(walk.tiles) > 1 and group <= max(walk.tiles[-2], 1)]
    return min((1, *bands), key=lambda group: (reads(group), group))


def _distinct(walk: Walk, streams: Sequence[Stream], window: int) -> float:
    spans = walk.spans(window)
    each = (min(stream.bytes * math.prod(spans[axis] for axis in stream.axes), stream.size) for stream in streams)
    return sum(each)
