"""Branches and loops of a consumer: these in order, with products that run into the next iteration, or rotated."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.bindings import ir
from cleave.lowering import tt
from cleave.lowering.consumer import Consumer, Held, Product, Scope
from cleave.lowering.consumer_nested import Loop, Nested, started_first
from cleave.lowering.consumer_rotated import Rotated
from cleave.lowering.loop_plan import are_movable, plan_of
from cleave.lowering.rings import slot_before

RUN_ON_STAGES = 4
"""Of rings of which products may hold two stages at a time. With three of them RMSNorm with a product (256 and 1024
rows) and SwiGLU (256) take 6 to 8 % longer so on an H200, with 2048 and 4096 rows 0 to 2 % less."""


def nested(consumer: Consumer, op: ir.Operation) -> None:
    """Emit a loop or branches of the source."""
    if op.name == "scf.if":
        _Branches(consumer, op).emit()
        return
    masked = consumer.kernel.masked
    if any(op == each.loop for each in masked.values()):
        return  # it is emitted with the loop that goes on with what it carried
    plan = plan_of(op, consumer.layouts.resident) if op in consumer.kernel.rotated else None
    if plan is None:
        _InOrder(consumer, op).emit()
    else:
        Rotated(consumer, op, plan, masked=masked.get(op)).emit()


class _Branches(Nested):
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


class _InOrder(Loop):
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
        """By the next iteration; what else needs it in this one has waited for it."""
        positions = [number for number, yielded in enumerate(self.yielded) if yielded == product.place[0]]
        if len(positions) != 1:
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
