"""The normal form: arithmetic on polynomials whose equal results are one object. Equal forms are equal functions.

The laws hold over the reals wherever both sides are defined (``x/x = 1``); where a law needs a sign it is applied only
if the sign is known. Products are expanded, exponentials are split by summand, fractional powers stay atoms and exact
division cancels them. What a law does not cover becomes an opaque function of normal forms, which can only make equal
terms look different, never the reverse. Sums and maxima over dims are in `binders`.
"""

from __future__ import annotations

from fractions import Fraction

from cleave.search.monomials import content_of, only_empty, order_of, prime_factors, shifted
from cleave.search.terms import (
    ONE,
    Atom,
    Mono,
    Number,
    OutOfFuel,
    Poly,
    Store,
    atom_nonnegative,
    counts_part,
    nonnegative,
    poly_positive,
    positive,
    simple,
)

MAX_POWER = 4  # powers of sums beyond this stay atoms
HALF = Fraction(1, 2)


class Arithmetic(Store):
    """Sums, products, powers, exponentials and logarithms in normal form."""

    def __init__(self) -> None:
        super().__init__()
        self._products: dict[tuple[Poly, Poly], Poly] = {}
        self._powers: dict[tuple[Poly, Number], Poly] = {}
        self.work = 0  # products of monomials so far: a measure that no clock disturbs

    # --- sums and products ---------------------------------------------------------------------------------------

    def add(self, *polys: Poly) -> Poly:
        total: dict[Mono, Number] = {}
        for poly in polys:
            for mono, c in poly:
                total[mono] = total.get(mono, 0) + c
        return self.cancel(self.poly(total))

    def scale(self, poly: Poly, factor: Number) -> Poly:
        return poly if factor == 1 else self.poly({mono: c * factor for mono, c in poly})

    def neg(self, poly: Poly) -> Poly:
        return self.scale(poly, -1)

    def sub(self, a: Poly, b: Poly) -> Poly:
        return self.add(a, self.neg(b))

    def mul(self, a: Poly, b: Poly) -> Poly:
        if a.id > b.id:
            a, b = b, a
        found = self._products.get((a, b))
        if found is None:
            found = self._products[a, b] = self.cancel(self._expand(a, b))
        return found

    def product(self, *polys: Poly) -> Poly:
        result = self.number(1)
        for poly in polys:
            result = self.mul(result, poly)
        return result

    def div(self, a: Poly, b: Poly) -> Poly:
        return self.mul(a, self.power(b, -1))

    def _expand(self, a: Poly, b: Poly) -> Poly:
        total: dict[Mono, Number] = {}
        later: list[tuple[Mono, list[tuple[Atom, Number]], Number]] = []
        self.work += len(a) * len(b)
        if len(a) * len(b) > 4000:
            raise OutOfFuel("a product of sums is too large")
        for mono_a, ca in a:
            for mono_b, cb in b:
                mono, sums, c = self._join(mono_a, mono_b, simple(ca * cb))
                if sums:
                    later.append((mono, sums, c))
                else:
                    total[mono] = total.get(mono, 0) + c
        result = self.poly(total)
        for mono, sums, c in later:
            part = self.of_mono(mono, c)
            for atom, exponent in sums:
                part = self.mul(part, self.power(atom.data[0], exponent))
            result = self.add(result, part)
        return result

    def _join(self, a: Mono, b: Mono, c: Number) -> tuple[Mono, list[tuple[Atom, Number]], Number]:
        """The product of monomials; beside it the atoms that must be expanded: sums that became whole powers."""
        if not a:
            return b, [], c
        if not b:
            return a, [], c
        exponents: dict[Atom, Number] = dict(a)
        sums: list[tuple[Atom, Number]] = []
        for atom, e in b:
            exponents[atom] = simple(exponents.get(atom, 0) + e)
        result: list[tuple[Atom, Number]] = []
        for atom, e in exponents.items():
            if e == 0:
                continue
            if atom.kind == "poly" and isinstance(e, int) and (0 < e <= MAX_POWER or len(atom.data[0]) == 1):
                sums.append((atom, e))
            elif atom.kind == "prime" and not 0 < e < 1:
                whole = int(e // 1)
                c *= Fraction(atom.data[0]) ** whole
                if e != whole:
                    result.append((atom, e - whole))
            else:
                result.append((atom, 1 if atom.kind in ("chi", "one") and e > 0 else e))
        result.sort(key=lambda pair: pair[0].id)
        mono = tuple(result)
        chis = [atom for atom, _ in mono if atom.kind == "chi"]
        if chis and any(atom.kind == "sum" for atom, _ in mono):
            mono = tuple(pair for pair in mono if pair[0] not in chis or not only_empty(pair[0], mono))
        if len(chis) > 1 and any(x.data[0] is y.data[0] for x in chis for y in chis if x is not y):
            return ONE, [], 0  # a condition and its opposite
        return mono, sums, simple(c)

    # --- powers ----------------------------------------------------------------------------------------------------

    def power(self, poly: Poly, exponent: Number) -> Poly:
        """``poly`` to a rational power; the root is the non-negative one."""
        exponent = simple(exponent)
        found = self._powers.get((poly, exponent))
        if found is None:
            found = self._powers[poly, exponent] = self._power(poly, exponent)
        return found

    def _power(self, poly: Poly, e: Number) -> Poly:
        if e == 0:
            return self.number(1)
        if e == 1:
            return poly
        if not poly.terms:
            return poly if e > 0 else self.of_mono(((self.atom("poly", poly), e),))
        if len(poly) == 1:
            return self._power_of_product(*poly.terms[0], e)
        if isinstance(e, int) and 0 < e <= MAX_POWER:
            return self.mul(poly, self.power(poly, e - 1))
        content, factor, base = self.primitive(poly, whole=isinstance(e, int))
        outside = self.mul(self._power_of_number(abs(content), e), self._power_of_product(factor, 1, e))
        if content < 0:
            if isinstance(e, int):
                outside = self.scale(outside, -1 if e % 2 else 1)
            else:
                base = self.neg(base)
        atom = self.atom("poly", base)
        return self.mul(outside, self.of_mono(((atom, e),)))

    def _power_of_product(self, mono: Mono, c: Number, e: Number) -> Poly:
        """Powers go to the factors where the signs allow it; the others stay under one root together."""
        result = self._power_of_number(abs(c), e)
        stuck: list[tuple[Atom, Number]] = []
        for atom, k in mono:
            if isinstance(e, int) or (atom_nonnegative(atom, k) and not (isinstance(k, int) and k % 2 == 0)):
                result = self.mul(result, self._power_of_atom(atom, simple(k * e)))
            elif isinstance(k, int) and k % 2 == 0:
                result = self.mul(result, self._power_of_atom(self._absolute(atom), simple(k * e)))
            else:
                stuck.append((atom, k))
        negative = c < 0
        if isinstance(e, int):
            return self.scale(result, -1 if negative and e % 2 else 1)
        if stuck or negative:
            base = self.of_mono(tuple(stuck), -1 if negative else 1)
            result = self.mul(result, self.of_mono(((self.atom("poly", base), e),)))
        return result

    def _power_of_atom(self, atom: Atom, e: Number) -> Poly:
        if atom.kind == "poly" and isinstance(e, int) and (0 < e <= MAX_POWER or len(atom.data[0]) == 1):
            return self.power(atom.data[0], e)
        if atom.kind == "chi":
            if e < 0:
                return self.of_mono(((self.atom("fn", "reciprocal", (self.of_atom(atom),)), simple(-e)),))
            return self.of_atom(atom)
        if e == 0:
            return self.number(1)
        if atom.kind == "fn" and atom.data[0] == "abs" and isinstance(e, int) and e % 2 == 0:
            return self.power(atom.data[1][0], e)
        return self.of_mono(((atom, e),))

    def _absolute(self, atom: Atom) -> Atom:
        if atom_nonnegative(atom, 1) or (atom.kind == "fn" and atom.data[0] == "abs"):
            return atom
        return self.atom("fn", "abs", (self.of_atom(atom),))

    def _power_of_number(self, number: Number, e: Number) -> Poly:
        if number == 1:
            return self.number(1)
        if isinstance(e, int):
            if number == 0:
                return self.number(0) if e > 0 else self.of_mono(((self.atom("poly", self.number(0)), e),))
            return self.number(Fraction(number) ** e)
        exact, result = Fraction(1), self.number(1)
        for base, k in prime_factors(Fraction(number)).items():
            whole = k * e // 1
            exact *= Fraction(base) ** int(whole)
            if k * e != whole:
                result = self.mul(result, self.of_mono(((self.atom("prime", base), simple(k * e - whole)),)))
        return self.scale(result, simple(exact))

    def primitive(self, poly: Poly, whole: bool = True) -> tuple[Number, Mono, Poly]:
        """``content * factor * base``: the base has coprime integer coefficients and no common factor.

        Unless ``whole``, only factors known to be positive are taken out.
        """
        exponents: dict[Atom, Number] = {}
        for mono, _ in poly:
            for atom, _ in mono:
                exponents.setdefault(atom, 0)
        for atom in exponents:
            if whole or atom.positive:
                exponents[atom] = min(dict(mono).get(atom, 0) for mono, _ in poly)
        factor = tuple(sorted(((a, e) for a, e in exponents.items() if e and a.kind != "chi"), key=lambda p: p[0].id))
        content = content_of(poly)
        if self._mostly_negative(poly):
            content = -content
        inverse = {atom: -e for atom, e in factor}
        terms: dict[Mono, Number] = {}
        for mono, c in poly:
            terms[shifted(mono, inverse)] = simple(Fraction(c) / content)
        return content, factor, self.poly(terms)

    def _mostly_negative(self, poly: Poly) -> bool:
        below = sum(c < 0 for _, c in poly)
        return 2 * below > len(poly) or (2 * below == len(poly) and poly.terms[0][1] < 0)

    # --- cancelling ------------------------------------------------------------------------------------------------

    def cancel(self, poly: Poly) -> Poly:
        """Divide what stands over a base by it, as often as it goes: ``(a+b)·(a+b)^-1 = 1``."""
        for _ in range(32):
            step = self._cancel_once(poly)
            if step is poly:
                return poly
            poly = step
        raise OutOfFuel("cancelling does not end")

    def _cancel_once(self, poly: Poly) -> Poly:
        if len(poly) < 2:
            return poly
        groups: dict[tuple[Atom, Number], list[tuple[Mono, Number]]] = {}
        for mono, c in poly:
            for atom, e in mono:
                if atom.kind == "poly" and len(atom.data[0]) > 1:
                    groups.setdefault((atom, e), []).append((mono, c))
        for (atom, e), members in groups.items():
            if len(members) < 2:
                continue
            rest = self.poly({shifted(m, {atom: -e}): c for m, c in members})
            quotient = self.divide(rest, atom.data[0])
            if quotient is not None:
                others = dict(poly.terms)
                for mono, _ in members:
                    del others[mono]
                raised = self.of_mono(((atom, simple(e + 1)),)) if e != -1 else self.number(1)
                if isinstance(e, int) and e + 1 > 0:
                    raised = self.power(atom.data[0], e + 1)
                return self.add(self.poly(others), self._expand(quotient, raised))
        return poly

    def divide(self, dividend: Poly, divisor: Poly) -> Poly | None:
        """The exact quotient, or None. The divisor is primitive."""
        present = {atom for mono, _ in dividend for atom, _ in mono}
        if any(atom not in present for mono, _ in divisor for atom, _ in mono):
            return None
        content, factor, rest = self.primitive(dividend)
        lead, lead_c = max(divisor.terms, key=lambda term: order_of(term[0]))
        quotient: dict[Mono, Number] = {}
        for _ in range(64):
            if not rest.terms:
                return self._expand(self.scale(self.poly(quotient), content), self.of_mono(factor))
            mono, c = max(rest.terms, key=lambda term: order_of(term[0]))
            step = shifted(mono, {atom: -e for atom, e in lead})
            if any(e < 0 for _, e in step):
                return None
            ratio = simple(Fraction(c) / lead_c)
            quotient[step] = quotient.get(step, 0) + ratio
            total = dict(rest.terms)
            for m, k in divisor:
                moved = shifted(m, dict(step))
                total[moved] = total.get(moved, 0) - k * ratio
            rest = self.poly(total)
        return None

    # --- exponentials, logarithms, other functions -----------------------------------------------------------------

    def exp(self, poly: Poly) -> Poly:
        result: dict[Atom, Number] = {}
        powers = self.number(1)
        for mono, c in poly:
            if len(mono) == 1 and mono[0][1] == 1 and mono[0][0].kind == "fn" and mono[0][0].data[0] == "log":
                powers = self.mul(powers, self.power(mono[0][0].data[1][0], c))
            else:
                result[self.atom("exp", mono)] = c
        mono = tuple(sorted(result.items(), key=lambda pair: pair[0].id))
        return self.mul(self.of_mono(mono), powers)

    def log(self, poly: Poly) -> Poly:
        if len(poly) == 1:
            mono, c = poly.terms[0]
            if c > 0 and positive(mono):
                return self._log_of_product(mono, c)
        if len(poly) > 1:
            _, factor, _ = self.primitive(poly, whole=False)
            if factor:
                rest = self.mul(poly, self.power(self.of_mono(factor), -1))
                return self.add(self._log_of_product(factor, 1), self.fn("log", rest))
        return self.fn("log", poly)

    def _log_of_product(self, mono: Mono, c: Number) -> Poly:
        result = self.number(0) if c == 1 else self.fn("log", self.number(c))
        for atom, e in mono:
            if atom.kind == "exp":
                part = self.of_mono(atom.data[0])
            else:
                part = self.fn("log", self.of_atom(atom) if atom.kind != "poly" else atom.data[0])
            result = self.add(result, self.scale(part, e))
        return result

    def fn(self, name: str, *args: Poly) -> Poly:
        """An opaque function: equal only for equal arguments."""
        return self.of_atom(self.atom("fn", name, args))

    def absolute(self, poly: Poly) -> Poly:
        if poly_positive(poly) or all(c >= 0 and nonnegative(m) for m, c in poly):
            return poly
        if all(c <= 0 and nonnegative(m) for m, c in poly):
            return self.neg(poly)
        return self.fn("abs", self.neg(poly) if self._mostly_negative(poly) else poly)

    def maximum(self, *polys: Poly) -> Poly:
        args: dict[Poly, None] = {}
        for poly in polys:
            atom = poly.single
            if atom is not None and atom.kind == "fn" and atom.data[0] == "max":
                args |= dict.fromkeys(atom.data[1])
            else:
                args[poly] = None
        if any(map(counts_part, args)):  # parts of no element count for nothing, so there is at least one
            args = {poly: None for poly in args if poly.constant is None or poly.constant > 1}
        ordered = sorted(args, key=lambda p: p.id)
        return ordered[0] if len(ordered) == 1 else self.fn("max", *ordered)

    def minimum(self, *polys: Poly) -> Poly:
        return self.neg(self.maximum(*(self.neg(poly) for poly in polys)))

    def where(self, condition: Poly, polarity: bool, value: Poly) -> Poly:
        """``value`` where the condition has the polarity, else 0."""
        return self.mul(self.of_atom(self.atom("chi", condition, polarity)), value)
