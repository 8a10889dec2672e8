"""The tile with masks first, as the first iteration of the rotated loop over whole tiles.

A tile program has a loop over whole tiles and behind it, with masks, an iteration for the rest. The loop is rotated, so
its first iteration stands in front of it already; the rest would be one more copy of an iteration, before which all
products end. What loops carry are reductions, so their order is free. The last tile is left to the iteration with masks
even where it is whole, so that there always is one:

    for i = 0, step, … whole: f(i)              for i = last … end: g(i), with masks
    for i = whole … end: g(i), with masks       for i = 0, step, … last: f(i)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.lowering import tt
from cleave.lowering.loop_plan import SINGLE, LoopPlan, goes_on, plan_of, rotation_of
from cleave.lowering.register_layouts import loaded


@dataclass(frozen=True)
class Masked:
    """The iteration before a loop's own. ``counterparts``: of what it passes on, the loop's own values."""

    loop: ir.Operation
    plan: LoopPlan
    counterparts: Mapping[ir.Value, ir.Value]


def put_masks_first(loops: Sequence[ir.Operation], resident: set[ir.Value]) -> dict[ir.Operation, Masked]:
    """Exchange loops that are rotated and the iteration that goes on with what one carried, where that can be."""
    found: dict[ir.Operation, Masked] = {}
    for rest in loops:
        whole = _before(rest) if SINGLE in rest.attributes else None
        masked = _masked(whole, rest, resident) if whole else None
        if whole and masked:
            _exchange(whole, rest)
            found[whole] = masked
    return found


def _before(rest: ir.Operation) -> ir.Operation | None:
    """The loop whose results, which nothing else uses, this one starts from, and at whose end it begins."""
    if not goes_on(rest):
        return None
    low, _, step, *starts = rest.operands
    owner = starts[0].owner
    if isinstance(owner, ir.Block) or owner.name != "scf.for":
        return None
    whole = owner.operation
    alone = starts == list(whole.results) and all(len(list(start.uses)) == 1 for start in starts)
    adjacent = whole.operands[1] == low and whole.operands[2] == step and whole.block == rest.block
    return whole if alone and adjacent else None


def _masked(whole: ir.Operation, rest: ir.Operation, resident: set[ir.Value]) -> Masked | None:
    """None where one of them is not rotated, or their late parts differ."""
    plan, other = plan_of(whole, resident), rotation_of(rest, resident)
    if plan is None or other is None or goes_on(whole) or plan.late_yields != other.late_yields:
        return None
    if [op.name for op in plan.behind] != [op.name for op in other.behind]:
        return None
    found: set[tuple[ir.Value, ir.Value]] = set()
    passed, taken = _ahead(rest, other), _ahead(whole, plan)
    for op, own in zip(other.behind, plan.behind, strict=True):
        for a, b in zip(op.operands, own.operands, strict=True):
            if a.type != b.type or (a in passed, a in resident) != (b in taken, b in resident):
                return None
            found |= {(a, b)} if a in passed else {(loaded(a), loaded(b))} if a in resident else set()
    counterparts = dict(found)
    one_to_one = len(set(counterparts.values())) == len(found)
    return Masked(rest, other, counterparts) if one_to_one else None


def _ahead(loop: ir.Operation, plan: LoopPlan) -> set[ir.Value]:
    """What an iteration has when its late part begins."""
    block: ir.Block = loop.regions[0].blocks[0]
    return {*block.arguments, *(result for op in (*plan.first, *plan.prepare) for result in op.results)}


def _exchange(whole: ir.Operation, rest: ir.Operation) -> None:
    low, _, step, *starts = whole.operands
    end = rest.operands[1]
    with ir.InsertionPoint(rest), rest.location:
        one = tt.constant_like(end, 1)
        before = tt.same("arith.divsi", tt.same("arith.subi", end, one), step)
        last = tt.same("arith.muli", before, step)
        last = last if tt.is_zero(low) else tt.same("arith.maxsi", last, low)
    whole.operands[1] = rest.operands[0] = last
    for number, start in enumerate(starts):
        rest.operands[3 + number] = start
        rest.results[number].replace_all_uses_with(whole.results[number])
        whole.operands[3 + number] = rest.results[number]
    whole.move_after(rest)
