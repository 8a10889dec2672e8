"""Which products of a loop may run while the warpgroup does something else: the dependence graph of a loop's body.

A product is *late* if it needs the result of another one of the same iteration other than as its accumulator, as
softmax(q·k)·v does. If nothing else of an iteration needs what the late products of the iteration before gave, the loop
is rotated by one iteration:

    first(0); prepare(0)
    for i = 1, 2, …: products of first(i) and late(i−1) are started, then the rest of first(i); finish(i−1); prepare(i)
    late(last); finish(last)

so that the late products run under the pointwise work of the next iteration. Other loops keep their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.lowering.register_layouts import is_tile
from cleave.lowering.side_by_side import HALVES

_SINKING = ("arith.truncf", "tt.fp_to_fp", "tt.expand_dims", "tt.broadcast", "tt.splat")
"""Ops moved to where their results are needed, as these hold more registers than their operands, or the same."""
SINGLE = "tt.num_stages"
"""What only loops of one iteration at most have: a pipeline of their own."""
_KEPT = ("scf.for", "scf.if", "tt.store", "tt.elementwise_inline_asm")


@dataclass(frozen=True)
class LoopPlan:
    """The ops of a rotated loop's body, each part in order; loads into shared memory are made when they are needed."""

    invariant: tuple[ir.Operation, ...]
    first: tuple[ir.Operation, ...]
    prepare: tuple[ir.Operation, ...]
    late: tuple[ir.Operation, ...]
    finish: tuple[ir.Operation, ...]
    late_yields: tuple[int, ...]  # positions of what the late part carries on

    @property
    def behind(self) -> tuple[ir.Operation, ...]:
        """What of an iteration stands in the next one."""
        return (*self.late, *self.finish)


def plan_of(loop: ir.Operation, resident: set[ir.Value]) -> LoopPlan | None:
    """None where the loop is not to be rotated, as where it has a pipeline of its own: at most one iteration."""
    return None if SINGLE in loop.attributes else rotation_of(loop, resident)


def rotation_of(loop: ir.Operation, resident: set[ir.Value]) -> LoopPlan | None:
    """Of a loop of any number of iterations."""
    return _Body(loop, resident).plan()


def goes_on(loop: ir.Operation) -> bool:
    """Whether it goes on with what another loop carried, as the few iterations do that need masks."""
    return any(map(_is_carried, list(loop.operands)[3:]))


def _is_carried(value: ir.Value) -> bool:
    """Whether it comes out of a loop, or is half of what does: that of products joined there, but not behind it."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return False
    return _is_carried(owner.operands[0]) if owner.name == HALVES else owner.name == "scf.for"


def are_movable(ops: Iterable[ir.Operation]) -> bool:
    """Whether their order is one of values alone."""
    return not any(op.name in _KEPT for op in ops)


class _Body:
    def __init__(self, loop: ir.Operation, resident: set[ir.Value]) -> None:
        self.block: ir.Block = loop.regions[0].blocks[0]
        self.ops = [view.operation for view in self.block.operations]
        self.yielded = list(self.ops.pop().operands)
        self.arguments = list(self.block.arguments)[1:]
        self.resident = resident
        self.dots = [op for op in self.ops if op.name == "tt.dot"]

    def plan(self) -> LoopPlan | None:
        if not are_movable(self.ops):
            return None
        late_dots = [dot for dot in self.dots if self._needs_another(dot)]
        early = [dot for dot in self.dots if dot not in late_dots]
        if not late_dots or not early:
            return None
        late, carried = self._closure(late_dots)
        if any(dot in late for dot in early) or self._late_of_late(late_dots):
            return None
        return self._parts(late_dots, late, carried)

    def _needs_another(self, dot: ir.Operation) -> bool:
        """Whether what it multiplies, or adds to after some other op, follows from another product."""
        others = {other.results[0] for other in self.dots if other != dot}
        a, b, start = dot.operands
        direct = start in others
        return any(self._follows(value, others) for value in ((a, b) if direct else (a, b, start)))

    def _late_of_late(self, late_dots: list[ir.Operation]) -> bool:
        """Whether a late product needs more of another late one than its sum: they would take two iterations."""
        made = [dot.results[0] for dot in late_dots]
        values = [v for dot in late_dots for v in dot.operands if v not in made]
        return any(self._follows(value, made) for value in values)

    def _follows(self, value: ir.Value, sources: Collection[ir.Value]) -> bool:
        pending, seen = [value], set[ir.Value]()
        while pending:
            current = pending.pop()
            if current in sources:
                return True
            owner = self._owner(current)
            if owner is not None and current not in seen:
                seen.add(current)
                pending += owner.operands
        return False

    def _owner(self, value: ir.Value) -> ir.Operation | None:
        """The op of this body that makes a value."""
        owner = value.owner
        return None if isinstance(owner, ir.Block) or owner.operation.block != self.block else owner.operation

    def _closure(self, late_dots: list[ir.Operation]) -> tuple[list[ir.Operation], set[int]]:
        """The ops that depend on late products of this iteration or of the one before, and what these carry on."""
        marked = {dot.results[0] for dot in late_dots}
        carried: set[int] = set()
        while True:
            late = [op for op in self.ops if op in late_dots or any(operand in marked for operand in op.operands)]
            results = {result for op in late for result in op.results}
            positions = {number for number, value in enumerate(self.yielded) if value in results or value in marked}
            grown = marked | results | {self.arguments[number] for number in positions}
            if grown == marked and positions == carried:
                return late, carried
            marked, carried = grown, positions

    def _parts(self, late_dots: list[ir.Operation], late: list[ir.Operation], carried: set[int]) -> LoopPlan:
        made = {dot.results[0] for dot in late_dots}
        finish = [op for op in late if op not in late_dots and any(self._follows(v, made) for v in op.operands)]
        prepare = [op for op in late if op not in late_dots and op not in finish]
        others = [op for op in self.ops if op not in late and op.results[0] not in self.resident]
        invariant = self._invariant(others)
        first = [op for op in others if op not in invariant]
        sunk = self._sunk(first, late)
        moved = [op for op in self.ops if op in prepare or op in sunk]
        kept = tuple(op for op in first if op not in sunk)
        dots = tuple(dot for dot in self.dots if dot in late_dots)
        return LoopPlan(tuple(invariant), kept, tuple(moved), dots, tuple(finish), tuple(sorted(carried)))

    def _invariant(self, ops: list[ir.Operation]) -> list[ir.Operation]:
        varying: set[ir.Value] = set(self.block.arguments)
        found: list[ir.Operation] = []
        for op in self.ops:
            if op in ops and op.name != "tt.dot" and varying.isdisjoint(op.operands):
                found.append(op)
            else:
                varying |= set(op.results)
        return found

    def _sunk(self, first: list[ir.Operation], late: list[ir.Operation]) -> list[ir.Operation]:
        """Ops of the first part that only the late part needs, and that are better done there."""
        below, found = list(late), list[ir.Operation]()
        for op in reversed(first):
            users = [use.owner.operation for use in op.results[0].uses]
            if op.name in _SINKING and is_tile(op.results[0]) and users and all(user in below for user in users):
                found.append(op)
                below.append(op)
        return found
