"""Packed dimensions: those that one operand of a contraction has for itself are one axis of every tile.

Triton's tensors in a loop then stay matrices: the queries of a group of heads, a tile of (heads, queries), are the rows
of one product, without a reshape between it and the softmax. A tile that has only some of the dimensions repeats its
elements along the others.
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
    """The places of the packed dimensions of a kernel."""

    places: Mapping[str, Place]

    def place(self, name: str, extent: int) -> Place:
        """Where a dimension lies; one that is not packed, with this extent, is its own axis."""
        return self.places.get(name) or Place(name, extent, 1, extent)

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
        sizes = [kernel.extents[name] or 1 for name in group]
        for number, name in enumerate(group):
            inner = math.prod(sizes[number + 1 :])
            places[name] = Place("*".join(group), math.prod(sizes), inner, sizes[number])
    return Packing(places)


class _Kernel:
    """What a kernel does with each dimension of its tiles."""

    def __init__(self, func: ir.Operation) -> None:
        self.contractions: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        self.extents: dict[str, int | None] = {}
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
            a, b = (cleave.tensor_type_of(operand).names for operand in op.operands)
            self.contractions.append((a, b))
        for result in op.results:
            self._seen(result.type)
        return ir.WalkResult.ADVANCE

    def _accessed(self, memory: ir.Value, tile: ir.Value) -> None:
        """A dimension of memory of which a tile has one element only has no place in an axis."""
        self.refused |= set(cleave.tensor_type_of(memory).names) - set(cleave.tensor_type_of(tile).names)

    def _seen(self, type_: ir.Type) -> None:
        if not isinstance(type_, ir.RankedTensorType):
            return
        tile, extents = cleave.decode(type_)
        for name, extent in zip(tile.names, extents, strict=True):
            if extent is None or self.extents.setdefault(name, extent) != extent:
                self.refused.add(name)

    def groups(self) -> list[tuple[str, ...]]:
        """Sets of dimensions that are one side of a contraction, and never anything else."""
        sides = {frozenset(side): side for side in self._sides() if len(side) > 1}
        batches = [(set(a), set(b)) for a, b in self.contractions]
        return [
            side
            for names, side in sides.items()
            if not any(names & other and names != other for other in sides)
            and not any(names & a and names & b for a, b in batches)
        ]

    def _sides(self) -> Iterator[tuple[str, ...]]:
        for a, b in self.contractions:
            for own, other in ((a, b), (b, a)):
                yield tuple(name for name in own if name not in other and name not in self.refused)
