"""Programs that subtract a mean after summing lose what the mean has in common: an offset taken off first keeps it.

Where a source subtracts the mean of an input along a dim, adding a number to all elements changes nothing, so a program
may read the input less any number that is the same along the dim. The mean of the first few elements is near the mean
of all: if it is far from it, for an element that is far from the others, these spread as far.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleave.dialects import ops
from cleave.dialects.dims import Size, const, minimum
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.search.views import extent

FIRST = 16  # elements that the offset is the mean of, where there are as many


def recentred(graph: Graph, means: Mapping[int, str]) -> Graph:
    """The program on each input ``index`` of ``means`` less an offset along the dim."""
    b = GraphBuilder(graph.name, graph.facts, graph.extents)
    b.inputs.extend(graph.inputs)
    new: dict[Value, Value] = {}
    for index, dim in means.items():
        value = graph.inputs[index]
        new[value] = b.sub(_wide(b, value), _offset(b, graph, value, dim))
    for value in graph.topological():
        if value not in new:
            new[value] = _rebuilt(b, value, new)
    outputs = tuple(new[output] for output in graph.outputs)
    return Graph(graph.name, graph.inputs, outputs, graph.facts, graph.extents).deduplicated()


def _wide(b: GraphBuilder, value: Value) -> Value:
    return value if value.dtype in ("f32", "f64") else b.cast(value, dtype="f32")


def _offset(b: GraphBuilder, graph: Graph, value: Value, dim: str) -> Value:
    """The mean of the first elements along the dim; 0 where there is none."""
    count = _count(graph, value.size(dim))
    name = _unused(graph, "first")
    first = _wide(b, b.slice(value, dim=dim, into=f"{name}={count}", offset="0"))
    if count.value is not None:
        divisor = b.constant(float(max(1, count.value)), first.dtype)
    else:
        divisor = b.max(extent(b, count, first.dtype), b.constant(1.0, first.dtype))
    return b.div(b.reduce(first, kind="sum", over=[name]), divisor)


def _count(graph: Graph, size: Size) -> Size:
    """How many elements the offset is made of."""
    known = const(size.evaluate(graph.extents)) if size.symbols <= graph.extents.keys() else size
    return graph.facts.simplify(minimum(known, FIRST))


def _unused(graph: Graph, name: str) -> str:
    taken = {dim.name for value in graph.topological() for dim in value.dims}
    return next(n for n in (name, *(f"{name}{i}" for i in range(1, 99))) if n not in taken)


def _rebuilt(b: GraphBuilder, value: Value, new: Mapping[Value, Value]) -> Value:
    """The op on the new operands: what was narrow and is wide now goes to contractions as tf32."""
    operands = [new[operand] for operand in value.operands]
    if tuple(operands) == value.operands:
        return value
    if value.op == "cast" and operands[0].dtype == value.dtype:
        return operands[0]
    if value.op == "contract":
        changed = any(n.dtype != o.dtype for n, o in zip(operands, value.operands, strict=True))
        operands = [b.cast(o, dtype="tf32") if changed and o.dtype != "tf32" else o for o in operands]
    free = value.op == "contract" or value.op == "cast"
    return b.op(value.op, *operands, dtype=value.dtype if free else None, order=_order(value), **value.attrs)


def _order(value: Value) -> list[str] | None:
    return list(value.names) if ops.OPS[value.op].free_order else None
