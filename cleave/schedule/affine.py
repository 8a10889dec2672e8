"""Integer values as affine forms of the indices along dims, and of numbers that only a launch knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from cleave.dialects.dims import Size, const
from cleave.dialects.graph import Value
from cleave.schedule.reindex import POSITION

_LARGEST_EXTENT = 2**31
_BITS = {"i32": 32, "i64": 64, "index": 64}


@dataclass(frozen=True)
class Affine:
    """Σ coefficient·index + Σ coefficient·datum + constant; ``low`` and ``high`` are numbers that it lies between.

    ``data`` are values that are no such forms, lengths in memory for instance.
    """

    coefficients: Mapping[str, Size]
    constant: Size
    low: int
    high: int
    data: Mapping[Value, Size] = field(default_factory=dict[Value, Size])

    @property
    def is_constant(self) -> bool:
        return not self.coefficients and not self.data

    @property
    def names(self) -> frozenset[str]:
        """The dims that it depends on."""
        return frozenset((*self.coefficients, *(name for value in self.data for name in value.names)))

    def __add__(self, other: Affine) -> Affine:
        coefficients, data = _sums(self.coefficients, other.coefficients), _sums(self.data, other.data)
        return Affine(coefficients, self.constant + other.constant, self.low + other.low, self.high + other.high, data)

    def __neg__(self) -> Affine:
        return self.times(Affine({}, const(-1), -1, -1))

    def times(self, factor: Affine) -> Affine:
        """The product with a constant."""
        ends = [a * b for a in (self.low, self.high) for b in (factor.low, factor.high)]
        coefficients = {name: each * factor.constant for name, each in self.coefficients.items()}
        data = {value: each * factor.constant for value, each in self.data.items()}
        return Affine(coefficients, self.constant * factor.constant, min(ends), max(ends), data)


_Term = TypeVar("_Term", str, Value)


def _sums(a: Mapping[_Term, Size], b: Mapping[_Term, Size]) -> dict[_Term, Size]:
    sums = {term: a.get(term, const(0)) + b.get(term, const(0)) for term in (*a, *b)}
    return {term: coefficient for term, coefficient in sums.items() if coefficient.value != 0}


def affine(value: Value) -> Affine | None:
    """``value`` as an affine form that does not wrap around in its type; None if it is no integer of 32 or 64 bits."""
    rule = _FORMS.get(value.op)
    bits = _BITS.get(value.dtype)
    if bits is None:
        return None
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    form = rule(value) if rule else None
    if form and low <= form.low and form.high <= high:
        return form
    return Affine({}, const(0), low, high, {value: const(1)})


def _constant(value: Value) -> Affine | None:
    number = value.attrs["value"]
    return Affine({}, const(int(number)), int(number), int(number)) if number == int(number) else None


def _index(value: Value) -> Affine:
    (dim,) = value.dims
    return Affine({dim.name: const(1)}, const(0), 0, _LARGEST_EXTENT - 1)


def _count(value: Value) -> Affine | None:
    """A sum of equal elements, over dims that have a size each."""
    each = affine(value.operands[0]) if value.attrs["kind"] == "sum" else None
    if each is None or not each.is_constant:
        return None
    for name in value.attrs["over"]:
        each = each.times(Affine({}, value.operands[0].size(name), 0, _LARGEST_EXTENT - 1))
    return each


def _sum(value: Value) -> Affine | None:
    a, b = map(affine, value.operands)
    return None if a is None or b is None else a + b if value.op == "add" else a + -b


def _product(value: Value) -> Affine | None:
    a, b = map(affine, value.operands)
    if a is None or b is None or not (a.is_constant or b.is_constant):
        return None
    return b.times(a) if a.is_constant else a.times(b)


def _negative(value: Value) -> Affine | None:
    form = affine(value.operands[0])
    return None if form is None else -form


def _cast(value: Value) -> Affine | None:
    form = affine(value.operands[0])
    if form is None or not value.attrs.get(POSITION):
        return form
    return replace(form, low=max(form.low, 0), high=min(form.high, _LARGEST_EXTENT - 1))


_FORMS: Mapping[str, Callable[[Value], Affine | None]] = {
    "constant": _constant,
    "index": _index,
    "reduce": _count,
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "neg": _negative,
    "cast": _cast,
}


def sign(size: Size) -> int:
    """1: never negative; -1: never positive; 0: not known."""
    signs = {1 if coefficient > 0 else -1 for _, coefficient in size.terms}
    return signs.pop() if len(signs) == 1 else 0
