"""A kernel divided in one way as warp-specialised TTGIR: its TTIR is made once for any of the parts, and from that each
partition takes its part: the producer the loops and copies, the consumers all but the copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.errors import CleaveError
from cleave.lowering import copied_loads, division, encodings, tt, ttg
from cleave.lowering.budgets import Budget, budget
from cleave.lowering.common_factors import take_out_common_factors
from cleave.lowering.consumer import Consumer, Kernel, Scope
from cleave.lowering.consumer_loops import nested
from cleave.lowering.copied_loads import THREADS
from cleave.lowering.descriptors import LOAD
from cleave.lowering.division import FIRST, FIRST_EXCHANGED, Division
from cleave.lowering.exchange import COMBINE, GATHER, PART
from cleave.lowering.exchange_buffers import exchanges_of
from cleave.lowering.exponentials import anchored_exponentials
from cleave.lowering.form import Form
from cleave.lowering.kernel_builder import (
    ARGUMENTS,
    COPIES,
    DESCRIPTORS,
    KERNEL_MODULE,
    PERSISTENT,
    STORED,
    Surroundings,
)
from cleave.lowering.loop_plan import goes_on
from cleave.lowering.masks_first import put_masks_first
from cleave.lowering.meeting import multiplies_behind
from cleave.lowering.outgoing import STORE, outgoing_of, store_in_pieces
from cleave.lowering.parts_of_loads import row_of, without_parts
from cleave.lowering.producer import Copying, Producer, Row, following
from cleave.lowering.register_layouts import Layouts, is_tile, resident_values
from cleave.lowering.rings import ALIGNMENT, Buffers, Sharing, allocated, initialise, parts_of, rebuilt, rings_of
from cleave.lowering.side_by_side import join_products
from cleave.lowering.staying import needed, registers_of, staying
from cleave.lowering.targets import TTGIR_TARGET, Target
from cleave.lowering.tile_loop import BLOCK_COUNT, loop_over_tiles
from cleave.lowering.to_triton import lower_kernel
from cleave.lowering.triton_partitions import COPYING_WARPS, NUMBER
from cleave.lowering.ttir_types import ttir_type
from cleave.lowering.turns import give_turn, takes_turns
from cleave.lowering.wgmma import check_product, operands_read
from cleave.passes.functions import is_within, ops_inside
from cleave.runtime.descriptors import DESCRIPTOR, DescriptorSpec
from cleave.schedule.warp_specialised import BLOCKS, RESERVED, RESERVED_EXCHANGING

_ARCHITECTURE = "sm_90"

_MADE: Mapping[str, Callable[[Division, ir.Value], ir.Value]] = {
    f"size:{FIRST}": lambda divided, part: _times(part, divided.extent),
    f"size:{FIRST_EXCHANGED}": lambda divided, part: _times(part, divided.exchanged_extent),
    f"size:{BLOCK_COUNT}": lambda divided, part: tt.value("tt.get_num_programs", tt.scalar("i32"), axis=tt.i32_attr(0)),
}
"""Arguments of the TTIR that are none of the kernel's: each partition makes them, of where its part begins."""


def _with_facts(part: ir.Operation, around: Surroundings) -> Surroundings:
    texts = dict.fromkeys((*around.facts.texts, *cleave.facts_of(part).texts))
    return replace(around, facts=type(around.facts).parse(list(texts)))


def _part(func: ir.Operation, around: Surroundings, divided: Division, form: Form) -> tuple[ir.Operation, ir.Operation]:
    """The tile program of any part, and the module with its TTIR."""
    if any(op.name == "cleave.scalar" and op.operands[0].owner.name == "cleave.reduce" for op in ops_inside(func)):
        raise CleaveError("a loop has its range from the elements of a tile, which not all warps have")
    if not division.barrier_of(func) and any(map(division.stores_products, ops_inside(func))):
        raise CleaveError("a loop stores a product in each of its iterations")
    part = division.part_of(func, divided)
    take_out_common_factors(part)
    part.attributes["cleave.num_stages"] = cleave.attribute("integer", 1)
    part.attributes[DESCRIPTORS] = part.attributes[COPIES] = ir.UnitAttr.get()
    if form.stored_by_copies:
        part.attributes[STORED] = ir.UnitAttr.get()
    try:
        if form.persistent:
            loop_over_tiles(part, around.grid, keep=form.kept_between_tiles)
        return part, lower_kernel(part, _with_facts(part, around))
    except CleaveError:
        part.erase()
        raise


@dataclass(frozen=True)
class _Argument:
    """One of the function's, as the TTIR has it."""

    text: str
    value: ir.Value
    hint: ir.Attribute


class DividedKernel:
    """The kernel divided in one way; until ``erase`` the TTIR of any part stands beside it."""

    def __init__(
        self, func: ir.Operation, around: Surroundings, divided: Division, form: Form, pieces: int = 1
    ) -> None:
        """``pieces``: in which results are stored by copies."""
        self.pieces = pieces
        self.divided, self.form = divided, replace(form, persistent=form.persistent and bool(around.grid))
        with func.location:
            self.func, self.source = _part(func, around, divided, self.form)
        try:
            self._analyse()
        except CleaveError:
            self.erase()
            raise

    def erase(self) -> None:
        self.source.erase()
        self.func.erase()

    def _analyse(self) -> None:
        divided = self.divided
        self.function = self.source.regions[0].blocks[0].operations[0].operation
        self.block: ir.Block = self.function.regions[0].blocks[0]
        texts = cleave.plain("strings", self.source.attributes[ARGUMENTS])
        if self.pieces > 1:
            texts = store_in_pieces(self.function, texts, self.pieces)
        self.arguments = list(self._arguments(texts))
        self.first = next((a.value for a in self.arguments if a.text == f"size:{FIRST}"), None)
        self.rows: dict[ir.Value, Row] = {}
        described = self._described()
        if self.form.side_by_side:
            described = join_products(self.function, self.rows)
        hints = {argument.value: _divisor(argument.hint) for argument in self.arguments}
        hints |= {self.first: divided.extent} if self.first else {}
        pointers = [op for op in ops_inside(self.function) if op.name == copied_loads.LOAD]
        self.vectors = copied_loads.copied_loads(pointers, hints)
        ops = ops_inside(self.function)
        self.loads = [op for op in ops if op in described or _result(op) in self.vectors]
        self.resident = resident_values([*self.loads, *(op for op in ops if op.name == GATHER)])
        self._check()
        own = {*self.rows, *(following(self.first) & self.vectors.keys())}
        loaded: list[ir.Value] = [load.results[0] for load in self.loads]
        parts = {value: divided.parts if value in own else 1 for value in loaded}
        stores = [(op, outgoing_of(op, divided.parts)) for op in ops if op.name == STORE]
        exchanges = exchanges_of(ops, divided.parts)
        self.exchanged = list(dict.fromkeys(exchanges.values()))
        capacity = Target.parse(_ARCHITECTURE).shared_per_block // BLOCKS[divided.parts]
        capacity -= RESERVED_EXCHANGING if exchanges else RESERVED
        self.sent = list(dict.fromkeys(out for _, out in stores))
        # buffers that are multiples of it leave no gaps: what little room pieces need is not given to these
        padding = 0 if exchanges or self.pieces > 1 else ALIGNMENT
        capacity -= sum(out.bytes + padding for out in self.sent) + sum(each.bytes for each in self.exchanged)
        sharing = Sharing(parts, dict.fromkeys(self.vectors, THREADS))
        self.rings = rings_of(self.loads, sharing, capacity, padding)
        self.budget = self._budget()
        if max((_carried(op) for op in ops), default=0) > self.budget.tiles:
            raise CleaveError("what its loops carry is too much for the registers of the warpgroups")
        dots = [op for op in ops if op.name == "tt.dot"]
        room = self.budget.repeated if divided.repeats else self.budget.tiles
        room = room if self.form.in_registers and not exchanges else 0
        loops = [op for op in ops if op.name == "scf.for"]
        in_order = self._in_order(loops, dots)
        first = self.form.masks_first and not (divided.repeats or exchanges)
        masked = put_masks_first(loops, self.resident) if first else {}
        stays = staying(self.loads, dots, self.resident, room, in_order)
        layouts = Layouts(self.block, self.resident, stays)
        # a rotated loop has operands of two iterations in registers, and where one tile is both, in its buffers
        rotated = [] if divided.repeats else [loop for loop in loops if loop not in in_order]
        turns = self._turns(rotated)
        run_on = self.form.run_on and not exchanges  # consumers that meet have read what they exchanged before
        shared_out = anchored_exponentials(self.function) if self.form.polynomial else ()
        agreed = turns, run_on, rotated, exchanges, divided.parts, shared_out, masked
        self.kernel = Kernel(self.block, layouts, self.rings, stores, *agreed)

    def _budget(self) -> Budget:
        copied = {self.rings[load.results[0]]: load for load in self.loads if load.results[0] in self.vectors}
        vectors = {load: self.vectors[load.results[0]] for load in copied.values()}
        branches = [op for op in ops_inside(self.function) if op.name == "scf.if"]
        branching = any(is_within(load, branch) for branch in branches for load in self.loads)
        return budget(self.divided.parts, vectors, branching=branching)

    def _described(self) -> list[ir.Operation]:
        """Through descriptors, without those of a part of what another one loads: these become views of it."""
        loads = [op for op in ops_inside(self.function) if op.name == LOAD]
        first = self.first
        if first is None:
            return loads
        specs = {a.value: DescriptorSpec.parse(a.text) for a in self.arguments if a.text.startswith(DESCRIPTOR)}
        for load in loads:
            row = row_of(load, first, specs[load.operands[0]])
            if row:
                self.rows[load.results[0]] = row
        return without_parts(loads, specs, self.rows, first)

    @property
    def stages(self) -> int:
        """Of the rings that have the most."""
        return max(ring.stages for ring in self.rings.values())

    def _in_order(self, loops: Sequence[ir.Operation], dots: Sequence[ir.Operation]) -> list[ir.Operation]:
        """Those of few iterations that are not rotated, as their masks leave no registers for that."""
        room = 0 if self.form.rest_in_order else self.budget.tiles
        return [loop for loop in loops if goes_on(loop) and needed(loop, dots, self.resident) > room]

    def _turns(self, rotated: Sequence[ir.Operation]) -> int:
        """How many consumers take turns."""
        parts = self.divided.parts
        wanted = self.form.in_turn and parts > 1
        return parts if wanted and any(takes_turns(loop, self.resident) for loop in rotated) else 0

    def _arguments(self, texts: Sequence[str]) -> Iterator[_Argument]:
        hints = ir.ArrayAttr(self.function.attributes["arg_attrs"])
        for text, value, hint in zip(texts, self.block.arguments, hints, strict=True):
            yield _Argument(text, value, hint)

    def _check(self) -> None:
        """CleaveError for what the partitions cannot do."""
        ops = ops_inside(self.function)
        dots = [op for op in ops if op.name == "tt.dot"]
        if multiplies_behind(ops):
            raise CleaveError("blocks that have met multiply, for which nothing is copied")
        looping = [load for load in self.loads if tt.parent(load).name == "scf.for"]
        if not dots or not looping:
            raise CleaveError("no loop of it multiplies tiles that can be copied")
        for dot in dots:
            check_product(dot, self.resident)
        own = next((a.value for a in self.arguments if a.text == f"size:{FIRST_EXCHANGED}"), None)
        where = {operand for load in self.loads for operand in load.operands}
        if where & following(own) or any(op.name == PART and op.results[0] not in self.resident for op in ops):
            raise CleaveError("what consumers have parts of, to exchange them, is not copied as a whole")

    def operand_traffic(self) -> int:
        """Elements that a consumer's products read from shared memory, each once."""
        return sum(operands_read(op) for op in ops_inside(self.function) if op.name == "tt.dot")

    # --- the module ---

    def build(self) -> ir.Operation:
        with self.function.location:
            module = tt.create("builtin.module", [], [], self._attributes(), regions=1)
            try:
                with ir.InsertionPoint(ir.Block.create_at_start(module.regions[0], [])):
                    self._function()
            except CleaveError:
                module.erase()
                raise
        return module

    def _attributes(self) -> dict[str, ir.Attribute]:
        texts = [argument.text for argument in self._kept()]
        marks = {PERSISTENT: ir.UnitAttr.get()} if self.form.persistent else {}
        return {
            **marks,
            KERNEL_MODULE: self.source.attributes[KERNEL_MODULE],
            ARGUMENTS: cleave.attribute("strings", texts),
            "cleave.num_warps": cleave.attribute("integer", encodings.WARPS),
            "ttg.num-ctas": tt.i32_attr(1),
            "ttg.num-warps": tt.i32_attr(encodings.WARPS),
            "ttg.threads-per-warp": tt.i32_attr(32),
            "ttg.maxnreg": tt.i32_attr(self.budget.entry),
            TTGIR_TARGET: ir.StringAttr.get("cuda:90"),
        }

    def _function(self) -> None:
        kept = self._kept()
        types = [self._type(argument) for argument in kept]
        attributes = {
            "sym_name": self.function.attributes["sym_name"],
            "sym_visibility": ir.StringAttr.get("public"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
            "arg_attrs": ir.ArrayAttr.get([argument.hint for argument in kept]),
        }
        function = tt.create("tt.func", [], [], attributes, regions=1)
        block = ir.Block.create_at_start(function.regions[0], types)
        given = dict(zip((argument.value for argument in kept), block.arguments, strict=True))
        with ir.InsertionPoint(block):
            self._body({v: new for v, new in given.items() if list(v.uses)})
            tt.create("tt.return", [], [])

    def _kept(self) -> list[_Argument]:
        """The arguments that the kernel has, too: no descriptor of a part of what another one describes."""
        used = (a for a in self.arguments if list(a.value.uses) or not a.text.startswith(DESCRIPTOR))
        return [argument for argument in used if argument.text not in _MADE]

    def _type(self, argument: _Argument) -> ir.Type:
        """Descriptors say how their blocks lie in shared memory."""
        if not argument.text.startswith(DESCRIPTOR):
            return argument.value.type
        type_ = ttir_type(argument.value)
        extents = type_.block or (1,)
        layout = ttg.shared_matrix(extents[-1], type_.bits, rank=len(extents))
        shape = "x".join(map(str, extents))
        return ir.Type.parse(f"!tt.tensordesc<tensor<{shape}x{type_.element}, {layout}>>")

    def _body(self, given: Mapping[ir.Value, ir.Value]) -> None:
        rings = list(dict.fromkeys(self.rings.values()))
        buffers = [allocated(ring) for ring in rings]
        outgoing = [ttg.alloc(out.tiles_type) for out in self.sent]
        exchanged = [ttg.alloc(each.type) for each in self.exchanged for _ in range(each.buffers)]
        for ring, each in zip(rings, buffers, strict=True):
            initialise(ring, each, self.divided.parts)
        shared = [value for each in buffers for value in parts_of(each)]
        captures = [*given.values(), *shared, *outgoing, *exchanged]
        default, others = ttg.warp_specialize(captures, self.budget.consumers)
        with ir.InsertionPoint(default):
            self._producer(given, buffers)
            tt.create("ttg.warp_yield", [], [])
        for part, block in enumerate(others):
            inside = dict(zip(given, block.arguments, strict=False))
            own = rebuilt(buffers, list(block.arguments)[len(given) :])
            with ir.InsertionPoint(block):
                self._consumer(part, inside, own, list(block.arguments)[len(given) + len(shared) :])
                tt.create("ttg.warp_return", [], [])

    def _consumer(
        self, part: int, given: Mapping[ir.Value, ir.Value], buffers: Sequence[Buffers], others: Sequence[ir.Value]
    ) -> None:
        """``others``: the buffers of results, and those of exchanges."""
        number = _marked(part, NUMBER) if self._are_alike() else ttg.i32(part)
        scope, rest = Scope(), iter(others)
        scope.values.update(self._with_own(number, given))
        outgoing = {out: next(rest) for out in self.sent}
        exchanged = {each: [next(rest) for _ in range(each.buffers)] for each in self.exchanged}
        Consumer(self.kernel, part, number, buffers, outgoing, exchanged, scope, nested).emit()

    def _are_alike(self) -> bool:
        """Whether consumers differ by their number at most: exchanges and parts have fixed places."""
        return self.form.one_code and not any(op.name in (PART, COMBINE, GATHER) for op in ops_inside(self.function))

    def _producer(self, given: Mapping[ir.Value, ir.Value], buffers: Sequence[Buffers]) -> None:
        if self.kernel.turns:
            give_turn(ttg.i32(0))
        if not self.vectors:
            _marked(max(ring.copying_warps for ring in self.rings.values()), COPYING_WARPS)
        parts = [ttg.i32(part * self.divided.extent) for part in range(self.divided.parts)] if self.first else []
        copying = Copying(self.rings, self.rows, self.vectors, self.first, parts)
        Producer(copying, self._with_own(ttg.i32(0), given), buffers).emit(self.block)

    def _with_own(self, part: ir.Value, given: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
        """What is passed, and the sizes that a partition makes by itself."""
        made = {a.value: _MADE[a.text](self.divided, part) for a in self.arguments if a.text in _MADE}
        return {**given, **made}


def _times(part: ir.Value, extent: int) -> ir.Value:
    """A constant, which decides branches, if the part is one that is not ``_marked``."""
    number = part.owner
    if NUMBER in number.attributes:
        return tt.same("arith.muli", part, ttg.i32(extent))
    return ttg.i32(ir.IntegerAttr(number.attributes["value"]).value * extent)


def _marked(number: int, mark: str) -> ir.Value:
    value = ttg.i32(number)
    value.owner.attributes[mark] = ir.UnitAttr.get()
    return value


def _carried(op: ir.Operation) -> int:
    """Registers of a thread for the tiles that a loop carries."""
    return registers_of(result for result in op.results if is_tile(result)) if op.name == "scf.for" else 0


def _result(op: ir.Operation) -> ir.Value | None:
    return op.results[0] if len(op.results) == 1 else None


def _divisor(hint: ir.Attribute) -> int:
    """What a parameter is known to be a multiple of."""
    known = ir.DictAttr(hint)
    return ir.IntegerAttr(known["tt.divisibility"]).value if "tt.divisibility" in known else 1
