"""Shared memory through which consumers exchange tiles (``exchange``), and when they meet for that.

A tile that is combined has a buffer for each consumer; one that is gathered has one for all, of which each writes its
part. They meet between writing and reading. A buffer is written again when all have met after they read it: those of
one block meet again at the exchange that follows, or at the first one when the block runs again. By then products that
read a buffer are done, but for the first exchange, which meets before it writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.bindings import ir
from cleave.lowering import encodings, tt, ttg
from cleave.lowering.contract import combination
from cleave.lowering.exchange import COMBINE, GATHER
from cleave.lowering.shared_views import View
from cleave.lowering.ttir_types import ttir_type
from cleave.runtime.ttir_assembly import meet_at

_BARRIER = 11
"""Behind those of turns."""
_THREADS = 128
"""Of a consumer."""


@dataclass(frozen=True)
class Exchange:
    """One place of exchange: tiles of ``shape``, in ``buffers`` buffers.

    ``axis``: along which consumers have parts; none where tiles are combined. ``number``: tells those of like tiles
    apart. ``meets_first``: before it writes, too.
    """

    number: int
    shape: tt.Shape
    element: str
    bits: int
    parts: int
    axis: int | None
    meets_first: bool

    @property
    def buffers(self) -> int:
        return self.parts if self.axis is None else 1

    @property
    def bytes(self) -> int:
        """With what aligns them."""
        return self.buffers * -(-math.prod(self.shape) * self.bits // 8 // 128) * 128

    @property
    def type(self) -> ir.Type:
        layout = encodings.unswizzled(len(self.shape)) if self.axis is None else self._matrix()
        return encodings.memdesc(self.shape, self.element, layout)

    def _matrix(self) -> encodings.SharedMatrix:
        return ttg.shared_matrix(self.shape[1], self.bits)

    def view(self, buffer: ir.Value) -> View:
        """Of what was gathered."""
        return View(buffer, self.shape, self.element, self._matrix())

    def meet(self) -> None:
        tt.assembly(meet_at(_BARRIER, self.parts * _THREADS))

    def combine(self, op: ir.Operation, tile: ir.Value, part: int, buffers: Sequence[ir.Value]) -> ir.Value:
        """Of the tiles of all consumers, in one order: all have the same then."""
        if self.meets_first:
            self.meet()
        ttg.write(tile, buffers[part])
        self.meet()
        tiles = [tile if each == part else ttg.read(buffer, tile.type) for each, buffer in enumerate(buffers)]
        kind, dtype = (ir.StringAttr(op.attributes[name]).value for name in ("kind", "dtype"))
        rule, (found, *others) = combination(kind, dtype), tiles
        for other in others:
            found = rule(found, other)
        return found

    def gather(self, tile: ir.Value, part: int, buffer: ir.Value) -> None:
        """What threads write is seen by products behind a fence of those that wrote it."""
        assert self.axis is not None
        if self.meets_first:
            self.meet()
        extent = self.shape[self.axis] // self.parts
        ttg.write(tile, self.view(buffer).part(part, self.axis, extent).buffer)
        ttg.fence()
        self.meet()


def exchanges_of(ops: Iterable[ir.Operation], parts: int) -> dict[ir.Operation, Exchange]:
    """Blocks that exchange the same in the same order do it through the same buffers."""
    blocks: dict[ir.Block, list[ir.Operation]] = {}
    for op in ops:
        if op.name in (COMBINE, GATHER):
            blocks.setdefault(op.block, []).append(op)
    sequences: dict[tuple[Exchange, ...], int] = {}
    found: dict[ir.Operation, Exchange] = {}
    for inside in blocks.values():
        made = tuple(_exchange(op, place, inside, parts) for place, op in enumerate(inside))
        start = sequences.setdefault(made, sum(map(len, sequences)))
        found.update((op, replace(each, number=start + each.number)) for op, each in zip(inside, made, strict=True))
    return found


def _exchange(op: ir.Operation, place: int, inside: Sequence[ir.Operation], parts: int) -> Exchange:
    type_ = ttir_type(op.results[0])
    axis = ir.IntegerAttr(op.attributes["axis"]).value if op.name == GATHER else None
    first = len(inside) == 1 or (place == 0 and axis is not None)
    return Exchange(place, type_.shape or (), type_.element, type_.bits, parts, axis, first)


Exchanges = Mapping[ir.Operation, Exchange]
