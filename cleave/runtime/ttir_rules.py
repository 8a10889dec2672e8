"""The semantics of TTIR's operations on values: one rule per op, in the table ``PURE_RULES``.

A rule takes the operation (for its attributes and types) and returns the function from operand values to the result
value (a tuple for several results). Rules raise ``CleaveError`` without a place; the interpreter adds op and line.
Operations on memory, on the grid and with regions are elsewhere (``ttir_memory_rules``, ``ttir_interpreter``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttir_ir import DenseElements, Operation, PointerType, TensorType
from cleave.runtime.ttir_libdevice import LIBDEVICE, in_f32, math_unary
from cleave.runtime.ttir_numbers import (
    BOOL,
    FLOAT64,
    Array,
    convert_float,
    dense,
    dot,
    dtype_of,
    element_type,
    float_to_signed,
    float_to_unsigned,
    poison,
    scalar,
    unsigned,
)

Evaluate = Callable[..., Any]
Rule = Callable[[Operation], Evaluate]


def attribute(op: Operation, name: str, default: Any = None) -> Any:
    """An attribute's value; without a default a missing one is an error."""
    value = op.attributes.get(name, default)
    if value is None:
        raise CleaveError(f"the attribute '{name}' is missing")
    return value


def shape_of(op: Operation) -> tuple[int, ...]:
    type_ = op.results[0].type
    return type_.shape if isinstance(type_, TensorType) else ()


# Ways to make a rule from a NumPy function


def plain(function: Evaluate) -> Rule:
    return lambda op: function


def integer(function: Evaluate) -> Rule:
    """On signed integers; ``i1`` is computed as 0 and -1 in i8."""

    def bits(*operands: Array) -> Array:
        return (np.asarray(function(*(-(x.astype(np.int8)) for x in operands))) & 1).astype(BOOL)[()]

    return lambda op: bits if dtype_of(op.operands[-1].type) == BOOL else function


def as_unsigned(function: Evaluate) -> Rule:
    """On the operands' bits as unsigned numbers."""

    def on_views(*operands: Array) -> Array:
        signed = operands[0].dtype
        result = function(*(x.view(unsigned(signed)) for x in operands))
        return result if result.dtype == BOOL else result.view(signed)

    return integer(on_views)


def _nonzero(divisor: Array) -> None:
    if not np.all(divisor):
        raise CleaveError("integer division by zero")


def division(function: Evaluate) -> Evaluate:
    def checked(a: Array, b: Array) -> Array:
        _nonzero(b)
        return function(a, b)

    return checked


def _divide_truncating(a: Array, b: Array) -> Array:
    return (a - np.fmod(a, b)) // b


def _divide_up(a: Array, b: Array) -> Array:
    return a // b + (np.mod(a, b) != 0).astype(a.dtype)


# Comparisons


_INTEGER_PREDICATES: tuple[Rule, ...] = (
    integer(np.equal), integer(np.not_equal),
    integer(np.less), integer(np.less_equal), integer(np.greater), integer(np.greater_equal),
    as_unsigned(np.less), as_unsigned(np.less_equal), as_unsigned(np.greater), as_unsigned(np.greater_equal),
)  # fmt: skip


def _negated(function: Evaluate) -> Evaluate:
    return lambda a, b: ~function(a, b)


def _unordered(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def _ordered_unequal(a: Array, b: Array) -> Array:
    return np.less(a, b) | np.greater(a, b)


_FLOAT_PREDICATES: tuple[Evaluate, ...] = (
    lambda a, b: np.zeros(np.shape(a), BOOL)[()],
    np.equal, np.greater, np.greater_equal, np.less, np.less_equal, _ordered_unequal, _negated(_unordered),
    _negated(_ordered_unequal), _negated(np.less_equal), _negated(np.less), _negated(np.greater_equal),
    _negated(np.greater), np.not_equal, _unordered,
    lambda a, b: np.ones(np.shape(a), BOOL)[()],
)  # fmt: skip


def _predicate(op: Operation, count: int) -> int:
    predicate = attribute(op, "predicate")
    if not isinstance(predicate, int) or not 0 <= predicate < count:
        raise CleaveError(f"predicate {predicate} does not exist")
    return predicate


def _compare_integers(op: Operation) -> Evaluate:
    return _INTEGER_PREDICATES[_predicate(op, len(_INTEGER_PREDICATES))](op)


def _compare_floats(op: Operation) -> Evaluate:
    return _FLOAT_PREDICATES[_predicate(op, len(_FLOAT_PREDICATES))]


def _select(condition: Array, a: Array, b: Array) -> Array:
    if isinstance(condition, np.bool_):
        return a if condition else b
    return np.where(condition, a, b)


# Conversions


def converting(function: Callable[[Array, np.dtype[Any]], Array]) -> Rule:
    def rule(op: Operation) -> Evaluate:
        dtype = dtype_of(op.results[0].type)
        return lambda x: function(x, dtype)

    return rule


def _sign_extend(x: Array, dtype: np.dtype[Any]) -> Array:
    return -x.astype(np.int8).astype(dtype) if x.dtype == BOOL else x.astype(dtype)


def _zero_extend(x: Array, dtype: np.dtype[Any]) -> Array:
    return (x if x.dtype == BOOL else x.view(unsigned(x.dtype))).astype(dtype)


def _truncate(x: Array, dtype: np.dtype[Any]) -> Array:
    return (x & 1).astype(BOOL) if dtype == BOOL else x.astype(dtype)


def _cast_index(x: Array, dtype: np.dtype[Any]) -> Array:
    return _truncate(x, dtype) if dtype == BOOL else _sign_extend(x, dtype)


def _bitcast(x: Array, dtype: np.dtype[Any]) -> Array:
    if x.dtype.itemsize != dtype.itemsize:
        raise CleaveError(f"a bitcast between {x.dtype} and {dtype}, of different sizes")
    return x.view(dtype)


def _round_float(mode_name: str, modes: dict[int, bool]) -> Rule:
    """A float conversion whose rounding attribute says to nearest or (True in ``modes``) toward zero."""

    def rule(op: Operation) -> Evaluate:
        dtype = dtype_of(op.results[0].type)
        mode = op.attributes.get(mode_name)
        if mode is not None and (not isinstance(mode, int) or mode not in modes):
            raise CleaveError(f"rounding mode {mode} is not supported")
        toward_zero = modes[mode] if isinstance(mode, int) else False
        return lambda x: convert_float(x, dtype, toward_zero)

    return rule


# Floats


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    wide = np.longdouble if a.dtype == FLOAT64 else FLOAT64
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)


def _clamp(op: Operation) -> Evaluate:
    keeps_nan = op.attributes.get("propagateNan", 0) != 0
    low, high = (np.maximum, np.minimum) if keeps_nan else (np.fmax, np.fmin)
    return lambda x, a, b: high(low(x, a), b)


def _extern(op: Operation) -> Evaluate:
    symbol = attribute(op, "symbol")
    function = LIBDEVICE.get(symbol)
    if function is None:
        raise CleaveError(f"the library function '{symbol}' is not known to the interpreter")
    return function


# Wide integer products


def _multiply_high(a: Array, b: Array) -> Array:
    """The high half of the product of two unsigned tiles, by half words."""
    half = 4 * a.dtype.itemsize
    shift, low = a.dtype.type(half), a.dtype.type((1 << half) - 1)
    a_low, a_high, b_low, b_high = a & low, a >> shift, b & low, b >> shift
    middle = a_high * b_low + (a_low * b_low >> shift)
    cross = a_low * b_high + (middle & low)
    return a_high * b_high + (middle >> shift) + (cross >> shift)


def _multiply_extended_unsigned(a: Array, b: Array) -> tuple[Array, Array]:
    wide = unsigned(a.dtype)
    return a * b, _multiply_high(a.view(wide), b.view(wide)).view(a.dtype)


def _multiply_extended_signed(a: Array, b: Array) -> tuple[Array, Array]:
    low, high = _multiply_extended_unsigned(a, b)
    zero = a.dtype.type(0)
    return low, high - np.where(a < 0, b, zero) - np.where(b < 0, a, zero)


def _add_extended(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    return total, total.view(unsigned(a.dtype)) < a.view(unsigned(a.dtype))


# Tiles


def _constant(op: Operation) -> Evaluate:
    value = attribute(op, "value")
    if isinstance(value, DenseElements):
        array = dense(value)
    elif isinstance(value, (bool, int, float)):
        array = scalar(value, dtype_of(op.results[0].type))
    else:
        raise CleaveError(f"a constant of {value}")
    return lambda: array


def _undefined(op: Operation) -> Evaluate:
    value, shape = poison(dtype_of(op.results[0].type)), shape_of(op)
    return lambda: np.broadcast_to(np.asarray(value), shape) if shape else value


def _make_range(op: Operation) -> Evaluate:
    tile = np.arange(attribute(op, "start"), attribute(op, "end"), dtype=np.int32)
    return lambda: tile


def _splat(op: Operation) -> Evaluate:
    shape = shape_of(op)
    return lambda x: np.broadcast_to(np.asarray(x), shape)


def _unsplat(x: Array) -> Array:
    return x.reshape(-1)[0]


def _expand_dims(op: Operation) -> Evaluate:
    axis = attribute(op, "axis")
    if not 0 <= axis <= len(shape_of(op)) - 1:
        raise CleaveError(f"axis {axis} is out of range")
    index = (*(slice(None),) * axis, None)
    return lambda x: x[index]


def _reshape(op: Operation) -> Evaluate:
    shape = shape_of(op)
    return lambda x: x.reshape(shape)


def _transpose(op: Operation) -> Evaluate:
    order = attribute(op, "order")
    return lambda x: np.transpose(x, order)


def _split(x: Array) -> tuple[Array, Array]:
    return x[..., 0], x[..., 1]


def _gather(op: Operation) -> Evaluate:
    axis = attribute(op, "axis")

    def gather(source: Array, indices: Array) -> Array:
        extent = source.shape[axis]
        if indices.min() < 0 or indices.max() >= extent:
            wrong = indices[(indices < 0) | (indices >= extent)]
            raise CleaveError(f"index {int(wrong.flat[0])} is outside the axis of extent {extent}")
        return np.take_along_axis(source, indices.astype(np.int64), axis)

    return gather


def _histogram(op: Operation) -> Evaluate:
    bins = shape_of(op)[0]

    def histogram(x: Array, mask: Array | None = None) -> Array:
        counted = x if mask is None else x[mask]
        return np.bincount(counted[(counted >= 0) & (counted < bins)], minlength=bins).astype(np.int32)

    return histogram


def _pointee_size(op: Operation) -> int:
    pointer = element_type(op.operands[0].type)
    if not isinstance(pointer, PointerType):
        raise CleaveError(f"a pointer is expected, not {op.operands[0].type}")
    return dtype_of(pointer.pointee).itemsize


def _add_pointer(op: Operation) -> Evaluate:
    size = np.int64(_pointee_size(op))
    return lambda pointer, offset: pointer + offset.astype(np.int64) * size


def _dot(op: Operation) -> Evaluate:
    precision = op.attributes.get("inputPrecision", 2)
    if not isinstance(precision, int) or not 0 <= precision <= 4:
        raise CleaveError(f"input precision {precision} does not exist")
    tf32 = precision == 0  # tf32x3, ieee, bf16x3 and bf16x6 are all taken as f32.
    a, b, c = (cast(TensorType, value.type).shape for value in op.operands)
    if a[:-2] != b[:-2] or a[-1] != b[-2] or c != (*a[:-1], b[-1]):
        raise CleaveError(f"tiles {list(a)} and {list(b)} do not multiply into {list(c)}")
    return lambda a, b, c: dot(a, b, c, tf32)


def _assume(condition: Array) -> tuple[()]:
    if not np.all(condition):
        raise CleaveError("the assumption is false")
    return ()


def _assert(op: Operation) -> Evaluate:
    message = op.attributes.get("message", "")

    def check(condition: Array) -> tuple[()]:
        if not np.all(condition):
            raise CleaveError(f"assertion failed: {message}")
        return ()

    return check


def _nothing(*operands: Array) -> tuple[()]:
    return ()


_TO_NEAREST_OR_ZERO = {0: False, 3: True}  # arith.RoundingMode
_TRITON_ROUNDINGS = {0: True, 1: False}  # tt.RoundingMode

PURE_RULES: dict[str, Rule] = {
    # Integers
    "arith.constant": _constant,
    "arith.addi": integer(np.add),
    "arith.subi": integer(np.subtract),
    "arith.muli": integer(np.multiply),
    "arith.divsi": integer(division(_divide_truncating)),
    "arith.divui": as_unsigned(division(np.floor_divide)),
    "arith.remsi": integer(division(np.fmod)),
    "arith.remui": as_unsigned(division(np.fmod)),
    "arith.floordivsi": integer(division(np.floor_divide)),
    "arith.ceildivsi": integer(division(_divide_up)),
    "arith.ceildivui": as_unsigned(division(_divide_up)),
    "arith.andi": plain(np.bitwise_and),
    "arith.ori": plain(np.bitwise_or),
    "arith.xori": plain(np.bitwise_xor),
    "arith.shli": integer(np.left_shift),  # NumPy, as PTX, gives 0 for amounts of the width or more.
    "arith.shrsi": integer(np.right_shift),
    "arith.shrui": as_unsigned(np.right_shift),
    "arith.minsi": integer(np.minimum),
    "arith.maxsi": integer(np.maximum),
    "arith.minui": as_unsigned(np.minimum),
    "arith.maxui": as_unsigned(np.maximum),
    "arith.mulsi_extended": plain(_multiply_extended_signed),
    "arith.mului_extended": plain(_multiply_extended_unsigned),
    "arith.addui_extended": plain(_add_extended),
    "arith.cmpi": _compare_integers,
    "arith.select": plain(_select),
    "math.absi": integer(np.abs),
    "tt.mulhiui": as_unsigned(_multiply_high),
    # Floats
    "arith.addf": plain(np.add),
    "arith.subf": plain(np.subtract),
    "arith.mulf": plain(np.multiply),
    "arith.divf": plain(np.divide),
    "arith.remf": plain(np.fmod),
    "arith.negf": plain(np.negative),
    "arith.maximumf": plain(np.maximum),
    "arith.minimumf": plain(np.minimum),
    "arith.maxnumf": plain(np.fmax),
    "arith.minnumf": plain(np.fmin),
    "arith.cmpf": _compare_floats,
    "tt.clampf": _clamp,
    "tt.precise_divf": plain(np.divide),
    "tt.precise_sqrt": plain(np.sqrt),
    "tt.extern_elementwise": _extern,
    "math.fma": plain(fused_multiply_add),
    "math.powf": plain(in_f32(np.power)),
    "math.atan2": plain(in_f32(np.arctan2)),
    "math.copysign": plain(in_f32(np.copysign)),
    **{f"math.{name}": plain(math_unary(name)) for name in (
        "absf", "ceil", "floor", "trunc", "round", "roundeven", "sqrt", "rsqrt", "cbrt", "exp", "exp2", "expm1", "log",
        "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
        "atanh", "erf", "erfc",
    )},
    # Conversions
    "arith.extsi": converting(_sign_extend),
    "arith.extui": converting(_zero_extend),
    "arith.trunci": converting(_truncate),
    "arith.index_cast": converting(_cast_index),
    "arith.index_castui": converting(lambda x, dtype: _truncate(_zero_extend(x, np.dtype(np.int64)), dtype)),
    "arith.sitofp": converting(lambda x, dtype: _sign_extend(x, np.dtype(np.int64)).astype(dtype)),
    "arith.uitofp": converting(_zero_extend),
    "arith.fptosi": converting(float_to_signed),
    "arith.fptoui": converting(float_to_unsigned),
    "arith.extf": converting(convert_float),
    "arith.truncf": _round_float("roundingmode", _TO_NEAREST_OR_ZERO),
    "tt.fp_to_fp": _round_float("rounding", _TRITON_ROUNDINGS),
    "arith.bitcast": converting(_bitcast),
    "tt.bitcast": converting(_bitcast),
    "tt.ptr_to_int": converting(_bitcast),
    "tt.int_to_ptr": converting(_bitcast),
    # Tiles
    "tt.make_range": _make_range,
    "tt.splat": _splat,
    "tt.unsplat": plain(_unsplat),
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _splat,
    "tt.reshape": _reshape,
    "tt.trans": _transpose,
    "tt.join": plain(lambda a, b: np.stack((a, b), -1)),
    "tt.split": plain(_split),
    "tt.cat": plain(lambda a, b: np.concatenate((a, b), 0)),
    "tt.gather": _gather,
    "tt.histogram": _histogram,
    "tt.addptr": _add_pointer,
    "tt.dot": _dot,
    "ub.poison": _undefined,
    # Checks and hints
    "llvm.intr.assume": plain(_assume),
    "tt.assert": _assert,
    "tt.print": plain(_nothing),
    "gpu.barrier": plain(_nothing),
    "ttg.barrier": plain(_nothing),
    "nvvm.griddepcontrol": plain(_nothing),
}  # fmt: skip
