"""Blocks that go through several tiles: the body of a tile program in a loop over the tiles of its grid.

As many blocks are launched as the GPU runs at once. They take the tiles in rounds, one each, in the order that the grid
has: those computed together are neighbours in it, as where each tile has its own block. In every other round the blocks
go the other way round, the last one first: where tiles become longer or shorter along the grid, as under a causal mask,
whoever had a long one then has a short one.
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
    tiles = _arith("minsi", _constant(_MOST_TILES), _extent(str(total)))
    rounds = _Rounds(first.results[0], tiles)
    loop = ir.Operation.create("scf.for", [], [_constant(0), rounds.end(), rounds.blocks], regions=1)
    body = ir.Block.create_at_start(loop.regions[0], [index])
    with ir.InsertionPoint(body):
        places = _places(rounds.tile(body.arguments[0]), grid)
        for op in inside:
            body.append(op)
            if op.name == "cleave.program_id":
                op.results[0].replace_all_uses_with(places[_axis(op)])
        ir.Operation.create("scf.yield", [], [])
    for op in inside:
        if op.name == "cleave.program_id":
            op.erase()


class _Rounds:
    """Of so many ``tiles``, for one block: which it takes in the round whose first tile is ``start``."""

    def __init__(self, block: ir.Value, tiles: ir.Value) -> None:
        self.block, self.tiles, self.blocks = block, tiles, _extent(BLOCK_COUNT)
        last = _arith("subi", self.blocks, _constant(1))
        self.turned = _arith("subi", last, _arith("minsi", block, last))  # its place in every other round

    def place(self, start: ir.Value) -> ir.Value:
        """How far behind ``start``."""
        odd = _arith("remui", _arith("divui", start, self.blocks), _constant(2))
        even = _arith("subi", _constant(1), odd)
        return _arith("addi", _arith("muli", odd, self.turned), _arith("muli", even, self.block))

    def tile(self, start: ir.Value) -> ir.Value:
        """The remainder is the number itself; it says that there is such a tile."""
        return _arith("remui", _arith("addi", start, self.place(start)), self.tiles)

    def end(self) -> ir.Value:
        """Where the rounds end for this block: the last one has tiles for some blocks only."""
        rest = _arith("remui", self.tiles, self.blocks)
        whole = _arith("subi", self.tiles, rest)
        more = _arith("maxsi", _arith("subi", rest, self.place(whole)), _constant(0))
        return _arith("addi", whole, _arith("minsi", more, _constant(1)))


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
