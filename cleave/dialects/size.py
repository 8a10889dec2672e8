"""`Size`: an interned integer polynomial over symbols and the atoms floordiv, ceildiv, min and max.

Only the polynomial lives here; `size_rules` builds the atoms in normal form. ``mod(a, b)`` is no atom of its own: it
*is* ``a - b*floordiv(a, b)``, so that every identity between quotients and remainders is plain polynomial arithmetic;
`str` finds it again.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Union

from cleave.errors import CleaveError

#: Limits that keep hostile or runaway input from costing time or stack; real sizes stay far below all of them.
MAX_LENGTH = 4096  # characters of a size's text
MAX_DEPTH = 24  # nesting of atoms
MAX_COEFFICIENT = 1 << 128
MAX_PRODUCT = 1 << 14  # terms multiplied in one product

FUNCTIONS = ("floordiv", "mod", "ceildiv", "min", "max")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Monomial = tuple["Atom", ...]  # sorted by key; a power is a repetition; () is the constant
SizeLike = Union["Size", int]


class Atom:
    """A factor of a monomial: a symbol, or a function of sizes. Interned; compared by identity."""

    __slots__ = ("args", "depth", "key", "kind", "symbols", "text")

    kind: str  # symbol, floordiv, ceildiv, min or max
    args: tuple[Size, ...]
    text: str
    key: tuple[int, str]  # the total order of atoms, the same in every process
    depth: int
    symbols: frozenset[str]

    def __init__(self, kind: str, args: tuple[Size, ...], text: str) -> None:
        self.kind, self.args, self.text = kind, args, text
        self.key = (int(kind != "symbol"), text)
        self.depth = 1 + max((arg.depth for arg in args), default=-1)
        self.symbols = frozenset().union(*(arg.symbols for arg in args)) if args else frozenset((text,))

    def __repr__(self) -> str:
        return f"Atom({self.text})"


class Size:
    """An integer-valued polynomial in normal form. Equal normal forms are one object, so ``is``, ``==`` and hash agree.

    A symbol stands for an integer >= 0 and a divisor for an integer >= 1: simplification relies on both.
    ``size == 4`` is False (a `Size` is no int): ask ``size.value == 4``.
    """

    __slots__ = ("_text", "depth", "symbols", "terms")

    terms: tuple[tuple[Monomial, int], ...]  # highest degree first, no zero coefficients
    symbols: frozenset[str]
    depth: int

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        """Internal: sizes come from `sym`, `const`, `parse` and arithmetic."""
        self.terms = terms
        self._text: str | None = None
        self.depth = max((atom.depth for monomial, _ in terms for atom in monomial), default=0)
        self.symbols = frozenset().union(*(atom.symbols for monomial, _ in terms for atom in monomial))

    @property
    def value(self) -> int | None:
        """The integer, when the size is a constant."""
        if not self.terms:
            return 0
        monomial, coefficient = self.terms[0]
        return None if monomial else coefficient

    @property
    def constant_term(self) -> int:
        return self.terms[-1][1] if self.terms and not self.terms[-1][0] else 0

    def __add__(self, other: SizeLike) -> Size:
        return add(self, as_size(other))

    def __sub__(self, other: SizeLike) -> Size:
        return add(self, multiply(as_size(other), _MINUS_ONE))

    def __mul__(self, other: SizeLike) -> Size:
        return multiply(self, as_size(other))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: SizeLike) -> Size:
        return as_size(other) - self

    def __neg__(self) -> Size:
        return multiply(self, _MINUS_ONE)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value for an assignment of the symbols, in Python integers.

        CleaveError: a symbol is missing or negative, or a divisor evaluates to less than 1. A divisor that
        simplification removed, as in ``floordiv(n*s, s)``, is not looked at.
        """
        return sum(coefficient * _evaluate_monomial(monomial, values) for monomial, coefficient in self.terms)

    def substitute(self, values: Mapping[str, SizeLike]) -> Size:
        """This size with symbols replaced (all at once), in normal form again."""
        from cleave.dialects.size_rules import rebuild

        return rebuild(self, {name: as_size(value) for name, value in values.items()})

    def __str__(self) -> str:
        if self._text is None:
            from cleave.dialects.size_text import render

            self._text = render(self)
        return self._text

    def __repr__(self) -> str:
        return f"Size({self})"

    def __reduce__(self) -> tuple[object, ...]:
        from cleave.dialects.size_text import parse

        return parse, (str(self),)

    def __copy__(self) -> Size:
        return self

    def __deepcopy__(self, memo: object) -> Size:
        return self


_ATOMS: dict[tuple[str, object], Atom] = {}
_SIZES: dict[tuple[tuple[Monomial, int], ...], Size] = {}


def symbol_atom(name: str) -> Atom:
    """The atom of a symbol. CleaveError for a text that is no name."""
    found = _ATOMS.get(("symbol", name))
    if found is not None:
        return found
    if not _NAME.fullmatch(name):
        raise CleaveError(f"{name!r} is no name of a symbol: expected [A-Za-z_][A-Za-z0-9_]*")
    if name in FUNCTIONS:
        raise CleaveError(f"{name!r} is the name of a function, so it cannot name a symbol")
    if len(name) > MAX_LENGTH // 4:
        raise CleaveError(f"the name of a symbol has {len(name)} characters; at most {MAX_LENGTH // 4} are allowed")
    return _ATOMS.setdefault(("symbol", name), Atom("symbol", (), name))


def function_atom(kind: str, args: tuple[Size, ...]) -> Atom:
    """The atom of a function whose arguments are in normal form already."""
    found = _ATOMS.get((kind, args))
    if found is not None:
        return found
    atom = Atom(kind, args, f"{kind}({', '.join(map(str, args))})")
    if atom.depth > MAX_DEPTH:
        raise CleaveError(f"a size is nested more than {MAX_DEPTH} deep")
    return _ATOMS.setdefault((kind, args), atom)


def from_atom(atom: Atom) -> Size:
    return from_terms(((atom,), 1))


def single_atom(size: Size) -> Atom | None:
    """The atom that the size consists of, if it is one."""
    if len(size.terms) != 1:
        return None
    monomial, coefficient = size.terms[0]
    return monomial[0] if coefficient == 1 and len(monomial) == 1 else None


def sym(name: str) -> Size:
    """The symbol of that name. CleaveError when it is no name."""
    return from_atom(symbol_atom(name))


def const(value: int) -> Size:
    return from_terms(((), operator.index(value)))


def as_size(value: SizeLike) -> Size:
    return value if isinstance(value, Size) else const(value)


def from_terms(*terms: tuple[Monomial, int]) -> Size:
    """The sum of coefficient * monomial; monomials may repeat."""
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    return _intern(total)


def _intern(total: dict[Monomial, int]) -> Size:
    terms = tuple(sorted(((m, c) for m, c in total.items() if c), key=_term_order))
    found = _SIZES.get(terms)
    if found is not None:
        return found
    _check_limits(terms)
    return _SIZES.setdefault(terms, Size(terms))


def _check_limits(terms: tuple[tuple[Monomial, int], ...]) -> None:
    length = 0
    for monomial, coefficient in terms:
        if not -MAX_COEFFICIENT < coefficient < MAX_COEFFICIENT:
            raise CleaveError("a coefficient of a size has more than 128 bits")
        length += 4 + len(str(coefficient)) + sum(len(atom.text) + 1 for atom in monomial)
    if length > MAX_LENGTH:
        raise CleaveError(f"a size is too large: its text would have more than {MAX_LENGTH} characters")


def _term_order(term: tuple[Monomial, int]) -> tuple[int, tuple[tuple[int, str], ...]]:
    return monomial_order(term[0])


@lru_cache(maxsize=1 << 14)
def monomial_order(monomial: Monomial) -> tuple[int, tuple[tuple[int, str], ...]]:
    """The key of graded lexicographic order, highest first. It respects products, which polynomial division needs."""
    return -len(monomial), tuple(atom.key for atom in monomial)


def _atom_key(atom: Atom) -> tuple[int, str]:
    return atom.key


@lru_cache(maxsize=1 << 14)
def multiply_monomials(a: Monomial, b: Monomial) -> Monomial:
    return tuple(sorted(a + b, key=_atom_key)) if a and b else a or b


@lru_cache(maxsize=1 << 14)
def divide_monomials(a: Monomial, b: Monomial) -> Monomial | None:
    """a / b, or None when b does not divide a."""
    rest = list(a)
    for atom in b:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


@lru_cache(maxsize=1 << 16)
def add(a: Size, b: Size) -> Size:
    if not a.terms or not b.terms:
        return a if a.terms else b
    total = dict(a.terms)
    for monomial, coefficient in b.terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    return _intern(total)


@lru_cache(maxsize=1 << 16)
def multiply(a: Size, b: Size) -> Size:
    if len(a.terms) * len(b.terms) > MAX_PRODUCT:
        raise CleaveError(f"a size is too large: a product of {len(a.terms)} and {len(b.terms)} terms")
    total: dict[Monomial, int] = {}
    for left, c in a.terms:
        for right, d in b.terms:
            monomial = multiply_monomials(left, right)
            total[monomial] = total.get(monomial, 0) + c * d
    return _intern(total)


def add_all(sizes: Iterable[Size]) -> Size:
    total = ZERO
    for size in sizes:
        total = add(total, size)
    return total


_MINUS_ONE = const(-1)
ZERO = const(0)
ONE = const(1)


def _evaluate_monomial(monomial: Monomial, values: Mapping[str, int]) -> int:
    product = 1
    for atom in monomial:
        product *= _evaluate_atom(atom, values)
    return product


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    if atom.kind == "symbol":
        return _value_of(atom.text, values)
    args = [arg.evaluate(values) for arg in atom.args]
    if atom.kind == "min":
        return min(args)
    if atom.kind == "max":
        return max(args)
    numerator, divisor = args
    if divisor < 1:
        raise CleaveError(f"the divisor of {atom.text} is {divisor}; a divisor must be at least 1")
    return numerator // divisor if atom.kind == "floordiv" else -(-numerator // divisor)


def _value_of(name: str, values: Mapping[str, int]) -> int:
    if name not in values:
        raise CleaveError(
            f"the size {name!r} has no value", notes=(f"known are: {', '.join(sorted(values)) or 'none'}",)
        )
    value = operator.index(values[name])
    if value < 0:
        raise CleaveError(f"the size {name!r} is {value}; sizes are at least 0")
    return value
