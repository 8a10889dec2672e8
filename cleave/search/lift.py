"""A graph's values as normal forms.

Roundings that only choose the tensor cores' input type vanish; all others are opaque functions ``round``. Ops that are
no algebra (``gather``, ``concat``, ``merge``, ``slice``, ops that are not ours) make a *leaf*: its elements are
compared by the op and the normal forms of its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from cleave.dialects import ops, rounding
from cleave.dialects.dims import Dim, Size, const
from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import is_float
from cleave.search.binders import Algebra
from cleave.search.normal_form import HALF
from cleave.search.numbers import nearest
from cleave.search.terms import Item, OutOfFuel, Pair, Piece, Poly


class Unliftable(Exception):
    """The graph cannot be brought into terms; the message says why."""


@dataclass(frozen=True)
class LeafKey:
    """What a leaf is an element of: an input, or an op on operands in normal form. ``dims`` are the declared ones."""

    op: str
    attrs: tuple[tuple[str, str], ...]
    operands: tuple[Poly, ...]
    operand_names: tuple[tuple[str, ...], ...]
    operand_dtypes: tuple[str, ...]
    dims: tuple[Dim, ...]
    dtype: str
    raw_attrs: Mapping[str, object] = field(default_factory=dict, compare=False, hash=False)


class Lifter:
    """Normal forms of the values of graphs that share inputs; one lifter serves the source and all alternatives."""

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra
        self.leaves: list[LeafKey] = []
        self._leaf_ids: dict[LeafKey, int] = {}

    def lift(self, graph: Graph) -> dict[Value, Poly]:
        """The normal form of each value. ``Unliftable`` or ``OutOfFuel`` where there is none."""
        values = graph.topological()
        transparent = rounding.transparent(values, graph.outputs)
        forms: dict[Value, Poly] = {}
        for value in values:
            self._check_sizes(value)
            form = self.form(value, [forms[operand] for operand in value.operands])
            if rounding.rounds(value) and value not in transparent and not self._holds(form, value.dtype):
                form = self.algebra.fn(f"round_{value.dtype}", form)
            forms[value] = form
        return forms

    def _holds(self, form: Poly, dtype: str) -> bool:
        """Whether the type holds the value already, so that rounding to it does nothing."""
        atom = form.single
        if atom is None:
            return False
        if atom.kind == "leaf":
            return self.leaves[atom.data[0]].dtype == dtype
        return atom.kind == "fn" and atom.data[0] == f"round_{dtype}"

    def _check_sizes(self, value: Value) -> None:
        sizes = self.algebra.sizes
        for dim in value.dims:
            if sizes.setdefault(dim.name, dim.size) is not dim.size:
                raise Unliftable(f"dimension '{dim.name}' has two sizes, {sizes[dim.name]} and {dim.size}")
        if value.op in _GIVEN:
            name, size = _GIVEN[value.op](value)
            self._same(size, value.size(name))

    def _same(self, a: Size, b: Size) -> bool:
        """Whether the sizes are one; where only static extents make them so, the normal forms rely on these."""
        symbols, extents = a.symbols | b.symbols, self.algebra.extents
        if a is b or not symbols <= extents.keys() or a.evaluate(extents) != b.evaluate(extents):
            return a is b
        self.algebra.fixed.update((symbol, extents[symbol]) for symbol in sorted(symbols))
        return True

    def form(self, value: Value, args: list[Poly]) -> Poly:
        """The op applied to normal forms, without the rounding of its result."""
        if value.op == "cast":
            return self._cast(value, args[0])
        if value.op in _STRUCTURE:
            return _STRUCTURE[value.op](self, value, args)
        if value.op not in ops.OPS or value.op in ("gather", "concat", "slice", "input"):
            return self._leaf(value, args)
        if not is_float(value.dtype) or any(not is_float(operand.dtype) for operand in value.operands):
            return self._discrete(value, args)
        if any(_infinite(arg) for arg in args) and value.op not in ("max", "min"):
            return self._opaque(value, args)
        rule = _FLOAT.get(value.op)
        return rule(self.algebra, value, args) if rule else self._opaque(value, args)

    def _opaque(self, value: Value, args: list[Poly]) -> Poly:
        """Structural identity, element by element."""
        attrs = ",".join(f"{key}={value.attrs[key]}" for key in sorted(value.attrs) if key != "over")
        name = ":".join(filter(None, (value.op, attrs, value.dtype)))
        if value.op in ("reduce", "contract"):
            body = args[0] if value.op == "reduce" else self.algebra.fn(f"mul:{value.dtype}", *args)
            return self.algebra.reduce_over(name, value.attrs["over"], body)
        return self.algebra.fn(name, *args)

    def _discrete(self, value: Value, args: list[Poly]) -> Poly:
        if value.op == "select" and is_float(value.dtype):
            return self._select(value, args)
        if value.op == "reduce" and value.dtype == "i1":
            name = {"min": "all", "prod": "all", "max": "any"}[value.attrs["kind"]]
            return self.algebra.reduce_over(name, value.attrs["over"], args[0])
        return self._opaque(value, args)

    def _select(self, value: Value, args: list[Poly]) -> Poly:
        """One row per law; each is exact over the reals."""
        condition, a, b = args
        algebra = self.algebra
        if a is b:
            return a
        if not a.terms and self._is_guard(condition, b):
            return b
        if not b.terms and not _infinite(a):
            return algebra.where(condition, True, a)
        if not a.terms and not _infinite(b):
            return algebra.where(condition, False, b)
        return algebra.fn("select", condition, a, b)

    def _is_guard(self, condition: Poly, value: Poly) -> bool:
        """``value == -inf`` where the value is a maximum over one part of a split: no real number is."""
        atom = condition.single
        if atom is None or atom.kind != "fn" or not atom.data[0].startswith("cmp:predicate=eq"):
            return False
        left, right = atom.data[1]
        other = right.single
        return left is value and other is not None and other.data[0] == "-inf" and has_part_maximum(value)

    def _cast(self, value: Value, arg: Poly) -> Poly:
        source = value.operands[0].dtype
        if is_float(source) and is_float(value.dtype):
            return arg
        return self.algebra.fn(f"cast:{source}:{value.dtype}", arg)

    def constant(self, value: Value, args: list[Poly]) -> Poly:
        number = value.attrs["value"]
        if not is_float(value.dtype):
            return self.algebra.fn(f"constant:{int(number)}:{value.dtype}")
        if not math.isfinite(number) or abs(number) > _LARGEST.get(value.dtype, math.inf):
            return self.algebra.of_atom(self.algebra.atom("constant", str(float(number))))
        return self.algebra.number(nearest(number, value.dtype))

    def index(self, value: Value, args: list[Poly]) -> Poly:
        # Every integer type that can hold a position holds the same number, but arithmetic on it may wrap.
        position = self.algebra.of_atom(self.algebra.atom("index", value.dims[0].name))
        return self.algebra.fn(f"position:{value.dtype}", position)

    def rename(self, value: Value, args: list[Poly]) -> Poly:
        new = value.attrs["to"].partition("=")[0].strip()
        return self.algebra.substitute(args[0], {value.attrs["from"]: new})

    def split(self, value: Value, args: list[Poly]) -> Poly:
        name = value.attrs["dim"]
        outer, inner = (Dim.parse(text) for text in value.attrs["into"])
        pair = self.pair(outer, inner, value.operands[0].size(name))
        return self.algebra.substitute(args[0], {name: pair})

    def merge(self, value: Value, args: list[Poly]) -> Poly:
        """Two dims in one, as positions within it; any other merge is an opaque view."""
        names, into = value.attrs["dims"], Dim.parse(value.attrs["into"]).name
        if len(names) != 2:
            return self._leaf(value, args)
        outer, inner = (value.operands[0].size(name) for name in names)
        if not self._same(outer * inner, value.size(into)):
            return self._leaf(value, args)
        pieces = {name: Piece(into, first, outer, inner) for name, first in zip(names, (True, False), strict=True)}
        return self.algebra.substitute(args[0], pieces)

    def pair(self, outer: Dim, inner: Dim, whole: Size) -> Pair:
        """The item for a dimension that is cut in two, its sizes made known."""
        for dim in (outer, inner):
            if self.algebra.sizes.setdefault(dim.name, dim.size) is not dim.size:
                raise Unliftable(f"dimension '{dim.name}' has two sizes, {self.algebra.sizes[dim.name]} and {dim.size}")
        pair = Pair(outer.name, inner.name, whole, outer.size, inner.size)
        if outer.size * inner.size is not whole:
            self.algebra.part_names.add(inner.name)
            self.algebra.part_pairs.setdefault(inner.name, pair)
        return pair

    def _leaf(self, value: Value, args: list[Poly]) -> Poly:
        attrs = tuple((key, str(value.attrs[key])) for key in sorted(value.attrs))
        names = tuple(operand.names for operand in value.operands)
        key = LeafKey(
            value.op,
            attrs,
            tuple(args),
            names,
            tuple(o.dtype for o in value.operands),
            value.dims,
            value.dtype,
            dict(value.attrs),
        )
        number = self._leaf_ids.get(key)
        if number is None:
            number = self._leaf_ids[key] = len(self.leaves)
            self.leaves.append(key)
        items: tuple[Item, ...] = value.names
        return self.algebra.of_atom(self.algebra.atom("leaf", number, items))


_LARGEST = {"f16": 65504.0, "bf16": 3.3895e38, "f32": 3.4028234e38}


def _infinite(poly: Poly) -> bool:
    """Whether an infinite constant is among the factors."""
    return any(atom.kind == "constant" for mono, _ in poly for atom, _ in mono)


def has_part_maximum(poly: Poly) -> bool:
    """Whether a maximum over the inner half of a split is in it."""
    for mono, _ in poly:
        for atom, _ in mono:
            if atom.kind == "max" and any("'" in name for name, _ in atom.data[0]):
                return True
            if atom.kind == "fn" and any(has_part_maximum(arg) for arg in atom.data[1]):
                return True
    return False


def _contract(algebra: Algebra, value: Value, args: list[Poly]) -> Poly:
    return algebra.sum_over(value.attrs["over"], algebra.mul(*args))


def _reduce(algebra: Algebra, value: Value, args: list[Poly]) -> Poly:
    kind, over = value.attrs["kind"], value.attrs["over"]
    if kind == "sum":
        return algebra.sum_over(over, args[0])
    if kind == "max":
        return algebra.max_over(over, args[0])
    if kind == "min":
        return algebra.min_over(over, args[0])
    return algebra.reduce_over(kind, over, args[0])


def _pow(algebra: Algebra, value: Value, args: list[Poly]) -> Poly:
    exponent = args[1].constant
    if exponent is None or Fraction(exponent).denominator > 2 or abs(exponent) > 8:
        return algebra.fn("pow", *args)
    return algebra.power(args[0], exponent)


def _sigmoid(algebra: Algebra, value: Value, args: list[Poly]) -> Poly:
    return algebra.power(algebra.add(algebra.number(1), algebra.exp(algebra.neg(args[0]))), -1)


def _opaque(name: str, algebra: Algebra, value: Value, args: list[Poly]) -> Poly:
    return algebra.fn(name, args[0])


def _exp2(algebra: Algebra, value: Value, args: list[Poly]) -> Poly:
    return algebra.exp(algebra.mul(args[0], algebra.log(algebra.number(2))))


_FLOAT: dict[str, Callable[[Algebra, Value, list[Poly]], Poly]] = {
    "neg": lambda algebra, _, args: algebra.neg(args[0]),
    "exp": lambda algebra, _, args: algebra.exp(args[0]),
    "exp2": _exp2,
    "log": lambda algebra, _, args: algebra.log(args[0]),
    "sqrt": lambda algebra, _, args: algebra.power(args[0], HALF),
    "rsqrt": lambda algebra, _, args: algebra.power(args[0], -HALF),
    **{name: partial(_opaque, name) for name in ("tanh", "erf", "sin", "cos")},
    "sigmoid": _sigmoid,
    "abs": lambda algebra, _, args: algebra.absolute(args[0]),
    "add": lambda algebra, _, args: algebra.add(*args),
    "sub": lambda algebra, _, args: algebra.sub(*args),
    "mul": lambda algebra, _, args: algebra.mul(*args),
    "div": lambda algebra, _, args: algebra.div(*args),
    "max": lambda algebra, _, args: algebra.maximum(*args),
    "min": lambda algebra, _, args: algebra.minimum(*args),
    "pow": _pow,
    "contract": _contract,
    "reduce": _reduce,
}


def _renamed(value: Value) -> tuple[str, Size]:
    return Dim.parse(value.attrs["to"]).name, value.operands[0].size(value.attrs["from"])


def _merged(value: Value) -> tuple[str, Size]:
    sizes = (value.operands[0].size(name) for name in value.attrs["dims"])
    return Dim.parse(value.attrs["into"]).name, math.prod(sizes, start=const(1))


def _joined(value: Value) -> tuple[str, Size]:
    one, two = (operand.size(name) for operand, name in zip(value.operands, value.attrs["dims"], strict=True))
    return Dim.parse(value.attrs["into"]).name, one + two


#: Of ops that make a dim of others: its name, and the size that they give it.
_GIVEN: dict[str, Callable[[Value], tuple[str, Size]]] = {"rename": _renamed, "merge": _merged, "concat": _joined}

_STRUCTURE: dict[str, Callable[[Lifter, Value, list[Poly]], Poly]] = {
    "constant": Lifter.constant,
    "index": Lifter.index,
    "rename": Lifter.rename,
    "split": Lifter.split,
    "merge": Lifter.merge,
}

__all__ = ["LeafKey", "Lifter", "OutOfFuel", "Unliftable", "has_part_maximum"]
