"""Tiles in shared memory as products read them: whole buffers, their transposes, and parts of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cleave.bindings import ir
from cleave.lowering import encodings, tt, ttg
from cleave.lowering.encodings import SharedMatrix


@dataclass(frozen=True)
class View:
    """``within``: the extents of the buffer, where it is a part of one."""

    buffer: ir.Value
    shape: tt.Shape
    element: str
    layout: SharedMatrix
    within: tt.Shape | None = None

    @property
    def type(self) -> ir.Type:
        return encodings.memdesc(self.shape, self.element, self.layout, self.within)

    def transposed(self) -> View:
        layout = replace(self.layout, transposed=not self.layout.transposed)
        within = self.within[::-1] if self.within else None
        turned = replace(self, shape=self.shape[::-1], layout=layout, within=within)
        return replace(turned, buffer=ttg.transposed(self.buffer, turned.type))

    def part(self, number: int, axis: int, extent: int) -> View:
        """Part ``number`` of those of this extent along an axis."""
        offsets = [number * extent if each == axis else 0 for each in range(len(self.shape))]
        shape = (*self.shape[:axis], extent, *self.shape[axis + 1 :])
        smaller = replace(self, shape=shape, within=self.within or self.shape)
        return replace(smaller, buffer=ttg.part(self.buffer, offsets, smaller.type))
