"""Where a large graph is cut, so that each part is searched by itself with the cut values as its inputs.

Parts are runs of the ops in topological order. Of all ways to make them small enough the one is taken whose cuts lose
least: few values cross them, and those that do are barriers already, through which no law reaches: the user's own
roundings, results and operands of opaque ops. So the cuts of a network fall on its residual stream, and what is found
between two of its additions is still found. Constants, positions and views of inputs cross for nothing: each part has
its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from cleave.dialects import ops, rounding
from cleave.dialects.graph import Graph, Value

_VIEWS = ops.VIEWS | {"cast"}
_OPAQUE = frozenset("gather concat slice".split())
BARRIER, OTHER, OPERAND = 1.0, 3.0, 4.0  # what a value costs that crosses a cut: contractions' operands are worst
_UNEVEN = 0.1  # times the square of the share of the bound that a part uses: of equal cuts the most even ones


@dataclass(frozen=True, eq=False)
class Part:
    """A run of the source's ops as a graph; ``values`` are the source's for those of the graph, operands first."""

    graph: Graph
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    values: tuple[Value, ...]


def counted_ops(graph: Graph) -> list[Value]:
    """The ops that the bound counts, operands first: all but constants, positions and what each part may repeat."""
    repeated = _repeated(graph)
    return [value for value in graph.topological() if value not in repeated]


def partition(graph: Graph, max_ops: int) -> list[Part]:
    """The graph in parts of at most ``max_ops`` ops, in an order in which they can be computed."""
    values, repeated = counted_ops(graph), _repeated(graph)
    cuttings = [(*_bounds(_costs(graph, order), max(1, max_ops)), order) for order in (values, _by_depth(values))]
    _, bounds, order = min(cuttings, key=lambda cutting: cutting[0])
    return [_part(graph, order[start:end], repeated) for start, end in pairwise(bounds)]


def _by_depth(values: Sequence[Value]) -> list[Value]:
    """Each op as early as its operands allow: what several users share stands together with all of them."""
    depth: dict[Value, int] = {}
    for value in values:
        depth[value] = 1 + max((depth.get(operand, 0) for operand in value.operands), default=0)
    return sorted(values, key=lambda value: depth[value])


def _repeated(graph: Graph) -> set[Value]:
    """Values that every part may compute for itself: constants, positions, what is made of these, views of inputs."""
    plain: set[Value] = set()  # depend on no input
    views: set[Value] = set()
    for value in graph.topological():
        if value.op in ("constant", "index"):
            plain.add(value)
        elif value.op == "input" or (value.op in _VIEWS and value.operands[0] in views):
            views.add(value)
        elif value.operands and value.op in ops.POINTWISE and plain.issuperset(value.operands):
            plain.add(value)
    return plain | views


def _costs(graph: Graph, values: Sequence[Value]) -> list[float]:
    """What a cut before each op costs, and last 0: for all values that are made before it and used after.

    An input is made where it is first used, so that the first layer of a network is cut as the others are.
    """
    position = {value: index for index, value in enumerate(values)}
    weights = _weights(graph)
    changes = [0.0] * (len(values) + 1)
    for value, used in _uses(graph, position).items():
        first = position.get(value, min(used, default=0))
        changes[first + 1] += weights[value]
        changes[max(used, default=first) + 1] -= weights[value]
    return list(accumulate(changes))


def _uses(graph: Graph, position: Mapping[Value, int]) -> dict[Value, set[int]]:
    """Where each counted op, and each input by itself or in a view, is used."""
    found: dict[Value, set[int]] = {}
    for value, users in reversed(graph.users().items()):
        found[value] = {position[user] for user in users if user in position}
        found[value].update(*(found[user] for user in users if user not in position))
    return {value: used for value, used in found.items() if value in position or (value.op == "input" and used)}


def _weights(graph: Graph) -> dict[Value, float]:
    """What each value costs where it crosses a cut: least if the algebra does not look through it, cut or not."""
    values = graph.topological()
    transparent = rounding.transparent(values, graph.outputs)
    barriers = {*graph.inputs, *graph.outputs}
    for value in values:
        if rounding.rounds(value) and value not in transparent:
            barriers.add(value)
        if value.op in _OPAQUE or value.op not in ops.OPS:
            barriers |= {value, *value.operands}
    return {value: BARRIER if value in barriers else OPERAND if value in transparent else OTHER for value in values}


def _bounds(costs: Sequence[float], max_ops: int) -> tuple[float, list[int]]:
    """The cost of the cheapest cuts, and their positions, at most ``max_ops`` apart, the ends among them."""
    total, before = [0.0], [0]
    for end in range(1, len(costs)):
        found = [
            (total[start] + _UNEVEN * ((end - start) / max_ops) ** 2, start)
            for start in range(max(0, end - max_ops), end)
        ]
        best, start = min(found)
        total.append(best + costs[end])
        before.append(start)
    bounds = [len(costs) - 1]
    while bounds[-1]:
        bounds.append(before[bounds[-1]])
    return total[-1], bounds[::-1]


def _part(graph: Graph, values: Sequence[Value], repeated: AbstractSet[Value]) -> Part:
    """The ops in a graph of their own, and in it again what every part may compute for itself."""
    own, order, users = frozenset(values), graph.topological(), graph.users()
    outputs = tuple(v for v in values if v in graph.outputs or any(user not in own for user in users[v]))
    needed = set(values)
    for value in reversed(order):
        if value in needed and (value in own or value in repeated):
            needed.update(value.operands)
    made: dict[Value, Value] = {}
    for value in order:
        if value not in needed:
            continue
        if value in own or (value in repeated and value.op != "input"):
            made[value] = replace(value, operands=tuple(made[operand] for operand in value.operands))
        else:
            made[value] = replace(value, op="input", operands=(), attrs={})
    source = {copy: value for value, copy in made.items()}
    # Inputs in the order of their use, so that equal parts have equal texts.
    ends = tuple(made[value] for value in outputs)
    inputs = tuple(value for value in Graph(graph.name, (), ends).topological() if value.op == "input")
    copies = replace(graph, inputs=inputs, outputs=ends)
    numbered = tuple(replace(value, attrs={"index": index}) for index, value in enumerate(inputs))
    part = replace(graph, inputs=numbered, outputs=inlined(copies, numbered))
    return Part(part, tuple(source[v] for v in inputs), outputs, tuple(source[v] for v in copies.topological()))


def inlined(graph: Graph, arguments: Sequence[Value]) -> tuple[Value, ...]:
    """The outputs of the graph on these arguments."""
    made = dict(zip(graph.inputs, arguments, strict=True))
    for value in graph.topological():
        if value not in made:
            made[value] = replace(value, operands=tuple(made[operand] for operand in value.operands))
    return tuple(made[output] for output in graph.outputs)
