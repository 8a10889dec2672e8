"""Symbols that nothing binds, such as the number of parts of a split."""

from __future__ import annotations

from collections.abc import Iterable

from cleave.dialects.graph import Graph, Value


def free_symbols(graph: Graph) -> set[str]:
    """Symbols of dims that neither an input's size nor a definition among the facts fixes."""

    def symbols(values: Iterable[Value]) -> set[str]:
        sizes = {dim.size for value in values for dim in value.dims}
        return {symbol for size in sizes for symbol in graph.facts.simplify(size).symbols}

    return symbols(graph.topological()) - symbols(graph.inputs) - graph.extents.keys()
