"""Rules for the graph ops of the dialect: operands aligned by dim name.

A split that does not divide leaves elements that do not exist. A value with such elements is a ``Partial``: its data,
and where it exists; reductions skip the rest. Everything else is a plain array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import parse
from cleave.dialects.ops import OPS, POINTWISE
from cleave.dialects.tensor_type import TensorType, accumulator, is_float
from cleave.errors import CleaveError
from cleave.reference import empty_rows
from cleave.reference.machine import Machine, Rule, Step
from cleave.reference.numerics import COMPARISONS, Array
from cleave.reference.scalar_rules import is_literal


@dataclass(frozen=True, eq=False)
class Partial:
    """An array of which some elements do not exist; ``exists`` has its rank and broadcasts to it."""

    data: Array
    exists: Array


Tensor = Array | Partial


def parts(x: Tensor) -> tuple[Array, Array | None]:
    return (x.data, x.exists) if isinstance(x, Partial) else (np.asarray(x), None)


def whole(data: Array, exists: Array | None) -> Tensor:
    return data if exists is None or exists.all() else Partial(data, exists)


def align(x: Array, names: Sequence[str], target: Sequence[str]) -> Array:
    """``x`` with dims ``names`` as an array with an axis for each name of ``target``, of extent 1 where x has none."""
    order = [names.index(name) for name in target if name in names]
    return x.transpose(order)[tuple(slice(None) if name in names else np.newaxis for name in target)]


def types_of(op: ir.Operation) -> tuple[list[TensorType], TensorType]:
    return [cleave.tensor_type_of(operand) for operand in op.operands], cleave.tensor_type_of(op.results[0])


def result_shape(machine: Machine, op: ir.Operation) -> tuple[int, ...]:
    return machine.shape(*cleave.decode(op.results[0].type))


def aligned(
    operands: Sequence[Tensor], types: Sequence[TensorType], target: Sequence[str]
) -> tuple[list[Array], Array | None]:
    """The operands' data, aligned and of agreeing extents, and where all of them exist."""
    datas: list[Array] = []
    exists: Array | None = None
    extents: dict[str, int] = {}
    for operand, type_ in zip(operands, types, strict=True):
        data, mask = parts(operand)
        for name, extent in zip(type_.names, data.shape, strict=True):
            if extents.setdefault(name, extent) != extent:
                raise CleaveError(f"operands bind dimension '{name}' to {extents[name]} and {extent}")
        datas.append(align(data, type_.names, target))
        if mask is not None:
            mask = align(mask, type_.names, target)
            exists = mask if exists is None else np.asarray(exists & mask)
    return datas, exists


def pointwise(machine: Machine, op: ir.Operation) -> Step:
    types, result = types_of(op)
    name = op.name.removeprefix("cleave.")
    function = _pointwise_function(machine, op, name, types, result)

    def step(*operands: Tensor) -> Tensor:
        datas, exists = aligned(operands, types, result.names)
        return whole(function(*datas), exists)

    return step


def _pointwise_function(
    machine: Machine, op: ir.Operation, name: str, types: Sequence[TensorType], result: TensorType
) -> Callable[..., Array]:
    numerics = machine.numerics
    if name == "cmp":
        return COMPARISONS[cleave.plain_attrs(op, OPS[name])["predicate"]]
    if name == "select":
        return np.where
    if name == "cast":
        source = types[0].dtype
        if is_literal(op.operands[0]) and is_float(source) and is_float(result.dtype):
            return lambda x: numerics.literal(x, result.dtype)
        return lambda x: numerics.cast(x, source, result.dtype)

    def function(*xs: Array) -> Array:
        return numerics.pointwise(name, xs, result.dtype)

    changed = {"sub": empty_rows.difference, "div": empty_rows.quotient}.get(name)
    return changed(op, function) if changed and empty_rows.applies(op) else function


def constant(machine: Machine, op: ir.Operation) -> Step:
    dtype = cleave.tensor_type_of(op.results[0]).dtype
    value = machine.numerics.literal(cleave.plain_attrs(op, OPS["constant"])["value"], dtype)
    return lambda: np.full(result_shape(machine, op), value, value.dtype)


def index(machine: Machine, op: ir.Operation) -> Step:
    dtype = cleave.tensor_type_of(op.results[0]).dtype
    return lambda: np.arange(result_shape(machine, op)[0]).astype(machine.numerics.storage(dtype))


#: kind: the function over axes, and the value that changes nothing
_REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[[np.dtype[Any]], Any]]] = {
    "sum": (np.sum, lambda dtype: 0),
    "prod": (np.prod, lambda dtype: 1),
    "max": (np.max, lambda dtype: _extreme(dtype, "min", -np.inf)),
    "min": (np.min, lambda dtype: _extreme(dtype, "max", np.inf)),
}


def _extreme(dtype: np.dtype[Any], side: str, infinity: float) -> Any:
    if dtype == np.bool_:
        return side == "max"
    return getattr(np.iinfo(dtype), side) if dtype.kind == "i" else infinity


def reduce(machine: Machine, op: ir.Operation) -> Step:
    (source,), result = types_of(op)
    attrs = cleave.plain_attrs(op, OPS["reduce"])
    function, neutral = _REDUCTIONS[attrs["kind"]]
    kept = [name for name in source.names if name not in attrs["over"]]
    axes = tuple(source.names.index(name) for name in attrs["over"])
    compute = machine.numerics.compute(accumulator(source.dtype))

    def step(x: Tensor) -> Tensor:
        data, exists = parts(x)
        for name, extent in zip(source.names, data.shape, strict=True):
            if extent == 0 and name in attrs["over"] and attrs["kind"] in ("max", "min"):
                raise CleaveError(f"{attrs['kind']} over the empty dimension '{name}' has no value")
        data = data.astype(compute, copy=False)
        if exists is not None:
            data = np.where(exists, data, neutral(compute))
        total = function(data, axis=axes, **({"dtype": compute} if attrs["kind"] in ("sum", "prod") else {}))
        return align_whole(machine.numerics.round(total, result.dtype), remaining(exists, axes), kept, result.names)

    return step


def remaining(exists: Array | None, axes: tuple[int, ...]) -> Array | None:
    """Where a reduction's results exist: where any element of those that are reduced did."""
    return None if exists is None else np.asarray(exists.any(axis=axes))


def align_whole(data: Array, exists: Array | None, names: Sequence[str], target: Sequence[str]) -> Tensor:
    """``align`` for a value and, if it has one, its mask."""
    return whole(align(data, names, target), None if exists is None else align(exists, names, target))


def contract(machine: Machine, op: ir.Operation) -> Step:
    types, result = types_of(op)
    over = cleave.plain_attrs(op, OPS["contract"])["over"]
    names = [type_.names for type_ in types]
    batch = [name for name in result.names if name in names[0] and name in names[1]]
    left = [name for name in result.names if name not in names[1]]
    right = [name for name in result.names if name not in names[0]]
    compute = machine.numerics.compute(
        "f64" if "f64" in (types[0].dtype, types[1].dtype) else accumulator(types[0].dtype)
    )

    kept = [*batch, *left, *right]
    axes = tuple(range(len(kept), len(kept) + len(over)))

    def step(*operands: Tensor) -> Tensor:
        (a, b), exists = aligned(operands, types, [*kept, *over])
        a, b = a.astype(compute), b.astype(compute)
        if exists is not None:  # what does not exist on one side is zero on both: 0 times NaN would not do
            a, b = np.where(exists, a, compute.type(0)), np.where(exists, b, compute.type(0))
        total = _matmul(a, b, len(batch), len(left), len(right))
        return align_whole(machine.numerics.round(total, result.dtype), remaining(exists, axes), kept, result.names)

    return step


def _matmul(a: Array, b: Array, batch: int, left: int, right: int) -> Array:
    """The sum of products over the last axes of arrays with batch, left, right and reduced axes."""
    free, depth = batch + left + right, a.ndim
    space = np.broadcast_shapes(a.shape, b.shape)
    if any(n > 1 for n in a.shape[batch + left : free]) or any(n > 1 for n in b.shape[batch : batch + left]):
        return (a * b).sum(axis=tuple(range(free, depth)), dtype=a.dtype)  # a mask has mixed the dims
    one = np.ones((), a.dtype)
    over = space[free:]
    a = np.broadcast_to(a * one, (*space[: batch + left], *(1,) * right, *over))
    b = np.broadcast_to(b * one, (*space[:batch], *(1,) * left, *space[batch + left : free], *over))
    count = int(np.prod(over))
    a = a.reshape(*space[:batch], int(np.prod(space[batch : batch + left])), count)
    b = b.reshape(*space[:batch], int(np.prod(space[batch + left : free])), count)
    return np.matmul(a, b.swapaxes(-1, -2)).reshape(space[:free])


def structural(function: Callable[..., Array]) -> Step:
    """A step that moves elements: the same for the data and for where they exist."""

    def step(*operands: Tensor) -> Tensor:
        pairs = [parts(operand) for operand in operands]
        data = function(*(data for data, _ in pairs))
        if all(mask is None for _, mask in pairs):
            return data
        masks = (np.broadcast_to(True if mask is None else mask, data.shape) for data, mask in pairs)
        return whole(data, function(*masks))

    return step


def split(machine: Machine, op: ir.Operation) -> Step:
    (source,), _ = types_of(op)
    axis = source.names.index(cleave.plain_attrs(op, OPS["split"])["dim"])

    def step(x: Tensor) -> Tensor:
        outer, inner = result_shape(machine, op)[axis : axis + 2]
        extent = parts(x)[0].shape[axis]
        if outer * inner < extent:
            raise CleaveError(f"{outer} parts of {inner} do not cover extent {extent}")

        def cut(data: Array) -> Array:
            padding = [(0, outer * inner - extent if i == axis else 0) for i in range(data.ndim)]
            return np.pad(data, padding).reshape(*data.shape[:axis], outer, inner, *data.shape[axis + 1 :])

        cut_step = structural(cut)
        exists = np.ones([extent if i == axis else 1 for i in range(len(source.dims))], np.bool_)
        data, old = parts(x)
        return cut_step(x if outer * inner == extent else Partial(data, exists if old is None else exists & old))

    return step


def merge(machine: Machine, op: ir.Operation) -> Step:
    (source,), result = types_of(op)
    names = cleave.plain_attrs(op, OPS["merge"])["dims"]
    into = next(name for name in result.names if name not in source.names or name in names)
    order = [part for name in result.names for part in (names if name == into else (name,))]
    axis = result.names.index(into)

    def step(x: Tensor) -> Tensor:
        extent = result_shape(machine, op)[axis]

        def join(data: Array) -> Array:
            data = align(data, source.names, order)
            joined = data.reshape(*data.shape[:axis], -1 if data.size else _count(data, axis, len(names)),
                                  *data.shape[axis + len(names) :])  # fmt: skip
            if joined.shape[axis] < extent:
                raise CleaveError(f"'{into}' has extent {extent}, the merged dimensions have {joined.shape[axis]}")
            return joined[(slice(None),) * axis + (slice(extent),)]

        return structural(join)(x)

    return step


def _count(data: Array, axis: int, number: int) -> int:
    return int(np.prod(data.shape[axis : axis + number]))


def rename(machine: Machine, op: ir.Operation) -> Step:
    return lambda x: x


def slice_(machine: Machine, op: ir.Operation) -> Step:
    (source,), _ = types_of(op)
    attrs = cleave.plain_attrs(op, OPS["slice"])
    axis, start = source.names.index(attrs["dim"]), parse(attrs["offset"])

    def step(x: Tensor) -> Tensor:
        first, extent = machine.symbols.evaluate(start), result_shape(machine, op)[axis]
        if first < 0 or first + extent > parts(x)[0].shape[axis]:
            raise CleaveError(
                f"[{first}, {first + extent}) leaves '{attrs['dim']}' of extent {parts(x)[0].shape[axis]}"
            )
        return structural(lambda data: data[(slice(None),) * axis + (slice(first, first + extent),)])(x)

    return step


def concat(machine: Machine, op: ir.Operation) -> Step:
    types, _ = types_of(op)
    names = cleave.plain_attrs(op, OPS["concat"])["dims"]
    axis = types[0].names.index(names[0])
    order = [names[1] if name == names[0] else name for name in types[0].names]
    return structural(lambda a, b: np.concatenate([a, align(b, types[1].names, order)], axis))


def gather(machine: Machine, op: ir.Operation) -> Step:
    types, result = types_of(op)
    gathered = cleave.plain_attrs(op, OPS["gather"])["dim"]

    def step(x: Tensor, indices: Tensor) -> Tensor:
        if isinstance(x, Partial) or isinstance(indices, Partial):
            raise CleaveError("gather of a tensor some of whose elements do not exist is not supported")
        positions = align(indices, types[1].names, result.names)
        extent = x.shape[types[0].names.index(gathered)]
        if positions.size and (positions.min() < 0 or positions.max() >= extent):
            raise CleaveError(f"an index leaves '{gathered}' of extent {extent}")
        along = {name: align(np.arange(n), [name], result.names)
                 for name, n in zip(types[0].names, x.shape, strict=True) if name != gathered}  # fmt: skip
        return x[tuple(positions if name == gathered else along[name] for name in types[0].names)]

    return step


RULES: dict[str, Rule] = {
    **{f"cleave.{name}": pointwise for name in POINTWISE},
    "cleave.constant": constant,
    "cleave.index": index,
    "cleave.contract": contract,
    "cleave.reduce": reduce,
    "cleave.split": split,
    "cleave.merge": merge,
    "cleave.rename": rename,
    "cleave.slice": slice_,
    "cleave.concat": concat,
    "cleave.gather": gather,
}
