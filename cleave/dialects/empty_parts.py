"""Parts of a split that are wholly past the end of its dim: a reduction over the parts skips them.

Inside a part the elements that do not exist are masked when they are reduced; what is left of a part without any is the
value that changes nothing in that reduction, −∞ of a maximum. A later reduction over the parts takes it for a part like
others, which is right only where it changes nothing there, too. ``without_empty_parts`` says the rest in ops.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleave.dialects.dims import Answer, Dim, Size, ceildiv
from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import TensorType, is_float
from cleave.errors import CleaveError

_NEUTRAL = {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf}


def without_empty_parts(graph: Graph, finite: bool = False) -> Graph:
    """The graph in which parts that do not exist change no reduction; itself where none could.

    ``finite``: whether what all parts share may be taken to be finite where it is a factor, as in splits of the search:
    it moves factors into sums of parts, of which NaN may come with infinite ones anyway.
    CleaveError, located, for a reduction over a dim of which they are some elements here and there.
    """
    if not any(value.op == "split" for value in graph.topological()):
        return graph
    return _Rewriter(graph, finite).rewritten()


@dataclass(frozen=True)
class _Parts:
    """What is cut: for the inner dims of splits, by name, the outer one and how many parts exist; and for dims along
    which only the first so many elements exist, how many. None: those that exist are no first ones."""

    inner: Mapping[str, tuple[str, Size]]
    outer: Mapping[str, Size | None]

    def renamed(self, old: str, new: str) -> _Parts:
        def name(dim: str) -> str:
            return new if dim == old else dim

        inner = {name(dim): (name(parts), count) for dim, (parts, count) in self.inner.items()}
        return _Parts(inner, {name(dim): count for dim, count in self.outer.items()})

    def reduced(self, over: frozenset[str]) -> _Parts:
        left = {parts: count for dim, (parts, count) in self.inner.items() if dim in over and parts not in over}
        inner = {dim: pair for dim, pair in self.inner.items() if not over & {dim, pair[0]}}
        return _Parts(inner, {dim: count for dim, count in {**self.outer, **left}.items() if dim not in over})

    def scattered(self, changed: frozenset[str], into: str) -> _Parts:
        """After a change of indices of these dims."""
        inner = {dim: pair for dim, pair in self.inner.items() if not changed & {dim, pair[0]}}
        outer = {dim: count for dim, count in self.outer.items() if dim not in changed}
        return _Parts(inner, {**outer, into: None} if changed & self.outer.keys() else outer)


_ALL = _Parts({}, {})


class _Rewriter:
    def __init__(self, graph: Graph, finite: bool) -> None:
        self.graph, self.facts, self.finite = graph, graph.facts.given(graph.extents), finite
        self.parts: dict[Value, _Parts] = {}
        self.new: dict[Value, Value] = {}
        self.names = {dim.name for value in graph.topological() for dim in value.dims}

    def rewritten(self) -> Graph:
        for value in self.graph.topological():
            self.parts[value] = self._parts(value)
            operands = tuple(self.new[operand] for operand in value.operands)
            if value.op in ("reduce", "contract"):
                operands = self._masked(value, operands)
            self.new[value] = value if operands == value.operands else replace(value, operands=operands)
        outputs = tuple(self.new[value] for value in self.graph.outputs)
        return self.graph if outputs == self.graph.outputs else replace(self.graph, outputs=outputs)

    def _parts(self, value: Value) -> _Parts:
        found = [self.parts[operand] for operand in value.operands]
        inner = {dim: pair for parts in found for dim, pair in parts.inner.items()}
        outer = {dim: count for parts in found for dim, count in parts.outer.items()}
        parts = _Parts(inner, outer) if inner or outer else _ALL
        if value.op == "split":
            return self._split(value, parts)
        if parts is _ALL:
            return _ALL
        return self._changed(value, parts)

    def _changed(self, value: Value, parts: _Parts) -> _Parts:
        attrs = value.attrs
        if value.op in ("reduce", "contract"):
            return parts.reduced(frozenset(attrs["over"]))
        if value.op == "rename":
            return parts.renamed(attrs["from"], Dim.parse(attrs["to"]).name)
        if value.op in ("slice", "merge", "concat"):
            changed = attrs["dims"] if "dims" in attrs else (attrs["dim"],)
            return parts.scattered(frozenset(changed), Dim.parse(attrs["into"]).name)
        return parts.reduced(frozenset((attrs["dim"],))) if value.op == "gather" else parts

    def _split(self, value: Value, parts: _Parts) -> _Parts:
        dim, (outer, inner) = value.attrs["dim"], (Dim.parse(text).name for text in value.attrs["into"])
        scattered = parts.scattered(frozenset((dim,)), outer)
        count = ceildiv(value.operands[0].size(dim), value.size(inner))
        if self.facts.less_equal(value.size(outer), count) is Answer.YES:
            return scattered
        return replace(scattered, inner={**scattered.inner, inner: (outer, count)})

    def _masked(self, value: Value, operands: tuple[Value, ...]) -> tuple[Value, ...]:
        """The operands of a reduction with what changes nothing in it where a part does not exist."""
        kind, masked = value.attrs.get("kind", "sum"), list(operands)
        for dim in value.attrs["over"]:
            counts = [self.parts[each].outer[dim] for each in value.operands if dim in self.parts[each].outer]
            if not counts:
                continue
            count = None if None in counts else counts[0]
            for number in _harmful(kind, _Empty(self.parts, dim, self.finite).factors(value)):
                neutral = _nothing(kind, masked[number].dtype)
                masked[number] = self._where(masked[number], dim, count, value, neutral)
        return tuple(masked)

    def _where(self, operand: Value, dim: str, count: Size | None, reduction: Value, neutral: float) -> Value:
        if count is None:
            text = f"some elements along '{dim}' are parts of a split that are past its end, and are not skipped yet"
            raise CleaveError(text, reduction.location, ("reduce over the parts before they are cut or joined",))
        along = next(each for one in reduction.operands for each in one.dims if each.name == dim)
        index = Value("index", (), TensorType((along,), "i64"), {"dim": str(along)})
        exists = Value("cmp", (index, self._number(count)), TensorType((along,), "i1"), {"predicate": "lt"})
        nothing = Value("constant", (), TensorType((), operand.dtype), {"value": neutral})
        dims = operand.dims if dim in operand.names else (along, *operand.dims)
        return Value("select", (exists, operand, nothing), TensorType(dims, operand.dtype), {}, reduction.location)

    def _number(self, size: Size) -> Value:
        """i64: a static size, or as many ones."""
        scalar, value = TensorType((), "i64"), self.facts.simplify(size).value
        if value is not None:
            return Value("constant", (), scalar, {"value": value})
        name = next(
            name for name in (f"parts{number}" for number in range(len(self.names) + 1)) if name not in self.names
        )
        self.names.add(name)
        ones = Value("constant", (), TensorType((Dim(name, size),), "i64"), {"value": 1})
        return Value("reduce", (ones,), scalar, {"kind": "sum", "over": (name,)})


def _harmful(kind: str, empty: Sequence[float | None]) -> list[int]:
    """Which operands of a reduction must be masked in a part that does not exist, by what they are there.

    What changes nothing in a sum is a product of numbers of which one is 0.
    """
    if len(empty) == 1:
        return [] if empty[0] == _NEUTRAL[kind] else [0]
    found = [number for number, known in enumerate(empty) if known is None or math.isinf(known)]
    return found if found or 0 in empty else [0]


def _neutral(kind: str, dtype: str) -> float:
    """What changes nothing in a reduction, where an integer's smallest and largest number count as infinite."""
    return {"max": 0, "min": 1}.get(kind, _NEUTRAL[kind]) if dtype == "i1" else _NEUTRAL[kind]


def _nothing(kind: str, dtype: str) -> float:
    """What changes nothing in a reduction, as a number of this type."""
    neutral = _neutral(kind, dtype)
    if is_float(dtype) or math.isfinite(neutral):
        return neutral
    half = 2 ** (int(dtype[1:]) - 1)
    return half - 1 if neutral > 0 else -half


class _Empty:
    """What a value is, for certain, in a part along ``dim`` that does not exist; None where nobody knows.

    The integer that changes nothing in a maximum counts as −∞.
    """

    def __init__(self, parts: Mapping[Value, _Parts], dim: str, finite: bool) -> None:
        self.parts, self.dim, self.finite = parts, dim, finite
        self.known: dict[Value, float | None] = {}

    def of(self, value: Value) -> float | None:
        if value not in self.known:
            self.known[value] = self._of(value)
        return self.known[value]

    def factors(self, value: Value) -> list[float | None]:
        """The operands of a product, or of another op of one operand."""
        found = [self.of(operand) for operand in value.operands]
        if not self.finite or 0 not in found:
            return found
        pairs = zip(found, value.operands, strict=True)
        return [1.0 if known is None and self.dim not in each.names else known for known, each in pairs]

    def _of(self, value: Value) -> float | None:
        if value.op == "constant":
            return _rounded(float(value.attrs["value"]), value.dtype)
        if self.dim not in value.names:
            return None
        if value.op in ("reduce", "contract"):
            return self._reduced(value)
        if value.op == "rename" and Dim.parse(value.attrs["to"]).name == self.dim:
            return _Empty(self.parts, value.attrs["from"], self.finite).of(value.operands[0])
        if value.op in ("slice", "merge") and Dim.parse(value.attrs["into"]).name == self.dim:
            return self._before(value)
        if value.op in ("rename", "slice", "merge", "split"):
            return self.of(value.operands[0])
        operands = self.factors(value) if value.op == "mul" else [self.of(operand) for operand in value.operands]
        if value.op == "sub" and operands[0] == -math.inf and self._is_bound(value.operands[1], value.operands[0]):
            return -math.inf
        return _computed(value, operands)

    def _is_bound(self, bound: Value, value: Value) -> bool:
        """Whether it is at least the value in each part: −∞ only where all of them are, which makes NaN of all."""
        if bound.op == "max":
            return any(self._is_bound(operand, value) for operand in bound.operands)
        is_maximum = bound.op == "reduce" and bound.attrs["kind"] == "max" and self.dim in bound.attrs["over"]
        return is_maximum and bound.operands[0] is value

    def _is_masked(self, value: Value) -> bool:
        """Whether elements that do not exist change nothing: kernels fill them in at loads, and of what is infinite
        for the whole part, such as its maximum, NaN may come."""
        if any(parts == self.dim for parts, _ in self.parts[value].inner.values()):
            return value.op in ("reduce", "contract") or all(map(self._is_masked, value.operands))
        known = self.of(value) if self.dim in self.parts[value].outer else 0
        return known is not None and math.isfinite(known)

    def _before(self, view: Value) -> float | None:
        """Along the dims that became this one."""
        dims = view.attrs["dims"] if "dims" in view.attrs else (view.attrs["dim"],)
        absent = [dim for dim in dims if dim in self.parts[view.operands[0]].outer]
        found = {_Empty(self.parts, dim, self.finite).of(view.operands[0]) for dim in absent}
        return found.pop() if len(found) == 1 else None

    def _reduced(self, value: Value) -> float | None:
        kind, over = value.attrs.get("kind", "sum"), value.attrs["over"]
        inner = [pair[0] for each in value.operands for dim, pair in self.parts[each].inner.items() if dim in over]
        if self.dim in inner:
            return _neutral(kind, value.dtype) if all(map(self._is_masked, value.operands)) else None
        elements = self.factors(value)
        if kind in ("max", "min"):
            return elements[0]
        return _NEUTRAL[kind] if not _harmful(kind, elements) else None


def _computed(value: Value, operands: list[float | None]) -> float | None:
    """By one op on elements."""
    if value.op == "mul" and not is_float(value.dtype) and 0 in operands:
        return 0
    if value.op == "select" and operands[0] is not None:
        return operands[1] if operands[0] else operands[2]
    if value.op == "select":
        return operands[1] if operands[1] == operands[2] else None
    numbers = [operand for operand in operands if operand is not None]
    name = value.attrs["predicate"] if value.op == "cmp" else value.op
    if name not in _COMPUTED or not numbers or len(numbers) < len(operands):
        return None
    result = () if value.op == "cmp" else (value.dtype,)
    floats = all(map(is_float, (*result, *(operand.dtype for operand in value.operands))))
    if not floats and any(map(math.isinf, numbers)):
        return None
    try:
        return _rounded(float(_COMPUTED[name](*numbers)), value.dtype)
    except (ArithmeticError, ValueError):
        return None


def _rounded(number: float, dtype: str) -> float | None:
    """As a value of this type; None for NaN and for what it may have to round to 0 or to an infinity."""
    if not is_float(dtype):
        return number if number.is_integer() and abs(number) < (2 if dtype == "i1" else 128) else None
    least, largest = _NORMAL.get(dtype, (2.0**-126, 2.0**127))
    if math.isinf(number):
        return None if dtype == "f8E4M3FN" else number
    return number if number == 0 or least <= abs(number) <= largest else None


_NORMAL = {"f16": (2.0**-14, 65504.0), "f8E4M3FN": (1.0, 1.0), "f8E5M2": (1.0, 1.0)}

_COMPUTED: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("neg", "add", "sub", "mul", "lt", "le", "eq", "ne", "gt", "ge")},
    "div": operator.truediv, "cast": float, "max": max, "min": min, "exp": math.exp, "exp2": lambda x: 2.0**x,
    "log": math.log, "sqrt": math.sqrt, "abs": abs,
}  # fmt: skip
"""Ops on numbers."""
