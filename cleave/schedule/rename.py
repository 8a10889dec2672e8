"""Substituting dimension names in a graph, so that a reduction's dims differ from those of the result it feeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from cleave.dialects.dims import Dim, Size
from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import POINTWISE, REDUCTIONS, TensorType
from cleave.errors import CleaveError

VIEWS = frozenset(("rename", "split", "merge", "slice"))


class Part(NamedTuple):
    """The inner dim of a split: element (i, j) is i·size(inner) + j of the whole; past its end nothing exists."""

    outer: str
    whole: Size


def in_memory_order(graph: Graph) -> Graph:
    """The graph with a copy before each merge whose dims do not lie one after the other: a merge can then be a view."""
    new: dict[Value, Value] = {value: value for value in graph.inputs}
    for value in graph.topological():
        if value not in new:
            operands = tuple(new[operand] for operand in value.operands)
            if value.op == "merge":
                operands = (_together(operands[0], list(value.attrs["dims"])),)
            new[value] = value if operands == value.operands else replace(value, operands=operands)
    return replace(graph, outputs=tuple(new[value] for value in graph.outputs))


def _together(value: Value, names: list[str]) -> Value:
    """``value`` with these dims one after the other, where the first of them in memory is."""
    at = min(value.names.index(name) for name in names)
    if list(value.names[at : at + len(names)]) == names:
        return value
    rest = [name for name in value.names if name not in names]
    order = [*rest[:at], *names, *rest[at:]]
    dims = tuple(Dim(name, value.size(name)) for name in order)
    return Value("cast", (value,), TensorType(dims, value.dtype), {}, value.location)


def is_memory_view(value: Value) -> bool:
    """Whether the value is an input, or views of one: the same memory under other dims."""
    return viewed(value).op == "input"


def viewed(value: Value) -> Value:
    """What a view looks at; a value that is no view, itself."""
    while value.op in VIEWS:
        value = value.operands[0]
    return value


class Renamer:
    """Rebuilds values with other dim names; ``memory`` values are viewed through ``rename`` and not rebuilt.

    ``taken``: the names in use; ``parts``: for the inner dim of each split, the outer one and the size of the whole.
    """

    def __init__(self, memory: Iterable[Value], taken: Iterable[str], parts: Mapping[str, Part]) -> None:
        self.memory = frozenset(memory)
        self.taken = set(taken)
        self.parts = dict(parts)
        self._memo: dict[tuple[Value, tuple[tuple[str, str], ...]], Value] = {}
        self._bound: dict[tuple[str, str], str] = {}

    def fresh(self, name: str) -> str:
        """A dim name not in use yet."""
        count = 1
        while f"{name}_{count}" in self.taken:
            count += 1
        self.taken.add(f"{name}_{count}")
        return f"{name}_{count}"

    def substitute(self, value: Value, names: Mapping[str, str]) -> Value:
        """``value`` with each free dim ``old`` called ``names[old]``."""
        names = {old: new for old, new in names.items() if old in value.names and old != new}
        if not names:
            return value
        key = (value, tuple(sorted(names.items())))
        if key not in self._memo:
            self._memo[key] = self._substitute(value, names)
        return self._memo[key]

    def _substitute(self, value: Value, names: Mapping[str, str]) -> Value:
        if value in self.memory or is_memory_view(value):
            return renamed_view(value, names)
        type_ = TensorType(tuple(Dim(names.get(d.name, d.name), d.size) for d in value.dims), value.dtype)
        if value.op == "index":
            return Value("index", (), type_, {"dim": str(type_.dims[0])}, value.location)
        operands, attrs = value.operands, value.attrs
        captured = {name: self.fresh(name) for name in attrs.get("over", ()) if name in names.values()}
        # the inner dim of a split goes with its outer dim: another part, another range
        captured |= {
            name: self._inner_name(name, names[self.parts[name].outer])
            for name in attrs.get("over", ())
            if name in self.parts and self.parts[name].outer in names
        }
        if captured:
            self._inherit_parts(captured)
            operands = tuple(self.substitute(operand, captured) for operand in operands)
            attrs = {**attrs, "over": tuple(captured.get(name, name) for name in attrs["over"])}
        operands = tuple(self.substitute(operand, names) for operand in operands)
        return Value(value.op, operands, type_, attrs, value.location)

    def rename_apart(self, value: Value, outer: frozenset[str]) -> Value:
        """``value`` with every reduced dim that is called like a dim of ``outer`` renamed."""
        return self._apart(value, outer, {})

    def _apart(self, value: Value, outer: frozenset[str], memo: dict[Value, Value]) -> Value:
        if value in self.memory or not value.operands or is_memory_view(value):
            return value
        if value not in memo:
            memo[value] = self._apart_op(value, outer, memo)
        return memo[value]

    def _apart_op(self, value: Value, outer: frozenset[str], memo: dict[Value, Value]) -> Value:
        operands, attrs = tuple(self._apart(operand, outer, memo) for operand in value.operands), value.attrs
        if value.op == "rename":
            new = Dim.parse(attrs["to"]).name
            return self.substitute(operands[0], {attrs["from"]: new})
        if value.op == "split":
            part, within = (dim for dim in value.dims if dim.name not in operands[0].names)
            return self.split(operands[0], attrs["dim"], part, within)
        clash = [name for name in attrs["over"] if name in outer] if value.op in REDUCTIONS else []
        if clash:
            names = {name: self._bound_name(name) for name in clash}
            self._inherit_parts(names)
            operands = tuple(self.substitute(operand, names) for operand in operands)
            attrs = {**attrs, "over": tuple(names.get(name, name) for name in attrs["over"])}
        if operands == value.operands:
            return value
        return Value(value.op, operands, value.type, attrs, value.location)

    def split(self, value: Value, name: str, outer: Dim, inner: Dim) -> Value:
        """``value`` with a dim in parts: the split is moved through the ops to the tensors in memory."""
        if name not in value.names:
            return value
        dims = tuple(new for d in value.dims for new in ((outer, inner) if d.name == name else (d,)))
        type_ = TensorType(dims, value.dtype)
        if value in self.memory or is_memory_view(value):
            return Value("split", (value,), type_, {"dim": name, "into": (str(outer), str(inner))}, value.location)
        if value.op == "constant":
            return Value("constant", (), type_, value.attrs, value.location)
        if value.op == "index":
            return _index_in_parts(value, outer, inner)
        captured = {outer.name, inner.name} & set(value.attrs.get("over", ()))
        if value.op in POINTWISE or (value.op in REDUCTIONS and not captured):
            operands = tuple(self.split(operand, name, outer, inner) for operand in value.operands)
            return Value(value.op, operands, type_, value.attrs, value.location)
        raise CleaveError(f"a split of the result of cleave.{value.op} cannot be scheduled yet", value.location)

    def _inherit_parts(self, names: Mapping[str, str]) -> None:
        """A new name for the inner dim of a split is one as well."""
        for old, new in names.items():
            if old in self.parts and new not in self.parts:
                part = self.parts[old]
                self.parts[new] = Part(names.get(part.outer, part.outer), part.whole)

    def _inner_name(self, name: str, outer: str) -> str:
        """The inner dim that goes with a renamed outer dim."""
        new = self._bound_name(name, outer)
        self.parts[new] = Part(outer, self.parts[name].whole)
        return new

    def _bound_name(self, name: str, outer: str = "") -> str:
        """One new name for all reductions over ``name`` (in the parts ``outer``): they can still share a loop."""
        if (name, outer) not in self._bound:
            self._bound[name, outer] = self.fresh(name)
        return self._bound[name, outer]


def _index_in_parts(value: Value, outer: Dim, inner: Dim) -> Value:
    """outer·size(inner) + inner; the size as a sum of ones."""
    i, j = (Value("index", (), TensorType((dim,), value.dtype), {"dim": str(dim)}) for dim in (outer, inner))
    ones = Value("constant", (), TensorType((inner,), value.dtype), {"value": 1})
    size = Value("reduce", (ones,), TensorType((), value.dtype), {"kind": "sum", "over": (inner.name,)})
    start = Value("mul", (i, size), i.type)
    return Value("add", (start, j), TensorType((outer, inner), value.dtype), {}, value.location)


def renamed_view(value: Value, names: Mapping[str, str]) -> Value:
    """``rename`` ops on a tensor in memory."""
    for old, new in names.items():
        size = value.size(old)
        dims = tuple(Dim(new, size) if d.name == old else d for d in value.dims)
        value = Value("rename", (value,), TensorType(dims, value.dtype), {"from": old, "to": str(Dim(new, size))})
    return value


def topological(outputs: Sequence[Value], stop: frozenset[Value]) -> list[Value]:
    """The values that ``outputs`` need, operands first, not looking behind ``stop`` (which are left out)."""
    order: dict[Value, None] = {}
    stack = [(value, False) for value in reversed(outputs)]
    while stack:
        value, ready = stack.pop()
        if value in order or value in stop:
            continue
        if ready:
            order[value] = None
        else:
            stack.append((value, True))
            stack.extend((operand, False) for operand in reversed(value.operands))
    return list(order)
