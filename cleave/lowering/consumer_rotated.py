"""A loop of a consumer that is rotated by one iteration, as ``loop_plan`` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.lowering import tt
from cleave.lowering.consumer import Consumer, Held, Place, Scope
from cleave.lowering.consumer_nested import Loop, started_first
from cleave.lowering.loop_plan import LoopPlan
from cleave.lowering.masks_first import Masked
from cleave.lowering.register_layouts import is_tile, views_of
from cleave.lowering.turns import computes_much, give_next_turn, wait_for_turn


@dataclass(frozen=True)
class _Crossing:
    """What the late part of an iteration takes over into the next one: tiles, scalars, buffers."""

    places: tuple[Place, ...]
    values: tuple[ir.Value, ...]
    loads: tuple[ir.Value, ...]

    def of(self, counterparts: Mapping[ir.Value, ir.Value]) -> _Crossing:
        """The same in another loop, whose late part takes these in place of its own."""
        return _Crossing(
            tuple((counterparts[value], encoding) for value, encoding in self.places),
            tuple(counterparts[value] for value in self.values),
            tuple(counterparts[load] for load in self.loads),
        )


class Rotated(Loop):
    """As ``loop_plan`` says. All of it stands in a branch that is taken where there is an iteration at all.

    ``masked``: the iteration that comes before this loop's own (``masks_first``). ``leading``: the loop of the first.
    """

    def __init__(self, consumer: Consumer, op: ir.Operation, plan: LoopPlan, *, masked: Masked | None = None) -> None:
        super().__init__(consumer, op)
        self.plan, self.masked = plan, masked
        self.early = [number for number in range(len(self.arguments)) if number not in plan.late_yields]
        self.turns = consumer.kernel.turns if computes_much(plan) else 0
        self.leading = Rotated(consumer, masked.loop, masked.plan) if masked else self
        self.rings = list(dict.fromkeys((*self.leading.rings, *self.rings)))
        self.stays = list(dict.fromkeys((*self.leading.stays, *self.stays)))
        self.leading.rings, self.leading.stays, self.leading.turns = self.rings, self.stays, self.turns

    def emit(self) -> None:
        consumer, outer, leading = self.consumer, self.consumer.scope, self.leading
        starts, states = leading.starts(), self.states()
        for loop in dict.fromkeys((leading, self)):
            consumer.ops(loop.plan.invariant)
        some = tt.compare("gt", leading.high, leading.low)
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
        consumer, outer, leading = self.consumer, self.consumer.scope, self.leading
        now = leading.first(outer, starts)
        crossing = leading.crossing()
        results = leading.passed(now, crossing)
        if self.masked:
            crossing, low = crossing.of(self.masked.counterparts), self.low
        else:
            low = tt.same("arith.addi", self.low, self.step)
        results = self.repeated(outer, low, crossing, results)
        last = self.received(outer, crossing, results)
        consumer.scope = last
        consumer.ops(self.plan.behind)
        consumer.settle_all()
        late = {number: self.carried(self.yielded[number], number) for number in self.plan.late_yields}
        return [late.get(number) or results[self.early.index(number)] for number in range(len(starts))]

    def first(self, outer: Scope, starts: Sequence[ir.Value]) -> Scope:
        """The first iteration, up to its late part."""
        consumer = self.consumer
        now = self.scope(outer, self.low, starts)
        consumer.scope = now
        started, rest = started_first(self.plan.first)
        self.begin(started)
        self.give_turn()
        consumer.ops(rest)
        consumer.ops(self.plan.prepare)
        consumer.settle_all()
        return now

    def repeated(self, outer: Scope, low: ir.Value, crossing: _Crossing, passed: Sequence[ir.Value]) -> list[ir.Value]:
        """The loop over the iterations from ``low`` on; what the last one passes on."""
        created, block = self.create(low, [*passed, *self.states()])
        index, *given = block.arguments
        with ir.InsertionPoint(block):
            self.set_states(given[len(passed) :])
            before = self.received(outer, crossing, given)
            carried = self.iteration(outer, before, index, given)
            tt.create("scf.yield", [], [*self.passed(carried, crossing), *self.states()])
        results: list[ir.Value] = list(created.results)
        self.set_states(results[len(passed) :])
        return results[: len(passed)]

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
        consumer.scope = before
        consumer.ops(self.plan.late)
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
            wait_for_turn(consumer.number)
        consumer.ops(started)

    def give_turn(self) -> None:
        if self.turns:
            give_next_turn(self.consumer.number, self.turns)

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
        for op in self.plan.behind:
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
