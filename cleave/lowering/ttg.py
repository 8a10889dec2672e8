"""Builders for the ops of TTGIR that the warp-specialised lowering needs, at the current insertion point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.bindings import ir
from cleave.lowering import encodings, tt
from cleave.lowering.encodings import Encoding, SharedMatrix


def i32(number: int) -> ir.Value:
    return tt.constant(number, tt.scalar("i32"))


def boolean(truth: bool) -> ir.Value:
    return tt.constant(int(truth), tt.scalar("i1"))


def retyped(value: ir.Value, shape: tt.Shape, encoding: Encoding) -> ir.Value:
    """The tensor in another layout."""
    return tt.value("ttg.convert_layout", encodings.tensor(shape, tt.element_of(value), encoding), value)


def clone(op: ir.Operation, operands: Sequence[ir.Value], encoding: Encoding | None) -> ir.Operation:
    """The op on these operands; tiles that it gives are in this layout."""
    copied = op.clone()
    for number, operand in enumerate(operands):
        copied.operands[number] = operand
    for result in copied.results:
        if encoding is None or not isinstance(result.type, ir.RankedTensorType):
            continue
        type_ = encodings.tensor(tt.shape_of(result), tt.element_of(result), encoding)
        result.set_type(type_)
        if op.name == "arith.constant":
            splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
            copied.attributes["value"] = ir.DenseElementsAttr.get_splat(type_, splat)
    return copied


def load_where(condition: ir.Value, operands: Sequence[ir.Value], type_: ir.Type) -> ir.Value:
    """What a load with these operands reads, if the condition holds, else zeros or what it has for masked elements."""
    pointers, *masked = operands
    if isinstance(type_, ir.RankedTensorType):
        bits = ir.RankedTensorType.get(type_.shape, tt.scalar("i1"), type_.encoding)
        zero: ir.Attribute = ir.DenseElementsAttr.get_splat(type_, tt.number(type_.element_type, 0))
        condition = tt.value("tt.splat", bits, condition)
    else:
        zero = tt.number(type_, 0)
    mask = tt.same("arith.andi", masked[0], condition) if masked else condition
    other = masked[1] if len(masked) > 1 else tt.value("arith.constant", type_, value=zero)
    segments = ir.DenseI32ArrayAttr.get([1, 1, 1])
    return tt.value("tt.load", type_, pointers, mask, other, operandSegmentSizes=segments)


# --- shared memory ----------------------------------------------------------------------------------------------------


def alloc(type_: ir.Type) -> ir.Value:
    return tt.value("ttg.local_alloc", type_)


def element(buffers: ir.Value, index: ir.Value, type_: ir.Type) -> ir.Value:
    """One of several buffers or barriers."""
    return tt.value("ttg.memdesc_index", type_, buffers, index)


def part(buffer: ir.Value, offsets: Sequence[int], type_: ir.Type) -> ir.Value:
    """What begins there."""
    return tt.value("ttg.memdesc_subslice", type_, buffer, offsets=ir.DenseI32ArrayAttr.get(list(offsets)))


def transposed(buffer: ir.Value, type_: ir.Type) -> ir.Value:
    return tt.value("ttg.memdesc_trans", type_, buffer, order=ir.DenseI32ArrayAttr.get([1, 0]))


def read(buffer: ir.Value, type_: ir.Type) -> ir.Value:
    return tt.value("ttg.local_load", type_, buffer)


def write(x: ir.Value, buffer: ir.Value) -> None:
    tt.create("ttg.local_store", [], [x, buffer])


def fence() -> None:
    """What threads read from shared memory, or write there, comes before the copies and products that follow."""
    tt.create("ttng.fence_async_shared", [], [], {"bCluster": ir.BoolAttr.get(False)})


def copy(
    descriptor: ir.Value, offsets: Sequence[ir.Value], barrier: ir.Value, buffer: ir.Value, pred: ir.Value
) -> None:
    """Start the copy of a block; its bytes count at the barrier when they are there."""
    tt.create("ttng.async_tma_copy_global_to_local", [], [descriptor, *offsets, barrier, buffer, pred])


def copy_by_threads(buffer: ir.Value, pointers: ir.Value, masked: Sequence[ir.Value], vector: int) -> None:
    """Start copies of ``vector`` elements by each thread; ``masked``: mask and zeros for where it is false, or none."""
    attributes: Mapping[str, ir.Attribute] = {
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, *(len(masked) > place for place in range(2))]),
        "cache": tt.i32_attr(1),
        "evict": tt.i32_attr(1),
        "isVolatile": ir.BoolAttr.get(False),
        "contiguity": tt.i32_attr(vector),
    }
    token = ir.Type.parse("!ttg.async.token")
    tt.create("ttg.async_copy_global_to_local", [token], [pointers, buffer, *masked], attributes)


def arrive_when_copied(barrier: ir.Value) -> None:
    """Each thread arrives when the copies that it has started are there; its arrival is one of the barrier's count."""
    tt.create("ttng.async_copy_mbarrier_arrive", [], [barrier], {"noIncrement": ir.UnitAttr.get()})


def store(descriptor: ir.Value, offsets: Sequence[ir.Value], buffer: ir.Value) -> None:
    """Start the copy of a block to memory."""
    tt.create("ttng.async_tma_copy_local_to_global", [], [descriptor, *offsets, buffer])


def await_stores() -> None:
    """Until the copies to memory that this partition started have read their buffers."""
    tt.create("ttng.async_tma_store_wait", [], [], {"pendings": tt.i32_attr(0)})


# --- barriers ---------------------------------------------------------------------------------------------------------


def init(barrier: ir.Value, count: int) -> None:
    tt.create("ttng.init_barrier", [], [barrier], {"count": tt.i32_attr(count)})


def wait(barrier: ir.Value, phase: ir.Value, pred: ir.Value) -> None:
    """Until the phase of this parity is complete."""
    segments = ir.DenseI32ArrayAttr.get([1, 1, 1, 0])
    tt.create("ttng.wait_barrier", [], [barrier, phase, pred], {"operandSegmentSizes": segments})


def expect(barrier: ir.Value, size: int, pred: ir.Value) -> None:
    """Arrive, and let the phase end only when so many bytes have come."""
    tt.create("ttng.barrier_expect", [], [barrier, pred], {"size": tt.i32_attr(size)})


def arrive(barrier: ir.Value, pred: ir.Value) -> None:
    tt.create("ttng.arrive_barrier", [], [barrier, pred], {"count": tt.i32_attr(1)})


# --- products ---------------------------------------------------------------------------------------------------------


def product(a: ir.Value, b: ir.Value, start: ir.Value, use_start: ir.Value) -> ir.Value:
    """Start a·b (+ start where ``use_start``); the result is there after a wait."""
    attributes = {"inputPrecision": tt.i32_attr(0), "isAsync": ir.BoolAttr.get(True)}
    return tt.create("ttng.warp_group_dot", [start.type], [a, b, start, use_start], attributes).results[0]


def await_products(values: Sequence[ir.Value], pending: int) -> list[ir.Value]:
    """Wait until all but the last ``pending`` products are done; the values as they are then."""
    types = [value.type for value in values]
    op = tt.create("ttng.warp_group_dot_wait", types, values, {"pendings": tt.i32_attr(pending)})
    return list(op.results)


# --- partitions -------------------------------------------------------------------------------------------------------


def warp_specialize(captures: Sequence[ir.Value], registers: Sequence[int]) -> tuple[ir.Block, list[ir.Block]]:
    """The blocks of the default partition and of the others, which take ``captures`` as arguments; ``registers``: of a
    thread of each of these."""
    warps = [encodings.WARPS] * len(registers)
    attributes: Mapping[str, ir.Attribute] = {
        "partitionNumWarps": ir.DenseI32ArrayAttr.get(warps),
        "requestedRegisters": ir.DenseI32ArrayAttr.get(list(registers)),
    }
    op = tt.create("ttg.warp_specialize", [], captures, attributes, regions=2)
    default = ir.Block.create_at_start(op.regions[0], [])
    with ir.InsertionPoint(ir.Block.create_at_start(op.regions[1], [])):
        partitions = tt.create("ttg.warp_specialize.partitions", [], [], regions=len(warps))
    types = [capture.type for capture in captures]
    return default, [ir.Block.create_at_start(region, types) for region in partitions.regions]


def shared_matrix(columns: int, bits: int, *, transposed: bool = False, rank: int = 2) -> SharedMatrix:
    swizzle = encodings.swizzle_of(columns, bits)
    assert swizzle is not None
    return SharedMatrix(swizzle, bits, transposed, rank)
