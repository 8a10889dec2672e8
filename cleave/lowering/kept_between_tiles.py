"""What a block keeps from one tile to the next: what loops add up that both tiles need, as a row's sum of squares.

Of ``(x / norm(x)) @ w`` tiles beside one another have their rows in common, and each would add up the same squares
beneath its products. Where the rows are those of the tile before, the loop adds up the products alone; so it is two
loops, one of which has no iterations:

    changed = whether the rows are others than those of the tile before, 1 or 0
    for k = 0 … K·changed:        c += x·w, s += x²
    for _ = 0 … changed:          norm = √s               carried from tile to tile
    for k = 0 … K·(1 − changed):  c += x·w                goes on with c

Which values these are follows from the places of the tile: ``norm`` depends on its first row alone, what is stored
on its first column, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Size
from cleave.dialects.tensor_type import is_float
from cleave.lowering.index_ops import arith, constant, evaluate, evaluate_size
from cleave.lowering.register_layouts import is_tile
from cleave.passes.effects import is_pure
from cleave.passes.functions import ops_inside
from cleave.schedule.traffic import GROUPS

BLOCKS, LARGE = 4 * GROUPS[-1], 2**14
"""As many blocks as a Hopper GPU has multiprocessors for, of those that all bands divide; extents of large tensors."""
MOST_KEPT = 16
"""Registers of a thread for what is kept of one loop."""
_THREADS, _OF_A_ROW, _OF_A_COLUMN = 128, 4, 32
"""Of a warpgroup, and those of them that each have the number of a product's row, or of its column."""
_NOWHERE = -(2**62)
"""A place that no tile has."""

_LOADS = ("cleave.load", "cleave.gather_load")

Places = frozenset[ir.Value]
"""Numbers that follow from which tile it is, as its first row."""


def kept_between_tiles(body: Sequence[ir.Operation], grid: Sequence[Size]) -> list[Kept]:
    """What can be kept, of the ops of a tile in order, where a block's next tile is ``BLOCKS`` further in the grid."""
    ops = [op for each in body for op in (each, *ops_inside(each))]
    stores = [op for op in ops if op.name == "cleave.store"]
    where = [value for op in stores for value in op.operands]
    every = _Dependence(body)
    places = every.of_all(where)
    depends = _Dependence(body, {place for place in places if every.sources[place] and every.sources[place] <= places})
    loops = (_Loop(op, depends) for op in body if op.name == "scf.for" and op.results)
    readers = (loop for loop in loops if loop.only_reads([op.operands[1] for op in stores]))
    stays = frozenset(place for place in depends.of_all(where) if _stays(place, grid))
    products = (_names(op.results[0]) for op in ops if op.name == "cleave.contract")
    columns = {names[-1] for names in products if names}
    found, replaced = list[Kept](), set[ir.Operation]()
    for loop in readers if stays < depends.of_all(where) else ():
        behind = list(body)[list(body).index(loop.op) + 1 :]
        kept = _kept(loop, [op for op in behind if op not in replaced], depends, stays)
        if kept and _registers(kept.made.values, columns) <= MOST_KEPT:
            found.append(kept)
            replaced |= kept.made.following
    return found


def _stays(place: ir.Value, grid: Sequence[Size]) -> bool:
    """Whether a place is the same for the first tile of a large tensor and the one ``BLOCKS`` behind it."""
    found: list[int | None] = []
    for tile in (0, BLOCKS):
        ids: list[int] = []
        for extent in grid:
            count = evaluate_size(extent, LARGE)
            ids.append(tile % count)
            tile //= count
        found.append(evaluate(place, ids, LARGE))
    return found[0] == found[1] is not None


class _Dependence:
    """From which places of a tile its values follow: numbers that are made outside of loops are places themselves, but
    for those that are ``derived`` from others. ``sources``: of each number what it follows from."""

    def __init__(self, body: Sequence[ir.Operation], derived: Collection[ir.Value] = ()) -> None:
        self.places: dict[ir.Value, Places] = {}
        self.sources: dict[ir.Value, Places] = {}
        for op in body:
            if op.name == "scf.for":
                loop = _Loop(op, self)
                self.places.update((result, loop.places(number)) for number, result in enumerate(op.results))
                continue
            found = self.of_all([*op.operands, *(value for inner in ops_inside(op) for value in inner.operands)])
            for result in op.results:
                number = isinstance(result.type, ir.IndexType) and result not in derived
                is_place = op.name == "cleave.program_id" or (number and found)
                self.places[result] = frozenset([result]) if is_place else found
                self.sources[result] = found

    def of_all(self, values: Iterable[ir.Value]) -> Places:
        """Nothing of what is made elsewhere: arguments, sizes, constants."""
        return frozenset().union(*(self.places.get(value, ()) for value in values))


class _Loop:
    """A loop of the tile: which of its ops what it carries needs."""

    def __init__(self, op: ir.Operation, depends: _Dependence) -> None:
        self.op, self.depends = op, depends
        self.block: ir.Block = op.regions[0].blocks[0]
        *inside, end = [view.operation for view in self.block.operations]
        self.ops, self.yielded = inside, list(end.operands)
        self.arguments = list(self.block.arguments)[1:]
        self.numbers = range(len(self.arguments))
        self.needs = [self._needs(number) for number in self.numbers]

    def _needs(self, number: int) -> tuple[list[ir.Operation], set[int]]:
        """The ops from which a carried value follows, and what else of what is carried."""
        found, carried = set[ir.Operation](), {number}
        pending = [self.yielded[number]]
        while pending:
            value = pending.pop()
            if value in self.arguments:
                other = self.arguments.index(value)
                if other not in carried:
                    carried.add(other)
                    pending.append(self.yielded[other])
            elif (made := _owner(value)) is not None and made.block == self.block and made not in found:
                found.add(made)
                pending += [*made.operands, *(operand for inner in ops_inside(made) for operand in inner.operands)]
        return [op for op in self.ops if op in found], carried

    def places(self, number: int) -> Places:
        """Those that the result follows from."""
        made, carried = self.needs[number]
        inner = [*made, *(each for op in made for each in ops_inside(op))]
        starts = [self.op.operands[3 + each] for each in carried]
        return self.depends.of_all([*list(self.op.operands)[:3], *starts, *(v for op in inner for v in op.operands)])

    def only_reads(self, written: Collection[ir.Value]) -> bool:
        """Whether it does nothing but to make what it carries, of what is not written meanwhile."""
        inner = [each for op in self.ops for each in (op, *ops_inside(op))]
        accesses = [op for op in inner if not is_pure(op) and not op.name.startswith("scf.")]
        return all(op.name in _LOADS and op.operands[0] not in written for op in accesses)


@dataclass(frozen=True)
class Kept:
    """What is ``made`` of what the loop adds up is the same for tiles of the same ``places``; the ``rest`` of what it
    carries is not, and is what is ``needed`` for."""

    loop: ir.Operation
    places: Sequence[ir.Value]
    made: _Made
    rest: Sequence[int]
    needed: Sequence[ir.Operation]

    def starts(self) -> list[ir.Value]:
        """For the first tile: no place, and zeros, which nothing uses."""
        return [*(constant(_NOWHERE) for _ in self.places), *(_zero(value.type) for value in self.made.values)]

    def split(self, before: Sequence[ir.Value], renamed: Mapping[ir.Value, ir.Value]) -> list[ir.Value]:
        """Make the loop three. ``before`` begins with what the tile before kept; given back is what this one does.

        ``renamed``: places that are others since this was found.
        """
        places = [renamed.get(place, place) for place in self.places]
        values = before[len(places) : len(places) + len(self.made.values)]
        low, high, step, *_ = self.loop.operands
        with self.loop.location, ir.InsertionPoint(self.loop):
            changed = _changed(before, places)
            extent = arith("subi", high, low)
            end = arith("addi", low, arith("muli", extent, changed))
            other = arith("addi", low, arith("muli", extent, arith("subi", constant(1), changed)))
        self.loop.operands[1] = end
        with self.loop.location, ir.InsertionPoint.after(self.loop):
            keeping = self._keep(changed, values)
        with self.loop.location, ir.InsertionPoint.after(keeping):
            if self.rest:
                self._go_on(low, other, step)
        return [*places, *keeping.results]

    def _keep(self, changed: ir.Value, before: Sequence[ir.Value]) -> ir.Operation:
        loop, block = _new_loop([constant(0), changed, constant(1)], before)
        with ir.InsertionPoint(block):
            new = _copied(self.made.ops, {})
            ir.Operation.create("scf.yield", [], [new.get(value, value) for value in self.made.values])
        for value, result in zip(self.made.values, loop.results, strict=True):
            _replace(value, result, {*ops_inside(loop), *self.made.ops})
        for op in reversed(self.made.ops):
            if not any(list(result.uses) for result in op.results):
                op.erase()
        return loop

    def _go_on(self, low: ir.Value, high: ir.Value, step: ir.Value) -> None:
        block: ir.Block = self.loop.regions[0].blocks[0]
        index, *arguments = block.arguments
        yielded = list(list(block.operations)[-1].operation.operands)
        starts = [self.loop.results[number] for number in self.rest]
        loop, inside = _new_loop([low, high, step], starts)
        for name in self.loop.attributes:
            loop.attributes[name] = self.loop.attributes[name]
        given = zip([index, *(arguments[number] for number in self.rest)], inside.arguments, strict=True)
        values: dict[ir.Value, ir.Value] = {**dict(given)}
        with ir.InsertionPoint(inside):
            new = _copied(self.needed, values)
            ir.Operation.create("scf.yield", [], [new.get(yielded[number], yielded[number]) for number in self.rest])
        for start, result in zip(starts, loop.results, strict=True):
            _replace(start, result, {loop})


def _kept(loop: _Loop, behind: Sequence[ir.Operation], depends: _Dependence, stays: Places) -> Kept | None:
    """None where nothing of the loop is made of what ``stays`` alone, or of it what has no zeros.

    ``behind``: the ops behind the loop, without those of whose results what an earlier loop keeps takes the place.
    """
    shared = {number for number in loop.numbers if loop.places(number) <= stays}
    shared -= {each for number in loop.numbers if number not in shared for each in loop.needs[number][1]}
    rest = [number for number in loop.numbers if number not in shared]
    needed = [op for op in loop.ops if any(op in loop.needs[number][0] for number in rest)]
    results = [loop.op.results[number] for number in sorted(shared)]
    places = depends.of_all(results)
    if not places or all(op in needed for number in shared for op in loop.needs[number][0]):
        return None
    made = _made_of(results, behind, depends, places)
    if not made.values or not all(is_float(cleave.decode(value.type)[0].dtype) for value in made.values):
        return None
    return Kept(loop.op, [value for value in depends.places if value in places], made, rest, needed)


@dataclass(frozen=True)
class _Made:
    """``ops`` make of what a loop adds up ``values``, which others need; ``following``: those of them that need it."""

    ops: Sequence[ir.Operation]
    values: Sequence[ir.Value]
    following: frozenset[ir.Operation]


def _made_of(
    results: Sequence[ir.Value], behind: Sequence[ir.Operation], depends: _Dependence, places: Places
) -> _Made:
    """The tiles that follow from these results, among the ops ``behind`` their loop, and from the same places."""
    ready, late = set(results), {result for op in behind for result in op.results}
    movable: list[ir.Operation] = []
    for op in behind:
        if _is_movable(op) and depends.of_all(op.results) <= places and ready.issuperset(late & set(op.operands)):
            movable.append(op)
            ready |= set(op.results)
    following, wanted = set(results), set[ir.Operation]()
    for op in movable:
        if not following.isdisjoint(op.operands):
            following |= set(op.results)
            wanted.add(op)
    users = frozenset(wanted)
    for op in reversed(movable):
        if any(use.owner.operation in wanted for result in op.results for use in result.uses):
            wanted.add(op)
    made = [op for op in movable if op in wanted]
    values = [*results, *(result for op in made for result in op.results if result in following)]
    needed = [value for value in values if any(use.owner.operation not in wanted for use in value.uses)]
    return _Made(made, needed, users)


def _is_movable(op: ir.Operation) -> bool:
    """Whether it makes a tile of tiles alone."""
    made = op.name.startswith("cleave.") and is_pure(op) and bool(op.results)
    return made and all(is_tile(value) for value in (*op.operands, *op.results))


def _registers(values: Iterable[ir.Value], columns: Set[str]) -> int:
    """Of a thread, which has two rows of 64 and a fourth of a product's columns."""
    found = 0
    for value in values:
        wide = {name: extent for name, extent in zip(_names(value), _extents(value), strict=True) if extent > 1}
        has_columns, has_rows = not columns.isdisjoint(wide), not columns >= wide.keys()
        shared = _THREADS if has_columns and has_rows else _THREADS // (_OF_A_COLUMN if has_columns else _OF_A_ROW)
        found += -(-math.prod(wide.values()) // shared)
    return found


def _names(tile: ir.Value) -> tuple[str, ...]:
    return cleave.decode(tile.type)[0].names


def _extents(tile: ir.Value) -> list[int]:
    """Of a tile, all are known."""
    return [extent or 1 for extent in cleave.decode(tile.type)[1]]


# --- building ---------------------------------------------------------------------------------------------------------


def _changed(before: Sequence[ir.Value], places: Sequence[ir.Value]) -> ir.Value:
    """1 where any place is another one than before, else 0."""
    apart = constant(0)
    for old, new in zip(before, places, strict=False):
        apart = arith("maxsi", apart, arith("maxsi", arith("subi", new, old), arith("subi", old, new)))
    return arith("minsi", apart, constant(1))


def _copied(ops_: Sequence[ir.Operation], values: dict[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
    """Copy ops to the insertion point; ``values``, and what comes back: what stands for their values there."""
    for op in ops_:
        copy = op.clone()
        for each in (copy, *ops_inside(copy)):
            for number, operand in enumerate(each.operands):
                if operand in values:
                    each.operands[number] = values[operand]
        values.update(zip(op.results, copy.results, strict=True))
    return values


def _new_loop(bounds: Sequence[ir.Value], starts: Sequence[ir.Value]) -> tuple[ir.Operation, ir.Block]:
    types = [start.type for start in starts]
    loop = ir.Operation.create("scf.for", types, [*bounds, *starts], regions=1)
    return loop, ir.Block.create_at_start(loop.regions[0], [ir.IndexType.get(), *types])


def _replace(value: ir.Value, new: ir.Value, kept: Collection[ir.Operation]) -> None:
    """Use ``new`` in its place, but not in the ops ``kept``."""
    for use in [use for use in value.uses if use.owner.operation not in kept]:
        use.owner.operation.operands[use.operand_number] = new


def _owner(value: ir.Value) -> ir.Operation | None:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def _zero(type_: ir.Type) -> ir.Value:
    value = cleave.number_attribute(0, cleave.decode(type_)[0].dtype)
    return ir.Operation.create("cleave.constant", [type_], [], {"value": value}).results[0]
