"""Numbers of a chain of prime fields: a test of equality that shares no code with the search.

A number is a residue for each of three primes P0 = 2·P1 + 1, P1 = 2·P2 + 1. In the field of P_i the powers of 4 are a
group of order P_{i+1}, so exp takes the residue of the next prime to a power of 4, and exp(x + y) = exp(x)·exp(y). The
last residue of an exponential is not known; after three nested ones nothing is. All primes are 119 mod 120, so -1 is no
square, and 2, 3 and 5 are: each square has one root that is a square, as each positive number has a positive root.

What the fields cannot judge: the order of numbers is arbitrary (a lattice, but max(x + c) = max(x) + c does not hold)
except among small integers,
and functions without algebra here (log, erf, sin, cos, pow with other than small exponents, roundings) are hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import is_float
from cleave.errors import CleaveError

PRIMES = (2305843009213972799, 1152921504606986399, 576460752303493199)
_MIX = 0x2545F4914F6CDD1D
_COUNTS = 1 << 20

Scalar = Any


class Residues:
    """One residue for each prime; None where it is not known."""

    __slots__ = ("of",)

    def __init__(self, of: tuple[int | None, ...]) -> None:
        self.of = of

    @property
    def known(self) -> bool:
        return any(r is not None for r in self.of)

    def __repr__(self) -> str:
        return f"Residues{self.of}"


class _Special:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


LOW = _Special("-inf")
ABSENT = _Special("absent")  # past the end of a dim that was cut: it does not exist
UNKNOWN = Residues((None, None, None))


def same(a: Scalar, b: Scalar) -> bool | None:
    """Whether the two agree in every residue that both have; None if there is none."""
    if isinstance(a, Residues) and isinstance(b, Residues):
        pairs = [(x, y) for x, y in zip(a.of, b.of, strict=True) if x is not None and y is not None]
        return all(x == y for x, y in pairs) if pairs else None
    if any(isinstance(x, Residues) and not x.known for x in (a, b)):
        return None
    return a is b or (type(a) is type(b) and a == b)


# --- scalars ----------------------------------------------------------------------------------------------------------


def number(value: Fraction | int) -> Residues:
    value = Fraction(value)
    return Residues(tuple(value.numerator * pow(value.denominator, -1, p) % p for p in PRIMES))


def _each(function: Callable[..., int | None], *args: Residues) -> Residues:
    """The function on the residues of each prime; what it needs must be known."""
    results = [
        None if None in rs else function(p, *rs) for p, *rs in zip(PRIMES, *(arg.of for arg in args), strict=True)
    ]
    return Residues(tuple(results))


def _add(x: Scalar, y: Scalar) -> Scalar:
    if LOW in (x, y):
        return LOW
    return _each(lambda p, a, b: (a + b) % p, x, y)


def _neg(x: Scalar) -> Scalar:
    return UNKNOWN if x is LOW else _each(lambda p, a: -a % p, x)


def _sub(x: Scalar, y: Scalar) -> Scalar:
    return UNKNOWN if y is LOW else LOW if x is LOW else _add(x, _neg(y))


def _mul(x: Scalar, y: Scalar) -> Scalar:
    return UNKNOWN if LOW in (x, y) else _each(lambda p, a, b: a * b % p, x, y)


def _inverse(x: Scalar) -> Scalar:
    return UNKNOWN if x is LOW else _each(lambda p, a: pow(a, -1, p) if a else None, x)


def _div(x: Scalar, y: Scalar) -> Scalar:
    return _mul(x, _inverse(y))


def _is_square(p: int, a: int) -> bool:
    return pow(a, (p - 1) // 2, p) <= 1


def _sqrt(x: Scalar) -> Scalar:
    if x is LOW:
        return UNKNOWN
    return _each(lambda p, a: pow(a, (p + 1) // 4, p) if _is_square(p, a) else None, x)


def _abs(x: Scalar) -> Scalar:
    return UNKNOWN if x is LOW else _each(lambda p, a: a if _is_square(p, a) else p - a, x)


def _exp(x: Scalar) -> Scalar:
    if x is LOW:
        return number(0)
    powers = [None if r is None else pow(4, r, p) for p, r in zip(PRIMES, x.of[1:], strict=False)]
    return Residues((*powers, None))


def _sigmoid(x: Scalar) -> Scalar:
    return number(0) if x is LOW else _inverse(_add(number(1), _exp(_neg(x))))


def _tanh(x: Scalar) -> Scalar:
    return number(-1) if x is LOW else _sub(number(1), _mul(number(2), _sigmoid(_mul(number(-2), x))))


def _exp2(x: Scalar) -> Scalar:
    return _exp(x if x is LOW else _mul(number(2), x))


def _hash(name: str, *args: Scalar) -> Scalar:
    """A function of which nothing is known but that equal arguments have equal results."""
    keys = [arg.of[0] if isinstance(arg, Residues) else repr(arg) for arg in args]
    if None in keys:
        return UNKNOWN
    digest = hashlib.sha256(f"{name} {keys}".encode()).digest()
    return Residues(tuple(int.from_bytes(digest[8 * i : 8 * i + 10], "big") % p for i, p in enumerate(PRIMES)))


def _pow(x: Scalar, y: Scalar) -> Scalar:
    for twice in range(-16, 17):
        if isinstance(y, Residues) and y.of == number(Fraction(twice, 2)).of and x is not LOW:
            base = _sqrt(x) if twice % 2 else x
            return _each(lambda p, a: pow(a, twice if twice % 2 else twice // 2, p) if a else None, base)  # noqa: B023
    return _hash("pow", x, y)


def _rank(x: Scalar) -> int | None:
    """The place in an arbitrary order, but that counts of elements are in theirs; None if it is not known."""
    if x is LOW:
        return -1
    first = x.of[0]
    if first is None:
        return None
    return PRIMES[0] // 2 + first if first < _COUNTS else first * _MIX % PRIMES[0]


def _max(x: Scalar, y: Scalar) -> Scalar:
    a, b = _rank(x), _rank(y)
    return UNKNOWN if a is None or b is None else x if a >= b else y


def _min(x: Scalar, y: Scalar) -> Scalar:
    a, b = _rank(x), _rank(y)
    return UNKNOWN if a is None or b is None else y if a >= b else x


_FLOAT: dict[str, Callable[..., Scalar]] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _neg, "exp": _exp, "exp2": _exp2, "sqrt": _sqrt,
    "rsqrt": lambda x: _inverse(_sqrt(x)), "abs": _abs, "sigmoid": _sigmoid, "tanh": _tanh, "max": _max, "min": _min,
    "pow": _pow, **{name: partial(_hash, name) for name in ("log", "erf", "sin", "cos")},
}  # fmt: skip
_INTEGER: dict[str, Callable[..., Scalar]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "neg": lambda x: -x, "abs": abs,
    "div": lambda x, y: UNKNOWN if y == 0 else int(Fraction(x, y)), "max": max, "min": min,
}  # fmt: skip
_BOOLEAN: dict[str, Callable[..., Scalar]] = {
    "mul": lambda x, y: x and y, "min": lambda x, y: x and y, "max": lambda x, y: x or y, "add": lambda x, y: x or y,
}  # fmt: skip
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda x, y: x < y, "le": lambda x, y: x <= y, "eq": lambda x, y: x == y, "ne": lambda x, y: x != y,
    "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
}  # fmt: skip
REDUCTIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def table_of(dtype: str) -> dict[str, Callable[..., Scalar]]:
    return _FLOAT if is_float(dtype) else _BOOLEAN if dtype == "i1" else _INTEGER


def _compare(predicate: str, x: Scalar, y: Scalar) -> Scalar:
    if isinstance(x, int):
        return _COMPARE[predicate](x, y)
    a, b = _rank(x), _rank(y)
    return UNKNOWN if a is None or b is None else _COMPARE[predicate](a, b)


def _cast(source: str, target: str, x: Scalar) -> Scalar:
    if is_float(source):
        if is_float(target):
            return x
        digit = _hash(target, x).of[0]
        return UNKNOWN if digit is None else digit % 2 == 1 if target == "i1" else digit % 97
    return number(int(x)) if is_float(target) else bool(x) if target == "i1" else int(x)


def rounded(dtype: str, x: Scalar) -> Scalar:
    return x if x is LOW else _hash(f"round to {dtype}", x)


def select_(condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
    return UNKNOWN if isinstance(condition, Residues) else x if condition else y


# --- by op ---


def pointwise(value: Value) -> Callable[..., Scalar]:
    if value.op == "cmp":
        return partial(_compare, value.attrs["predicate"])
    if value.op == "cast":
        return partial(_cast, value.operands[0].dtype, value.dtype)
    if value.op == "select":
        return select_
    table = table_of(value.dtype)
    if value.op not in table:
        raise CleaveError(f"the fields have no '{value.op}' of {value.dtype}")
    return table[value.op]


def neutral_of(kind: str, dtype: str) -> Scalar:
    if dtype == "i1":
        return kind in ("min", "prod")
    if not is_float(dtype):
        return {"sum": 0, "prod": 1}.get(kind, UNKNOWN)
    return {"sum": number(0), "prod": number(1), "max": LOW}.get(kind, UNKNOWN)
