"""Extrema of scaled values, as scaled extrema: max(c·x) = c·max(x) for c > 0, to the last bit, as rounding never falls.

A loop then multiplies one number of a row in place of each of its elements, and the exponent c·x − max(c·x) is
c·(x − max(x)), rounded otherwise, whose factor is one with the base of the exponential.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import TensorType
from cleave.schedule.separability import BASES, unguarded

_WIDE = ("f32", "f64")
_LEAST = 2.0**-149
"""Below, a constant of f32 is 0."""


def with_scaled_extrema(graph: Graph) -> Graph:
    """The graph with positive constant factors outside of maxima and minima, and of exponents that are differences."""
    rewriting = _Rewriting(graph)
    for value in graph.topological():
        rewriting.add(value)
    return replace(graph, outputs=tuple(rewriting.new[output] for output in graph.outputs))


@dataclass(frozen=True)
class _Scaled:
    """``core`` times ``factor``, or by it, as ``op`` says; ``extremum``: whether the core is one."""

    core: Value
    op: str
    factor: float
    extremum: bool = False

    def of(self, core: Value, *, extremum: bool) -> _Scaled:
        return replace(self, core=core, extremum=extremum)

    @property
    def is_moderate(self) -> bool:
        """Whether what overflows without the factor is far below the exponents that count with it."""
        return self.factor >= 2.0**-100 if self.op == "mul" else self.factor <= 2.0**100

    def is_alike(self, other: _Scaled) -> bool:
        return (self.op, self.factor) == (other.op, other.factor)


class _Rewriting:
    def __init__(self, graph: Graph) -> None:
        self.users, self.outputs = graph.users(), frozenset(graph.outputs)
        self.new: dict[Value, Value] = {}
        self._scaled: dict[Value, _Scaled] = {}
        """What values of the new graph are equal to."""

    def add(self, value: Value) -> None:
        operands = tuple(self.new[operand] for operand in value.operands)
        kept = value if operands == value.operands else replace(value, operands=operands)
        found = self._of(kept) if kept.dtype in _WIDE and self._gains(value) else None
        replaced = found is not None and kept.op in ("reduce", "sub")
        self.new[value] = self._value(found, kept) if found and replaced else kept
        if found:
            self._scaled[self.new[value]] = found

    def _gains(self, value: Value) -> bool:
        return self._is_exponent(value) if value.op == "sub" else value.op != "reduce" or not self._is_compared(value)

    def _is_exponent(self, value: Value) -> bool:
        """Whether only exponentials use it: x − max(x) may overflow where c·x − max(c·x) does not, for them alike."""
        return value not in self.outputs and all(user.op in BASES for user in self.users[value])

    def _is_compared(self, extremum: Value) -> bool:
        """Whether it is one of several that exponents are relative to, as beside a sink: none is scaled as they are."""
        return any(user.op in ("max", "min") for user in self.users[extremum])

    def _of(self, value: Value) -> _Scaled | None:
        """What the value is the product of; None where that is of no use to an extremum."""
        if value.op in ("mul", "div"):
            return self._product(value)
        if value.op == "select":
            return self._guarded(value) or self._masked(value)
        if value.op == "reduce" and value.attrs["kind"] in ("max", "min"):
            (of,) = (self._scaled.get(operand) for operand in value.operands)
            return of and of.of(replace(value, operands=(of.core,)), extremum=True)
        return self._difference(value) if value.op == "sub" else None

    def _value(self, scaled: _Scaled, like: Value) -> Value:
        factor = Value("constant", (), TensorType((), like.dtype), {"value": scaled.factor}, like.location)
        return Value(scaled.op, (scaled.core, factor), like.type, {}, like.location)

    def _product(self, value: Value) -> _Scaled | None:
        x, c = value.operands
        if value.op == "mul" and x.op == "constant":
            x, c = c, x
        positive = c.op == "constant" and _LEAST <= c.attrs["value"] < math.inf
        return _Scaled(x, value.op, c.attrs["value"]) if positive and _has_elements_of(x, value) else None

    def _guarded(self, value: Value) -> _Scaled | None:
        """A maximum with 0 in place of −inf."""
        of = self._scaled.get(unguarded(value))
        if of is None or unguarded(value) is value:
            return None
        condition, zero, whole = value.operands
        if zero.op != "constant" or zero.attrs["value"] != 0:
            return None
        compared = tuple(of.core if operand is whole else operand for operand in condition.operands)
        return of.of(
            replace(value, operands=(replace(condition, operands=compared), zero, of.core)), extremum=of.extremum
        )

    def _masked(self, value: Value) -> _Scaled | None:
        """A product where a condition holds, an infinity elsewhere."""
        condition, *chosen = value.operands
        of = next((self._scaled[each] for each in chosen if each in self._scaled), None)
        if of is None or not _has_elements_of(of.core, value):
            return None
        cores = tuple(of.core if each in self._scaled else each for each in chosen)
        rest = [each for each in chosen if each not in self._scaled]
        infinite = len(rest) == 1 and rest[0].op == "constant" and math.isinf(rest[0].attrs["value"])
        return of.of(replace(value, operands=(condition, *cores)), extremum=False) if infinite else None

    def _difference(self, value: Value) -> _Scaled | None:
        """A product less an extremum of such products."""
        a, b = (self._scaled.get(operand) for operand in value.operands)
        if a is None or b is None or not b.extremum or not a.is_alike(b) or not a.is_moderate:
            return None
        return a.of(replace(value, operands=(a.core, b.core)), extremum=False)


def _has_elements_of(one: Value, other: Value) -> bool:
    """Of one type, in whatever order of dims."""
    return one.dtype == other.dtype and set(one.dims) == set(other.dims)
