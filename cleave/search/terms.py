"""Hash-consed terms: atoms, monomials and polynomials over the elements of tensors.

An element of a tensor is named by one *item* per dimension: a dimension's name, or a `Pair` of names where a dimension
was cut in parts. Names with ``@`` are bound by a sum or maximum; all others are free: the dims of the value. Structure
decides identity: equal terms are one object. Ids count creation, so their order is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from cleave.dialects.dims import Size

Number = int | Fraction


class Pair(NamedTuple):
    """The position ``outer * inner_size + inner`` along a dimension of size ``whole``."""

    outer: str
    inner: str
    whole: Size
    outer_size: Size
    inner_size: Size


class Piece(NamedTuple):
    """One of the two positions that a position of the merged dimension ``name`` stands for: ``name // inner_size``, or
    the remainder."""

    name: str
    is_outer: bool
    outer_size: Size
    inner_size: Size


Item = str | Pair | Piece


class Atom:
    """A factor that algebra does not look into; ``data`` depends on ``kind``.

    ========  =====================================================================
    leaf      (key, items): an element of an input or of an op that is not algebra
    index     (item,): the position along a dimension
    one       (pair,): 1, at each position of a dimension that was cut in parts, so that it can be counted
    fn        (name, arguments): a function of polynomials
    sum       (bound, monomial): bound is ((name, size), …)
    max, red  (bound, polynomial), (kind, bound, polynomial)
    poly      (polynomial,): a base that has a negative or fractional exponent
    exp       (monomial,): e to the monomial; its exponent is the coefficient
    prime     (p,), size (Size,), constant (name,)
    chi       (condition, polarity): 1 where the condition has the polarity, else 0
    ========  =====================================================================
    """

    __slots__ = ("data", "free", "id", "kind", "level", "pairs", "pieces", "plain", "positive")

    def __init__(self, id_: int, kind: str, data: tuple[Any, ...]) -> None:
        self.id, self.kind, self.data = id_, kind, data
        self.plain: frozenset[str] = frozenset()  # free names that occur by themselves
        self.pairs: frozenset[Pair] = frozenset()
        self.pieces: frozenset[Piece] = frozenset()  # free names that occur as merged dims, which are plain too
        self.free: frozenset[str] = frozenset()
        self.level = 0  # nesting of binders
        self.positive = False

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"{self.kind}{self.id}"


Mono = tuple[tuple[Atom, Number], ...]  # sorted by atom id; no zero exponents
ONE: Mono = ()


def mono_key(mono: Mono) -> tuple[tuple[int, Number], ...]:
    return tuple((atom.id, exponent) for atom, exponent in mono)


def mono_free(mono: Mono) -> frozenset[str]:
    return frozenset().union(*(atom.free for atom, _ in mono))


def atom_nonnegative(atom: Atom, exponent: Number) -> bool:
    """Whether the atom to that power is known to be >= 0."""
    if atom.positive or atom.kind == "chi" or (isinstance(exponent, int) and exponent % 2 == 0):
        return True
    if atom.kind == "poly" and not isinstance(exponent, int):
        return True
    if atom.kind == "sum":
        return nonnegative(atom.data[1])
    return atom.kind == "fn" and atom.data[0] == "abs"


def nonnegative(mono: Mono) -> bool:
    """Whether the product is known to be >= 0."""
    return all(atom_nonnegative(atom, exponent) for atom, exponent in mono)


def positive(mono: Mono) -> bool:
    """Whether the product is known to be > 0."""
    return all(atom.positive for atom, _ in mono)


class Poly:
    """A sum of coefficient * monomial. Interned: equality is identity."""

    __slots__ = ("free", "id", "level", "terms")

    def __init__(self, id_: int, terms: tuple[tuple[Mono, Number], ...]) -> None:
        self.id, self.terms = id_, terms
        self.free: frozenset[str] = frozenset().union(*(atom.free for mono, _ in terms for atom, _ in mono))
        self.level = max((atom.level for mono, _ in terms for atom, _ in mono), default=0)

    def __hash__(self) -> int:
        return self.id

    def __iter__(self) -> Iterator[tuple[Mono, Number]]:
        return iter(self.terms)

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def constant(self) -> Number | None:
        """The number, if it is one."""
        if not self.terms:
            return 0
        mono, coefficient = self.terms[0]
        return coefficient if len(self.terms) == 1 and not mono else None

    @property
    def single(self) -> Atom | None:
        """The atom, if it is exactly one."""
        if len(self.terms) != 1 or self.terms[0][1] != 1 or len(self.terms[0][0]) != 1:
            return None
        atom, exponent = self.terms[0][0][0]
        return atom if exponent == 1 else None

    def __repr__(self) -> str:
        return show(self)


class OutOfFuel(Exception):
    """A normal form became too large: the value is given up, which is never wrong."""


def simple(number: Number) -> Number:
    """Integers as int: they hash and compare fast."""
    return number.numerator if isinstance(number, Fraction) and number.denominator == 1 else number


class Store:
    """The table of interned terms of one search."""

    def __init__(self) -> None:
        self._atoms: dict[tuple[Any, ...], Atom] = {}
        self._polys: dict[tuple[tuple[Mono, Number], ...], Poly] = {}
        self.sizes: dict[str, Size] = {}  # of free and bound names
        self.keys: dict[Any, int] = {}

    def atom(self, kind: str, *data: Any) -> Atom:
        key = (kind, *data)
        found = self._atoms.get(key)
        if found is None:
            found = self._atoms[key] = Atom(len(self._atoms), kind, data)
            self._describe(found)
        return found

    def poly(self, terms: dict[Mono, Number]) -> Poly:
        items = [(mono, simple(c)) for mono, c in terms.items() if c]
        if len(items) > 1:
            items.sort(key=lambda item: mono_key(item[0]))
        if len(items) > MAX_TERMS:
            raise OutOfFuel(f"more than {MAX_TERMS} terms")
        key = tuple(items)
        found = self._polys.get(key)
        if found is None:
            found = self._polys[key] = Poly(len(self._polys), key)
        return found

    def number(self, value: Number) -> Poly:
        return self.poly({ONE: value})

    def of_atom(self, atom: Atom) -> Poly:
        return self.poly({((atom, 1),): 1})

    def of_mono(self, mono: Mono, coefficient: Number = 1) -> Poly:
        return self.poly({mono: coefficient})

    def _describe(self, atom: Atom) -> None:
        """Free names, nesting and sign, from the parts."""
        bound: frozenset[str] = frozenset()
        kind, data = atom.kind, atom.data
        if kind in ("leaf", "index", "one"):
            self._describe_items(atom, data[-1] if kind == "leaf" else data)
        elif kind in ("sum", "max", "red"):
            bound = frozenset(name for name, _ in data[-2])
            atom.level = 1
        atom.positive = _is_positive(atom)
        for part in parts(atom):
            names = [(a.plain, a.pairs) for mono, _ in part for a, _ in mono]
            atom.plain |= frozenset().union(*(plain for plain, _ in names)) - bound
            pairs = frozenset().union(*(pairs for _, pairs in names))
            # A pair that is half bound cannot be undone: what is left of it is an ordinary name.
            atom.pieces |= frozenset(p for mono, _ in part for a, _ in mono for p in a.pieces if p.name not in bound)
            half = [p for p in pairs if {p.outer, p.inner} & bound]
            atom.plain |= frozenset(n for p in half for n in (p.outer, p.inner)) - bound
            atom.pairs |= pairs - frozenset(half)
            atom.level = max(
                atom.level, (1 if bound else 0) + max((a.level for mono, _ in part for a, _ in mono), default=0)
            )
        atom.free = atom.plain | frozenset(n for p in atom.pairs for n in (p.outer, p.inner))

    def _describe_items(self, atom: Atom, items: Iterable[Item]) -> None:
        atom.pieces = frozenset(item for item in items if isinstance(item, Piece))
        atom.plain = frozenset(item for item in items if isinstance(item, str)) | {p.name for p in atom.pieces}
        atom.pairs = frozenset(item for item in items if isinstance(item, Pair))


MAX_TERMS = 200


def parts(atom: Atom) -> list[Iterable[tuple[Mono, Number]]]:
    """The polynomials (or single monomials) inside an atom."""
    kind, data = atom.kind, atom.data
    if kind == "fn":
        return list(data[1])
    if kind in ("max", "red", "poly"):
        return [data[-1]]
    if kind in ("sum", "exp"):
        return [[(data[-1], 1)]]
    if kind == "chi":
        return [data[0]]
    return []


def _is_positive(atom: Atom) -> bool:
    if atom.kind in ("exp", "prime", "size", "constant", "one"):
        return True
    if atom.kind == "sum":
        return positive(atom.data[1])
    if atom.kind == "poly":
        return poly_positive(atom.data[0])
    if atom.kind == "fn" and atom.data[0] == "log":
        number = atom.data[1][0].constant
        return number is not None and number > 1
    return False


def poly_positive(poly: Poly) -> bool:
    """Whether the sum is known to be > 0: no term below zero and one above."""
    return all(c > 0 and nonnegative(m) for m, c in poly) and any(positive(m) for m, _ in poly)


def counts_part(poly: Poly) -> bool:
    """Whether it is the number of elements of one part of a dimension."""
    atom = poly.single
    return atom is not None and atom.kind == "sum" and len(atom.data[1]) == 1 and atom.data[1][0][0].kind == "one"


def show_item(item: Item) -> str:
    if isinstance(item, Piece):
        return f"{item.name}{'/' if item.is_outer else '%'}{item.inner_size}"
    return item if isinstance(item, str) else f"({item.outer},{item.inner})"


def show_atom(atom: Atom) -> str:
    kind, data = atom.kind, atom.data
    if kind == "leaf":
        return f"%{data[0]}[{','.join(map(show_item, data[1]))}]"
    if kind == "index":
        return f"index({show_item(data[0])})"
    if kind == "one":
        return f"1[{show_item(data[0])}]"
    if kind == "fn":
        return f"{data[0]}({', '.join(map(show, data[1]))})"
    if kind == "sum":
        return f"Σ{{{','.join(n for n, _ in data[0])}}}({show_mono(data[1])})"
    if kind == "max":
        return f"max{{{','.join(n for n, _ in data[0])}}}({_show(data[1])})"
    if kind == "red":
        return f"{data[0]}{{{','.join(n for n, _ in data[1])}}}({_show(data[2])})"
    if kind == "poly":
        return f"({_show(data[0])})"
    if kind == "exp":
        return f"e^{{{show_mono(data[0])}}}"
    if kind == "chi":
        return f"[{'' if data[1] else 'not '}{_show(data[0])}]"
    return str(data[0])


def show_mono(mono: Mono) -> str:
    return "·".join(show_atom(a) + (f"^{e}" if e != 1 else "") for a, e in mono) or "1"


def show(poly: Poly) -> str:
    """Readable text, for reports and certificates."""
    try:
        return _show(poly)
    except RecursionError:
        return "… (nested too deep to print)"


def _show(poly: Poly) -> str:
    if not poly.terms:
        return "0"
    return " + ".join(show_mono(m) if c == 1 else str(c) if not m else f"{c}·{show_mono(m)}" for m, c in poly.terms)
