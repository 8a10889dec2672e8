"""Ways to take a normal form apart: one rule for each shape, none for any particular program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from cleave.search.centred import centred_nodes
from cleave.search.contractions import contraction_nodes
from cleave.search.merge import unmerged_nodes
from cleave.search.monotone import exponent_of
from cleave.search.space import Node, Space
from cleave.search.split import split_nodes
from cleave.search.terms import Atom, Mono, Number, Poly, mono_free, simple


def nodes_of(space: Space, poly: Poly) -> Iterator[Node]:
    """All nodes that goal-directed enumeration finds for a class."""
    if poly.constant is not None:
        yield Node("const", (poly.constant,), ())
        return
    yield from unmerged_nodes(space, poly)
    if space.is_known_maximum(poly) and not any(atom.kind == "exp" for mono, _ in poly for atom, _ in mono):
        return  # taking a factor out of it would only make a second maximum; in an exponent it may cancel
    chi = _common_condition(poly)
    if chi is not None:
        yield from _select_nodes(space, poly, chi)
        return
    if len(poly) == 1:
        mono, c = poly.terms[0]
        atom = poly.single
        if atom is not None:
            yield from _atom_nodes(space, atom)
        yield from _exponential_nodes(space, poly, mono, c)
        if atom is None:
            yield from _product_nodes(space, poly, mono, c)
        return
    yield from _sum_nodes(space, poly)


# --- conditions ------------------------------------------------------------------------------------------------------


def _common_condition(poly: Poly) -> Poly | None:
    """A condition that every term depends on."""
    first = [atom.data[0] for atom, _ in poly.terms[0][0] if atom.kind == "chi"] if poly.terms else []
    for condition in first:
        if all(any(a.kind == "chi" and a.data[0] is condition for a, _ in mono) for mono, _ in poly):
            return condition
    return None


def _select_nodes(space: Space, poly: Poly, condition: Poly) -> Iterator[Node]:
    """``select(c, a, b)``: never a product with 0 or 1, for what is not selected is not looked at."""
    sides: dict[bool, dict[Mono, Number]] = {True: {}, False: {}}
    for mono, c in poly:
        chi = next(a for a, _ in mono if a.kind == "chi" and a.data[0] is condition)
        rest = tuple(pair for pair in mono if pair[0] is not chi)
        sides[chi.data[1]][rest] = c
    one, other = (space.algebra.poly(sides[polarity]) for polarity in (True, False))
    yield Node("select", (), (condition, one, other))


# --- single atoms ----------------------------------------------------------------------------------------------------


def _atom_nodes(space: Space, atom: Atom) -> Iterator[Node]:
    kind, data = atom.kind, atom.data
    if kind in ("leaf", "index", "constant", "size", "one"):
        yield Node("leaf", (atom,), space_operands(space, atom))
    elif kind == "fn" and data[0].startswith("position:"):
        index = data[1][0].single
        if index is not None:
            yield Node("position", (data[0][9:], index.data[0]), ())
    elif kind == "fn":
        name = data[0]
        yield Node("round", (name[6:],), data[1]) if name.startswith("round_") else Node("fn", (name,), data[1])
    elif kind in ("max", "red"):
        yield from split_nodes(space, atom, space.algebra.number(0))
        if space.cut is None or all(size is not space.cut.size for _, size in data[-2]):
            names = space.opening(data[-2], atom.free)
            over = tuple(str(item) for item in names.values())
            reduction = "max" if kind == "max" else data[0]
            yield Node("reduce", (reduction, over), (space.algebra.open(atom, names),))


def space_operands(space: Space, atom: Atom) -> tuple[Poly, ...]:
    """The classes that a leaf's op is applied to, in its own names."""
    return space.leaf_operands(atom.data[0]) if atom.kind == "leaf" else ()


# --- products --------------------------------------------------------------------------------------------------------


def _exponential_nodes(space: Space, poly: Poly, mono: Mono, c: Number) -> Iterator[Node]:
    """An exponential alone, or one beside a single sum, which it stabilises."""
    algebra = space.algebra
    exponent = exponent_of(algebra, mono)
    others = [(atom, e) for atom, e in mono if atom.kind != "exp"]
    if not others and c == 1 and exponent.terms and exponent in space.stability.allowed:
        guarded = space.guards.get(exponent)
        if guarded is not None:
            yield Node("guarded_exp", (), guarded)
        else:
            yield Node("exp", (), (exponent,))
    if len(others) == 1 and others[0][0].kind == "sum" and others[0][1] == 1 and c == 1:
        atom = others[0][0]
        yield from split_nodes(space, atom, exponent)
        if space.cut is None or all(size is not space.cut.size for _, size in atom.data[0]):
            yield from contraction_nodes(space, atom, exponent)


def _product_nodes(space: Space, poly: Poly, mono: Mono, c: Number) -> Iterator[Node]:
    yield from _known_factor_nodes(space, poly, mono)
    algebra = space.algebra
    exponent = exponent_of(algebra, mono)
    children: list[Poly] = []
    exponents: list[Number] = []
    rest = poly
    for atom, e in mono:
        if atom.kind in ("exp", "prime"):
            continue
        base = algebra.of_atom(atom) if atom.kind != "poly" else space.scaled(atom.data[0])
        offset = space.stability.offset(base)
        if offset is None:
            return
        if offset.terms:
            base = algebra.mul(base, algebra.exp(algebra.neg(offset)))
            exponent = algebra.add(exponent, algebra.scale(offset, e))
        if base is poly:
            return
        children.append(base)
        exponents.append(e)
        rest = algebra.mul(rest, algebra.power(base, simple(-e)))
    if exponent.terms:
        weight = algebra.exp(exponent)
        if weight is poly:
            return
        children.append(weight)
        exponents.append(1)
        rest = algebra.mul(rest, algebra.power(weight, -1))
    if rest.constant is None:
        return  # an irrational factor: the source's own scale of some base is missed
    if rest.constant != 1:
        children.append(rest)
        exponents.append(1)
    if len(children) > 1 or exponents != [1]:
        yield Node("product", tuple(exponents), tuple(children))


def _known_factor_nodes(space: Space, poly: Poly, mono: Mono) -> Iterator[Node]:
    """A value of the source that is a part of the product, and what is left beside it."""
    mine = dict(mono)
    for known in space.known_products:
        factors, _ = known.terms[0]
        if known is poly or not factors:
            continue
        if all(atom in mine and 0 < Fraction(e) / Fraction(mine[atom]) <= 1 for atom, e in factors):
            rest = space.algebra.mul(poly, space.algebra.power(known, -1))
            if rest is not poly and len(rest) == 1 and rest.constant != 1:
                yield Node("product", (1, 1), (known, rest))


# --- sums ------------------------------------------------------------------------------------------------------------


def _sum_nodes(space: Space, poly: Poly) -> Iterator[Node]:
    algebra = space.algebra
    base = space.scaled(poly)
    if base is not poly:
        ratio = Fraction(poly.terms[0][1]) / Fraction(base.terms[0][1])
        yield Node("product", (1, 1), (algebra.number(simple(ratio)), base))
    summands = [space.known_multiple(mono, c) for mono, c in poly]
    yield Node("add", tuple(c for c, _ in summands), tuple(summand for _, summand in summands))
    _, factor, _ = algebra.primitive(poly)
    factor = tuple(pair for pair in factor if not space.masks.hides(pair[0], poly))
    if factor:
        common = space.known_scale(factor)
        rest = algebra.mul(poly, algebra.power(common, -1))
        if rest is not poly and len(rest) < 2 * len(poly):
            yield Node("product", (1, 1), (common, rest))
    yield from _grouped_nodes(space, poly)
    yield from centred_nodes(space, poly)
    yield from _common_summand_nodes(space, poly)


def _grouped_nodes(space: Space, poly: Poly) -> Iterator[Node]:
    """Terms that share a factor as one summand, or one at a time after sums that the source has."""
    algebra = space.algebra
    made: set[tuple[Mono, ...]] = set()
    factors: dict[tuple[Atom, bool], list[Mono]] = {}
    for mono, _ in poly:
        for atom, e in mono:
            factors.setdefault((atom, e > 0), []).append(mono)
    terms = dict(poly.terms)
    groups: Iterable[list[Mono]] = [*factors.values(), *space.known_sums(poly)]
    for members in groups:
        key = tuple(members)
        if key in made or not 1 < len(members) < len(poly):
            continue
        made.add(key)
        inside = algebra.poly({mono: terms[mono] for mono in members})
        outside = algebra.poly({mono: c for mono, c in poly if mono not in members})
        yield Node("add", (1, 1), (inside, outside))


def _common_summand_nodes(space: Space, poly: Poly) -> Iterator[Node]:
    """``Σ f·a + u·Σ f·b = Σ f·(a + u·b)`` where all terms are sums that share factors of their bodies."""
    algebra = space.algebra
    opened: list[tuple[tuple[str, ...], Poly]] = []
    for mono, c in poly:
        sums = [atom for atom, e in mono if atom.kind == "sum" and e == 1]
        if len(sums) != 1:
            return
        names = space.opening(sums[0].data[0], poly.free)
        if not all(isinstance(item, str) for item in names.values()):
            return
        rest = algebra.of_mono(tuple(pair for pair in mono if pair[0] is not sums[0]), c)
        opened.append((tuple(map(str, names.values())), algebra.mul(rest, algebra.open(sums[0], names))))
    first = opened[0][1].terms[0][0] if len(opened[0][1]) == 1 else ()
    for atom, e in first:
        if (
            e != 1
            or atom.kind in ("exp", "chi")
            or any(space.masks.hides(atom, body) for _, body in opened)
            or not all(len(body) == 1 and dict(body.terms[0][0]).get(atom) == 1 for _, body in opened)
        ):
            continue
        common = [name for name in opened[0][0] if name in atom.free and all(name in names for names, _ in opened)]
        if not common or any(name in atom.free and name not in common for names, _ in opened for name in names):
            continue
        inverse = algebra.power(algebra.of_atom(atom), -1)
        rests = [
            algebra.sum_over([n for n in names if n not in common], algebra.mul(body, inverse))
            for names, body in opened
        ]
        inner = algebra.add(*rests)
        if not mono_free(((atom, 1),)) & set(common) or not set(common) <= inner.free:
            continue
        yield Node("contract", tuple(common), (algebra.of_atom(atom), inner))
