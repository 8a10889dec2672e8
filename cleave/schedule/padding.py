"""What a tile holds past a dim's end, where the tensor has no elements.

Loads fill with 0. From there the value past the end is followed through the ops, so that a mask is put only where a
reduction would otherwise see something other than its neutral element.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from cleave.dialects.graph import Value
from cleave.dialects.ops import POINTWISE
from cleave.schedule.region import Region
from cleave.schedule.separability import unguarded

Pads = Callable[[Value, str], float | None]


def outside(value: Value, name: str, region: Region, pads: Pads) -> float | None:
    """The one value that ``value`` has past the end of dim ``name``; None if it is not known."""
    return Outside(name, region, pads).of(value)


class Outside:
    """What values are past the end of one dim."""

    def __init__(self, name: str, region: Region, pads: Pads) -> None:
        self.name, self.region, self.pads = name, region, pads
        self.known: dict[Value, float | None] = {}

    def of(self, value: Value) -> float | None:
        if value not in self.known:
            self.known[value] = self.find(value)
        return self.known[value]

    def find(self, value: Value) -> float | None:
        padded = self.pads(value, self.name)
        if padded is not None:
            return None if math.isnan(padded) else padded
        if value.op == "constant":
            return float(value.attrs["value"])
        if self.name not in value.names:
            return None
        if value in self.region.memory or value.op == "gather":
            return 0.0
        parts = [self.of(operand) for operand in value.operands]
        if value.op in POINTWISE:
            return _pointwise(value, self.name, parts)
        linear = value.op == "contract" or (value.op == "reduce" and value.attrs["kind"] == "sum")
        return 0.0 if linear and parts and all(part == 0 for part in parts) else None


def _pointwise(value: Value, name: str, parts: list[float | None]) -> float | None:
    if value.op == "sub" and parts[0] == -math.inf and _is_maximum(value.operands[1], name):
        return -math.inf  # even where the maximum is −inf too: the row is NaN then, with or without this element
    if value.op == "select" and (parts[0] is not None or parts[1] == parts[2]):
        return parts[1] if parts[0] != 0 else parts[2]
    decisive = {"mul": 0.0, "min": 0.0, "max": 1.0}.get(value.op) if value.dtype == "i1" else None
    if decisive is not None and decisive in parts:
        return decisive
    rule = _RULES.get(value.op)
    if rule is None or None in parts:
        return None
    result = rule(*[part for part in parts if part is not None])
    exact = result in (0.0, 1.0, -1.0, math.inf, -math.inf)
    return result if exact or value.op != "cast" else None


def _is_maximum(value: Value, name: str) -> bool:
    if value.op in ("cast", "max"):
        return any(_is_maximum(operand, name) for operand in value.operands)
    if unguarded(value) is not value:
        return _is_maximum(unguarded(value), name)
    return value.op == "reduce" and value.attrs["kind"] == "max" and name in value.attrs["over"]


def _exp(x: float) -> float:
    return 0.0 if x == -math.inf else math.exp(x) if x < 700 else math.nan


def _magnitude(x: float) -> float:
    return abs(x)


def _larger(a: float, b: float) -> float:
    return max(a, b)


def _smaller(a: float, b: float) -> float:
    return min(a, b)


def _difference(a: float, b: float) -> float:
    return math.nan if a == b and math.isinf(a) else a - b


_RULES: dict[str, Callable[..., float]] = {
    "neg": lambda x: -x,
    "abs": _magnitude,
    "exp": _exp,
    "exp2": lambda x: _exp(x * math.log(2)) if x == -math.inf or x == 0 else math.nan,
    "tanh": math.tanh,
    "cast": lambda x: x,
    "add": lambda a, b: _difference(a, -b),
    "sub": _difference,
    "mul": lambda a, b: math.nan if 0 in (a, b) and (math.isinf(a) or math.isinf(b)) else a * b,
    "div": lambda a, b: a / b if b != 0 and not math.isinf(a) else math.nan,
    "max": _larger,
    "min": _smaller,
}
