"""The warps that copy tiles: of a kernel the loops and branches, the loads into shared memory, what they need.

One warp is enough for copies through descriptors; of others each thread does its share (``copied_loads``). The indices
that say where an iteration's tiles are were loaded in the iteration before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import encodings, tt, ttg
from cleave.lowering.copied_loads import LOAD, layout_of_copy
from cleave.lowering.encodings import Encoding, barrier
from cleave.lowering.register_layouts import FREE, is_tile, taken
from cleave.lowering.rings import Buffers, Ring, State, next_state
from cleave.lowering.shared_views import View
from cleave.lowering.side_by_side import beside, sources
from cleave.runtime.ttir_assembly import TRIGGER, WAIT

Place = tuple[ir.Value, Encoding | None, int]
"""A value of the source in a layout, if it is a tile, as one part of the consumers has it."""
_POINTWISE = ("tt.expand_dims", "tt.broadcast", "tt.addptr", "tt.int_to_ptr")
"""Beside arithmetic and ``FREE``: what addresses and masks are made of."""


@dataclass(frozen=True)
class Row:
    """Of a load of one part's rows, or columns: the index that counts them, and how many there are."""

    axis: int
    rows: int


@dataclass(frozen=True)
class Copying:
    """What is copied into which ring. ``rows``: of parts that descriptors load. ``vectors``: of what threads copy.

    ``first``: the argument that says where a consumer's part begins, if there are parts, and what it is for each.
    """

    rings: Mapping[ir.Value, Ring]
    rows: Mapping[ir.Value, Row]
    vectors: Mapping[ir.Value, int]
    first: ir.Value | None = None
    parts: Sequence[ir.Value] = ()


class Producer:
    """Emits the body of the partition at the current insertion point."""

    def __init__(self, copying: Copying, values: Mapping[ir.Value, ir.Value], buffers: Sequence[Buffers]) -> None:
        """``values``: the function's arguments in this partition."""
        self.copying, self.rings, self.buffers = copying, copying.rings, buffers
        self.following = following(copying.first)
        self.values: dict[Place, ir.Value] = {(value, None, 0): given for value, given in values.items()}
        self.values |= {(copying.first, None, part): each for part, each in enumerate(copying.parts) if copying.first}
        self.needed: dict[ir.Value, list[Place]] = defaultdict(list)
        self.states: dict[Ring, State] = {}

    def emit(self, block: ir.Block) -> None:
        self._need_of_copies(block)
        self.true = ttg.boolean(True)
        zero = ttg.i32(0)
        self.states = {ring: State(zero, zero) for ring in dict.fromkeys(self.rings.values())}
        self._block(block)

    # --- what is needed ---

    def _need_of_copies(self, block: ir.Block) -> None:
        """Mark what loads need, and the loops and branches that they are in."""
        for view in block.operations:
            op = view.operation
            if op.name in ("scf.for", "scf.if"):
                for inner in (inner for region in op.regions for inner in region.blocks):
                    self._need_of_copies(inner)
                for operand in list(op.operands)[: 3 if op.name == "scf.for" else 1] if self._copies(op) else ():
                    self._need((operand, None, 0))
            elif op.results and op.results[0] in self.rings:
                for place in self._operands(op):
                    self._need(place)

    def _operands(self, load: ir.Operation) -> list[Place]:
        """What a load needs: offsets in a descriptor, or addresses and masks for each part that has its own."""
        if load.results[0] not in self.copying.vectors:
            return [(offset, None, 0) for _, offsets in sources(load) for offset in offsets]
        return [place for part in range(self.rings[load.results[0]].parts) for place in self._of_part(load, part)]

    def _of_part(self, load: ir.Operation, part: int) -> list[Place]:
        layout = layout_of_copy(load, self.copying.vectors[load.results[0]])
        return [self._place(operand, layout, part) for operand in load.operands]

    def _place(self, value: ir.Value, encoding: Encoding | None, part: int) -> Place:
        """One for all parts where they have the same."""
        return (value, encoding, part if value in self.following else 0)

    def _need(self, place: Place) -> None:
        value, _, part = place
        if place in self.needed[value]:
            return
        self.needed[value].append(place)
        if part and _is_of_loop(value):
            raise CleaveError("where a tile is loaded from follows from a loop that the consumers run differently")
        if isinstance(value.owner, ir.Block):
            loop = value.owner.owner.operation
            if loop.name == "scf.for":
                self._need_carried(loop, list(value.owner.arguments).index(value) - 1)
        elif value.owner.operation.name == "scf.for":
            loop = value.owner.operation
            self._need_carried(loop, list(loop.results).index(value))
        else:
            for operand in self._taken(value.owner.operation, place):
                self._need(operand)

    def _need_carried(self, loop: ir.Operation, number: int) -> None:
        """What a loop carries in this place; of the index, -1, what it counts from and to."""
        values = list(loop.operands)[:3]
        if number >= 0:
            body = loop.regions[0].blocks[0]
            carried = (list(body.arguments)[1 + number], list(body.operations)[-1].operation.operands[number])
            values += [*carried, loop.operands[3 + number], loop.results[number]]
        for value in values:
            if is_tile(value):
                raise CleaveError("where a tile is loaded from follows from a tile that a loop carries")
            self._need((value, None, 0))

    def _taken(self, op: ir.Operation, place: Place) -> list[Place]:
        """The operands of an op whose result is needed in this place."""
        _, encoding, part = place
        tiles = any(is_tile(value) for value in (*op.operands, *op.results))
        made = op.name in (*FREE, *_POINTWISE) or op.name.startswith(("arith.", "math."))
        if op.regions or (tiles and not (encoding and made)):
            raise CleaveError("where a tile is loaded from follows from other tiles")
        layouts = dict(taken(op, encoding)) if encoding else {}
        return [self._place(operand, layouts.get(operand), part) for operand in op.operands]

    def _copies(self, op: ir.Operation) -> list[Ring]:
        """The rings that are filled within an op."""
        found: dict[Ring, None] = {}
        for region in op.regions:
            for block in region.blocks:
                for view in block.operations:
                    if view.operation.results and view.operation.results[0] in self.rings:
                        found[self.rings[view.operation.results[0]]] = None
                    found.update(dict.fromkeys(self._copies(view.operation)))
        return list(found)

    # --- ops ---

    def value(self, value: ir.Value) -> ir.Value:
        """A scalar that is the same for all parts."""
        return self.values[value, None, 0]

    def _block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            with op.location:
                self._op(op)

    def _op(self, op: ir.Operation) -> None:
        needed = any(self.needed.get(result) for result in op.results)
        if op.results and op.results[0] in self.rings:
            self._copy(op)
        elif op.name == "scf.for" and (self._copies(op) or needed):
            self._loop(op)
        elif op.name == "scf.if":
            self._branches(op)
        elif op.name == "tt.elementwise_inline_asm":
            if ir.StringAttr(op.attributes["asm_string"]).value in (TRIGGER, WAIT):  # consumers meet other blocks
                ttg.clone(op, [], None)
        elif needed:
            self._make(op)

    def _make(self, op: ir.Operation, exists: ir.Value | None = None) -> None:
        """In each place where it is needed; loads only where the iteration ``exists``."""
        for place in self.needed[op.results[0]]:
            operands, encoding = [self.values[operand] for operand in self._taken(op, place)], place[1]
            if exists is None or op.name != LOAD:
                self.values[place] = ttg.clone(op, operands, encoding).results[0]
                continue
            value = op.results[0]
            type_ = encodings.tensor(tt.shape_of(value), tt.element_of(value), encoding) if encoding else value.type
            self.values[place] = ttg.load_where(exists, operands, type_)

    def _copy(self, op: ir.Operation) -> None:
        ring = self.rings[op.results[0]]
        state, buffers = self.states[ring], self.buffers[ring.number]
        full = ttg.element(buffers.full, state.slot, barrier())
        if buffers.empty is not None:
            parity = tt.same("arith.xori", state.phase, ttg.i32(1))
            ttg.wait(ttg.element(buffers.empty, state.slot, barrier()), parity, self.true)
        tiles = [
            ttg.element(buffers.tiles, part_slot(ring, state.slot, ttg.i32(part)), ring.tile_type)
            for part in range(ring.parts)
        ]
        (self._copy_by_threads if ring.threads else self._copy_described)(op, tiles, full)
        if ring.reused:
            self.states[ring] = next_state(ring, state)

    def _copy_described(self, op: ir.Operation, tiles: Sequence[ir.Value], full: ir.Value) -> None:
        ring = self.rings[op.results[0]]
        ttg.expect(full, ring.stage_bytes, self.true)
        for part, tile in enumerate(tiles):
            blocks = sources(op)
            targets = beside(op, View(tile, ring.shape, ring.element, ring.layout))
            for (descriptor, offsets), target in zip(blocks, targets, strict=True):
                places = [self.value(offset) for offset in offsets]
                if part:
                    row = self.copying.rows[op.results[0]]
                    places[row.axis] = tt.same("arith.addi", places[row.axis], ttg.i32(part * row.rows))
                ttg.copy(self.value(descriptor), places, full, target, self.true)

    def _copy_by_threads(self, op: ir.Operation, tiles: Sequence[ir.Value], full: ir.Value) -> None:
        vector = self.copying.vectors[op.results[0]]
        for part, tile in enumerate(tiles):
            pointers, *masked = (self.values[place] for place in self._of_part(op, part))
            ttg.copy_by_threads(tile, pointers, masked, vector)
        ttg.arrive_when_copied(full)

    def _loop(self, op: ir.Operation) -> None:
        body = op.regions[0].blocks[0]
        arguments = list(body.arguments)
        kept = [number for number, argument in enumerate(arguments[1:]) if self.needed.get(argument)]
        rings = self._copies(op)
        starts = [self.value(op.operands[3 + number]) for number in kept]
        starts += self._passed(rings)
        bounds = [self.value(operand) for operand in list(op.operands)[:3]]
        ahead = Ahead.of(body, self.needed, self.rings)
        places = [place for load in ahead.loads for place in self.needed[load.results[0]]]
        starts += self._fetched(ahead, bounds[0], bounds[1])
        loop = tt.create("scf.for", [start.type for start in starts], [*bounds, *starts], regions=1)
        block = ir.Block.create_at_start(loop.regions[0], [bounds[0].type, *(start.type for start in starts)])
        index, *carried = block.arguments
        self._set((arguments[0], *(arguments[1 + number] for number in kept)), (index, *carried))
        self._set_states(rings, carried[len(kept) :])
        self.values.update(zip(places, carried[len(carried) - len(places) :], strict=True))
        with ir.InsertionPoint(block):
            *ops, end = [view.operation for view in body.operations]
            for inner in (inner for inner in ops if inner not in ahead.loads):
                with inner.location:
                    self._op(inner)
            passed = [self.value(end.operands[number]) for number in kept]
            found = self._fetched(ahead, tt.same("arith.addi", index, bounds[2]), bounds[1]) if places else []
            tt.create("scf.yield", [], [*passed, *self._passed(rings), *found])
        self._set([op.results[number] for number in kept], list(loop.results))
        self._set_states(rings, list(loop.results)[len(kept) :])

    def _fetched(self, ahead: Ahead, index: ir.Value, end: ir.Value) -> list[ir.Value]:
        """The indices of an iteration, if there is such a one."""
        if not ahead.loads:
            return []
        before = dict(self.values)
        self.values[ahead.index, None, 0] = index
        exists = tt.compare("lt", index, end)
        for op in ahead.ops:
            with op.location:
                self._make(op, exists)
        found = [self.values[place] for load in ahead.loads for place in self.needed[load.results[0]]]
        self.values = before
        return found

    def _branches(self, op: ir.Operation) -> None:
        """Nothing where neither branch copies; where one is not taken rings stay as they are."""
        rings = self._copies(op)
        if not rings:
            return
        before = dict(self.states)
        states = self._passed(rings)
        branches = tt.create("scf.if", [state.type for state in states], [self.value(op.operands[0])], regions=2)
        for source, target in zip(op.regions, branches.regions, strict=True):
            self.states = dict(before)
            with ir.InsertionPoint(ir.Block.create_at_start(target, [])):
                for block in source.blocks:
                    for view in list(block.operations)[:-1]:
                        with view.operation.location:
                            self._op(view.operation)
                tt.create("scf.yield", [], self._passed(rings))
        self.states = before
        self._set_states(rings, list(branches.results))

    def _passed(self, rings: Sequence[Ring]) -> list[ir.Value]:
        return [value for ring in rings for value in (self.states[ring].slot, self.states[ring].phase)]

    def _set(self, values: Sequence[ir.Value], given: Sequence[ir.Value]) -> None:
        self.values.update(((value, None, 0), each) for value, each in zip(values, given, strict=False))

    def _set_states(self, rings: Sequence[Ring], values: Sequence[ir.Value]) -> None:
        for number, ring in enumerate(rings):
            self.states[ring] = State(values[2 * number], values[2 * number + 1])


def _is_of_loop(value: ir.Value) -> bool:
    owner = value.owner
    return (owner.owner.operation if isinstance(owner, ir.Block) else owner.operation).name == "scf.for"


@dataclass(frozen=True)
class Ahead:
    """What of a loop's body is loaded for the next iteration: ``loads``, and all ``ops`` that they follow from, which
    depend on the ``index`` alone."""

    index: ir.Value
    loads: list[ir.Operation]
    ops: list[ir.Operation]

    @staticmethod
    def of(body: ir.Block, needed: Mapping[ir.Value, list[Place]], rings: Mapping[ir.Value, Ring]) -> Ahead:
        """Loads that addresses of copies need."""
        index, *carried = body.arguments
        inside = [view.operation for view in body.operations]
        loads = [op for op in inside if op.name == LOAD and op.results[0] not in rings and needed.get(op.results[0])]
        ops, pending = list[ir.Operation](), list(loads)
        while pending:
            op = pending.pop()
            if op in ops:
                continue
            if op.regions or any(operand in carried for operand in op.operands):
                return Ahead(index, [], [])
            ops.append(op)
            owners = (operand.owner for operand in op.operands)
            made = (owner.operation for owner in owners if not isinstance(owner, ir.Block))
            pending += [owner for owner in made if owner.block == body]
        return Ahead(index, loads, [op for op in inside if op in ops])


def following(source: ir.Value | None) -> set[ir.Value]:
    """A value and what ops make of it, but not through loops."""
    found, pending = set[ir.Value](), [source] if source is not None else []
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            pending += [result for use in value.uses for result in use.owner.operation.results]
    return found


def part_slot(ring: Ring, slot: ir.Value, part: ir.Value) -> ir.Value:
    """Where a part's tile of a stage lies among the tiles of a ring."""
    if ring.parts == 1:
        return slot
    return tt.same("arith.addi", tt.same("arith.muli", slot, ttg.i32(ring.parts)), part)
