"""Graphs on small arrays, in any domain of elements: the structure of evaluation, without the arithmetic.

Used by the checks only, and shares no code with the normal form. A dimension that is cut unevenly leaves places past
the end; reductions skip them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from cleave.dialects import ops, rounding
from cleave.dialects.graph import Graph, Value


class Unsupported(Exception):
    """The domain cannot evaluate the op."""


class Named(NamedTuple):
    """An array whose axes have names."""

    array: Any
    names: tuple[str, ...]


class Domain(Protocol):
    """Elementwise arithmetic on arrays that broadcast, and reductions along axes."""

    def constant(self, value: float | int, dtype: str) -> Any: ...
    def positions(self, count: int, dtype: str) -> Any: ...
    def pointwise(self, value: Value, args: Sequence[Any]) -> Any: ...
    def reduce(self, kind: str, array: Any, axes: tuple[int, ...], valid: Any, value: Value) -> Any: ...
    def rounded(self, array: Any, value: Value, transparent: bool) -> Any: ...


class Interpreter:
    """Evaluates a graph for given sizes of its symbols."""

    def __init__(self, domain: Domain, sizes: Mapping[str, int]) -> None:
        self.domain, self.sizes = domain, sizes
        self.valid: list[tuple[str, str, Any]] = []  # outer, inner, which places exist

    def run(self, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        """The outputs' arrays, axes in the outputs' order."""
        values = graph.topological()
        transparent = rounding.transparent(values, graph.outputs)
        results: dict[Value, Named] = {}
        for value in values:
            if value.op == "input":
                results[value] = Named(inputs[value.attrs["index"]], value.names)
                continue
            made = self._evaluate(value, [results[operand] for operand in value.operands])
            if rounding.rounds(value) or value.op == "cast" or value.op in _COMPUTED:
                made = Named(self.domain.rounded(made.array, value, value in transparent), made.names)
            results[value] = made
        return [self._ordered(results[output], output.names) for output in graph.outputs]

    def _ordered(self, value: Named, names: Sequence[str]) -> Any:
        return value.array.transpose([value.names.index(name) for name in names])

    def _evaluate(self, value: Value, args: list[Named]) -> Named:
        if value.op == "constant":
            array = self.domain.constant(value.attrs["value"], value.dtype)
            return self._spread(Named(array, ()), value)
        if value.op == "index":
            dim = value.dims[0]
            return Named(self.domain.positions(dim.size.evaluate(self.sizes), value.dtype), (dim.name,))
        if value.op in ops.POINTWISE:
            arrays = [self._aligned(arg, value.names) for arg in args]
            return Named(self.domain.pointwise(value, arrays), value.names)
        if value.op in ("contract", "reduce"):
            return self._reduce(value, args)
        rule = getattr(self, f"_{value.op}", None)
        if rule is None:
            raise Unsupported(f"'{value.op}' is not evaluated")
        return rule(value, args)

    def _spread(self, value: Named, like: Value) -> Named:
        import numpy as np

        shape = [dim.size.evaluate(self.sizes) for dim in like.dims]
        return Named(np.broadcast_to(self._aligned(value, like.names), shape), like.names)

    def _aligned(self, value: Named, names: Sequence[str]) -> Any:
        """Axes in the order of ``names``, with extent 1 where the value has none."""
        import numpy as np

        present = [name for name in names if name in value.names]
        array = np.asarray(value.array).transpose([value.names.index(name) for name in present])
        index = tuple(slice(None) if name in value.names else None for name in names)
        return array[index]

    def _reduce(self, value: Value, args: list[Named]) -> Named:
        over = tuple(value.attrs["over"])
        names = (*value.names, *over)
        if value.op == "contract":
            array = self.domain.pointwise(_PRODUCT, [self._aligned(arg, names) for arg in args])
        else:
            array = self._aligned(args[0], names)
        axes = tuple(range(len(value.names), len(names)))
        kind = value.attrs.get("kind", "sum")
        return Named(self.domain.reduce(kind, array, axes, self._existing(names, over), value), value.names)

    def _existing(self, names: Sequence[str], over: Sequence[str]) -> Any:
        """Where elements exist, for a reduction over ``over``; None where all do."""
        result = None
        for outer, inner, valid in self.valid:
            if outer in names and inner in names and (outer in over or inner in over):
                aligned = self._aligned(Named(valid, (outer, inner)), names)
                result = aligned if result is None else result & aligned
        return result

    def _split(self, value: Value, args: list[Named]) -> Named:
        import numpy as np

        name = value.attrs["dim"]
        outer, inner = (ops.parse_dim(text) for text in value.attrs["into"])
        counts = outer.size.evaluate(self.sizes), inner.size.evaluate(self.sizes)
        axis = args[0].names.index(name)
        array = args[0].array
        extent = array.shape[axis]
        places = np.arange(counts[0] * counts[1])
        taken = np.take(array, np.minimum(places, max(extent - 1, 0)), axis=axis)
        shape = (*array.shape[:axis], *counts, *array.shape[axis + 1 :])
        if counts[0] * counts[1] > extent and not any(o == outer.name and i == inner.name for o, i, _ in self.valid):
            self.valid.append((outer.name, inner.name, (places < extent).reshape(counts)))
        names = (*args[0].names[:axis], outer.name, inner.name, *args[0].names[axis + 1 :])
        return Named(taken.reshape(shape), names)

    def _rename(self, value: Value, args: list[Named]) -> Named:
        new = ops.parse_dim(value.attrs["to"]).name
        return Named(args[0].array, tuple(new if n == value.attrs["from"] else n for n in args[0].names))

    def _merge(self, value: Value, args: list[Named]) -> Named:
        merged = list(value.attrs["dims"])
        into = ops.parse_dim(value.attrs["into"])
        rest = [name for name in args[0].names if name not in merged]
        array = self._aligned(args[0], [*rest, *merged])
        array = array.reshape(*array.shape[: len(rest)], -1)[..., : value.size(into.name).evaluate(self.sizes)]
        return Named(array, (*rest, into.name))

    def _slice(self, value: Value, args: list[Named]) -> Named:
        import numpy as np

        into = ops.parse_dim(value.attrs["into"])
        start = ops.parse(str(value.attrs["offset"])).evaluate(self.sizes)
        axis = args[0].names.index(value.attrs["dim"])
        places = np.arange(start, start + into.size.evaluate(self.sizes))
        names = tuple(into.name if n == value.attrs["dim"] else n for n in args[0].names)
        return Named(np.take(args[0].array, places, axis=axis), names)

    def _gather(self, value: Value, args: list[Named]) -> Named:
        import numpy as np

        source, indices = args
        if set(source.names) & set(indices.names):
            raise Unsupported("a gather with shared dims is not evaluated")
        axis = source.names.index(value.attrs["dim"])
        names = (*source.names[:axis], *indices.names, *source.names[axis + 1 :])
        return Named(np.take(source.array, indices.array.astype(int), axis=axis), names)

    def _concat(self, value: Value, args: list[Named]) -> Named:
        import numpy as np

        into = ops.parse_dim(value.attrs["into"]).name
        rest = [name for name in value.names if name != into]
        parts = [self._aligned(arg, [*rest, name]) for arg, name in zip(args, value.attrs["dims"], strict=True)]
        return Named(np.concatenate(parts, axis=len(rest)), (*rest, into))


_COMPUTED = frozenset(
    "add sub mul div neg exp exp2 log sqrt rsqrt tanh erf sigmoid abs pow contract reduce constant".split()
)
_PRODUCT = Value("mul", (), ops.TensorType((), "f32"))
