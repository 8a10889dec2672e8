"""A part of a loop's exponentials by a polynomial (the idea is FlashAttention-4's, for GPUs with other rates).

A multiprocessor of an H200 computes 16 exponentials and 128 multiply-adds in a cycle, and issues 128 threads'
instructions. In attention with heads of 64 exponentials take as long as products do. The polynomial takes 8
instructions: with one in 8 elements computed so, both pipes are about as busy.

Only exponentials from an anchor (docs/cascades.md) are replaced, whose exponents are 1 at most, which spares the
polynomial a comparison; and only in kernels that leave nothing in more digits than the polynomial has.
"""

from __future__ import annotations

from cleave.bindings import ir
from cleave.lowering import encodings, tt
from cleave.lowering.encodings import Encoding, Mma
from cleave.lowering.outgoing import STORE
from cleave.passes.functions import ops_inside
from cleave.runtime.ttir_assembly import EXPONENTIALS, TOGETHER

_NARROW = ("f16", "bf16", "f8E4M3FN", "f8E5M2")
_STORES = ("tt.store", STORE)
_PER_COLUMN = 2
"""Columns of an accumulator of 64 rows for each element that one of 128 threads has."""


def anchored_exponentials(function: ir.Operation) -> frozenset[ir.Operation]:
    """Those of tiles in loops with products, of which each thread has whole groups."""
    stored = [op.operands[1] for op in ops_inside(function) if op.name in _STORES]
    if not all(tt.element_name(value) in _NARROW for value in stored):
        return frozenset()
    loops = [op for op in ops_inside(function) if op.name == "scf.for"]
    multiplying = [loop for loop in loops if any(op.name == "tt.dot" for op in loop.regions[0].blocks[0].operations)]
    return frozenset(op for loop in multiplying for op in ops_inside(loop) if _is_anchored(op))


def _is_anchored(op: ir.Operation) -> bool:
    """Whether its exponent is a multiply-add, which nothing but anchors makes, of what is not masked: masks cost more
    than exponentials."""
    exponent = op.operands[0].owner if op.name == "math.exp2" else None
    if exponent is None or isinstance(exponent, ir.Block) or exponent.name != "math.fma":
        return False
    scores, shape = exponent.operands[0].owner, tt.shape_of(op.results[0])
    masked = not isinstance(scores, ir.Block) and scores.name == "arith.select"
    return not masked and len(shape) == 2 and shape[1] % (_PER_COLUMN * TOGETHER) == 0


def with_polynomial(exponent: ir.Value, encoding: Encoding) -> ir.Operation | None:
    """2 to the power of a tile; None in a layout in which threads have other numbers of elements."""
    if not isinstance(encoding, Mma):
        return None
    type_ = encodings.tensor(tt.shape_of(exponent), tt.element_of(exponent), encoding)
    return tt.computed(EXPONENTIALS, type_, exponent, TOGETHER)
