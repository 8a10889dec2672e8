"""Tensors behind DLPack, read from the capsule: an address, a shape, strides and an element type.

Source: the header of DLPack 1.0 (``DLManagedTensor``), whose first member is the ``DLTensor``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cleave.errors import CleaveError, a_kind_of
from cleave.runtime.layout import Layout

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_DTYPES = {
    (2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16", (6, 8): "bool",
    (0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64",
}  # fmt: skip
"""(code, bits) of a DLDataType with one lane, as PyTorch spells the type."""

_TENSORS = "arrays, or objects with __dlpack__ and __dlpack_device__, are"


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def is_on_host(value: Any) -> bool:
    """Whether a tensor's memory is the host's. CleaveError for what is no tensor."""
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) in (CPU, CUDA_HOST)
    if hasattr(value, "__cuda_array_interface__"):
        return False
    if hasattr(value, "__array_interface__"):
        return True
    raise CleaveError(f"{a_kind_of(value)} is no tensor", notes=(_TENSORS,))


def on_host(number: int, value: Any) -> Any:
    """Argument ``number``, in the host's memory: itself if it is an array, or NumPy's array of its memory.

    CleaveError where whatever owns the memory does not give it out.
    """
    return value if hasattr(value, "__array__") else _given_out(number, value, _numpy_array)


@dataclass(frozen=True)
class DlpackTensor:
    """Memory on a GPU, with the methods of PyTorch's tensors that the launcher asks for; ``owner`` keeps it alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    owner: Any

    def data_ptr(self) -> int:
        return self.address

    def stride(self) -> tuple[int, ...]:
        return self.strides

    @staticmethod
    def of(number: int, value: Any) -> Any:
        """Argument ``number`` as such a tensor; what has ``__cuda_array_interface__`` stays as it is."""
        if hasattr(value, "__cuda_array_interface__"):
            return value
        capsule = _given_out(number, value, lambda owner: owner.__dlpack__())
        tensor = _contents(capsule)
        dtype = _DTYPES.get((tensor.code, tensor.bits))
        if dtype is None or tensor.lanes != 1 or tensor.device_type not in (CUDA, CUDA_MANAGED):
            kind = f"type ({tensor.code}, {tensor.bits}, {tensor.lanes}) on device type {tensor.device_type}"
            raise CleaveError(f"argument {number} is a DLPack tensor of {kind}, which is not supported")
        shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
        strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
        address = (tensor.data or 0) + tensor.byte_offset
        return DlpackTensor(address, shape, strides or Layout.row_major(shape).strides, dtype, capsule)


def _numpy_array(value: Any) -> Any:
    import numpy as np

    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)


def _given_out(number: int, value: Any, how: Callable[[Any], Any]) -> Any:
    try:
        return how(value)
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError) as error:  # a library's own choice
        text = f"argument {number}, {a_kind_of(value)}, does not give out its memory: {error}"
        raise CleaveError(text, notes=(_TENSORS,)) from None


def _contents(capsule: Any) -> _DLTensor:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return _DLTensor.from_address(get(capsule, b"dltensor"))
