"""The barriers of a thread block whose warps are partitioned: what comes to them, and what waits there are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cleave.errors import CleaveError
from cleave.runtime.ttgir_races import Clock

WARPGROUP = 128  # threads


@dataclass(eq=False)
class Barrier:
    """An mbarrier: a phase ends when ``count`` have arrived and as many bytes have come as were expected."""

    count: int = 0
    arrived: int = 0
    bytes: int = 0
    phase: int = 0
    fillings: list[Filling] = field(default_factory=list["Filling"])  # of which it has said that they are there
    come_now: list[Filling] = field(
        default_factory=list["Filling"]
    )  # through descriptors, in the phase that is not over
    clock: Clock = field(default_factory=Clock)  # of those that have arrived

    def arrive(self, count: int) -> None:
        if self.count == 0:
            raise CleaveError("a barrier is used that was not initialised")
        self.arrived += count
        if self.arrived > self.count:
            raise CleaveError(f"{self.arrived} arrivals in one phase of a barrier for {self.count}")
        self._end()

    def come(self, filling: Filling, size: int) -> None:
        """What a descriptor describes is there."""
        self.come_now.append(filling)
        self.bytes -= size
        self._end()

    def _end(self) -> None:
        if self.arrived == self.count and self.bytes == 0:
            self.arrived, self.phase = 0, self.phase + 1
            if self.come_now:
                self.fillings, self.come_now = self.come_now, []

    def is_over(self, parity: int) -> bool:
        """Whether the phase of this parity is over; the one before the first counts as over."""
        return self.phase & 1 != parity & 1


@dataclass(eq=False)
class Filling:
    """What is copied to a buffer. ``seen`` and ``fenced``: partitions that waited for it, and had a fence then, which
    products need of what threads copy."""

    write: Callable[[], None]
    by_threads: bool
    done: bool = False
    seen: set[int] = field(default_factory=set[int])
    fenced: set[int] = field(default_factory=set[int])

    def carry_out(self) -> None:
        if not self.done:
            self.done = True
            self.write()


@dataclass(eq=False)
class NamedBarrier:
    """One of the hardware's: it opens when so many threads have come, and is then as before."""

    come: int = 0
    opened: int = 0
    threads: int = 0
    clock: Clock = field(default_factory=Clock)  # of those that have come
    open_clock: Clock = field(default_factory=Clock)  # of those with which it opened last

    def arrive(self, threads: int) -> None:
        if self.come and threads != self.threads:
            raise CleaveError(f"a barrier for {threads} threads is one for {self.threads} elsewhere")
        self.come, self.threads = self.come + WARPGROUP, threads
        if self.come >= threads:
            self.come, self.opened = 0, self.opened + 1
            self.open_clock, self.clock = self.clock, {}
