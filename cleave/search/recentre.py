"""Programs that subtract a mean after summing lose what the mean has in common: an offset taken off first keeps it.

Where a source subtracts the mean of an input along a dim, adding a number to all elements changes nothing, so a program
may read the input less any number that is the same along the dim. The mean of the first few elements is near the mean
of all: if it is far from it, for an element that is far from the others, these spread as far.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleave.dialects import ops
from cleave.dialects.graph import Graph, GraphBuilder, Value

FIRST = 16  # elements that the offset is the mean of, where there are as many


def recentred(graph: Graph, means: Mapping[int, str]) -> Graph | None:
    """The program on each input ``index`` of ``means`` less an offset along the dim; None where none can be taken."""
    b = GraphBuilder(graph.name, graph.facts, graph.extents)
    b.inputs.extend(graph.inputs)
    new: dict[Value, Value] = {}
    for index, dim in means.items():
        offset = _offset(b, graph, graph.inputs[index], dim)
        if offset is not None:
            wide = _wide(b, graph.inputs[index])
            new[graph.inputs[index]] = b.sub(wide, offset)
    if not new:
        return None
    for value in graph.topological():
        if value not in new:
            new[value] = _rebuilt(b, value, new)
    outputs = tuple(new[output] for output in graph.outputs)
    return Graph(graph.name, graph.inputs, outputs, graph.facts, graph.extents).deduplicated()


def _wide(b: GraphBuilder, value: Value) -> Value:
    return value if value.dtype in ("f32", "f64") else b.cast(value, dtype="f32")


def _offset(b: GraphBuilder, graph: Graph, value: Value, dim: str) -> Value | None:
    """The mean of the first elements along the dim; None where there may be no first one."""
    size = value.size(dim)
    least = size.evaluate(graph.extents) if size.symbols <= graph.extents.keys() else graph.facts.bounds(size)[0] or 0
    count = min(FIRST, least)
    if count < 1:
        return None
    name = _unused(graph, "first")
    first = _wide(b, b.slice(value, dim=dim, into=f"{name}={count}", offset="0"))
    return b.div(b.reduce(first, kind="sum", over=[name]), b.constant(float(count), first.dtype))


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
