"""Registers of the partitions of a thread block: what each thread may have.

A multiprocessor has 65536. All warps begin with ``entry`` each; then consumers take of what the producer gives back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import tt
from cleave.lowering.contiguity import element_bytes
from cleave.lowering.copied_loads import is_indexed
from cleave.schedule.copying_threads import (
    BRANCHING,
    MOST_COPYING,
    PRODUCER,
    ThreadCopy,
    consumer_registers,
    copying_registers,
)  # fmt: skip


@dataclass(frozen=True)
class Budget:
    """Per thread. ``consumers``: of each; the producer has what is left.

    ``tiles``: for operands and results of one loop's products; others hold addresses and row values. ``repeated``: the
    same where products are repeated: wide results leave little room.
    """

    entry: int
    consumers: tuple[int, ...]
    tiles: int
    repeated: int


_ENTRY, _TILES, _REPEATED = {1: 128, 2: 168, 3: 128}, {1: 200, 2: 208, 3: 120}, {1: 176, 2: 176, 3: 120}
"""By consumers; tiles' where descriptors alone copy."""


def budget(consumers: int, copied: Mapping[ir.Operation, int], *, branching: bool = False) -> Budget:
    """``copied``: a load of each ring that threads of the producer fill, with the elements of one copy. ``branching``:
    whether it copies in branches."""
    least = BRANCHING if branching else PRODUCER[consumers]
    groups: dict[object, list[ThreadCopy]] = {}
    for load, vector in copied.items():
        groups.setdefault(load.block if branching else None, []).append(_copy(load, vector))
    producer = max([least, *(copying_registers(group, branching=branching) for group in groups.values())])
    if producer > MOST_COPYING:
        raise CleaveError(f"what threads copy takes addresses in {producer} registers; {MOST_COPYING} are there")
    consumer = consumer_registers(consumers, producer)
    less = consumer_registers(consumers, least) - consumer
    return Budget(_ENTRY[consumers], (consumer,) * consumers, _TILES[consumers] - less, _REPEATED[consumers] - less)


def _copy(load: ir.Operation, vector: int) -> ThreadCopy:
    (rows, columns), size = tt.shape_of(load.results[0]), element_bytes(load.results[0])
    return ThreadCopy(rows, columns * size, vector * size, is_indexed(load))
