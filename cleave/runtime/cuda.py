"""Run a launch plan on a GPU: its kernels as cubins, launched through the CUDA driver alone."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cleave.errors import CleaveError
from cleave.runtime.counters import counters_of
from cleave.runtime.cublas import Cublas, Planned, ProductLauncher, shared_cublas
from cleave.runtime.cuda_bind import PARAMETER_BYTES, SCRATCH_POINTERS, Bound, BoundLaunch, Described, Product, bind
from cleave.runtime.cuda_driver import Driver, TensorMap, shared_driver
from cleave.runtime.cuda_launch import Launcher, Ready, Shape, Slot
from cleave.runtime.cuda_tensors import (
    aligned_address,
    check_count,
    input_addresses,
    input_layouts,
    layout_of,
    signature,
)
from cleave.runtime.descriptors import DESCRIPTOR, Box, is_empty
from cleave.runtime.launch_plan import Launch, LaunchPlan, TensorSpec

Allocator = Callable[[tuple[int, ...], str], Any]
"""New memory on the GPU: shape and dtype in, a row-major tensor out."""

_WARP = 32
_REMEMBERED = 256
"""Shapes whose launches are remembered."""


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel. ``shared`` is in bytes; ``num_warps`` and ``num_ctas`` are what it was compiled for.

    ``scratch`` is how many bytes of global memory each block needs: kernels that need any cannot be launched yet.
    ``boxes``: of its tensor descriptors, in the order of its parameters.
    """

    name: str
    cubin: bytes
    shared: int
    num_warps: int
    num_ctas: int = 1
    scratch: int = 0
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Call:
    """A call of a function, everything checked and in place: ``launch`` computes ``results``, as often as it is run.

    By one thread at a time.
    """

    program: Program
    results: list[Any]
    _slot: Slot
    _context: int
    _owners: tuple[Any, ...]  # keeps the memory
    _unzeroed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])  # (address, bytes)

    def launch(self, stream: int = 0) -> None:
        """Run the kernels on ``stream`` of the current GPU, which may be capturing a graph; does not wait for them.

        Counters are put to 0 before the first launch, and each launch leaves them there; a graph that was captured
        before any launch outside a graph does it at each replay.
        """
        if self._unzeroed:
            self.program.driver.enter(self._context)
            for address, size in self._unzeroed:
                self.program.driver.fill_zeros(address, size, stream)
            if not self.program.driver.is_capturing(stream):
                self._unzeroed.clear()
        self._slot.launch(stream)


class Program:
    """A function that runs on the GPU; usable from several threads and on several GPUs.

    ``cublas``: the library for products, or why there is none; the process's if it is not given. ``kept`` says, by
    kernel, why a call has launched it although its product might have been the library's.

    Raises CleaveError if ``kernels`` lacks one that the plan launches, or it fits the launch not.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        kernels: Mapping[str, Kernel],
        driver: Driver | None = None,
        cublas: Cublas | str | None = None,
    ) -> None:
        self.plan, self.kernels = plan, dict(kernels)
        self.driver = driver or shared_driver()
        self.kept: dict[str, str] = {}
        self._cublas = cublas
        self._counters = counters_of(self.driver)
        self._functions: dict[tuple[int, str], int] = {}
        self._ready: dict[Any, Ready] = {}
        self._lock = threading.Lock()
        for launch in plan.possible_launches:
            _check_kernel(launch, self.kernels)

    def __call__(
        self, inputs: Sequence[Any], allocate: Allocator, stream: int = 0, sizes: Mapping[str, int] | None = None
    ) -> list[Any]:
        """The results for ``inputs``, computed on ``stream`` (a CUstream) of the current GPU; does not wait for them.

        ``allocate`` gives results and workspace, which must stay unused by others until the stream has passed here;
        a result that is an argument, or a view of one, is the argument's memory. ``sizes`` gives symbols that no
        argument binds their values.

        Raises CleaveError, before any launch, for arguments that do not fit the plan or each other, that are not on the
        current GPU, not row-major where the kernels need that, or not aligned to 16 bytes.
        """
        ready, addresses, owners = self._in_place(inputs, allocate, sizes or {})
        self.count(ready, addresses, owners, stream, allocate)
        self.run(ready, addresses, stream)
        return _results(ready.bound, owners)

    def prepare(self, inputs: Sequence[Any], allocate: Allocator, sizes: Mapping[str, int] | None = None) -> Call:
        """The call without its launches. Parameters and errors as in ``__call__``."""
        ready, addresses, owners = self._in_place(inputs, allocate, sizes or {})
        for root, size in ready.bound.zeroed:
            owners[root] = self.driver.array((size // 4,), "i32")
            addresses[root] = owners[root].data_ptr()
        slot = self._slot(ready, len(addresses))
        slot.fill(addresses)
        unzeroed = [(addresses[root], size) for root, size in ready.bound.zeroed]
        return Call(self, _results(ready.bound, owners), slot, ready.context, tuple(owners), unzeroed)

    def run(self, ready: Ready, addresses: Sequence[int], stream: int) -> None:
        """Launch for inputs and allocated memory at these addresses."""
        try:
            slot = ready.free.pop()
        except IndexError:  # all of them are in use
            slot = self._slot(ready, len(addresses))
        slot.fill(addresses)
        slot.launch(stream)
        ready.free.append(slot)

    def _in_place(
        self, inputs: Sequence[Any], allocate: Allocator, sizes: Mapping[str, int]
    ) -> tuple[Ready, list[int], list[Any]]:
        """What is remembered of such inputs; the addresses and owners of these and of new memory.

        Counters have the address 0.
        """
        try:
            ready = self.ready(inputs, sizes)
            addresses = input_addresses(self.plan, inputs, self.driver)
            owners = list(inputs)
            counters = {root for root, _ in ready.bound.zeroed}
            for spec, shape in ready.bound.allocated:
                is_counter = len(owners) in counters
                address, owner = (0, None) if is_counter else _allocated(spec, shape, allocate)
                addresses.append(address)
                owners.append(owner)
            return ready, addresses, owners
        except CleaveError as error:
            raise (error.at(self.plan.location) if self.plan.location else error) from None

    def ready(self, inputs: Sequence[Any], sizes: Mapping[str, int]) -> Ready:
        """What follows from shapes and strides on the current GPU, remembered for the next call with the same."""
        check_count(self.plan, inputs)
        named = zip(self.plan.arguments, inputs, strict=True)
        context = self.driver.context()
        key = (context, *(signature(spec.name, value) for spec, value in named), *sorted(sizes.items()))
        found = self._ready.get(key)
        if found is None:
            bound = bind(self.plan, input_layouts(self.plan, inputs), sizes)
            bound = bound.on_gpu(self._fits, overlaps=self.driver.overlaps())
            found = Ready(self._by_library(bound, context), context)
            with self._lock:
                if len(self._ready) >= _REMEMBERED:
                    self._ready.clear()
                self._ready[key] = found
        return found

    def _by_library(self, bound: Bound, context: int) -> Bound:
        """With the products that cuBLAS makes."""
        wanted = [launch.kernel for launch in self.plan.possible_launches if launch.product]
        if not wanted:
            return bound
        cublas = self.cublas

        def planned_of(product: Product) -> Planned | None:
            return None if isinstance(cublas, str) else cublas.planned(product.gemm, product.rank, context)

        found = bound.by_library(planned_of, len(self.plan.arguments))
        for launch in found.launches:
            if launch.kernel in wanted and not launch.planned:
                self.kept[launch.kernel] = cublas if isinstance(cublas, str) else f"{cublas} has no such product"
        return found

    @property
    def cublas(self) -> Cublas | str:
        """The library that makes products, or why there is none."""
        return shared_cublas() if self._cublas is None else self._cublas

    def count(self, ready: Ready, addresses: list[int], owners: list[Any], stream: int, allocate: Allocator) -> None:
        """Put in where the counters of the next launches on ``stream`` are."""
        if ready.bound.zeroed:
            self.driver.enter(ready.context)
        for root, size in ready.bound.zeroed:
            found = self._counters.address(size, stream, ready.context)
            if found is None:
                found, owners[root] = _allocated(*ready.bound.allocated[root - len(self.plan.arguments)], allocate)
                self.driver.fill_zeros(found, size, stream)
            addresses[root] = found

    def counter(self, size: int, stream: int, context: int) -> int | None:
        """Where those are, of up to ``size`` bytes each, of a stream that captures no graph; None before the first."""
        return self._counters.kept(size, stream, context)

    def _slot(self, ready: Ready, roots: int) -> Slot:
        self.driver.enter(ready.context)
        launchers = [self._launcher(launch, ready.context) for launch in ready.bound.launches]
        return Slot(ready.bound, launchers, self._map, roots)

    def _launcher(self, launch: BoundLaunch, context: int) -> Launcher | ProductLauncher:
        if launch.planned:
            return ProductLauncher(self.driver, launch.planned, context, launch.kernel)
        kernel = self.kernels[launch.kernel]
        x, y, z = (*self._grid(launch, kernel), 1, 1)[:3]
        function, threads = self._function(kernel), _WARP * kernel.num_warps
        flags = launch.overlaps, launch.cooperative
        shape = Shape(kernel.name, function, context, (x * kernel.num_ctas, y, z), threads, kernel.shared, *flags)
        return Launcher(self.driver, shape, launch.image)

    def _map(self, launch: BoundLaunch, entry: Described, number: int, address: int) -> TensorMap:
        """The tensor map at an address; an empty tensor's is never read."""
        if is_empty(entry.tensor):
            return TensorMap()
        box = self.kernels[launch.kernel].boxes[number]
        return self.driver.tensor_map(entry.name, address, entry.dtype, entry.tensor, box)

    def _grid(self, launch: BoundLaunch, kernel: Kernel) -> tuple[int, ...]:
        """The blocks to launch: of a persistent one at most as many as the current GPU runs at once."""
        if not launch.persistent:
            return launch.grid
        tiles = math.prod(launch.grid)
        return (min(tiles, self._room(kernel) or tiles),)

    def _room(self, kernel: Kernel) -> int:
        """How many blocks the current GPU runs at once; 0 if that is not to be had."""
        return self.driver.resident_blocks(self._function(kernel), _WARP * kernel.num_warps, kernel.shared)

    def _fits(self, launch: BoundLaunch) -> bool:
        """Whether the current GPU can run all blocks of a launch at once."""
        kernel = self.kernels[launch.kernel]
        return math.prod(launch.grid) * kernel.num_ctas <= self._room(kernel)

    def load(self) -> None:
        """Load all kernels into the current context, which the first call would do otherwise."""
        for kernel in self.kernels.values():
            self._function(kernel)

    def _function(self, kernel: Kernel) -> int:
        key = (self.driver.context(), kernel.name)
        found = self._functions.get(key)
        if found is None:
            with self._lock:
                if key not in self._functions:
                    self._functions[key] = self._loaded(kernel)
                found = self._functions[key]
        return found

    def _loaded(self, kernel: Kernel) -> int:
        """Load a kernel and compare its parameters with the plan's arguments."""
        function = self.driver.load(kernel.cubin, kernel.name, kernel.shared)
        sizes = self.driver.parameter_sizes(function)
        for launch in self.plan.possible_launches:
            wanted = [PARAMETER_BYTES[text.partition(":")[0]] for text in launch.arguments] + [8] * SCRATCH_POINTERS
            if launch.kernel == kernel.name and sizes not in (None, wanted):
                text = f"kernel {kernel.name} takes parameters of {sizes} bytes; the plan gives it {wanted}"
                raise CleaveError(text, notes=("plan and cubin are from different compilations",))
        return function


def _check_kernel(launch: Launch, kernels: Mapping[str, Kernel]) -> None:
    kernel = kernels.get(launch.kernel)
    if kernel is None:
        raise CleaveError(f"there is no kernel '{launch.kernel}'", notes=(f"kernels: {', '.join(kernels) or 'none'}",))
    if kernel.scratch:
        text = f"kernel {kernel.name} needs {kernel.scratch} bytes of scratch memory"
        raise CleaveError(f"{text}, which is not supported")
    described = sum(text.startswith(DESCRIPTOR) for text in launch.arguments)
    if described != len(kernel.boxes):
        text = f"kernel {kernel.name} has boxes for {len(kernel.boxes)} descriptors; the plan gives it {described}"
        raise CleaveError(text, notes=("plan and cubin are from different compilations",))
    for text in launch.arguments:
        if text.partition(":")[0] not in PARAMETER_BYTES:
            raise CleaveError(f"an argument of kernel {kernel.name} is described by '{text}', which is not known")


def _results(bound: Bound, owners: Sequence[Any]) -> list[Any]:
    return [place.of(owners[place.root]) for place in bound.results]


def _allocated(spec: TensorSpec, shape: tuple[int, ...], allocate: Allocator) -> tuple[int, Any]:
    owner = allocate(shape, spec.dtype)
    layout, dtype = layout_of(spec.name, owner)
    if dtype != spec.dtype or layout.shape != shape or not layout.is_row_major:
        raise CleaveError(f"the allocator gave {dtype}{list(layout.shape)} for {spec} of shape {list(shape)}")
    return aligned_address(spec.name, owner), owner
