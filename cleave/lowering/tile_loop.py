"""Blocks that go through several tiles: the body of a tile program in a loop over the tiles of its grid.

As many blocks are launched as the GPU runs at once. Block b takes the tiles b, b + blocks, b + 2·blocks, … of the
order that the grid has, so that those computed together are neighbours in it, as where each tile has its own block.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Size, const

BLOCK_COUNT = "tile__blocks"
"""The symbol whose value is the number of blocks."""
_MOST_TILES = 2**31 - 2**17
"""A grid has fewer than 2³¹; so a tile's number and the next one's are of 32 bits."""
_MOST_BLOCKS = 2**16
_AHEAD = ("cleave.wait", "cleave.trigger")


def loop_over_tiles(func: ir.Operation, grid: Sequence[Size]) -> None:
    """Put what depends on the tile into a loop over the tiles of ``grid``, which block 0 begins at 0.

    Not for blocks that meet: all that do must run at once.
    """
    facts = [*cleave.facts_of(func).texts, f"1 <= {BLOCK_COUNT}", f"{BLOCK_COUNT} <= {_MOST_BLOCKS}"]
    func.attributes["cleave.facts"] = cleave.attribute("strings", facts)
    block: ir.Block = func.regions[0].blocks[0]
    *ops, end = [view.operation for view in block.operations]
    late = [op for op in ops if op.name == "cleave.trigger" and _follows_loop(op, ops)]
    with func.location, ir.InsertionPoint(end):
        _loop([op for op in ops if not _is_outside(op)], grid)
    for trigger in late:
        trigger.move_before(end)


def _is_outside(op: ir.Operation) -> bool:
    """What all tiles share: sizes, and what orders launches."""
    return op.name in ("arith.constant", "cleave.extent", *_AHEAD)


def _follows_loop(trigger: ir.Operation, ops: Sequence[ir.Operation]) -> bool:
    return any(op.name == "scf.for" for op in ops[: ops.index(trigger)])


def _loop(inside: Sequence[ir.Operation], grid: Sequence[Size]) -> None:
    index = ir.IndexType.get()
    axis = {"axis": cleave.attribute("integer", 0)}
    first = ir.Operation.create("cleave.program_id", [index], [], axis)
    total = const(1)
    for extent in grid:
        total = total * extent
    end = _arith("minsi", _constant(_MOST_TILES), _extent(str(total)))
    loop = ir.Operation.create("scf.for", [], [first.results[0], end, _extent(BLOCK_COUNT)], regions=1)
    body = ir.Block.create_at_start(loop.regions[0], [index])
    with ir.InsertionPoint(body):
        places = _places(body.arguments[0], grid)
        for op in inside:
            body.append(op)
            if op.name == "cleave.program_id":
                op.results[0].replace_all_uses_with(places[_axis(op)])
        ir.Operation.create("scf.yield", [], [])
    for op in inside:
        if op.name == "cleave.program_id":
            op.erase()


def _places(tile: ir.Value, grid: Sequence[Size]) -> list[ir.Value]:
    """The tile's place along each axis, the first of which varies fastest."""
    *inner, _ = grid
    found: list[ir.Value] = []
    for extent in inner:
        size = _extent(str(extent))
        found.append(_arith("remui", tile, size))
        tile = _arith("divui", tile, size)
    return [*found, tile]


def _axis(op: ir.Operation) -> int:
    return int(cleave.plain("integer", op.attributes["axis"]))


def _arith(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return ir.Operation.create(f"arith.{name}", [ir.IndexType.get()], [a, b]).results[0]


def _constant(number: int) -> ir.Value:
    index = ir.IndexType.get()
    return ir.Operation.create("arith.constant", [index], [], {"value": ir.IntegerAttr.get(index, number)}).results[0]


def _extent(size: str) -> ir.Value:
    text = ir.StringAttr.get(size)
    return ir.Operation.create("cleave.extent", [ir.IndexType.get()], [], {"size": text}).results[0]
