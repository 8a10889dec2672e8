"""A warp-specialised kernel's producer whose threads copy: how they share rows, and registers of each partition."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

PRODUCER_THREADS = 128
TOGETHER, PRODUCER, BRANCHING = {1: 256, 2: 512, 3: 512}, {1: 24, 2: 24, 3: 32}, 56
"""Registers of a thread of each partition, by consumers; of them the producer's where descriptors alone copy, and
where it copies in branches: between them it has more to remember."""
ADDRESSES, OF_ROW, OF_INDEX, MOST_ADDRESSES, MOST_COPYING = 40, 3, 8, 112, 232
"""Registers of a thread that copies: beside those for each row that it copies of each tensor, those for each that an
index picks, as these follow from it alone, all that it needs outside branches, and the most that may be. As ptxas needs
them."""
LINE, STEP = 128, 8
"""Bytes of a row that neighbouring threads copy at once; registers that the hardware gives at once."""


def lanes_of_row(row: int, width: int) -> int:
    """Threads of a warp that copy a row of so many bytes, each ``width`` at once."""
    return max(1, min(32, row // width, LINE // width))


@dataclass(frozen=True)
class ThreadCopy:
    """Of a tile, ``rows`` of ``row`` bytes each in vectors of ``width``; ``indexed``: an index says where they are."""

    rows: int
    row: int
    width: int
    indexed: bool

    @property
    def rows_of_thread(self) -> int:
        return -(-self.rows * lanes_of_row(self.row, self.width) // PRODUCER_THREADS)


def copying_registers(copies: Collection[ThreadCopy], *, branching: bool = False) -> int:
    """Of a thread of the producer that copies these; ``branching``: in a loop in a branch, whose addresses it holds."""
    rows = sum(copy.rows_of_thread for copy in copies if not copy.indexed)
    picked = max((copy.rows_of_thread for copy in copies if copy.indexed), default=0)
    needed = ADDRESSES + OF_ROW * rows + OF_INDEX * picked
    return -(-(needed + BRANCHING if branching else min(MOST_ADDRESSES, needed)) // STEP) * STEP


def consumer_registers(consumers: int, producer: int) -> int:
    """Of a thread, if the producer's have so many."""
    return (TOGETHER[consumers] - producer) // consumers // STEP * STEP
