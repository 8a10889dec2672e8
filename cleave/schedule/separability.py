"""Cascaded reductions that fit one loop: how far a sum's body depends on other reductions' running values.

A sum B = Σ f(A, x) whose body uses the result A of another reduction over the same dim can share A's loop when the body
separates into finitely many products, f(A, x) = Σₖ aₖ(A)·bₖ(x): then what B has summed so far can be corrected whenever
A moves. Three kinds of dependence are known, and their products (``Form``):

- exp(−κ·w), w ≥ z being a running maximum of z: the online softmax recurrence (rank 1);
- a power of a value a that does not vary along the loop, as in x·rsqrt(Σx²) or x/Σx (rank 1);
- a polynomial in such values, as in (x − μ)² or (x − μ)·w (rank 1 + its degree).

docs/cascades.md derives the corrections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cleave.dialects.graph import Value
from cleave.dialects.rounding import rounds
from cleave.dialects.tensor_type import is_float

MAX_RANK = 6
"""States that one reduction may need: each is one more accumulator and reduction in the loop."""


@dataclass(frozen=True)
class Form:
    """exp(−Σ κ·w) · Π aᵏ · P: ``exponents`` has κ for each w, ``powers`` k for each a, and P is a polynomial of these
    ``degrees`` in values that do not vary along the loop, with coefficients that vary along the loop only.

    ``scales``: those of the latter that are factors of some of its terms.
    """

    exponents: Mapping[Value, float] = field(default_factory=dict[Value, float])
    powers: Mapping[Value, int] = field(default_factory=dict[Value, int])
    degrees: Mapping[Value, int] = field(default_factory=dict[Value, int])
    scales: frozenset[Value] = frozenset()

    @property
    def rank(self) -> int:
        return math.prod(1 + degree for degree in self.degrees.values())

    @property
    def trivial(self) -> bool:
        return not (self.exponents or self.powers or self.degrees)


ANY = Form()


@dataclass(frozen=True)
class Body:
    """A loop's running values; tells which values depend on them.

    ``upstream``: what each value depends on. ``transparent``: the values whose rounding algebra may move.
    """

    running: frozenset[Value]
    loop: str
    upstream: Mapping[Value, frozenset[Value]]
    transparent: frozenset[Value]

    def varies(self, value: Value) -> bool:
        """Whether the value depends on a running one."""
        return value in self.running or not self.running.isdisjoint(self.upstream[value])

    def is_coefficient(self, value: Value) -> bool:
        """Whether it depends on a running value and does not vary along the loop otherwise."""
        return self.varies(value) and self.loop not in value.names

    def form(self, reduction: Value) -> Form | None:
        """The form of a sum's summand; None if it does not separate."""
        if reduction.attrs.get("kind", "sum") != "sum" or not is_float(reduction.dtype):
            return None
        separation = _Separation(self)
        forms = [separation.form(operand) for operand in reduction.operands]
        return _product(forms[0], forms[1]) if len(forms) == 2 else forms[0]

    def estimated(self, w: Value) -> bool:
        """Whether w depends on a running sum: while the loop runs it is only an estimate."""
        return any(is_sum(member) for member in self.running if member is w or member in self.upstream[w])


def is_sum(reduction: Value) -> bool:
    return reduction.attrs.get("kind", "sum") == "sum"


class _Separation:
    def __init__(self, body: Body) -> None:
        self.body = body
        self._memo: dict[Value, Form | None] = {}

    def form(self, value: Value) -> Form | None:
        if value not in self._memo:
            self._memo[value] = self._form(value)
        return self._memo[value]

    def _form(self, value: Value) -> Form | None:
        if not self.body.varies(value):
            return ANY
        if self.body.is_coefficient(value):
            return Form(powers={value: 1}) if is_float(value.dtype) else None
        if rounds(value) and value not in self.body.transparent:
            return None
        rule = _RULES.get(value.op)
        return rule(self, value) if rule else None

    def summand(self, value: Value) -> Form | None:
        """The form of a term of a sum: a value that does not vary along the loop shifts the others."""
        return Form(degrees={value: 1}) if self.body.is_coefficient(value) else self.form(value)

    def exponent(self, value: Value) -> Mapping[Value, float] | None:
        """κ for w, where ``value`` = κ·(z − w) and w bounds z from above."""
        found = difference(value)
        if found is None or self.body.varies(found.z):
            return None
        w = found.w
        if not self.body.is_coefficient(w) or self.body.estimated(w) or not bounds(w, found.z, self.body.running):
            return None
        return {w: found.factor}


@dataclass(frozen=True)
class Difference:
    """factor · (z − w); ``dtypes``: the types in which it is computed, from the operands' to the result's."""

    z: Value
    w: Value
    factor: float
    dtypes: frozenset[str]


def difference(value: Value) -> Difference | None:
    """What of which a value is the difference, times a positive constant."""
    if value.op == "sub":
        z, w = value.operands
        return Difference(z, w, 1.0, frozenset((z.dtype, w.dtype, value.dtype)))
    inner, by = (value.operands[0], 1.0) if value.op == "cast" else _scaled(value)
    found = difference(inner) if inner else None
    return found and replace(found, factor=found.factor * by, dtypes=found.dtypes | {value.dtype})


def _scaled(value: Value) -> tuple[Value | None, float]:
    """x and c, where the value is x·c for a positive constant c."""
    if value.op not in ("mul", "div"):
        return None, 1.0
    x, c = value.operands
    if value.op == "mul" and c.op != "constant":
        x, c = c, x
    if c.op != "constant" or c.attrs["value"] <= 0:
        return None, 1.0
    return x, c.attrs["value"] if value.op == "mul" else 1.0 / c.attrs["value"]


def bounds(w: Value, z: Value, running: frozenset[Value]) -> bool:
    """Whether w ≥ z everywhere: w is the running maximum of z, or the larger of that and something else."""
    if w.op == "cast" or unguarded(w) is not w:
        return bounds(w.operands[0] if w.op == "cast" else unguarded(w), z, running)
    if w in running:
        return w.op == "reduce" and w.attrs["kind"] == "max" and _stripped(w.operands[0]) is _stripped(z)
    return w.op == "max" and any(bounds(operand, z, running) for operand in w.operands)


def unguarded(w: Value) -> Value:
    """m, where w is m with another value in place of −inf; otherwise w itself."""
    if w.op == "select" and w.operands[0].op == "cmp" and w.operands[0].attrs["predicate"] == "eq":
        a, b = w.operands[0].operands
        for m, limit in ((a, b), (b, a)):
            if limit.op == "constant" and limit.attrs["value"] == -math.inf and w.operands[2] is m:
                return m
    return w


def _stripped(value: Value) -> Value:
    while value.op == "cast" and value.dtype in ("f32", "f64"):
        value = value.operands[0]
    return value


BASES: Mapping[str, float] = {"exp": 1.0, "exp2": math.log(2.0)}
"""Natural logarithms of the bases of exponentials."""

# --- laws -------------------------------------------------------------------------------------------------------------

Law = Callable[[_Separation, Value], "Form | None"]


Numbers = Mapping[Value, float]


def _added(a: Numbers, b: Numbers, sign: int) -> dict[Value, float]:
    return {key: a.get(key, 0) + sign * b.get(key, 0) for key in (*a, *b)}


def _checked(
    exponents: Numbers, powers: Numbers, degrees: Mapping[Value, int], scales: frozenset[Value]
) -> Form | None:
    """The form in which each value plays one part: what is a power and something else as well becomes a polynomial.

    None of too large a rank, and where the derivative by one value has another one as a factor: that one can change by
    orders of magnitude, and Taylor's formula then leaves the difference of large numbers.
    """
    degrees, kept = dict(degrees), dict(powers)
    for a in [a for a in powers if a in degrees or a in exponents]:
        power = kept.pop(a)
        if power < 0:
            return None
        degrees[a] = degrees.get(a, 0) + int(power)
        scales |= {a}
    form = Form(dict(exponents), {a: int(k) for a, k in kept.items()}, degrees, scales)
    coupled = scales and len(degrees) > 1
    return None if coupled or form.rank > MAX_RANK else form


def _product(a: Form | None, b: Form | None, sign: int = 1) -> Form | None:
    """a·b, or a/b. A power that cancels is none: where it is zero for a while there would be 0/0."""
    if a is None or b is None or (sign < 0 and b.degrees):
        return None
    powers = _added(a.powers, b.powers, sign)
    if 0 in powers.values():
        return None
    degrees = {q: a.degrees.get(q, 0) + b.degrees.get(q, 0) for q in (*a.degrees, *b.degrees)}
    return _checked(_added(a.exponents, b.exponents, sign), powers, degrees, a.scales | b.scales)


def _sum(forms: Iterable[Form | None]) -> Form | None:
    """a + b: what is no common factor becomes a polynomial."""
    found = list(forms)
    known = [form for form in found if form is not None]
    if len(known) < len(found) or any(form.exponents != known[0].exponents for form in known):
        return None
    common = {a: k for a, k in known[0].powers.items() if all(form.powers.get(a) == k for form in known)}
    rests = [{a: k for a, k in form.powers.items() if a not in common} for form in known]
    if any(k < 0 for rest in rests for k in rest.values()):
        return None
    degrees = {
        q: max(form.degrees.get(q, 0) + rest.get(q, 0) for form, rest in zip(known, rests, strict=True))
        for form, rest in zip(known, rests, strict=True)
        for q in (*form.degrees, *rest)
    }
    scales = frozenset[Value]().union(*rests, *(form.scales for form in known))
    return _checked(known[0].exponents, common, degrees, scales)


def _exp(base: float) -> Law:
    def law(self: _Separation, value: Value) -> Form | None:
        factors = self.exponent(value.operands[0])
        return None if factors is None else Form({w: k * base for w, k in factors.items()})

    return law


def _product_law(sign: int) -> Law:
    return lambda self, value: _product(self.form(value.operands[0]), self.form(value.operands[1]), sign)


def _sum_law(start: int) -> Law:
    """A sum, or a choice, of the operands from ``start`` on; a zero has any form."""

    def law(self: _Separation, value: Value) -> Form | None:
        if any(self.body.varies(operand) for operand in value.operands[:start]):
            return None
        summands = (v for v in value.operands[start:] if not (v.op == "constant" and v.attrs["value"] == 0))
        return _sum(self.summand(operand) for operand in summands)

    return law


def _inner_reduction(self: _Separation, value: Value) -> Form | None:
    form = self.body.form(value)
    if form is None:
        return None
    parts = (*form.exponents, *form.powers, *form.degrees)
    return None if any(set(value.attrs["over"]) & set(part.names) for part in parts) else form


_RULES: dict[str, Law] = {
    **{name: _exp(base) for name, base in BASES.items()},
    "mul": _product_law(1),
    "div": _product_law(-1),
    "neg": _sum_law(0),
    "cast": _sum_law(0),
    "add": _sum_law(0),
    "sub": _sum_law(0),
    "select": _sum_law(1),
    "contract": _inner_reduction,
    "reduce": _inner_reduction,
}
