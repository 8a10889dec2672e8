"""Monomials and coefficients of the normal form: what can be said of them without making new terms."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import gcd

from cleave.search.terms import Atom, Mono, Number, mono_key, simple

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)


def content_of(poly: Iterable[tuple[Mono, Number]]) -> Number:
    """The positive rational that leaves coprime integer coefficients."""
    top, bottom = 0, 1
    for _, c in poly:
        fraction = Fraction(c)
        top = gcd(top, fraction.numerator)
        bottom = bottom * fraction.denominator // gcd(bottom, fraction.denominator)
    return simple(Fraction(top, bottom))


def only_empty(chi: Atom, mono: Mono) -> bool:
    """Whether the factor is 0 only where a dim is empty that another factor is a sum over, which is 0 then too."""
    condition, polarity = chi.data
    compared = condition.single
    if polarity or compared is None or compared.kind != "fn" or not compared.data[0].startswith("cmp:predicate=eq"):
        return False
    count, zero = compared.data[1]
    size = count.single
    if size is None or size.kind != "size" or zero.terms:
        return False
    sums = [atom for atom, e in mono if atom.kind == "sum" and e > 0]
    return any(bound is size.data[0] for atom in sums for _, bound in atom.data[0])


def shifted(mono: Mono, by: dict[Atom, Number]) -> Mono:
    """The monomial times atoms to powers, without expanding."""
    exponents = dict(mono)
    for atom, e in by.items():
        exponents[atom] = simple(exponents.get(atom, 0) + e)
    return tuple(sorted(((a, e) for a, e in exponents.items() if e), key=lambda pair: pair[0].id))


def order_of(mono: Mono) -> tuple[tuple[int, Number], ...]:
    """A lexicographic monomial order: the newest atom decides first."""
    return tuple(reversed(mono_key(mono)))


def prime_factors(number: Fraction) -> dict[int, int]:
    """Small prime factors; what is left of a number is a base of its own, so that factoring is bounded."""
    result: dict[int, int] = {}
    for part, sign in ((number.numerator, 1), (number.denominator, -1)):
        for prime in _PRIMES:
            while part % prime == 0 and part > 1:
                part //= prime
                result[prime] = result.get(prime, 0) + sign
        if part > 1:
            result[part] = result.get(part, 0) + sign
    return {base: k for base, k in result.items() if k}
