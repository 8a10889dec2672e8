"""Mathematical functions by name: MLIR's ``math`` ops and NVIDIA's libdevice, on NumPy values.

Narrow floats are computed in f32 and rounded once, as the hardware does; f32 and f64 in their own type.
"""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cleave.runtime.ttir_numbers import FLOAT32, FLOAT64, Array

Evaluate = Callable[..., Any]


def in_f32(function: Evaluate) -> Evaluate:
    """``function`` on floats at least as wide as f32, with the result rounded to the operands' type."""

    def evaluate(*operands: Array) -> Array:
        dtype = operands[0].dtype
        if dtype in (FLOAT32, FLOAT64):
            return function(*operands)
        return function(*(x.astype(FLOAT32) for x in operands)).astype(dtype)

    return evaluate


def _by_element(function: Callable[[float], float]) -> Evaluate:
    """For what NumPy lacks: Python's ``math`` on each element, in f64."""

    def evaluate(x: Array) -> Array:
        flat = np.asarray(x).astype(FLOAT64).reshape(-1).tolist()
        return np.array([function(value) for value in flat], FLOAT64).reshape(np.shape(x)).astype(x.dtype)[()]

    return evaluate


def _gamma(x: float) -> float:
    try:
        return math.gamma(x)
    except ValueError:  # Negative integers and zero are poles.
        return float("nan")
    except OverflowError:
        return float("inf")


def _log_gamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return float("inf")


def _round_away(x: Array) -> Array:
    """To the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return np.copysign(np.abs(whole) + (np.abs(x - whole) >= 0.5), x).astype(x.dtype)


def _reciprocal_root(x: Array) -> Array:
    return (1.0 / np.sqrt(np.asarray(x).astype(FLOAT64))).astype(x.dtype)[()]


def _reciprocal(x: Array) -> Array:
    return x.dtype.type(1) / x


_UNARY: dict[str, Evaluate] = {
    "absf": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "round": _round_away,
    "roundeven": np.rint,
    "sqrt": np.sqrt,
    "rsqrt": _reciprocal_root,
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _by_element(math.erf),
    "erfc": _by_element(math.erfc),
}


def math_unary(name: str) -> Evaluate:
    return in_f32(_UNARY[name])


def _as_integer(function: Evaluate) -> Evaluate:
    """A predicate whose result is i32, as libdevice's are."""
    return lambda *operands: np.asarray(function(*operands)).astype(np.int32)[()]


_REAL: dict[str, Evaluate] = {
    **{name: function for name, function in _UNARY.items() if name not in ("absf", "roundeven")},
    "fabs": np.abs,
    "rint": np.rint,
    "nearbyint": np.rint,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "tgamma": _by_element(_gamma),
    "lgamma": _by_element(_log_gamma),
    "sinpi": lambda x: np.sin(x * x.dtype.type(math.pi)),
    "cospi": lambda x: np.cos(x * x.dtype.type(math.pi)),
    "pow": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "fdim": lambda x, y: np.where(x > y, x - y, x.dtype.type(0)).astype(x.dtype)[()],
    "nextafter": np.nextafter,
    "powi": lambda x, n: np.power(x.astype(FLOAT64), n).astype(x.dtype),
    "ldexp": lambda x, n: np.ldexp(x, n),
    "fma": lambda a, b, c: (a.astype(FLOAT64) * b.astype(FLOAT64) + c.astype(FLOAT64)).astype(a.dtype),
}
_PREDICATES: dict[str, Evaluate] = {"isnan": np.isnan, "isinf": np.isinf, "signbit": np.signbit}


def _libdevice() -> dict[str, Evaluate]:
    table: dict[str, Evaluate] = {}
    for name, function in _REAL.items():
        table[f"__nv_{name}"] = table[f"__nv_{name}f"] = function
    for name, function in _PREDICATES.items():
        table[f"__nv_{name}f"] = table[f"__nv_{name}d"] = _as_integer(function)
    table["__nv_finitef"] = table["__nv_isfinited"] = _as_integer(np.isfinite)
    for name in ("exp", "log", "log2", "log10", "exp10", "sin", "cos", "tan", "pow"):
        table[f"__nv_fast_{name}f"] = _REAL[name]
    for prefix in ("f", "d"):
        table[f"__nv_{prefix}sqrt_rn"] = np.sqrt
        table[f"__nv_{prefix}rcp_rn"] = _reciprocal
        table[f"__nv_{prefix}add_rn"] = np.add
        table[f"__nv_{prefix}mul_rn"] = np.multiply
        table[f"__nv_{prefix}div_rn"] = np.divide
    table["__nv_saturatef"] = lambda x: np.fmin(np.fmax(x, FLOAT32.type(0)), FLOAT32.type(1))
    return table


LIBDEVICE: dict[str, Evaluate] = _libdevice()
