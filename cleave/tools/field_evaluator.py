"""Tensor graphs over the numbers of `field_numbers`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from cleave.dialects import rounding
from cleave.dialects.dims import Dim, parse
from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import is_float
from cleave.errors import CleaveError
from cleave.tools.field_numbers import (
    ABSENT,
    LOW,
    PRIMES,
    REDUCTIONS,
    UNKNOWN,
    Residues,
    Scalar,
    neutral_of,
    number,
    pointwise,
    rounded,
    select_,
    table_of,
)

Array = Any  # of objects: Residues, LOW, ABSENT, int or bool


def evaluate(graph: Graph, inputs: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
    """The outputs on arrays of scalars; CleaveError for what fields have no rule for."""
    order = graph.topological()
    free = rounding.transparent(order, graph.outputs)
    results: dict[Value, Array] = {}
    cuts: dict[tuple[str, ...], int] = {}  # the two dims of each split, and how many elements they share
    for value in order:
        if value.op == "input":
            results[value] = inputs[value.attrs["index"]]
            continue
        result = _apply(value, [results[operand] for operand in value.operands], sizes)
        if value.op == "split":
            halves = tuple(Dim.parse(text).name for text in value.attrs["into"])
            cuts[halves] = value.operands[0].size(value.attrs["dim"]).evaluate(sizes)
        if value.op in ("contract", "reduce"):
            result = _with_empty_sums(value, result, cuts)
        if rounding.rounds(value) and value not in free:
            result = _map(partial(rounded, value.dtype), result)
        results[value] = result
    return [results[output] for output in graph.outputs]


def _map(function: Callable[..., Scalar], *arrays: Array) -> Array:
    """The function on broadcast arrays; nothing is computed of what does not exist."""

    def guarded(*args: Scalar) -> Scalar:
        if ABSENT in args:
            return ABSENT
        if any(arg is UNKNOWN for arg in args) and function is not select_:
            return UNKNOWN
        return function(*args)

    return _boxed(np.frompyfunc(guarded, len(arrays), 1)(*arrays))


def _boxed(result: Any) -> Array:
    if isinstance(result, np.ndarray):
        return result
    array = np.empty((), dtype=object)
    array[()] = result
    return array


def _aligned(array: Array, names: Sequence[str], onto: Sequence[str]) -> Array:
    order = sorted(range(len(names)), key=lambda axis: onto.index(names[axis]))
    return array.transpose(order)[tuple(slice(None) if name in names else None for name in onto)]


def _apply(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    rule = _VIEWS.get(value.op)
    if rule is not None:
        return rule(value, args, sizes)
    over = tuple(value.attrs.get("over", ()))
    aligned = [_aligned(a, o.names, (*value.names, *over)) for a, o in zip(args, value.operands, strict=True)]
    if value.op == "contract":
        return _reduced(_map(table_of(value.dtype)["mul"], *aligned), "sum", len(over), value.dtype)
    if value.op == "reduce":
        return _reduced(aligned[0], value.attrs["kind"], len(over), value.dtype)
    return _map(pointwise(value), *aligned)


def _reduced(array: Array, kind: str, axes: int, dtype: str) -> Array:
    """Over the last axes; what does not exist is left out, and absent where nothing does."""
    step = table_of(dtype)[REDUCTIONS[kind]]

    def guarded(x: Scalar, y: Scalar) -> Scalar:
        if x is ABSENT or y is ABSENT:
            return y if x is ABSENT else x
        return UNKNOWN if x is UNKNOWN or y is UNKNOWN else step(x, y)

    for _ in range(axes):
        array = _boxed(np.frompyfunc(guarded, 2, 1).reduce(array, axis=array.ndim - 1))
    return array


def _with_empty_sums(value: Value, result: Array, cuts: Mapping[tuple[str, ...], int]) -> Array:
    """A reduction over nothing has a value, unless the place itself is past the end of a dim that is cut."""
    neutral = neutral_of(value.attrs.get("kind", "sum"), value.dtype)
    places = [
        (value.names.index(outer), value.names.index(inner), count)
        for (outer, inner), count in cuts.items()
        if outer in value.names and inner in value.names
    ]
    filled = result.copy()
    for place in np.ndindex(*result.shape):
        exists = all(place[o] * result.shape[i] + place[i] < count for o, i, count in places)
        if result[place] is ABSENT and exists:
            filled[place] = neutral
    return filled


def _constant(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    raw = value.attrs["value"]
    if not is_float(value.dtype):
        scalar: Scalar = bool(raw) if value.dtype == "i1" else int(raw)
    elif abs(raw) == float("inf") or raw != raw:
        scalar = LOW if raw == float("-inf") else UNKNOWN
    else:
        scalar = number(Fraction(raw))
    array = np.empty([dim.size.evaluate(sizes) for dim in value.dims], dtype=object)
    array.fill(scalar)
    return array


def _index(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    return np.array(range(value.dims[0].size.evaluate(sizes)), dtype=object)


def _split(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    (array,), axis = args, value.operands[0].names.index(value.attrs["dim"])
    halves = tuple(Dim.parse(text).size.evaluate(sizes) for text in value.attrs["into"])
    missing = halves[0] * halves[1] - array.shape[axis]
    padding = np.full((*array.shape[:axis], missing, *array.shape[axis + 1 :]), ABSENT, dtype=object)
    return np.concatenate([array, padding], axis).reshape((*array.shape[:axis], *halves, *array.shape[axis + 1 :]))


def _merge(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    merged, source = tuple(value.attrs["dims"]), value.operands[0].names
    into = next(name for name in value.names if name not in source)
    order = [name for name in source if name not in merged[1:]]
    order[order.index(merged[0]) : order.index(merged[0]) + 1] = merged
    array, axis = args[0].transpose([source.index(name) for name in order]), order.index(merged[0])
    array = array.reshape((*array.shape[:axis], -1, *array.shape[axis + len(merged) :]))
    extent = value.size(into).evaluate(sizes)
    return array.take(range(extent), axis)


def _slice(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    axis = value.operands[0].names.index(value.attrs["dim"])
    first, extent = parse(value.attrs["offset"]).evaluate(sizes), value.dims[axis].size.evaluate(sizes)
    if first + extent > args[0].shape[axis]:
        raise CleaveError(f"a slice leaves '{value.attrs['dim']}' at these sizes")
    return args[0].take(range(first, first + extent), axis)


def _concat(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    first, second = value.attrs["dims"]
    names = value.operands[0].names
    other = [value.operands[1].names.index(second if name == first else name) for name in names]
    return np.concatenate([args[0], args[1].transpose(other)], names.index(first))


def _gather(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    source, indices = value.operands
    result = np.empty([dim.size.evaluate(sizes) for dim in value.dims], dtype=object)
    for place in np.ndindex(*result.shape):
        at = dict(zip(value.names, place, strict=True))
        picked = args[1][tuple(at[name] for name in indices.names)]
        where = tuple(picked if name == value.attrs["dim"] else at[name] for name in source.names)
        result[place] = args[0][where]
    return result


_VIEWS: dict[str, Callable[[Value, list[Array], Mapping[str, int]], Array]] = {
    "constant": _constant, "index": _index, "split": _split, "merge": _merge, "slice": _slice, "concat": _concat,
    "gather": _gather, "rename": lambda value, args, sizes: args[0],
}  # fmt: skip


def draw(graph: Graph, sizes: Mapping[str, int], rng: random.Random) -> list[Array]:
    """Random residues for floats, small integers (0 or 1, so that they are indices too) and booleans for the others."""
    arrays: list[Array] = []
    for value in graph.inputs:
        array = np.empty([dim.size.evaluate(sizes) for dim in value.dims], dtype=object)
        for place in np.ndindex(*array.shape):
            if is_float(value.dtype):
                array[place] = Residues(tuple(rng.randrange(p) for p in PRIMES))
            else:
                array[place] = bool(rng.getrandbits(1)) if value.dtype == "i1" else rng.randrange(2)
        arrays.append(array)
    return arrays
