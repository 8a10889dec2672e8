"""Bounds of sizes: interval arithmetic, sharpened with what is known to be non-negative.

A `Bounds` knows an interval for each symbol and polynomials known to be >= 0 (from facts). Every atom brings its own:
``floordiv(a, b)`` satisfies ``0 <= a - b*floordiv(a, b) <= b - 1``, ``min(a, b) <= a``, and so on. A lower bound of p
is searched by taking non-negative multiples of such polynomials away from p until interval arithmetic gives a number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import gcd, inf
from typing import Final

from cleave.dialects.size import Atom, Monomial, Size, divide_monomials, from_atom, from_terms
from cleave.errors import CleaveError

#: An end of an interval: an int, or -inf / inf.
End = int | float
Interval = tuple[End, End]

_STEPS: Final = 40  # polynomials looked at in one search
_MAX_TERMS: Final = 24  # above this only plain interval arithmetic
_MAX_SCALE: Final = 1 << 40  # multiple of the polynomial that is bounded
_CASES: Final = 2  # min and max atoms resolved by cases in one query
_MAX_CASES: Final = 4  # arguments of such an atom


class Bounds:
    """What is known about the symbols. ``BASE`` knows only that symbols are >= 0 and divisors >= 1."""

    def __init__(self, symbols: Mapping[str, Interval] | None = None, nonnegative: Sequence[Size] = ()) -> None:
        self.symbols = dict(symbols or {})
        self.nonnegative = tuple(nonnegative)
        self._lower: dict[tuple[Size, Size | None], End] = {}
        self._structural: dict[Size, End] = {}
        self._atoms: dict[Atom, Interval] = {}

    def lower(self, size: Size, positive: Size | None = None) -> End:
        """The greatest lower bound that is found; -inf when none is. ``positive``: a size taken to be >= 1."""
        found = self._lower.get((size, positive))
        if found is None:
            known = self.nonnegative if positive is None else (*self.nonnegative, positive - 1)
            found = self._search(size, known, _CASES)
            if self is not BASE:  # never less than without facts, so that facts only ever simplify further
                found = max(found, BASE.lower(size, positive))
            self._lower[size, positive] = found
        return found

    def upper(self, size: Size) -> End:
        return -self.lower(-size)

    def _structural_lower(self, size: Size) -> End:
        """As `lower`, without the polynomials from facts: their atoms would make this recursion endless."""
        found = self._structural.get(size)
        if found is None:
            found = self._structural[size] = self._search(size, (), _CASES)
        return found

    def _search(self, size: Size, known: tuple[Size, ...], cases: int) -> End:
        best = self._interval_lower(size)
        if len(size.terms) > _MAX_TERMS or size.value is not None:
            return best
        seen = {size}
        queue: deque[tuple[Size, int]] = deque([(size, 1)])
        while queue and len(seen) < _STEPS:
            current, scale = queue.popleft()
            for reduced, factor in self._reductions(current, known):
                if reduced in seen or len(reduced.terms) > _MAX_TERMS or scale * factor > _MAX_SCALE:
                    continue
                seen.add(reduced)
                queue.append((reduced, scale * factor))
                best = max(best, _ceil_divide(self._interval_lower(reduced), scale * factor))
        return max(best, self._by_cases(size, known, cases))

    def _by_cases(self, size: Size, known: tuple[Size, ...], cases: int) -> End:
        """min(a, b) is a, and then a <= b, or b, and then b <= a: the lesser of the bounds in the two cases."""
        choice = next((a for m, _ in size.terms for a in m if a.kind in ("min", "max")), None)
        if choice is None or not cases or len(choice.args) > _MAX_CASES:
            return -inf
        lows: list[End] = []
        for arg in choice.args:
            others = [other for other in choice.args if other is not arg]
            implied = (other - arg if choice.kind == "min" else arg - other for other in others)
            lows.append(self._search(_replace(size, choice, arg), (*known, *implied), cases - 1))
        return min(lows)

    def _reductions(self, size: Size, known: tuple[Size, ...]) -> Iterator[tuple[Size, int]]:
        """(q, k) with k*size >= q: a term that pulls the bound down is cancelled by something known to be >= 0."""
        pulling = [term for term in size.terms if self._term_interval(*term)[0] < 0]
        if not pulling:
            return
        candidates = [*known, *(p for atom in _atoms_of(size) for p in self._atom_facts(atom))]
        for monomial, coefficient in pulling:
            for nonnegative in candidates:
                for divisor, c in nonnegative.terms:
                    cofactor = divide_monomials(monomial, divisor) if (c < 0) == (coefficient < 0) else None
                    if cofactor is None or any(self._atom_interval(atom)[0] < 0 for atom in cofactor):
                        continue
                    common = gcd(c, coefficient)
                    factor, times = abs(c) // common, from_terms((cofactor, abs(coefficient) // common))
                    with suppress(CleaveError):  # too large to be of use
                        yield size * factor - nonnegative * times, factor

    def _atom_facts(self, atom: Atom) -> list[Size]:
        """Polynomials that are >= 0 by the meaning of the atom."""
        this = from_atom(atom)
        if atom.kind == "min":
            return [arg - this for arg in atom.args]
        if atom.kind == "max":
            return [this - arg for arg in atom.args]
        if atom.kind == "symbol":
            return []
        numerator, divisor = atom.args
        remainder = numerator - divisor * this
        facts = (
            [remainder, divisor - 1 - remainder] if atom.kind == "floordiv" else [-remainder, divisor - 1 + remainder]
        )
        if divisor.value is None:
            facts.append(divisor - 1)
        if self._structural_lower(numerator) >= 0:
            facts.append(numerator - this)
        return facts

    def _interval_lower(self, size: Size) -> End:
        total: End = 0
        for term in size.terms:
            total = _plus(total, self._term_interval(*term)[0])
        return total

    def _term_interval(self, monomial: Monomial, coefficient: int) -> Interval:
        low, high = 1, 1
        for atom in dict.fromkeys(monomial):
            low, high = _product((low, high), _power(self._atom_interval(atom), monomial.count(atom)))
        return _product((low, high), (coefficient, coefficient))

    def _atom_interval(self, atom: Atom) -> Interval:
        if atom.kind == "symbol":
            return self.symbols.get(atom.text, (0, inf))
        found = self._atoms.get(atom)
        if found is None:
            args = [(self._structural_lower(arg), -self._structural_lower(-arg)) for arg in atom.args]
            found = self._atoms[atom] = _function_interval(atom.kind, args)
        return found


def _function_interval(kind: str, args: list[Interval]) -> Interval:
    if kind in ("min", "max"):
        pick = min if kind == "min" else max
        return pick(low for low, _ in args), pick(high for _, high in args)
    (low, high), divisor = args
    if kind == "floordiv":
        return _floor_interval(low, high, divisor)
    least, greatest = _floor_interval(-high, -low, divisor)  # ceildiv(a, b) = -floordiv(-a, b)
    return -greatest, -least


def _floor_interval(low: End, high: End, divisor: Interval) -> Interval:
    least, greatest = max(divisor[0], 1), max(divisor[1], 1)
    return _quotient(low, greatest if low >= 0 else least), _quotient(high, least if high >= 0 else greatest)


def _quotient(a: End, b: End) -> End:
    """floor(a / b) for b >= 1; the limit when an end is infinite."""
    if isinstance(a, float):
        return a
    if isinstance(b, float):
        return 0 if a >= 0 else -1
    return a // b


def _ceil_divide(a: End, b: int) -> End:
    return a if isinstance(a, float) else -(-a // b)


def _plus(a: End, b: End) -> End:
    """a + b; with infinities only of one sign. (An int beyond the range of floats must not meet one.)"""
    if isinstance(a, float):
        return a
    return b if isinstance(b, float) else a + b


def _times(a: End, b: End) -> End:
    if a == 0 or b == 0:
        return 0
    if isinstance(a, float) or isinstance(b, float):
        return inf if (a > 0) == (b > 0) else -inf
    return a * b


def _product(a: Interval, b: Interval) -> Interval:
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _power(base: Interval, exponent: int) -> Interval:
    result: Interval = (1, 1)
    for _ in range(exponent):
        result = _product(result, base)
    return (max(0, result[0]), result[1]) if exponent % 2 == 0 else result


def _atoms_of(size: Size) -> list[Atom]:
    return list(dict.fromkeys(atom for monomial, _ in size.terms for atom in monomial))


def _replace(size: Size, atom: Atom, by: Size) -> Size:
    """The polynomial with one of its atoms replaced (not inside other atoms)."""
    total = from_terms()
    for monomial, coefficient in size.terms:
        rest = tuple(a for a in monomial if a is not atom)
        term = from_terms((rest, coefficient))
        for _ in range(len(monomial) - len(rest)):
            term = term * by
        total = total + term
    return total


BASE: Final = Bounds()
