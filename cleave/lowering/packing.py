"""Packed dimensions: those that one operand of a contraction has for itself are one axis of every tile.

Triton's tensors in a loop then stay matrices: the queries of a group of heads, a tile of (heads, queries), are the rows
of one product, without a reshape between it and the softmax. A tile that has only some of the dimensions repeats its
elements along the others. Where tiles of another part of the kernel have other extents of these dimensions, each is an
axis of its own there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.lowering.tiles import Layout, layout_of

_REDUCING = ("cleave.contract", "cleave.reduce")


@dataclass(frozen=True)
class Place:
    """Where a dimension lies in its axis: element i of the axis has index (i // inner) % size."""

    axis: str
    extent: int
    inner: int
    size: int


@dataclass(frozen=True)
class Packing:
    """The places of the packed dimensions of a kernel, in tiles that have their sizes."""

    places: Mapping[str, Place]

    def place(self, name: str, extent: int) -> Place:
        """Where a dimension of this extent lies; one that is not packed is its own axis."""
        found = self.places.get(name)
        return found if found and found.size == extent else Place(name, extent, 1, extent)

    def place_in(self, layout: Layout, name: str) -> Place:
        """Where a dimension lies in a tile that has these axes, if it is among them at all."""
        found = self.places.get(name)
        if found and found.axis in layout.names:
            return found
        extent = dict(zip(layout.names, layout.shape, strict=True)).get(name, 1)
        return Place(name, extent, 1, extent)

    def layout(self, type_: ir.Type) -> Layout:
        """The axes of a tile of this type."""
        layout = layout_of(type_)
        axes = {place.axis: place.extent for place in map(self.place, layout.names, layout.shape)}
        return Layout(tuple(axes), tuple(axes.values()), layout.dtype)


def packing_of(func: ir.Operation) -> Packing:
    """The dimensions of a kernel that are packed."""
    kernel = _Kernel(func)
    places: dict[str, Place] = {}
    for group in kernel.groups():
        sizes = list(group.values())
        for number, name in enumerate(group):
            inner = math.prod(sizes[number + 1 :])
            places[name] = Place("*".join(group), math.prod(sizes), inner, sizes[number])
    return Packing(places)


Extents = Mapping[str, int]
"""Of dimensions, in the order of a tile."""


class _Kernel:
    """What a kernel does with each dimension of its tiles."""

    def __init__(self, func: ir.Operation) -> None:
        self.contractions: list[tuple[Extents, Extents]] = []
        self.tiles: list[Extents] = []
        self.accesses: list[tuple[tuple[str, ...], Extents]] = []
        self.refused: set[str] = set()
        func.walk(self._visit, ir.WalkOrder.PRE_ORDER)

    def _visit(self, op: ir.Operation) -> ir.WalkResult:
        if op.name in ("cleave.load", "cleave.gather_load"):
            self._accessed(op.operands[0], op.results[0])
        elif op.name == "cleave.store":
            self._accessed(op.operands[1], op.operands[0])
        elif op.name in _REDUCING:
            self.refused |= set(cleave.plain("strings", op.attributes["over"]))
        if op.name == "cleave.contract":
            a, b = (self._extents(operand.type) for operand in op.operands)
            self.contractions.append((a, b))
        self.tiles += [
            self._extents(result.type) for result in op.results if isinstance(result.type, ir.RankedTensorType)
        ]
        return ir.WalkResult.ADVANCE

    def _accessed(self, memory: ir.Value, tile: ir.Value) -> None:
        self.accesses.append((cleave.tensor_type_of(memory).names, self._extents(tile.type)))

    def _extents(self, type_: ir.Type) -> Extents:
        tile, extents = cleave.decode(type_)
        self.refused |= {name for name, extent in zip(tile.names, extents, strict=True) if extent is None}
        return {name: extent or 1 for name, extent in zip(tile.names, extents, strict=True)}

    def groups(self) -> list[Extents]:
        """Dimensions that are one side of a contraction, and never anything else."""
        sides = {frozenset(side): side for side in self._sides() if len(side) > 1}
        return [
            side
            for names, side in sides.items()
            if not any(names & other and names != other for other in sides)
            and not any(self._holds(side, a) and self._holds(side, b) for a, b in self.contractions)
            and all(side == other for other in self._sides() if frozenset(other) == names)
            and all(self._takes(side, tile) for tile in self.tiles)
            and all(self._reaches(side, memory, tile) for memory, tile in self.accesses)
        ]

    def _sides(self) -> Iterator[Extents]:
        for a, b in self.contractions:
            for own, other in ((a, b), (b, a)):
                yield {name: own[name] for name in own if name not in other and name not in self.refused}

    @staticmethod
    def _holds(side: Extents, tile: Extents) -> bool:
        return any(tile.get(name) == extent for name, extent in side.items())

    @staticmethod
    def _takes(side: Extents, tile: Extents) -> bool:
        """All of the tile's dimensions among these have the sizes of the group, or none has."""
        return len({extent == side[name] for name, extent in tile.items() if name in side}) < 2

    @staticmethod
    def _reaches(side: Extents, memory: tuple[str, ...], tile: Extents) -> bool:
        """A dimension of memory of which a tile has one element only has no place in an axis."""
        return not _Kernel._holds(side, tile) or all(name in tile for name in memory if name in side)
