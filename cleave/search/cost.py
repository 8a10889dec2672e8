"""What a program costs, as polynomials of its sizes, and the order of programs that holds for all sizes.

Four parts: ``length``, elements on the longest chain of dependent reductions; ``contraction``, floating-point
operations of contractions; ``pointwise``, elements that all other ops compute; ``materialised``, elements that
reductions leave for later ops. Beside them ``depth``, how many reductions depend on each other: it ranks programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from cleave.dialects.dims import Size, const, maximum, sym
from cleave.dialects.graph import Graph, Value
from cleave.errors import CleaveError

#: What a multiplication and addition of a contraction costs, in pointwise ops: tensor cores do them.
CONTRACTION_WEIGHT = 0.25
_FREE = frozenset("input constant index rename split merge slice concat gather cast".split())


@dataclass(frozen=True)
class Cost:
    """The four parts; see the module."""

    length: Size
    contraction: Size
    pointwise: Size
    materialised: Size
    depth: int = 0

    @property
    def parts(self) -> tuple[Size, Size, Size, Size]:
        return self.length, self.contraction, self.pointwise, self.materialised

    def evaluate(self, sizes: Mapping[str, int]) -> tuple[int, int, int, int]:
        one, two, three, four = (part.evaluate(sizes) for part in self.parts)
        return one, two, three, four

    def rank(self, sizes: Mapping[str, int]) -> tuple[int, float]:
        """The order of preference at given sizes: fewer dependent reductions, then less work."""
        _, contraction, pointwise, materialised = self.evaluate(sizes)
        return self.depth, CONTRACTION_WEIGHT * contraction / 2 + pointwise + materialised

    def dominates(self, other: Cost) -> bool:
        """At least as good in every part for all sizes >= 1, and better in one."""
        return self.parts != other.parts and all(never_more(a, b) for a, b in zip(self.parts, other.parts, strict=True))

    def __str__(self) -> str:
        return (
            f"reduction chain {self.length}; contraction flops {self.contraction}; "
            f"pointwise {self.pointwise}; materialised {self.materialised}"
        )


@cache
def never_more(a: Size, b: Size) -> bool:
    """Whether ``a <= b`` is certain where every symbol is at least 1; not if a size on the way is too large."""
    if a is b:
        return True
    try:
        difference = b - a
        shifted = difference.substitute({name: sym(name) + 1 for name in sorted(difference.symbols)})
    except CleaveError:
        return False
    return all(c >= 0 for _, c in shifted.terms)


def product(sizes: list[Size]) -> Size:
    result = const(1)
    for size in sizes:
        result = result * size
    return result


def cost_of(graph: Graph) -> Cost:
    """The cost of a graph as written; casts and views are free."""
    length: dict[Value, Size] = {}
    depth: dict[Value, int] = {}
    contraction = pointwise = materialised = const(0)
    outputs = set(graph.outputs)
    for value in graph.topological():
        before = longest([length[operand] for operand in value.operands])
        elements = product([dim.size for dim in value.dims])
        reduces = value.op in ("contract", "reduce")
        depth[value] = reduces + max((depth[operand] for operand in value.operands), default=0)
        if reduces:
            dims = {dim.name: dim.size for operand in value.operands for dim in operand.dims}
            before = before + product([dims[name] for name in value.attrs["over"]])
            work = product(list(dims.values()))
            if value.op == "contract":
                contraction = contraction + work * 2
            else:
                pointwise = pointwise + work
            if value not in outputs:
                materialised = materialised + elements
        elif value.op not in _FREE:
            pointwise = pointwise + elements
        length[value] = before
    chain = longest([length[value] for value in graph.outputs])
    deepest = max((depth[value] for value in graph.outputs), default=0)
    return Cost(chain, contraction, pointwise, materialised, deepest)


def longest(sizes: list[Size]) -> Size:
    """The maximum, with what is never the larger one left out."""
    kept: list[Size] = []
    for size in dict.fromkeys(sizes):
        if any(never_more(size, other) for other in kept):
            continue
        kept = [*(other for other in kept if not never_more(other, size)), size]
    result = kept[0] if kept else const(0)
    for size in kept[1:]:
        result = maximum(result, size)
    return result
