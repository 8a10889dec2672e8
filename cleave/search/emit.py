"""A plan as a graph of ordinary ops. Everything between the contractions is in f32 (f64 where the source has f64)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cleave.dialects import ops
from cleave.dialects.dims import Dim, Facts
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.dialects.tensor_type import TensorType, is_float
from cleave.errors import CleaveError
from cleave.search.extract import Plan
from cleave.search.feeds import Feeds, wider
from cleave.search.lift import LeafKey, Lifter
from cleave.search.numbers import nearest
from cleave.search.space import Cut, Node, Space
from cleave.search.terms import Atom, Number, Pair, Poly, counts_part
from cleave.search.views import Views, extent

_REDUCTIONS = {"all": ("min", "i1"), "any": ("max", "i1"), "sum": ("sum", ""), "max": ("max", ""), "prod": ("prod", "")}


@dataclass(frozen=True)
class Emission:
    """What all programs of one space are made from; ``cuts``: the dims in parts, that of the space the last."""

    space: Space
    feeds: Feeds
    facts: Facts
    cuts: tuple[Cut, ...] = ()


class Emitter:
    """Makes the values of one plan; ``source`` gives name, inputs and facts."""

    def __init__(self, source: Graph, lifter: Lifter, emission: Emission, precise: bool = False) -> None:
        """``precise``: f32 where an operand of a contraction would be rounded to tf32."""
        self.precise = precise
        self.source, self.lifter, self.space, self.feeds = source, lifter, emission.space, emission.feeds
        self.cuts = emission.cuts
        self.sizes = lifter.algebra.sizes
        self.builder = GraphBuilder(source.name, emission.facts, source.extents)
        floats = {value.dtype for value in source.topological()}
        self.compute = "f64" if "f64" in floats else "f32"
        self.views = Views(self.builder, self.sizes)
        self.values: dict[Poly, Value] = {}
        self._casts: dict[tuple[Value, str], Value] = {}
        self._products: dict[tuple[Value, Value], Value] = {}
        self.rank = self._ranks()
        self.plan: Plan | None = None

    def _ranks(self) -> dict[str, int]:
        """The order of dims: as the source first names them."""
        # Parts of a split lie outermost: their results are written and read as whole blocks.
        rank = {cut.pair.outer: -1 - number for number, cut in enumerate(self.cuts)}
        for value in self.source.topological():
            for dim in value.dims:
                rank.setdefault(dim.name, 4 * len(rank))
                for cut in (cut for cut in self.cuts if cut.size is dim.size):
                    rank.setdefault(cut.pair.inner, rank[dim.name] + 1)
        return rank

    def ordered(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: (self.rank.get(name, 1 << 20), name))

    def mul(self, a: Value, b: Value) -> Value:
        """One product for either order of the operands; the one of more dims stands first."""
        if (b, a) in self._products:
            return self._products[b, a]
        if (a, b) not in self._products:
            swap = len(b.names) > len(a.names)
            self._products[a, b] = self.builder.mul(b, a) if swap else self.builder.mul(a, b)
        return self._products[a, b]

    def graph(self, plan: Plan, goals: list[Poly]) -> Graph:
        """The program; its outputs have the source's types."""
        self.plan = plan
        outputs = tuple(self._output(goal, value.type) for goal, value in zip(goals, self.source.outputs, strict=True))
        made = Graph(self.source.name, self.source.inputs, outputs, self.builder.facts, dict(self.source.extents))
        return made.deduplicated()

    def _output(self, goal: Poly, type_: TensorType) -> Value:
        value = self.value(goal)
        missing = tuple(dim for dim in type_.dims if dim.name not in value.names)
        if missing:
            value = self.builder.add(self.wide(value), self.builder.constant(0.0, self.compute, missing))
        value = self.cast(value, type_.dtype)
        if value.names == type_.names:
            return value
        if set(value.names) != set(type_.names):
            raise CleaveError(f"an output has dims {list(value.names)} in place of {list(type_.names)}")
        if value.op != "input" and ops.OPS[value.op].free_order:
            return Value(value.op, value.operands, type_, value.attrs, value.location)
        return Value("cast", (value,), type_)

    def value(self, poly: Poly) -> Value:
        """The value of a class, made once."""
        found = self.values.get(poly)
        if found is None:
            assert self.plan is not None
            node = self.plan.node(poly)
            found = self.values[poly] = _RULES[node.kind](self, node)
        return found

    def cast(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        key = (value, dtype)
        if key not in self._casts:
            self._casts[key] = self.builder.cast(value, dtype=dtype)
        return self._casts[key]

    def wide(self, value: Value) -> Value:
        """In the type that pointwise ops and reductions compute in."""
        return self.cast(value, self.compute) if is_float(value.dtype) else value

    def wide_of(self, poly: Poly) -> Value:
        return self.wide(self.value(poly))

    def number(self, value: Number | float) -> Value:
        """A scalar that is this number exactly: a constant, a sum of two, or a quotient. CleaveError if it is none."""
        if isinstance(value, float):
            return self.builder.constant(value, self.compute)
        high = nearest(value, self.compute)
        if high == value:
            return self.builder.constant(float(high), self.compute)
        value = Fraction(value)
        low = nearest(value - high, self.compute)
        if high + low == value:
            return self.builder.add(self.number(high), self.number(low))
        if any(nearest(part, self.compute) != part for part in (value.numerator, value.denominator)):
            raise CleaveError(f"the constant {float(value)} is no sum or quotient of two {self.compute} numbers")
        return self.builder.div(self.number(value.numerator), self.number(value.denominator))

    # --- leaves ----------------------------------------------------------------------------------------------------

    def leaf(self, node: Node) -> Value:
        atom: Atom = node.data[0]
        if atom.kind == "constant":
            return self.number(float(atom.data[0]))
        if atom.kind == "size":
            return self._size(atom)
        if atom.kind == "one":
            return self._ones(atom.data[0])
        key = self.lifter.leaves[atom.data[0]]
        return self.views.of_items(self._leaf_value(key, node.children), key.dims, atom.data[1])

    def _ones(self, pair: Pair) -> Value:
        dim = Dim(f"{pair.outer}_{pair.inner}", pair.whole)
        return self.views.of_items(self.builder.constant(1.0, self.compute, (dim,)), (dim,), (pair,))

    def _size(self, atom: Atom) -> Value:
        return extent(self.builder, atom.data[0], self.compute)

    def _leaf_value(self, key: LeafKey, operands: tuple[Poly, ...]) -> Value:
        if key.op == "input":
            return self.source.inputs[int(str(key.raw_attrs["index"]))]
        values = tuple(
            self.views.of_dims(self.cast(self.value(poly), dtype), names)
            for poly, dtype, names in zip(operands, key.operand_dtypes, key.operand_names, strict=True)
        )
        return Value(key.op, values, TensorType(key.dims, key.dtype), key.raw_attrs)

    def position(self, node: Node) -> Value:
        """0, 1, 2, … along a dimension or a cut one."""
        dtype, item = node.data
        if isinstance(item, str):
            dim = Dim(item, self.sizes[item])
        elif isinstance(item, Pair):
            dim = Dim(f"{item.outer}_{item.inner}", item.whole)
        else:
            dim = Dim(f"{item.name}_piece", item.outer_size if item.is_outer else item.inner_size)
        value = self.builder.index(dim=str(dim), dtype=dtype)
        return self.views.of_items(value, (dim,), (item,))

    def merge(self, node: Node) -> Value:
        dims, into = node.data
        value = self.views.repeated(self.value(node.children[0]), dims)
        return self.builder.merge(value, dims=list(dims), into=str(Dim(into, self.sizes[into])))

    # --- pointwise -------------------------------------------------------------------------------------------------

    def product(self, node: Node) -> Value:
        """Few multiplications of large tensors: operands of few dims meet first, divisors are multiplied together."""
        above: list[Value] = []
        below: list[Value] = []
        for poly, e in zip(node.children, node.data, strict=True):
            value = self.wide_of(poly)
            if e < 0 and counts_part(poly):
                value = self.builder.max(value, self.number(1))  # a part may be empty
            value, e = self._root(value, e)
            (above if e > 0 else below).extend([value] * int(abs(e)))
        top, bottom = self._multiplied(above), self._multiplied(below)
        if bottom is None:
            return top if top is not None else self.number(1.0)
        return self.builder.div(top if top is not None else self.number(1.0), bottom)

    def _root(self, value: Value, e: Number) -> tuple[Value, Number]:
        if isinstance(e, int):
            return (value, e) if abs(e) <= 4 else (self.builder.pow(value, self.number(float(e))), 1)
        if e == Fraction(-1, 2):
            return self.builder.rsqrt(value), 1
        if Fraction(e).denominator == 2 and abs(e) <= 4:
            return self.builder.sqrt(value), e * 2
        return self.builder.pow(value, self.number(float(e))), 1

    def _multiplied(self, values: list[Value]) -> Value | None:
        values = sorted(values, key=lambda value: len(value.names))
        while len(values) > 1:
            pairs = [(self._grown(a, b), i, j) for i, a in enumerate(values) for j, b in enumerate(values) if i < j]
            _, i, j = min(pairs)
            joined = self.mul(values[i], values[j])
            values = [value for k, value in enumerate(values) if k not in (i, j)] + [joined]
        return values[0] if values else None

    def _grown(self, a: Value, b: Value) -> tuple[int, int]:
        """How many dims the product has beyond its larger operand, and in all."""
        union = len({*a.names, *b.names})
        return union - max(len(a.names), len(b.names)), union

    def add(self, node: Node) -> Value:
        total: Value | None = None
        for c, poly in sorted(zip(node.data, node.children, strict=True), key=lambda pair: pair[0] < 0):
            value = self._times(self.wide_of(poly), abs(c))
            if total is None:
                total = value if c > 0 else self.builder.neg(value)
            else:
                total = self.builder.add(total, value) if c > 0 else self.builder.sub(total, value)
        return total if total is not None else self.number(0.0)

    def _times(self, value: Value, c: Number) -> Value:
        """A multiple, by constants that are exact."""
        if c == 1:
            return value
        c = Fraction(c)
        if c.numerator == 1 and nearest(c, self.compute) != c and nearest(c.denominator, self.compute) == c.denominator:
            return self.builder.div(value, self.number(c.denominator))
        return self.mul(value, self.number(c))

    def guarded_exp(self, node: Node) -> Value:
        """exp(core - maximum), 0 where the part has no element above -inf."""
        core, maximum = (self.wide_of(child) for child in node.children)
        empty = self.builder.cmp(maximum, self.number(float("-inf")), predicate="eq")
        guarded = self.builder.select(empty, self.number(0.0), maximum)
        return self.builder.exp(self.builder.sub(core, guarded))

    def select(self, node: Node) -> Value:
        condition, a, b = node.children
        return self.builder.select(self.value(condition), self.wide_of(a), self.wide_of(b))

    def fn(self, node: Node) -> Value:
        """A function by the name that `lift` gave it: ``op``, ``op:dtype`` or ``op:attr=value:dtype``."""
        op, *rest = node.data[0].split(":")
        b = self.builder
        if op == "constant":
            return b.constant(int(rest[0]), rest[1])
        if op == "cast":
            return b.cast(self.cast(self.value(node.children[0]), rest[0]), dtype=rest[1])
        args = [self.wide_of(child) for child in node.children]
        if op == "reciprocal":
            return b.div(self.number(1.0), args[0])
        if op == "max" and not rest:
            result = args[0]
            for arg in args[1:]:
                result = b.max(result, arg)
            return result
        attrs = dict([rest[0].split("=")]) if len(rest) == 2 else {}
        return b.op(op, *args, **attrs)

    # --- reductions ------------------------------------------------------------------------------------------------

    def reduce(self, node: Node) -> Value:
        kind, over = node.data
        value = self.wide_of(node.children[0])
        if kind.startswith(("reduce:kind=", "contract:")):
            name = kind.split("=")[1].split(":")[0] if kind.startswith("reduce") else "sum"
            return self.builder.reduce(value, kind=name, over=list(over))
        return self.builder.reduce(value, kind=_REDUCTIONS[kind][0], over=list(over))

    def _product_rounded_elsewhere(self, children: tuple[Poly, ...], over: list[str]) -> Poly | None:
        """The operands' product, if another contraction over the same dims takes it as one rounded operand.

        The sum of the product then takes it rounded too: sums that correct each other, as where a mean is subtracted
        after a contraction, must see the same numbers.
        """
        assert self.plan is not None
        product = self.lifter.algebra.mul(*children)
        uses = [
            n
            for n, _, _ in self.plan.picks.values()
            if n.kind == "contract" and list(n.data) == over and product in n.children
        ]
        return product if uses and self._operand_dtype(product, over) == "tf32" else None

    def _sum_as_contraction(self, poly: Poly, over: list[str]) -> Value:
        value = self.cast(self.value(poly), "tf32")
        ones = self.builder.constant(1.0, "f16", tuple(dim for dim in value.dims if dim.name in over))
        order = self.ordered(set(value.names) - set(over))
        return self.builder.contract(ones, value, over=over, dtype=self.compute, order=order)

    def contract(self, node: Node) -> Value:
        return self._contract(node.children, list(node.data))

    def _contract(self, children: tuple[Poly, ...], over: list[str]) -> Value:
        product = self._product_rounded_elsewhere(children, over)
        if product is not None:
            return self._sum_as_contraction(product, over)
        a, b = (self.value(child) for child in children)
        dtype = wider(*(self._operand_dtype(child, over) for child in children))
        if a.dtype == b.dtype and a.dtype in ("f16", "bf16"):
            dtype = a.dtype  # exact, whatever the source did
        a, b = self.cast(a, dtype), self.cast(b, dtype)
        if self._first_own(b, a) < self._first_own(a, b):
            a, b = b, a
        order = self.ordered({*a.names, *b.names} - set(over))
        return self.builder.contract(a, b, over=over, dtype=self.compute, order=order)

    def _first_own(self, value: Value, other: Value) -> int:
        """Where the first dim that only this operand has stands: rows come before columns."""
        own = [self.rank.get(name, 1 << 20) for name in value.names if name not in other.names]
        return min((rank for rank in own if rank >= 0), default=1 << 21)

    def _operand_dtype(self, poly: Poly, over: list[str]) -> str:
        narrow = self.feeds.narrow(poly)
        if narrow is None or any(over == [cut.pair.outer] for cut in self.cuts):
            return self.compute
        value = self.value(poly)
        assert self.plan is not None
        safe = (
            value.dtype == narrow
            or poly in self.feeds.exact
            or narrow == "bf16"
            or self.plan.node(poly).kind == "guarded_exp"
            or self._below_one(poly)
        )
        return narrow if safe else self.compute if self.precise else "tf32"

    def _below_one(self, poly: Poly) -> bool:
        """An exponential of something minus its maximum."""
        assert self.plan is not None
        node = self.plan.node(poly)
        is_exp = node.kind == "exp" or (node.kind == "op" and node.data[0] == "exp")
        return is_exp and any(
            family.core is self.lifter.algebra.add(node.children[0], family.stabiliser)
            for family in self.space.stability.families
        )

    # --- the source's ops --------------------------------------------------------------------------------------------

    def op(self, node: Node) -> Value:
        name, attrs = node.data[0], dict(node.data[1])
        if name == "contract":
            return self._contract(node.children, list(attrs["over"]))
        return self.builder.op(name, *(self.wide_of(child) for child in node.children), **attrs)

    def rename(self, node: Node) -> Value:
        old, new = node.data
        to = str(Dim(new, self.sizes[new]))
        return self.builder.rename(self.value(node.children[0]), **{"from": old, "to": to})

    def round(self, node: Node) -> Value:
        return self.cast(self.value(node.children[0]), node.data[0])

    def exp(self, node: Node) -> Value:
        return self.builder.exp(self.wide_of(node.children[0]))

    def const(self, node: Node) -> Value:
        return self.number(node.data[0])


_RULES: Mapping[str, Callable[[Emitter, Node], Value]] = {
    "const": Emitter.const,
    "leaf": Emitter.leaf,
    "position": Emitter.position,
    "op": Emitter.op,
    "fn": Emitter.fn,
    "round": Emitter.round,
    "product": Emitter.product,
    "add": Emitter.add,
    "exp": Emitter.exp,
    "guarded_exp": Emitter.guarded_exp,
    "select": Emitter.select,
    "contract": Emitter.contract,
    "reduce": Emitter.reduce,
    "rename": Emitter.rename,
    "merge": Emitter.merge,
}
