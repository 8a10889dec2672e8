"""Values with a merged dimension, computed with the two dims that it was merged from: grouped heads without copies."""

from __future__ import annotations

from collections.abc import Iterator

from cleave.search.space import Node, Space
from cleave.search.terms import OutOfFuel, Pair, Piece, Poly


def unmerged_nodes(space: Space, poly: Poly) -> Iterator[Node]:
    """The value in parts, then merged, for a dimension of which it uses the parts somewhere."""
    pieces = {p for mono, _ in poly for atom, _ in mono for p in atom.pieces}
    for name in sorted({p.name for p in pieces}):
        piece = next(p for p in pieces if p.name == name)
        taken = set(poly.free)
        outer = _name(space, piece, True, taken)
        inner = _name(space, piece, False, taken | {outer})
        pair = Pair(outer, inner, space.algebra.sizes[name], piece.outer_size, piece.inner_size)
        try:
            part = space.algebra.substitute(poly, {name: pair})
        except OutOfFuel as error:
            space.reject(str(error))
            continue
        space.transport(name, pair)
        yield Node("merge", ((outer, inner), name), (part,))


def _name(space: Space, piece: Piece, is_outer: bool, taken: set[str]) -> str:
    """The name that the source gives a dimension of that size, if it is free."""
    size = piece.outer_size if is_outer else piece.inner_size
    for name in space.names.get(size, ()):
        if name not in taken:
            return name
    invented = f"{piece.name}_{'outer' if is_outer else 'inner'}"
    space.algebra.sizes.setdefault(invented, size)
    return invented
