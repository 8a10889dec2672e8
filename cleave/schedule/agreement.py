"""Kernels that compute the same reduction anew must not disagree about it where their results are compared.

What a sum's rounding is depends on the order of its terms, which follows from tiles, and these differ between kernels.
Where one subtracts from a sum a maximum that another one took of it, or divides its exponential by a sum of such, the
difference of the two roundings is all that is left, or a factor. A reduction is then kept in memory. Products of
matrices add up in the order of the dim in whatever tiles; a maximum is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import REDUCTIONS
from cleave.dialects.tensor_type import is_float
from cleave.schedule.partition import kernels_of

FEW = 32
"""Terms of a sum that always are in one tile."""
_DIFFERENCES = ("sub", "div", "cmp")
_INVERSES = ("neg", "div", "pow", "rsqrt")
"""Where an operand of a sum or product is one of these, or a product with something negative, that is a difference or
quotient."""

Kernels = Sequence[Sequence[Value]]
Places = Mapping[Value, frozenset[int]]
"""For each reduction that a value follows from: the kernels that computed it for that."""


def kernels_that_agree(graph: Graph, cut: frozenset[Value], *, wide: bool = False) -> list[tuple[Value, ...]]:
    """``kernels_of`` a cut, and of as many more values as it takes that no two disagree."""
    kernels = kernels_of(graph, cut, wide=wide)
    while (disputed := _disputed(graph, kernels)) and disputed not in cut:
        cut |= {disputed}
        kernels = kernels_of(graph, cut, wide=wide)
    return kernels


def _disputed(graph: Graph, kernels: Kernels) -> Value | None:
    """The last reduction on which kernels disagree; None if there is none."""
    memory = {value for outputs in (*kernels, graph.inputs) for value in outputs}
    inside = [_computed(outputs, memory) for outputs in kernels]
    again = {value for values in inside for value in values if _is_inexact(value, graph.extents)}
    again = {value for value in again if sum(value in values for values in inside) > 1}
    if not again:
        return None
    position = {value: index for index, value in enumerate(graph.topological())}
    stored: dict[Value, Places] = {}
    found: set[Value] = set()
    for number, (outputs, values) in enumerate(zip(kernels, inside, strict=True)):
        places = dict(stored)
        for value in sorted(values, key=position.__getitem__):
            found |= set(_disagreements(value, places))
            own = {value: frozenset([number])} if value in again else {}
            places[value] = {**_joined([places.get(operand, {}) for operand in value.operands]), **own}
        stored |= {value: places[value] for value in outputs}
    return max(found, key=position.__getitem__, default=None)


def _computed(outputs: Sequence[Value], memory: set[Value]) -> set[Value]:
    """All that a kernel for these outputs computes."""
    found, pending = set[Value](), list(outputs)
    while pending:
        value = pending.pop()
        if value not in found and value.operands:
            found.add(value)
            pending += [operand for operand in value.operands if operand not in memory]
    return found


def _is_inexact(value: Value, extents: Mapping[str, int]) -> bool:
    """Whether it is a reduction whose rounding depends on tiles."""
    if value.op not in REDUCTIONS or not is_float(value.dtype) or value.attrs.get("kind") in ("max", "min"):
        return False
    if value.op == "contract" and len(value.attrs["over"]) == 1 and _multiplies_matrices(value):
        return False
    sizes = {dim.name: dim.size for operand in value.operands for dim in operand.dims}
    summed = [sizes[name] for name in value.attrs["over"]]
    known = all(size.symbols <= extents.keys() for size in summed)
    return not known or math.prod(size.evaluate(extents) for size in summed) > FEW


def _multiplies_matrices(value: Value) -> bool:
    """Whether each operand has a dim of the result that the other one has not."""
    a, b = ({*operand.names} & {*value.names} for operand in value.operands)
    return not a <= b and not b <= a


def _disagreements(value: Value, places: Mapping[Value, Places]) -> Iterator[Value]:
    """The reductions that its operands have from different kernels, where it compares these."""
    a, b = ([places.get(operand, {}) for operand in value.operands] + [{}, {}])[:2]
    if _compares(value):
        yield from (reduction for reduction in a.keys() & b.keys() if a[reduction] != b[reduction])


def _compares(value: Value) -> bool:
    return value.op in _DIFFERENCES or (value.op in ("add", "mul") and any(map(_inverts, value.operands)))


def _inverts(value: Value) -> bool:
    """Whether its sum or product with another value is a difference or quotient."""
    value = _uncast(value)
    return value.op in _INVERSES or (value.op == "mul" and any(map(_is_negative, value.operands)))


def _is_negative(value: Value) -> bool:
    """Whether it is a number below zero, or another one's negative."""
    value = _uncast(value)
    if value.op == "constant":
        return value.attrs["value"] < 0
    return value.op == "neg" or (value.op == "mul" and any(map(_is_negative, value.operands)))


def _uncast(value: Value) -> Value:
    while value.op == "cast":
        value = value.operands[0]
    return value


def _joined(every: Sequence[Places]) -> dict[Value, frozenset[int]]:
    found: dict[Value, frozenset[int]] = {}
    for reduction, kernels in chain.from_iterable(places.items() for places in every):
        found[reduction] = found.get(reduction, frozenset()) | kernels
    return found
