"""Tensor graphs over a chain of prime fields: a test of equality that shares no code with the search.

A number is a residue for each of three primes P0 = 2·P1 + 1, P1 = 2·P2 + 1. In the field of P_i the powers of 4 are a
group of order P_{i+1}, so exp takes the residue of the next prime to a power of 4, and exp(x + y) = exp(x)·exp(y). The
last residue of an exponential is not known; after three nested ones nothing is. All primes are 119 mod 120, so -1 is no
square, and 2, 3 and 5 are: each square has one root that is a square, as each positive number has a positive root.

What the fields cannot judge: the order of numbers is arbitrary (a lattice, but max(x + c) = max(x) + c does not hold),
and functions without algebra here (log, erf, pow with other than small exponents, roundings) are hashes.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from cleave.dialects import rounding
from cleave.dialects.dims import parse
from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import is_float, parse_dim
from cleave.errors import CleaveError

PRIMES = (2305843009213972799, 1152921504606986399, 576460752303493199)
_MIX = 0x2545F4914F6CDD1D

Array = Any  # of objects: Residues, LOW, ABSENT, int or bool
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
    """The place in an arbitrary order; None if it is not known."""
    if x is LOW:
        return -1
    return None if x.of[0] is None else x.of[0] * _MIX % PRIMES[0]


def _max(x: Scalar, y: Scalar) -> Scalar:
    a, b = _rank(x), _rank(y)
    return UNKNOWN if a is None or b is None else x if a >= b else y


def _min(x: Scalar, y: Scalar) -> Scalar:
    a, b = _rank(x), _rank(y)
    return UNKNOWN if a is None or b is None else y if a >= b else x


_FLOAT: dict[str, Callable[..., Scalar]] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _neg, "exp": _exp, "exp2": _exp2, "sqrt": _sqrt,
    "rsqrt": lambda x: _inverse(_sqrt(x)), "abs": _abs, "sigmoid": _sigmoid, "tanh": _tanh, "max": _max, "min": _min,
    "pow": _pow, "log": partial(_hash, "log"), "erf": partial(_hash, "erf"),
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
_REDUCTIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def _table(dtype: str) -> dict[str, Callable[..., Scalar]]:
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


def _rounded(dtype: str, x: Scalar) -> Scalar:
    return x if x is LOW else _hash(f"round to {dtype}", x)


def _select(condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
    return UNKNOWN if isinstance(condition, Residues) else x if condition else y


# --- tensors ----------------------------------------------------------------------------------------------------------


def evaluate(graph: Graph, inputs: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
    """The outputs on arrays of scalars; CleaveError for what fields have no rule for."""
    order = graph.topological()
    free = rounding.transparent(order, graph.outputs)
    results: dict[Value, Array] = {}
    cuts: dict[tuple[str, ...], int] = {}  # the two dims of each split, and how many elements they share
    for value in order:
        if value.op == "input":
            results[value] = inputs[value.attrs["index"]]
            continue
        result = _apply(value, [results[operand] for operand in value.operands], sizes)
        if value.op == "split":
            halves = tuple(parse_dim(text).name for text in value.attrs["into"])
            cuts[halves] = value.operands[0].size(value.attrs["dim"]).evaluate(sizes)
        if value.op in ("contract", "reduce"):
            result = _with_empty_sums(value, result, cuts)
        if rounding.rounds(value) and value not in free:
            result = _map(partial(_rounded, value.dtype), result)
        results[value] = result
    return [results[output] for output in graph.outputs]


def _map(function: Callable[..., Scalar], *arrays: Array) -> Array:
    """The function on broadcast arrays; nothing is computed of what does not exist."""

    def guarded(*args: Scalar) -> Scalar:
        if ABSENT in args:
            return ABSENT
        if any(arg is UNKNOWN for arg in args) and function is not _select:
            return UNKNOWN
        return function(*args)

    return _boxed(np.frompyfunc(guarded, len(arrays), 1)(*arrays))


def _boxed(result: Any) -> Array:
    if isinstance(result, np.ndarray):
        return result
    array = np.empty((), dtype=object)
    array[()] = result
    return array


def _aligned(array: Array, names: Sequence[str], onto: Sequence[str]) -> Array:
    order = sorted(range(len(names)), key=lambda axis: onto.index(names[axis]))
    return array.transpose(order)[tuple(slice(None) if name in names else None for name in onto)]


def _apply(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    rule = _VIEWS.get(value.op)
    if rule is not None:
        return rule(value, args, sizes)
    over = tuple(value.attrs.get("over", ()))
    aligned = [_aligned(a, o.names, (*value.names, *over)) for a, o in zip(args, value.operands, strict=True)]
    if value.op == "contract":
        return _reduced(_map(_table(value.dtype)["mul"], *aligned), "sum", len(over), value.dtype)
    if value.op == "reduce":
        return _reduced(aligned[0], value.attrs["kind"], len(over), value.dtype)
    return _map(_pointwise(value), *aligned)


def _pointwise(value: Value) -> Callable[..., Scalar]:
    if value.op == "cmp":
        return partial(_compare, value.attrs["predicate"])
    if value.op == "cast":
        return partial(_cast, value.operands[0].dtype, value.dtype)
    if value.op == "select":
        return _select
    table = _table(value.dtype)
    if value.op not in table:
        raise CleaveError(f"the fields have no '{value.op}' of {value.dtype}")
    return table[value.op]


def _reduced(array: Array, kind: str, axes: int, dtype: str) -> Array:
    """Over the last axes; what does not exist is left out, and absent where nothing does."""
    step = _table(dtype)[_REDUCTIONS[kind]]

    def guarded(x: Scalar, y: Scalar) -> Scalar:
        if x is ABSENT or y is ABSENT:
            return y if x is ABSENT else x
        return UNKNOWN if x is UNKNOWN or y is UNKNOWN else step(x, y)

    for _ in range(axes):
        array = _boxed(np.frompyfunc(guarded, 2, 1).reduce(array, axis=array.ndim - 1))
    return array


def _with_empty_sums(value: Value, result: Array, cuts: Mapping[tuple[str, ...], int]) -> Array:
    """A reduction over nothing has a value, unless the place itself is past the end of a dim that is cut."""
    neutral = _neutral(value.attrs.get("kind", "sum"), value.dtype)
    places = [
        (value.names.index(outer), value.names.index(inner), count)
        for (outer, inner), count in cuts.items()
        if outer in value.names and inner in value.names
    ]
    filled = result.copy()
    for place in np.ndindex(*result.shape):
        exists = all(place[o] * result.shape[i] + place[i] < count for o, i, count in places)
        if result[place] is ABSENT and exists:
            filled[place] = neutral
    return filled


def _neutral(kind: str, dtype: str) -> Scalar:
    if dtype == "i1":
        return kind in ("min", "prod")
    if not is_float(dtype):
        return {"sum": 0, "prod": 1}.get(kind, UNKNOWN)
    return {"sum": number(0), "prod": number(1), "max": LOW}.get(kind, UNKNOWN)


def _constant(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    raw = value.attrs["value"]
    if not is_float(value.dtype):
        scalar: Scalar = bool(raw) if value.dtype == "i1" else int(raw)
    elif abs(raw) == float("inf") or raw != raw:
        scalar = LOW if raw == float("-inf") else UNKNOWN
    else:
        scalar = number(Fraction(raw))
    array = np.empty([dim.size.evaluate(sizes) for dim in value.dims], dtype=object)
    array.fill(scalar)
    return array


def _index(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    return np.array(range(value.dims[0].size.evaluate(sizes)), dtype=object)


def _split(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    (array,), axis = args, value.operands[0].names.index(value.attrs["dim"])
    halves = tuple(parse_dim(text).size.evaluate(sizes) for text in value.attrs["into"])
    missing = halves[0] * halves[1] - array.shape[axis]
    padding = np.full((*array.shape[:axis], missing, *array.shape[axis + 1 :]), ABSENT, dtype=object)
    return np.concatenate([array, padding], axis).reshape((*array.shape[:axis], *halves, *array.shape[axis + 1 :]))


def _merge(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    merged, source = tuple(value.attrs["dims"]), value.operands[0].names
    into = next(name for name in value.names if name not in source)
    order = [name for name in source if name not in merged[1:]]
    order[order.index(merged[0]) : order.index(merged[0]) + 1] = merged
    array, axis = args[0].transpose([source.index(name) for name in order]), order.index(merged[0])
    array = array.reshape((*array.shape[:axis], -1, *array.shape[axis + len(merged) :]))
    extent = value.size(into).evaluate(sizes)
    return array.take(range(extent), axis)


def _slice(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    axis = value.operands[0].names.index(value.attrs["dim"])
    first, extent = parse(value.attrs["offset"]).evaluate(sizes), value.dims[axis].size.evaluate(sizes)
    if first + extent > args[0].shape[axis]:
        raise CleaveError(f"a slice leaves '{value.attrs['dim']}' at these sizes")
    return args[0].take(range(first, first + extent), axis)


def _concat(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    first, second = value.attrs["dims"]
    names = value.operands[0].names
    other = [value.operands[1].names.index(second if name == first else name) for name in names]
    return np.concatenate([args[0], args[1].transpose(other)], names.index(first))


def _gather(value: Value, args: list[Array], sizes: Mapping[str, int]) -> Array:
    source, indices = value.operands
    result = np.empty([dim.size.evaluate(sizes) for dim in value.dims], dtype=object)
    for place in np.ndindex(*result.shape):
        at = dict(zip(value.names, place, strict=True))
        picked = args[1][tuple(at[name] for name in indices.names)]
        where = tuple(picked if name == value.attrs["dim"] else at[name] for name in source.names)
        result[place] = args[0][where]
    return result


_VIEWS: dict[str, Callable[[Value, list[Array], Mapping[str, int]], Array]] = {
    "constant": _constant, "index": _index, "split": _split, "merge": _merge, "slice": _slice, "concat": _concat,
    "gather": _gather, "rename": lambda value, args, sizes: args[0],
}  # fmt: skip


def draw(graph: Graph, sizes: Mapping[str, int], rng: random.Random) -> list[Array]:
    """Random residues for floats, small integers (0 or 1, so that they are indices too) and booleans for the others."""
    arrays: list[Array] = []
    for value in graph.inputs:
        array = np.empty([dim.size.evaluate(sizes) for dim in value.dims], dtype=object)
        for place in np.ndindex(*array.shape):
            if is_float(value.dtype):
                array[place] = Residues(tuple(rng.randrange(p) for p in PRIMES))
            else:
                array[place] = bool(rng.getrandbits(1)) if value.dtype == "i1" else rng.randrange(2)
        arrays.append(array)
    return arrays
