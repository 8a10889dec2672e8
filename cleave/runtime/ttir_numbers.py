"""TTIR's element types as NumPy dtypes, and the roundings between them as the hardware does them.

Integers are kept signed (two's complement), ``i1`` as bool, ``index`` as int64, pointers as int64 byte addresses;
bf16 and the 8-bit floats are ml_dtypes'. Scalars are NumPy scalars, tiles NumPy arrays: both are called ``Array`` here.
"""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttir_ir import DenseElements, PointerType, ScalarType, TensorType, Type

Array = Any  # np.ndarray or np.generic, with the dtype that the value's type says.
DType = np.dtype[Any]

DTYPES: dict[str, DType] = {
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "index": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
BOOL = DTYPES["i1"]
FLOAT32 = DTYPES["f32"]
FLOAT64 = DTYPES["f64"]
EIGHT_BIT_FLOATS = (DTYPES["f8E4M3FN"], DTYPES["f8E5M2"])
FLOATS = frozenset(DTYPES[name] for name in ("f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2"))
ADDRESS = np.dtype(np.int64)


def element_type(type_: Type) -> Type:
    return type_.element if isinstance(type_, TensorType) else type_


def dtype_of(type_: Type) -> DType:
    """The dtype of a scalar's, pointer's or tile's elements; CleaveError for a type without one."""
    element = element_type(type_)
    if isinstance(element, PointerType):
        return ADDRESS
    if isinstance(element, ScalarType):
        name = element.name.removeprefix("s").removeprefix("u")
        if name in DTYPES:
            return DTYPES[name]
    raise CleaveError(f"the interpreter has no values of type {element}")


def unsigned(dtype: DType) -> DType:
    return np.dtype(f"u{dtype.itemsize}")


def wrap(value: int, dtype: DType) -> int:
    """The Python integer that ``value`` becomes in two's complement."""
    bits = 8 * dtype.itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def scalar(value: float | bool, dtype: DType) -> Array:
    """A NumPy scalar of ``dtype``; integers wrap."""
    if dtype == BOOL:
        return np.bool_(bool(value))
    return dtype.type(value if dtype in FLOATS else wrap(int(value), dtype))


def dense(elements: DenseElements) -> Array:
    dtype, shape = dtype_of(elements.type), elements.type.shape
    values = elements.values
    if isinstance(values, bytes):
        return _from_bytes(values, dtype, shape)
    if len(values) == 1:
        return np.broadcast_to(np.asarray(scalar(values[0], dtype)), shape)
    return np.array([scalar(value, dtype) for value in values], dtype).reshape(shape)


def _from_bytes(blob: bytes, dtype: DType, shape: tuple[int, ...]) -> Array:
    """MLIR's hexadecimal form: the elements' bytes (booleans: bits), or those of one element for a splat."""
    if dtype == BOOL:
        flat = np.unpackbits(np.frombuffer(blob, np.uint8), bitorder="little").astype(BOOL)
        flat = flat[: int(np.prod(shape))]
    else:
        if len(blob) % dtype.itemsize:
            raise CleaveError(f"{len(blob)} bytes hold no whole number of {dtype} elements")
        flat = np.frombuffer(blob, dtype)
    return np.broadcast_to(flat, shape) if flat.size == 1 else flat.reshape(shape)


def poison(dtype: DType) -> Array:
    """What undefined elements hold, so that tests see it used: NaN, a far-off integer, true."""
    if dtype in FLOATS:
        return dtype.type(float("nan"))
    if dtype == BOOL:
        return np.bool_(True)
    return dtype.type(wrap(int.from_bytes(b"\xa5" * dtype.itemsize, "little"), dtype))


def convert_float(x: Array, dtype: DType, toward_zero: bool = False) -> Array:
    """Float to float. To 8 bits, finite values too large saturate, as ``cvt.satfinite`` does; infinities as well."""
    if x.dtype == dtype:
        return x
    if dtype in EIGHT_BIT_FLOATS and x.dtype not in EIGHT_BIT_FLOATS:
        limit = x.dtype.type(ml_dtypes.finfo(dtype).max)
        x = np.where(np.isnan(x), x, np.clip(x, -limit, limit)).astype(x.dtype)[()]
    rounded = x.astype(dtype)
    return _step_back(x, rounded) if toward_zero else rounded


def _step_back(x: Array, rounded: Array) -> Array:
    """``rounded``, one step nearer zero wherever rounding to nearest went away from it."""
    bits = np.asarray(rounded).view(unsigned(rounded.dtype))
    too_far = np.abs(np.asarray(rounded).astype(FLOAT64)) > np.abs(np.asarray(x).astype(FLOAT64))
    return (bits - too_far.astype(bits.dtype)).view(rounded.dtype)[()]


def float_to_signed(x: Array, dtype: DType) -> Array:
    """Toward zero, saturating, NaN to 0: PTX's ``cvt.rzi``."""
    bits = 8 * dtype.itemsize
    return _float_to_integer(x, dtype, -(2 ** (bits - 1)), 2 ** (bits - 1))


def float_to_unsigned(x: Array, dtype: DType) -> Array:
    return _float_to_integer(x, unsigned(dtype), 0, 2 ** (8 * dtype.itemsize)).view(dtype)


def _float_to_integer(x: Array, dtype: DType, low: int, end: int) -> Array:
    wide = np.trunc(np.asarray(x).astype(FLOAT64))
    inside = (wide >= low) & (wide < end)
    result = np.where(inside, wide, 0).astype(dtype)
    result = np.where(wide >= end, dtype.type(end - 1), result)
    return np.where(wide < low, dtype.type(low), result)[()]


def round_to_tf32(x: Array) -> Array:
    """f32 cut to 10 mantissa bits toward zero, as the tensor cores read an f32 operand in tf32 mode."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(FLOAT32)


def dot(a: Array, b: Array, c: Array, tf32: bool) -> Array:
    """``a @ b + c`` for tiles [m, k] and [k, n] (or batches of them).

    Products and sums in f32 (f64 for f64), rounded once to the type of ``c``; for i8, exact and wrapped to i32.
    """
    if a.dtype.kind == "i":
        exact = np.matmul(a.astype(FLOAT64), b.astype(FLOAT64))  # Below 2^53 for k < 2^39.
        return c + exact.astype(np.int64).astype(c.dtype)
    wide = FLOAT64 if a.dtype == FLOAT64 else FLOAT32
    if tf32 and a.dtype == FLOAT32:
        a, b = round_to_tf32(a), round_to_tf32(b)
    product = np.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False))
    return (product + c.astype(wide, copy=False)).astype(c.dtype, copy=False)
