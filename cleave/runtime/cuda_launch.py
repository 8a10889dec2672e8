"""Launches with everything in place: the memory of their parameters, the driver's description of each.

Building these takes longer than launching, so a program keeps them and only puts in addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_int, c_int64, c_uint, c_void_p
from dataclasses import dataclass, field
from typing import Any

from cleave.runtime.cuda_bind import Bound, BoundLaunch, Described
from cleave.runtime.cuda_driver import Driver, TensorMap

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
    """How a kernel is launched: ``overlaps`` is programmatic dependent launch, ``cooperative`` all blocks at once."""

    name: str
    function: int
    grid: tuple[int, int, int]
    threads: int
    shared: int
    overlaps: bool = False
    cooperative: bool = False


class Launcher:
    """A kernel with memory for its parameters, to be called with a stream; by one thread at a time.

    Every parameter of 4 or 8 bytes has 8 in ``values``, the low ones first; ``maps`` replaces some by tensor maps.
    """

    def __init__(self, driver: Driver, shape: Shape, values: Sequence[int]) -> None:
        self.values = (c_int64 * len(values))(*values)
        first = ctypes.addressof(self.values)
        self.pointers = (c_void_p * len(values))(*range(first, first + _WORD * len(values), _WORD))
        self._driver, self._shape = driver, shape
        wanted = ((_PROGRAMMATIC_STREAM_SERIALIZATION, shape.overlaps), (_COOPERATIVE, shape.cooperative))
        attributes = [_Attribute(number, 0, 1) for number, is_wanted in wanted if is_wanted]
        self._attributes = (_Attribute * len(attributes))(*attributes)
        self._sizes = (*shape.grid, shape.threads, 1, 1, shape.shared)
        self._config = _Config((c_uint * 7)(*self._sizes), 0, self._attributes, len(attributes))
        self._reference = ctypes.byref(self._config)
        self._maps: dict[int, TensorMap] = {}

    def point(self, parameter: int, tensor_map: TensorMap) -> None:
        """Let a parameter be a tensor map."""
        self._maps[parameter] = tensor_map
        self.pointers[parameter] = tensor_map.address

    def __call__(self, stream: int) -> None:
        """Start the kernel on ``stream`` (0: the default one); returns at once."""
        extended, plain = self._driver.launch_functions
        if extended is not None:
            self._config.stream = stream
            status = extended(self._reference, self._shape.function, self.pointers, None)
        else:
            status = plain(self._shape.function, *self._sizes, stream, self.pointers, None)
        if status:
            self._driver.check(f"launch kernel {self._shape.name} on the grid {self._shape.grid}", status)


MapOf = Callable[[BoundLaunch, Described, int, int], TensorMap]
"""The tensor map of a launch's description number so many, at an address."""


@dataclass(frozen=True)
class _DescribedAt:
    """A tensor descriptor of a launch; ``known`` has the tensor maps by address."""

    launch: BoundLaunch
    launcher: Launcher
    entry: Described
    number: int
    known: dict[int, TensorMap] = field(default_factory=dict[int, TensorMap])

    def fill(self, address: int, map_of: MapOf) -> None:
        found = self.known.get(address)
        if found is None:
            if len(self.known) >= _REMEMBERED_MAPS:
                self.known.clear()
            found = self.known[address] = map_of(self.launch, self.entry, self.number, address)
        self.launcher.point(self.entry.parameter, found)


class Slot:
    """The launches of a call in place; ``fill`` it with addresses, then ``launch`` it. By one thread at a time."""

    def __init__(self, bound: Bound, launchers: Sequence[Launcher], map_of: MapOf) -> None:
        self._launchers, self._map_of = tuple(launchers), map_of
        pairs = list(zip(bound.launches, launchers, strict=True))
        self._pointers = [(at.values, parameter, r, o) for launch, at in pairs for parameter, r, o in launch.pointers]
        self._described = [
            (_DescribedAt(launch, at, entry, number), entry.root, entry.offset)
            for launch, at in pairs
            for number, entry in enumerate(launch.described)
        ]

    def fill(self, addresses: Sequence[int]) -> None:
        """Put in the addresses of all roots."""
        for values, parameter, root, offset in self._pointers:
            values[parameter] = addresses[root] + offset
        for described, root, offset in self._described:
            described.fill(addresses[root] + offset, self._map_of)

    def launch(self, stream: int) -> None:
        for launcher in self._launchers:
            launcher(stream)


@dataclass(frozen=True)
class Ready:
    """A plan at certain shapes on one GPU, whose ``context`` this is, and the slots that no call is using."""

    bound: Bound
    context: int
    free: list[Slot] = field(default_factory=list[Any])
