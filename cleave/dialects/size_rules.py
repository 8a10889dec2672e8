"""The functions of sizes in normal form: floordiv, mod, ceildiv, min, max.

Every rule is an identity for all integers >= 0 in place of the symbols that make the divisors >= 1 (and, with `Bounds`
of facts, that obey the facts). Each has its line in test/py/test_dims.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import gcd

from cleave.dialects.size import (
    ZERO,
    Atom,
    Monomial,
    Size,
    SizeLike,
    add_all,
    as_size,
    const,
    divide_monomials,
    from_atom,
    from_terms,
    function_atom,
    multiply,
    single_atom,
)
from cleave.dialects.size_bounds import BASE, Bounds
from cleave.errors import CleaveError

_MAX_ARGUMENTS = 32  # of one min or max: their arguments are compared pairwise
_MAX_DIVISION_STEPS = 64


def floordiv(a: SizeLike, b: SizeLike) -> Size:
    """The greatest integer <= a/b. CleaveError when b is a constant < 1."""
    return _floordiv(as_size(a), as_size(b), BASE)


def ceildiv(a: SizeLike, b: SizeLike) -> Size:
    """The least integer >= a/b. CleaveError when b is a constant < 1."""
    return _ceildiv(as_size(a), as_size(b), BASE)


def mod(a: SizeLike, b: SizeLike) -> Size:
    """a - b*floordiv(a, b), which lies in [0, b). CleaveError when b is a constant < 1."""
    return _mod(as_size(a), as_size(b), BASE)


def minimum(a: SizeLike, b: SizeLike, *more: SizeLike) -> Size:
    """The least of the arguments."""
    return _extremum("min", tuple(map(as_size, (a, b, *more))), BASE)


def maximum(a: SizeLike, b: SizeLike, *more: SizeLike) -> Size:
    """The greatest of the arguments."""
    return _extremum("max", tuple(map(as_size, (a, b, *more))), BASE)


def rebuild(size: Size, values: Mapping[str, Size], bounds: Bounds = BASE) -> Size:
    """The size with symbols replaced (all at once) and every rule applied again with these bounds."""
    if bounds is BASE and size.symbols.isdisjoint(values):
        return size
    terms: list[Size] = []
    for monomial, coefficient in size.terms:
        product = const(coefficient)
        for atom in monomial:
            product = multiply(product, _rebuild_atom(atom, values, bounds))
        terms.append(product)
    return add_all(terms)


def _rebuild_atom(atom: Atom, values: Mapping[str, Size], bounds: Bounds) -> Size:
    if atom.kind == "symbol":
        return values.get(atom.text) or from_atom(atom)
    return apply(atom.kind, tuple(rebuild(arg, values, bounds) for arg in atom.args), bounds)


def apply(kind: str, args: tuple[Size, ...], bounds: Bounds = BASE) -> Size:
    """The function named ``kind`` of the arguments, in normal form."""
    if kind in ("min", "max"):
        return _extremum(kind, args, bounds)
    numerator, divisor = args
    function: Callable[[Size, Size, Bounds], Size] = {"floordiv": _floordiv, "ceildiv": _ceildiv, "mod": _mod}[kind]
    return function(numerator, divisor, bounds)


def _ceildiv(a: Size, b: Size, bounds: Bounds) -> Size:
    if b.value is None:
        return _floordiv(a - 1, b, bounds) + 1
    return _floordiv(a + b - 1, b, bounds)


def _mod(a: Size, b: Size, bounds: Bounds) -> Size:
    return a - b * _floordiv(a, b, bounds)


@lru_cache(maxsize=1 << 14)
def _floordiv(a: Size, b: Size, bounds: Bounds) -> Size:
    if b.value is not None and b.value < 1:
        raise CleaveError(f"the divisor of floordiv({a}, {b}) is {b}; a divisor must be at least 1")
    cancelled = _cancel(a, b, bounds)
    if cancelled is not None:
        return cancelled
    quotient, rest = _long_division(a, b)
    return quotient + _proper_floordiv(rest, b, bounds)


def _proper_floordiv(a: Size, b: Size, bounds: Bounds) -> Size:
    """floordiv of what long division leaves.

    The rules call each other and end: `_flatten` replaces an atom of a and b by atoms less deep, and no other rule
    brings in an atom; `_cancel` and `_by_stages` make b smaller; `_flip_sign` is not followed by another.
    """
    for rule in (_cancel, _known_quotient, _flatten, _by_stages, _flip_sign):
        result = rule(a, b, bounds)
        if result is not None:
            return result
    return _quotient_atom(a, b)


def _quotient_atom(a: Size, b: Size) -> Size:
    """floordiv(x - 1, b) is ceildiv(x, b) - 1, with a constant b floordiv(x + b - 1, b) is ceildiv(x, b)."""
    if not _is_ceiling(a, b) or a.value is not None:
        return from_atom(function_atom("floordiv", (a, b)))
    if b.value is None:
        return from_atom(function_atom("ceildiv", (a + 1, b))) - 1
    return from_atom(function_atom("ceildiv", (a + 1 - b, b)))


def _is_ceiling(a: Size, b: Size) -> bool:
    return a.constant_term == (b.value or 0) - 1


def _cancel(a: Size, b: Size, bounds: Bounds) -> Size | None:
    """floordiv(g*x, g*y) = floordiv(x, y)."""
    common = _common_factor((a, b), bounds)
    return None if common is None else _floordiv(_divide_exactly(a, common), _divide_exactly(b, common), bounds)


def _known_quotient(a: Size, b: Size, bounds: Bounds) -> Size | None:
    """a in [k*b, (k+1)*b) is known: the quotient is k."""
    if b.value is not None:
        low, high = bounds.lower(a), bounds.upper(a)
        if isinstance(low, int) and isinstance(high, int) and low // b.value == high // b.value:
            return const(low // b.value)
    elif bounds.at_least(b - a, 1, positive=b) and bounds.at_least(a, 0, positive=b):
        return ZERO
    elif bounds.at_least(-a, 1, positive=b) and bounds.at_least(a + b, 0, positive=b):
        return const(-1)
    return None


def _flatten(a: Size, b: Size, bounds: Bounds) -> Size | None:
    """floordiv(floordiv(x, y) + p, b) = floordiv(x + p*y, b*y), and the same of ceildiv in ceildiv."""
    kind = "ceildiv" if _is_ceiling(a, b) else "floordiv"
    inner = [m[0] for m, c in a.terms if c == 1 and len(m) == 1 and m[0].kind == kind]
    if len(inner) != 1:
        return None
    rest = a - from_atom(inner[0])
    if any(inner[0] in monomial for size in (rest, b) for monomial, _ in size.terms):
        return None
    numerator, divisor = inner[0].args
    if kind == "ceildiv":
        numerator = numerator + divisor - 1
    return _floordiv(numerator + rest * divisor, b * divisor, bounds)


def _by_stages(a: Size, b: Size, bounds: Bounds) -> Size | None:
    """floordiv(a, g*y) = floordiv(floordiv(a, g), y) where the inner one goes away: floordiv(4*n + 3, 8)."""
    atoms = {atom for monomial, _ in a.terms for atom in monomial}
    for factor in _factors_in_common(a, b, bounds):
        inner = _floordiv(a, factor, bounds)
        if all(atom in atoms for monomial, _ in inner.terms for atom in monomial):
            return _floordiv(inner, _divide_exactly(b, factor), bounds)
    return None


def _factors_in_common(a: Size, b: Size, bounds: Bounds) -> Iterable[Size]:
    """Factors > 1, other than b, that b shares with single terms of a, without repetition."""
    seen: dict[Size, None] = {}
    for monomial, coefficient in a.terms:
        if monomial and len(seen) < 8:
            factor = _common_factor((from_terms((monomial, coefficient)), b), bounds)
            if factor is not None and factor is not b:
                seen[factor] = None
    return seen


def _flip_sign(a: Size, b: Size, bounds: Bounds) -> Size | None:
    """floordiv(-x, b) = -ceildiv(x, b): the first term of a numerator is positive."""
    if not a.terms or a.terms[0][1] >= 0:
        return None
    quotient, rest = _long_division(b - 1 - a, b)
    if not rest.terms or rest.terms[0][1] < 0:
        return None
    return -(quotient + _proper_floordiv(rest, b, bounds))


def _long_division(a: Size, b: Size) -> tuple[Size, Size]:
    """(q, r) with a = q*b + r, no term of r divisible by the first of b; (0, a) when that takes too long.

    Coefficients leave a remainder >= 0, except that a symbol's over a constant is divided towards zero: n - m over 16
    is better left alone than made n + 15*m.
    """
    lead, c = b.terms[0]
    quotient, rest = ZERO, a
    for _ in range(_MAX_DIVISION_STEPS):
        step = next(filter(None, (_division_step(term, lead, c) for term in rest.terms)), None)
        if step is None:
            return quotient, rest
        quotient, rest = quotient + from_terms(step), rest - from_terms(step) * b
    return ZERO, a


def _division_step(term: tuple[Monomial, int], lead: Monomial, c: int) -> tuple[Monomial, int] | None:
    monomial, coefficient = term
    cofactor = divide_monomials(monomial, lead)
    if cofactor is None:
        return None
    times = abs(coefficient) // abs(c) * (1 if (coefficient < 0) == (c < 0) else -1)
    if (lead or not monomial) and coefficient - times * c < 0:
        times -= 1 if c > 0 else -1
    return (cofactor, times) if times else None


def _common_factor(sizes: Iterable[Size], bounds: Bounds) -> Size | None:
    """The greatest c*m > 1, of a constant c >= 1 and a monomial m >= 0, that divides all the sizes."""
    divisor = 0
    shared: list[Atom] | None = None
    for size in sizes:
        for monomial, coefficient in size.terms:
            divisor = gcd(divisor, coefficient)
            shared = list(monomial) if shared is None else _intersection(shared, monomial)
    shared = [atom for atom in shared or () if bounds.at_least(from_atom(atom), 0)]
    return from_terms((tuple(shared), divisor)) if divisor > 1 or (divisor and shared) else None


def _intersection(shared: list[Atom], monomial: Monomial) -> list[Atom]:
    rest = list(monomial)
    kept: list[Atom] = []
    for atom in shared:
        if atom in rest:
            rest.remove(atom)
            kept.append(atom)
    return kept


def _divide_exactly_or_none(size: Size, factor: Size) -> Size | None:
    ((lead, c),) = factor.terms
    terms: list[tuple[Monomial, int]] = []
    for monomial, coefficient in size.terms:
        cofactor = divide_monomials(monomial, lead)
        if cofactor is None or coefficient % c:
            return None
        terms.append((cofactor, coefficient // c))
    return from_terms(*terms)


def _divide_exactly(size: Size, factor: Size) -> Size:
    result = _divide_exactly_or_none(size, factor)
    assert result is not None, "the factor comes from _common_factor"
    return result


@lru_cache(maxsize=1 << 14)
def _extremum(kind: str, args: tuple[Size, ...], bounds: Bounds) -> Size:
    kept = _undominated(kind, _flat(kind, args), bounds)
    if len(kept) == 1:
        return kept[0]
    common = _common_factor(kept, bounds)
    if common is not None:
        return common * _extremum(kind, tuple(_divide_exactly(arg, common) for arg in kept), bounds)
    return from_atom(function_atom(kind, tuple(kept)))


def _flat(kind: str, args: tuple[Size, ...]) -> list[Size]:
    flat: dict[Size, None] = {}
    for arg in args:
        atom = single_atom(arg)
        flat.update(dict.fromkeys(atom.args if atom is not None and atom.kind == kind else (arg,)))
    if len(flat) > _MAX_ARGUMENTS:
        raise CleaveError(f"{kind} has {len(flat)} different arguments; at most {_MAX_ARGUMENTS} are allowed")
    return sorted(flat, key=lambda arg: (arg.value is not None, str(arg)))


def _undominated(kind: str, args: list[Size], bounds: Bounds) -> list[Size]:
    """The arguments without those that another one makes superfluous."""
    kept: list[Size] = []
    for index, arg in enumerate(args):
        others = kept + args[index + 1 :]
        if not any(bounds.at_least(other - arg if kind == "max" else arg - other, 0) for other in others):
            kept.append(arg)
    return kept
