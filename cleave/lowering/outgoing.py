"""Tiles on their way from registers to memory: each through a buffer of its own, from which a copy takes it.

The copy goes on by itself, while the warpgroup is at its next tile; whoever has started it waits for it before the
buffer is written again, and before the block ends. Past the ends of the tensor it writes nothing.

Where there is no room for a whole tile it is stored in ``pieces``, columns after columns, through one buffer. Threads
would write a few bytes of a row each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import encodings, tt, ttg
from cleave.lowering.encodings import SharedMatrix
from cleave.lowering.side_by_side import HALVES
from cleave.lowering.ttir_types import ttir_type
from cleave.passes.functions import ops_inside
from cleave.runtime.descriptors import DescriptorSpec

STORE = "tt.descriptor_store"
PIECES = (1, 2, 4)
"""In how many a tile may be stored."""
NARROWEST = 64
"""Bytes of a row of a piece."""


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


def store_in_pieces(function: ir.Operation, texts: Sequence[str], pieces: int) -> list[str]:
    """Store each tile in so many pieces; ``texts`` describe the function's arguments, and what comes back does then.

    CleaveError where these would be too narrow.
    """
    described: dict[ir.Value, None] = {}
    for store in [op for op in ops_inside(function) if op.name == STORE]:
        descriptor, tile, *rest, last = store.operands
        type_ = ttir_type(tile)
        width = (type_.shape or (1,))[-1] // pieces
        if width * type_.bits < 8 * NARROWEST:
            raise CleaveError(f"pieces of {width} columns are too narrow for copies")
        described[descriptor] = None
        with store.location, ir.InsertionPoint(store):
            for number, piece in enumerate(_pieces(tile, pieces)):
                offset = tt.same("arith.addi", last, ttg.i32(number * width)) if number else last
                tt.descriptor_store(descriptor, [*rest, offset], piece)
        store.erase()
    pairs = zip(texts, function.regions[0].blocks[0].arguments, strict=True)
    return [_narrower(text, value, pieces) if value in described else text for text, value in pairs]


def _pieces(tile: ir.Value, pieces: int) -> list[ir.Value]:
    if pieces == 1:
        return [tile]
    rows, columns = tt.shape_of(tile)
    type_ = tt.tensor((rows, columns // 2), tt.element_of(tile))
    halves = tt.create(HALVES, [type_, type_], [tile]).results
    return [piece for half in halves for piece in _pieces(half, pieces // 2)]


def _narrower(text: str, descriptor: ir.Value, pieces: int) -> str:
    """The description of one whose blocks have so many times fewer columns, which this one becomes."""
    spec = DescriptorSpec.parse(text)
    narrow = replace(spec, extents=(*spec.extents[:-1], spec.extents[-1] // pieces))
    descriptor.set_type(tt.descriptor(narrow.extents, ttir_type(descriptor).element))
    return str(narrow)


def send(tile: ir.Value, buffer: ir.Value, descriptor: ir.Value, offsets: Sequence[ir.Value]) -> None:
    """Start to store a tile, when the buffer's last one has gone."""
    ttg.await_stores()
    ttg.write(tile, buffer)
    ttg.fence()
    ttg.store(descriptor, offsets, buffer)
