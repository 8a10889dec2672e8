"""The space of programs: classes of equal values, and the nodes that compute them.

A class is a normal form. Its nodes come from two sources: the source program's own ops, and *goal-directed*
enumeration, which reads off the normal form every way to take it apart: common factors, orders of contraction,
factors of a ratio, partial sums of a split. Each part is again a normal form that completes to its goal with the other
parts, so nothing is made that no program needs and the space is finite without a bound on the number of ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from cleave.dialects.dims import Size
from cleave.search.binders import Algebra
from cleave.search.limits import Limits
from cleave.search.masks import Masks
from cleave.search.monomials import content_of
from cleave.search.stability import Stability
from cleave.search.terms import Item, Mono, Number, OutOfFuel, Pair, Poly, simple


@dataclass(frozen=True)
class Node:
    """One way to compute a class from others.

    ``kind``: const (number), leaf (atom), op (name, attrs), fn (function name), round (dtype), product (exponents),
    add (coefficients), exp, guarded_exp (core, maximum of a part), where (polarity), select, contract (over), reduce
    (kind, over), rename (from, to), split (dim, into).
    """

    kind: str
    data: tuple[Any, ...]
    children: tuple[Poly, ...]
    seed: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Cut:
    """A dimension that this space computes in parts of any length that is a multiple of ``unit``, a symbol."""

    size: Size
    pair: Pair
    unit: str


class Space:
    """Classes and nodes reachable from goals. ``names``: the dims' names for each size, in the source's order."""

    def __init__(
        self, algebra: Algebra, stability: Stability, names: Mapping[Size, list[str]], cut: Cut | None
    ) -> None:
        self.algebra, self.stability, self.names, self.cut = algebra, stability, names, cut
        self.nodes: dict[Poly, dict[Node, None]] = {}
        self.seeds: dict[Poly, list[Node]] = {}
        self.rejected: dict[str, int] = {}
        self.leaf_operands: Callable[[int], tuple[Poly, ...]] = lambda _: ()
        self.settled: dict[Poly, dict[Node, None]] = {}
        self.guards: dict[Poly, tuple[Poly, Poly]] = {}
        self.masks = Masks()
        self.known_products: list[Poly] = []
        self._known_sums: list[Poly] = []
        self._scales: dict[Poly, Poly] = {}
        self._transported: set[tuple[str, Pair]] = set()

    def seed(self, poly: Poly, node: Node) -> None:
        """A node of the source program; it is in the space only if a goal needs its class."""
        nodes = self.seeds.setdefault(poly, [])
        if node not in nodes:
            nodes.append(node)
            self._remember(poly)

    def settle(self, poly: Poly, node: Node) -> None:
        """A node for a class that is taken apart in this way only, for the others lose digits."""
        self.settled.setdefault(poly, {})[node] = None

    def _remember(self, poly: Poly) -> None:
        """Values of the source are parts that products and sums may be taken apart into."""
        if len(poly) == 1:
            mono, c = poly.terms[0]
            trivial = c == 1 and len(mono) == 1 and mono[0][1] == 1
            if mono and not trivial and poly not in self.known_products:
                self.known_products.append(poly)
        elif len(poly) > 1:
            if poly not in self._known_sums:
                self._known_sums.append(poly)
            self._scales.setdefault(self._unit(poly), poly)

    def _unit(self, poly: Poly) -> Poly:
        content = content_of(poly)
        if poly.terms[0][1] < 0:
            content = -content
        return self.algebra.scale(poly, simple(Fraction(1) / content))

    def scaled(self, poly: Poly) -> Poly:
        """A multiple of the sum that the source computes, or one whose coefficients are of ordinary magnitude."""
        if len(poly) < 2:
            return poly
        known = self._scales.get(self._unit(poly))
        if known is not None:
            return known
        largest = max(abs(c) for _, c in poly)
        if 1e-3 <= largest <= 1e3:
            return poly
        # A power of four, whose root is a number too.
        exponent = round(math.log2(largest) / 2)
        return self.algebra.scale(poly, simple(Fraction(4) ** -exponent))

    def known_scale(self, mono: Mono) -> Poly:
        """The monomial, with the coefficient that it has in the source if the source has it."""
        for known in self.known_products:
            factors, _ = known.terms[0]
            if tuple(pair for pair in factors if pair[0].kind != "prime") == mono:
                return known
        return self.algebra.of_mono(mono)

    def known_multiple(self, mono: Mono, c: Number) -> tuple[Number, Poly]:
        """A term as coefficient and value: the value that the source has, if it has it with its coefficient."""
        for sign in (1, -1):
            value = self.algebra.of_mono(mono, sign * c)
            if value in self.seeds:
                return sign, value
        return c, self.algebra.of_mono(mono)

    def is_known_maximum(self, poly: Poly) -> bool:
        """Whether the source takes this maximum itself."""
        return any(
            (node.kind == "reduce" and node.data[0] == "max")
            or (node.kind == "op" and node.data[0] == "reduce" and dict(node.data[1])["kind"] == "max")
            for node in self.seeds.get(poly, ())
        )

    def known_sums(self, poly: Poly) -> list[list[Mono]]:
        """Groups of terms that the source adds up somewhere."""
        terms = dict(poly.terms)
        return [
            [mono for mono, _ in known]
            for known in self._known_sums
            if known is not poly and all(terms.get(mono) == c for mono, c in known)
        ]

    def grow(
        self,
        goals: Iterable[Poly],
        enumerate_nodes: Callable[[Space, Poly], Iterable[Node]],
        limits: Limits,
    ) -> None:
        """Enumerate until nothing new is needed, or a limit is reached."""
        queue = list(goals)
        position = 0
        while position < len(queue):
            poly = queue[position]
            position += 1
            if poly in self.nodes:
                continue
            if limits.space(len(self.nodes), self.algebra.work):
                # The source's own nodes still lead to a program.
                self.nodes[poly] = dict.fromkeys(self.seeds.get(poly, ()))
            else:
                self.nodes[poly] = dict.fromkeys(self.seeds.get(poly, ())) | self.settled.get(poly, {})
                if poly not in self.settled:
                    self._enumerate(poly, enumerate_nodes)
            queue.extend(child for node in self.nodes[poly] for child in node.children)

    def _enumerate(self, poly: Poly, enumerate_nodes: Callable[[Space, Poly], Iterable[Node]]) -> None:
        """What the rules find; where one gives up, what was found until then."""
        nodes = self.nodes[poly]
        try:
            for node in enumerate_nodes(self, poly):
                nodes[node] = None
        except OutOfFuel as error:
            self.reject(str(error))

    def _seed_cut(self, poly: Poly, node: Node, items: Mapping[str, Item]) -> None:
        try:
            children = tuple(self.algebra.substitute(child, items) for child in node.children)
            self.seed(self.algebra.substitute(poly, items), Node("op", node.data, children, seed=True))
        except OutOfFuel as error:
            self.reject(str(error))

    def transport(self, name: str, pair: Pair) -> None:
        """Make the source's ops and exponents known also with a dimension in two; reductions over it are left out."""
        if (name, pair) in self._transported:
            return
        self._transported.add((name, pair))
        items: dict[str, Item] = {name: pair}
        for poly, node in [(poly, node) for poly, nodes in self.seeds.items() for node in nodes]:
            if node.kind == "op" and name not in dict(node.data[1]).get("over", ()):
                self._seed_cut(poly, node, items)
        for exponent in sorted(self.stability.allowed, key=lambda p: p.id):
            self.stability.allow(self.algebra.substitute(exponent, items))

    def reject(self, why: str) -> None:
        self.rejected[why] = self.rejected.get(why, 0) + 1

    def opening(self, bound: Iterable[tuple[str, Size]], avoid: Iterable[str]) -> dict[str, Item]:
        """Real names for bound ones: names that the source gives dims of that size, and the pair for a cut one."""
        taken = set(avoid)
        result: dict[str, Item] = {}
        for name, size in bound:
            if self.cut is not None and size is self.cut.size and "'" not in name:
                pair = self.cut.pair
                if {pair.outer, pair.inner} & taken:
                    raise OutOfFuel("a cut dimension meets itself")
                taken |= {pair.outer, pair.inner}
                result[name] = pair
                continue
            chosen = next((n for n in self.names.get(size, ()) if n not in taken), None)
            if chosen is None:
                chosen = self._invent(size, taken)
            taken.add(chosen)
            result[name] = chosen
        return result

    def _invent(self, size: Size, taken: set[str]) -> str:
        number = 1
        while f"r{number}" in taken or self.algebra.sizes.get(f"r{number}", size) is not size:
            number += 1
        self.algebra.sizes[f"r{number}"] = size
        return f"r{number}"
