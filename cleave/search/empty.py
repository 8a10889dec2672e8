"""Programs that move a factor out of a sum: where the sum is empty, the factor may be 0/0, and 0 times that is NaN.

What is not finite there, though all that it is made of is, is replaced by 0 where the dim is empty. The normal form
knows that this changes nothing beside a sum over the dim, which is 0 then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cleave.dialects.dims import Size
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.dialects.tensor_type import is_float
from cleave.search.float_domain import FloatDomain
from cleave.search.trials import Trial
from cleave.search.views import extent


def guarded(graph: Graph, source: Graph, trials: Iterable[Trial]) -> Graph | None:
    """The program with a ``select`` on what the trials of empty dims show not to be finite; None if all is."""
    found: dict[Value, Size] = {}
    for trial in trials:
        size = _empty_size(source, trial.sizes)
        if size is not None:
            found |= {value: size for value in _culprits(graph, trial) if value not in found}
    return _with_guards(graph, found) if found else None


def _empty_size(source: Graph, sizes: Mapping[str, int]) -> Size | None:
    """The size of the first dim that the source reduces and that is empty."""
    for value in source.topological():
        for name in value.attrs["over"] if value.op in ("contract", "reduce") else ():
            size = next(operand.size(name) for operand in value.operands if name in operand.names)
            if size.evaluate(sizes) == 0:
                return size
    return None


def _culprits(graph: Graph, trial: Trial) -> list[Value]:
    """Values with an element that is not finite, made of values that are finite throughout."""
    import numpy as np

    values = [value for value in graph.topological() if value.op != "constant" and is_float(value.dtype)]
    arrays: list[Any] = trial.evaluate(replace(graph, outputs=tuple(values)), FloatDomain(declared=True))
    bad = {value for value, array in zip(values, arrays, strict=True) if not np.all(np.isfinite(array))}
    return [value for value in values if value in bad and not bad & set(value.operands) and value.op != "input"]


def _with_guards(graph: Graph, sizes: Mapping[Value, Size]) -> Graph:
    b = GraphBuilder(graph.name, graph.facts, graph.extents)
    new: dict[Value, Value] = {}
    for value in graph.topological():
        operands = tuple(new[operand] for operand in value.operands)
        new[value] = value if operands == value.operands else replace(value, operands=operands)
        if value in sizes:
            new[value] = _guard(b, new[value], sizes[value])
    outputs = tuple(new[output] for output in graph.outputs)
    return Graph(graph.name, graph.inputs, outputs, graph.facts, graph.extents).deduplicated()


def _guard(b: GraphBuilder, value: Value, size: Size) -> Value:
    empty = b.cmp(extent(b, size, "f32"), b.constant(0.0, "f32"), predicate="eq")
    return b.op("select", empty, b.constant(0.0, value.dtype), value, order=list(value.names))
