"""Blocks that go through several tiles: the body of a tile program in a loop over the tiles of its grid.

As many blocks are launched as the GPU runs at once. They take the tiles in rounds, one each, in the order that the grid
has: those computed together are neighbours in it, as where each tile has its own block. In every other round the blocks
go the other way round, the last one first: where tiles become longer or shorter along the grid, as under a causal mask,
whoever had a long one then has a short one.

Where a block can keep what two tiles have in common (``kept_between_tiles``), rounds are such that this happens: a grid
goes through bands of 4 to 32 rows of tiles (``schedule/traffic.py``); if these divide the number of blocks, and all
rounds go the same way round, a block stays in its row. Some blocks then have no tiles; not where that would take one
round more.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Size, const
from cleave.lowering.index_ops import arith, constant, extent
from cleave.lowering.kept_between_tiles import kept_between_tiles
from cleave.schedule.traffic import GROUPS

BLOCK_COUNT = "tile__blocks"
"""The symbol whose value is the number of blocks."""
_MOST_TILES = 2**31 - 2**17
"""A grid has fewer than 2³¹; so a tile's number and the next one's are of 32 bits."""
_MOST_BLOCKS = 2**16
_BAND = GROUPS[-1]
"""What all heights of bands divide."""
_AHEAD = ("cleave.wait", "cleave.trigger")


def loop_over_tiles(func: ir.Operation, grid: Sequence[Size], *, keep: bool = True) -> None:
    """Put what depends on the tile into a loop over the tiles of ``grid``, which block 0 begins at 0.

    ``keep``: what two tiles of a block have in common is kept from one to the other.

    Not for blocks that meet: all that do must run at once.
    """
    facts = [*cleave.facts_of(func).texts, f"1 <= {BLOCK_COUNT}", f"{BLOCK_COUNT} <= {_MOST_BLOCKS}"]
    func.attributes["cleave.facts"] = cleave.attribute("strings", facts)
    block: ir.Block = func.regions[0].blocks[0]
    *ops, end = [view.operation for view in block.operations]
    late = [op for op in ops if op.name == "cleave.trigger" and _follows_loop(op, ops)]
    with func.location, ir.InsertionPoint(end):
        _loop([op for op in ops if not _is_outside(op)], grid, keep)
    for trigger in late:
        trigger.move_before(end)


def _is_outside(op: ir.Operation) -> bool:
    """What all tiles share: sizes, and what orders launches."""
    return op.name in ("arith.constant", "cleave.extent", *_AHEAD)


def _follows_loop(trigger: ir.Operation, ops: Sequence[ir.Operation]) -> bool:
    return any(op.name == "scf.for" for op in ops[: ops.index(trigger)])


def _loop(inside: Sequence[ir.Operation], grid: Sequence[Size], keep: bool) -> None:
    kept = kept_between_tiles(inside, grid) if keep else []
    index = ir.IndexType.get()
    axis = {"axis": cleave.attribute("integer", 0)}
    first = ir.Operation.create("cleave.program_id", [index], [], axis)
    total = const(1)
    for count in grid:
        total = total * count
    tiles = arith("minsi", constant(_MOST_TILES), extent(str(total)))
    rounds = (_RoundsInBands if kept else _Rounds)(first.results[0], tiles)
    starts = [start for each in kept for start in each.starts()]
    types = [start.type for start in starts]
    loop = ir.Operation.create("scf.for", types, [constant(0), rounds.count(), constant(1), *starts], regions=1)
    body = ir.Block.create_at_start(loop.regions[0], [index, *types])
    number, *before = body.arguments
    with ir.InsertionPoint(body):
        places = _places(rounds.tile(number), grid)
        number_of: dict[ir.Value, ir.Value] = {}
        for op in inside:
            body.append(op)
            if op.name == "cleave.program_id":
                number_of[op.results[0]] = places[_axis(op)]
                op.results[0].replace_all_uses_with(places[_axis(op)])
        after: list[ir.Value] = []
        for each in kept:
            after += each.split(before[len(after) :], number_of)
        ir.Operation.create("scf.yield", [], after)
        for program_id in number_of:
            program_id.owner.operation.erase()


class _Rounds:
    """Of so many ``tiles``, for one block: which it takes in each round.

    Consumers wait for these numbers at each tile: they are of 32 bits, of which divisions take less.
    """

    def __init__(self, block: ir.Value, tiles: ir.Value) -> None:
        self.block, self.tiles, self.blocks = block, tiles, extent(BLOCK_COUNT)
        last = arith("subi", self.blocks, constant(1))
        self.turned = _less(last, arith("minsi", block, last))  # its place in every other round

    def place(self, number: ir.Value) -> ir.Value:
        """Among the tiles of a round."""
        odd = arith("remui", number, constant(2))
        even = arith("subi", constant(1), odd)
        return arith("addi", arith("muli", odd, self.turned), arith("muli", even, self.block))

    def tile(self, number: ir.Value) -> ir.Value:
        """The remainder is the number itself; it says that there is such a tile, and the minimum that it is small."""
        tile = arith("addi", arith("muli", number, self.blocks), self.place(number))
        return arith("remui", arith("minsi", tile, constant(_MOST_TILES)), self.tiles)

    def count(self) -> ir.Value:
        """How many rounds have a tile for this block: the last one has for some only."""
        whole = arith("divui", self.tiles, self.blocks)
        rest = arith("remui", self.tiles, self.blocks)
        return arith("addi", whole, arith("minsi", _less(rest, self.place(whole)), constant(1)))


class _RoundsInBands(_Rounds):
    """All the same way round, of as many blocks as bands divide, if there are not more rounds because of it
    (``schedule/traffic.py``, ``blocks_in_bands``)."""

    def __init__(self, block: ir.Value, tiles: ir.Value) -> None:
        self.block, self.tiles = block, tiles
        every = extent(BLOCK_COUNT)
        left_out = arith("remui", every, constant(_BAND))
        fewer = arith("maxsi", arith("subi", every, left_out), constant(1))
        more_rounds = _less(self._rounds(fewer), self._rounds(every))
        self.blocks = arith("addi", fewer, arith("muli", _less(every, fewer), arith("minsi", more_rounds, constant(1))))

    def _rounds(self, blocks: ir.Value) -> ir.Value:
        return arith("divui", arith("addi", self.tiles, arith("subi", blocks, constant(1))), blocks)

    def place(self, number: ir.Value) -> ir.Value:
        return self.block

    def count(self) -> ir.Value:
        """None for blocks that have no tiles."""
        return arith("muli", super().count(), arith("minsi", _less(self.blocks, self.block), constant(1)))


def _less(a: ir.Value, b: ir.Value) -> ir.Value:
    """a − b where that is more than 0, else 0."""
    return arith("maxsi", arith("subi", a, b), constant(0))


def _places(tile: ir.Value, grid: Sequence[Size]) -> list[ir.Value]:
    """The tile's place along each axis, the first of which varies fastest."""
    *inner, _ = grid
    found: list[ir.Value] = []
    for count in inner:
        size = extent(str(count))
        found.append(arith("remui", tile, size))
        tile = arith("divui", tile, size)
    return [*found, tile]


def _axis(op: ir.Operation) -> int:
    return int(cleave.plain("integer", op.attributes["axis"]))
