"""Scalar meaning: how numbers are stored, computed and rounded in each of the two precisions.

"f64" is the program over the real numbers, as near as f64 comes: every float is an f64 and a cast between float types
is the identity, except that of a literal (see ``literal``). Integers are exact in both.

"declared" is the program in its own types: a pointwise op is computed in f32 (in f64 for f64) and rounded once to the
type of its result, as are sums and contractions after they were accumulated in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np

from cleave.dialects.tensor_type import is_float
from cleave.errors import CleaveError

Precision = Literal["f64", "declared"]
Array = np.ndarray[Any, Any]

_STORAGE: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "tf32": np.float32,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
}  # fmt: skip


def storage(dtype: str) -> np.dtype[Any]:
    """The NumPy type that holds ``dtype`` exactly (tf32: f32). CleaveError for a type that we do not know."""
    if dtype not in _STORAGE:
        raise CleaveError(f"element type {dtype} is not supported")
    return np.dtype(_STORAGE[dtype])


def round_tf32(x: Array) -> Array:
    """f32 values rounded to nearest even with 10 bits of mantissa."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    kept = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), kept.view(np.float32), x)


class Numerics:
    """Storage, arithmetic and rounding for one precision."""

    def __init__(self, precision: Precision) -> None:
        if precision not in ("f64", "declared"):
            raise CleaveError(f"precision '{precision}' is not one of f64, declared")
        self.precision = precision

    def storage(self, dtype: str) -> np.dtype[Any]:
        """The type in which values of ``dtype`` are held."""
        real = self.precision == "f64" and is_float(dtype)
        return np.dtype(np.float64) if real else storage(dtype)

    def compute(self, dtype: str) -> np.dtype[Any]:
        """The type in which an op with result ``dtype`` is computed and sums are accumulated."""
        if not is_float(dtype):
            return storage(dtype)
        return np.dtype(np.float64 if self.precision == "f64" or dtype == "f64" else np.float32)

    def round(self, x: Array, dtype: str) -> Array:
        """A computed value as a value of ``dtype``."""
        if dtype == "tf32" and self.precision == "declared":
            return round_tf32(x)
        return np.asarray(x).astype(self.storage(dtype), copy=False)

    def literal(self, value: float | int | bool, dtype: str) -> Array:
        """A literal of the program. It has its own type's rounding in both precisions: the program says that number."""
        rounded = round_tf32(np.asarray(value)) if dtype == "tf32" else np.asarray(value).astype(storage(dtype))
        return rounded.astype(self.storage(dtype))

    def pointwise(self, name: str, operands: Sequence[Array], dtype: str) -> Array:
        """The op ``name`` of ``FUNCTIONS`` with a result of ``dtype``."""
        compute = self.compute(dtype)
        function = FUNCTIONS[name] if is_float(dtype) or name not in INTEGER_FUNCTIONS else INTEGER_FUNCTIONS[name]
        return self.round(function(*(np.asarray(x).astype(compute, copy=False) for x in operands)), dtype)

    def cast(self, x: Array, source: str, target: str) -> Array:
        """Conversion: to nearest even, float to integer toward zero, i1 to 0 or 1, anything to i1 by being nonzero."""
        if is_float(source) and is_float(target):
            return self.round(x, target)
        if target == "i1":
            return np.asarray(x) != 0
        if is_float(source):
            return np.asarray(np.trunc(np.asarray(x, np.float64)), np.int64).astype(storage(target))
        return (
            self.round(np.asarray(x).astype(np.float64), target)
            if is_float(target)
            else np.asarray(x).astype(storage(target))
        )

    def poison(self, shape: Sequence[int], dtype: str) -> Array:
        """Memory that nobody has written: NaN, and the least integer."""
        if is_float(dtype):
            return np.full(shape, np.nan, self.storage(dtype))
        return np.full(shape, True if dtype == "i1" else np.iinfo(storage(dtype)).min, storage(dtype))


def _truncating_division(a: Array, b: Array) -> Array:
    quotient = a // b
    inexact = np.asarray((a % b != 0) & ((a < 0) != (b < 0)))
    return quotient + inexact.astype(quotient.dtype)


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), x.dtype)


def _fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64), a.dtype)


#: Functions of arrays of the compute type.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "exp": np.exp, "exp2": np.exp2, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "tanh": np.tanh, "erf": _erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin, "cos": np.cos, "abs": np.abs, "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "div": np.divide, "max": np.maximum, "min": np.minimum, "pow": np.power, "fma": _fused_multiply_add,
}  # fmt: skip

#: Where integers (i1 among them) differ.
INTEGER_FUNCTIONS: dict[str, Callable[..., Any]] = {"div": _truncating_division}

COMPARISONS: dict[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
