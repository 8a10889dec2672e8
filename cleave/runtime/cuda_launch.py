"""Launches with everything in place: the memory of their parameters, the driver's description of each.

Building these takes longer than launching, so a program keeps them and only puts in addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_int, c_int64, c_uint, c_void_p
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cleave.runtime.cublas import ProductLauncher
from cleave.runtime.cuda_bind import Bound, BoundLaunch, Described
from cleave.runtime.cuda_driver import INVALID_CONTEXT, Driver, TensorMap

_COOPERATIVE, _PROGRAMMATIC_STREAM_SERIALIZATION = 2, 6  # CUlaunchAttributeID
_WORD = 8
_REMEMBERED_MAPS = 256


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, of those whose value is an int."""

    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_int), ("rest", c_int * 15))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("sizes", c_uint * 7),  # the grid, the block, bytes of shared memory
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", c_uint),
    )


@dataclass(frozen=True)
class Shape:
    """How a kernel is launched: ``overlaps`` is programmatic dependent launch, ``cooperative`` all blocks at once.

    ``function`` and ``context`` are the driver's handles.
    """

    name: str
    function: int
    context: int
    grid: tuple[int, int, int]
    threads: int
    shared: int
    overlaps: bool = False
    cooperative: bool = False


class Launcher:
    """A kernel with memory for its parameters, to be used by one thread at a time.

    ``start`` starts it on ``stream`` (0: the default one) and returns at once, with a status: if not 0, for ``failed``.
    Every parameter of 4 or 8 bytes has 8 in ``values``, the low ones first; ``point`` puts others in their place.
    """

    def __init__(self, driver: Driver, shape: Shape, values: Sequence[int]) -> None:
        self.values = (c_int64 * len(values))(*values)
        self._driver, self._shape = driver, shape
        self._pointers = (c_void_p * len(values))(*_addresses_in(self.values))
        self._kept: dict[int, Any] = {}
        extended, plain = driver.launch_functions
        function = c_void_p.from_param(shape.function)  # what ctypes makes of an argument, made once
        if extended is not None:
            self._config, self.stream = _configured(shape)
            start = partial(extended, byref(self._config), function)
        else:
            self.stream = c_void_p()
            sizes = map(c_uint.from_param, (*shape.grid, shape.threads, 1, 1, shape.shared))
            start = partial(plain, function, *sizes, self.stream)
        self.start = partial(start, byref(self._pointers), None)

    def point(self, parameter: int, address: int, owner: Any) -> None:
        """Let a parameter lie in the host's memory at ``address``, which ``owner`` keeps."""
        self._pointers[parameter], self._kept[parameter] = address, owner

    def failed(self, status: int) -> None:
        """Start it again where all that was missing is a context: a thread has none before its first use of CUDA."""
        shape = self._shape
        if status == INVALID_CONTEXT and self._driver.enter(shape.context):
            status = self.start()
        self._driver.check(f"launch kernel {shape.name} on the grid {shape.grid}", status)


def _addresses_in(values: ctypes.Array[c_int64]) -> range:
    """Of all elements."""
    first = ctypes.addressof(values)
    return range(first, first + _WORD * len(values), _WORD)


def _configured(shape: Shape) -> tuple[_Config, c_void_p]:
    """What cuLaunchKernelEx takes, and the part of it that is the stream."""
    wanted = ((_PROGRAMMATIC_STREAM_SERIALIZATION, shape.overlaps), (_COOPERATIVE, shape.cooperative))
    attributes = [_Attribute(number, 0, 1) for number, is_wanted in wanted if is_wanted]
    sizes = (c_uint * 7)(*shape.grid, shape.threads, 1, 1, shape.shared)
    config = _Config(sizes, 0, (_Attribute * len(attributes))(*attributes), len(attributes))
    return config, c_void_p.from_buffer(config, _Config.stream.offset)


MapOf = Callable[[BoundLaunch, Described, int, int], TensorMap]
"""The tensor map of a launch's description number so many, at an address."""


@dataclass
class _DescribedAt:
    """A tensor descriptor of a launch, now of a tensor at ``address``; ``known`` has the tensor maps by address."""

    launch: BoundLaunch
    launcher: Launcher | ProductLauncher
    entry: Described
    number: int
    address: int | None = None
    known: dict[int, TensorMap] = field(default_factory=dict[int, TensorMap])

    def fill(self, address: int, map_of: MapOf) -> None:
        found = self.known.get(address)
        if found is None:
            if len(self.known) >= _REMEMBERED_MAPS:
                self.known.clear()
            found = self.known[address] = map_of(self.launch, self.entry, self.number, address)
        self.launcher.point(self.entry.parameter, found.address, found)
        self.address = address


@dataclass
class _Parts:
    """What launches use of a root, so many bytes from it; ``table``: where that is, the root being at ``address``."""

    root: int
    offsets: tuple[int, ...]
    table: ctypes.Array[c_int64]
    address: int | None = None

    @staticmethod
    def of(root: int, offsets: Iterable[int]) -> _Parts:
        found = tuple(dict.fromkeys(offsets))
        return _Parts(root, found, (c_int64 * len(found))())

    def place(self, offset: int) -> tuple[int, Any]:
        """Where the address of a part lies, and what keeps it."""
        return _addresses_in(self.table)[self.offsets.index(offset)], self.table

    def fill(self, address: int) -> None:
        self.table[:] = [address + offset for offset in self.offsets]
        self.address = address


class Slot:
    """The launches of a call in place; ``fill`` it with addresses, then ``launch`` it. By one thread at a time.

    All launches have their pointers in tables: the addresses of the ``roots``, and for a root those of parts of it.
    """

    def __init__(
        self, bound: Bound, launchers: Sequence[Launcher | ProductLauncher], map_of: MapOf, roots: int
    ) -> None:
        self._launchers, self._map_of = tuple(launchers), map_of
        self._starts = tuple(launcher.start for launcher in launchers)
        self._stream: int | None = None
        pairs = list(zip(bound.launches, launchers, strict=True))
        pointers = [(at, parameter, r, o) for launch, at in pairs for parameter, r, o in launch.pointers]
        self.table = (c_int64 * roots)()
        entries, parts = _addresses_in(self.table), dict.fromkeys(root for _, _, root, offset in pointers if offset)
        self._parts = [_Parts.of(root, [o for _, _, r, o in pointers if o and r == root]) for root in parts]
        of_root = {parts.root: parts for parts in self._parts}
        for launcher, parameter, root, offset in pointers:
            address, owner = of_root[root].place(offset) if offset else (entries[root], self.table)
            launcher.point(parameter, address, owner)
        self._described = [
            (_DescribedAt(launch, at, entry, number), entry.root, entry.offset)
            for launch, at in pairs
            for number, entry in enumerate(launch.described)
        ]

    def fill(self, addresses: Sequence[int]) -> None:
        """Put in the addresses of all roots."""
        self.table[:] = addresses
        for parts in self._parts:
            address = addresses[parts.root]
            if address != parts.address:  # that of a workspace is the last call's
                parts.fill(address)
        for described, root, offset in self._described:
            address = addresses[root] + offset
            if address != described.address:
                described.fill(address, self._map_of)

    def launch(self, stream: int) -> None:
        if stream != self._stream:
            for launcher in self._launchers:
                launcher.stream.value = stream
            self._stream = stream
        for start in self._starts:
            if status := start():
                self._launchers[self._starts.index(start)].failed(status)


@dataclass(frozen=True)
class Ready:
    """A plan at certain shapes on one GPU, whose ``context`` this is, and the slots that no call is using."""

    bound: Bound
    context: int
    free: list[Slot] = field(default_factory=list[Any])
