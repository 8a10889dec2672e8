"""Values of a source that splits dims itself, on the whole dims: what its author did by hand is not the last word.

A value on both halves of a split is computed on the dimension that was cut by the same op. Exponentials of a part less
the part's maximum may be those of the whole less the whole's, which is no smaller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cleave.dialects import ops
from cleave.dialects.dims import Dim
from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import TensorType
from cleave.search.binders import Algebra, Whole
from cleave.search.lift import Lifter
from cleave.search.terms import OutOfFuel, Pair, Poly


@dataclass(frozen=True)
class UserSplit:
    """A split in the source; ``name`` is the dimension that it cuts."""

    pair: Pair
    name: str


def user_splits(graph: Graph, lifter: Lifter) -> list[UserSplit]:
    found: dict[UserSplit, None] = {}
    for value in graph.topological():
        if value.op == "split":
            outer, inner = (Dim.parse(text) for text in value.attrs["into"])
            name = value.attrs["dim"]
            found[UserSplit(lifter.pair(outer, inner, value.operands[0].size(name)), name)] = None
    return list(found)


def unsplit_values(graph: Graph, forms: Mapping[Value, Poly], lifter: Lifter) -> dict[Value, Poly]:
    """Values on whole dims in the place of the source's on pairs, operands first, and their normal forms."""
    made: dict[Value, Poly] = {}
    for split in user_splits(graph, lifter):
        new: dict[Value, Value] = {}
        for value in graph.topological():
            operands = [new.get(operand, operand) for operand in value.operands]
            form = on_the_whole(lifter.algebra, forms[value], split)
            if form is None or not {split.pair.outer, split.pair.inner} & {*value.names, *value.attrs.get("over", ())}:
                continue
            whole = operands[0] if value.op == "split" and split.name in operands[0].names else None
            whole = whole or _rebuilt(value, operands, split)
            if whole is not None:
                new[value] = whole
                made.setdefault(whole, form)
    return {value: form for value, form in made.items() if value not in forms}


def _rebuilt(value: Value, operands: list[Value], split: UserSplit) -> Value | None:
    """The op on operands that have the whole dim; None for an op that sees only half of the pair, or moves data."""
    halves = {split.pair.outer, split.pair.inner}
    over = value.attrs.get("over", ())
    if value.op not in (*ops.POINTWISE, "contract", "reduce") or len(halves & set(over)) == 1:
        return None
    if any(halves & set(operand.names) for operand in operands):
        return None
    attrs = dict(value.attrs)
    if halves <= set(over):
        attrs["over"] = (*(name for name in over if name not in halves), split.name)
    dims: list[Dim] = []
    for dim in value.dims:
        dims += [] if dim.name == split.pair.inner else [dim if dim.name not in halves else _whole_dim(split)]
    return Value(value.op, tuple(operands), TensorType(tuple(dims), value.dtype), attrs, value.location)


def _whole_dim(split: UserSplit) -> Dim:
    return Dim(split.name, split.pair.whole)


def on_the_whole(algebra: Algebra, poly: Poly, split: UserSplit) -> Poly | None:
    """The value with the whole dim in the place of the pair; None where it depends on half of it."""
    pair, halves = split.pair, {split.pair.outer, split.pair.inner}
    for mono, _ in poly:
        for atom, _ in mono:
            if halves & atom.plain or any(halves & {p.outer, p.inner} for p in atom.pairs if p != pair):
                return None
    try:
        return algebra.substitute(poly, {pair.outer: Whole(split.name), pair.inner: Whole(split.name)})
    except OutOfFuel:
        return None


def whole_cores(
    algebra: Algebra, families: Iterable[tuple[Poly, Poly]], splits: Iterable[UserSplit]
) -> list[tuple[Poly, str]]:
    """For each core and maximum of a part that is subtracted from it: the core on the whole, and the whole dim."""
    found: list[tuple[Poly, str]] = []
    for split in splits:
        for core, maximum in families:
            whole = on_the_whole(algebra, core, split)
            if whole is not None and whole is not core and algebra.max_over([split.pair.inner], core) is maximum:
                found.append((whole, split.name))
    return found
