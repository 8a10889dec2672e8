"""The semantics of TTIR's operations on values: one rule per op, in the table ``PURE_RULES``.

A rule takes the operation (for its attributes and types) and returns the function from operand values to the result
value (a tuple for several results). Rules raise ``CleaveError`` without a place; the interpreter adds op and line.
Elementwise operations are in ``ttir_scalar_rules``, those on memory and on the grid in ``ttir_memory_rules``, those
with regions in ``ttir_control``; here are constants, what rearranges tiles, ``tt.dot``, checks and hints.
"""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from typing import cast

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttir_ir import DenseElements, Operation, PointerType, TensorType
from cleave.runtime.ttir_numbers import Array, dense, dot, dtype_of, element_type, poison, scalar
from cleave.runtime.ttir_rule import Evaluate, Rule, attribute, plain, shape_of
from cleave.runtime.ttir_scalar_rules import SCALAR_RULES


def _constant(op: Operation) -> Evaluate:
    value = attribute(op, "value")
    if isinstance(value, DenseElements):
        array = dense(value)
    elif isinstance(value, (bool, int, float)):
        array = scalar(value, dtype_of(op.results[0].type))
    else:
        raise CleaveError(f"a constant of {value}")
    return lambda: array


def _undefined(op: Operation) -> Evaluate:
    value, shape = poison(dtype_of(op.results[0].type)), shape_of(op)
    return lambda: np.broadcast_to(np.asarray(value), shape) if shape else value


def _make_range(op: Operation) -> Evaluate:
    tile = np.arange(attribute(op, "start"), attribute(op, "end"), dtype=np.int32)
    return lambda: tile


def _splat(op: Operation) -> Evaluate:
    shape = shape_of(op)
    return lambda x: np.broadcast_to(np.asarray(x), shape)


def _unsplat(x: Array) -> Array:
    return x.reshape(-1)[0]


def _expand_dims(op: Operation) -> Evaluate:
    axis = attribute(op, "axis")
    if not 0 <= axis <= len(shape_of(op)) - 1:
        raise CleaveError(f"axis {axis} is out of range")
    index = (*(slice(None),) * axis, None)
    return lambda x: x[index]


def _reshape(op: Operation) -> Evaluate:
    shape = shape_of(op)
    return lambda x: x.reshape(shape)


def _transpose(op: Operation) -> Evaluate:
    order = attribute(op, "order")
    return lambda x: np.transpose(x, order)


def _split(x: Array) -> tuple[Array, Array]:
    return x[..., 0], x[..., 1]


def _gather(op: Operation) -> Evaluate:
    axis = attribute(op, "axis")

    def gather(source: Array, indices: Array) -> Array:
        extent = source.shape[axis]
        if indices.min() < 0 or indices.max() >= extent:
            wrong = indices[(indices < 0) | (indices >= extent)]
            raise CleaveError(f"index {int(wrong.flat[0])} is outside the axis of extent {extent}")
        return np.take_along_axis(source, indices.astype(np.int64), axis)

    return gather


def _histogram(op: Operation) -> Evaluate:
    bins = shape_of(op)[0]

    def histogram(x: Array, mask: Array | None = None) -> Array:
        counted = x if mask is None else x[mask]
        return np.bincount(counted[(counted >= 0) & (counted < bins)], minlength=bins).astype(np.int32)

    return histogram


def _pointee_size(op: Operation) -> int:
    pointer = element_type(op.operands[0].type)
    if not isinstance(pointer, PointerType):
        raise CleaveError(f"a pointer is expected, not {op.operands[0].type}")
    return dtype_of(pointer.pointee).itemsize


def _add_pointer(op: Operation) -> Evaluate:
    size = np.int64(_pointee_size(op))
    return lambda pointer, offset: pointer + offset.astype(np.int64) * size


def _dot(op: Operation) -> Evaluate:
    precision = op.attributes.get("inputPrecision", 2)
    if not isinstance(precision, int) or not 0 <= precision <= 4:
        raise CleaveError(f"input precision {precision} does not exist")
    tf32 = precision == 0  # tf32x3, ieee, bf16x3 and bf16x6 are all taken as f32.
    a, b, c = (cast(TensorType, value.type).shape for value in op.operands)
    if a[:-2] != b[:-2] or a[-1] != b[-2] or c != (*a[:-1], b[-1]):
        raise CleaveError(f"tiles {list(a)} and {list(b)} do not multiply into {list(c)}")
    return lambda a, b, c: dot(a, b, c, tf32)


def _assume(condition: Array) -> tuple[()]:
    if not np.all(condition):
        raise CleaveError("the assumption is false")
    return ()


def _assert(op: Operation) -> Evaluate:
    message = op.attributes.get("message", "")

    def check(condition: Array) -> tuple[()]:
        if not np.all(condition):
            raise CleaveError(f"assertion failed: {message}")
        return ()

    return check


def _nothing(*operands: Array) -> tuple[()]:
    return ()


PURE_RULES: dict[str, Rule] = {
    **SCALAR_RULES,
    "arith.constant": _constant,
    # Tiles
    "tt.make_range": _make_range,
    "tt.splat": _splat,
    "tt.unsplat": plain(_unsplat),
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _splat,
    "tt.reshape": _reshape,
    "tt.trans": _transpose,
    "tt.join": plain(lambda a, b: np.stack((a, b), -1)),
    "tt.split": plain(_split),
    "tt.cat": plain(lambda a, b: np.concatenate((a, b), 0)),
    "tt.gather": _gather,
    "tt.histogram": _histogram,
    "tt.addptr": _add_pointer,
    "tt.dot": _dot,
    "ttg.convert_layout": plain(lambda x: x),
    "ub.poison": _undefined,
    # Checks and hints
    "llvm.intr.assume": plain(_assume),
    "tt.assert": _assert,
    "tt.print": plain(_nothing),
    "gpu.barrier": plain(_nothing),
    "ttg.barrier": plain(_nothing),
    "nvvm.griddepcontrol": plain(_nothing),
}  # fmt: skip
