"""`Facts`: what is known about the symbols of sizes, and three-valued answers to questions about them.

A definition (``N = 16*N1``, the way to say that 16 divides N) is substituted everywhere; an inequality is a bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from math import gcd, inf
from typing import Final, NamedTuple

from cleave.dialects.size import ZERO, Size, SizeLike, as_size, from_terms, single_atom, sym
from cleave.dialects.size_bounds import BASE, Bounds, End, Interval
from cleave.dialects.size_rules import apply, rebuild
from cleave.dialects.size_text import parse, syntax_error
from cleave.errors import CleaveError

_RELATION = re.compile(r"<=|>=|==|=|<|>")
_ROUNDS: Final = 3  # of bounds following from bounds


class Answer(Enum):
    """YES: true for all sizes that the facts admit. NO: false for all of them. UNKNOWN: neither is proved.

    It has no truth value, so that an unknown cannot pass for a no: write ``answer is Answer.YES``.
    """

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no truth value; compare it: answer is Answer.YES")


class _Relation(NamedTuple):
    left: Size
    sign: str  # one of = <= >= < >
    right: Size
    text: str


class Facts:
    """Definitions and bounds. Immutable; two with the same texts are equal."""

    __slots__ = ("_bounds", "_definitions", "_simplified", "texts")

    texts: tuple[str, ...]

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """See `parse`."""
        self.texts = tuple(texts)
        relations = [relation for text in self.texts for relation in _read(text)]
        self._definitions, nonnegative = _solve(relations)
        self._bounds = _bounds_from(nonnegative)
        self._simplified: dict[Size, Size] = {}

    @staticmethod
    def parse(texts: Iterable[str]) -> Facts:
        """Facts from texts such as ``N = 16*N1``, ``1 <= s``, ``1 <= s <= n``, ``n < 4097``.

        An equality with a bare symbol on one side defines that symbol; further equalities are solved for a symbol where
        that is easy, and are bounds otherwise. CleaveError: unreadable text, a symbol defined by itself, or facts seen
        to contradict each other.
        """
        if isinstance(texts, str):
            raise TypeError(f"facts are a list of texts, not one text: write [{texts!r}]")
        return _parsed(tuple(texts))

    def given(self, values: Mapping[str, int]) -> Facts:
        """These facts and that the symbols have these values. CleaveError where one of them cannot have its value."""
        return Facts.parse((*self.texts, *(f"{name} = {value}" for name, value in values.items()))) if values else self

    @property
    def definitions(self) -> Mapping[str, Size]:
        """The defined symbols, in terms of those that are not."""
        return dict(self._definitions)

    def simplify(self, size: SizeLike) -> Size:
        """The size with definitions substituted and everything applied that the bounds allow."""
        size = as_size(size)
        found = self._simplified.get(size)
        if found is None:
            found = self._simplified[size] = rebuild(size, self._definitions, self._bounds)
        return found

    def bounds(self, size: SizeLike) -> tuple[int | None, int | None]:
        """(low, high), both inclusive, with low <= size <= high wherever the facts hold; None: no bound is known."""
        size = self.simplify(size)
        return _finite(self._bounds.lower(size)), _finite(self._bounds.upper(size))

    def equal(self, a: SizeLike, b: SizeLike) -> Answer:
        return self._is_zero(self.simplify(a) - self.simplify(b))

    def less_equal(self, a: SizeLike, b: SizeLike) -> Answer:
        difference = self.simplify(b) - self.simplify(a)
        if self._bounds.at_least(difference, 0):
            return Answer.YES
        return Answer.NO if self._bounds.at_least(-difference, 1) else Answer.UNKNOWN

    def less(self, a: SizeLike, b: SizeLike) -> Answer:
        return self.less_equal(as_size(a) + 1, b)

    def divides(self, divisor: SizeLike, size: SizeLike) -> Answer:
        """Whether ``divisor`` (>= 1, as every divisor) divides ``size``. CleaveError when it is a constant < 1."""
        divisor = self.simplify(divisor)
        return self._is_zero(apply("mod", (self.simplify(size), divisor), self._bounds), divisor)

    def _is_zero(self, size: Size, positive: Size | None = None) -> Answer:
        """Whether the size is 0; ``positive`` is taken to be >= 1."""
        at_least = self._bounds.at_least
        if size is ZERO or (at_least(size, 0, positive) and at_least(-size, 0, positive)):
            return Answer.YES
        never = _never_zero(size) or at_least(size, 1, positive) or at_least(-size, 1, positive)
        return Answer.NO if never else Answer.UNKNOWN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and self.texts == other.texts

    def __hash__(self) -> int:
        return hash(self.texts)

    def __repr__(self) -> str:
        return f"Facts.parse({list(self.texts)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Facts, (self.texts,)


@lru_cache(maxsize=128)
def _parsed(texts: tuple[str, ...]) -> Facts:
    """One object for all that have the same: what is found out of sizes is found once."""
    return Facts(texts)


def _finite(end: End) -> int | None:
    return end if isinstance(end, int) else None


def _read(text: str) -> list[_Relation]:
    """The relations of one fact; ``a <= b <= c`` has two."""
    signs = list(_RELATION.finditer(text))
    if not signs:
        raise syntax_error(text, len(text), "a fact needs one of = <= >= < >, and none is found")
    edges = [0, *(edge for sign in signs for edge in sign.span()), len(text)]
    sides = [_side(text, start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    return [
        _Relation(left, sign.group().replace("==", "="), right, text)
        for left, sign, right in zip(sides, signs, sides[1:], strict=False)
    ]


def _side(text: str, start: int, end: int) -> Size:
    # Padding keeps the columns of errors right: they count in the whole fact.
    return parse(" " * start + text[start:end]) if text[start:end].strip() else _missing(text, end)


def _missing(text: str, at: int) -> Size:
    raise syntax_error(text, at, "a side of the fact is missing")


def _solve(relations: list[_Relation]) -> tuple[dict[str, Size], list[tuple[Size, str]]]:
    """(definitions, [(p, text)]) with every p >= 0 in terms of the symbols that are not defined."""
    definitions: dict[str, Size] = {}
    unsolved: list[_Relation] = []
    origin: dict[str, str] = {}
    for relation in relations:
        solution = _definition(relation, definitions) if relation.sign == "=" else relation
        if isinstance(solution, _Relation):
            unsolved.append(solution)
        elif solution is not None:
            name, value = solution
            definitions = {key: rebuild(old, {name: value}) for key, old in definitions.items()}
            definitions[name] = value
            origin[name] = relation.text
    nonnegative = [(value, origin[name]) for name, value in definitions.items()]  # as every symbol is
    for left, sign, right, text in unsolved:
        difference = rebuild(right - left, definitions)
        if sign in ("=", "<=", "<"):
            nonnegative.append((difference - (sign == "<"), text))
        if sign in ("=", ">=", ">"):
            nonnegative.append((-difference - (sign == ">"), text))
    return definitions, nonnegative


def _definition(relation: _Relation, known: Mapping[str, Size]) -> tuple[str, Size] | _Relation | None:
    """(symbol, value) that an equality defines; the relation itself when it defines none; None when nothing is new."""
    left, right = rebuild(relation.left, known), rebuild(relation.right, known)
    difference = left - right
    if difference is ZERO:
        return None
    if _never_zero(difference):
        raise CleaveError(f"the facts contradict each other: {relation.text!r} cannot hold")
    for written, one, other in ((relation.left, left, right), (relation.right, right, left)):
        name = _symbol(written)
        if name is not None and one is written:
            if name not in other.symbols:
                return name, other
            raise CleaveError(f"the fact {relation.text!r} defines {name!r} by itself", notes=_how(known, name))
    return _isolate(difference) or relation


def _how(known: Mapping[str, Size], name: str) -> tuple[str, ...]:
    used = [f"{key} = {value}" for key, value in known.items() if name in value.symbols]
    return (f"given that {', '.join(used)}",) if used else ()


def _symbol(size: Size) -> str | None:
    atom = single_atom(size)
    return atom.text if atom is not None and atom.kind == "symbol" else None


def _isolate(difference: Size) -> tuple[str, Size] | None:
    """(x, value) with difference = 0 exactly when x = value, for a symbol x that occurs once, with coefficient +-1."""
    content = gcd(*(coefficient for _, coefficient in difference.terms))
    terms = tuple((monomial, coefficient // content) for monomial, coefficient in difference.terms)
    for index, (monomial, coefficient) in enumerate(terms):
        if coefficient in (1, -1) and len(monomial) == 1 and monomial[0].kind == "symbol":
            rest = from_terms(*terms[:index], *terms[index + 1 :])
            if monomial[0].text not in rest.symbols:
                return monomial[0].text, rest * -coefficient
    return None


def _never_zero(size: Size) -> bool:
    """Whether no integers make it 0: a common factor of the other terms does not divide the constant."""
    content = gcd(*(coefficient for monomial, coefficient in size.terms if monomial))
    constant = size.constant_term
    return constant != 0 if content == 0 else constant % content != 0


def _bounds_from(nonnegative: list[tuple[Size, str]]) -> Bounds:
    intervals: dict[str, Interval] = {}
    general: list[Size] = [p for size, _ in nonnegative for p in _divisors_positive(size)]
    for size, text in nonnegative:
        simple = _simple_bound(size)
        if simple is None:
            general.append(size)
        else:
            name, interval = simple
            intervals[name] = _meet(intervals.get(name, (0, inf)), interval)
            _check(intervals[name], f"{text!r} leaves no value for {name!r}")
    general = [size for size in dict.fromkeys(general) if BASE.lower(size) < 0]
    bounds = _propagate(Bounds(intervals, general)) if intervals or general else BASE
    for size, text in nonnegative:
        if bounds.upper(size) < 0:
            raise CleaveError(f"the facts contradict each other: {text!r} cannot hold")
    return bounds


def _simple_bound(size: Size) -> tuple[str, Interval] | None:
    """(x, interval) when the size is c*x + k >= 0."""
    variable = [term for term in size.terms if term[0]]
    if len(variable) != 1:
        return None
    monomial, coefficient = variable[0]
    if len(monomial) != 1 or monomial[0].kind != "symbol":
        return None
    edge = -size.constant_term
    return monomial[0].text, (-(-edge // coefficient), inf) if coefficient > 0 else (0, edge // coefficient)


def _divisors_positive(size: Size) -> list[Size]:
    """b - 1 for every divisor b in the size."""
    found: list[Size] = []
    for monomial, _ in size.terms:
        for atom in monomial:
            for arg in atom.args:
                found += _divisors_positive(arg)
            if atom.kind in ("floordiv", "ceildiv"):
                found.append(atom.args[1] - 1)
    return found


def _meet(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])


def _check(interval: Interval, problem: str) -> None:
    if interval[0] > interval[1]:
        raise CleaveError(f"the facts contradict each other: {problem}")


def _propagate(bounds: Bounds) -> Bounds:
    """Bounds of single symbols that follow from bounds with several: ``n <= m`` and ``m <= 100`` bound n."""
    names = sorted({name for size in bounds.nonnegative for name in size.symbols})
    for _ in range(_ROUNDS):
        intervals = dict(bounds.symbols)
        for name in names:
            interval = bounds.lower(sym(name)), bounds.upper(sym(name))
            _check(interval, f"they leave no value for {name!r}")
            intervals[name] = interval
        if intervals == bounds.symbols:
            break
        bounds = Bounds(intervals, bounds.nonnegative)
    return bounds
