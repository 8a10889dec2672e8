"""Left operands that are loaded once and multiplied in a loop: which of them stay in registers during that.

A product that takes its left operand from registers does not read it from shared memory, whose bandwidth products of 64
rows use up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from cleave.bindings import ir
from cleave.lowering import tt

_THREADS = 128  # of a warpgroup
_MASK = 32
"""Registers for a mask and the positions that it follows from."""


def staying(
    loads: Sequence[ir.Operation],
    dots: Sequence[ir.Operation],
    resident: set[ir.Value],
    room: int,
    in_order: Collection[ir.Operation] = (),
) -> set[ir.Value]:
    """What the ``loads`` give that stays in registers, as long as each loop's tiles take ``room`` of them at most.

    ``in_order``: loops that are not rotated for want of registers.
    """
    found: set[ir.Value] = set()
    for load in loads:
        users = _users(load, dots)
        left = resident - found - {load.results[0]}
        loops = [tt.parent(user) for user in users]
        if users and all(needed(loop, dots, left, in_order=loop in in_order) <= room for loop in loops):
            found.add(load.results[0])
    return found


def _users(load: ir.Operation, dots: Sequence[ir.Operation]) -> list[ir.Operation]:
    """The products in inner loops of which it is the left operand; none if anything else needs it."""
    uses = list(load.results[0].uses)
    users = [use.owner.operation for use in uses if use.owner.operation in dots and use.operand_number == 0]
    inner = all(user.block != load.block and tt.parent(user).name == "scf.for" for user in users)
    return users if len(users) == len(uses) and inner else []


def needed(loop: ir.Operation, dots: Sequence[ir.Operation], resident: set[ir.Value], *, in_order: bool = False) -> int:
    """Registers of a thread for operands and results of a loop's products, and for its masks.

    ``in_order``: it is not rotated, so the operands that an iteration makes take the place of what they are made of.
    """
    block: ir.Block = loop.regions[0].blocks[0]
    inside = [dot for dot in dots if dot.block == block]
    sums = {dot.operands[2] for dot in inside}
    results = [dot.results[0] for dot in inside if dot.results[0] not in sums]
    made = {result for view in block.operations for result in view.operation.results} if in_order else set[ir.Value]()
    operands = [dot.operands[0] for dot in inside if dot.operands[0] not in resident | made]
    return registers_of([*results, *operands]) + _MASK * any(map(_is_mask, block.operations))


def _is_mask(view: ir.OpView) -> bool:
    """Whether it compares the elements of a matrix, as positions in it are."""
    op = view.operation
    return op.name in ("arith.cmpi", "arith.cmpf") and sum(extent > 1 for extent in tt.shape_of(op.results[0])) > 1


def registers_of(values: Iterable[ir.Value]) -> int:
    """Of each thread, for all these tiles."""
    found = 0
    for value in dict.fromkeys(values):
        bits = 32 if tt.element_name(value) == "f32" else 16
        found += math.prod(tt.shape_of(value)) * bits // 32 // _THREADS
    return found
