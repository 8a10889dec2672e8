"""Products of one left operand with two right ones, as one product with both of these side by side.

``wgmma`` reads its left operand once for each product: of two with 128 columns it reads a fifth more than of one with
256, and shared memory is what such loops are next to. So where products of a loop only add up, as the two of SwiGLU do,
their right operands are copied into one buffer, the loop carries one accumulator, and behind it each has its columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from cleave.bindings import ir
from cleave.lowering import encodings, tt
from cleave.lowering.descriptors import LOAD
from cleave.lowering.shared_views import View
from cleave.lowering.ttir_types import ttir_type
from cleave.passes.functions import ops_inside

BESIDE, HALVES = "cleave.beside", "cleave.halves"
"""The ops of TTIR that stand for two loads, whose tiles lie one behind the other along ``axis``, the operands of the
first being so many as ``first`` says; and for the two halves of the columns of a tile."""
_SWIZZLE = 128  # bytes, the widest
_MOST_COLUMNS = 256  # of one wgmma


def sources(load: ir.Operation) -> list[tuple[ir.Value, list[ir.Value]]]:
    """What is loaded: descriptors, and where their blocks begin."""
    operands = list(load.operands)
    first = ir.IntegerAttr(load.attributes["first"]).value if load.name == BESIDE else len(operands)
    return [(each[0], each[1:]) for each in (operands[:first], operands[first:]) if each]


def beside(load: ir.Operation, tile: View) -> list[ir.Value]:
    """Where in a buffer each of its sources goes."""
    if load.name != BESIDE:
        return [tile.buffer]
    axis = ir.IntegerAttr(load.attributes["axis"]).value
    return [tile.part(number, axis, tile.shape[axis] // 2).buffer for number in range(2)]


def join_products(function: ir.Operation, own: Collection[ir.Value]) -> list[ir.Operation]:
    """Join what can be; all loads by descriptors that there are then. ``own``: those of a consumer's part."""
    pending = [op for op in ops_inside(function) if op.name == "scf.for"]
    while pending:
        loop = pending.pop(0)
        pair = next(_pairs(loop, own), None)
        if pair:
            pending.insert(0, _joined(loop, *pair))
    return [op for op in ops_inside(function) if op.name in (LOAD, BESIDE)]


def _pairs(loop: ir.Operation, own: Collection[ir.Value]) -> Iterator[tuple[ir.Operation, ir.Operation]]:
    """Products of a loop that can be one."""
    dots = [view.operation for view in loop.regions[0].blocks[0].operations if view.operation.name == "tt.dot"]
    dots = [dot for dot in dots if _adds_up(loop, dot) and _has_rows_of_copies(dot, own)]
    for number, dot in enumerate(dots):
        for other in dots[number + 1 :]:
            if _agree(dot, other) and _one_start(loop, dot, other):
                yield dot, other


def _adds_up(loop: ir.Operation, dot: ir.Operation) -> bool:
    """Whether all that the loop does with its result is to carry it, for the next iteration to add to."""
    carried = dot.operands[2]
    block: ir.Block = loop.regions[0].blocks[0]
    if carried.owner != block or len(list(carried.uses)) != 1:
        return False
    (use, *others) = dot.results[0].uses
    return not others and use.owner.name == "scf.yield" and use.operand_number == _number(carried, block)


def _number(carried: ir.Value, block: ir.Block) -> int:
    """Which of what a loop carries this is."""
    return list(block.arguments).index(carried) - 1


def _has_rows_of_copies(dot: ir.Operation, own: Collection[ir.Value]) -> bool:
    """Whether its right operand was loaded in its loop for it alone, and two such lie in memory as one would: copies
    write columns of ``_SWIZZLE`` bytes, each of all rows."""
    right = dot.operands[1]
    tile = _tile(right)
    load = tile.owner
    if isinstance(load, ir.Block) or load.name != LOAD or load.operation.block != dot.block or tile in own:
        return False
    width = tt.shape_of(tile)[-1] * ttir_type(tile).bits // 8
    fits = width in (32, 64, _SWIZZLE) if _is_turned(right) else width % _SWIZZLE == 0
    return fits and all(len(list(value.uses)) == 1 for value in (tile, right))


def _is_turned(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "tt.trans"


def _tile(right: ir.Value) -> ir.Value:
    """What was loaded."""
    return right.owner.operation.operands[0] if _is_turned(right) else right


def _agree(one: ir.Operation, other: ir.Operation) -> bool:
    """Whether two products have the left operand in common, and operands alike."""
    types, turned = zip(*((_types(dot), _is_turned(dot.operands[1])) for dot in (one, other)), strict=True)
    few = 2 * tt.shape_of(one.results[0])[1] <= _MOST_COLUMNS
    return one.operands[0] == other.operands[0] and types[0] == types[1] and turned[0] == turned[1] and few


def _types(op: ir.Operation) -> list[ir.Type]:
    return [operand.type for operand in op.operands]


def _one_start(loop: ir.Operation, one: ir.Operation, other: ir.Operation) -> bool:
    """Whether what they begin with is zeros, or the halves of one tile."""
    block: ir.Block = loop.regions[0].blocks[0]
    starts = [loop.operands[3 + _number(dot.operands[2], block)] for dot in (one, other)]
    return all(map(tt.is_zero, starts)) or _halved(*starts) is not None


def _halved(one: ir.Value, other: ir.Value) -> ir.Value | None:
    """The tile of which these are the halves."""
    owner = one.owner
    if isinstance(owner, ir.Block) or owner.name != HALVES or list(owner.operation.results) != [one, other]:
        return None
    return owner.operation.operands[0]


# --- joining ----------------------------------------------------------------------------------------------------------


def _joined(loop: ir.Operation, one: ir.Operation, other: ir.Operation) -> ir.Operation:
    """The loop with one product in place of two."""
    block: ir.Block = loop.regions[0].blocks[0]
    numbers = [_number(dot.operands[2], block) for dot in (one, other)]
    starts = [loop.operands[3 + number] for number in numbers]
    rows, columns = tt.shape_of(one.results[0])
    whole = _halved(*starts)
    with loop.location, ir.InsertionPoint(loop):
        start = whole or tt.constant(0.0, tt.element_of(starts[0]), (rows, 2 * columns))
    kept = [number for number in range(len(loop.results)) if number not in numbers]
    with one.location, ir.InsertionPoint(other):
        right = _right(one, other)
    created, body = _with_carried(loop, [loop.operands[3 + number] for number in kept] + [start])
    arguments, carried = list(block.arguments), body.arguments[-1]
    for view in list(block.operations):
        body.append(view.operation)
    for old, new in zip([arguments[0], *(arguments[1 + number] for number in kept)], body.arguments, strict=False):
        old.replace_all_uses_with(new)
    with one.location, ir.InsertionPoint(other):
        product = tt.dot(one.operands[0], right, carried, None)
    end = list(body.operations)[-1].operation
    with end.location, ir.InsertionPoint(end):
        tt.create("scf.yield", [], [*(end.operands[number] for number in kept), product])
    end.erase()
    _replace_results(loop, created, kept, numbers)
    for dot in (one, other):
        _erase(dot)
    loop.erase()
    if whole and not any(list(start.uses) for start in starts):
        starts[0].owner.operation.erase()
    return created


def _right(one: ir.Operation, other: ir.Operation) -> ir.Value:
    """Both right operands as one."""
    turned = _is_turned(one.operands[1])
    loads = [_tile(dot.operands[1]).owner.operation for dot in (one, other)]
    shape = tt.shape_of(loads[0].results[0])
    axis = 0 if turned else 1
    wide = tuple(2 * extent if place == axis else extent for place, extent in enumerate(shape))
    operands = [operand for load in loads for operand in load.operands]
    attributes = {"axis": tt.i32_attr(axis), "first": tt.i32_attr(len(list(loads[0].operands)))}
    type_ = tt.tensor(wide, tt.element_of(loads[0].results[0]))
    tile = tt.create(BESIDE, [type_], operands, attributes).results[0]
    return tt.trans(tile, [1, 0]) if turned else tile


def _with_carried(loop: ir.Operation, starts: Sequence[ir.Value]) -> tuple[ir.Operation, ir.Block]:
    """An empty loop in front of this one, which carries others."""
    types = [start.type for start in starts]
    attributes = {name: loop.attributes[name] for name in loop.attributes}
    with loop.location, ir.InsertionPoint(loop):
        created = tt.create("scf.for", types, [*list(loop.operands)[:3], *starts], attributes, regions=1)
        return created, ir.Block.create_at_start(created.regions[0], [loop.operands[0].type, *types])


def _replace_results(loop: ir.Operation, created: ir.Operation, kept: Sequence[int], numbers: Sequence[int]) -> None:
    for number, result in zip(kept, created.results, strict=False):
        loop.results[number].replace_all_uses_with(result)
    olds = [loop.results[number] for number in numbers]
    with loop.location, ir.InsertionPoint(loop):
        halves = tt.create(HALVES, [old.type for old in olds], [created.results[len(kept)]])
    for old, new in zip(olds, halves.results, strict=True):
        old.replace_all_uses_with(new)


def _erase(dot: ir.Operation) -> None:
    """With what was loaded for it alone."""
    right = dot.operands[1]
    used = dict.fromkeys((dot, right.owner.operation, _tile(right).owner.operation))
    for op in used:
        op.erase()


# --- in registers -----------------------------------------------------------------------------------------------------


def halves(tile: ir.Value) -> list[ir.Value]:
    """The halves of an accumulator's columns, each as an accumulator has it: a thread has both already."""
    rows, columns = tt.shape_of(tile)
    half = columns // 2
    wide = encodings.accumulator_bits((rows, columns))
    apart = wide.mapped(lambda row, column: (row, column // half, column % half))
    last = wide.mapped(lambda row, column: (row, column % half, column // half))
    element = tt.element_of(tile)
    stacked = tt.value("tt.reshape", encodings.tensor((rows, 2, half), element, apart), tile)
    order = ir.DenseI32ArrayAttr.get([0, 2, 1])
    turned = tt.value("tt.trans", encodings.tensor((rows, half, 2), element, last), stacked, order=order)
    narrow = encodings.tensor((rows, half), element, encodings.accumulator_bits((rows, half)))
    parts = tt.create("tt.split", [narrow, narrow], [turned]).results
    type_ = encodings.tensor((rows, half), element, encodings.accumulator(half))
    return [tt.value("ttg.convert_layout", type_, part) for part in parts]
