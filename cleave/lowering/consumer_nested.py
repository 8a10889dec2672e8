"""What loops and branches of a consumer have in common: what they carry beside the source's values."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.bindings import ir
from cleave.lowering import tt
from cleave.lowering.consumer import Consumer, Place, Scope
from cleave.lowering.register_layouts import is_tile
from cleave.lowering.rings import Ring, State
from cleave.passes.functions import ops_inside


class Nested:
    def __init__(self, consumer: Consumer, op: ir.Operation) -> None:
        self.consumer, self.op = consumer, op
        self.rings = _rings_within(op, consumer)
        self.stays = _stays_within(op, consumer)

    def states(self) -> list[ir.Value]:
        """Slots, phases, and operands that stay in registers."""
        found = [self.consumer.states[ring] for ring in self.rings]
        stays = (self.consumer.stays[place] for place in self.stays)
        return [*(value for state in found for value in (state.slot, state.phase)), *stays]

    def set_states(self, values: Sequence[ir.Value]) -> None:
        for number, ring in enumerate(self.rings):
            self.consumer.states[ring] = State(values[2 * number], values[2 * number + 1])
        self.consumer.stays.update(zip(self.stays, list(values)[2 * len(self.rings) :], strict=True))


class Loop(Nested):
    def __init__(self, consumer: Consumer, op: ir.Operation) -> None:
        super().__init__(consumer, op)
        self.block: ir.Block = op.regions[0].blocks[0]
        *ops, end = [view.operation for view in self.block.operations]
        self.ops, self.yielded = ops, list(end.operands)
        self.index, *self.arguments = self.block.arguments
        self.low, self.high, self.step = (consumer.value(operand) for operand in list(op.operands)[:3])

    def place(self, argument: ir.Value) -> Place | None:
        """Where a carried tile is; None for a scalar."""
        return (argument, self.consumer.layouts.natural[argument]) if is_tile(argument) else None

    def starts(self) -> list[ir.Value]:
        return [self.carried(start, number) for number, start in enumerate(list(self.op.operands)[3:])]

    def carried(self, value: ir.Value, number: int) -> ir.Value:
        """What argument ``number`` is given when the source gives it ``value``."""
        place = self.place(self.arguments[number])
        return self.consumer.either(value, place[1] if place else None)

    def bind(self, scope: Scope, value: ir.Value, number: int, given: ir.Value) -> None:
        """The source's ``value``, an argument's or result's, is this."""
        place = self.place(self.arguments[number])
        if place:
            scope.copies[value, place[1]] = given
        else:
            scope.values[value] = given

    def create(self, low: ir.Value, starts: Sequence[ir.Value]) -> tuple[ir.Operation, ir.Block]:
        types = [start.type for start in starts]
        created = tt.create("scf.for", types, [low, self.high, self.step, *starts], regions=1)
        return created, ir.Block.create_at_start(created.regions[0], [low.type, *types])


def _rings_within(op: ir.Operation, consumer: Consumer) -> list[Ring]:
    found: dict[Ring, None] = {}

    def visit(inner: ir.Operation) -> ir.WalkResult:
        for result in inner.results:
            if result in consumer.kernel.rings:
                found[consumer.kernel.rings[result]] = None
        return ir.WalkResult.ADVANCE

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return list(found)


def _stays_within(op: ir.Operation, consumer: Consumer) -> list[Place]:
    """What was read into registers before a loop for products in it."""
    inner = ops_inside(op)
    used = {operand for each in inner if each.name == "tt.dot" for operand in each.operands}
    made = {result for each in inner for result in each.results}
    return [place for place in consumer.stays if place[0] in used - made]


def started_first(ops: Sequence[ir.Operation]) -> tuple[list[ir.Operation], list[ir.Operation]]:
    """The ops up to the last product that waits for no other, and the rest."""
    made: set[ir.Value] = set()
    started, rest = list[ir.Operation](), list[ir.Operation]()
    for op in ops:
        operands = list(op.operands)[:2] if op.name == "tt.dot" else list(op.operands)
        waits = any(operand in made for operand in operands)
        if waits or (op.name == "tt.dot"):
            made |= set(op.results)
        (rest if waits else started).append(op)
    return started, rest
