"""Sums of products that have a factor in common: c·x + c·y as c·(x + y), so that one product adds to the other.

Only of tiles of f16, whose products are far from the ends of f32: neither way overflows.
"""

from __future__ import annotations

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.passes.functions import ops_inside


def take_out_common_factors(func: ir.Operation) -> None:
    """In a tile program, wherever nothing else needs c·x or c·y."""
    for add in [op for op in ops_inside(func) if op.name == "cleave.add"]:
        one, other = (_scaled(operand) for operand in add.operands)
        if one and other and one[1] == other[1] and one[0].type == other[0].type and one[0] != other[0]:
            _take_out(add, one[0], other[0], one[1])


def _scaled(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """A product of tiles and a number, if ``value`` is c·x for this use alone."""
    op = value.owner
    if isinstance(op, ir.Block) or op.name != "cleave.mul" or len(list(value.uses)) != 1:
        return None
    pairs = zip(op.operands, reversed(list(op.operands)), strict=True)
    return next(((x, c) for x, c in pairs if _is_bounded(x) and not cleave.decode(c.type)[0].names), None)


def _is_bounded(value: ir.Value) -> bool:
    op = value.owner
    if isinstance(op, ir.Block) or op.name != "cleave.contract" or len(list(value.uses)) != 1:
        return False
    types = [cleave.decode(operand.type)[0].dtype for operand in op.operands]
    return types == ["f16", "f16"] and cleave.decode(value.type)[0].dtype == "f32"


def _take_out(add: ir.Operation, one: ir.Value, other: ir.Value, factor: ir.Value) -> None:
    scaled = [operand.owner.operation for operand in add.operands]
    with add.location, ir.InsertionPoint(add):
        total = ir.Operation.create("cleave.add", [one.type], [one, other]).results[0]
        product = ir.Operation.create("cleave.mul", [add.results[0].type], [total, factor])
    add.results[0].replace_all_uses_with(product.results[0])
    for op in (add, *scaled):
        op.erase()
