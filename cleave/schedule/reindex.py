"""Changes of indices, moved through ops to where data is read: splits, slices, merges, positions along a dim.

f(x, y)[i] = f(x[i], y[i]) for pointwise ops, and alike for reductions over other dims. So whatever picks elements of a
computed value picks elements of the tensors in memory instead, and nothing needs to be materialised.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cleave.dialects.dims import Dim, Size
from cleave.dialects.graph import Value
from cleave.dialects.ops import POINTWISE, REDUCTIONS, VIEWS
from cleave.dialects.tensor_type import TensorType
from cleave.errors import CleaveError
from cleave.schedule.bottom_up import bottom_up

_MOVABLE = POINTWISE | REDUCTIONS | {"gather"}
"""Ops that changes of indices are moved through."""
POSITION = "position"
"""On a cast: what it casts is a position along a dim."""


@dataclass(frozen=True)
class Change:
    """``dims`` in place of dim ``name``: ``memory`` applies it to a tensor in memory, ``index`` to an ``index`` op.

    Equal ``key``: the same change.
    """

    name: str
    dims: tuple[Dim, ...]
    memory: Callable[[Value], Value]
    index: Callable[[Value], Value]
    key: Hashable

    def applied(self, type_: TensorType) -> TensorType:
        """Dims that the type has already are not added: they are aligned."""
        new = tuple(dim for dim in self.dims if dim.name == self.name or dim.name not in type_.names)
        dims = tuple(each for dim in type_.dims for each in (new if dim.name == self.name else (dim,)))
        return TensorType(dims, type_.dtype)


class Mover:
    """``apart(value, names)``: the value with none of ``names`` bound in its op (reduced, or gathered along)."""

    def __init__(self, in_memory: Callable[[Value], bool], apart: Callable[[Value, frozenset[str]], Value]) -> None:
        self.in_memory, self.apart = in_memory, apart
        self._moved: dict[tuple[Value, Hashable], Value] = {}

    def move(self, value: Value, change: Change) -> Value:
        """``value`` changed; CleaveError, located, at an op that no change passes."""
        if change.name not in value.names:
            return value

        def operands(key: tuple[Value, Hashable]) -> list[tuple[Value, Hashable]]:
            return [(operand, change.key) for operand in self._unmoved(key[0], change)]

        return bottom_up(self._moved, (value, change.key), operands, lambda key: self._move(key[0], change))

    def _unmoved(self, value: Value, change: Change) -> list[Value]:
        """The operands that are changed as ``value`` is, where no bound dim gets in the way, as it rarely does."""
        bound = any(dim.name in bound_names(value) for dim in change.dims)
        passes = value.op in _MOVABLE and not bound and not self.in_memory(value)
        return [operand for operand in value.operands if change.name in operand.names] if passes else []

    def _move(self, value: Value, change: Change) -> Value:
        type_ = change.applied(value.type)
        if self.in_memory(value):
            return change.memory(value)
        if value.op == "constant":
            return Value("constant", (), type_, value.attrs, value.location)
        if value.op == "index":
            return change.index(value)
        if value.op not in _MOVABLE:
            text = f"cleave.{value.op} of a computed value, of which only some elements are read, cannot be scheduled"
            raise CleaveError(text, value.location, ("it can where its operand is an input or a result",))
        value = self.apart(value, frozenset(dim.name for dim in change.dims))
        operands = tuple(self.move(operand, change) for operand in value.operands)
        return Value(value.op, operands, type_, unbounded(value.attrs), value.location)


def bound_names(value: Value) -> tuple[str, ...]:
    """The dims that end in this op: those it reduces, or the one it gathers along."""
    if value.op == "gather":
        return (value.attrs["dim"],)
    return tuple(value.attrs.get("over", ()))


def unbounded(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a gather without the word that its indices leave the source where their own dims end."""
    return {name: attr for name, attr in attrs.items() if name != "bounded"}


# --- the changes ------------------------------------------------------------------------------------------------------


def splitting(name: str, outer: Dim, inner: Dim, size: Callable[[Size], Value]) -> Change:
    """Dim ``name`` in parts; ``size`` makes a size's value, i64."""

    def memory(value: Value) -> Value:
        attrs = {"dim": name, "into": (str(outer), str(inner))}
        return Value("split", (value,), change.applied(value.type), attrs, value.location)

    def index(value: Value) -> Value:
        i, j = positions(outer), positions(inner)
        return _position(arithmetic("add", arithmetic("mul", i, size(inner.size)), j), value.dtype)

    change = Change(name, (outer, inner), memory, index, ("split", name, outer, inner))
    return change


def slicing(name: str, into: Dim, offset: Size, size: Callable[[Size], Value]) -> Change:
    """From ``offset`` on, as many as ``into`` has."""

    def memory(value: Value) -> Value:
        attrs = {"dim": name, "into": str(into), "offset": str(offset)}
        return Value("slice", (value,), change.applied(value.type), attrs, value.location)

    def index(value: Value) -> Value:
        return _position(arithmetic("add", positions(into), size(offset)), value.dtype)

    change = Change(name, (into,), memory, index, ("slice", name, into, offset))
    return change


def gathering(name: str, indices: Value, *, bounded: bool = False) -> Change:
    """The elements at ``indices``.

    ``bounded``: past the end of one of their own dims the indices are outside of ``name`` too.
    """

    def memory(value: Value) -> Value:
        _require_whole(value, name)
        attrs = {"dim": name, **({"bounded": True} if bounded else {})}
        return Value("gather", (value, indices), change.applied(value.type), attrs, value.location)

    def index(value: Value) -> Value:
        return cast(indices, value.dtype)

    change = Change(name, indices.dims, memory, index, ("gather", name, indices))
    return change


def _position(value: Value, dtype: str) -> Value:
    """A position along a dim: where it is too large for its type there is no element."""
    return replace(cast(value, dtype), attrs={POSITION: True}) if value.dtype != dtype else value


def _require_whole(value: Value, name: str) -> None:
    """CleaveError where ``name`` is one of the dims of a split: how much of it exists depends on the other one."""
    view = value
    while view.op in VIEWS:
        if view.op == "split" and {name} & {Dim.parse(text).name for text in view.attrs["into"]}:
            text = f"elements at positions along '{name}', a dimension made by cleave.split, cannot be scheduled yet"
            raise CleaveError(text, view.location)
        view = view.operands[0]


# --- values of integers -----------------------------------------------------------------------------------------------


def positions(dim: Dim) -> Value:
    """0, 1, … along a dim, i64."""
    return Value("index", (), TensorType((dim,), "i64"), {"dim": str(dim)})


def arithmetic(op: str, a: Value, b: Value) -> Value:
    dims = (*a.dims, *(dim for dim in b.dims if dim.name not in a.names))
    return Value(op, (a, b), TensorType(dims, a.dtype))


def cast(value: Value, dtype: str) -> Value:
    return value if value.dtype == dtype else Value("cast", (value,), TensorType(value.dims, dtype))


def size_value(size: Size, name: str) -> Value:
    """A size as a rank-0 value, i64: a number, or the sum of as many ones along a dim of this name."""
    scalar = TensorType((), "i64")
    if size.value is not None:
        return Value("constant", (), scalar, {"value": size.value})
    ones = Value("constant", (), TensorType((Dim(name, size),), "i64"), {"value": 1})
    return Value("reduce", (ones,), scalar, {"kind": "sum", "over": (name,)})


def is_of_equal_elements(value: Value) -> bool:
    """Whether the op is a reduction that needs no loop: what ``size_value`` makes, and the like."""
    return value.op == "reduce" and value.operands[0].op == "constant" and value.attrs["kind"] != "prod"
