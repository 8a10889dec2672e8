"""Sums of products of deviations from means: two passes, and parts that are combined (Chan, Golub and LeVeque).

``Σ f·g - Σf·Σg/N`` is ``Σ (f - f̄)(g - ḡ)``, which keeps the digits that the difference loses where the means are large.
In parts, each with its count n_s, its own means and its own sum of products, it is
``Σ_s [Σ_t (f - f̄_s)(g - ḡ_s) + n_s·(f̄_s - f̄)(ḡ_s - ḡ)]``. A variance has g = f.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cleave.search.space import Node, Space
from cleave.search.terms import Atom, Mono, Number, Pair, Poly


@dataclass(frozen=True)
class Deviations:
    """``Σ f·g - Σf·Σg/N`` over one dim, opened as ``item``; ``whole`` is that term's form."""

    item: str | Pair
    f: Poly
    g: Poly
    sums: tuple[Poly, Poly]
    count: Poly
    whole: Poly


def centred_nodes(space: Space, poly: Poly) -> Iterator[Node]:
    """Nodes for a sum that has such a difference in it."""
    algebra = space.algebra
    for mono, c in poly:
        for atom, e in mono:
            found = _deviations(space, poly, atom) if atom.kind == "sum" and e == 1 else None
            if found is None:
                continue
            ratio = algebra.of_mono(tuple(pair for pair in mono if pair[0] is not atom), c)
            inside = algebra.mul(ratio, found.whole)
            if not all(dict(poly.terms).get(m) == k for m, k in inside):
                continue
            if inside is not poly:
                yield Node("add", (1, 1), (inside, algebra.sub(poly, inside)))
            elif ratio.constant != 1:
                yield Node("product", (1, 1), (ratio, found.whole))
            else:
                yield from _sum_nodes(space, found)


def _deviations(space: Space, poly: Poly, atom: Atom) -> Deviations | None:
    """What the sum of a product of two factors, over one dim, belongs to."""
    algebra, factors = space.algebra, _halves(atom.data[1])
    if len(atom.data[0]) != 1 or factors is None:
        return None
    ((name, size),) = atom.data[0]
    if "'" in name:
        return None
    (item,) = space.opening(atom.data[0], poly.free | atom.free).values()
    count = algebra.count_of(size)
    f, g = (algebra.substitute(algebra.of_mono(half), {name: item}) for half in factors)
    over = [item.outer, item.inner] if isinstance(item, Pair) else [str(item)]
    sums = algebra.sum_over(over, f), algebra.sum_over(over, g)
    whole = algebra.sub(algebra.of_atom(atom), algebra.div(algebra.product(*sums), count))
    return Deviations(item, f, g, sums, count, whole) if isinstance(item, str | Pair) else None


def _halves(mono: Mono) -> tuple[Mono, Mono] | None:
    if len(mono) == 1 and mono[0][1] == 2:
        return ((mono[0][0], 1),), ((mono[0][0], 1),)
    if len(mono) == 2 and all(e == 1 for _, e in mono):
        return mono[:1], mono[1:]
    return None


def _sum_nodes(space: Space, found: Deviations) -> Iterator[Node]:
    algebra, item = space.algebra, found.item
    means = [algebra.div(total, found.count) for total in found.sums]
    centred = [algebra.sub(factor, mean) for factor, mean in zip((found.f, found.g), means, strict=True)]
    if isinstance(item, str):
        yield Node("reduce", ("sum", (item,)), (_product(space, centred),))
        return
    count = algebra.sum_over([item.inner], algebra.number(1))
    totals = [algebra.sum_over([item.inner], factor) for factor in (found.f, found.g)]
    own = [algebra.div(total, count) for total in totals]
    inside = _product(space, [algebra.sub(factor, mean) for factor, mean in zip((found.f, found.g), own, strict=True)])
    between = [algebra.sub(mean, whole) for mean, whole in zip(own, means, strict=True)]
    within = algebra.sum_over([item.inner], inside)
    space.settle(within, Node("reduce", ("sum", (item.inner,)), (inside,)))
    moved = _product(space, between, count)
    part = algebra.sum_over([item.inner], algebra.product(*centred))
    space.settle(part, Node("add", (1, 1), (within, moved)))
    yield Node("reduce", ("sum", (item.outer,)), (part,))


def _product(space: Space, factors: list[Poly], *others: Poly) -> Poly:
    """The product, known as one of these factors and not only as the sum that it expands to."""
    powers: dict[Poly, Number] = {}
    for factor in (*others, *factors):
        powers[factor] = powers.get(factor, 0) + 1
    whole = space.algebra.product(*factors, *others)
    space.settle(whole, Node("product", tuple(powers.values()), tuple(powers)))
    return whole
