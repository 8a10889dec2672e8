"""Reductions as monoids: the neutral element, how two results combine, and the type that accumulates."""

from __future__ import annotations

import math

from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import accumulator, is_float

NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def neutral_element(kind: str, dtype: str) -> float | int:
    """What changes nothing in a reduction of this kind; for integers and i1, the end of the type's range."""
    if is_float(dtype):
        return NEUTRAL[kind]
    if kind in ("sum", "prod"):
        return int(NEUTRAL[kind])
    if dtype == "i1":
        return int(kind == "min")
    bits = 64 if dtype == "index" else int(dtype[1:])
    return -(2 ** (bits - 1)) if kind == "max" else 2 ** (bits - 1) - 1


def accumulator_of(value: Value) -> str:
    """The type in which a reduction accumulates."""
    if value.op == "reduce":
        return accumulator(value.dtype)
    return "f64" if "f64" in (value.dtype, *(operand.dtype for operand in value.operands)) else accumulator(value.dtype)
