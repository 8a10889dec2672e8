"""A warpgroup that computes: the ops of a kernel on registers, its products as ``wgmma`` on buffers that others fill.

Products are started and go on by themselves; one is waited for where its result is first needed, and with it all that
were started before. When the last reader of a buffer is done, the buffer is released.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from cleave.bindings import ir
from cleave.lowering import encodings, tt, ttg
from cleave.lowering.encodings import Encoding, LeftOperand, barrier
from cleave.lowering.exchange import COMBINE, GATHER, PART
from cleave.lowering.exchange_buffers import Exchange, Exchanges
from cleave.lowering.exponentials import with_polynomial
from cleave.lowering.masks_first import Masked
from cleave.lowering.meeting import is_barrier, meet_blocks
from cleave.lowering.outgoing import STORE, Outgoing, send
from cleave.lowering.producer import part_slot
from cleave.lowering.register_layouts import Layouts, is_tile, is_view, loaded, taken, views_of
from cleave.lowering.rings import Buffers, Ring, State, next_state
from cleave.lowering.shared_views import View
from cleave.lowering.side_by_side import HALVES, halves
from cleave.passes.functions import ops_inside

Place = tuple[ir.Value, Encoding]


@dataclass(eq=False)
class Held:
    """A buffer that is being read, by so many ops of the load's block that are not done.

    ``in_registers``: by some not as an operand of a product.
    """

    ring: Ring
    slot: ir.Value
    readers: int
    in_registers: bool
    block: ir.Block


class Scope:
    """What the values of the source are here; one iteration has one, within that of what surrounds its loop."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.values: ChainMap[ir.Value, ir.Value] = outer.values.new_child() if outer else ChainMap()
        self.copies: ChainMap[Place, ir.Value] = outer.copies.new_child() if outer else ChainMap()
        self.held: ChainMap[ir.Value, Held] = outer.held.new_child() if outer else ChainMap()


@dataclass(eq=False)
class Product:
    """One that has been started: its result, and the left operand if that is in registers, by their places."""

    place: Place
    scope: Scope
    held: list[Held]
    left: Place | None = None
    added_to: bool = False  # by a later product, whose result stands for both


@dataclass(frozen=True)
class Kernel:
    """What consumers and producer of a kernel agree on.

    ``stores``: those that copies carry out, and through which buffers; each has them to itself for as long. ``turns``:
    how many consumers take turns; 0 if none. ``run_on``: whether products may run into the next iteration.
    ``rotated``: the loops that may be. ``exchanges``: where consumers exchange tiles. ``consumers``: how many there
    are. ``shared_out``: exponentials of which a polynomial computes a part. ``masked``: what runs into a rotated loop.
    """

    block: ir.Block
    layouts: Layouts
    rings: Mapping[ir.Value, Ring]
    stores: Sequence[tuple[ir.Operation, Outgoing]] = ()
    turns: int = 0
    run_on: bool = False
    rotated: Container[ir.Operation] = ()
    exchanges: Exchanges = field(default_factory=dict[ir.Operation, Exchange])
    consumers: int = 1
    shared_out: Container[ir.Operation] = ()
    masked: Mapping[ir.Operation, Masked] = field(default_factory=dict[ir.Operation, Masked])


@dataclass
class Consumer:
    """Emits the body of one of the partitions at the current insertion point; ``nested`` emits loops and branches.

    ``part``: its number, for what each has of its own in fixed places; ``number``: the same where it runs.
    ``stays``: left operands that stay in registers, as the last wait for a product gave them.
    """

    kernel: Kernel
    part: int
    number: ir.Value
    buffers: Sequence[Buffers]
    outgoing: Mapping[Outgoing, ir.Value]
    exchanged: Mapping[Exchange, Sequence[ir.Value]]
    scope: Scope
    nested: Callable[[Consumer, ir.Operation], None]
    flying: list[Product] = field(default_factory=list[Product])
    states: dict[Ring, State] = field(default_factory=dict[Ring, State])
    stays: dict[Place, ir.Value] = field(default_factory=dict[Place, ir.Value])
    waits: int = 0

    @property
    def layouts(self) -> Layouts:
        return self.kernel.layouts

    def emit(self) -> None:
        self.true, self.false = ttg.boolean(True), ttg.boolean(False)
        zero = ttg.i32(0)
        self.states = {ring: State(zero, zero) for ring in dict.fromkeys(self.kernel.rings.values())}
        self.ops([view.operation for view in self.kernel.block.operations])
        self.settle_all()
        if self.kernel.stores:
            ttg.await_stores()

    # --- values ---

    def value(self, value: ir.Value) -> ir.Value:
        """A scalar, pointer or argument."""
        return self.scope.values[value]

    def tile(self, value: ir.Value, encoding: Encoding) -> ir.Value:
        """A tile in registers."""
        if (value, encoding) in self.stays:
            return self.stays[value, encoding]
        if value in self.layouts.resident:
            self._read(value)
        for place in ((value, each) for each in self.layouts.of(value)):
            self._settle(place)
        if (value, encoding) not in self.scope.copies:
            natural = self.layouts.natural[value]
            changed = ttg.retyped(self.scope.copies[value, natural], tt.shape_of(value), encoding)
            self.scope.copies[value, encoding] = changed
        return self.scope.copies[value, encoding]

    def either(self, value: ir.Value, encoding: Encoding | None) -> ir.Value:
        return self.value(value) if encoding is None else self.tile(value, encoding)

    # --- buffers ---

    def hold(self, load: ir.Value) -> Held:
        """The buffer with what a descriptor loads, waited for at its first use."""
        if load not in self.scope.held:
            ring = self.kernel.rings[load]
            state = self.states[ring]
            full = ttg.element(self.buffers[ring.number].full, state.slot, barrier())
            ttg.wait(full, state.phase, self.true)
            if ring.threads:  # products read what threads wrote
                ttg.fence()
            readers, block = self.readers(load), load.owner.operation.block
            self.scope.held[load] = Held(ring, state.slot, readers, self.in_registers(load), block)
            if ring.reused:
                self.states[ring] = next_state(ring, state)
        return self.scope.held[load]

    def readers(self, load: ir.Value) -> int:
        """How many products read a load, and 1 for all that read it into registers."""
        values = views_of(load)
        block = load.owner.operation.block
        readers: list[ir.Operation] = []
        for use in (use for value in values for use in value.uses if self._multiplies(use)):
            reader = _ancestor(use.owner.operation, block)
            readers += [] if reader in readers else [reader]
        return len(readers) + self.in_registers(load)

    def _multiplies(self, use: ir.OpOperand) -> bool:
        return self._multiplied(use.owner.operation, use.operand_number)

    def _multiplied(self, op: ir.Operation, number: int) -> bool:
        """Whether an op reads this operand from shared memory as a product."""
        return op.name == "tt.dot" and number < 2 and op.operands[number] not in self.layouts.staying

    def in_registers(self, load: ir.Value) -> bool:
        """Whether anything but products, or one that finds it in registers, reads a load."""
        return any(self.layouts.wanted[value] for value in views_of(load))

    def hold_operands(self, ops: Sequence[ir.Operation]) -> None:
        """Wait for what products among ``ops`` read from shared memory."""
        for op in ops:
            for number, operand in enumerate(op.operands):
                if self._multiplied(op, number) and operand in self.layouts.resident:
                    self.hold(loaded(operand))

    def view(self, value: ir.Value) -> tuple[View, Held | None]:
        """A tile in shared memory; what was gathered is held by none."""
        owner = value.owner.operation
        if owner.name == "tt.trans":
            view, held = self.view(owner.operands[0])
            return view.transposed(), held
        if owner.name == PART:
            view, held = self.view(owner.operands[0])
            axis = ir.IntegerAttr(owner.attributes["axis"]).value
            return view.part(self.part, axis, tt.shape_of(value)[axis]), held
        if owner.name == GATHER:
            exchange = self.kernel.exchanges[owner]
            return exchange.view(self.exchanged[exchange][0]), None
        held = self.hold(value)
        ring = held.ring
        slot = part_slot(ring, held.slot, self.number)
        buffer = ttg.element(self.buffers[ring.number].tiles, slot, ring.tile_type)
        return View(buffer, ring.shape, ring.element, ring.layout), held

    def _read(self, value: ir.Value) -> None:
        """Make all copies of it in registers that are wanted."""
        wanted = list(self.layouts.wanted[value])
        if all((value, encoding) in self.scope.copies for encoding in wanted):
            return
        view, held = self.view(value)
        element = tt.element_of(value)
        for encoding in wanted:
            type_ = encodings.tensor(tt.shape_of(value), element, encoding)
            self.scope.copies[value, encoding] = ttg.read(view.buffer, type_)
            if value in self.layouts.staying and isinstance(encoding, LeftOperand):
                self.stays[value, encoding] = self.scope.copies[value, encoding]
        if held:
            self.done_reading(held)

    def done_reading(self, held: Held) -> None:
        held.readers -= 1
        if held.readers == 0:
            self.release(held, held.slot, self.true)

    def release(self, held: Held, slot: ir.Value, pred: ir.Value) -> None:
        """Let a buffer of the ring be filled again, where ``pred``."""
        empty = self.buffers[held.ring.number].empty
        if empty is None:
            return
        if held.in_registers and not held.ring.threads:
            ttg.fence()
        ttg.arrive(ttg.element(empty, slot, barrier()), pred)

    # --- products ---

    def product(self, op: ir.Operation) -> None:
        left, right, start = op.operands
        encoding = encodings.accumulator(tt.shape_of(op.results[0])[1])
        held: dict[Held | None, None] = {}
        place: Place | None = None
        if left in self.layouts.resident and left not in self.layouts.staying:
            view, of_left = self.view(left)
            a, held[of_left] = view.buffer, None
        else:
            place = (left, LeftOperand(encoding))
            a = self.tile(*place)
        b, of_right = self.view(right)
        held[of_right] = None
        own = [each for each in held if each and each.block == op.block]  # its loop reads the others
        result = ttg.product(a, b.buffer, self._start(start, encoding), self.false if tt.is_zero(start) else self.true)
        self.scope.copies[op.results[0], encoding] = result
        self.flying.append(Product((op.results[0], encoding), self.scope, own, place))

    def _start(self, start: ir.Value, encoding: Encoding) -> ir.Value:
        """The accumulator: what another product, which may still run, adds to, too."""
        before = self._flying((start, encoding))
        if before is None:
            return self.tile(start, encoding)
        before.added_to = True
        return self.scope.copies[start, encoding]

    def _flying(self, place: Place) -> Product | None:
        found = self.scope.copies.get(place)
        return next((p for p in self.flying if p.place == place and p.scope.copies[place] == found), None)

    def _settle(self, place: Place) -> None:
        product = self._flying(place)
        if product is not None:
            self.settle(self.flying.index(product) + 1)

    def settle_all(self) -> None:
        self.settle(len(self.flying))

    def settle(self, count: int) -> None:
        """Wait for the first ``count`` products."""
        done, self.flying = self.flying[:count], self.flying[count:]
        if not done:
            return
        self.waits += 1
        self.awaited(done, len(self.flying))
        for product in done:
            for held in product.held:
                self.done_reading(held)

    def awaited(self, products: Sequence[Product], pending: int) -> None:
        """Wait; left operands in registers are listed, so that nothing takes their registers before."""
        places = [(product.scope.copies, product.place) for product in products if not product.added_to]
        lefts = [(product.scope.copies, product.left) for product in products if product.left]
        places += [(self.stays if left in self.stays else copies, left) for copies, left in lefts]
        unique = list({copies[place]: (copies, place) for copies, place in places}.values())
        results = ttg.await_products([copies[place] for copies, place in unique], pending)
        for (copies, place), result in zip(unique, results, strict=True):
            copies[place] = result

    # --- ops ---

    def ops(self, ops: Sequence[ir.Operation]) -> None:
        for op in ops:
            with op.location:
                self.op(op)

    def op(self, op: ir.Operation) -> None:
        if op in self.kernel.exchanges:
            self._exchange(op)
            return
        if op.results and op.results[0] in self.layouts.resident:
            return
        if op.name == "tt.dot":
            self.product(op)
        elif op.name == STORE:
            self._send(op)
        elif op.name in ("scf.for", "scf.if"):
            self.settle_all()
            held = self._hold_for(op)
            self.nested(self, op)
            for each in held:
                self.done_reading(each)
        elif op.name != "tt.return":
            self.plain(op)

    def _exchange(self, op: ir.Operation) -> None:
        exchange, layouts = self.kernel.exchanges[op], self.layouts
        buffers = self.exchanged[exchange]
        if op.name == COMBINE:
            encoding = layouts.natural[op.results[0]]
            found = exchange.combine(op, self.tile(op.operands[0], encoding), self.part, buffers)
            self.scope.copies[op.results[0], encoding] = found
            return
        ((value, encoding),) = layouts.operands(op)
        exchange.gather(self.tile(value, encoding), self.part, buffers[0])

    def _send(self, op: ir.Operation) -> None:
        descriptor, value, *offsets = op.operands
        out = next(out for store, out in self.kernel.stores if store == op)
        ((_, encoding),) = self.layouts.operands(op)
        buffer = ttg.element(self.outgoing[out], self.number, out.tile_type)
        send(self.tile(value, encoding), buffer, self.value(descriptor), [self.value(offset) for offset in offsets])

    def _hold_for(self, op: ir.Operation) -> list[Held]:
        """Wait here for buffers that are read within a region: there it would be once for each iteration.

        Those that products in it read.
        """
        found: dict[Held, None] = {}
        for inner in ops_inside(op):
            for number, operand in enumerate(inner.operands):
                if operand not in self.layouts.resident or loaded(operand).owner.operation.block != op.block:
                    continue
                held = self.hold(loaded(operand))
                if self._multiplied(inner, number):
                    found[held] = None
                elif not is_view(inner):
                    self._read(operand)
        return list(found)

    def plain(self, op: ir.Operation) -> None:
        """An op on registers, once for each layout of its result."""
        if is_barrier(op):
            meet_blocks(self.kernel.consumers, [self.value(operand) for operand in op.operands])
            return
        if not (op.results and is_tile(op.results[0])):
            self._clone(op, None)
            return
        for encoding in self.layouts.of(op.results[0]):
            self._clone(op, encoding)

    def _clone(self, op: ir.Operation, encoding: Encoding | None) -> None:
        layouts = dict(taken(op, encoding) if encoding else self.layouts.operands(op))
        operands = [self.either(operand, layouts.get(operand)) for operand in op.operands]
        for result, copy in zip(op.results, self._made(op, operands, encoding), strict=True):
            if encoding is None or not is_tile(result):
                self.scope.values[result] = copy
            else:
                self.scope.copies[result, encoding] = copy

    def _made(self, op: ir.Operation, operands: Sequence[ir.Value], encoding: Encoding | None) -> Sequence[ir.Value]:
        if op.name == HALVES:
            return halves(operands[0])
        shared_out = encoding and op in self.kernel.shared_out and with_polynomial(operands[0], encoding)
        return list((shared_out or ttg.clone(op, operands, encoding)).results)


def _ancestor(op: ir.Operation, block: ir.Block) -> ir.Operation:
    """The op of ``block`` that has ``op`` within it."""
    while op.block != block:
        op = tt.parent(op)
    return op
