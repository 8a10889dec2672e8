"""Substituting dimension names in a graph, so that a reduction's dims differ from those of the result it feeds, and
moving changes of indices to the tensors in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from cleave.dialects.dims import Answer, Dim, Size, parse
from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import VIEWS
from cleave.dialects.tensor_type import TensorType
from cleave.schedule.bottom_up import bottom_up
from cleave.schedule.reindex import (
    Mover,
    arithmetic,
    bound_names,
    gathering,
    positions,
    size_value,
    slicing,
    splitting,
)
from cleave.schedule.strides import lie_together


class Part(NamedTuple):
    """The inner dim of a split: element (i, j) is i·size(inner) + j of the whole; past its end nothing exists."""

    outer: str
    whole: Size

    def divides(self, parts: Size, extents: Mapping[str, int]) -> bool:
        """Whether all parts, together so many elements, are known to be as long."""
        left = self.whole - parts
        return left.value == 0 or (left.symbols <= extents.keys() and left.evaluate(extents) == 0)


def in_memory_order(graph: Graph) -> Graph:
    """The graph with a copy before each merge whose dims do not lie one after the other, so that a merge can be a view,
    and of each output that is a part of another tensor, so that it has an array of its own."""
    new: dict[Value, Value] = {value: value for value in graph.inputs}
    for value in graph.topological():
        if value not in new:
            operands = tuple(new[operand] for operand in value.operands)
            if value.op == "merge":
                operands = (_together(operands[0], list(value.attrs["dims"]), graph),)
            new[value] = value if operands == value.operands else replace(value, operands=operands)
    return replace(graph, outputs=tuple(_owned(new[value], graph) for value in graph.outputs))


def _owned(output: Value, graph: Graph) -> Value:
    """The output, or a copy of it where it is not the whole of what it views, or not the whole of it exists."""
    view = output
    while view.op in VIEWS:
        if view.op == "slice" or (view.op == "split" and not _divides(view, graph)):
            return Value("cast", (output,), output.type, {}, output.location)
        view = view.operands[0]
    return output


def _divides(split: Value, graph: Graph) -> bool:
    whole = split.operands[0].size(split.attrs["dim"])
    parts = [split.size(Dim.parse(text).name) for text in split.attrs["into"]]
    if whole.symbols | parts[0].symbols | parts[1].symbols <= graph.extents.keys():
        known, outer, inner = (size.evaluate(graph.extents) for size in (whole, *parts))
        return known == outer * inner
    return graph.facts.equal(whole, parts[0] * parts[1]) is Answer.YES


def _together(value: Value, names: list[str], graph: Graph) -> Value:
    """``value`` with these dims one after the other, where the first of them in memory is."""
    at = min(value.names.index(name) for name in names)
    if list(value.names[at : at + len(names)]) == names and lie_together(value, names, graph):
        return value
    rest = [name for name in value.names if name not in names]
    order = [*rest[:at], *names, *rest[at:]]
    dims = tuple(Dim(name, value.size(name)) for name in order)
    return Value("cast", (value,), TensorType(dims, value.dtype), {}, value.location)


def is_memory_view(value: Value) -> bool:
    """Whether the value is an input, or views of one: the same memory under other dims."""
    return viewed(value).op == "input"


def is_in_memory(value: Value, stored: AbstractSet[Value]) -> bool:
    """Whether the value is one of ``stored`` or an input, or a view of one."""
    while value not in stored and value.op in VIEWS:
        value = value.operands[0]
    return value in stored or value.op == "input"


def renamed(value: Value) -> Value:
    """The value of which this one is the same with other names of dims."""
    while value.op == "rename":
        value = value.operands[0]
    return value


def viewed(value: Value) -> Value:
    """What a view looks at; a value that is no view, itself."""
    while value.op in VIEWS:
        value = value.operands[0]
    return value


_Substitution = tuple[Value, tuple[tuple[str, str], ...]]


def _substitution(value: Value, names: Mapping[str, str]) -> _Substitution:
    """The value with those of the new names that change it."""
    return value, tuple(sorted((old, new) for old, new in names.items() if old in value.names and old != new))


class Renamer:
    """Rebuilds values with other dim names; ``memory`` values are viewed through ``rename`` and not rebuilt.

    ``taken``: the names in use; ``parts``: for the inner dim of each split, the outer one and the size of the whole.
    """

    def __init__(self, memory: Iterable[Value], taken: Iterable[str], parts: Mapping[str, Part]) -> None:
        self.memory = frozenset(memory)
        self.taken = set(taken)
        self.parts = dict(parts)
        self.mover = Mover(self.in_memory, self._bound_apart)
        self._memo: dict[_Substitution, Value] = {}
        self._bound: dict[tuple[str, str], str] = {}
        self._apart_from: dict[frozenset[str], dict[Value, Value]] = {}
        self._sizes: dict[Size, Value] = {}

    def fresh(self, name: str) -> str:
        """A dim name not in use yet."""
        count = 1
        while f"{name}_{count}" in self.taken:
            count += 1
        self.taken.add(f"{name}_{count}")
        return f"{name}_{count}"

    def in_memory(self, value: Value) -> bool:
        return is_in_memory(value, self.memory)

    def substitute(self, value: Value, names: Mapping[str, str]) -> Value:
        """``value`` with each free dim ``old`` called ``names[old]``."""
        key = _substitution(value, names)
        return bottom_up(self._memo, key, self._substitutions_needed, self._substitute) if key[1] else value

    def _substitutions_needed(self, key: _Substitution) -> list[_Substitution]:
        """Those of the operands, where no bound dim gets in the way, as it rarely does."""
        value, names = key[0], dict(key[1])
        if self.in_memory(value) or any(
            name in names.values() or (name in self.parts and self.parts[name].outer in names)
            for name in bound_names(value)
        ):
            return []
        return [each for each in (_substitution(operand, names) for operand in value.operands) if each[1]]

    def _substitute(self, key: _Substitution) -> Value:
        value, names = key[0], dict(key[1])
        if self.in_memory(value):
            return renamed_view(value, names)
        type_ = TensorType(tuple(Dim(names.get(d.name, d.name), d.size) for d in value.dims), value.dtype)
        if value.op == "index":
            return Value("index", (), type_, {"dim": str(type_.dims[0])}, value.location)
        captured = {name: self.fresh(name) for name in bound_names(value) if name in names.values()}
        # the inner dim of a split goes with its outer dim: another part, another range
        captured |= {
            name: self._inner_name(name, names[self.parts[name].outer])
            for name in value.attrs.get("over", ())
            if name in self.parts and self.parts[name].outer in names
        }
        value = self._with_bound(value, captured)
        operands = tuple(self.substitute(operand, names) for operand in value.operands)
        return Value(value.op, operands, type_, value.attrs, value.location)

    def _with_bound(self, value: Value, names: Mapping[str, str]) -> Value:
        """The value with the dims that end in its op called otherwise."""
        if not names:
            return value
        self._inherit_parts(names)
        operands = tuple(self.substitute(operand, names) for operand in value.operands)
        if value.op == "gather":
            attrs = {**value.attrs, "dim": names[value.attrs["dim"]]}
        else:
            attrs = {**value.attrs, "over": tuple(names.get(name, name) for name in value.attrs["over"])}
        return Value(value.op, operands, value.type, attrs, value.location)

    def _bound_apart(self, value: Value, outer: frozenset[str]) -> Value:
        return self._with_bound(value, {name: self._bound_name(name) for name in bound_names(value) if name in outer})

    def rename_apart(self, value: Value, outer: frozenset[str]) -> Value:
        """``value`` with every bound dim that is called like a dim of ``outer`` renamed, and no change of indices but
        of tensors in memory."""
        memo = self._apart_from.setdefault(outer, {})
        return bottom_up(memo, value, self._computed_from, lambda each: self._apart(each, outer, memo))

    def _computed_from(self, value: Value) -> Sequence[Value]:
        return () if value in self.memory or is_memory_view(value) else value.operands

    def _apart(self, value: Value, outer: frozenset[str], memo: Mapping[Value, Value]) -> Value:
        if not self._computed_from(value):
            return value
        operands = tuple(memo[operand] for operand in value.operands)
        rule = _STRUCTURAL.get(value.op)
        if rule is not None:
            return rule(self, value, operands)
        if operands != value.operands:
            value = Value(value.op, operands, value.type, value.attrs, value.location)
        return self._bound_apart(value, outer)

    # --- structure ---

    def _rename(self, value: Value, operands: Sequence[Value]) -> Value:
        return self.substitute(operands[0], {value.attrs["from"]: Dim.parse(value.attrs["to"]).name})

    def _split(self, value: Value, operands: Sequence[Value]) -> Value:
        outer, inner = (value.dims[value.names.index(Dim.parse(text).name)] for text in value.attrs["into"])
        return self.mover.move(operands[0], splitting(value.attrs["dim"], outer, inner, self.size))

    def _slice(self, value: Value, operands: Sequence[Value]) -> Value:
        into = value.dims[value.names.index(Dim.parse(value.attrs["into"]).name)]
        change = slicing(value.attrs["dim"], into, parse(value.attrs["offset"]), self.size)
        return self.mover.move(operands[0], change)

    def _merge(self, value: Value, operands: Sequence[Value]) -> Value:
        """Of a tensor in memory a view; otherwise elements at the quotients and remainders of the position."""
        (operand,) = operands
        if self.in_memory(operand):
            return Value("merge", (operand,), value.type, value.attrs, value.location)
        into = value.dims[value.names.index(Dim.parse(value.attrs["into"]).name)]
        names = {name: self.fresh(name) if name in value.names else name for name in value.attrs["dims"]}
        operand, rest = self.substitute(operand, names), positions(into)
        first, *others = names.values()
        for name in reversed(others):
            size = self.size(operand.size(name))
            quotient = arithmetic("div", rest, size)
            within = arithmetic("sub", rest, arithmetic("mul", quotient, size))
            operand, rest = self.mover.move(operand, gathering(name, within)), quotient
        return self.mover.move(operand, gathering(first, rest))

    def _gather(self, value: Value, operands: Sequence[Value]) -> Value:
        source, indices = operands
        name = value.attrs["dim"]
        if name in indices.names:  # as it may be after a substitution
            source = self.substitute(source, {name: (fresh := self.fresh(name))})
            name = fresh
        return self.mover.move(source, gathering(name, indices))

    def _concat(self, value: Value, operands: Sequence[Value]) -> Value:
        """The first operand where the position is below its size, past it the second."""
        into = value.dims[value.names.index(Dim.parse(value.attrs["into"]).name)]
        position, start = positions(into), self.size(operands[0].size(value.attrs["dims"][0]))
        picked: list[Value] = []
        for operand, name, at in zip(
            operands, value.attrs["dims"], (position, arithmetic("sub", position, start)), strict=True
        ):
            new = self.fresh(name) if name == into.name else name
            operand = self.substitute(operand, {name: new})
            picked.append(self.mover.move(operand, gathering(new, at, bounded=True)))
        below = Value("cmp", (position, start), TensorType(position.dims, "i1"), {"predicate": "lt"})
        return Value("select", (below, *picked), value.type, {}, value.location)

    def size(self, size: Size) -> Value:
        """The size as a value, one for all its uses."""
        if size not in self._sizes:
            self._sizes[size] = size_value(size, self.fresh("size"))
        return self._sizes[size]

    # --- names ---

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


_STRUCTURAL: Mapping[str, Callable[[Renamer, Value, Sequence[Value]], Value]] = {
    "rename": Renamer._rename,  # pyright: ignore[reportPrivateUsage]
    "split": Renamer._split,  # pyright: ignore[reportPrivateUsage]
    "slice": Renamer._slice,  # pyright: ignore[reportPrivateUsage]
    "merge": Renamer._merge,  # pyright: ignore[reportPrivateUsage]
    "gather": Renamer._gather,  # pyright: ignore[reportPrivateUsage]
    "concat": Renamer._concat,  # pyright: ignore[reportPrivateUsage]
}


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
