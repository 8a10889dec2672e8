"""How long the parts of a split are, where that is free: whole vectors.

The search cuts a dim of n elements into s parts of ``u*ceildiv(n, s*u)`` elements and proves the program for all
positive s and u. The launch chooses s, the schedule u: with a multiple of a vector's elements each part of a row that
begins at a vector does so, too, and what it loads are vectors, asynchronous copies or blocks of descriptors.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleave.dialects.dims import Dim, Size
from cleave.dialects.given_sizes import check_given
from cleave.dialects.graph import Graph, Value
from cleave.schedule.free_symbols import free_symbols

UNIT, TILE = 16, 128
"""Elements that parts are multiples of: vectors of one byte each, and sectors of memory of f16; of long dims as many as
tiles of them have, which then lie in one part each."""
MANY = 32
"""Of so many units at least a dim is long: as many parts could have the same length."""


def in_whole_vectors(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with each free unit of its parts' lengths a number: that of ``sizes``, otherwise ``UNIT``.

    CleaveError for a unit or a number of parts of ``sizes`` against the facts.
    """
    given, units = given_units(graph, sizes), _units(graph)
    usual = {unit: _usual(unit, graph, sizes) for unit in sorted(units - given.keys())}
    return graph.with_sizes({**given, **usual}) if units else graph


def _usual(unit: str, graph: Graph, sizes: Mapping[str, int]) -> int:
    """That of a split dim whose size is known, and of no others."""
    known = {**sizes, **graph.extents}
    splits = [value for value in graph.topological() if value.op == "split"]
    wholes = [split.operands[0].size(split.attrs["dim"]) for split in splits if unit in _factors(_length_of(split))]
    if not wholes or not all(whole.symbols <= known.keys() for whole in wholes):
        return UNIT
    return TILE if min(whole.evaluate(known) for whole in wholes) >= MANY * TILE else UNIT


def given_units(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """Those of ``sizes`` that parts' lengths are multiples of. CleaveError as from ``in_whole_vectors``."""
    for symbol in sorted(free_symbols(graph) & sizes.keys()):
        check_given({symbol: sizes[symbol]}, {}, graph.facts)
    return {unit: sizes[unit] for unit in _units(graph) & sizes.keys()}


def part_lengths(graph: Graph) -> list[Size]:
    """Elements of the parts of each split."""
    return [_length_of(value) for value in graph.topological() if value.op == "split"]


def _length_of(split: Value) -> Size:
    return split.size(Dim.parse(split.attrs["into"][1]).name)


def _units(graph: Graph) -> set[str]:
    """The free symbols that the length of a part is a multiple of and no dim is called by, as are numbers of parts."""
    named = {dim.name for value in graph.topological() for dim in value.dims}
    return {unit for length in part_lengths(graph) for unit in _factors(length)} & free_symbols(graph) - named


def _factors(size: Size) -> set[str]:
    """The symbols that all terms have as a factor."""
    terms = [{atom.text for atom in monomial if atom.kind == "symbol"} for monomial, _ in size.terms]
    return set.intersection(*terms) if terms else set()
