"""A scheduled kernel as TTIR: one rule for each op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cleave.bindings import ir
from cleave.dialects import cleave, ops
from cleave.dialects.dims import parse
from cleave.dialects.tensor_type import is_float
from cleave.errors import CleaveError
from cleave.lowering import contract, exchange, pointwise, tt
from cleave.lowering.access import Access
from cleave.lowering.kernel_builder import (
    COPIES,
    Bound,
    KernelBuilder,
    Pending,
    Rule,
    Surroundings,
    number_attribute,
)
from cleave.lowering.scalars import UNKNOWN, Scalar, fits
from cleave.lowering.tiles import Layout, Tile, aligned, full_width, layout_of
from cleave.runtime.ttir_assembly import GROUP_BARRIER, TRIGGER, WAIT


def lower_kernel(func: ir.Operation, around: Surroundings) -> ir.Operation:
    """Build, at the current insertion point, the module with the TTIR of the kernel ``func``.

    CleaveError at the op that cannot be lowered.
    """
    return KernelBuilder(func, around, RULES).build()


def _pointwise(kernel: KernelBuilder, op: ir.Operation) -> None:
    name = op.name.removeprefix("cleave.")
    layout = kernel.layout(op.results[0].type)
    if name == "add" and _accumulate(kernel, op, layout):
        return
    operands = [kernel.tile(operand) for operand in op.operands]
    kernel.bind(op, pointwise.pointwise(op, name, operands, layout, kernel.tile))


def _cast(kernel: KernelBuilder, op: ir.Operation) -> None:
    kernel.bind(op, pointwise.cast(kernel.tile(op.operands[0]), kernel.layout(op.results[0].type)))


def _constant(kernel: KernelBuilder, op: ir.Operation) -> None:
    layout = kernel.layout(op.results[0].type)
    number = cleave.plain("number", op.attributes["value"])
    small = layout.dtype in ("i32", "i64", "index") and fits(int(number), int(number))
    element = "i32" if small else layout.element
    bounds = (int(number), int(number)) if small else None
    if is_float(layout.dtype) and layout.element.startswith("f8"):
        value = tt.cast(tt.constant(number, tt.scalar("f32"), layout.shape), layout.element)
    else:
        value = tt.constant(number, tt.scalar(element), layout.shape)
    kernel.bind(op, Tile(value, layout.names, layout.shape, layout.dtype, bounds))


def _index(kernel: KernelBuilder, op: ir.Operation) -> None:
    layout = layout_of(op.results[0].type)
    place = kernel.packing.place(layout.names[0], layout.shape[0])
    line = Tile(kernel.memory.range(place), (place.axis,), (place.extent,), "i64", (0, place.size - 1))
    kernel.bind(op, pointwise.cast(line, kernel.layout(op.results[0].type)))


def _splat(kernel: KernelBuilder, op: ir.Operation) -> None:
    x = kernel.scalar(op.operands[0])
    bounds = (x.low, x.high) if x.narrow else None
    kernel.bind(op, Tile(x.value, (), (), "i64", bounds))


def _scalar(kernel: KernelBuilder, op: ir.Operation) -> None:
    x = kernel.tile(op.operands[0])
    half = 2 ** (31 if x.element == "i32" else 63)
    low, high = x.bounds or (-half, half - 1)
    kernel.bind(op, Scalar(x.value, low, high))


def _program_id(kernel: KernelBuilder, op: ir.Operation) -> None:
    axis = int(cleave.plain("integer", op.attributes["axis"]))
    if not 0 <= axis <= 2:
        raise CleaveError(f"the grid has axes 0 to 2, not {axis}")
    value = tt.value("tt.get_program_id", tt.scalar("i32"), axis=tt.i32_attr(axis))
    limit = kernel.around.grid[axis] if axis < len(kernel.around.grid) else None
    highest = (2**31 - 1 if axis == 0 else 65535) - 1
    if limit is not None:
        highest = max(0, min(highest, kernel.scalars.bounds(limit)[1] - 1))
    kernel.bind(op, Scalar(value, 0, highest, None, limit))


def _extent(kernel: KernelBuilder, op: ir.Operation) -> None:
    kernel.bind(op, kernel.scalars.of_size(parse(str(cleave.plain("string", op.attributes["size"])))))


def _index_constant(kernel: KernelBuilder, op: ir.Operation) -> None:
    kernel.bind(op, kernel.scalars.constant(ir.IntegerAttr(op.attributes["value"]).value))


def _index_arithmetic(kernel: KernelBuilder, op: ir.Operation) -> None:
    a, b = (kernel.scalar(operand) for operand in op.operands)
    kernel.bind(op, kernel.scalars.arith(op.name.removeprefix("arith."), a, b))


def _index_comparison(kernel: KernelBuilder, op: ir.Operation) -> None:
    """Indices are not negative: signed or not is the same."""
    a, b = (kernel.scalar(operand) for operand in op.operands)
    predicate = _PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
    x, y = (a.value, b.value) if a.narrow and b.narrow else map(kernel.scalars.widened, (a, b))
    kernel.bind(op, Tile(tt.compare(predicate, x, y), (), (), "i1"))


def _if(kernel: KernelBuilder, op: ir.Operation) -> None:
    if len(op.results):
        raise CleaveError("branches with results do not occur in kernels")
    branches = tt.create("scf.if", [], [kernel.tile(op.operands[0]).value], regions=2)
    for source, target in zip(op.regions, branches.regions, strict=True):
        for block in source.blocks:
            with ir.InsertionPoint(ir.Block.create_at_start(target, [])):
                kernel.block(block)


def _access(kernel: KernelBuilder, op: ir.Operation, memory: ir.Value) -> Access:
    view: Any = op.opview
    in_bounds: frozenset[str] = frozenset(cleave.plain_attrs(op, ops.OPS[view.spec.name]).get("in_bounds", ()))
    offsets = [kernel.scalar(value) for value in view.offsets]
    bounds = [kernel.scalar(value) for value in view.bounds]
    dims = cleave.plain("strings", op.attributes["dims"]) if "dims" in op.attributes else ()
    tiles = [kernel.tile(value) for value in view.indices] if dims else []
    return Access(kernel.memory_ref(memory), offsets, bounds, in_bounds, dict(zip(dims, tiles, strict=True)))


def _load(kernel: KernelBuilder, op: ir.Operation) -> None:
    fill = cleave.plain("number", op.attributes["fill"])
    access, layout = _access(kernel, op, op.operands[0]), kernel.layout(op.results[0].type)
    multiplied = any(use.owner.name == "cleave.contract" for use in op.results[0].uses)
    to_copy = COPIES in kernel.func.attributes and multiplied and len(layout.names) == 2
    if not exchange.is_parted(op):
        kernel.bind(op, kernel.memory.load(access, layout, fill, to_copy=to_copy))
        return
    whole = kernel.memory.load(access, exchange.whole_layout(op, layout), fill, to_copy=to_copy)
    kernel.bind(op, exchange.part_of_load(op, whole, layout))


def _store(kernel: KernelBuilder, op: ir.Operation) -> None:
    kernel.memory.store(_access(kernel, op, op.operands[1]), kernel.tile(op.operands[0]))


def _trigger(kernel: KernelBuilder, op: ir.Operation) -> None:
    tt.assembly(TRIGGER)


def _wait(kernel: KernelBuilder, op: ir.Operation) -> None:
    tt.assembly(WAIT)


def _group_barrier(kernel: KernelBuilder, op: ir.Operation) -> None:
    if COPIES in kernel.func.attributes:  # a producer has no part in what follows
        kernel.memory.descriptors = None
    counters, group, count = kernel.memory_ref(op.operands[0]), kernel.scalar(op.operands[1]), op.operands[2]
    counter = tt.addptr(counters.pointer, kernel.scalars.widened(group))
    members = kernel.scalars.arith("minui", kernel.scalar(count), kernel.scalars.constant(2**30))
    tt.assembly(GROUP_BARRIER, counter, kernel.scalars.narrowed_value(members))


def _reduce(kernel: KernelBuilder, op: ir.Operation) -> None:
    kind, over = cleave.plain("string", op.attributes["kind"]), cleave.plain("strings", op.attributes["over"])
    layout = kernel.layout(op.results[0].type)
    across = exchange.is_combined(op)
    kernel.bind(op, contract.reduction(kernel.tile(op.operands[0]), kind, over, layout, across=across))


def _contract(kernel: KernelBuilder, op: ir.Operation) -> None:
    a, b = (kernel.tile(operand) for operand in op.operands)
    a, b = exchange.gathered(op, a, b)
    over = cleave.plain("strings", op.attributes["over"])
    if _accumulated_later(kernel, op, a, b, over):
        kernel.bind(op, Pending(a, b, over))
    else:
        kernel.bind(op, contract.contraction(a, b, over, kernel.layout(op.results[0].type)))


def _accumulated_later(kernel: KernelBuilder, op: ir.Operation, a: Tile, b: Tile, over: Sequence[str]) -> bool:
    """Whether the contraction is only added to something, in its own block, so that ``tt.dot`` can do the addition."""
    uses = list(op.results[0].uses)
    if len(uses) != 1:
        return False
    add = uses[0].owner.operation
    if add.name != "cleave.add" or add.block != op.block or add.operands[0] == add.operands[1]:
        return False
    other = add.operands[1 - uses[0].operand_number]
    if isinstance(kernel.values.get(other), Pending):
        return False
    layout = kernel.layout(add.results[0].type)
    same_type = layout.dtype == kernel.layout(op.results[0].type).dtype
    return same_type and contract.accumulates(a, b, over, layout)


def _accumulate(kernel: KernelBuilder, op: ir.Operation, layout: Layout) -> bool:
    for operand, other in (tuple(op.operands), tuple(reversed(list(op.operands)))):
        pending = kernel.values[operand]
        if isinstance(pending, Pending):
            accumulator = kernel.tile(other)
            kernel.bind(op, contract.contraction_into(accumulator, pending.a, pending.b, pending.over, layout))
            return True
    return False


def _for(kernel: KernelBuilder, op: ir.Operation) -> None:
    low, high, step = (kernel.scalar(operand) for operand in list(op.operands)[:3])
    narrow = low.narrow and high.narrow and step.narrow and fits(low.low, high.high + step.high)
    bounds = [x.value if narrow else kernel.scalars.widened(x) for x in (low, high, step)]
    source = op.regions[0].blocks[0]
    starts = [_carried(kernel, operand) for operand in list(op.operands)[3:]]
    stages = number_attribute(op, "cleave.num_stages")
    hints = {"tt.num_stages": tt.i32_attr(stages)} if stages else {}
    loop = tt.create("scf.for", [start.type for start in starts], [*bounds, *starts], hints, regions=1)
    block = ir.Block.create_at_start(loop.regions[0], [bounds[0].type, *(start.type for start in starts)])
    index, *carried = block.arguments
    limit = high.size if high.size is not None else high.limit - 1 if high.limit is not None else None
    kernel.values[source.arguments[0]] = Scalar(index, low.low, max(low.low, high.high - 1), None, limit)
    for argument, value in zip(list(source.arguments)[1:], carried, strict=True):
        kernel.values[argument] = _received(kernel, argument.type, value)
    with ir.InsertionPoint(block):
        kernel.block(source)
    kernel.bind(
        op, *(_received(kernel, result.type, value) for result, value in zip(op.results, loop.results, strict=True))
    )


def _carried(kernel: KernelBuilder, value: ir.Value) -> ir.Value:
    """What a loop carries has the full width of its dtype."""
    found = kernel.values[value]
    if isinstance(found, Scalar):
        return kernel.scalars.widened(found)
    layout = kernel.layout(value.type)
    return aligned(full_width(kernel.tile(value)), layout.names, layout.shape).value


def _received(kernel: KernelBuilder, type_: ir.Type, value: ir.Value) -> Bound:
    if isinstance(type_, ir.IndexType):
        return Scalar(value, -UNKNOWN, UNKNOWN)
    layout = kernel.layout(type_)
    return Tile(value, layout.names, layout.shape, layout.dtype)


def _yield(kernel: KernelBuilder, op: ir.Operation) -> None:
    tt.create("scf.yield", [], [_carried(kernel, operand) for operand in op.operands])


def _return(kernel: KernelBuilder, op: ir.Operation) -> None:
    tt.create("tt.return", [], [])


_PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge", "lt", "le", "gt", "ge")
"""Of ``arith.cmpi``, by their numbers."""
_INDEX_OPS = ["addi", "subi", "muli", "divui", "remui", "minui", "maxui", "minsi", "maxsi"]

RULES: Mapping[str, Rule] = {
    **{f"cleave.{name}": _pointwise for name in ops.POINTWISE},
    **{f"arith.{name}": _index_arithmetic for name in _INDEX_OPS},
    "cleave.cast": _cast,
    "cleave.constant": _constant,
    "cleave.index": _index,
    "cleave.splat": _splat,
    "cleave.scalar": _scalar,
    "cleave.program_id": _program_id,
    "cleave.extent": _extent,
    "cleave.load": _load,
    "cleave.gather_load": _load,
    "cleave.store": _store,
    "cleave.trigger": _trigger,
    "cleave.wait": _wait,
    "cleave.group_barrier": _group_barrier,
    "cleave.reduce": _reduce,
    "cleave.contract": _contract,
    "arith.constant": _index_constant,
    "arith.cmpi": _index_comparison,
    "scf.for": _for,
    "scf.if": _if,
    "scf.yield": _yield,
    "func.return": _return,
}
