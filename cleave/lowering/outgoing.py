"""Tiles on their way from registers to memory: each through a buffer of its own, from which a copy takes it.

The copy goes on by itself, while the warpgroup is at its next tile; whoever has started it waits for it before the
buffer is written again, and before the block ends. Past the ends of the tensor it writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import encodings, tt, ttg
from cleave.lowering.encodings import SharedMatrix
from cleave.lowering.ttir_types import ttir_type

STORE = "tt.descriptor_store"


@dataclass(frozen=True)
class Outgoing:
    """The buffers of one store: a tile of ``shape`` for each of ``parts`` consumers."""

    shape: tt.Shape
    element: str
    bits: int
    parts: int

    @property
    def bytes(self) -> int:
        return self.parts * self.shape[0] * self.shape[1] * self.bits // 8

    @property
    def layout(self) -> SharedMatrix:
        return ttg.shared_matrix(self.shape[1], self.bits)

    @property
    def tiles_type(self) -> ir.Type:
        return encodings.memdesc((self.parts, *self.shape), self.element, self.layout)

    @property
    def tile_type(self) -> ir.Type:
        return encodings.memdesc(self.shape, self.element, self.layout)


def outgoing_of(store: ir.Operation, parts: int) -> Outgoing:
    """CleaveError for a tile that has no layout in shared memory."""
    type_ = ttir_type(store.operands[1])
    shape = type_.shape or ()
    if len(shape) != 2 or encodings.swizzle_of(shape[1], type_.bits) is None:
        raise CleaveError(f"a tile of shape {list(shape)} has no layout in shared memory for copies")
    return Outgoing(shape, type_.element, type_.bits, parts)


def send(tile: ir.Value, buffer: ir.Value, descriptor: ir.Value, offsets: Sequence[ir.Value]) -> None:
    """Start to store a tile, when the buffer's last one has gone."""
    ttg.await_stores()
    ttg.write(tile, buffer)
    ttg.fence()
    ttg.store(descriptor, offsets, buffer)
