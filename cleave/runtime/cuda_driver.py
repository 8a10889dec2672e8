"""The few functions of the CUDA driver that launching needs, by ctypes."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cached_property, lru_cache
from typing import Any

from cleave.errors import CleaveError
from cleave.runtime.descriptors import Box
from cleave.runtime.layout import BYTES, Layout
from cleave.runtime.strided_copy import Rows

LIBRARY = "libcuda.so.1"
STATIC_SHARED = 48 * 1024
"""Bytes of dynamic shared memory that a kernel may use without asking."""

_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CUfunction_attribute
_POINTER_DEVICE_ORDINAL = 9  # CUpointer_attribute
_MULTIPROCESSOR_COUNT, _COMPUTE_CAPABILITY_MAJOR, _COOPERATIVE_LAUNCH = 16, 75, 95  # CUdevice_attribute
_INVALID_VALUE = 1
INVALID_CONTEXT = 201
"""What the driver answers to a thread that has no current context."""
_COMPUTE_CAPABILITY = (75, 76)  # CUdevice_attribute: major, minor
_Handle = c_void_p
_U64 = ctypes.POINTER(c_uint64)
_TENSOR_MAP_TYPES = {"f8E4M3FN": 0, "f8E5M2": 0, "f16": 6, "f32": 7, "bf16": 9}  # CUtensorMapDataType
_NOT_INTERLEAVED, _PROMOTION_TO_128_BYTES, _FILL_WITH_ZERO = 0, 2, 0

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorString": (c_int, ctypes.POINTER(c_char_p)),
    "cuCtxGetCurrent": (ctypes.POINTER(_Handle),),
    "cuCtxSetCurrent": (_Handle,),
    "cuCtxGetDevice": (ctypes.POINTER(c_int),),
    "cuDeviceGet": (ctypes.POINTER(c_int), c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(_Handle), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (ctypes.POINTER(c_int), c_int, c_int),
    "cuMemAlloc_v2": (_U64, c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuModuleLoadData": (ctypes.POINTER(_Handle), c_char_p),
    "cuModuleUnload": (_Handle,),
    "cuModuleGetFunction": (ctypes.POINTER(_Handle), _Handle, c_char_p),
    "cuFuncSetAttribute": (_Handle, c_int, c_int),
    "cuPointerGetAttribute": (c_void_p, c_int, ctypes.c_uint64),
    "cuLaunchKernel": (_Handle, *(c_uint,) * 7, _Handle, c_void_p, c_void_p),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (ctypes.POINTER(c_int), _Handle, c_int, c_size_t),
    "cuStreamIsCapturing": (_Handle, ctypes.POINTER(c_int)),
    "cuStreamSynchronize": (_Handle,),
    "cuMemcpy2DAsync_v2": (c_void_p, _Handle),
    "cuMemsetD32Async": (ctypes.c_uint64, c_uint, c_size_t, _Handle),
}
_TYPESTRS = {
    "f16": "<f2", "f32": "<f4", "f64": "<f8", "i1": "|b1", "i8": "|i1", "i16": "<i2", "i32": "<i4", "i64": "<i8",
}  # fmt: skip
_U32S, _U64S = ctypes.POINTER(c_uint), _U64
_OPTIONAL: dict[str, tuple[Any, ...]] = {
    "cuTensorMapEncodeTiled": (c_void_p, c_int, c_uint, c_void_p, _U64S, _U64S, _U32S, _U32S, *(c_int,) * 4),  # 12.0
    "cuFuncGetParamInfo": (_Handle, c_size_t, ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t)),  # since CUDA 12.4
    "cuLaunchKernelEx": (c_void_p, _Handle, c_void_p, c_void_p),  # since CUDA 11.8
}


_SIDE = (
    ("x", c_size_t), ("y", c_size_t), ("memory", c_int), ("host", c_void_p), ("device", c_uint64), ("array", c_void_p),
    ("pitch", c_size_t),
)  # fmt: skip


class _Copy(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (
        *((f"source_{name}", kind) for name, kind in _SIDE),
        *((f"target_{name}", kind) for name, kind in _SIDE),
        ("width", c_size_t),
        ("count", c_size_t),
    )


_DEVICE_MEMORY = 2  # CUmemorytype

_LOST = {700, 702, 710, *range(713, 722)}
"""A kernel read or wrote what it must not, ran too long, or failed: every later call of the process fails, too."""


class GpuLost(CleaveError):
    """This process can no longer use the GPU."""


class Driver:
    """The driver's library, initialised. CleaveError if it cannot be loaded, and from each call that fails."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            loaded = self._library = ctypes.CDLL(library)
            self._functions = {name: _function(loaded, name, types) for name, types in _SIGNATURES.items()}
        except (OSError, AttributeError) as error:
            notes = ("launching kernels needs an NVIDIA GPU and its driver",)
            raise CleaveError(f"the CUDA driver cannot be loaded: {error}", notes=notes) from None
        for name, types in _OPTIONAL.items():
            if hasattr(loaded, name):
                self._functions[name] = _function(loaded, name, types)
        self._call("start CUDA", "cuInit", 0)

    # --- contexts and modules ---

    def context(self, device: int | None = None) -> int:
        """The handle of the current context; where there is none, the primary one of ``device`` (or 0) becomes it."""
        handle = _Handle()
        self._call("find the context", "cuCtxGetCurrent", byref(handle))
        if not handle.value:
            number = c_int()
            self._call("find the GPU", "cuDeviceGet", byref(number), device or 0)
            self._call("make a context", "cuDevicePrimaryCtxRetain", byref(handle), number)
            self._call("enter the context", "cuCtxSetCurrent", handle)
        return handle.value or 0

    def enter(self, context: int) -> bool:
        """Make a context the current one if the thread has none; whether it had none."""
        handle = _Handle()
        self._call("find the context", "cuCtxGetCurrent", byref(handle))
        if handle.value:
            return False
        self._call("enter the context", "cuCtxSetCurrent", context)
        return True

    def current_device(self) -> int:
        """The ordinal of the current context's GPU."""
        number = c_int()
        self._call("find the GPU", "cuCtxGetDevice", byref(number))
        return number.value

    def architecture(self) -> str:
        """Of the current context's GPU: "sm_90"."""
        found = [c_int(), c_int()]
        for number, attribute in zip(found, _COMPUTE_CAPABILITY, strict=True):
            self._call("look at the GPU", "cuDeviceGetAttribute", byref(number), attribute, self.current_device())
        return f"sm_{found[0].value}{found[1].value}"

    def device_name(self) -> str:
        """Of the current context's GPU: "NVIDIA H200"."""
        name = ctypes.create_string_buffer(128)
        self._call("look at the GPU", "cuDeviceGetName", name, len(name), self.current_device())
        return name.value.decode(errors="replace")

    def array(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """New memory on the current GPU, freed when nobody refers to the array."""
        return DeviceArray(self, shape, dtype)

    def allocate(self, size: int) -> int:
        """The address of ``size`` bytes; 0 for none."""
        address = c_uint64()
        if size:
            self._call(f"allocate {size} bytes", "cuMemAlloc_v2", byref(address), size)
        return address.value

    def free(self, address: int) -> None:
        if address:
            self._call("free memory", "cuMemFree_v2", address)

    def load(self, cubin: bytes, name: str, shared: int) -> int:
        """Load a cubin into the current context; the handle of its kernel, allowed ``shared`` bytes of memory."""
        module, function = _Handle(), _Handle()
        self._call(f"load kernel {name}", "cuModuleLoadData", byref(module), cubin)
        self._call(f"find kernel {name}", "cuModuleGetFunction", byref(function), module, name.encode())
        if shared > STATIC_SHARED:
            what = f"give kernel {name} {shared} bytes of shared memory"
            self._call(what, "cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
        return function.value or 0

    def parameter_sizes(self, function: int) -> list[int] | None:
        """Bytes of each parameter of a kernel; None where the driver is too old to tell."""
        if "cuFuncGetParamInfo" not in self._functions:
            return None
        sizes: list[int] = []
        offset, size = c_size_t(), c_size_t()
        while True:
            status = self._functions["cuFuncGetParamInfo"](function, len(sizes), byref(offset), byref(size))
            if status == _INVALID_VALUE:
                return sizes
            self.check("read a kernel's parameters", status)
            sizes.append(size.value)

    # --- launches ---

    def device_of(self, address: int) -> int | None:
        """The ordinal of the GPU whose memory this is; None if it is no GPU's."""
        number = c_int()
        status = self._functions["cuPointerGetAttribute"](byref(number), _POINTER_DEVICE_ORDINAL, address)
        if status == _INVALID_VALUE:
            return None
        self.check("look at a pointer", status)
        return number.value

    def tensor_map(self, name: str, address: int, dtype: str, tensor: Layout, box: Box) -> TensorMap:
        """The descriptor of the tensor ``name`` at ``address``, its contiguous dim last, for copies of a box.

        CleaveError where the driver is too old or refuses it.
        """
        if "cuTensorMapEncodeTiled" not in self._functions:
            raise CleaveError("tensor descriptors need a driver for CUDA 12.0 or later")
        made, rank, width = TensorMap(), len(tensor.shape), BYTES[dtype]
        shape = (c_uint64 * rank)(*reversed(tensor.shape))
        strides = (c_uint64 * rank)(*(stride * width for stride in reversed(tensor.strides[:-1])))
        extents, steps = (c_uint * rank)(*reversed(box.extents)), (c_uint * rank)(*(1,) * rank)
        what = f"describe {name} of shape {list(tensor.shape)} with the strides {list(tensor.strides)}"
        modes = (_NOT_INTERLEAVED, box.swizzle, _PROMOTION_TO_128_BYTES, _FILL_WITH_ZERO)
        kind = _TENSOR_MAP_TYPES[dtype]
        self._call(what, "cuTensorMapEncodeTiled", made.address, kind, rank, address, shape, strides, extents, steps,
                   *modes)  # fmt: skip
        return made

    def resident_blocks(self, function: int, threads: int, shared: int) -> int:
        """How many blocks of a kernel the current GPU can run at once; 0 where it has no cooperative launches."""
        if "cuLaunchKernelEx" not in self._functions or not self._device_attribute(_COOPERATIVE_LAUNCH):
            return 0
        blocks = c_int()
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        self._call("count resident blocks", name, byref(blocks), function, threads, shared)
        return blocks.value * self._device_attribute(_MULTIPROCESSOR_COUNT)

    def overlaps(self) -> bool:
        """Whether a launch on the current GPU may start before the one ahead of it is complete."""
        return "cuLaunchKernelEx" in self._functions and self._device_attribute(_COMPUTE_CAPABILITY_MAJOR) >= 9

    def _device_attribute(self, attribute: int) -> int:
        value = c_int()
        self._call("ask the GPU", "cuDeviceGetAttribute", byref(value), attribute, self.current_device())
        return value.value

    def is_capturing(self, stream: int) -> bool:
        """Whether work on the stream goes into a graph."""
        status = c_int()
        self._call("look at the stream", "cuStreamIsCapturing", stream, byref(status))
        return status.value != 0

    def synchronise(self, stream: int) -> None:
        """Wait for all that was put on the stream."""
        self._call("wait for the stream", "cuStreamSynchronize", stream)

    def fill_zeros(self, address: int, size: int, stream: int) -> None:
        """Put zeros into ``size`` bytes, a multiple of 4."""
        self._call("put zeros into memory", "cuMemsetD32Async", address, 0, size // 4, stream)

    def copy_rows(self, target: int, source: int, rows: Rows, stream: int) -> None:
        """Copy rows between tensors in the GPU's memory."""
        copy = _Copy(
            source_memory=_DEVICE_MEMORY,
            source_device=source + rows.source,
            source_pitch=rows.source_pitch,
            target_memory=_DEVICE_MEMORY,
            target_device=target + rows.target,
            target_pitch=rows.target_pitch,
            width=rows.width,
            count=rows.count,
        )
        self._call("copy a tensor", "cuMemcpy2DAsync_v2", byref(copy), stream)

    @cached_property
    def launch_functions(self) -> tuple[Any, Any]:
        """cuLaunchKernelEx, or None where the driver is too old for it, and cuLaunchKernel.

        They take arguments that are ctypes' own: without types to convert to, a call takes half the time.
        """
        extended = self._library["cuLaunchKernelEx"] if "cuLaunchKernelEx" in self._functions else None
        return extended, self._library["cuLaunchKernel"]

    def _call(self, what: str, name: str, *arguments: Any) -> None:
        self.check(what, self._functions[name](*arguments))

    def check(self, what: str, status: int) -> None:
        """CleaveError, that it cannot do ``what``, unless the driver said that it has."""
        if status:
            text = c_char_p()
            self._functions["cuGetErrorString"](status, byref(text))
            reason = (text.value or b"unknown error").decode(errors="replace")
            kind = GpuLost if status in _LOST else CleaveError
            raise kind(f"cannot {what}: {reason} (CUDA error {status})")


class DeviceArray:
    """A row-major tensor in a GPU's memory, with the methods that the launcher asks for.

    Other libraries read it by ``__cuda_array_interface__``, for element types that NumPy has.
    """

    def __init__(self, driver: Driver, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype, self._driver = shape, dtype, driver
        self._address = driver.allocate(Layout.row_major(shape).count * BYTES[dtype])
        self._free = weakref.finalize(self, driver.free, self._address)

    def data_ptr(self) -> int:
        return self._address

    def stride(self) -> tuple[int, ...]:
        return Layout.row_major(self.shape).strides

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype not in _TYPESTRS:
            raise AttributeError(f"__cuda_array_interface__ cannot describe elements of {self.dtype}")
        return {"shape": self.shape, "typestr": _TYPESTRS[self.dtype], "data": (self._address, False), "version": 3}


class TensorMap:
    """A CUtensorMap: 128 bytes at a multiple of 64."""

    BYTES, ALIGNMENT = 128, 64

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(self.BYTES + self.ALIGNMENT)
        self.address = -(-ctypes.addressof(self._memory) // self.ALIGNMENT) * self.ALIGNMENT


def _function(library: ctypes.CDLL, name: str, types: tuple[Any, ...]) -> Any:
    function = getattr(library, name)
    function.argtypes, function.restype = list(types), c_int
    return function


@lru_cache(maxsize=1)
def shared_driver() -> Driver:
    """The process's driver, loaded at the first call."""
    return Driver()
