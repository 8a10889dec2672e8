"""The warp that copies tiles: of a kernel the loops and branches, the loads through descriptors, what they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import tt, ttg
from cleave.lowering.encodings import barrier
from cleave.lowering.register_layouts import is_tile
from cleave.lowering.rings import Buffers, Ring, State, next_state
from cleave.runtime.ttir_assembly import TRIGGER, WAIT


@dataclass(frozen=True)
class Row:
    """Of a load of one part's rows, or columns: the index that counts them, and how many there are."""

    axis: int
    rows: int


class Producer:
    """Emits the body of the partition at the current insertion point."""

    def __init__(
        self,
        rings: Mapping[ir.Value, Ring],
        rows: Mapping[ir.Value, Row],
        values: Mapping[ir.Value, ir.Value],
        buffers: Sequence[Buffers],
    ) -> None:
        """``rows``: by what is loaded; ``values``: the function's arguments in this partition."""
        self.rings, self.rows, self.values, self.buffers = rings, rows, dict(values), buffers
        self.needed: set[ir.Value] = set()
        self.states: dict[Ring, State] = {}

    def emit(self, block: ir.Block) -> None:
        while self._demand(block):
            pass
        self.true = ttg.boolean(True)
        zero = ttg.i32(0)
        self.states = {ring: State(zero, zero) for ring in dict.fromkeys(self.rings.values())}
        self._block(block)

    # --- what is needed ---

    def _demand(self, block: ir.Block) -> bool:
        """Mark what loads need; whether anything was marked."""
        before = len(self.needed)
        for view in reversed(list(block.operations)):
            op = view.operation
            if op.name == "scf.for":
                self._demand_loop(op)
            elif op.name == "scf.if":
                self._demand_branches(op)
            elif op.results and op.results[0] in self.rings:
                self.needed |= set(list(op.operands)[1:])
            elif any(result in self.needed for result in op.results):
                self.needed |= set(op.operands)
        return len(self.needed) > before

    def _demand_loop(self, op: ir.Operation) -> None:
        body = op.regions[0].blocks[0]
        yielded = list(body.operations)[-1].operation.operands
        rows = zip(list(body.arguments)[1:], yielded, list(op.operands)[3:], op.results, strict=True)
        for argument, carried, start, result in rows:
            if argument in self.needed or result in self.needed:
                self.needed |= {argument, carried, start, result}
        self._demand(body)
        if self._copies(op) or any(result in self.needed for result in op.results):
            self.needed |= set(list(op.operands)[:3])

    def _demand_branches(self, op: ir.Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                self._demand(block)
        self.needed |= {op.operands[0]} if self._copies(op) else set()

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

    def _block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            with op.location:
                self._op(op)

    def _op(self, op: ir.Operation) -> None:
        if op.results and op.results[0] in self.rings:
            self._copy(op)
        elif op.name == "scf.for" and (self._copies(op) or any(result in self.needed for result in op.results)):
            self._loop(op)
        elif op.name == "scf.if":
            self._branches(op)
        elif op.name == "tt.elementwise_inline_asm" or any(result in self.needed for result in op.results):
            self._clone(op)

    def _clone(self, op: ir.Operation) -> None:
        if op.name == "tt.elementwise_inline_asm":
            if ir.StringAttr(op.attributes["asm_string"]).value not in (TRIGGER, WAIT):
                raise CleaveError("inline assembly that blocks meet in is for all threads of a block")
        elif any(is_tile(value) for value in (*op.operands, *op.results)) or op.regions:
            raise CleaveError("where a tile is loaded from follows from other tiles")
        copied = op.clone()
        for number, operand in enumerate(op.operands):
            copied.operands[number] = self.values[operand]
        self.values.update(zip(op.results, copied.results, strict=True))

    def _copy(self, op: ir.Operation) -> None:
        ring = self.rings[op.results[0]]
        state, buffers = self.states[ring], self.buffers[ring.number]
        full = ttg.element(buffers.full, state.slot, barrier())
        if buffers.empty is not None:
            parity = tt.same("arith.xori", state.phase, ttg.i32(1))
            ttg.wait(ttg.element(buffers.empty, state.slot, barrier()), parity, self.true)
        ttg.expect(full, ring.stage_bytes, self.true)
        descriptor, *offsets = op.operands
        for part in range(ring.parts):
            places = [self.values[offset] for offset in offsets]
            if part:
                row = self.rows[op.results[0]]
                places[row.axis] = tt.same("arith.addi", places[row.axis], ttg.i32(part * row.rows))
            tile = ttg.element(buffers.tiles, part_slot(ring, state.slot, part), ring.tile_type)
            ttg.copy(self.values[descriptor], places, full, tile, self.true)
        if ring.reused:
            self.states[ring] = next_state(ring, state)

    def _loop(self, op: ir.Operation) -> None:
        body = op.regions[0].blocks[0]
        arguments = list(body.arguments)
        kept = [number for number, argument in enumerate(arguments[1:]) if argument in self.needed]
        rings = self._copies(op)
        starts = [self.values[op.operands[3 + number]] for number in kept]
        starts += self._passed(rings)
        bounds = [self.values[operand] for operand in list(op.operands)[:3]]
        loop = tt.create("scf.for", [start.type for start in starts], [*bounds, *starts], regions=1)
        block = ir.Block.create_at_start(loop.regions[0], [bounds[0].type, *(start.type for start in starts)])
        index, *carried = block.arguments
        self.values[arguments[0]] = index
        self.values.update(zip((arguments[1 + number] for number in kept), carried, strict=False))
        self._set_states(rings, carried[len(kept) :])
        with ir.InsertionPoint(block):
            *ops, end = [view.operation for view in body.operations]
            for inner in ops:
                with inner.location:
                    self._op(inner)
            passed = [self.values[end.operands[number]] for number in kept]
            tt.create("scf.yield", [], [*passed, *self._passed(rings)])
        self.values.update(zip((op.results[number] for number in kept), loop.results, strict=False))
        self._set_states(rings, list(loop.results)[len(kept) :])

    def _branches(self, op: ir.Operation) -> None:
        """Nothing where neither branch copies; where one is not taken rings stay as they are."""
        rings = self._copies(op)
        if not rings:
            return
        before = dict(self.states)
        states = self._passed(rings)
        branches = tt.create("scf.if", [state.type for state in states], [self.values[op.operands[0]]], regions=2)
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

    def _set_states(self, rings: Sequence[Ring], values: Sequence[ir.Value]) -> None:
        for number, ring in enumerate(rings):
            self.states[ring] = State(values[2 * number], values[2 * number + 1])


def part_slot(ring: Ring, slot: ir.Value, part: int) -> ir.Value:
    """Where a part's tile of a stage lies among the tiles of a ring."""
    if ring.parts == 1:
        return slot
    return tt.same("arith.addi", tt.same("arith.muli", slot, ttg.i32(ring.parts)), ttg.i32(part))
