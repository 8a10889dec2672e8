"""Cascaded reductions that fit one loop: how far a reduction's body depends on another reduction's running value.

A reduction B whose body uses the result A of another reduction over the same dim can share A's loop when the body
separates: f(A, x) = a(A) · b(x). Then what B has summed so far is corrected by a(new)/a(old) whenever A moves. Here
a(A) = exp(−κ·w), where w does not vary along the loop and is at least z, and A is the maximum of z: the online softmax
recurrence and everything like it. Larger ranks (variance, LayerNorm) need states of their own and stay in two loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cleave.dialects.graph import Value
from cleave.dialects.rounding import rounds

Factors = Mapping[Value, float]
"""Interface value w → κ: the body is exp(−Σ κ·w) times something that does not depend on any w."""

ANY: Factors = {}


@dataclass(frozen=True)
class Cascade:
    """The loop's running values and a test for dependence on them.

    ``varies(v)``: v depends on a running value. ``invariant(v)``: v does not have the loop's dim. ``transparent``: the
    values whose rounding algebra may move.
    """

    running: frozenset[Value]
    varies: Callable[[Value], bool]
    invariant: Callable[[Value], bool]
    transparent: frozenset[Value]

    def factors(self, value: Value) -> Factors | None:
        """The factors of ``value``, or None if it does not separate."""
        return _Separation(self).multiplicative(value)


class _Separation:
    def __init__(self, cascade: Cascade) -> None:
        self.cascade = cascade
        self._memo: dict[Value, Factors | None] = {}

    def multiplicative(self, value: Value) -> Factors | None:
        if value not in self._memo:
            self._memo[value] = self._multiplicative(value)
        return self._memo[value]

    def _multiplicative(self, value: Value) -> Factors | None:
        if not self.cascade.varies(value):
            return ANY
        rule = _RULES.get(value.op)
        if rounds(value) and value not in self.cascade.transparent:
            return None
        return rule(self, value) if rule and not self.cascade.invariant(value) else None

    def exponent(self, value: Value) -> Factors | None:
        """κ for each w, where ``value`` = κ·(z − w) and w bounds z from above."""
        if value.op == "cast":
            return self.exponent(value.operands[0])
        if value.op == "sub":
            return self._difference(*value.operands)
        if value.op in ("mul", "div"):
            return self._scaled(value)
        return None

    def _difference(self, z: Value, w: Value) -> Factors | None:
        if self.cascade.varies(z) or not self.cascade.invariant(w):
            return None
        return {w: 1.0} if bounds(w, z, self.cascade.running) else None

    def _scaled(self, value: Value) -> Factors | None:
        for inner, scale in (value.operands, value.operands[::-1]):
            if (
                scale.op == "constant"
                and scale.attrs["value"] > 0
                and (value.op == "mul" or scale is value.operands[1])
            ):
                factors = self.exponent(inner)
                by = scale.attrs["value"] if value.op == "mul" else 1.0 / scale.attrs["value"]
                return None if factors is None else {w: k * by for w, k in factors.items()}
        return None


def bounds(w: Value, z: Value, running: frozenset[Value]) -> bool:
    """Whether w ≥ z everywhere: w is the running maximum of z, or the larger of that and something else."""
    if w.op == "cast" or unguarded(w) is not w:
        return bounds(w.operands[0] if w.op == "cast" else unguarded(w), z, running)
    if w in running:
        return w.op == "reduce" and w.attrs["kind"] == "max" and _stripped(w.operands[0]) is _stripped(z)
    return w.op == "max" and any(bounds(operand, z, running) for operand in w.operands)


def unguarded(w: Value) -> Value:
    """m, where w is m with another value in place of −inf; otherwise w itself."""
    if w.op == "select" and w.operands[0].op == "cmp" and w.operands[0].attrs["predicate"] == "eq":
        a, b = w.operands[0].operands
        for m, limit in ((a, b), (b, a)):
            if limit.op == "constant" and limit.attrs["value"] == -math.inf and w.operands[2] is m:
                return m
    return w


def _stripped(value: Value) -> Value:
    while value.op == "cast" and value.dtype in ("f32", "f64"):
        value = value.operands[0]
    return value


def _exp(base: float) -> Callable[[_Separation, Value], Factors | None]:
    def rule(self: _Separation, value: Value) -> Factors | None:
        factors = self.exponent(value.operands[0])
        return None if factors is None else {w: k * base for w, k in factors.items()}

    return rule


def _product(sign: int) -> Callable[[_Separation, Value], Factors | None]:
    def rule(self: _Separation, value: Value) -> Factors | None:
        a, b = (self.multiplicative(operand) for operand in value.operands)
        if a is None or b is None:
            return None
        return {w: a.get(w, 0.0) + sign * b.get(w, 0.0) for w in (*a, *b)}

    return rule


def _same(start: int) -> Callable[[_Separation, Value], Factors | None]:
    """All operands from ``start`` on have the same factors (a zero has any)."""

    def rule(self: _Separation, value: Value) -> Factors | None:
        if any(self.cascade.varies(operand) for operand in value.operands[:start]):
            return None
        found: Factors | None = None
        for operand in value.operands[start:]:
            if operand.op == "constant" and operand.attrs["value"] == 0:
                continue
            factors = self.multiplicative(operand)
            if factors is None or (found is not None and found != factors):
                return None
            found = factors
        return found

    return rule


def _inner_reduction(self: _Separation, value: Value) -> Factors | None:
    linear = value.op == "contract" or value.attrs["kind"] == "sum"
    factors = _product(1)(self, value) if value.op == "contract" else self.multiplicative(value.operands[0])
    if factors is None or not linear or any(set(value.attrs["over"]) & set(w.names) for w in factors):
        return None
    return factors


_RULES: dict[str, Callable[[_Separation, Value], Factors | None]] = {
    "exp": _exp(1.0),
    "exp2": _exp(0.6931471805599453),
    "mul": _product(1),
    "div": _product(-1),
    "neg": _same(0),
    "cast": _same(0),
    "add": _same(0),
    "sub": _same(0),
    "select": _same(1),
    "contract": _inner_reduction,
    "reduce": _inner_reduction,
}
