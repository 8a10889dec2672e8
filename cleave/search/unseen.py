"""Which elements of its inputs a program does not look at, found by changing them: they may be anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import is_float

MAX_WORK = 2500  # ops evaluated on the way, in all
MAX_GROUPS = 96  # of elements, for each input
MAX_BOUND = 64  # the largest integer constant that sizes go beyond

Run = Callable[[Sequence[Any]], list[Any]]


def roomy_sizes(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes, those of dims that positions are compared along larger than the program's integer constants."""
    values = graph.topological()
    numbers = [v.attrs["value"] for v in values if v.op == "constant" and not is_float(v.dtype)]
    largest = max((n for n in numbers if 0 <= n <= MAX_BOUND), default=0)
    symbols = {s for v in values if v.op == "index" for dim in v.dims for s in dim.size.symbols} - graph.extents.keys()
    return {s: max(n, largest + 3) if s in symbols else n for s, n in sizes.items()}


def masked_inputs(graph: Graph) -> dict[int, list[str]]:
    """Float inputs that a ``select`` may hide, and along which of their dims: all where the names have changed."""
    above: dict[Value, frozenset[int]] = {}
    found: dict[int, set[str]] = {}
    for value in graph.topological():
        above[value] = frozenset().union(*(above[operand] for operand in value.operands))
        if value.op == "input" and is_float(value.dtype):
            above[value] = frozenset((value.attrs["index"],))
        if value.op == "select" and is_float(value.dtype):
            condition, *sides = value.operands
            for index in frozenset().union(*(above[side] for side in sides)):
                found.setdefault(index, set()).update(condition.names)
    names = {index: [n for n in graph.inputs[index].names if n in dims] for index, dims in found.items()}
    return {index: kept or list(graph.inputs[index].names) for index, kept in sorted(names.items())}


def unseen(graph: Graph, inputs: Sequence[Any], run: Run) -> list[Any] | None:
    """For each input where its elements may be NaN, all at once, and the outputs stay the same; None if nowhere."""
    import numpy as np

    expected = run(inputs)
    hidden = [np.zeros(np.shape(array), bool) for array in inputs]
    arrays = list(inputs)
    for index, group in islice(_all_groups(graph, inputs), MAX_WORK // len(graph.topological())):
        tried = arrays[index].copy()
        tried[group] = np.nan
        trial = [*arrays[:index], tried, *arrays[index + 1 :]]
        if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(run(trial), expected, strict=True)):
            arrays, hidden[index][group] = trial, True
    return hidden if any(mask.any() for mask in hidden) else None


def _all_groups(graph: Graph, inputs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Groups of elements of one input after the other, those of few groups first."""
    found = {
        index: list(_groups(graph.inputs[index], inputs[index].shape, dims))
        for index, dims in masked_inputs(graph).items()
    }
    for index in sorted(found, key=lambda index: len(found[index])):
        yield from ((index, group) for group in found[index])


def _groups(value: Value, shape: Sequence[int], dims: Sequence[str]) -> Iterator[Any]:
    """Elements that have the same place along the dims; along the first of them only where these are too many."""
    axes = [value.names.index(name) for name in dims]
    while axes and _count(shape, axes) > MAX_GROUPS:
        axes.pop()
    for places in product(*(range(shape[axis]) for axis in axes)):
        index: list[Any] = [slice(None)] * len(shape)
        for axis, place in zip(axes, places, strict=True):
            index[axis] = place
        yield tuple(index)


def _count(shape: Sequence[int], axes: Sequence[int]) -> int:
    count = 1
    for axis in axes:
        count *= shape[axis]
    return count


def filled(inputs: Sequence[Any], hidden: Sequence[Any], seed: int) -> list[Any]:
    """The inputs with NaN, inf and -inf in turn where they are hidden."""
    import numpy as np

    random = np.random.default_rng(seed)
    specials = np.array([np.nan, np.inf, -np.inf])
    return [
        np.where(mask, random.choice(specials, size=np.shape(array)), array) if mask.any() else array
        for array, mask in zip(inputs, hidden, strict=True)
    ]
