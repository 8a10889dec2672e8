"""How evenly blocks share tiles that take longer and longer along a dim, as queries under a causal mask do.

Along such a dim the last tiles come first. In the order in which a grid goes through the other dims outside of it, that
holds for each head by itself: blocks that run together read the same keys, but those that are last may have whole
heads before them. ``longest_first`` is the other order, of all heads' longest tiles first. Of 8 heads with 4096 rows in
tiles of 128 one of 132 blocks, which take tiles in rounds, has 1.70 times the mean work in the former order, and 1.003
times in the latter; of 32 heads it is 1.03 and 1.003 times.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

_MOST = 1 << 14
"""Tiles up to which it matters."""
_WORSE = 1.05
"""What reading other keys in each block costs: on an H200 heads of 128 took up to 2 % longer, tiles of 64 rows 4 %,
where all blocks had as much to do."""


def longest_first(order: Sequence[str], growing: Collection[str]) -> tuple[str, ...]:
    """The axes of a grid, the last of which varies fastest, in that order."""
    return tuple(sorted(order, key=lambda name: name not in growing))


def longest_first_pays(tiles: Mapping[str, int], growing: Collection[str], running: int, *, in_rounds: bool) -> bool:
    """Whether the ``running`` blocks share a grid's work more evenly so, and at least two still read the same.

    ``tiles`` along the axes in their usual order. ``in_rounds``: as blocks that go through several tiles take them
    (``tile_loop.py``); otherwise there is a block for each, which begins when another one has ended.
    """
    others = math.prod(count for name, count in tiles.items() if name not in growing)
    first = {name: tiles[name] for name in longest_first(list(tiles), growing)}
    if others > running // 2:
        return False
    usual, other = (_unevenness(each, growing, running, in_rounds=in_rounds) for each in (tiles, first))
    return usual is not None and other is not None and usual > _WORSE * other


def rounds_of_most(tiles: Mapping[str, int], growing: Collection[str], running: int) -> float | None:
    """How many tiles of mean length the block has that has most, of so many that take them in rounds; None if that is
    not known. ``tiles`` along the axes in order."""
    found = _unevenness(tiles, growing, running, in_rounds=True)
    return None if found is None else math.prod(tiles.values()) / running * found


def _unevenness(tiles: Mapping[str, int], growing: Collection[str], running: int, *, in_rounds: bool) -> float | None:
    grown, total = [name for name in tiles if name in growing], math.prod(tiles.values())
    if len(grown) != 1 or not 0 < total <= _MOST:
        return None
    counts = list(tiles.values())
    within = math.prod(counts[list(tiles).index(grown[0]) + 1 :])
    return unevenness(tiles[grown[0]], within, total, running, in_rounds)


@lru_cache(maxsize=4096)
def unevenness(rows: int, within: int, total: int, running: int, in_rounds: bool) -> float:
    """The most work that a block has, over the mean.

    The grid has ``total`` tiles, and along the dim ``rows``, the longest first; which row varies with every
    ``within``-th tile.
    """
    works = [rows - number // within % rows for number in range(total)]
    blocks = _shared_in_rounds(works, running) if in_rounds else _shared_as_they_end(works, running)
    return max(blocks) * running / sum(works)


def _shared_in_rounds(works: Sequence[int], running: int) -> list[int]:
    """Every other round goes the other way round."""
    blocks = [0] * running
    for number, work in enumerate(works):
        turns, place = divmod(number, running)
        blocks[running - 1 - place if turns % 2 else place] += work
    return blocks


def _shared_as_they_end(works: Sequence[int], running: int) -> list[int]:
    blocks = [0] * running
    for work in works:
        heapq.heapreplace(blocks, blocks[0] + work)
    return blocks
