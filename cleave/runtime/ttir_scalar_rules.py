"""The semantics of TTIR's elementwise operations: the table ``SCALAR_RULES``."""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttir_ir import Operation
from cleave.runtime.ttir_libdevice import LIBDEVICE, in_f32, math_unary
from cleave.runtime.ttir_numbers import (
    BOOL,
    FLOAT64,
    Array,
    DType,
    convert_float,
    dtype_of,
    float_to_signed,
    float_to_unsigned,
    unsigned,
)
from cleave.runtime.ttir_rule import Evaluate, Rule, as_unsigned, attribute, converting, integer, plain


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


def _sign_extend(x: Array, dtype: DType) -> Array:
    return -x.astype(np.int8).astype(dtype) if x.dtype == BOOL else x.astype(dtype)


def _zero_extend(x: Array, dtype: DType) -> Array:
    return (x if x.dtype == BOOL else x.view(unsigned(x.dtype))).astype(dtype)


def _truncate(x: Array, dtype: DType) -> Array:
    return (x & 1).astype(BOOL) if dtype == BOOL else x.astype(dtype)


def _cast_index(x: Array, dtype: DType) -> Array:
    return _truncate(x, dtype) if dtype == BOOL else _sign_extend(x, dtype)


def _bitcast(x: Array, dtype: DType) -> Array:
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


_TO_NEAREST_OR_ZERO = {0: False, 3: True}  # arith.RoundingMode
_TRITON_ROUNDINGS = {0: True, 1: False}  # tt.RoundingMode

SCALAR_RULES: dict[str, Rule] = {
    # Integers
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
}  # fmt: skip
