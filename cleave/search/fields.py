"""Elements of a pair of prime fields, for testing equality at random points.

An element is a pair (a mod P, b mod Q) with Q a divisor of P-1: exp takes the second part to a power of a root of
unity of order Q in the first, so ``exp(x+y) = exp(x)·exp(y)`` holds, and has no second part itself. Functions without
algebraic laws are hashes of the first parts.

A field has no order. So beside the pair goes a real number, the value of the same program on random reals, and order,
with it maxima and comparisons, is that of the reals: a maximum picks the element whose real is the largest. It is a
lattice, and what is true of the order of all reals is true here: ``max(x+c) = max(x)+c``, ``max(2x) = 2·max(x)``,
``max exp(x) = exp(max x)``. Reals only choose; what is compared are the pairs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import compress
from typing import Any

from cleave.dialects import rounding
from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import is_float
from cleave.search.numbers import nearest

#: P = 2·Q + 1; both are 7 mod 8 and have 2, 3 and 5 as squares, so roots of such constants behave.
P = 4611686018427376319
Q = 2305843009213688159
ROOT = 4  # of order Q in the field of P


class Element:
    """``b`` is None where only the first part is known. ``real`` orders elements. ``held``: a type that holds it."""

    __slots__ = ("a", "b", "held", "real")

    def __init__(self, a: int, b: int | None, real: float, held: str = "") -> None:
        self.a, self.b, self.real, self.held = a, b, real, held

    def __repr__(self) -> str:
        return f"({self.a}, {self.b})"


class Special:
    """Minus infinity, and results that no field has."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


LOWEST, UNDEFINED = Special("-inf"), Special("undefined")


def number(value: Fraction | int) -> Element:
    value = Fraction(value)
    a, b = (value.numerator * pow(value.denominator, -1, prime) % prime for prime in (P, Q))
    return Element(a, b, float(value))


def hashed(name: str, real: float, *parts: object) -> Element:
    """A pseudo-random element that depends on the name and the first parts only, with a real of its own."""
    text = name + "|" + "|".join(str(part.a) if isinstance(part, Element) else str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=32).digest()
    return Element(int.from_bytes(digest[:16], "big") % P, int.from_bytes(digest[16:], "big") % Q, real)


def _real(function: Callable[..., float], *elements: Element) -> float:
    """The function of the reals; NaN where it has no value, or one that no float holds."""
    try:
        return function(*(element.real for element in elements))
    except (ArithmeticError, ValueError):
        return math.nan


def _defined(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of one argument, undefined where that is."""
    return lambda x: UNDEFINED if x is UNDEFINED else function(x)


def _both_defined(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: UNDEFINED if x is UNDEFINED or y is UNDEFINED else function(x, y)


@_both_defined
def add(x: Any, y: Any) -> Any:
    if x is LOWEST or y is LOWEST:
        return LOWEST
    if x.a == 0 and x.b == 0:
        return y
    if y.a == 0 and y.b == 0:
        return x
    return Element((x.a + y.a) % P, None if x.b is None or y.b is None else (x.b + y.b) % Q, x.real + y.real)


@_defined
def neg(x: Any) -> Any:
    if x is LOWEST:
        return UNDEFINED
    return Element(-x.a % P, None if x.b is None else -x.b % Q, -x.real)


@_both_defined
def sub(x: Any, y: Any) -> Any:
    if x is LOWEST and y is not LOWEST:
        return LOWEST
    return add(x, neg(y))


@_both_defined
def mul(x: Any, y: Any) -> Any:
    if x is LOWEST or y is LOWEST:
        return UNDEFINED
    return Element(x.a * y.a % P, None if x.b is None or y.b is None else x.b * y.b % Q, x.real * y.real)


def dot(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    """The sum of the products, as ``mul`` and ``add`` give it."""
    if any(special in factors for factors in (xs, ys) for special in (LOWEST, UNDEFINED)):
        return UNDEFINED
    a, b, real = 0, 0, 0.0
    for x, y in zip(xs, ys, strict=True):
        term_a, term_b = x.a * y.a % P, None if x.b is None or y.b is None else x.b * y.b % Q
        if a == 0 and b == 0:
            a, b, real = term_a, term_b, x.real * y.real
        elif term_a or term_b != 0:
            a, b = (a + term_a) % P, None if b is None or term_b is None else (b + term_b) % Q
            real += x.real * y.real
    return Element(a, b, real)


@_defined
def inverse(x: Any) -> Any:
    if x is LOWEST or x.a == 0:
        return UNDEFINED
    return Element(pow(x.a, -1, P), None if not x.b else pow(x.b, -1, Q), _real(lambda v: 1.0 / v, x))


def div(x: Any, y: Any) -> Any:
    return mul(x, inverse(y))


@_defined
def sqrt(x: Any) -> Any:
    """The root that is a square itself; undefined where there is none."""
    if x is LOWEST:
        return UNDEFINED
    a = pow(x.a, (P + 1) // 4, P)
    if a * a % P != x.a:
        return UNDEFINED
    b = None if x.b is None else pow(x.b, (Q + 1) // 4, Q)
    return Element(a, b if b is not None and x.b is not None and b * b % Q == x.b else None, _real(math.sqrt, x))


@_defined
def exp(x: Any) -> Any:
    if x is LOWEST:
        return Element(0, None, 0.0)
    return UNDEFINED if x.b is None else Element(pow(ROOT, x.b, P), None, _real(math.exp, x))


@_defined
def absolute(x: Any) -> Any:
    if x is LOWEST:
        return UNDEFINED
    a = x.a if pow(x.a, (P - 1) // 2, P) <= 1 else P - x.a
    b = x.b if x.b is None or pow(x.b, (Q - 1) // 2, Q) <= 1 else Q - x.b
    return Element(a, b, abs(x.real))


def compare(x: Any, y: Any) -> Any:
    """-1, 0 or 1, by the reals; UNDEFINED where these do not tell."""
    if x is LOWEST or y is LOWEST:
        return (x is not LOWEST) - (y is not LOWEST)
    if x.a == y.a:
        return 0
    if math.isnan(x.real) or math.isnan(y.real) or x.real == y.real:
        return UNDEFINED
    return 1 if x.real > y.real else -1


def _extremum(sign: int) -> Callable[[Any, Any], Any]:
    def choose(x: Any, y: Any) -> Any:
        found = compare(x, y)
        return UNDEFINED if found is UNDEFINED else x if sign * found >= 0 else y

    return _both_defined(choose)


maximum, minimum = _extremum(1), _extremum(-1)


@_both_defined
def power(x: Any, y: Any) -> Any:
    if x is LOWEST or y is LOWEST:
        return UNDEFINED
    for twice in range(-16, 17):
        if y.a == number(Fraction(twice, 2)).a:
            base = sqrt(x) if twice % 2 else x
            result = number(1)
            for _ in range(abs(twice) if twice % 2 else abs(twice) // 2):
                result = mul(result, base)
            return inverse(result) if twice < 0 else result
    return hashed("pow", _real(math.pow, x, y), x, y)


@_defined
def sigmoid(x: Any) -> Any:
    return inverse(add(number(1), exp(neg(x))))


@_defined
def exp2(x: Any) -> Any:
    return LOWEST if x is LOWEST else exp(mul(x, _log(number(2))))


def rounded(x: Any, dtype: str) -> Any:
    """A user's rounding: some element of the type, the same one for the same argument."""
    if isinstance(x, Special) or x.held == dtype:
        return x
    result = hashed(f"round_{dtype}", x.real, x)
    result.held = dtype
    return result


def _opaque(name: str, function: Callable[[float], float]) -> Callable[..., Any]:
    return _defined(lambda x: hashed(name, math.nan if x is LOWEST else _real(function, x), x))


_log = _opaque("log", math.log)

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "neg": neg,
    "exp": exp,
    "exp2": exp2,
    "sqrt": sqrt,
    "rsqrt": lambda x: inverse(sqrt(x)),
    "abs": absolute,
    "max": maximum,
    "min": minimum,
    "pow": power,
    "sigmoid": sigmoid,
    "log": _log,
    "tanh": _opaque("tanh", math.tanh),
    "erf": _opaque("erf", math.erf),
    "sin": _opaque("sin", math.sin),
    "cos": _opaque("cos", math.cos),
}
_INTEGER: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
    "div": lambda x, y: UNDEFINED if y == 0 else abs(x) // abs(y) * (1 if x * y >= 0 else -1),
    "max": max,
    "min": min,
    "abs": abs,
}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


class FieldDomain:
    """Object arrays of elements, integers and booleans."""

    def constant(self, value: float | int, dtype: str) -> Any:
        if not is_float(dtype):
            return boxed(bool(value) if dtype == "i1" else int(value))
        if value == float("-inf"):
            return boxed(LOWEST)
        return boxed(UNDEFINED if value != value or value == float("inf") else number(nearest(value, dtype)))

    def positions(self, count: int, dtype: str) -> Any:
        return array_of([int(i) for i in range(count)], (count,))

    def pointwise(self, value: Value, args: Sequence[Any]) -> Any:
        return apply(self._function(value), *args)

    def _function(self, value: Value) -> Callable[..., Any]:
        floats = is_float(value.dtype)
        if value.op == "cast":
            return self._cast(value.operands[0].dtype, value.dtype)
        if value.op == "cmp":
            holds = _COMPARE[value.attrs["predicate"]]
            if is_float(value.operands[0].dtype):
                return _both_defined(lambda x, y: _both_defined(holds)(compare(x, y), 0))
            return _both_defined(holds)
        if value.op == "select":
            return lambda c, x, y: UNDEFINED if c is UNDEFINED else x if c else y
        if value.dtype == "i1":
            return _both_defined((lambda x, y: x and y) if value.op in ("mul", "min") else (lambda x, y: x or y))
        if not floats:
            return (_defined if len(value.operands) == 1 else _both_defined)(_INTEGER[value.op])
        return _FUNCTIONS[value.op]

    def _cast(self, source: str, target: str) -> Callable[[Any], Any]:
        if is_float(source) and is_float(target):
            return lambda x: x
        if is_float(source):
            return _defined(lambda x: hashed(target, 0.0, x).a % (2 if target == "i1" else 128))
        if is_float(target):
            return _defined(lambda x: number(int(x)))
        return _defined(bool if target == "i1" else int)

    def contract(self, factors: Sequence[Any], axes: tuple[int, ...], valid: Any, value: Value) -> Any:
        import numpy as np

        if not is_float(value.dtype):
            return self.reduce("sum", apply(_both_defined(_INTEGER["mul"]), *factors), axes, valid, value)
        shape = np.broadcast_shapes(*(factor.shape for factor in factors), () if valid is None else valid.shape)
        outer, (xs, ys) = rows(shape, axes, factors)
        if valid is not None:
            _, (exist,) = rows(shape, axes, [valid])
            xs, ys = ([list(compress(*pair)) for pair in zip(some, exist, strict=True)] for some in (xs, ys))
        return array_of([dot(x, y) for x, y in zip(xs, ys, strict=True)], outer)

    def reduce(self, kind: str, array: Any, axes: tuple[int, ...], valid: Any, value: Value) -> Any:
        if value.dtype == "i1":
            neutral: Any = kind in ("min", "prod")
            step: Callable[..., Any] = _both_defined((lambda x, y: x and y) if neutral else (lambda x, y: x or y))
        elif not is_float(value.dtype):
            neutral = {"sum": 0, "prod": 1}.get(kind)
            step = _both_defined(_INTEGER[{"sum": "add", "prod": "mul"}.get(kind, kind)])
        else:
            neutral = {"sum": number(0), "prod": number(1), "max": LOWEST, "min": None}[kind]
            step = {"sum": add, "prod": mul, "max": maximum, "min": minimum}[kind]
        return reduced(array, axes, valid, neutral, step)

    def rounded(self, array: Any, value: Value, transparent: bool) -> Any:
        if not rounding.rounds(value) or transparent:
            return array
        return apply(lambda x: rounded(x, value.dtype), array)


def boxed(item: Any) -> Any:
    return array_of([item], ())


def array_of(items: Sequence[Any], shape: tuple[int, ...]) -> Any:
    import numpy as np

    array = np.empty(len(items), dtype=object)
    for position, item in enumerate(items):
        array[position] = item
    return array.reshape(shape)


def apply(function: Callable[..., Any], *arrays: Any) -> Any:
    import numpy as np

    result = np.frompyfunc(function, len(arrays), 1)(*arrays)
    return result if isinstance(result, np.ndarray) else boxed(result)


def rows(shape: tuple[int, ...], axes: tuple[int, ...], arrays: Sequence[Any]) -> tuple[tuple[int, ...], list[Any]]:
    """The shape that a reduction over the axes leaves, and for each array a list of the lists that are reduced."""
    import numpy as np

    kept = [axis for axis in range(len(shape)) if axis not in axes]
    outer = tuple(shape[axis] for axis in kept)
    count, length = (math.prod(shape[axis] for axis in some) for some in (kept, axes))
    flat = (np.broadcast_to(array, shape).transpose([*kept, *axes]).reshape(count, length) for array in arrays)
    return outer, [array.tolist() for array in flat]


def reduced(array: Any, axes: tuple[int, ...], valid: Any, neutral: Any, step: Callable[..., Any]) -> Any:
    import numpy as np

    shape = np.broadcast_shapes(array.shape, () if valid is None else valid.shape)
    outer, (elements, exist) = rows(shape, axes, [array, True if valid is None else valid])
    items: list[Any] = []
    for row, there in zip(elements, exist, strict=True):
        total: Any = neutral
        for element in compress(row, there):
            total = element if total is None else step(total, element)
        items.append(UNDEFINED if total is None else total)
    return array_of(items, outer)
