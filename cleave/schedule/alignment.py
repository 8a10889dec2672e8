"""Divisibility of dynamic sizes that makes rows whole vectors, so that threads load 16 bytes at a time.

Kernels for any size read rows of unknown alignment element by element. A second form of the program, for sizes of which
rows are whole vectors, is what a launch runs where that holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from cleave.dialects.dims import Answer, Facts, const
from cleave.dialects.graph import Graph, Value
from cleave.errors import CleaveError
from cleave.schedule.workload import BYTES, VECTOR

SUFFIX = "__aligned"


def aligned(graph: Graph, sizes: Mapping[str, int]) -> Graph | None:
    """The graph with the facts that its inputs and outputs have aligned rows; None where nothing is to be gained.

    ``sizes``: representative ones; a form that they rule out is not made.
    """
    bound = {s for value in graph.inputs for dim in value.dims for s in graph.facts.simplify(dim.size).symbols}
    needed: dict[str, int] = {}
    for value in (*graph.inputs, *graph.outputs):
        for symbol, divisor in _needed(value, graph).items():
            if symbol in bound:
                needed[symbol] = max(needed.get(symbol, 1), divisor)
    if not needed or any(sizes.get(symbol, 0) % divisor for symbol, divisor in needed.items()):
        return None
    texts = [f"{symbol} = {divisor}*{quotient(symbol, divisor)}" for symbol, divisor in sorted(needed.items())]
    try:
        facts = Facts.parse((*graph.facts.texts, *texts))
    except CleaveError:  # the sizes are known not to be such multiples
        return None
    return replace(graph, facts=facts).named(graph.name + SUFFIX)


def quotient(symbol: str, divisor: int) -> str:
    """The name of the size that an aligned one is so many times."""
    return f"{symbol}__{divisor}"


def _needed(value: Value, graph: Graph) -> dict[str, int]:
    """The symbol that must be divisible for the rows of ``value`` to be whole vectors, and by what."""
    if len(value.dims) < 2:
        return {}
    size = graph.facts.simplify(value.dims[-1].size.substitute(dict(graph.extents)))
    elements = VECTOR // BYTES.get(value.dtype, 1)
    if graph.facts.divides(const(elements), size) is not Answer.UNKNOWN or len(size.terms) != 1:
        return {}
    monomial, coefficient = size.terms[0]
    symbols = [atom.text for atom in monomial if atom.kind == "symbol"]
    return {symbols[-1]: elements // math.gcd(elements, coefficient)} if symbols else {}
