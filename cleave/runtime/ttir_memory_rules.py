"""The semantics of TTIR's operations on memory and on the grid: the table ``MACHINE_RULES``.

As in ``ttir_rules``, but the function that a rule returns takes the ``Machine`` before the operand values.
"""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttgir_machine import ThreadBlock
from cleave.runtime.ttir_ir import DescriptorType, Operation, PointerType, ScalarType, TensorType
from cleave.runtime.ttir_memory import Descriptor, Memory, make_descriptor
from cleave.runtime.ttir_numbers import FLOATS, Array, DType, dtype_of, element_type, unsigned
from cleave.runtime.ttir_rule import Evaluate, Rule, attribute, shape_of


@dataclass(slots=True)
class Machine:
    """What a running program sees beside its values."""

    memory: Memory
    grid: tuple[int, int, int]
    program: tuple[int, int, int] = (0, 0, 0)
    block: ThreadBlock = field(default_factory=lambda: ThreadBlock(0))


def _axis(op: Operation) -> int:
    axis = attribute(op, "axis")
    if axis not in (0, 1, 2):
        raise CleaveError(f"the grid has no axis {axis}")
    return axis


def _program_id(op: Operation) -> Evaluate:
    axis = _axis(op)
    return lambda machine: np.int32(machine.program[axis])


def _num_programs(op: Operation) -> Evaluate:
    axis = _axis(op)
    return lambda machine: np.int32(machine.grid[axis])


def _pointee(op: Operation) -> DType:
    pointer = element_type(op.operands[0].type)
    if not isinstance(pointer, PointerType) or not isinstance(pointer.pointee, ScalarType):
        raise CleaveError(f"memory is accessed through {op.operands[0].type}, not through pointers to scalars")
    return dtype_of(pointer.pointee)


def _load(op: Operation) -> Evaluate:
    dtype = _pointee(op)
    segments = tuple(attribute(op, "operandSegmentSizes"))
    if len(segments) != 3 or segments[0] != 1 or sum(segments) != len(op.operands) or max(segments) > 1:
        raise CleaveError(f"operandSegmentSizes {segments} do not fit {len(op.operands)} operands")
    if segments == (1, 0, 1):
        raise CleaveError("a value for masked elements without a mask")

    def load(machine: Machine, pointer: Array, mask: Array | None = None, other: Array | None = None) -> Array:
        return machine.memory.load(pointer, dtype, mask, other)

    return load


def _check_value(op: Operation, dtype: DType, operands: slice) -> None:
    for value in op.operands[operands]:
        if dtype_of(value.type) != dtype:
            raise CleaveError(f"a value of type {value.type} through {op.operands[0].type}")


def _store(op: Operation) -> Evaluate:
    _check_value(op, _pointee(op), slice(1, 2))

    def store(machine: Machine, pointer: Array, value: Array, mask: Array | None = None) -> tuple[()]:
        machine.memory.store(pointer, value, mask)
        machine.block.wrote()
        return ()

    return store


def _on_unsigned(function: Evaluate) -> Evaluate:
    def evaluate(old: Array, value: Array) -> Array:
        wide = unsigned(old.dtype)
        return function(old.view(wide), value.view(wide)).view(old.dtype)

    return evaluate


def _exchange(old: Array, value: Array) -> Array:
    return value


# tt.RMWOp: its function, and whether the elements are floats (None: either)
_ATOMICS: dict[int, tuple[Evaluate, bool | None]] = {
    1: (np.bitwise_and, False),
    2: (np.bitwise_or, False),
    3: (np.bitwise_xor, False),
    4: (np.add, False),
    5: (np.add, True),
    6: (np.maximum, False),
    7: (np.minimum, False),
    8: (_on_unsigned(np.maximum), False),
    9: (_on_unsigned(np.minimum), False),
    10: (_exchange, None),
}


def _atomic_rmw(op: Operation) -> Evaluate:
    dtype, kind = _pointee(op), attribute(op, "atomic_rmw_op")
    if kind not in _ATOMICS:
        raise CleaveError(f"atomic operation {kind} does not exist")
    function, on_floats = _ATOMICS[kind]
    if on_floats is not None and on_floats != (dtype in FLOATS):
        raise CleaveError(f"atomic operation {kind} is not defined on {dtype}")
    _check_value(op, dtype, slice(1, 2))

    def update(machine: Machine, pointer: Array, value: Array, mask: Array | None = None) -> Array:
        return machine.memory.update(pointer, (value,), mask, function, dtype)

    return update


def _atomic_cas(op: Operation) -> Evaluate:
    dtype = _pointee(op)
    bits = unsigned(dtype)
    _check_value(op, dtype, slice(1, 3))

    def swap(old: Array, expected: Array, value: Array) -> Array:
        return np.where(old.view(bits) == expected.view(bits), value.view(bits), old.view(bits)).view(dtype)[()]

    def update(machine: Machine, pointer: Array, expected: Array, value: Array) -> Array:
        return machine.memory.update(pointer, (expected, value), None, swap, dtype)

    return update


def _make_tensor_descriptor(op: Operation) -> Evaluate:
    type_, pointee = op.results[0].type, _pointee(op)
    if not isinstance(type_, DescriptorType) or dtype_of(type_.block) != pointee:
        raise CleaveError(f"{type_} is no descriptor of {pointee} memory")
    block, rank = type_.block.shape, len(type_.block.shape)
    nan_padding = op.attributes.get("padding", 1) == 2
    if len(op.operands) != 1 + 2 * rank:
        raise CleaveError(f"blocks of rank {rank} need {rank} extents and {rank} strides")

    def make(machine: Machine, base: Array, *numbers: Array) -> Descriptor:
        extents, strides = [int(n) for n in numbers[:rank]], [int(n) for n in numbers[rank:]]
        return make_descriptor(int(base), extents, strides, block, pointee, nan_padding)

    return make


def _descriptor_block(op: Operation, indices: int) -> TensorType:
    type_ = op.operands[0].type
    if not isinstance(type_, DescriptorType):
        raise CleaveError(f"a tensor descriptor is expected, not {type_}")
    if indices != len(type_.block.shape):
        raise CleaveError(f"{indices} indices for a descriptor of rank {len(type_.block.shape)}")
    return type_.block


def _descriptor_load(op: Operation) -> Evaluate:
    _descriptor_block(op, len(op.operands) - 1)
    shape = shape_of(op)  # It may lack extents of 1 that the block has.

    def load(machine: Machine, descriptor: Descriptor, *start: Array) -> Array:
        return machine.memory.load_block(descriptor, [int(s) for s in start]).reshape(shape)

    return load


def _block_update(op: Operation, function: Evaluate | None) -> Evaluate:
    block = _descriptor_block(op, len(op.operands) - 2)
    _check_value(op, dtype_of(block), slice(1, 2))

    def update(machine: Machine, descriptor: Descriptor, value: Array, *start: Array) -> tuple[()]:
        tile = value.reshape(descriptor.block)
        machine.memory.update_block(descriptor, [int(s) for s in start], tile, function)
        return ()

    return update


def _increment(old: Array, value: Array) -> Array:
    return np.where(old >= value, 0, old + 1).astype(old.dtype)


def _decrement(old: Array, value: Array) -> Array:
    return np.where((old == 0) | (old > value), value, old - 1).astype(old.dtype)


_REDUCTIONS: dict[int, tuple[Evaluate, str]] = {
    1: (np.add, "any"),
    2: (np.minimum, "ordered"),
    3: (np.maximum, "ordered"),
    4: (_increment, "unsigned"),
    5: (_decrement, "unsigned"),
    6: (np.bitwise_and, "bits"),
    7: (np.bitwise_or, "bits"),
    8: (np.bitwise_xor, "bits"),
}


def _descriptor_reduce(op: Operation) -> Evaluate:
    kind = attribute(op, "kind")
    element = _descriptor_block(op, len(op.operands) - 2).element
    if kind not in _REDUCTIONS:
        raise CleaveError(f"reduction {kind} does not exist")
    function, domain = _REDUCTIONS[kind]
    is_float = dtype_of(element) in FLOATS
    if is_float and domain in ("unsigned", "bits"):
        raise CleaveError(f"reduction {kind} is not defined on {element}")
    # The hardware takes integers as unsigned unless the descriptor's element type says signed.
    signed = isinstance(element, ScalarType) and element.name.startswith("si")
    as_unsigned = domain == "unsigned" or (domain == "ordered" and not is_float and not signed)
    return _block_update(op, _on_unsigned(function) if as_unsigned else function)


MACHINE_RULES: dict[str, Rule] = {
    "tt.get_program_id": _program_id,
    "tt.get_num_programs": _num_programs,
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic_rmw,
    "tt.atomic_cas": _atomic_cas,
    "tt.make_tensor_descriptor": _make_tensor_descriptor,
    "tt.descriptor_load": _descriptor_load,
    "tt.descriptor_store": lambda op: _block_update(op, None),
    "tt.descriptor_reduce": _descriptor_reduce,
}
