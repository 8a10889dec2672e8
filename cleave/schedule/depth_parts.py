"""Contractions over a dim that no tile covers exactly, as sums of contractions over its parts.

Extents of tiles are powers of two: of a head of 192 elements in one tile a quarter of the tile would be zeros, and as
much of the work for nothing. Its parts of 128 and 64 are whole tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from cleave.dialects.dims import Dim, const
from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import VIEWS
from cleave.dialects.tensor_type import TensorType, accumulator
from cleave.schedule.rename import is_memory_view, viewed
from cleave.schedule.tilings import MAX_RESIDENT, MINIMUM, next_power

MOST_PARTS = 3


def in_whole_tiles(graph: Graph) -> Graph:
    """The graph with such contractions in parts: those of inputs over a dim of known size that a kernel does not loop
    over, as it is summed inside the loop over another dim. Not those of inputs that something else reads, too: one tile
    may serve both, as where a cache is keys and values."""
    parts = _Parts(graph)
    new: dict[Value, Value] = {value: value for value in graph.inputs}
    for value in graph.topological():
        if value not in new:
            operands = tuple(new[operand] for operand in value.operands)
            kept = value if operands == value.operands else replace(value, operands=operands)
            new[value] = parts.of(kept)
    return replace(graph, outputs=tuple(new[output] for output in graph.outputs))


class _Parts:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.kept = {name for output in graph.outputs for name in output.names}
        self.taken = {name for value in graph.topological() for name in (*value.names, *value.attrs.get("over", ()))}
        self.names: dict[tuple[str, int], str] = {}
        computed = [value for value in graph.topological() if value.op not in VIEWS]
        self.readers = Counter(tensor for value in computed for tensor in set(map(viewed, value.operands)))

    def of(self, value: Value) -> Value:
        """The value, or the sum that it is of its parts."""
        name = next(filter(lambda each: self._is_to_be_cut(value, each), value.attrs.get("over", ())), None)
        if value.op != "contract" or name is None:
            return value
        wide = TensorType(value.dims, accumulator(value.dtype))
        cut = _cut(self._size(value, name))
        first, *others = (self._part(value, name, start, extent, wide) for start, extent in cut)
        for other in others:
            first = Value("add", (first, other), wide, {}, value.location)
        return first if wide == value.type else Value("cast", (first,), value.type, {}, value.location)

    def _is_to_be_cut(self, value: Value, name: str) -> bool:
        size, inside = self._size(value, name), not self.kept.issuperset(value.names)
        whole = all(name in operand.names and is_memory_view(operand) for operand in value.operands)
        alone = all(self.readers[viewed(operand)] == 1 for operand in value.operands)
        return inside and whole and alone and size % MINIMUM == 0 and 1 < size.bit_count() <= MOST_PARTS

    def _size(self, value: Value, name: str) -> int:
        """0 where it is not known, or where more than a tile of it can be."""
        size = next((operand.size(name) for operand in value.operands if name in operand.names), const(0))
        if not size.symbols <= self.graph.extents.keys():
            return 0
        known = size.evaluate(self.graph.extents)
        return known if next_power(known) <= MAX_RESIDENT else 0

    def _part(self, value: Value, name: str, start: int, extent: int, wide: TensorType) -> Value:
        into = Dim(self._name(name, start), const(extent))
        operands = tuple(_slice(operand, name, start, into) for operand in value.operands)
        over = tuple(into.name if each == name else each for each in value.attrs["over"])
        return Value("contract", operands, wide, {**value.attrs, "over": over}, value.location)

    def _name(self, name: str, start: int) -> str:
        """One for each part of a dim, wherever it is summed over."""
        if (name, start) not in self.names:
            found = f"{name}_{start}"
            while found in self.taken:
                found += "_"
            self.taken.add(found)
            self.names[name, start] = found
        return self.names[name, start]


def _slice(value: Value, name: str, start: int, into: Dim) -> Value:
    dims = tuple(into if dim.name == name else dim for dim in value.dims)
    attrs = {"dim": name, "into": str(into), "offset": str(start)}
    return Value("slice", (value,), TensorType(dims, value.dtype), attrs, value.location)


def _cut(size: int) -> Iterator[tuple[int, int]]:
    """(start, extent) of powers of two that add up to the size, the largest first."""
    start = 0
    while start < size:
        extent = 1 << (size - start).bit_length() - 1
        yield start, extent
        start += extent
