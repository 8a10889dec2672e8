"""Graphs on small arrays, in any domain of elements: the structure of evaluation, without the arithmetic.

Used by the checks only, and shares no code with the normal form. A dimension that is cut unevenly leaves places past
the end; reductions skip them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from cleave.dialects import ops, rounding
from cleave.dialects.dims import Dim, parse
from cleave.dialects.graph import Graph, Value

MAX_HELD = 1 << 18  # elements that a memo keeps


class Unsupported(Exception):
    """The domain cannot evaluate the op."""


def _positions(array: Any, dtype: str) -> Any:
    """Integers as an array index; those that are not bounded wrap as their type does."""
    import numpy as np

    half = 1 << (63 if dtype == "index" else int(dtype[1:]) - 1)
    wrap = np.frompyfunc(lambda position: (int(position) + half) % (2 * half) - half, 1, 1)
    return np.asarray(wrap(array) if array.dtype == object else array, dtype=np.int64)


class Named(NamedTuple):
    """An array whose axes have names."""

    array: Any
    names: tuple[str, ...]


class Places(NamedTuple):
    """Which places of a dim that is cut in two exist, outer by inner: the first ``extent``."""

    outer: str
    inner: str
    extent: int
    exist: Any


class Memo:
    """What values came out as, in one domain at one set of sizes: what graphs have in common is evaluated once.

    Each way to compute a value from given arrays has a number. The first ``MAX_HELD`` elements are kept.
    """

    def __init__(self) -> None:
        self.kept: dict[int, Named] = {}
        self._numbers: dict[Hashable, int] = {}
        self._held = 0

    def number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def number_of_input(self, array: Any, names: tuple[str, ...]) -> int:
        """Inputs are told apart by identity, so they are always kept."""
        number = self.number((id(array), names))
        self.kept[number] = Named(array, names)
        return number

    def keep(self, number: int, made: Named) -> None:
        self._held += made.array.size
        if self._held <= MAX_HELD:
            self.kept[number] = made


class Domain(Protocol):
    """Elementwise arithmetic on arrays that broadcast, and reductions along axes."""

    def constant(self, value: float | int, dtype: str) -> Any: ...
    def positions(self, count: int, dtype: str) -> Any: ...
    def pointwise(self, value: Value, args: Sequence[Any]) -> Any: ...
    def contract(self, factors: Sequence[Any], axes: tuple[int, ...], valid: Any, value: Value) -> Any: ...
    def reduce(self, kind: str, array: Any, axes: tuple[int, ...], valid: Any, value: Value) -> Any: ...
    def rounded(self, array: Any, value: Value, transparent: bool) -> Any: ...


class Interpreter:
    """Evaluates a graph for given sizes of its symbols. ``memo``: of the same domain and sizes, to share among runs."""

    def __init__(self, domain: Domain, sizes: Mapping[str, int], memo: Memo | None = None) -> None:
        self.domain, self.sizes, self.memo = domain, sizes, memo or Memo()
        self.places: list[Places] = []

    def run(self, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        """The outputs' arrays, axes in the outputs' order."""
        values, transparent = _values(graph)
        results: dict[Value, Named] = {}
        numbers: dict[Value, int] = {}
        for value in values:
            if value.op == "input":
                number = self.memo.number_of_input(inputs[value.attrs["index"]], value.names)
                results[value], numbers[value] = self.memo.kept[number], number
                continue
            args = [results[operand] for operand in value.operands]
            if value.op == "split":
                self._note_places(value, args[0])
            number = self.memo.number(self._key(value, [numbers[operand] for operand in value.operands], transparent))
            made = self.memo.kept.get(number)
            if made is None:
                made = self._rounded(value, self._evaluate(value, args), transparent)
                self.memo.keep(number, made)
            results[value], numbers[value] = made, number
        return [self._ordered(results[output], output.names) for output in graph.outputs]

    def _key(self, value: Value, operands: list[int], transparent: frozenset[Value]) -> Hashable:
        """All that the value depends on: for a reduction, also the places that exist."""
        attrs = tuple((name, str(attr)) for name, attr in value.attrs.items())
        places = [(p.outer, p.inner, p.extent) for p in self._places(value)]
        return value.op, value.type, attrs, value in transparent, *operands, *places

    def _rounded(self, value: Value, made: Named, transparent: frozenset[Value]) -> Named:
        if rounding.rounds(value) or value.op == "cast" or value.op in _COMPUTED:
            return Named(self.domain.rounded(made.array, value, value in transparent), made.names)
        return made

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
        index = (slice(None) if name in value.names else None for name in names)
        return array[(..., *index)]  # without "..." an array of no axes would give its element

    def _reduce(self, value: Value, args: list[Named]) -> Named:
        over = tuple(value.attrs["over"])
        names = (*value.names, *over)
        arrays = [self._aligned(arg, names) for arg in args]
        axes = tuple(range(len(value.names), len(names)))
        exist = self._existing(value, names)
        if value.op == "contract":
            return Named(self.domain.contract(arrays, axes, exist, value), value.names)
        return Named(self.domain.reduce(value.attrs["kind"], arrays[0], axes, exist, value), value.names)

    def _places(self, value: Value) -> list[Places]:
        """Those of dims that the value reduces, or that are cut from the same dim as one that it reduces."""
        if not self.places or value.op not in ("contract", "reduce"):
            return []
        over = value.attrs["over"]
        names = (*value.names, *over)
        return [
            p for p in self.places if p.outer in names and p.inner in names and (p.outer in over or p.inner in over)
        ]

    def _existing(self, value: Value, names: Sequence[str]) -> Any:
        """Where elements exist that the value reduces; None where all do."""
        result = None
        for outer, inner, _, exist in self._places(value):
            aligned = self._aligned(Named(exist, (outer, inner)), names)
            result = aligned if result is None else result & aligned
        return result

    def _parts(self, value: Value) -> tuple[Dim, Dim, tuple[int, int]]:
        """The outer and the inner dim that a split makes, and their extents."""
        outer, inner = (Dim.parse(text) for text in value.attrs["into"])
        return outer, inner, (outer.size.evaluate(self.sizes), inner.size.evaluate(self.sizes))

    def _note_places(self, value: Value, arg: Named) -> None:
        import numpy as np

        outer, inner, counts = self._parts(value)
        extent = arg.array.shape[arg.names.index(value.attrs["dim"])]
        known = any((p.outer, p.inner) == (outer.name, inner.name) for p in self.places)
        if counts[0] * counts[1] > extent and not known:
            exist = (np.arange(counts[0] * counts[1]) < extent).reshape(counts)
            self.places.append(Places(outer.name, inner.name, extent, exist))

    def _split(self, value: Value, args: list[Named]) -> Named:
        import numpy as np

        outer, inner, counts = self._parts(value)
        axis = args[0].names.index(value.attrs["dim"])
        array = args[0].array
        places = np.arange(counts[0] * counts[1])
        taken = np.take(array, np.minimum(places, max(array.shape[axis] - 1, 0)), axis=axis)
        shape = (*array.shape[:axis], *counts, *array.shape[axis + 1 :])
        names = (*args[0].names[:axis], outer.name, inner.name, *args[0].names[axis + 1 :])
        return Named(taken.reshape(shape), names)

    def _rename(self, value: Value, args: list[Named]) -> Named:
        new = Dim.parse(value.attrs["to"]).name
        return Named(args[0].array, tuple(new if n == value.attrs["from"] else n for n in args[0].names))

    def _merge(self, value: Value, args: list[Named]) -> Named:
        merged = list(value.attrs["dims"])
        into = Dim.parse(value.attrs["into"])
        rest = [name for name in args[0].names if name not in merged]
        array = self._aligned(args[0], [*rest, *merged])
        array = array.reshape(*array.shape[: len(rest)], -1)[..., : value.size(into.name).evaluate(self.sizes)]
        return Named(array, (*rest, into.name))

    def _slice(self, value: Value, args: list[Named]) -> Named:
        import numpy as np

        into = Dim.parse(value.attrs["into"])
        start = parse(str(value.attrs["offset"])).evaluate(self.sizes)
        axis = args[0].names.index(value.attrs["dim"])
        places = np.arange(start, start + into.size.evaluate(self.sizes))
        names = tuple(into.name if n == value.attrs["dim"] else n for n in args[0].names)
        return Named(np.take(args[0].array, places, axis=axis), names)

    def _gather(self, value: Value, args: list[Named]) -> Named:
        source, indices = args
        if set(source.names) & set(indices.names):
            raise Unsupported("a gather with shared dims is not evaluated")
        axis = source.names.index(value.attrs["dim"])
        names = (*source.names[:axis], *indices.names, *source.names[axis + 1 :])
        before = (slice(None),) * axis
        places = _positions(indices.array, value.operands[1].dtype)
        return Named(source.array[(*before, places, ...)], names)

    def _concat(self, value: Value, args: list[Named]) -> Named:
        import numpy as np

        into = Dim.parse(value.attrs["into"]).name
        rest = [name for name in value.names if name != into]
        parts = [self._aligned(arg, [*rest, name]) for arg, name in zip(args, value.attrs["dims"], strict=True)]
        return Named(np.concatenate(parts, axis=len(rest)), (*rest, into))


@lru_cache(maxsize=2)  # a program is evaluated on many inputs in turn
def _values(graph: Graph) -> tuple[list[Value], frozenset[Value]]:
    """The graph's values, operands first, and those whose rounding is transparent."""
    values = graph.topological()
    return values, rounding.transparent(values, graph.outputs)


_COMPUTED = frozenset(
    "add sub mul div neg exp exp2 log sqrt rsqrt tanh erf sin cos sigmoid abs pow contract reduce constant".split()
)
