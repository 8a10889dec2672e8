"""Which layout each tile of a kernel has in registers, decided before TTGIR is made of its TTIR.

What a product, a reduction or a loop fixes is *natural*: what follows from it has the same layout. Tiles that nothing
fixes (constants, positions, addresses, masks, what is read from memory) are made in each layout that is *wanted* of
them. Only where two natural layouts meet does a tile change its layout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import encodings, tt
from cleave.lowering.encodings import Blocked, Encoding, LeftOperand, Slice
from cleave.lowering.exchange import GATHER, PART
from cleave.lowering.outgoing import STORE
from cleave.lowering.side_by_side import HALVES

FREE = ("tt.descriptor_load", "tt.load", "tt.splat", "tt.make_range", "arith.constant")
"""Made in whatever layout is wanted."""
_VIEWS = ("tt.trans", PART)
"""Of a buffer."""
_UNKNOWN = ("tt.reshape", "tt.join", "tt.split", "tt.cat", "tt.scan", "tt.gather", "tt.histogram", "tt.atomic_rmw")


class Layouts:
    """The layouts of the tiles of one function; CleaveError, at the op, for what has none here."""

    def __init__(self, block: ir.Block, resident: set[ir.Value], staying: Set[ir.Value] = frozenset()) -> None:
        """``resident``: what descriptors load, and views of it: products read it from shared memory.

        ``staying``: what of it products read from registers as their left operand.
        """
        self.resident, self.staying = resident, staying
        self.natural: dict[ir.Value, Encoding] = {}
        self.wanted: dict[ir.Value, dict[Encoding, None]] = defaultdict(dict)
        while self._fix(block):
            pass
        self._want_of(block)

    def of(self, value: ir.Value) -> list[Encoding]:
        """The layouts in which a tile is made."""
        return [self.natural[value]] if value in self.natural else list(self.wanted[value])

    # --- what is fixed ---

    def _fix(self, block: ir.Block) -> bool:
        """Whether anything was fixed."""
        changed = False
        for view in block.operations:
            op = view.operation
            if op.name in _UNKNOWN:
                raise CleaveError(f"'{op.name}' has no layout rule")
            if op.name == "scf.for":
                changed |= self._fix_loop(op)
            elif op.name == "scf.if":
                changed |= any(self._fix(inner) for region in op.regions for inner in region.blocks)
            for result in op.results:
                if is_tile(result) and result not in self.natural and result not in self.resident:
                    changed |= self._note(result, self._fixed(op))
        return changed

    def _note(self, value: ir.Value, encoding: Encoding | None) -> bool:
        if encoding is None or value in self.natural:
            return False
        self.natural[value] = encoding
        return True

    def _fix_loop(self, op: ir.Operation) -> bool:
        body = op.regions[0].blocks[0]
        changed = self._fix(body)
        yielded = list(body.operations)[-1].operation.operands
        rows = zip(list(body.arguments)[1:], yielded, list(op.operands)[3:], op.results, strict=True)
        for argument, carried, start, result in rows:
            if not is_tile(argument):
                continue
            found = self.natural.get(carried) or self.natural.get(start) or self.natural.get(argument)
            found = found or encodings.default(tt.shape_of(argument))
            changed |= self._note(argument, found) | self._note(result, self.natural.get(argument, found))
        return changed

    def _fixed(self, op: ir.Operation) -> Encoding | None:
        if op.name in ("tt.dot", HALVES):
            return encodings.accumulator(tt.shape_of(op.results[0])[1])
        if op.name in FREE or op.name == "scf.for":
            return None
        if op.name == "tt.reduce":
            return Slice(_axis(op), self._reduced(op.operands[0], _axis(op)))
        if op.name == "tt.expand_dims":
            return self._expanded(op)
        if op.name == "tt.trans":
            raise CleaveError("a tile is transposed in registers")
        found = [self.natural[operand] for operand in op.operands if operand in self.natural]
        spread = op.name == "tt.broadcast" and found and isinstance(found[0], Blocked)
        return found[0] if found and not spread else None  # a column's threads are too few for what it becomes

    def _reduced(self, tile: ir.Value, axis: int) -> Encoding:
        if tile in self.natural:
            return self.natural[tile]
        encoding = encodings.reduced(tt.shape_of(tile), axis)
        if tile not in self.resident:
            self.natural[tile] = encoding
        return encoding

    def _expanded(self, op: ir.Operation) -> Encoding | None:
        """What is no slice along its axis changes its layout for what needs it."""
        source = self.natural.get(op.operands[0])
        return source.parent if isinstance(source, Slice) and source.dim == _axis(op) else None

    # --- what is wanted ---

    def _want_of(self, block: ir.Block) -> None:
        """From the last op to the first: what is wanted of a tile is known before what it wants of others."""
        for view in reversed(list(block.operations)):
            op = view.operation
            for region in reversed(list(op.regions)) if op.name.startswith("scf.") else ():
                for inner in region.blocks:
                    self._want_of(inner)
            for operand, encoding in self.operands(op):
                self._want(operand, encoding)

    def _want(self, value: ir.Value, encoding: Encoding) -> None:
        if value not in self.natural:
            self.wanted[value][encoding] = None

    def operands(self, op: ir.Operation) -> Iterator[tuple[ir.Value, Encoding]]:
        """The tiles that an op takes from registers, with the layouts it takes them in, for all its results."""
        if op.name == "tt.dot":
            yield from self._factors(op)
        elif op.name == "scf.for":
            yield from self._tiles(zip(list(op.operands)[3:], list(op.regions[0].blocks[0].arguments)[1:], strict=True))
        elif op.name == "scf.yield":
            loop = tt.parent(op)
            if loop.name == "scf.for":
                yield from self._tiles(zip(op.operands, list(loop.regions[0].blocks[0].arguments)[1:], strict=True))
        elif op.name == "tt.store":
            encoding = self.natural.get(op.operands[1])
            encoding = encoding or encodings.default(tt.shape_of(op.operands[1])) if is_tile(op.operands[1]) else None
            yield from ((operand, encoding) for operand in op.operands if encoding and is_tile(operand))
        elif op.name == GATHER:
            yield op.operands[0], self.natural.get(op.operands[0]) or encodings.default(tt.shape_of(op.operands[0]))
        elif op.name == STORE:
            yield op.operands[1], self.natural.get(op.operands[1]) or encodings.default(tt.shape_of(op.operands[1]))
        elif op.name == "tt.reduce" and not is_tile(op.results[0]):
            (tile,) = op.operands
            yield tile, self.natural.get(tile) or encodings.default(tt.shape_of(tile))
        elif op.results and is_tile(op.results[0]) and op.results[0] not in self.resident:
            for encoding in self.of(op.results[0]):
                yield from taken(op, encoding)

    def _tiles(self, pairs: Iterator[tuple[ir.Value, ir.Value]]) -> Iterator[tuple[ir.Value, Encoding]]:
        return ((value, self.natural[argument]) for value, argument in pairs if is_tile(argument))

    def _factors(self, op: ir.Operation) -> Iterator[tuple[ir.Value, Encoding]]:
        encoding = encodings.accumulator(tt.shape_of(op.results[0])[1])
        left, _, start = op.operands
        if left not in self.resident or left in self.staying:
            yield left, LeftOperand(encoding)
        yield start, encoding


def taken(op: ir.Operation, encoding: Encoding) -> Iterator[tuple[ir.Value, Encoding]]:
    """The tiles that an op takes, and in which layouts, if its result is made in this one."""
    if op.name == "tt.expand_dims":
        encoding = Slice(_axis(op), encoding)
    elif op.name == "tt.reduce":
        assert isinstance(encoding, Slice)
        encoding = encoding.parent
    elif op.name == HALVES:
        encoding = encodings.accumulator(tt.shape_of(op.operands[0])[1])
    yield from ((operand, encoding) for operand in op.operands if is_tile(operand))


def is_tile(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def _axis(op: ir.Operation) -> int:
    return ir.IntegerAttr(op.attributes["axis"]).value


def views_of(load: ir.Value) -> list[ir.Value]:
    """What is loaded, and what else is in the same buffer: transposes, and parts."""
    users = (use.owner.operation for use in load.uses)
    return [load, *(view for user in users if user.name in _VIEWS for view in views_of(user.results[0]))]


def loaded(value: ir.Value) -> ir.Value:
    """The load that a tile in shared memory is, or a view of."""
    owner = value.owner.operation
    return loaded(owner.operands[0]) if owner.name in _VIEWS else value


def is_view(op: ir.Operation) -> bool:
    """Of a buffer, if its operand is in one."""
    return op.name in _VIEWS


def resident_values(loads: Sequence[ir.Operation]) -> set[ir.Value]:
    """What descriptors load, or consumers gather, and views of it."""
    return {view for load in loads for view in views_of(load.results[0])}
