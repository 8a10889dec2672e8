"""Extrema along the rows of an accumulator, each as several chains of instructions and not as one.

Triton takes the elements that a thread has of a row one after the other: 32 of 128 columns. What waits for a row's
maximum, as all exponentials of softmax do, waits for so many results in turn. A part of the row has a chain of its own.
"""

from __future__ import annotations

from cleave.bindings import ir
from cleave.lowering import encodings, tt, ttg
from cleave.lowering.encodings import ROWS, Encoding, Mma, MmaInParts, Slice

_PARTS = 4
_NARROWEST = 16
"""Columns of a part: each thread has four of them."""
_EXTREMA = ("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf")


def has_chains(op: ir.Operation, encoding: Encoding) -> bool:
    """Whether an op, with its result in this layout, is such an extremum: its order makes no difference."""
    if op.name != "tt.reduce" or not isinstance(encoding, Slice) or not isinstance(encoding.parent, Mma):
        return False
    rows, columns = tt.shape_of(op.operands[0])
    whole = rows == ROWS and columns == encoding.parent.columns and columns >= _PARTS * _NARROWEST
    combined = next(iter(op.regions[0].blocks[0].operations)).operation
    return whole and encoding.dim == 1 and columns.bit_count() == 1 and combined.name in _EXTREMA


def in_chains(op: ir.Operation, tile: ir.Value) -> ir.Value:
    """The extremum over ``tile``, which is in the layout of an accumulator."""
    rows, columns = tt.shape_of(tile)
    whole = encodings.accumulator(columns)
    layout: Encoding = MmaInParts(columns, _PARTS)
    shape = (rows, _PARTS, columns // _PARTS)
    found = tt.value("tt.reshape", encodings.tensor(shape, tt.element_of(tile), layout), tile)
    for _ in range(2):  # the same element of all parts, then those of one
        layout, shape = Slice(1, layout), (rows, *shape[2:])
        found = _reduced(op, found, shape, layout)
    return ttg.retyped(found, shape, Slice(1, whole))


def _reduced(op: ir.Operation, tile: ir.Value, shape: tt.Shape, layout: Encoding) -> ir.Value:
    copied = op.clone()
    copied.operands[0] = tile
    copied.results[0].set_type(encodings.tensor(shape, tt.element_of(tile), layout))
    return copied.results[0]
