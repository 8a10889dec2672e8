"""What consumers exchange that divide columns: products without these are divided along a dimension of their own.

Each consumer computes its part along that dimension. Reductions over it are combined of all parts, and where a product
with columns sums over it, all parts are gathered. So of softmax(q·k)·v in columns of v, each consumer has the scores
and probabilities of its part of the keys, the row maxima of all keys, and the probabilities of all keys.
"""

from __future__ import annotations

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.errors import CleaveError
from cleave.lowering import tt
from cleave.lowering.tiles import Layout, Tile
from cleave.passes.functions import ops_inside

PART, COMBINE, GATHER = "cleave.part", "cleave.combine", "cleave.gather"
"""The ops of TTIR that stand for a consumer's part, along ``axis``, of what is loaded; for the combination, of
``kind``, of all consumers' tiles; and for the tile, in shared memory, of which each has its part along ``axis``."""
_PARTED, _COMBINED, _GATHERED = "cleave.parted", "cleave.combined", "cleave.gathered"
"""Marks of ops of a tile program: the dimension of a load's parts and its extent in all; of a reduction; and of a
product which operand is in parts, the dimension, and its extent."""


def can_be_exchanged(func: ir.Operation, name: str, columns: str) -> bool:
    """Whether consumers that divide ``columns`` can have parts of products without these along ``name``."""
    ops = ops_inside(func)
    products = [_names(op.results[0]) for op in ops if op.name == "cleave.contract"]
    some = any(name in product and columns not in product for product in products)
    return some and all(_permits(op, name, columns) for op in ops)


def _permits(op: ir.Operation, name: str, columns: str) -> bool:
    if op.name == "cleave.store":
        return name not in _names(op.operands[0])
    if op.name == "cleave.gather_load":
        return name not in _names(op.results[0])
    if op.name == "cleave.contract" and name in cleave.plain("strings", op.attributes["over"]):
        return columns in _names(op.results[0]) and sum(columns in _names(operand) for operand in op.operands) == 1
    if op.name == "cleave.reduce" and name in cleave.plain("strings", op.attributes["over"]):
        return len(_names(op.results[0])) > 0
    arguments = (a for region in op.regions for block in region.blocks for a in block.arguments)
    both = [value for value in (*op.results, *arguments) if {name, columns} <= _names(value)]
    return not both or (op.name == "cleave.load" and _is_multiplied_only(op))


def _is_multiplied_only(load: ir.Operation) -> bool:
    return all(use.owner.name == "cleave.contract" for use in load.results[0].uses)


def is_whole(value: ir.Value, columns: str) -> bool:
    """Whether a tile with columns, of which consumers have theirs, has all of the other dimension."""
    return columns in _names(value)


def _names(value: ir.Value) -> set[str]:
    return set(cleave.decode(value.type)[0].names) if isinstance(value.type, ir.RankedTensorType) else set()


# --- the program of one part ------------------------------------------------------------------------------------------


def mark(part: ir.Operation, name: str, columns: str) -> None:
    """Say of each op what is exchanged there."""
    for op in ops_inside(part):
        over = cleave.plain("strings", op.attributes["over"]) if "over" in op.attributes else ()
        if op.name == "cleave.reduce" and name in over:
            op.attributes[_COMBINED] = ir.UnitAttr.get()
        elif op.name == "cleave.contract" and name in over:
            number = 0 if columns in _names(op.operands[1]) else 1
            _note(op, _GATHERED, name, op.operands[number], str(number))
        elif op.name == "cleave.load" and _is_parted(op, name, columns):
            _note(op, _PARTED, name, op.results[0])


def _is_parted(load: ir.Operation, name: str, columns: str) -> bool:
    """Whether products read parts of what it loads."""
    names = _names(load.results[0])
    multiplied = any(use.owner.name == "cleave.contract" for use in load.results[0].uses)
    return name in names and columns not in names and multiplied


def _note(op: ir.Operation, attribute: str, name: str, tile: ir.Value, *more: str) -> None:
    type_, extents = cleave.decode(tile.type)
    extent = extents[type_.names.index(name)]
    op.attributes[attribute] = cleave.attribute("strings", [name, str(extent), *more])


def is_parted(op: ir.Operation) -> bool:
    """Whether a load is one of all that consumers have parts of."""
    return _PARTED in op.attributes


def is_combined(op: ir.Operation) -> bool:
    return _COMBINED in op.attributes


def whole_layout(load: ir.Operation, layout: Layout) -> Layout:
    """Of all that is loaded, of which each consumer has a part with this ``layout``."""
    axis = _axis(load, layout)
    _, extent = cleave.plain("strings", load.attributes[_PARTED])
    return Layout(layout.names, (*layout.shape[:axis], int(extent), *layout.shape[axis + 1 :]), layout.dtype)


def part_of_load(load: ir.Operation, whole: Tile, layout: Layout) -> Tile:
    type_ = tt.tensor(layout.shape, tt.element_of(whole.value))
    value = tt.value(PART, type_, whole.value, axis=tt.i32_attr(_axis(load, layout)))
    return Tile(value, whole.names, layout.shape, whole.dtype)


def _axis(load: ir.Operation, layout: Layout) -> int:
    name, _ = cleave.plain("strings", load.attributes[_PARTED])
    if name not in layout.names:
        raise CleaveError(f"'{name}', whose parts are exchanged, is packed with other dims")
    return layout.names.index(name)


def combined(value: ir.Value, kind: str, dtype: str) -> ir.Value:
    """``value`` reduced over what all consumers have."""
    if not isinstance(value.type, ir.RankedTensorType):
        raise CleaveError("a number, which is no tile, cannot be exchanged")
    return tt.value(COMBINE, value.type, value, kind=ir.StringAttr.get(kind), dtype=ir.StringAttr.get(dtype))


def gathered(product: ir.Operation, a: Tile, b: Tile) -> tuple[Tile, Tile]:
    """The operands of a product, with all of the one of which consumers have parts."""
    if _GATHERED not in product.attributes:
        return a, b
    name, extent, number = cleave.plain("strings", product.attributes[_GATHERED])
    return (a, _gather(b, name, int(extent))) if int(number) else (_gather(a, name, int(extent)), b)


def _gather(part: Tile, name: str, extent: int) -> Tile:
    if name not in part.names or tt.element_name(part.value) not in ("f16", "bf16") or len(part.names) != 2:
        raise CleaveError("what consumers exchange for products are matrices of 16 bits")
    axis = part.names.index(name)
    shape = (*part.shape[:axis], extent, *part.shape[axis + 1 :])
    type_ = tt.tensor(shape, tt.element_of(part.value))
    value = tt.value(GATHER, type_, part.value, axis=tt.i32_attr(axis))
    return Tile(value, part.names, shape, part.dtype)
