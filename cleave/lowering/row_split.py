"""The rows of a tile program divided among warpgroups: the same program on tiles of fewer rows, for any of the parts.

A dimension can be divided if no tile is summed over it, and each product and store has it: each part then computes its
share of all results by itself, and tiles without the dimension are the same in all parts. The part is a symbol, so that
one lowering serves all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Dim, const
from cleave.dialects.tensor_type import TensorType
from cleave.passes.functions import ops_inside

FIRST_ROW = "first__row"
"""The symbol whose value is the first row of a part within the tile."""
_SHARED_OUT = ("cleave.store", "cleave.contract")
"""Ops of which each part does its share: a dimension that one of these lacks would have both do the same."""
_ACCESSES = {"cleave.load": (0, 1), "cleave.store": (1, 2)}  # memory, first offset


@dataclass(frozen=True)
class Split:
    """``parts`` of ``rows`` elements along a dimension."""

    dim: str
    rows: int
    parts: int


WHOLE = Split("", 0, 1)
"""No division: one consumer has all rows."""


def splits(func: ir.Operation) -> Iterator[Split]:
    """The ways to divide a kernel in two, or in three, those along the longest dimensions first."""
    extents: dict[str, int] = {}
    refused: set[str] = set()
    everywhere: list[set[str]] = []
    for op in ops_inside(func):
        refused |= _kept_whole(op)
        if op.name in _SHARED_OUT:
            everywhere.append(set(_extents(op.operands[0].type if op.name == "cleave.store" else op.results[0].type)))
        for value in (*op.results, *(a for region in op.regions for block in region.blocks for a in block.arguments)):
            for name, extent in _extents(value.type).items():
                if extents.setdefault(name, extent) != extent:
                    refused.add(name)
    for name, extent in sorted(extents.items(), key=lambda item: -item[1]):
        parts = 3 if extent % 3 == 0 else 2
        if name not in refused and extent % parts == 0 and all(name in names for names in everywhere):
            yield Split(name, extent // parts, parts)


def _kept_whole(op: ir.Operation) -> set[str]:
    """Dimensions that an op needs whole."""
    if op.name in ("cleave.contract", "cleave.reduce"):
        return set(cleave.plain("strings", op.attributes["over"]))
    if op.name == "cleave.store":
        memory, tile = (cleave.tensor_type_of(operand).names for operand in (op.operands[1], op.operands[0]))
        return set(tile) - set(memory)
    if op.name == "cleave.gather_load":
        return set(cleave.plain("strings", op.attributes["dims"])) | set(_extents(op.results[0].type))
    return set()


def _extents(type_: ir.Type) -> dict[str, int]:
    """The extents of a tile by name; nothing for what is no tile."""
    if not isinstance(type_, ir.RankedTensorType):
        return {}
    tile, extents = cleave.decode(type_)
    return {name: extent for name, extent in zip(tile.names, extents, strict=True) if extent is not None}


# --- the program of one part ------------------------------------------------------------------------------------------


def part_of(func: ir.Operation, split: Split) -> ir.Operation:
    """A copy of the kernel beside it that computes the rows from ``FIRST_ROW`` on."""
    with ir.InsertionPoint(func):
        part = func.clone()
    if split is WHOLE:
        return part
    _declare_symbol(part, split)
    block = part.regions[0].blocks[0]
    with part.location, ir.InsertionPoint.at_block_begin(block):
        text = ir.StringAttr.get(FIRST_ROW)
        first = ir.Operation.create("cleave.extent", [ir.IndexType.get()], [], {"size": text}).results[0]
    for op in ops_inside(part):
        _shorten(op, split)
        if op.name in _ACCESSES:
            _move(op, split, first)
        elif op.name == "cleave.index" and split.dim in _extents(op.results[0].type):
            _count_on(op, first)
    return part


def _declare_symbol(part: ir.Operation, split: Split) -> None:
    facts = [*cleave.facts_of(part).texts, f"{FIRST_ROW} <= {split.rows * (split.parts - 1)}"]
    part.attributes["cleave.facts"] = cleave.attribute("strings", facts)


def _shorten(op: ir.Operation, split: Split) -> None:
    values = [*op.results, *(a for region in op.regions for block in region.blocks for a in block.arguments)]
    for value in values:
        if split.dim in _extents(value.type):
            value.set_type(_shorter(value.type, split))


def _shorter(type_: ir.Type, split: Split) -> ir.Type:
    tile, _ = cleave.decode(type_)
    dims = tuple(Dim(d.name, const(split.rows)) if d.name == split.dim else d for d in tile.dims)
    return cleave.tensor_type(TensorType(dims, tile.dtype))


def _move(op: ir.Operation, split: Split, first: ir.Value) -> None:
    """A load or store begins further on if its tile has the rows."""
    memory, offsets = _ACCESSES[op.name]
    tile = op.results[0] if op.name == "cleave.load" else op.operands[0]
    names = cleave.tensor_type_of(op.operands[memory]).names
    if split.dim not in _extents(tile.type) or split.dim not in names:
        return
    position = offsets + names.index(split.dim)
    with op.location, ir.InsertionPoint(op):
        moved = ir.Operation.create("arith.addi", [ir.IndexType.get()], [op.operands[position], first])
    op.operands[position] = moved.results[0]


def _count_on(op: ir.Operation, first: ir.Value) -> None:
    """Positions within the tile are counted from the first row of all parts."""
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
