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

from cleave.dialects.size import Atom, Monomial, Size, divide_monomials, from_atom, from_terms, multiply_monomials
from cleave.errors import CleaveError

#: An end of an interval: an int, or -inf / inf.
End = int | float
Interval = tuple[End, End]
_Terms = dict[Monomial, int]

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
        self._lower: dict[Size, End] = {}
        self._nonnegative: dict[tuple[Size, Size | None], bool] = {}
        self._structural: dict[Size, End] = {}
        self._atoms: dict[Atom, Interval] = {}
        self._monomials: dict[Monomial, Interval] = {}
        self._facts: dict[Atom, list[Size]] = {}

    def lower(self, size: Size) -> End:
        """The greatest lower bound that is found; -inf when none is."""
        found = self._lower.get(size)
        if found is None:
            found = self._search(size, self.nonnegative)
            if self is not BASE:  # never less than without facts, so that facts only ever simplify further
                found = max(found, BASE.lower(size))
            self._lower[size] = found
        return found

    def upper(self, size: Size) -> End:
        return -self.lower(-size)

    def at_least(self, size: Size, bound: int, positive: Size | None = None) -> bool:
        """Whether size >= bound is proved; ``positive`` is a size taken to be >= 1. Quicker than `lower`."""
        size = size - bound
        found = self._nonnegative.get((size, positive))
        if found is None:
            known = self.nonnegative if positive is None else (*self.nonnegative, positive - 1)
            found = self._search(size, known, enough=0) >= 0
            found = found or (self is not BASE and BASE.at_least(size, 0, positive))
            found = found or any(self.at_least(cleared, 0, positive) for cleared in _without_quotients(size))
            self._nonnegative[size, positive] = found
        return found

    def _structural_lower(self, size: Size) -> End:
        """As `lower`, without the polynomials from facts: their atoms would make this recursion endless."""
        found = self._structural.get(size)
        if found is None:
            found = self._structural[size] = self._search(size, ())
        return found

    def _search(self, size: Size, known: tuple[Size, ...], cases: int = _CASES, enough: End = inf) -> End:
        """The greatest lower bound, or one that is ``enough``."""
        best = self._interval_lower(dict(size.terms))
        if best >= enough or len(size.terms) > _MAX_TERMS or size.value is not None:
            return best
        # Plain dicts: interning what is only passed through would fill the table of sizes.
        seen = {frozenset(size.terms)}
        queue: deque[tuple[_Terms, int]] = deque([(dict(size.terms), 1)])
        while queue and len(seen) < _STEPS:
            current, scale = queue.popleft()
            for reduced, factor in self._reductions(current, known):
                key = frozenset(reduced.items())
                if key in seen or len(reduced) > _MAX_TERMS or scale * factor > _MAX_SCALE:
                    continue
                seen.add(key)
                queue.append((reduced, scale * factor))
                best = max(best, _ceil_divide(self._interval_lower(reduced), scale * factor))
                if best >= enough:
                    return best
        return self._by_cases(size, known, cases, best, enough)

    def _by_cases(self, size: Size, known: tuple[Size, ...], cases: int, best: End, enough: End) -> End:
        """min(a, b) is a, and then a <= b, or b, and then b <= a: the lesser bound, if that improves ``best``."""
        choice = next((a for m, _ in size.terms for a in m if a.kind in ("min", "max")), None)
        if choice is None or not cases or len(choice.args) > _MAX_CASES:
            return best
        low: End = inf
        for arg in choice.args:
            others = [other for other in choice.args if other is not arg]
            implied = (other - arg if choice.kind == "min" else arg - other for other in others)
            low = min(low, self._search(_replace(size, choice, arg), (*known, *implied), cases - 1, enough))
            if low <= best:
                return best
        return low

    def _reductions(self, terms: _Terms, known: tuple[Size, ...]) -> Iterator[tuple[_Terms, int]]:
        """(q, k) with k*terms >= q: a term that pulls the bound down is cancelled by something known to be >= 0."""
        lows = {monomial: self._term_interval(monomial, coefficient)[0] for monomial, coefficient in terms.items()}
        pulling = [monomial for monomial, low in lows.items() if low < 0]
        if not pulling:
            return
        atoms = dict.fromkeys(atom for monomial in terms for atom in monomial)
        candidates = [*known, *(p for atom in atoms for p in self._facts_of(atom))]
        matches = {monomial: list(self._matches(monomial, terms, candidates)) for monomial in pulling}
        # A term without a lower bound must be cancelled by something, sooner or later; so that one and now.
        unbounded = [monomial for monomial in pulling if lows[monomial] == -inf]
        if unbounded:
            pulling = [min(unbounded, key=lambda monomial: len(matches[monomial]))]
        for monomial in pulling:
            for nonnegative, cofactor, c in matches[monomial]:
                common = gcd(c, terms[monomial])
                factor, times = abs(c) // common, abs(terms[monomial]) // common
                yield _combine(terms, factor, nonnegative, cofactor, -times), factor

    def _matches(
        self, monomial: Monomial, terms: _Terms, candidates: list[Size]
    ) -> Iterator[tuple[Size, Monomial, int]]:
        """(p, m, c): m >= 0, and the term of p with the coefficient c becomes, times m, one of ``monomial``."""
        for nonnegative in candidates:
            for divisor, c in nonnegative.terms:
                cofactor = divide_monomials(monomial, divisor) if (c < 0) == (terms[monomial] < 0) else None
                if cofactor is None or (monomial and not divisor and not _is_of_use(nonnegative, cofactor, terms)):
                    continue
                if all(self._atom_interval(atom)[0] >= 0 for atom in cofactor):
                    yield nonnegative, cofactor, c

    def _facts_of(self, atom: Atom) -> list[Size]:
        found = self._facts.get(atom)
        if found is None:
            try:
                found = self._atom_facts(atom)
            except CleaveError:  # too large to be of use
                found = []
            self._facts[atom] = found
        return found

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

    def _interval_lower(self, terms: _Terms) -> End:
        total: End = 0
        for monomial, coefficient in terms.items():
            total = _plus(total, self._term_interval(monomial, coefficient)[0])
        return total

    def _term_interval(self, monomial: Monomial, coefficient: int) -> Interval:
        found = self._monomials.get(monomial)
        if found is None:
            found = (1, 1)
            for atom in dict.fromkeys(monomial):
                found = _product(found, _power(self._atom_interval(atom), monomial.count(atom)))
            self._monomials[monomial] = found
        low, high = _times(found[0], coefficient), _times(found[1], coefficient)
        return (low, high) if coefficient > 0 else (high, low)

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


def _is_of_use(nonnegative: Size, cofactor: Monomial, terms: _Terms) -> bool:
    """Whether the product stays within the monomials there are; else n <= n*s <= n*s*s <= ... would not end."""
    return all(
        any(divide_monomials(monomial, multiply_monomials(factor, cofactor)) is not None for monomial in terms)
        for factor, _ in nonnegative.terms
    )


def _combine(terms: _Terms, factor: int, other: Size, cofactor: Monomial, times: int) -> _Terms:
    """factor*terms + times*cofactor*other."""
    total = {monomial: factor * coefficient for monomial, coefficient in terms.items()}
    for monomial, coefficient in other.terms:
        product = multiply_monomials(monomial, cofactor)
        total[product] = total.get(product, 0) + times * coefficient
        if not total[product]:
            del total[product]
    return total


def _without_quotients(size: Size) -> Iterator[Size]:
    """Sizes that are >= 0 exactly when ``size`` is: floordiv(a, b) <= k exactly when a < (k + 1)*b, and so on."""
    for monomial, coefficient in size.terms:
        if len(monomial) != 1 or coefficient not in (1, -1) or monomial[0].kind not in ("floordiv", "ceildiv"):
            continue
        rest = size - from_terms((monomial, coefficient))
        if any(monomial[0] in other for other, _ in rest.terms):
            continue
        numerator, divisor = monomial[0].args
        rounds_away = (monomial[0].kind == "ceildiv") == (coefficient > 0)
        with suppress(CleaveError):  # too large to be of use
            yield (
                (rest + 1) * divisor - 1 + numerator * coefficient
                if rounds_away
                else (rest * divisor + numerator * coefficient)
            )


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
