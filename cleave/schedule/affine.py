"""Integer values as affine forms of the indices along dims, and comparisons of them as limits of one dim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cleave.dialects.dims import Size, const
from cleave.dialects.graph import Value

_LARGEST_EXTENT = 2**31
_BITS = {"i32": 32, "i64": 64, "index": 64}


@dataclass(frozen=True)
class Affine:
    """Σ coefficient·index + constant; ``low`` and ``high`` are numbers that it lies between."""

    coefficients: Mapping[str, Size]
    constant: Size
    low: int
    high: int

    def __add__(self, other: Affine) -> Affine:
        names = sorted({*self.coefficients, *other.coefficients})
        zero = const(0)
        sums = {name: self.coefficients.get(name, zero) + other.coefficients.get(name, zero) for name in names}
        left = {name: coefficient for name, coefficient in sums.items() if coefficient.value != 0}
        return Affine(left, self.constant + other.constant, self.low + other.low, self.high + other.high)

    def __neg__(self) -> Affine:
        return self.times(Affine({}, const(-1), -1, -1))

    def times(self, factor: Affine) -> Affine:
        """The product with a form that has no index."""
        ends = [a * b for a in (self.low, self.high) for b in (factor.low, factor.high)]
        coefficients = {name: each * factor.constant for name, each in self.coefficients.items()}
        return Affine(coefficients, self.constant * factor.constant, min(ends), max(ends))


def affine(value: Value) -> Affine | None:
    """``value`` as an affine form; None if it is none, or may wrap around in its type."""
    rule = _FORMS.get(value.op)
    bits = _BITS.get(value.dtype)
    form = rule(value) if rule and bits else None
    if form is None or bits is None or form.low < -(2 ** (bits - 1)) or form.high >= 2 ** (bits - 1):
        return None
    return form


def _constant(value: Value) -> Affine | None:
    number = value.attrs["value"]
    return Affine({}, const(int(number)), int(number), int(number)) if number == int(number) else None


def _index(value: Value) -> Affine:
    (dim,) = value.dims
    return Affine({dim.name: const(1)}, const(0), 0, _LARGEST_EXTENT - 1)


def _count(value: Value) -> Affine | None:
    """A sum of equal elements, over dims that have a size each."""
    each = affine(value.operands[0]) if value.attrs["kind"] == "sum" else None
    if each is None or each.coefficients:
        return None
    for name in value.attrs["over"]:
        each = each.times(Affine({}, value.operands[0].size(name), 0, _LARGEST_EXTENT - 1))
    return each


def _sum(value: Value) -> Affine | None:
    a, b = map(affine, value.operands)
    return None if a is None or b is None else a + b if value.op == "add" else a + -b


def _product(value: Value) -> Affine | None:
    a, b = map(affine, value.operands)
    if a is None or b is None or (a.coefficients and b.coefficients):
        return None
    return b.times(a) if b.coefficients else a.times(b)


def _negative(value: Value) -> Affine | None:
    form = affine(value.operands[0])
    return None if form is None else -form


_FORMS: Mapping[str, Callable[[Value], Affine | None]] = {
    "constant": _constant,
    "index": _index,
    "reduce": _count,
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "neg": _negative,
    "cast": lambda value: affine(value.operands[0]),
}


@dataclass(frozen=True)
class Limit:
    """The index along a dim is at most ``end`` (``upper``), or at least."""

    upper: bool
    end: Affine


def limits(comparison: Value, truth: bool, name: str) -> tuple[Limit, ...]:
    """What a comparison that comes out as ``truth`` says of the index along dim ``name``; empty: nothing affine."""
    a, b = map(affine, comparison.operands)
    if a is None or b is None:
        return ()
    predicate = comparison.attrs["predicate"] if truth else _OPPOSITE[comparison.attrs["predicate"]]
    one = Affine({}, const(1), 1, 1)
    forms = {"le": [a + -b], "lt": [a + -b + one], "ge": [b + -a], "gt": [b + -a + one], "eq": [a + -b, b + -a]}
    found = [_limit(form, name) for form in forms.get(predicate, [])]
    return tuple(limit for limit in found if limit)


_OPPOSITE = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le", "eq": "ne", "ne": "eq"}


def _limit(form: Affine, name: str) -> Limit | None:
    """The limit that says form ≤ 0; the dim's coefficient must be 1 or −1, the others of known sign."""
    own = form.coefficients.get(name, const(0)).value
    rest = Affine({n: c for n, c in form.coefficients.items() if n != name}, form.constant, form.low, form.high)
    if own not in (1, -1) or any(sign(coefficient) == 0 for coefficient in rest.coefficients.values()):
        return None
    return Limit(True, -rest) if own == 1 else Limit(False, rest)


def sign(size: Size) -> int:
    """1: never negative; -1: never positive; 0: not known."""
    signs = {1 if coefficient > 0 else -1 for _, coefficient in size.terms}
    return signs.pop() if len(signs) == 1 else 0
