"""Index arithmetic of a kernel as i32 or i64, whichever is proved to hold its values.

Every extent is at most ``LARGEST_EXTENT`` (``dialects/given_sizes.py``), so that an extent plus a tile fits in i32;
launches check it. What is larger, such as products of extents, is computed in i64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.dialects.dims import Facts, Size, ceildiv, const
from cleave.dialects.size import Atom, from_atom
from cleave.errors import CleaveError
from cleave.lowering import tt

_I32 = 2**31
UNKNOWN = 2**63


@dataclass(frozen=True)
class Scalar:
    """An integer in i32 or i64, within [low, high].

    ``size``: its value as an expression over the sizes, if known; ``limit``: such an expression above its value.
    """

    value: ir.Value
    low: int
    high: int
    size: Size | None = None
    limit: Size | None = None

    @property
    def constant(self) -> int | None:
        return self.low if self.low == self.high else None

    @property
    def narrow(self) -> bool:
        return str(self.value.type) == "i32"


class Scalars:
    """Builds scalars. Sizes and constants are built once, at the kernel's entry."""

    def __init__(self, facts: Facts, extents: Mapping[str, int], argument: Callable[[str], ir.Value]) -> None:
        """``extents``: static sizes of symbols; ``argument``: the i32 kernel argument that holds another symbol."""
        self.facts, self.extents, self.argument = facts, extents, argument
        self.entry: ir.InsertionPoint | None = None
        self._sizes: dict[Size, Scalar] = {}
        self._symbols: dict[str, ir.Value] = {}
        self._constants: dict[tuple[int, str], ir.Value] = {}

    # --- constants and sizes ---

    def constant(self, number: int) -> Scalar:
        element = "i32" if -_I32 <= number < _I32 else "i64"
        size = const(number)
        return Scalar(self._constant(number, element), number, number, size, size + 1)

    def _constant(self, number: int, element: str) -> ir.Value:
        key = (number, element)
        if key not in self._constants:
            with self._at_entry():
                self._constants[key] = tt.constant(number, tt.scalar(element))
        return self._constants[key]

    def _at_entry(self) -> ir.InsertionPoint:
        assert self.entry is not None
        return self.entry

    def known(self, size: Size) -> Size:
        """``size`` with the static extents put in."""
        return size.substitute(dict(self.extents)) if size.symbols & self.extents.keys() else size

    def bounds(self, size: Size) -> tuple[int, int]:
        """Numbers that ``size`` lies between; ``facts`` must bound every symbol by ``LARGEST_EXTENT``."""
        low, high = self.facts.bounds(self.known(size))
        return (-UNKNOWN if low is None else low, UNKNOWN if high is None else high)

    def of_size(self, size: Size) -> Scalar:
        """The value of a size expression at run time."""
        size = self.known(size)
        if size.value is not None:
            return self.constant(size.value)
        if size not in self._sizes:
            with self._at_entry():
                self._sizes[size] = self._build(size)
        return self._sizes[size]

    def _build(self, size: Size) -> Scalar:
        total: Scalar | None = None
        for monomial, coefficient in size.terms:
            term = self.constant(coefficient) if coefficient != 1 or not monomial else None
            for atom in monomial:
                factor = self._atom(atom)
                term = factor if term is None else self.arith("muli", factor, term)
            assert term is not None
            total = term if total is None else self.arith("addi", total, term)
        assert total is not None
        return total

    def _atom(self, atom: Atom) -> Scalar:
        size = from_atom(atom)
        low, high = self.bounds(size)
        if atom.kind == "symbol":
            if atom.text not in self._symbols:
                self._symbols[atom.text] = self.argument(atom.text)
            return Scalar(self._symbols[atom.text], low, high, size, size + 1)
        arguments = [self.of_size(argument) for argument in atom.args]
        total = sum(argument.high for argument in arguments)
        narrow = all(argument.narrow for argument in arguments) and fits(0, total)
        values = [argument.value if narrow else self.widened(argument) for argument in arguments]
        signed = any(argument.low < 0 for argument in arguments)
        return self._narrowed(Scalar(_ATOMS[atom.kind](values, signed), low, high, size, size + 1))

    # --- widths ---

    def widened(self, x: Scalar) -> ir.Value:
        """In i64."""
        if not x.narrow:
            return x.value
        return self._constant(x.low, "i64") if x.constant is not None else tt.cast(x.value, "i64")

    def narrowed_value(self, x: Scalar) -> ir.Value:
        """In i32; CleaveError if it need not fit."""
        if not fits(x.low, x.high):
            raise CleaveError("an index that may exceed 32 bits is needed in 32 bits")
        return self._narrowed(x).value

    def _narrowed(self, x: Scalar) -> Scalar:
        if x.narrow or not fits(x.low, x.high):
            return x
        return Scalar(tt.cast(x.value, "i32"), x.low, x.high, x.size, x.limit)

    # --- arithmetic ---

    def arith(self, op: str, a: Scalar, b: Scalar) -> Scalar:
        """``addi subi muli divui remui minui maxui minsi maxsi`` on indices."""
        if (larger := _one_of(op, a, b)) is not None:
            return larger
        low, high = _RANGES[op](a, b)
        size, limit = self._symbolic(op, a, b)
        if size is not None:
            if size.value is not None:
                return self.constant(size.value)
            low, high = max(low, self.bounds(size)[0]), min(high, self.bounds(size)[1])
        elif limit is not None:
            high = min(high, self.bounds(limit)[1] - 1)
        if op == "subi" and a.size is not None and b.limit is not None:
            low = max(low, self.bounds(a.size - b.limit)[0] + 1)
        unsigned_of_negative = op.endswith("ui") and op not in ("minui", "maxui") and min(a.low, b.low) < 0
        narrow = a.narrow and b.narrow and fits(low, high) and not unsigned_of_negative
        x, y = (a.value, b.value) if narrow else (self.widened(a), self.widened(b))
        result = Scalar(tt.same(f"arith.{op}", x, y), low, high, size, limit)
        return result if narrow else self._narrowed(result)

    def _symbolic(self, op: str, a: Scalar, b: Scalar) -> tuple[Size | None, Size | None]:
        size: Size | None = None
        if a.size is not None and b.size is not None and op in _EXACT:
            size = _EXACT[op](a.size, b.size)
            return size, size + 1
        limit = _LIMITS[op](a, b) if op in _LIMITS else None
        return size, self.facts.simplify(self.known(limit)) if limit is not None else None


def fits(low: int, high: int) -> bool:
    """Whether a range lies within i32."""
    return low >= -_I32 and high < _I32


def _one_of(op: str, a: Scalar, b: Scalar) -> Scalar | None:
    """The result of a minimum or maximum where it is known which one it is."""
    if op not in ("minsi", "maxsi"):
        return None
    low, high = (a, b) if a.high <= b.low else (b, a)
    return None if low.high > high.low else low if op == "minsi" else high


def _products(a: Scalar, b: Scalar) -> tuple[int, int]:
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(ends), max(ends)


def _remainder(a: Scalar, b: Scalar) -> tuple[int, int]:
    return (0, min(a.high, b.high - 1)) if a.low >= 0 and b.low >= 0 else (-UNKNOWN, UNKNOWN)


def _quotient(a: Scalar, b: Scalar) -> tuple[int, int]:
    if a.low < 0 or b.low < 0:
        return (-UNKNOWN, UNKNOWN)
    return (0, a.high // max(1, b.low))


def _minimum(a: Scalar, b: Scalar) -> tuple[int, int]:
    """Unsigned too: a negative number is then the larger one."""
    return min(a.low, b.low), (min if min(a.low, b.low) >= 0 else max)(a.high, b.high)


_RANGES: Mapping[str, Callable[[Scalar, Scalar], tuple[int, int]]] = {
    "addi": lambda a, b: (a.low + b.low, a.high + b.high),
    "subi": lambda a, b: (a.low - b.high, a.high - b.low),
    "muli": _products,
    "divui": _quotient,
    "remui": _remainder,
    "minui": _minimum,
    "maxui": lambda a, b: (min(a.low, b.low), max(a.high, b.high)),
    "minsi": lambda a, b: (min(a.low, b.low), min(a.high, b.high)),
    "maxsi": lambda a, b: (max(a.low, b.low), max(a.high, b.high)),
}
_EXACT: Mapping[str, Callable[[Size, Size], Size]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
}


def _times(a: Scalar, b: Scalar) -> Size | None:
    if a.limit is not None and b.constant is not None and b.constant >= 0:
        return (a.limit - 1) * b.constant + 1
    if b.limit is not None and a.constant is not None and a.constant >= 0:
        return (b.limit - 1) * a.constant + 1
    return None


def _smaller(a: Scalar, b: Scalar) -> Scalar:
    """Of the operands of a minimum the one that says more: a size, or what has a limit."""
    return next(
        (each for each in (b, a) if each.size is not None and each.constant is None), b if b.limit is not None else a
    )


# An index is not negative, and a divisor not zero.
_LIMITS: Mapping[str, Callable[[Scalar, Scalar], Size | None]] = {
    "addi": lambda a, b: a.limit + b.limit - 1 if a.limit is not None and b.limit is not None else None,
    "subi": lambda a, b: a.limit - b.low if a.limit is not None and b.low >= 0 else None,
    "muli": _times,
    "divui": lambda a, b: ceildiv(a.limit, b.size) if a.limit is not None and b.size is not None else None,
    "remui": lambda a, b: b.size if b.size is not None else b.limit - 1 if b.limit is not None else None,
    "minsi": lambda a, b: _smaller(a, b).limit,
}


def _floor(values: list[ir.Value], signed: bool) -> ir.Value:
    a, b = values
    if not signed:
        return tt.same("arith.divui", a, b)
    quotient, rest = tt.same("arith.divsi", a, b), tt.same("arith.remsi", a, b)
    below = tt.compare("lt", rest, tt.constant_like(rest, 0))
    return tt.select(below, tt.same("arith.subi", quotient, tt.constant_like(rest, 1)), quotient)


def _ceil(values: list[ir.Value], signed: bool) -> ir.Value:
    a, b = values
    if not signed:
        raised = tt.same("arith.addi", a, tt.same("arith.subi", b, tt.constant_like(b, 1)))
        return tt.same("arith.divui", raised, b)
    quotient, rest = tt.same("arith.divsi", a, b), tt.same("arith.remsi", a, b)
    above = tt.compare("gt", rest, tt.constant_like(rest, 0))
    return tt.select(above, tt.same("arith.addi", quotient, tt.constant_like(rest, 1)), quotient)


def _fold(op: str) -> Callable[[list[ir.Value], bool], ir.Value]:
    return lambda values, signed: functools.reduce(lambda x, y: tt.same(op, x, y), values)


# A divisor is at least 1.
_ATOMS: Mapping[str, Callable[[list[ir.Value], bool], ir.Value]] = {
    "floordiv": _floor,
    "ceildiv": _ceil,
    "min": _fold("arith.minsi"),
    "max": _fold("arith.maxsi"),
}
