"""The source program's own ops as nodes, and the exponents it applies exp to; in a split, over parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cleave.dialects.dims import Dim
from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import is_float
from cleave.search.lift import Lifter
from cleave.search.masks import Masks
from cleave.search.monotone import exponent_of
from cleave.search.space import Cut, Node, Space
from cleave.search.stability import Stability
from cleave.search.terms import Item, OutOfFuel, Pair, Poly
from cleave.search.unsplit import unsplit_values, user_splits, whole_cores

_ALGEBRA = frozenset(
    "neg exp exp2 log sqrt rsqrt tanh erf sin cos sigmoid abs add sub mul div max min pow contract reduce".split()
)


def cut_items(lifter: Lifter, cut: Cut | None) -> dict[str, Item]:
    """The substitution that a cut makes in values: every dim of its size becomes the pair."""
    if cut is None:
        return {}
    return {name: cut.pair for name, size in lifter.algebra.sizes.items() if size is cut.size and name.isidentifier()}


def applied_exponents(
    values: Iterable[Value], forms: Mapping[Value, Poly], lifter: Lifter, cut: Cut | None
) -> list[Poly]:
    """Normal forms of what the source applies an exponential to."""
    algebra, items = lifter.algebra, cut_items(lifter, cut)
    found: list[Poly] = []
    for value in values:
        if value.op in ("exp", "exp2", "sigmoid") and is_float(value.dtype):
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


def add_seeds(space: Space, values: Iterable[Value], forms: Mapping[Value, Poly], lifter: Lifter) -> None:
    """A node for each float op of the source. In a cut, reductions over the cut dimension become two, maxima only."""
    items = cut_items(lifter, space.cut)
    for value in values:
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
    if value.op == "merge" and len(value.attrs["dims"]) == 2 and not any(name in items for name in value.names):
        into = Dim.parse(value.attrs["into"]).name
        children = (algebra.substitute(forms[value.operands[0]], items),)
        space.seed(algebra.substitute(forms[value], items), Node("merge", (tuple(value.attrs["dims"]), into), children))
        return
    if value.op not in _ALGEBRA or not is_float(value.dtype):
        return
    if not all(is_float(operand.dtype) for operand in value.operands):
        return
    form = lifter.form(value, [forms[operand] for operand in value.operands])
    children = tuple(algebra.substitute(forms[operand], items) for operand in value.operands)
    form = algebra.substitute(form, items)
    dims = {half for name in value.names for half in _halves(items.get(name) or name)}
    if form.free != frozenset(dims):
        return  # the value does not depend on all of its dims: as a node of its class it would bring them back
    if value.op == "exp" and children[0] not in space.stability.allowed:
        return  # a maximum is to be subtracted first
    over = value.attrs.get("over", ())
    if any(name in items for name in over):
        if value.op == "reduce" and value.attrs["kind"] == "max":
            _add_split_maximum(space, value, children[0], items)
        return
    if not set(over) <= set().union(*(child.free for child in children)):
        return  # what is reduced does not depend on the dim, so nothing says how long it is
    attrs = tuple(sorted(value.attrs.items()))
    space.seed(form, Node("op", (value.op, attrs), children, seed=True))


def _add_maximum(space: Space, exponent: Poly, over: list[str]) -> None:
    """The maximum that is introduced below an exponential, of the exponent as it is."""
    outer = [name for name in over if space.cut is not None and name == space.cut.pair.outer]
    inner = tuple(name for name in over if name not in outer)
    if not inner:
        return
    part = space.algebra.max_over(inner, exponent)
    space.seed(part, Node("reduce", ("max", inner), (exponent,), seed=True))
    if outer:
        space.seed(space.algebra.max_over(outer, part), Node("reduce", ("max", tuple(outer)), (part,), seed=True))


def _add_split_maximum(space: Space, value: Value, body: Poly, items: Mapping[str, Item]) -> None:
    cut = space.cut
    assert cut is not None
    inner = tuple(cut.pair.inner if name in items else name for name in value.attrs["over"])
    _add_maximum(space, body, [*inner, cut.pair.outer])


def summed_exponents(
    graph: Graph, forms: Mapping[Value, Poly], lifter: Lifter, cut: Cut | None
) -> list[tuple[Poly, list[str]]]:
    """Exponents of the exponentials that the source sums, and the dims over which it does."""
    items = cut_items(lifter, cut)
    found: list[tuple[Poly, list[str]]] = []
    for value in graph.topological():
        if value.op not in ("contract", "reduce") or value.attrs.get("kind", "sum") != "sum":
            continue
        over = [half for name in value.attrs["over"] for half in _halves(items.get(name) or name)]
        for operand in value.operands:
            for mono, _ in forms[operand]:
                exponent = lifter.algebra.substitute(exponent_of(lifter.algebra, mono), items)
                if exponent.terms:
                    found.append((exponent, over))
    return found


def _halves(item: Item) -> tuple[str, ...]:
    return (item.outer, item.inner) if isinstance(item, Pair) else (str(item),)


def _whole_cores(
    graph: Graph, forms: Mapping[Value, Poly], lifter: Lifter, cut: Cut | None
) -> list[tuple[Poly, list[str]]]:
    """Exponents on dims that the source cuts itself, where it subtracts each part's maximum, and the dims of that."""
    own = Stability(lifter.algebra, applied_exponents(graph.topological(), forms, lifter, None))
    families = [(family.core, family.stabiliser) for family in own.families]
    items = cut_items(lifter, cut)
    found = whole_cores(lifter.algebra, families, user_splits(graph, lifter))
    return [(lifter.algebra.substitute(core, items), list(_halves(items.get(name) or name))) for core, name in found]


def make_space(
    graph: Graph, forms: Mapping[Value, Poly], lifter: Lifter, cut: Cut | None, stabilise: bool = False
) -> Space:
    """A space with the source's ops, not yet grown. ``stabilise``: maxima are introduced where the source has none."""
    whole = unsplit_values(graph, forms, lifter)
    forms = {**forms, **whole}
    values = [*graph.topological(), *whole]
    exponents = applied_exponents(values, forms, lifter, cut)
    stability = Stability(lifter.algebra, exponents)
    introduced = _whole_cores(graph, forms, lifter, cut)
    for core, over in introduced:
        stability.allow(lifter.algebra.sub(core, lifter.algebra.max_over(over, core)))
    if stabilise:
        for exponent, over in summed_exponents(graph, forms, lifter, cut):
            introduced.append((exponent, stability.introduce(exponent, over)))
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
    space.masks = Masks.of(graph, forms)
    space.leaf_operands = lambda number: lifter.leaves[number].operands
    for exponent, over in introduced:
        _add_maximum(space, exponent, over)
    add_seeds(space, values, forms, lifter)
    return space
