"""The order of dims in memory between kernels.

wgmma reads a tf32 operand only where its depth, what is summed over, lies side by side; f16 and bf16 in both orders. A
value that a kernel leaves for such a product is laid out so, which saves a transposition in each block that reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cleave.dialects.dims import Size
from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import POINTWISE
from cleave.dialects.tensor_type import TensorType

_WIDE = "tf32"
_VECTOR = 4
"""Elements that are loaded together."""
_PASSED = POINTWISE | {"reduce"}
"""Ops whose result has the order of what they are applied to, if that is computed, too."""


def with_depth_last(graph: Graph) -> Graph:
    """The graph with other orders of dims in values that are neither inputs, nor views, nor outputs."""
    orders = _orders(graph)
    new: dict[Value, Value] = {value: value for value in graph.inputs}
    for value in graph.topological():
        if value not in new:
            operands = tuple(new[operand] for operand in value.operands)
            type_ = _ordered(value, orders[value]) if value in orders else value.type
            same = operands == value.operands and type_ == value.type
            new[value] = value if same else replace(value, operands=operands, type=type_)
    return replace(graph, outputs=tuple(new[value] for value in graph.outputs))


def _orders(graph: Graph) -> dict[Value, list[str]]:
    values = graph.topological()
    uses = Counter(operand for value in values for operand in value.operands)
    uses.update(graph.outputs)
    orders: dict[Value, list[str]] = {}

    def lay_out(value: Value, order: Sequence[str]) -> bool:
        """Whether there is a value that a kernel may leave so."""
        if uses[value] > 1 or (value.op not in _PASSED and value.op != "contract"):
            return False
        own = [*(name for name in value.names if name not in order), *(n for n in order if n in value.names)]
        computed = [lay_out(operand, own) for operand in value.operands if value.op != "contract"]
        if not any(computed) and value.op != "contract":
            return False
        orders[value] = own
        return True

    for product in values:
        for operand in product.operands if product.op == "contract" else ():
            depth = [name for name in product.attrs["over"] if name in operand.names]  # the other one may have more
            if operand.dtype == _WIDE and depth and _has_whole_vectors(graph, operand.size(depth[-1])):
                lay_out(operand, [*(name for name in operand.names if name not in depth), *depth])
    return orders


def _has_whole_vectors(graph: Graph, depth: Size) -> bool:
    """Whether rows of the depth are vectors of 16 bytes; a size that is not static may be such."""
    return not depth.symbols <= graph.extents.keys() or depth.evaluate(graph.extents) % _VECTOR == 0


def _ordered(value: Value, order: Sequence[str]) -> TensorType:
    dims = {dim.name: dim for dim in value.dims}
    return TensorType(tuple(dims[name] for name in order), value.dtype)
