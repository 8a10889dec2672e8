"""Which dims are *eventually reduced*: summed or maximised over on the way to every output, so that they may be cut."""

from __future__ import annotations

from collections.abc import Iterable

from cleave.dialects.dims import Size
from cleave.search.terms import Atom, Poly, parts


def outermost_reductions(polys: Iterable[Poly]) -> list[Atom]:
    """The reductions that are inside no other one, in order of occurrence."""
    found: dict[Atom, None] = {}
    seen: set[Poly] = set()

    def visit(poly: Poly) -> None:
        if poly in seen:
            return
        seen.add(poly)
        for mono, _ in poly:
            for atom, _ in mono:
                visit_atom(atom)

    def visit_atom(atom: Atom) -> None:
        if atom.kind in ("sum", "max", "red"):
            found[atom] = None
            return
        for part in parts(atom):
            if isinstance(part, Poly):
                visit(part)
            else:
                for mono, _ in part:
                    for inner, _ in mono:
                        visit_atom(inner)

    for poly in polys:
        visit(poly)
    return list(found)


def splittable_sizes(outputs: Iterable[Poly]) -> list[Size]:
    """Sizes of dims that the outermost reductions bind, made of at least one symbol."""
    sizes: dict[Size, None] = {}
    for atom in outermost_reductions(outputs):
        for name, size in atom.data[-2]:
            if "'" not in name and size.symbols:
                sizes[size] = None
    return list(sizes)
