"""Numbers and index arithmetic that are added to a tile program, at the current insertion point, and what such are."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Size, parse

_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divui": operator.floordiv,
    "arith.remui": operator.mod,
    "arith.minsi": min,
    "arith.maxsi": max,
}


def arith(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """``arith.<name>`` of two indices."""
    return ir.Operation.create(f"arith.{name}", [ir.IndexType.get()], [a, b]).results[0]


def constant(number: int) -> ir.Value:
    value = ir.IntegerAttr.get(ir.IndexType.get(), number)
    return ir.Operation.create("arith.constant", [ir.IndexType.get()], [], {"value": value}).results[0]


def extent(size: str) -> ir.Value:
    """The value of a size expression over the kernel's symbols."""
    text = ir.StringAttr.get(size)
    return ir.Operation.create("cleave.extent", [ir.IndexType.get()], [], {"size": text}).results[0]


def evaluate(value: ir.Value, program_ids: Sequence[int], size: int) -> int | None:
    """What an index is for a block at this place of the grid, if all sizes are ``size``; None if other ops make it."""
    op = value.owner
    if isinstance(op, ir.Block):
        return None
    if op.name == "arith.constant":
        return ir.IntegerAttr(op.attributes["value"]).value
    if op.name == "cleave.program_id":
        return program_ids[cleave.plain("integer", op.attributes["axis"])]
    if op.name == "cleave.extent":
        return evaluate_size(parse(cleave.plain("string", op.attributes["size"])), size)
    operands = [evaluate(operand, program_ids, size) for operand in op.operands]
    if op.name not in _OPERATIONS or any(operand is None for operand in operands):
        return None
    a, b = (operand or 0 for operand in operands)
    return _OPERATIONS[op.name](a, b) if b or op.name not in ("arith.divui", "arith.remui") else None


def evaluate_size(extent_: Size, size: int) -> int:
    return extent_.evaluate(dict.fromkeys(extent_.symbols, size))
