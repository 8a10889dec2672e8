"""Where exponentials may stand. Equality ignores overflow, so this is a property of values, not of equality.

A source that subtracts a maximum before an exponential declares a *family*: the exponential of ``core - stabiliser``.
Allowed are exponentials that the source applies itself; in a split, those of ``core - M_part`` and ``M_part - M``.
A sum of exponentials of the core is built only together with ``exp(-stabiliser)``; ratios cancel it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cleave.search.binders import Algebra
from cleave.search.monotone import exponent_of, holds_maximum
from cleave.search.terms import Atom, Poly, mono_free


@dataclass(frozen=True)
class Family:
    """Exponentials of ``core`` are computed as ``exp(core - stabiliser)``."""

    core: Poly
    stabiliser: Poly


class Stability:
    """The families of one search mode and the exponents that may be applied."""

    def __init__(self, algebra: Algebra, exponents: Iterable[Poly]) -> None:
        self.algebra = algebra
        self.allowed: set[Poly] = set()
        self.families: list[Family] = []
        for exponent in exponents:
            self.allow(exponent)

    def allow(self, exponent: Poly) -> None:
        """The source applies exp to this; if a maximum is subtracted in it, that is a family."""
        if exponent in self.allowed:
            return
        self.allowed.add(exponent)
        subtracted = {mono: c for mono, c in exponent if c < 0 and holds_maximum(mono)}
        if subtracted:
            part = self.algebra.poly(subtracted)
            family = Family(self.algebra.sub(exponent, part), self.algebra.neg(part))
            if family not in self.families:
                self.families.append(family)

    def introduce(self, exponent: Poly, over: Iterable[str]) -> list[str]:
        """Subtract the maximum over ``over`` where the source does not: the exponential of the exponent alone goes.

        The dims of the maximum; none where nothing was introduced.
        """
        names = [name for name in over if name in exponent.free]
        if exponent not in self.allowed or not names or any(holds_maximum(mono) for mono, _ in exponent):
            return []
        self.allowed.discard(exponent)
        self.allow(self.algebra.sub(exponent, self.algebra.max_over(names, exponent)))
        return names

    def offset(self, poly: Poly) -> Poly | None:
        """What must be subtracted in the exponents of ``poly`` so that it can be computed; None if nothing is known.

        0 where the polynomial has no exponential, or only ones that the source has as they are.
        """
        found = self.algebra.number(0)
        for mono, _ in poly:
            for atom, _ in mono:
                offset = self.atom_offset(atom)
                if offset is None:
                    return None
                if offset.terms:
                    found = offset
        return found

    def atom_offset(self, atom: Atom) -> Poly | None:
        if atom.kind == "poly":
            return self.offset(atom.data[0])
        if atom.kind != "sum":
            return self.algebra.number(0)
        exponent = exponent_of(self.algebra, atom.data[1])
        if not exponent.terms:
            return self.algebra.number(0)
        bound = [name for name, _ in atom.data[0]]
        for family in self.families:
            outside = self._outside(exponent, bound, family)
            if outside is not None:
                return self.algebra.sub(family.stabiliser, outside)
        return self.algebra.number(0)

    def _outside(self, exponent: Poly, bound: list[str], family: Family) -> Poly | None:
        """The part of the family's core that stands outside the sum, if the rest is the sum's exponent."""
        algebra = self.algebra
        names = [name for name in sorted(family.core.free) if name not in family.stabiliser.free]
        if not names:
            return None
        dependent = algebra.poly({m: c for m, c in family.core if mono_free(m) & set(names)})
        # Summing both gives them the same bound names.
        used = [name for name in bound if name in exponent.free]
        mine = algebra.sum_over(used, algebra.exp(exponent))
        theirs = algebra.sum_over(names, algebra.exp(dependent))
        return algebra.sub(family.core, dependent) if mine is theirs else None
