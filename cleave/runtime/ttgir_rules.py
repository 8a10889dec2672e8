"""The semantics of TTGIR's operations on partitions, shared memory, barriers and asynchronous products.

As in ``ttir_memory_rules``; layouts say nothing about values.
"""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttgir_barriers import Barrier
from cleave.runtime.ttgir_machine import InFlight, Shared, ThreadBlock
from cleave.runtime.ttir_frame import CompiledBlock, Frame, Step
from cleave.runtime.ttir_ir import DescriptorType, OpaqueType, Operation, TensorType, Type
from cleave.runtime.ttir_memory import Descriptor
from cleave.runtime.ttir_memory_rules import Machine
from cleave.runtime.ttir_numbers import DTYPES, Array, dot, dtype_of, poison
from cleave.runtime.ttir_pauses import Pause, Wait
from cleave.runtime.ttir_rule import Evaluate, Rule, attribute

if TYPE_CHECKING:
    from cleave.runtime.ttir_compile import Compiler

_MEMDESC = re.compile(r"!ttg\.memdesc<((?:\d+x)+)(\w+),")

# --- shared memory ----------------------------------------------------------------------------------------------------


def _memory(type_: Type) -> tuple[tuple[int, ...], str]:
    """The extents and the element of a ``!ttg.memdesc``."""
    match = _MEMDESC.match(str(type_)) if isinstance(type_, OpaqueType) else None
    if match is None:
        raise CleaveError(f"{type_} is no shared memory")
    return tuple(int(n) for n in match[1].split("x") if n), match[2]


def _alloc(op: Operation) -> Evaluate:
    shape, element = _memory(op.results[0].type)
    if op.operands:
        raise CleaveError("shared memory that begins with a value is not supported")
    if element == "i64":
        return lambda machine: [Barrier() for _ in range(shape[0])]
    dtype = DTYPES[element]
    return lambda machine: np.full(shape, poison(dtype), dtype)


def _index(op: Operation) -> Evaluate:
    (count, *_), _ = _memory(op.operands[0].type)

    def element(machine: Machine, buffers: Any, index: Array) -> Any:
        if not 0 <= int(index) < count:
            raise CleaveError(f"buffer {int(index)} of {count}")
        return buffers[int(index)]

    return element


def _part(op: Operation) -> Evaluate:
    shape, _ = _memory(op.results[0].type)
    places = zip(attribute(op, "offsets"), shape, strict=True)
    inside = tuple(slice(start, start + extent) for start, extent in places)
    return lambda machine, buffer: buffer[inside]


def _local_load(op: Operation) -> Evaluate:
    def read(machine: Machine, buffer: Shared) -> Array:
        machine.block.pause()
        return machine.block.read(buffer)

    return read


def _fence(op: Operation) -> Evaluate:
    def fence(machine: Machine) -> tuple[()]:
        machine.block.fence()
        return ()

    return fence


def _copy(op: Operation) -> Evaluate:
    type_ = op.operands[0].type
    if not isinstance(type_, DescriptorType):
        raise CleaveError(f"a tensor descriptor is expected, not {type_}")
    rank = len(type_.block.shape)

    def copy(machine: Machine, descriptor: Descriptor, *rest: Any) -> tuple[()]:
        start, (barrier, buffer, pred) = [int(n) for n in rest[:rank]], rest[rank:]
        machine.block.pause()
        if pred:
            load = machine.memory.load_block
            machine.block.copy(buffer, barrier, lambda: load(descriptor, start).reshape(buffer.shape))
        return ()

    return copy


def _copy_by_threads(op: Operation) -> Evaluate:
    shape, element = _memory(op.operands[1].type)
    segments = tuple(attribute(op, "operandSegmentSizes"))
    if segments not in ((1, 1, 0, 0), (1, 1, 1, 1)) or len(op.operands) != sum(segments):
        raise CleaveError("a copy by threads has a mask and a value for where it is false, or neither")
    dtype = DTYPES[element]

    def copy(machine: Machine, pointers: Array, buffer: Shared, *masked: Array) -> None:
        machine.block.pause()
        if len(masked) > 1 and np.any(np.asarray(masked[1])):
            raise CleaveError("a copy by threads writes 0 where its mask is false, and nothing else")
        machine.block.copy_by_threads(
            buffer, lambda: machine.memory.load(pointers, dtype, *(masked or (None, None))).reshape(shape)
        )

    return copy


def _arrive_when_copied(op: Operation) -> Evaluate:
    counted = "noIncrement" in op.attributes

    def arrive(machine: Machine, barrier: Barrier) -> tuple[()]:
        machine.block.pause()
        machine.block.arrive_when_copied(barrier, counted=counted)
        return ()

    return arrive


def _local_store(op: Operation) -> Evaluate:
    def write(machine: Machine, value: Array, buffer: Shared) -> tuple[()]:
        machine.block.pause()
        machine.block.write(buffer, value)
        return ()

    return write


def _store(op: Operation) -> Evaluate:
    if not isinstance(op.operands[0].type, DescriptorType):
        raise CleaveError(f"a tensor descriptor is expected, not {op.operands[0].type}")

    def store(machine: Machine, descriptor: Descriptor, *rest: Any) -> tuple[()]:
        start, buffer = [int(n) for n in rest[:-1]], rest[-1]
        machine.block.pause()

        def write(buffer: Shared) -> None:
            machine.memory.update_block(descriptor, start, buffer.reshape(descriptor.block), None)

        machine.block.store(buffer, write)
        return ()

    return store


def _await_stores(op: Operation) -> Evaluate:
    pending = attribute(op, "pendings")

    def wait(machine: Machine) -> tuple[()]:
        machine.block.pause()
        machine.block.await_stores(pending)
        return ()

    return wait


# --- barriers ---------------------------------------------------------------------------------------------------------


def _init(op: Operation) -> Evaluate:
    count = attribute(op, "count")

    def init(machine: Machine, barrier: Barrier) -> tuple[()]:
        barrier.count = count
        return ()

    return init


def _wait(op: Operation) -> Evaluate:
    def wait(machine: Machine, barrier: Barrier, parity: Array, pred: Array = np.True_) -> tuple[()]:
        if pred:
            machine.block.pause(lambda: barrier.is_over(int(parity)))
            machine.block.saw(barrier)
        return ()

    return wait


def _expect(op: Operation) -> Evaluate:
    size = attribute(op, "size")

    def expect(machine: Machine, barrier: Barrier, pred: Array) -> tuple[()]:
        machine.block.pause()
        if pred:
            barrier.bytes += size
            machine.block.arrive(barrier, 1)
        return ()

    return expect


def _arrive(op: Operation) -> Evaluate:
    count = attribute(op, "count")

    def arrive(machine: Machine, barrier: Barrier, pred: Array = np.True_) -> tuple[()]:
        machine.block.pause()
        if pred:
            machine.block.arrive(barrier, count)
        return ()

    return arrive


# --- products ---------------------------------------------------------------------------------------------------------


def _product(op: Operation) -> Evaluate:
    type_ = cast(TensorType, op.results[0].type)
    dtype, tf32 = dtype_of(type_), op.attributes.get("inputPrecision", 2) == 0
    shared = [isinstance(operand.type, OpaqueType) for operand in op.operands[:2]]

    def product(machine: Machine, a: Any, b: Any, start: Any, use_start: Array = np.True_) -> InFlight:
        machine.block.pause()
        reads = tuple(x for x, is_shared in zip((a, b), shared, strict=True) if is_shared)

        def compute(before: Array) -> Array:
            return dot(np.asarray(a), np.asarray(b), before if use_start else np.zeros_like(before), tf32)

        flying = InFlight(type_.shape, dtype, start, compute, reads)
        machine.block.start(flying)
        return flying

    return product


def _await(op: Operation) -> Evaluate:
    pending, single = attribute(op, "pendings"), len(op.results) == 1

    def wait(machine: Machine, *values: Any) -> Any:
        machine.block.pause()
        machine.block.await_products(pending)
        found = [v.result if isinstance(v, InFlight) and v.awaited else v for v in values]
        return found[0] if single else found

    return wait


MACHINE_RULES: dict[str, Rule] = {
    "ttg.local_alloc": _alloc,
    "ttg.memdesc_index": _index,
    "ttg.memdesc_subslice": _part,
    "ttg.memdesc_trans": lambda op: lambda machine, buffer: buffer.T,
    "ttg.local_load": _local_load,
    "ttg.local_store": _local_store,
    "ttng.fence_async_shared": _fence,
    "ttng.async_tma_copy_local_to_global": _store,
    "ttng.async_tma_store_wait": _await_stores,
    "ttng.async_tma_copy_global_to_local": _copy,
    "ttg.async_copy_global_to_local": _copy_by_threads,
    "ttng.async_copy_mbarrier_arrive": _arrive_when_copied,
    "ttng.init_barrier": _init,
    "ttng.wait_barrier": _wait,
    "ttng.barrier_expect": _expect,
    "ttng.arrive_barrier": _arrive,
    "ttng.warp_group_dot": _product,
    "ttng.warp_group_dot_wait": _await,
}

# --- partitions -------------------------------------------------------------------------------------------------------


_DEFAULT_WARPS = 4  # of the first one


class Partitioned(Wait):
    """The partitions of a block. None of them begins before the launches ahead are complete, if any waits for them."""

    def __init__(self, bodies: Sequence[Callable[[Frame], None]], warps: Sequence[int]) -> None:
        super().__init__(0)
        self.bodies, self.warps = bodies, warps

    def carried_out(self, frame: Frame) -> Iterator[Pause]:
        yield self
        block: ThreadBlock = frame[0].block
        block.begin([lambda body=body: body(frame) for body in self.bodies], self.warps)
        try:
            while not block.advance():
                yield _Elsewhere(block.moved)
        finally:
            block.end()


class _Elsewhere(Pause):
    """A partition waits for other blocks."""

    def __init__(self, moved: bool) -> None:
        super().__init__(0)
        self._moved = moved

    @property
    def moved(self) -> bool:
        return self._moved


def specialized(compiler: Compiler, op: Operation) -> Step:
    """``ttg.warp_specialize``: the default region sees all values, the partitions only what they are given."""
    if len(op.regions) != 2 or len(op.regions[1].blocks) != 1:
        raise CleaveError("a default region and one with the partitions are expected")
    (partitions,) = op.regions[1].blocks[0].operations
    captures = compiler.reads(op.operands)
    compiler.waits_inside = True
    default = compiler.region(op.regions[0], op.name)
    others = [compiler.region(region, op.name) for region in partitions.regions]
    compiler.waits_inside = False
    warps = (_DEFAULT_WARPS, *attribute(op, "partitionNumWarps"))
    return Partitioned([default.run, *(_given(body, captures) for body in others)], warps)


def _given(body: CompiledBlock, captures: Sequence[int]) -> Callable[[Frame], None]:
    def run(frame: Frame) -> None:
        body.call(frame, [frame[slot] for slot in captures])

    return run
