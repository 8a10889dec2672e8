"""Conditions under which the source does not look at a value, so that no program may either: NaN times 0 is NaN.

In the normal form ``select(c, x, 0)`` is a factor 0 or 1 on x, and factors commute. A program that sums a product must
put the ``select`` on x before anything else meets it: the condition *guards* the factors of x.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import is_float
from cleave.search.feeds import Signature, signatures, signatures_of_atom
from cleave.search.terms import Atom, Mono, Poly

Guard = tuple[tuple[Signature, ...], Signature]


class Masks:
    """Pairs of a condition and a factor that it guards, whatever the names of their dims."""

    def __init__(self, pairs: Iterable[Guard] = ()) -> None:
        self.pairs = frozenset(pairs)

    @staticmethod
    def of(graph: Graph, forms: Mapping[Value, Poly]) -> Masks:
        """All pairs of a source: what stands beside the zero of a ``select``."""
        pairs: list[Guard] = []
        for value in graph.topological():
            if value.op == "select" and is_float(value.dtype):
                condition, *sides = (forms[operand] for operand in value.operands)
                if not all(side.terms for side in sides):
                    pairs.extend((_key(condition), s) for side in sides for s in signatures(side))
        return Masks(pairs)

    def guarding(self, atom: Atom, mono: Mono) -> list[Atom]:
        """The conditions among the factors that guard the atom; they differ along one of its dims."""
        if not self.pairs or atom.kind == "chi":
            return []
        mine = signatures_of_atom(atom)
        return [
            chi
            for chi, _ in mono
            if chi.kind == "chi" and chi.free & atom.free and any((_key(chi.data[0]), s) in self.pairs for s in mine)
        ]

    def hides(self, atom: Atom, poly: Poly) -> bool:
        """Whether every term that has the atom looks at it under a condition only."""
        terms = [mono for mono, _ in poly if any(other is atom for other, _ in mono)]
        return bool(terms) and all(self.guarding(atom, mono) for mono in terms)


def _key(condition: Poly) -> tuple[Signature, ...]:
    return tuple(sorted(signatures(condition), key=str))
