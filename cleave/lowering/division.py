"""A tile program divided among warpgroups: the same program on smaller tiles, for any of the parts.

A dimension can be divided if no tile is summed over it, and each store has it. Where each product has it, too, each
part computes its share of all results by itself: these are the rows, mostly. Where some have not, they are computed in
all parts, and what has not the dimension is stored by the first. So columns are divided that are too many for the
registers of one warpgroup. These products are shared out, too, where they have a dimension that those with columns sum
over (``exchange``). The part is a symbol, so that one lowering serves all of them. What blocks do when they have met (a
split's combination) has other tiles; the parts take turns at these, and no columns are divided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Dim, const
from cleave.dialects.tensor_type import TensorType
from cleave.lowering import exchange, index_ops
from cleave.passes.functions import ops_inside

FIRST = "first__of_part"
"""The symbol whose value is the first element of a part within the tile."""
FIRST_EXCHANGED = "first__of_exchanged"
"""The same along the dimension whose parts are exchanged."""
_ACCESSES = ("cleave.load", "cleave.gather_load", "cleave.store")


@dataclass(frozen=True)
class Division:
    """``parts`` of ``extent`` elements along a dimension. ``repeats``: some products have not the dimension.

    These are computed in all parts, or each has its own along ``exchanged``, of ``exchanged_extent`` elements.
    """

    dim: str
    extent: int
    parts: int
    repeats: bool = False
    exchanged: str = ""
    exchanged_extent: int = 0


WHOLE = Division("", 0, 1)
"""One consumer has all of it."""


def divisions(func: ir.Operation) -> list[Division]:
    """The ways to divide a kernel in two, or in three, those along the longest dimensions first.

    Those along columns that some products have not come last, behind ``WHOLE``, and are in two parts: first where the
    parts of these products are exchanged.
    """
    extents, refused = _divisible(func)
    ahead = _ahead_of_barrier(func)
    products = _names_of(op.results[0] for op in ahead if op.name == "cleave.contract")
    stores = _names_of(op.operands[0] for op in ahead if op.name == "cleave.store")
    shared, repeating = list[Division](), list[Division]()
    for name, extent in sorted(extents.items(), key=lambda item: -item[1]):
        if name in refused or not any(name in names for names in products):
            continue
        parts = 3 if extent % 3 == 0 else 2
        if extent % parts == 0 and all(name in names for names in (*products, *stores)):
            shared.append(Division(name, extent // parts, parts))
        elif extent % 2 == 0 and any(name in names for names in stores) and not barrier_of(func):
            repeating.append(Division(name, extent // 2, 2, repeats=True))
    exchanging = [
        replace(each, exchanged=name, exchanged_extent=extents[name] // each.parts)
        for each in repeating
        for name in extents.keys() - {each.dim}
        if extents[name] % each.parts == 0 and exchange.can_be_exchanged(func, name, each.dim)
    ]
    return [*shared, WHOLE, *sorted(exchanging, key=lambda each: each.exchanged), *repeating]


def _divisible(func: ir.Operation) -> tuple[dict[str, int], set[str]]:
    """The extents of dimensions, and those of them that cannot be divided."""
    extents: dict[str, int] = {}
    refused: set[str] = set()
    for op in _ahead_of_barrier(func):
        refused |= _kept_whole(op)
        for value in (*op.results, *(a for region in op.regions for block in region.blocks for a in block.arguments)):
            for name, extent in _extents(value.type).items():
                if extents.setdefault(name, extent) != extent:
                    refused.add(name)
    return extents, refused


def stores_products(op: ir.Operation) -> bool:
    """Whether it is a loop that stores what it multiplies."""
    return op.name == "scf.for" and {"cleave.contract", "cleave.store"} <= {inner.name for inner in ops_inside(op)}


def barrier_of(func: ir.Operation) -> ir.Operation | None:
    """The barrier at which blocks meet; it stands outside all loops."""
    return next((op for op in _outermost(func) if op.name == "cleave.group_barrier"), None)


def _outermost(func: ir.Operation) -> list[ir.Operation]:
    return [view.operation for view in func.regions[0].blocks[0].operations]


def _ahead_of_barrier(func: ir.Operation) -> list[ir.Operation]:
    """All ops inside, but for what blocks do when they have met."""
    barrier, ops = barrier_of(func), ops_inside(func)
    return ops[: ops.index(barrier)] if barrier else ops


def _behind_barrier(func: ir.Operation) -> list[ir.Operation]:
    """The outermost ops."""
    barrier, ops = barrier_of(func), _outermost(func)
    return ops[ops.index(barrier) + 1 : -1] if barrier else []


def _names_of(tiles: Iterable[ir.Value]) -> list[set[str]]:
    return [set(_extents(tile.type)) for tile in tiles]


def _kept_whole(op: ir.Operation) -> set[str]:
    """Dimensions that an op needs whole."""
    if op.name in ("cleave.contract", "cleave.reduce"):
        return set(cleave.plain("strings", op.attributes["over"]))
    if op.name == "cleave.store":
        memory, tile = (cleave.tensor_type_of(operand).names for operand in (op.operands[1], op.operands[0]))
        return set(tile) - set(memory)
    if op.name == "cleave.gather_load":
        return set(_picked(op))
    return set()


def _picked(access: ir.Operation) -> tuple[str, ...]:
    """Dimensions of memory along which indices say where it reads."""
    return tuple(cleave.plain("strings", access.attributes["dims"])) if access.name == "cleave.gather_load" else ()


def _extents(type_: ir.Type) -> dict[str, int]:
    """The extents of a tile by name; nothing for what is no tile."""
    if not isinstance(type_, ir.RankedTensorType):
        return {}
    tile, extents = cleave.decode(type_)
    return {name: extent for name, extent in zip(tile.names, extents, strict=True) if extent is not None}


# --- the program of one part ------------------------------------------------------------------------------------------


def part_of(func: ir.Operation, division: Division) -> ir.Operation:
    """A copy of the kernel beside it that computes what there is from ``FIRST`` on."""
    with ir.InsertionPoint(func):
        part = func.clone()
    if division is WHOLE:
        return part
    _divide(part, division, FIRST)
    if division.exchanged:
        exchange.mark(part, division.exchanged, division.dim)
        own = Division(division.exchanged, division.exchanged_extent, division.parts)
        _divide(part, own, FIRST_EXCHANGED, columns=division.dim)
    return part


def _divide(part: ir.Operation, division: Division, symbol: str, columns: str = "") -> None:
    """Shorten tiles along the dimension; those that have ``columns``, too, stay whole."""
    _declare_symbol(part, division, symbol)
    block = part.regions[0].blocks[0]
    with part.location, ir.InsertionPoint.at_block_begin(block):
        first = index_ops.extent(symbol)
    for op in _behind_barrier(part):
        _take_turns(op, division, first)
    for op in _ahead_of_barrier(part):
        if columns and op.name == "cleave.load" and exchange.is_whole(op.results[0], columns):
            continue
        _shorten(op, division)
        if op.name in _ACCESSES and not exchange.is_parted(op):
            _move(op, division, first)
            if op.name == "cleave.store" and not columns and division.dim not in _extents(op.operands[0].type):
                _leave_to_first(op, first)
        elif op.name == "cleave.index" and division.dim in _extents(op.results[0].type):
            _count_on(op, first)


def _declare_symbol(part: ir.Operation, division: Division, symbol: str) -> None:
    facts = [*cleave.facts_of(part).texts, f"{symbol} <= {division.extent * (division.parts - 1)}"]
    part.attributes["cleave.facts"] = cleave.attribute("strings", facts)


def _shorten(op: ir.Operation, division: Division) -> None:
    values = [*op.results, *(a for region in op.regions for block in region.blocks for a in block.arguments)]
    for value in values:
        if division.dim in _extents(value.type):
            value.set_type(_shorter(value.type, division))


def _shorter(type_: ir.Type, division: Division) -> ir.Type:
    tile, _ = cleave.decode(type_)
    dims = tuple(Dim(d.name, const(division.extent)) if d.name == division.dim else d for d in tile.dims)
    return cleave.tensor_type(TensorType(dims, tile.dtype))


def _move(op: ir.Operation, division: Division, first: ir.Value) -> None:
    """A load or store begins further on if its tile is divided. Where indices pick from, those are divided."""
    tile, memory = (op.operands[0], op.operands[1]) if op.name == "cleave.store" else (op.results[0], op.operands[0])
    names = cleave.tensor_type_of(memory).names
    if division.dim not in _extents(tile.type) or division.dim not in names:
        return
    position = len(list(op.operands)) - 2 * len(names) + names.index(division.dim)
    with op.location, ir.InsertionPoint(op):
        op.operands[position] = index_ops.arith("addi", op.operands[position], first)


def _take_turns(op: ir.Operation, division: Division, first: ir.Value) -> None:
    """Of what blocks do when they have met each part has every second or third iteration of loops, which carry nothing;
    the first one stores what is stored outside them."""
    if op.name == "cleave.store":
        _leave_to_first(op, first)
    elif op.name == "scf.for" and not len(op.results):
        low, _, step = op.operands
        with op.location, ir.InsertionPoint(op):
            extent, parts = map(index_ops.constant, (division.extent, division.parts))
            ahead = index_ops.arith("muli", index_ops.arith("divui", first, extent), step)
            op.operands[0] = index_ops.arith("addi", low, ahead)
            op.operands[2] = index_ops.arith("muli", step, parts)


def _leave_to_first(store: ir.Operation, first: ir.Value) -> None:
    """All parts have the same to store."""
    with store.location, ir.InsertionPoint(store):
        zero = index_ops.constant(0)
        same = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
        is_first = ir.Operation.create(
            "arith.cmpi", [ir.IntegerType.get_signless(1)], [first, zero], {"predicate": same}
        )
        branch = ir.Operation.create("scf.if", [], [is_first.results[0]], regions=2)
        with ir.InsertionPoint(ir.Block.create_at_start(branch.regions[0], [])):
            end = ir.Operation.create("scf.yield", [], [])
    store.move_before(end)


def _count_on(op: ir.Operation, first: ir.Value) -> None:
    """Positions within the tile are counted from the first of all parts."""
    line = op.results[0]
    type_ = cleave.decode(line.type)[0]
    uses = [(use.owner.operation, use.operand_number) for use in line.uses]
    scalar = cleave.tensor_type(TensorType((), "i64"))
    with op.location, ir.InsertionPoint.after(op):
        start = ir.Operation.create("cleave.splat", [scalar], [first]).results[0]
        if type_.dtype != "i64":
            narrow = cleave.tensor_type(TensorType((), type_.dtype))
            start = ir.Operation.create("cleave.cast", [narrow], [start]).results[0]
        moved = ir.Operation.create("cleave.add", [line.type], [line, start]).results[0]
    for user, number in uses:
        user.operands[number] = moved
