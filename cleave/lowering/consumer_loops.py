"""Branches and loops of a consumer: these in order, with products that run into the next iteration, or rotated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.lowering import tt
from cleave.lowering.consumer import Consumer, Held, Place, Product, Scope
from cleave.lowering.loop_plan import LoopPlan, are_movable, plan_of
from cleave.lowering.register_layouts import is_tile, views_of
from cleave.lowering.rings import Ring, State, slot_before
from cleave.lowering.turns import computes_much, give_turn, wait_for_turn
from cleave.passes.functions import ops_inside

RUN_ON_STAGES = 3
"""Of rings of which products may hold two stages at a time."""


def nested(consumer: Consumer, op: ir.Operation) -> None:
    """Emit a loop or branches of the source."""
    if op.name == "scf.if":
        _Branches(consumer, op).emit()
        return
    plan = plan_of(op, consumer.layouts.resident) if op in consumer.kernel.rotated else None
    if plan is None:
        _InOrder(consumer, op).emit()
    else:
        _Rotated(consumer, op, plan).emit()


class _Nested:
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


class _Branches(_Nested):
    """Nothing comes out of them but how far the rings are."""

    def emit(self) -> None:
        consumer, states = self.consumer, self.states()
        truth = _truth(consumer.value(self.op.operands[0]))
        if truth is not None:  # it depends on the part alone
            for block in self.op.regions[0 if truth else 1].blocks:
                consumer.ops([view.operation for view in block.operations][:-1])
            return
        outer, kept = consumer.scope, dict(consumer.stays)
        branches = tt.create("scf.if", [v.type for v in states], [consumer.value(self.op.operands[0])], regions=2)
        for source, target in zip(self.op.regions, branches.regions, strict=True):
            consumer.scope, consumer.stays = Scope(outer), dict(kept)
            self.set_states(states)
            with ir.InsertionPoint(ir.Block.create_at_start(target, [])):
                for block in source.blocks:
                    consumer.ops([view.operation for view in block.operations][:-1])
                consumer.settle_all()
                tt.create("scf.yield", [], self.states())
        consumer.scope, consumer.stays = outer, kept
        self.set_states(list(branches.results))


def _truth(condition: ir.Value) -> bool | None:
    """Of two constants' being equal; None for other conditions."""
    compared = condition.owner
    if isinstance(compared, ir.Block) or compared.name != "arith.cmpi":
        return None
    if ir.IntegerAttr(compared.operation.attributes["predicate"]).value != tt.CMP_INTEGER["eq"]:
        return None
    sides = [operand.owner for operand in compared.operands]
    if any(isinstance(side, ir.Block) or side.name != "arith.constant" for side in sides):
        return None
    one, other = (ir.IntegerAttr(side.operation.attributes["value"]).value for side in sides)
    return one == other


class _Loop(_Nested):
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


class _InOrder(_Loop):
    """The ops in the source's order. Where all products only add to what is carried, they run into the next iteration:
    at its end those of the one before are waited for."""

    def emit(self) -> None:
        consumer, outer = self.consumer, self.consumer.scope
        starts = self.starts()
        created, block = self.create(self.low, [*starts, *self.states()])
        index, *given = block.arguments
        inside = Scope(outer)
        inside.values[self.index] = index
        for number, argument in enumerate(self.arguments):
            self.bind(inside, argument, number, given[number])
        consumer.scope = inside
        with ir.InsertionPoint(block):
            self.set_states(given[len(starts) :])
            waits = consumer.waits
            for part in self.parts():
                consumer.ops(part)
            running = self.running() if consumer.waits == waits else []
            self.end(running)
        consumer.scope = outer
        self.set_states(list(created.results)[len(starts) :])
        for number, result in enumerate(self.op.results):
            self.bind(outer, result, number, created.results[number])
        if running:
            self.finish(running)

    def parts(self) -> Sequence[list[ir.Operation]]:
        """The ops: products that wait for no other first, where consumers wait for each other behind them."""
        exchanging = any(op in self.consumer.kernel.exchanges for op in self.ops)
        return started_first(self.ops) if exchanging and are_movable(self.ops) else [self.ops]

    def running(self) -> list[Product]:
        """The products that may run into the next iteration: all or none."""
        consumer = self.consumer
        if not consumer.kernel.run_on:
            return []
        flying = consumer.flying
        kept = [product for product in flying if not product.added_to]
        alone = all(self._only_added_to(product) for product in kept)
        held = all(product.left is None or product.left in consumer.stays for product in flying)
        buffers = [each.ring for product in flying for each in product.held]
        spare = all(ring.stages >= RUN_ON_STAGES for ring in buffers)
        return flying if alone and held and spare else []

    def _only_added_to(self, product: Product) -> bool:
        value = product.place[0]
        positions = [number for number, yielded in enumerate(self.yielded) if yielded == value]
        if len(positions) != 1 or len(list(value.uses)) != 1:
            return False
        uses = list(self.arguments[positions[0]].uses)
        return len(uses) == 1 and uses[0].owner.operation.name == "tt.dot" and uses[0].operand_number == 2

    def end(self, running: list[Product]) -> None:
        consumer = self.consumer
        if running:
            consumer.flying = []
            consumer.awaited(running, len(running))
            later = tt.compare("gt", consumer.value(self.index), self.low)
            for held in self.unread(running):
                consumer.release(held, slot_before(held.ring, held.slot), later)
        consumer.settle_all()
        yields = [self.carried(value, number) for number, value in enumerate(self.yielded)]
        tt.create("scf.yield", [], [*yields, *self.states()])

    def unread(self, running: Sequence[Product]) -> list[Held]:
        return list(dict.fromkeys(held for product in running for held in product.held))

    def finish(self, running: Sequence[Product]) -> None:
        """Behind the loop: the products of the last iteration."""
        consumer = self.consumer
        products: list[Product] = []
        for number, result in enumerate(self.op.results):
            for product in (each for each in running if each.place[0] == self.yielded[number]):
                place = (result, consumer.layouts.natural[result])
                products.append(Product(place, consumer.scope, [], product.left))
        consumer.awaited(products, 0)
        some = tt.compare("gt", self.high, self.low)
        for held in self.unread(running):
            consumer.release(held, slot_before(held.ring, consumer.states[held.ring].slot), some)


@dataclass(frozen=True)
class _Crossing:
    """What the late part of an iteration takes over into the next one: tiles, scalars, buffers."""

    places: tuple[Place, ...]
    values: tuple[ir.Value, ...]
    loads: tuple[ir.Value, ...]


class _Rotated(_Loop):
    """As ``loop_plan`` says. All of it stands in a branch that is taken where there is an iteration at all."""

    def __init__(self, consumer: Consumer, op: ir.Operation, plan: LoopPlan) -> None:
        super().__init__(consumer, op)
        self.plan = plan
        self.early = [number for number in range(len(self.arguments)) if number not in plan.late_yields]
        self.turns = consumer.kernel.turns if computes_much(plan) else 0

    def emit(self) -> None:
        consumer, outer = self.consumer, self.consumer.scope
        starts, states = self.starts(), self.states()
        consumer.ops(self.plan.invariant)
        some = tt.compare("gt", self.high, self.low)
        types = [value.type for value in (*starts, *states)]
        guarded = tt.create("scf.if", types, [some], regions=2)
        with ir.InsertionPoint(ir.Block.create_at_start(guarded.regions[0], [])):
            found = self.iterations(starts)
            tt.create("scf.yield", [], [*found, *self.states()])
        with ir.InsertionPoint(ir.Block.create_at_start(guarded.regions[1], [])):
            tt.create("scf.yield", [], [*starts, *states])
        consumer.scope = outer
        self.set_states(list(guarded.results)[len(starts) :])
        for number, result in enumerate(self.op.results):
            self.bind(outer, result, number, guarded.results[number])

    def iterations(self, starts: Sequence[ir.Value]) -> list[ir.Value]:
        """The carried values after the last iteration."""
        consumer, outer = self.consumer, self.consumer.scope
        now = self.scope(outer, self.low, starts)
        consumer.scope = now
        started, rest = started_first(self.plan.first)
        self.begin(started)
        self.give_turn()
        consumer.ops(rest)
        consumer.ops(self.plan.prepare)
        consumer.settle_all()
        crossing = self.crossing()
        passed = self.passed(now, crossing)
        second = tt.same("arith.addi", self.low, self.step)
        created, block = self.create(second, [*passed, *self.states()])
        index, *given = block.arguments
        with ir.InsertionPoint(block):
            self.set_states(given[len(passed) :])
            before = self.received(outer, crossing, given)
            carried = self.iteration(outer, before, index, given)
            tt.create("scf.yield", [], [*self.passed(carried, crossing), *self.states()])
        results = list(created.results)
        self.set_states(results[len(passed) :])
        last = self.received(outer, crossing, results)
        self.late(last)
        consumer.scope = last
        consumer.ops(self.plan.finish)
        consumer.settle_all()
        late = {number: self.carried(self.yielded[number], number) for number in self.plan.late_yields}
        return [late.get(number) or results[self.early.index(number)] for number in range(len(starts))]

    def iteration(self, outer: Scope, before: Scope, index: ir.Value, given: Sequence[ir.Value]) -> Scope:
        """Iteration ``index``, and the late part of the one before."""
        consumer = self.consumer
        now = Scope(outer)
        now.values[self.index] = index
        for place, number in enumerate(self.early):
            self.bind(now, self.arguments[number], number, given[place])
        consumer.scope = now
        started, rest = started_first(self.plan.first)
        self.begin(started)
        self.late(before)
        self.give_turn()
        consumer.scope = now
        consumer.ops(rest)
        consumer.scope = before
        consumer.ops(self.plan.finish)
        for number in self.plan.late_yields:
            value = self.yielded[number]
            self.bind(now, self.arguments[number], number, self.carried(value, number))
        consumer.scope = now
        consumer.ops(self.plan.prepare)
        return now

    def begin(self, started: Sequence[ir.Operation]) -> None:
        """The first products; a turn does not begin before their operands are there."""
        consumer = self.consumer
        if self.turns:
            consumer.hold_operands(started)
            wait_for_turn(consumer.part)
        consumer.ops(started)

    def give_turn(self) -> None:
        if self.turns:
            give_turn((self.consumer.part + 1) % self.turns)

    def late(self, scope: Scope) -> None:
        self.consumer.scope = scope
        self.consumer.ops(self.plan.late)

    # --- what crosses from one iteration to the next ---

    def scope(self, outer: Scope, index: ir.Value, starts: Sequence[ir.Value]) -> Scope:
        """Of the first iteration."""
        inside = Scope(outer)
        inside.values[self.index] = index
        for number, argument in enumerate(self.arguments):
            self.bind(inside, argument, number, starts[number])
        return inside

    def crossing(self) -> _Crossing:
        """What the late part takes from the parts before it."""
        consumer, layouts = self.consumer, self.consumer.layouts
        inside = {value for op in (*self.plan.first, *self.plan.prepare) for value in op.results}
        inside |= {self.index, *self.arguments}
        places: dict[Place, None] = {}
        values: dict[ir.Value, None] = {}
        for op in (*self.plan.late, *self.plan.finish):
            taken = dict(layouts.operands(op))
            places.update(((v, e), None) for v, e in taken.items() if v in inside)
            values.update((v, None) for v in op.operands if v in inside and not is_tile(v))
        loads = [load for load in consumer.scope.held.maps[0] if consumer.scope.held[load].readers > 0]
        return _Crossing(tuple(places), tuple(values), tuple(loads))

    def passed(self, scope: Scope, crossing: _Crossing) -> list[ir.Value]:
        """Of an iteration, for the next one: what the early part carries, and what crosses."""
        consumer = self.consumer
        consumer.scope = scope
        consumer.settle_all()
        early = [self.carried(self.yielded[number], number) for number in self.early]
        tiles = [consumer.tile(*place) for place in crossing.places]
        values = [consumer.value(value) for value in crossing.values]
        return [*early, *tiles, *values, *(scope.held[load].slot for load in crossing.loads)]

    def received(self, outer: Scope, crossing: _Crossing, given: Sequence[ir.Value]) -> Scope:
        """The scope of the iteration before, of which only what crosses is left."""
        consumer, inside = self.consumer, Scope(outer)
        rest = list(given)[len(self.early) :]
        for place in crossing.places:
            inside.copies[place] = rest.pop(0)
        for value in crossing.values:
            inside.values[value] = rest.pop(0)
        for load in crossing.loads:
            held = consumer.scope.held.get(load)
            readers = held.readers if held else self.late_readers(load)
            ring, in_registers = consumer.kernel.rings[load], consumer.in_registers(load)
            inside.held[load] = Held(ring, rest.pop(0), readers, in_registers, self.block)
        return inside

    def late_readers(self, load: ir.Value) -> int:
        views = views_of(load)
        return sum(any(operand in views for operand in op.operands) for op in self.plan.late)
