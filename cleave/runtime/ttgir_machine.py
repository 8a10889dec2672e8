"""A thread block whose warps are partitioned: its shared memory, barriers, copies and products, run in random order.

One partition runs at a time, until something that others could see; then a random one goes on, or a copy or product
that was started is carried out. So a wrong order of what is to be ordered shows: as the numbers, which are poison
where a copy is to write, as a deadlock, or as an error where the rules of the hardware are broken:

- a copy begins only where no product and no unfenced read of a buffer can still be going on, from one partition;
- what threads write to shared memory, others use behind a barrier, and products behind a fence, too (``ttgir_races``);
- what threads copied is read when its arrival was waited for, by products behind a fence of the same partition;
- a copy to memory begins only behind a fence, and what it copies is not changed before it was waited for;
- a barrier has no more arrivals in a phase than its count;
- the result of a product is used, other than as an accumulator, when it has been waited for;
- all that come to a named barrier give it one number of threads;
- a block comes to a barrier of blocks when its partition knows, from barriers, of all writes to memory before.

While a partition waits for other blocks these may go on, whatever else of its own could.
"""
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttgir_barriers import WARPGROUP, Barrier, Filling, NamedBarrier
from cleave.runtime.ttgir_races import Races, Shared
from cleave.runtime.ttir_numbers import DType, poison


@dataclass(eq=False)
class InFlight:
    """The result of a product that has been started; ``compute`` is given its accumulator."""

    shape: tuple[int, ...]
    dtype: DType
    start: Any
    compute: Callable[[Any], Any]
    reads: tuple[Shared, ...]
    result: Any = None
    awaited: bool = False

    def carry_out(self) -> Any:
        if self.result is None:
            before = self.start.carry_out() if isinstance(self.start, InFlight) else self.start
            self.result = self.compute(before)
        return self.result


@dataclass(eq=False)
class Outgoing:
    """A copy from a buffer to memory."""

    key: int
    write: Callable[[], None]
    done: bool = False

    def carry_out(self) -> None:
        if not self.done:
            self.done = True
            self.write()


@dataclass(eq=False)
class _Partition:
    number: int
    threads: int = WARPGROUP
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    products: list[InFlight] = field(default_factory=list[InFlight])
    stores: list[Outgoing] = field(default_factory=list[Outgoing])
    fillings: list[Filling] = field(default_factory=list[Filling])  # that may not be there
    blocked: Callable[[], bool] | None = None  # whether it could go on
    elsewhere: bool = False  # whether that is for other blocks to say
    done: bool = False


class _Ended(BaseException):
    """Raised in a partition where another one failed."""


class ThreadBlock:
    """One block's shared memory and partitions; before and behind them there is one, number 0."""

    def __init__(self, seed: object) -> None:
        self.random = random.Random(str(seed))
        self.partitions = [_Partition(0)]
        self.current = self.partitions[0]
        self.events: list[Callable[[], None]] = []
        self.copies = 0  # that have not come
        self.readers: dict[int, int] = {}  # products that read a buffer and are not waited for
        self.unfenced: dict[int, set[int]] = {}  # partitions that read a buffer into registers
        self.writers: dict[int, int] = {}
        self.fillings: dict[int, Filling] = {}  # the last one of each buffer
        self.named: dict[int, NamedBarrier] = {}
        self.races = Races()
        self.failure: BaseException | None = None
        self.threads: list[threading.Thread] = []
        self.control = threading.Semaphore(0)  # of whoever runs the block
        self.moved = False  # since it was last given control
        self.sends = False  # whether copies to memory were started

    # --- partitions ---

    def begin(self, bodies: Sequence[Callable[[], None]], warps: Sequence[int]) -> None:
        """The partitions, of so many ``warps`` each."""
        self.partitions = [_Partition(number, 32 * count) for number, count in enumerate(warps)]
        pairs = list(zip(self.partitions, bodies, strict=True))
        self.threads = [threading.Thread(target=self._partition, args=pair, daemon=True) for pair in pairs]
        for thread in self.threads:
            thread.start()

    def advance(self) -> bool:
        """Run the partitions until they end, or other blocks are to go on; whether they have ended."""
        self.moved = False
        self._next()
        self.control.acquire()
        if not all(partition.done for partition in self.partitions):
            return False
        if self.failure is not None:
            raise self.failure
        if self.copies:
            raise CleaveError("a copy is not waited for before the block ends")
        return True

    def end(self) -> None:
        """Of partitions that have not ended, too."""
        if not all(partition.done for partition in self.partitions):
            self.failure = self.failure or CleaveError("the block is given up")
            self._next()
            self.control.acquire()
        for thread in self.threads:
            thread.join()
        self.partitions = [_Partition(0)]
        self.current = self.partitions[0]

    def _partition(self, partition: _Partition, body: Callable[[], None]) -> None:
        partition.turn.acquire()
        try:
            if self.failure is None:
                with np.errstate(all="ignore"):
                    body()
                if partition.products or partition.stores:
                    what = "product" if partition.products else "copy to memory"
                    raise CleaveError(f"a {what} is not waited for before its partition ends")
        except _Ended:
            pass
        except BaseException as error:
            self.failure = self.failure or error
        partition.done = True
        self._next()

    def _next(self) -> None:
        """Give the turn to a partition that can go on, after some of what goes on by itself."""
        while self.events and self.random.random() < 0.3:
            self._event()
        waiting = [p for p in self.partitions if not p.done]
        elsewhere = self.failure is None and any(p.elsewhere for p in waiting)
        while waiting:
            ready = [p for p in waiting if self.failure or p.blocked is None or p.blocked()]
            if elsewhere and (not (ready or self.events) or self.random.random() < 0.3):
                self.moved |= bool(ready or self.events)
                break
            if ready:
                self.moved = True
                self.current = self.random.choice(ready)
                self.current.turn.release()
                return
            if self.events:
                self._event()
                continue
            text = f"partitions {[p.number for p in waiting]} wait for barriers that nothing completes"
            self.failure = CleaveError(text)
        self.control.release()

    def _event(self) -> None:
        event = self.events.pop(self.random.randrange(len(self.events)))
        try:
            event()
        except BaseException as error:
            self.failure = self.failure or error

    def pause(self, ready: Callable[[], bool] | None = None, *, elsewhere: bool = False) -> None:
        """Let others go on, of other blocks if it is for these to make it so; come back when ``ready``."""
        partition = self.current
        if len(self.partitions) == 1:
            if ready is not None and not ready():
                raise CleaveError("a wait outside the partitions for what has not happened")
            return
        partition.blocked, partition.elsewhere = ready, elsewhere
        self._next()
        partition.turn.acquire()
        partition.blocked, partition.elsewhere = None, False
        if self.failure is not None:
            raise _Ended

    def meet(self, number: int, threads: int, waits: bool) -> None:
        """A warpgroup comes to a named barrier for so many ``threads``, and waits there or goes on."""
        self.pause()
        barrier = self.named.setdefault(number, NamedBarrier())
        before = barrier.opened
        self.races.publish(self.current.number, barrier.clock)
        barrier.arrive(threads)
        if waits:
            self.pause(lambda: barrier.opened > before)
            self.races.learn(self.current.number, barrier.open_clock)

    def arrive(self, barrier: Barrier, count: int) -> None:
        """At one in shared memory."""
        self.races.publish(self.current.number, barrier.clock)
        barrier.arrive(count)

    def wrote(self) -> None:
        """This partition's threads to memory."""
        self.races.wrote(self.current.number)

    def check_ordered(self) -> None:
        """Whether others may be told that the block has written what it has."""
        late = self.races.unknown_to(self.current.number)
        if late:
            raise CleaveError(f"a block comes to a barrier of blocks before what partitions {late} wrote is known of")
        if self.sends:
            raise CleaveError("a block comes to a barrier of blocks after copies to memory, which nothing orders")

    # --- copies ---

    def copy(self, buffer: Shared, barrier: Barrier, read: Callable[[], Shared]) -> None:
        """Start to fill a buffer with what ``read`` gives when the copy is carried out."""
        key = key_of(buffer)
        if self.unfenced.get(key):
            raise CleaveError("a copy begins into a buffer that was read into registers, without a fence")
        self._begin(key, buffer)
        filling = self.fillings[key] = self._filling(buffer, read, by_threads=False)

        def arrive() -> None:
            filling.carry_out()
            barrier.come(filling, buffer.nbytes)

        self.events.append(arrive)

    def _begin(self, key: int, buffer: Shared) -> None:
        """A copy, which has not come."""
        if self.readers.get(key):
            raise CleaveError("a copy begins into a buffer that a product may still read")
        if self.writers.setdefault(key, self.current.number) != self.current.number:
            raise CleaveError("two partitions copy into one buffer")
        buffer[...] = poison(buffer.dtype)
        self.races.copied(self.current.number, key)
        self.copies += 1

    def _filling(self, buffer: Shared, read: Callable[[], Shared], *, by_threads: bool) -> Filling:
        def write() -> None:
            buffer[...] = read()
            self.copies -= 1

        return Filling(write, by_threads)

    def copy_by_threads(self, buffer: Shared, read: Callable[[], Shared]) -> None:
        """As ``copy``, by ordinary writes of this partition's threads: their reads are in order with these."""
        key = key_of(buffer)
        self._begin(key, buffer)
        filling = self.fillings[key] = self._filling(buffer, read, by_threads=True)
        self.current.fillings.append(filling)
        self.events.append(filling.carry_out)

    def arrive_when_copied(self, barrier: Barrier, *, counted: bool) -> None:
        """Each thread arrives when what it has copied is there; ``counted``: that is one of the barrier's arrivals,
        else it raises their number first."""
        fillings, threads = self.current.fillings, self.current.threads
        self.current.fillings = []

        def arrive() -> None:
            for filling in fillings:
                filling.carry_out()
            barrier.fillings = fillings
            barrier.arrive(threads if counted else 0)

        self.events.append(arrive)

    def saw(self, barrier: Barrier) -> None:
        """This partition has waited for a phase of it."""
        self.races.learn(self.current.number, barrier.clock)
        for filling in barrier.fillings:
            filling.seen.add(self.current.number)

    def read(self, buffer: Shared) -> Shared:
        key = key_of(buffer)
        self._check_filled(key)
        self.races.read(self.current.number, key, buffer)
        self.unfenced.setdefault(key, set()).add(self.current.number)
        return buffer.copy()

    def _check_filled(self, key: int) -> None:
        filling = self.fillings.get(key)
        if filling and self.current.number not in filling.seen:
            raise CleaveError("a buffer is read that a copy fills, before it was waited for")

    def fence(self) -> None:
        number = self.current.number
        self.races.fence(number)
        for partitions in self.unfenced.values():
            partitions.discard(number)
        for filling in self.fillings.values():
            filling.fenced |= {number} & filling.seen

    def write(self, buffer: Shared, value: Any) -> None:
        key = key_of(buffer)
        if any(key == out.key for partition in self.partitions for out in partition.stores):
            raise CleaveError("a buffer is written from which a copy to memory may still read")
        if self.readers.get(key):
            raise CleaveError("a buffer is written that a product may still read")
        self.races.write(self.current.number, key, buffer)
        self.fillings.pop(key, None)
        buffer[...] = value
        self.unfenced.setdefault(key, set()).add(self.current.number)

    def store(self, buffer: Shared, write: Callable[[Shared], None]) -> None:
        """Start a copy to memory, which ``write`` carries out."""
        if self.unfenced.get(key_of(buffer)):
            raise CleaveError("a copy to memory begins from a buffer that was written without a fence")
        self.sends = True
        out = Outgoing(key_of(buffer), lambda: write(buffer))
        self.current.stores.append(out)
        self.events.append(out.carry_out)

    def await_stores(self, pending: int) -> None:
        """Until all but the last ``pending`` copies to memory of this partition have read their buffers."""
        stores = self.current.stores
        done = stores[: max(0, len(stores) - pending)]
        self.current.stores = stores[len(done) :]
        for out in done:
            out.carry_out()

    # --- products ---

    def start(self, product: InFlight) -> None:
        self.current.products.append(product)
        for buffer in product.reads:
            key = key_of(buffer)
            self._check_filled(key)
            self.races.multiply(self.current.number, key, buffer)
            filling = self.fillings.get(key)
            if filling and filling.by_threads and self.current.number not in filling.fenced:
                raise CleaveError("a product reads a buffer that threads filled, without a fence")
            self.readers[key] = self.readers.get(key, 0) + 1
        self.events.append(lambda: (product.carry_out(), None)[1])

    def await_products(self, pending: int) -> None:
        """Until all but the last ``pending`` products of this partition are done."""
        products = self.current.products
        done = products[: max(0, len(products) - pending)]
        self.current.products = products[len(done) :]
        for product in done:
            product.carry_out()
            product.awaited = True
            for buffer in product.reads:
                self.readers[key_of(buffer)] -= 1
                self.races.read(self.current.number, key_of(buffer), buffer)


def key_of(buffer: Shared) -> int:
    """Equal for views of one buffer, of those that were allocated together too."""
    whole = buffer if buffer.base is None else buffer.base
    offset = _address(buffer) - _address(whole)
    return _address(whole) + (offset - offset % whole.strides[0] if whole.ndim > 2 else 0)


def _address(buffer: Any) -> int:
    return int(buffer.__array_interface__["data"][0])
