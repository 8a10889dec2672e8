"""The split move: a reduction over ``n`` as one over the parts ``t``, then one over the part numbers ``s``.

A stabilised sum carries its own maximum in each part; combining parts rescales them: with ``M_s`` the maximum of part
``s`` and ``M`` that of all, ``exp(-M)·Σ_n exp(z)·v = Σ_s exp(M_s-M)·(Σ_t exp(z-M_s)·v)``.
"""

from __future__ import annotations

from collections.abc import Iterator

from cleave.search.monotone import exponent_of, is_monotone_in_parts
from cleave.search.space import Node, Space
from cleave.search.terms import Atom, Item, OutOfFuel, Pair, Poly


def split_nodes(space: Space, atom: Atom, exponent: Poly) -> Iterator[Node]:
    """Nodes for ``exp(exponent) * atom``, the atom a sum or maximum over the cut dimension."""
    cut = space.cut
    if cut is None or atom.kind not in ("sum", "max", "red") or all(size is not cut.size for _, size in atom.data[-2]):
        return
    algebra = space.algebra
    names = space.opening(atom.data[-2], atom.free | exponent.free)
    inner = [cut.pair.inner if isinstance(item, Pair) else str(item) for item in names.values()]
    body = algebra.open(atom, names)
    over = (cut.pair.outer,)
    if atom.kind == "max":
        yield Node("reduce", ("max", over), (algebra.max_over(inner, body),))
        return
    if atom.kind == "red":
        yield Node("reduce", (atom.data[0], over), (algebra.reduce_over(atom.data[0], inner, body),))
        return
    if not exponent.terms:
        yield Node("reduce", ("sum", over), (algebra.sum_over(inner, body),))
        return
    maximum = part_of_maximum(space, algebra.neg(exponent))
    if maximum is None or len(body) != 1:
        space.reject("the sum's stabiliser is no maximum over the cut dimension")
        return
    stabilised = algebra.mul(body, algebra.exp(algebra.neg(maximum)))
    if not _bounded(space, stabilised, maximum, inner):
        space.reject("the maximum of a part bounds another value than the exponent")
        return
    weight = algebra.add(maximum, exponent)
    space.stability.allowed.add(weight)
    yield Node("contract", over, (algebra.exp(weight), algebra.sum_over(inner, stabilised)))


def _bounded(space: Space, body: Poly, maximum: Poly, inner: list[str]) -> bool:
    """Whether the body's exponent is a value minus its own maximum over the part; if so exp may be applied to it."""
    algebra = space.algebra
    exponent = exponent_of(algebra, body.terms[0][0])
    core = algebra.add(exponent, maximum)
    if algebra.max_over([name for name in inner if name in core.free], core) is not maximum:
        return False
    space.stability.allowed.add(exponent)
    space.guards[exponent] = (core, maximum)
    return True


def part_of_maximum(space: Space, poly: Poly) -> Poly | None:
    """A stabiliser with the one maximum over the cut dimension in it taken over each part only."""
    cut = space.cut
    if cut is None:
        return None
    found: list[Poly] = []
    algebra = space.algebra
    result = algebra.number(0)
    for mono, c in poly:
        part = algebra.of_mono(mono, c)
        for atom, e in mono:
            maximum = _maximum_over(space, atom)
            if maximum is not None and (e == 1 or atom.kind in ("exp", "poly")):
                found.append(maximum)
                rest = algebra.of_mono(tuple(p for p in mono if p[0] is not atom), c)
                part = algebra.mul(rest, algebra.power(maximum, e))
        result = algebra.add(result, part)
    return result if len(found) == 1 else None


def _maximum_over(space: Space, atom: Atom) -> Poly | None:
    """The maximum over one part, of a maximum over the cut dimension, or what a monotone function makes of it."""
    cut, algebra = space.cut, space.algebra
    assert cut is not None
    if atom.kind == "max" and any(size is cut.size for _, size in atom.data[0]):
        try:
            names: dict[str, Item] = space.opening(atom.data[0], atom.free)
        except OutOfFuel:
            return None
        inner = [cut.pair.inner if isinstance(item, Pair) else str(item) for item in names.values()]
        return algebra.max_over(inner, algebra.open(atom, names))
    if atom.kind == "fn" and atom.data[0] == "max":
        parts = [part for arg in atom.data[1] if (part := part_of_maximum(space, arg)) is not None]
        return parts[0] if len(parts) == 1 else None
    if not is_monotone_in_parts(atom):
        return None
    argument = atom.data[1][0] if atom.kind == "fn" else atom.data[0]
    part = part_of_maximum(space, algebra.of_mono(argument) if atom.kind == "exp" else argument)
    if part is None or atom.kind == "poly":
        return part
    return algebra.exp(part) if atom.kind == "exp" else algebra.apply(atom.data[0], [part])
