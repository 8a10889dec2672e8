"""Sizes at which the checks evaluate programs: small, and such that the program makes sense at them."""

from __future__ import annotations

from collections.abc import Mapping

from cleave.dialects.dims import Dim, parse, sym
from cleave.dialects.graph import Graph


def numbered(letter: str) -> tuple[str, ...]:
    """Names that begin with a letter, the shortest first."""
    return (letter, *(f"{letter}{number}" for number in range(1, 100)))


COUNTS, UNITS = numbered("s"), numbered("u")
"""Names of symbols that the search invents: how many parts a split has, and what a part's length is a multiple of."""


def symbols_of(graph: Graph) -> list[str]:
    """All symbols of the graph's dims, sorted."""
    return sorted({s for value in graph.topological() for dim in value.dims for s in dim.size.symbols})


def sizes_of(sizes: Mapping[str, int], *graphs: Graph) -> dict[str, int]:
    """Those of the sizes that the graphs have."""
    return {symbol: sizes[symbol] for graph in graphs for symbol in symbols_of(graph) if symbol in sizes}


def reduced_symbols(graph: Graph) -> set[str]:
    """Symbols of dims that some op sums or takes a maximum over."""
    return {
        symbol
        for value in graph.topological()
        if value.op in ("contract", "reduce")
        for name in value.attrs["over"]
        for operand in value.operands
        if name in operand.names
        for symbol in operand.size(name).symbols
    }


def completed(graph: Graph, sizes: Mapping[str, int], parts: int, fixed: Mapping[str, int]) -> dict[str, int]:
    """The sizes and what follows: definitions among the facts, room for slices, ``parts`` for split counts.

    Of parts of any length the shortest: so that at small sizes several have elements.
    """
    result = {**dict.fromkeys(COUNTS, parts), **dict.fromkeys(UNITS, 1), **sizes, **fixed}
    for value in graph.topological():
        if value.op == "slice":
            whole = str(value.operands[0].size(value.attrs["dim"]))
            end = parse(str(value.attrs["offset"])) + value.size(Dim.parse(value.attrs["into"]).name)
            if whole in result:
                result[whole] = max(result[whole], end.evaluate(result))
    for symbol in symbols_of(graph):
        defined = graph.facts.simplify(sym(symbol))
        if defined is not sym(symbol) and defined.symbols <= result.keys():
            result[symbol] = defined.evaluate(result)
    return result


def work(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Elements that evaluation computes."""
    total = 0
    for value in graph.topological():
        dims = {dim.name: dim.size for operand in (value, *value.operands) for dim in operand.dims}
        elements = 1
        for size in dims.values():
            elements *= size.evaluate(sizes)
        total += elements
    return total
