"""Maxima of monotone functions: ``max f(x) = f(max x)`` where f never falls, ``f(min x)`` where it never rises.

Both sides are compared where f is defined at all elements, as everywhere in the normal form. Where that needs a sign,
it must be known: ``1/x`` falls only among numbers of one sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from cleave.search.terms import Atom, Mono, Number, Poly, atom_nonnegative, mono_free, parts, simple

if TYPE_CHECKING:
    from cleave.search.binders import Algebra
    from cleave.search.normal_form import Arithmetic

#: Functions of one argument that never fall, wherever they are defined.
INCREASING = frozenset(("tanh", "erf", "log"))


def maximum_inside(algebra: Algebra, names: Sequence[str], body: Poly) -> Poly | None:
    """The maximum of ``c·f(x)`` over the names as ``c·f`` of a maximum or minimum; None where no f is known.

    ``body`` is a single term all of whose factors depend on the names, or have no known sign.
    """
    mono, c = body.terms[0]
    if mono and all(atom.kind == "exp" for atom, _ in mono):
        return algebra.scale(algebra.exp(_extremum(algebra, names, exponent_of(algebra, mono), c > 0)), c)
    power = _as_power(algebra, names, mono)
    if power is not None:
        base, e = power
        return algebra.scale(algebra.power(_extremum(algebra, names, base, (e > 0) is (c > 0)), e), c)
    if len(mono) != 1:
        return None
    atom, e = mono[0]
    if e == 1:
        if atom.kind != "fn" or atom.data[0] not in INCREASING:
            return None
        inner = algebra.apply(atom.data[0], [_extremum(algebra, names, atom.data[1][0], c > 0)])
        return algebra.scale(inner, c)
    if not _is_monotone(atom, e):
        return None
    base = atom.data[0] if atom.kind == "poly" else algebra.of_atom(atom)
    return algebra.scale(algebra.power(_extremum(algebra, names, base, (e > 0) is (c > 0)), e), c)


def _as_power(algebra: Algebra, names: Sequence[str], mono: Mono) -> tuple[Poly, Number] | None:
    """``e^x·(1 + e^x)^-1`` as ``(1 + e^-x)^-1``: exponentials go into a positive sum that they do not lengthen."""
    sums = [(atom, e) for atom, e in mono if atom.kind == "poly" and atom.positive]
    exponent = exponent_of(algebra, mono)
    if len(sums) != 1 or not exponent.terms or any(atom.kind not in ("poly", "exp") for atom, _ in mono):
        return None
    atom, e = sums[0]
    base = algebra.mul(atom.data[0], algebra.exp(algebra.scale(exponent, simple(Fraction(1) / e))))
    return (base, e) if _dependent(base, names) <= _dependent(atom.data[0], names) else None


def _dependent(poly: Poly, names: Sequence[str]) -> int:
    return sum(bool(mono_free(mono) & set(names)) for mono, _ in poly)


def _is_monotone(atom: Atom, e: Number) -> bool:
    """Whether the power rises or falls throughout: a root, defined only where its base is not negative, or a sign."""
    return Fraction(e).denominator % 2 == 0 or atom_nonnegative(atom, 1)


def holds_maximum(mono: Mono) -> bool:
    """Whether a factor is a maximum over dims, or what a monotone function makes of one."""
    return any(
        atom.kind == "max"
        or (is_monotone_in_parts(atom) and any(holds_maximum(m) for part in parts(atom) for m, _ in part))
        for atom, _ in mono
    )


def is_monotone_in_parts(atom: Atom) -> bool:
    """Whether the atom is a function that maxima go into: an exponential, a power, or one that never falls."""
    return atom.kind in ("exp", "poly") or (atom.kind == "fn" and atom.data[0] in (*INCREASING, "max"))


def exponent_of(algebra: Arithmetic, mono: Mono) -> Poly:
    """The sum of the exponents of all exponentials among the factors."""
    return algebra.poly({atom.data[0]: e for atom, e in mono if atom.kind == "exp"})


def _extremum(algebra: Algebra, names: Sequence[str], poly: Poly, largest: bool) -> Poly:
    return algebra.max_over(names, poly) if largest else algebra.min_over(names, poly)
