"""Whether dims of a tensor in memory lie one after the other, so that a merge of them can be a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from cleave.dialects.dims import Answer, Dim, Size, const
from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import VIEWS


def lie_together(value: Value, names: Sequence[str], graph: Graph) -> bool:
    """Whether dims ``names`` of a tensor, or of a view of one, are one dim of its memory."""
    strides = _strides(value)
    for outer, inner in pairwise(names):
        dense = strides[inner] * value.size(inner)
        if strides[outer] is not dense and not _equal(strides[outer], dense, graph):
            return False
    return True


def _equal(a: Size, b: Size, graph: Graph) -> bool:
    if a.symbols | b.symbols <= graph.extents.keys():
        return a.evaluate(graph.extents) == b.evaluate(graph.extents)
    return graph.facts.equal(a, b) is Answer.YES


def _strides(value: Value) -> Mapping[str, Size]:
    """Of each dim, in elements: row-major but for views."""
    if value.op not in VIEWS:
        return _row_major(value)
    attrs, strides = value.attrs, dict(_strides(value.operands[0]))
    if value.op == "merge":
        steps = [strides.pop(name) for name in attrs["dims"]]
        return {**strides, Dim.parse(attrs["into"]).name: steps[-1]}
    step = strides.pop(attrs["from"] if value.op == "rename" else attrs["dim"])
    if value.op == "split":
        outer, inner = (Dim.parse(text).name for text in attrs["into"])
        return {**strides, outer: step * value.size(inner), inner: step}
    return {**strides, Dim.parse(attrs["to" if value.op == "rename" else "into"]).name: step}


def _row_major(value: Value) -> Mapping[str, Size]:
    strides: dict[str, Size] = {}
    step = const(1)
    for dim in reversed(value.dims):
        strides[dim.name] = step
        step = step * dim.size
    return strides
