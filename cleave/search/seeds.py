"""The source program's own ops as nodes, and the exponents it applies exp to; in a split, over parts."""

from __future__ import annotations

from collections.abc import Mapping

from cleave.dialects import ops
from cleave.dialects.graph import Graph, Value
from cleave.search.lift import Lifter
from cleave.search.space import Cut, Node, Space
from cleave.search.stability import Stability
from cleave.search.terms import Item, OutOfFuel, Poly

_ALGEBRA = frozenset(
    "neg exp exp2 log sqrt rsqrt tanh erf sigmoid abs add sub mul div max min pow contract reduce".split()
)


def cut_items(lifter: Lifter, cut: Cut | None) -> dict[str, Item]:
    """The substitution that a cut makes in values: every dim of its size becomes the pair."""
    if cut is None:
        return {}
    return {name: cut.pair for name, size in lifter.algebra.sizes.items() if size is cut.size and name.isidentifier()}


def applied_exponents(graph: Graph, forms: Mapping[Value, Poly], lifter: Lifter, cut: Cut | None) -> list[Poly]:
    """Normal forms of what the source applies an exponential to."""
    algebra, items = lifter.algebra, cut_items(lifter, cut)
    found: list[Poly] = []
    for value in graph.topological():
        if value.op in ("exp", "exp2", "sigmoid") and ops.is_float(value.dtype):
            argument = forms[value.operands[0]]
            if value.op == "exp2":
                argument = algebra.mul(argument, algebra.log(algebra.number(2)))
            if value.op == "sigmoid":
                continue  # computed by itself, never through exp
            try:
                found.append(algebra.substitute(argument, items))
            except OutOfFuel:
                continue
    return found


def add_seeds(space: Space, graph: Graph, forms: Mapping[Value, Poly], lifter: Lifter) -> None:
    """A node for each float op of the source. In a cut, reductions over the cut dimension become two, maxima only."""
    items = cut_items(lifter, space.cut)
    for value in graph.topological():
        try:
            _add_seed(space, value, forms, lifter, items)
        except OutOfFuel as error:
            space.reject(str(error))


def _add_seed(
    space: Space, value: Value, forms: Mapping[Value, Poly], lifter: Lifter, items: Mapping[str, Item]
) -> None:
    algebra = lifter.algebra
    if value.op == "rename" and not items:
        new = value.attrs["to"].partition("=")[0].strip()
        space.seed(forms[value], Node("rename", (value.attrs["from"], new), (forms[value.operands[0]],), seed=True))
        return
    if value.op not in _ALGEBRA or not ops.is_float(value.dtype):
        return
    if not all(ops.is_float(operand.dtype) for operand in value.operands):
        return
    form = lifter.form(value, [forms[operand] for operand in value.operands])
    children = tuple(algebra.substitute(forms[operand], items) for operand in value.operands)
    over = value.attrs.get("over", ())
    if any(name in items for name in over):
        if value.op == "reduce" and value.attrs["kind"] == "max":
            _add_split_maximum(space, value, form, children[0], items)
        return
    attrs = tuple(sorted(value.attrs.items()))
    space.seed(algebra.substitute(form, items), Node("op", (value.op, attrs), children, seed=True))


def _add_split_maximum(space: Space, value: Value, form: Poly, body: Poly, items: Mapping[str, Item]) -> None:
    cut = space.cut
    assert cut is not None
    inner = tuple(cut.pair.inner if name in items else name for name in value.attrs["over"])
    part = space.algebra.max_over(inner, body)
    space.seed(part, Node("reduce", ("max", inner), (body,), seed=True))
    space.seed(space.algebra.substitute(form, items), Node("reduce", ("max", (cut.pair.outer,)), (part,), seed=True))


def make_space(graph: Graph, forms: Mapping[Value, Poly], lifter: Lifter, cut: Cut | None) -> Space:
    """A space with the source's ops, not yet grown."""
    stability = Stability(lifter.algebra, applied_exponents(graph, forms, lifter, cut))
    names: dict[object, list[str]] = {}
    for value in graph.topological():
        for dim in value.dims:
            known = names.setdefault(dim.size, [])
            if dim.name not in known:
                known.append(dim.name)
    if cut is not None:
        names.setdefault(cut.pair.inner_size, []).append(cut.pair.inner)
        names.setdefault(cut.pair.outer_size, []).append(cut.pair.outer)
    space = Space(lifter.algebra, stability, names, cut)  # type: ignore[arg-type]
    space.leaf_operands = lambda number: lifter.leaves[number].operands
    add_seeds(space, graph, forms, lifter)
    return space
