"""Which accesses to shared memory by threads of partitions are in order, whatever order they happened to run in.

Each partition has a clock of what it knows to be over: its own time, and of others the time at which they last came to
a barrier that it has waited for since. An access is over for a partition if its time is in that. Products read in
another way than threads write: between the two a fence must stand, of the partition that wrote before the barrier, or
of one that knows of it.
"""
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cleave.errors import CleaveError

Shared = np.ndarray[Any, Any]
Clock = dict[int, int]
"""Times by partition."""


@dataclass(eq=False)
class _Region:
    """A part of a buffer: by which partition it was last written and when, and since then fences and reads."""

    view: Shared
    writer: int = -1
    written: int = 0
    fences: Clock = field(default_factory=Clock)
    reads: Clock = field(default_factory=Clock)


class Races:
    """Of one thread block. ``key``: which buffer it is."""

    def __init__(self) -> None:
        self.clocks: defaultdict[int, Clock] = defaultdict(Clock)
        self.regions: dict[int, list[_Region]] = {}
        self.written: Clock = {}  # when partitions last wrote to memory

    # --- barriers ---

    def _now(self, partition: int) -> int:
        return self.clocks[partition].setdefault(partition, 1)

    def _is_over(self, partition: int, other: int, time: int) -> bool:
        return other == partition or self.clocks[partition].get(other, 0) >= time

    def publish(self, partition: int, at: Clock) -> None:
        """The partition comes to a barrier."""
        self._now(partition)
        _merge(at, self.clocks[partition])
        self.clocks[partition][partition] += 1

    def learn(self, partition: int, at: Clock) -> None:
        """The partition has waited for a barrier."""
        own = self._now(partition)
        _merge(self.clocks[partition], at)
        self.clocks[partition][partition] = own

    def fence(self, partition: int) -> None:
        for region in (region for regions in self.regions.values() for region in regions):
            if region.writer >= 0 and self._is_over(partition, region.writer, region.written):
                region.fences[partition] = self._now(partition)

    # --- memory, which all blocks have ---

    def wrote(self, partition: int) -> None:
        self.written[partition] = self._now(partition)

    def unknown_to(self, partition: int) -> list[int]:
        """The partitions that have written what this one does not know to be over."""
        return [other for other, time in self.written.items() if not self._is_over(partition, other, time)]

    # --- accesses ---

    def copied(self, partition: int, key: int) -> None:
        """A copy that the partition starts fills the buffer; that it is there is for others to check."""
        reads = [read for region in self.regions.get(key, []) for read in region.reads.items()]
        if not all(self._is_over(partition, other, time) for other, time in reads):
            raise CleaveError("a copy begins into a buffer that another partition may still read")
        self.regions[key] = []

    def write(self, partition: int, key: int, view: Shared) -> None:
        for region in self._overlapping(key, view):
            others = [*region.reads.items(), (region.writer, region.written)]
            if not all(self._is_over(partition, other, time) for other, time in others if other >= 0):
                raise CleaveError("a buffer is written that another partition may still use")
        region = self._region(key, view)
        region.writer, region.written = partition, self._now(partition)
        region.fences, region.reads = {}, {}

    def read(self, partition: int, key: int, view: Shared) -> None:
        """By threads, or by a product that was waited for."""
        if key not in self.regions:
            return
        for region in self._overlapping(key, view):
            if region.writer >= 0 and not self._is_over(partition, region.writer, region.written):
                raise CleaveError("a buffer is read that another partition may not have written")
        self._region(key, view).reads[partition] = self._now(partition)

    def multiply(self, partition: int, key: int, view: Shared) -> None:
        """A product that reads it is started."""
        self.read(partition, key, view)
        for region in self._overlapping(key, view):
            fenced = any(self._is_over(partition, other, time) for other, time in region.fences.items())
            if region.writer >= 0 and not fenced:
                raise CleaveError("a product reads a buffer that threads wrote, without a fence")

    def _overlapping(self, key: int, view: Shared) -> Iterator[_Region]:
        return (region for region in self.regions.get(key, []) if np.shares_memory(region.view, view))

    def _region(self, key: int, view: Shared) -> _Region:
        regions = self.regions.setdefault(key, [])
        found = next((region for region in regions if _place(region.view) == _place(view)), None)
        if found is None:
            regions.append(found := _Region(view))
        return found


def _merge(into: Clock, clock: Clock) -> None:
    for partition, time in clock.items():
        into[partition] = max(into.get(partition, 0), time)


def _place(view: Any) -> tuple[Any, ...]:
    return view.__array_interface__["data"][0], view.shape, view.strides
