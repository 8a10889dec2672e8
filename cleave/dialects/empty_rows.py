"""``cleave.empty_rows = "zero"``, written out: a softmax row without an unmasked key gives 0, its log-sum-exp −∞.

Two things change in such a function. Inside an exponential −∞ − (−∞) is −∞, so that a row of nothing but −∞ has
exponentials of 0; and a sum of exponentials that is 0 divides as if it were 1. ``zero_empty_rows`` says both in ops, so
that nothing after it need know of the attribute.
"""

from __future__ import annotations

import math
from dataclasses import replace

from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import VIEWS
from cleave.dialects.tensor_type import TensorType

_EXPONENTIALS = frozenset(("exp", "exp2"))
_LINEAR = frozenset(("cast", "mul", "div", "add", "sub", "neg")) | VIEWS
"""Ops through which a difference reaches an exponential."""


def zero_empty_rows(graph: Graph) -> Graph:
    """``graph`` as a function with the attribute means it."""
    rewriter = _Rewriter(graph)
    return replace(graph, outputs=tuple(rewriter.new(value) for value in graph.outputs))


class _Rewriter:
    def __init__(self, graph: Graph) -> None:
        self.exponents = _exponents(graph)
        self._new: dict[Value, Value] = {}
        self._guards: dict[Value, Value] = {}

    def new(self, value: Value) -> Value:
        if value not in self._new:
            self._new[value] = self._rewritten(value)
        return self._new[value]

    def _rewritten(self, value: Value) -> Value:
        operands = tuple(self.new(operand) for operand in value.operands)
        if value.op == "div" and _is_sum_of_exponentials(value.operands[1]):
            operands = (operands[0], self._where(operands[1], 0.0, 1.0))
        if value.op == "sub" and value in self.exponents and not _is_guarded(value.operands[1]):
            return self._difference(value, *operands)
        return value if operands == value.operands else replace(value, operands=operands)

    def _difference(self, value: Value, z: Value, w: Value) -> Value:
        if _is_largest(value.operands[1]):  # w ≥ z: where w is −∞ so is z, and only w needs a look
            return replace(value, operands=(z, self._where(w, -math.inf, 0.0)))
        low = _constant(-math.inf, value.dtype)
        both = Value("mul", (_equals(z, low), _equals(w, low)), TensorType(value.dims, "i1"))
        difference = replace(value, operands=(z, w))
        return Value("select", (both, low, difference), value.type, {}, value.location)

    def _where(self, value: Value, equal: float, then: float) -> Value:
        """``value`` with ``then`` where it is ``equal``."""
        if value not in self._guards:
            condition = _equals(value, _constant(equal, value.dtype))
            operands = (condition, _constant(then, value.dtype), value)
            self._guards[value] = Value("select", operands, value.type, {}, value.location)
        return self._guards[value]


def _constant(number: float, dtype: str) -> Value:
    return Value("constant", (), TensorType((), dtype), {"value": number})


def _equals(value: Value, constant: Value) -> Value:
    return Value("cmp", (value, constant), TensorType(value.dims, "i1"), {"predicate": "eq"})


def _exponents(graph: Graph) -> frozenset[Value]:
    """The values that an exponential is taken of, and the terms and factors that they are made of."""
    stack = [value.operands[0] for value in graph.topological() if value.op in _EXPONENTIALS]
    found: dict[Value, None] = {}
    while stack:
        value = stack.pop()
        if value not in found:
            found[value] = None
            stack.extend(value.operands if value.op in _LINEAR else ())
    return frozenset(found)


def _is_guarded(w: Value) -> bool:
    """Whether w has something else where it would be −∞."""
    condition = w.operands[0] if w.op == "select" else w
    return condition.op == "cmp" and any(
        operand.op == "constant" and operand.attrs["value"] == -math.inf for operand in condition.operands
    )


def _is_largest(w: Value) -> bool:
    """Whether w is a maximum, or a maximum and the logarithm of a sum: −∞ only where all of its row is."""
    if w.op == "reduce":
        return w.attrs["kind"] == "max"
    if w.op in ("cast", *VIEWS):
        return _is_largest(w.operands[0])
    if w.op in ("mul", "div"):
        scale = w.operands[1]
        return scale.op == "constant" and scale.attrs["value"] > 0 and _is_largest(w.operands[0])
    if w.op == "add":
        return any(
            one.op == "log" and _is_sum_of_exponentials(one.operands[0]) and _is_largest(other)
            for one, other in (w.operands, w.operands[::-1])
        )
    return w.op == "max" and any(_is_largest(operand) for operand in w.operands)


def _is_sum_of_exponentials(value: Value) -> bool:
    """Whether value is a sum, and all that is added is an exponential, or a product with one."""
    return _made_of(value) == frozenset(("exponential", "sum"))


def _made_of(value: Value) -> frozenset[str]:
    """Of what positive things a value is made: exponentials, sums; or ``other`` where it may be something else."""
    if value.op in _EXPONENTIALS:
        return frozenset(("exponential",))
    if value.op == "constant" and value.attrs["value"] >= 0:
        return frozenset()
    if value.op not in _POSITIVE or value.attrs.get("kind", "sum") != "sum":
        return frozenset(("other",))
    parts = value.operands[value.op == "select" :]
    own = ("sum",) if value.op in ("reduce", "contract") else ()
    return frozenset(own).union(*map(_made_of, parts))


_POSITIVE = frozenset(("mul", "div", "add", "select", "cast", "reduce", "contract")) | VIEWS
"""Ops that give nothing below 0 where their operands are not."""
