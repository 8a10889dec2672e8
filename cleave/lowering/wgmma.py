"""Which products of tiles warpgroups can do, and what they read from shared memory for them."""

from __future__ import annotations

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import encodings, tt

_NUMBERS = ("f16", "bf16")


def check_product(dot: ir.Operation, resident: set[ir.Value]) -> None:
    """CleaveError for one that they cannot. ``resident``: what is in shared memory."""
    left, right, _ = dot.operands
    rows, columns = tt.shape_of(dot.results[0])
    if rows % encodings.ROWS or columns % 8:
        raise CleaveError(f"a product of {rows} rows and {columns} columns is none of warpgroups")
    if tt.element_name(left) not in _NUMBERS:
        raise CleaveError(f"a product of {tt.element_name(left)}: of 16 bits are those that read either order of B")
    if right not in resident:
        raise CleaveError("the right operand of a product is none that can be copied: the kernel computes it")


def operands_read(dot: ir.Operation) -> int:
    """Elements: each instruction reads its 64 rows and all of its columns."""
    rows, columns = tt.shape_of(dot.results[0])
    instructions = rows // encodings.ROWS * -(-columns // 256)
    return instructions * (encodings.ROWS + min(columns, 256)) * tt.shape_of(dot.operands[0])[1]
