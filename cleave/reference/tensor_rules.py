"""Rules for the ``tensor`` dialect on plain arrays. Scalars may be arrays over an iteration space (linalg_rules)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.reference.machine import Machine, Rule, Step, as_index, element_dtype, integers
from cleave.reference.numerics import Array


def _mixed(static: Sequence[int], dynamic: Iterator[Array]) -> list[int]:
    """Sizes or offsets of which some are written and the others are operands."""
    marker = ir.ShapedType.get_dynamic_size()
    return [as_index(next(dynamic)) if n == marker else n for n in static]


def _static_shape(value: ir.Value) -> list[int]:
    return list(ir.ShapedType(value.type).shape)


def _check_shape(value: ir.Value, array: Array) -> Array:
    marker = ir.ShapedType.get_dynamic_size()
    for axis, (static, extent) in enumerate(zip(_static_shape(value), array.shape, strict=True)):
        if static not in (marker, extent):
            raise CleaveError(f"axis {axis} has extent {extent}, its type says {static}")
    return array


def empty(machine: Machine, op: ir.Operation) -> Step:
    static, dtype = _static_shape(op.results[0]), element_dtype(op.results[0].type)
    return lambda *sizes: machine.numerics.poison(_mixed(static, iter(sizes)), dtype)


def dim(machine: Machine, op: ir.Operation) -> Step:
    def step(tensor: Array, axis: Array) -> Array:
        if not 0 <= as_index(axis) < tensor.ndim:
            raise CleaveError(f"axis {as_index(axis)} of a tensor of rank {tensor.ndim}")
        return np.asarray(tensor.shape[as_index(axis)])

    return step


def _groups(op: ir.Operation) -> list[list[int]]:
    return [[ir.IntegerAttr(axis).value for axis in ir.ArrayAttr(group)]
            for group in ir.ArrayAttr(op.attributes["reassociation"])]  # fmt: skip


def collapse_shape(machine: Machine, op: ir.Operation) -> Step:
    groups = _groups(op)
    return lambda x: x.reshape([int(np.prod([x.shape[axis] for axis in group])) for group in groups])


def expand_shape(machine: Machine, op: ir.Operation) -> Step:
    static, groups = integers(op.attributes["static_output_shape"]), _groups(op)

    def step(x: Array, *sizes: Array) -> Array:
        shape = _mixed(static, iter(sizes))
        for group, extent in zip(groups, x.shape, strict=True):
            if int(np.prod([shape[axis] for axis in group])) != extent:
                raise CleaveError(f"cannot expand extent {extent} to {[shape[axis] for axis in group]}")
        return x.reshape(shape)

    return step


def reshape(machine: Machine, op: ir.Operation) -> Step:
    def step(x: Array, shape: Array) -> Array:
        sizes = [int(n) for n in shape]
        if int(np.prod(sizes)) != x.size or min(sizes, default=0) < 0:
            raise CleaveError(f"cannot reshape {list(x.shape)} to {sizes}")
        return _check_shape(op.results[0], x.reshape(sizes))

    return step


def cast(machine: Machine, op: ir.Operation) -> Step:
    return lambda x: _check_shape(op.results[0], x)


def extract(machine: Machine, op: ir.Operation) -> Step:
    def step(tensor: Array, *indices: Array) -> Array:
        for axis, (position, extent) in enumerate(zip(map(np.asarray, indices), tensor.shape, strict=True)):
            if position.size and (position.min() < 0 or position.max() >= extent):
                raise CleaveError(f"index {position.max()} leaves axis {axis} of extent {extent}")
        return tensor[tuple(map(np.asarray, indices))]

    return step


def from_elements(machine: Machine, op: ir.Operation) -> Step:
    shape, dtype = _static_shape(op.results[0]), element_dtype(op.results[0].type)
    return lambda *elements: np.array(
        [np.asarray(x).reshape(()) for x in elements], machine.numerics.storage(dtype)
    ).reshape(shape)


def splat(machine: Machine, op: ir.Operation) -> Step:
    static = _static_shape(op.results[0])
    return lambda value, *sizes: np.full(
        _mixed(static, iter(sizes)), np.asarray(value).reshape(()), np.asarray(value).dtype
    )


def _region(op: ir.Operation, skip: int, operands: Sequence[Array]) -> tuple[list[int], tuple[slice, ...]]:
    """Sizes and slices of an extract_slice or insert_slice whose tensors are the first ``skip`` operands."""
    dynamic = iter(operands[skip:])
    offsets, sizes, strides = (
        _mixed(integers(op.attributes[f"static_{what}"]), dynamic) for what in ("offsets", "sizes", "strides")
    )
    whole = operands[skip - 1].shape
    for axis, (offset, size, stride, extent) in enumerate(zip(offsets, sizes, strides, whole, strict=True)):
        if size < 0 or offset < 0 or (size and offset + (size - 1) * stride >= extent):
            raise CleaveError(f"the slice leaves axis {axis} of extent {extent}")
    slices = (slice(o, o + n * s, s) for o, n, s in zip(offsets, sizes, strides, strict=True))
    return sizes, tuple(slices)


def extract_slice(machine: Machine, op: ir.Operation) -> Step:
    result = _static_shape(op.results[0])

    def step(*operands: Array) -> Array:
        sizes, slices = _region(op, 1, operands)
        return operands[0][slices].reshape(_drop_units(sizes, result))

    return step


def _drop_units(sizes: Sequence[int], result: Sequence[int]) -> list[int]:
    """``sizes`` without the ones that the result's type has not."""
    kept: list[int] = []
    surplus = len(sizes) - len(result)
    for size in sizes:
        if surplus and size == 1 and (len(kept) == len(result) or result[len(kept)] != 1):
            surplus -= 1
        else:
            kept.append(size)
    return kept


def insert_slice(machine: Machine, op: ir.Operation) -> Step:
    def step(*operands: Array) -> Array:
        sizes, slices = _region(op, 2, operands)
        result = operands[1].copy()
        result[slices] = operands[0].reshape(sizes)
        return result

    return step


def pad(machine: Machine, op: ir.Operation) -> Step:
    body = op.regions[0].blocks[0]

    def step(x: Array, *amounts: Array) -> Array:
        dynamic = iter(amounts)
        low, high = (_mixed(integers(op.attributes[f"static_{side}"]), dynamic) for side in ("low", "high"))
        shape = [before + n + after for before, n, after in zip(low, x.shape, high, strict=True)]
        (value,) = machine.run_block(body, np.ogrid[tuple(slice(n) for n in shape)])
        result = np.array(np.broadcast_to(value, shape), x.dtype)
        result[tuple(slice(before, before + n) for before, n in zip(low, x.shape, strict=True))] = x
        return result

    return step


def generate(machine: Machine, op: ir.Operation) -> Step:
    static, body = _static_shape(op.results[0]), op.regions[0].blocks[0]

    def step(*sizes: Array) -> Array:
        shape = _mixed(static, iter(sizes))
        (value,) = machine.run_block(body, np.ogrid[tuple(slice(n) for n in shape)])
        return np.array(np.broadcast_to(value, shape))

    return step


def concat(machine: Machine, op: ir.Operation) -> Step:
    axis = ir.IntegerAttr(op.attributes["dim"]).value
    return lambda *tensors: np.concatenate(tensors, axis)


def rank(machine: Machine, op: ir.Operation) -> Step:
    return lambda x: np.asarray(x.ndim)


RULES: dict[str, Rule] = {
    f"tensor.{rule.__name__}": rule
    for rule in (empty, dim, collapse_shape, expand_shape, reshape, cast, extract, from_elements, splat, extract_slice,
                 insert_slice, pad, generate, concat, rank)
}  # fmt: skip
