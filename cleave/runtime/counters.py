"""Memory for the counters with which blocks meet: zeros, which every launch leaves as zeros.

Launches on a stream follow one another and share one piece. A graph that is captured may run beside the stream that
captured it, so its launches have pieces that nobody else is ever given. They are cut from a reserve, which calls
outside graphs fill: memory that is allocated while a graph is captured would have to be zeroed at each replay.
"""

from __future__ import annotations

import threading

from cleave.runtime.cuda_driver import DeviceArray, Driver

_PIECE = 2**14
_RESERVE = 2**18
_LOW = 2**16
_ALIGNMENT = 256
PER_THREAD = 2
"""CU_STREAMPER_THREAD: one handle for a stream of each thread."""


class Counters:
    """Counters on all GPUs of a driver; usable from several threads. Sizes are in bytes."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._lock = driver, threading.Lock()
        self._pieces: dict[tuple[int, int, int], tuple[int, int]] = {}  # address and size, by context, stream, thread
        self._reserves: dict[int, tuple[int, int]] = {}  # address and size of what is left, by context
        self._arrays: list[DeviceArray] = []  # for ever: a graph may be replayed at any time

    def address(self, size: int, stream: int, context: int) -> int | None:
        """Of ``size`` bytes of zeros for the next launch on ``stream`` of the current GPU; None where none are left."""
        if self._driver.is_capturing(stream):
            with self._lock:
                return self._cut(context, size)
        found = self.kept(size, stream, context)
        if found is not None:
            return found
        with self._lock:
            if self._reserves.get(context, (0, 0))[1] < _LOW:
                self._reserves[context] = self._zeros(_RESERVE, stream), _RESERVE
                self._driver.synchronise(stream)  # graphs may be replayed on any stream
            wanted = max(_PIECE, 1 << (size - 1).bit_length())
            made = self._pieces[context, stream, _owner(stream)] = self._zeros(wanted, stream), wanted
            return made[0]

    def kept(self, size: int, stream: int, context: int) -> int | None:
        """The same of a stream that captures no graph, without asking; None where it has not had as many yet."""
        address, kept = self._pieces.get((context, stream, _owner(stream)), (0, 0))
        return address if kept >= size else None

    def _zeros(self, size: int, stream: int) -> int:
        array = self._driver.array((size // 4,), "i32")
        self._arrays.append(array)
        self._driver.fill_zeros(array.data_ptr(), size, stream)
        return array.data_ptr()

    def _cut(self, context: int, size: int) -> int | None:
        """A piece of the reserve that nobody else is given."""
        address, left = self._reserves.get(context, (0, 0))
        taken = -(-size // _ALIGNMENT) * _ALIGNMENT
        if taken > left:
            return None
        self._reserves[context] = address + taken, left - taken
        return address


def _owner(stream: int) -> int:
    """The thread, where each has a stream of its own by this handle."""
    return threading.get_ident() if stream == PER_THREAD else 0


_shared: dict[Driver, Counters] = {}


def counters_of(driver: Driver) -> Counters:
    """The counters of all programs that a driver runs."""
    return _shared.setdefault(driver, Counters(driver))
