"""Sums and maxima over dims in normal form, and substitution of items for names.

A sum is over one monomial: sums of sums are merged when they share an index, factors without a bound index stand
outside, unconnected parts are products. A bound index has a name made of its size and nesting, so renaming it changes
nothing; indices of equal size are tried in all orders. A pair (outer, inner) that is bound whole is the dimension it
came from: ``Σ over s of Σ over t`` is ``Σ over n``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import permutations, product

from cleave.dialects.dims import Size, parse
from cleave.search import monotone
from cleave.search.monomials import content_of
from cleave.search.normal_form import Arithmetic
from cleave.search.terms import (
    ONE,
    Atom,
    Item,
    Mono,
    OutOfFuel,
    Pair,
    Piece,
    Poly,
    mono_free,
    mono_key,
    positive,
)

MAX_ORDERS = 24
Names = tuple[str, ...]
Bound = tuple[tuple[str, Size], ...]


class Algebra(Arithmetic):
    """All of the normal form."""

    def __init__(self) -> None:
        super().__init__()
        self._substituted: dict[tuple[Poly, tuple[tuple[str, Item], ...]], Poly] = {}
        self._sums: dict[tuple[Poly, Names], Poly] = {}
        self._fresh = 0
        self.extents: dict[str, int] = {}  # symbols that are static; only counts of elements use them
        self.fixed: dict[str, int] = {}  # those of them that were used
        self.part_names: set[str] = set()  # inner dims of splits: their extent differs from part to part
        self.part_pairs: dict[str, Pair] = {}  # those that graphs name, with the outer dims

    # --- substitution ----------------------------------------------------------------------------------------------

    def substitute(self, poly: Poly, items: Mapping[str, Item]) -> Poly:
        """The polynomial with items in the place of free names, all at once."""
        used = tuple((name, items[name]) for name in sorted(items) if name in poly.free and items[name] != name)
        if not used:
            return poly
        found = self._substituted.get((poly, used))
        if found is None:
            mapping = dict(used)
            found = self.number(0)
            for mono, c in poly:
                found = self.add(found, self.scale(self.substitute_mono(mono, mapping), c))
            self._substituted[poly, used] = found
        return found

    def substitute_mono(self, mono: Mono, items: Mapping[str, Item]) -> Poly:
        self.work += 1
        result = self.number(1)
        exps: list[Poly] = []
        for atom, e in mono:
            if not any(name in atom.free for name in items):
                part = self.of_mono(((atom, e),))
            elif atom.kind == "exp":
                exps.append(self.scale(self.substitute(self.of_mono(atom.data[0]), items), e))
                continue
            else:
                part = self.power(self._substitute_atom(atom, items), e)
            result = self.mul(result, part)
        return self.mul(result, self.exp(self.add(*exps))) if exps else result

    def _substitute_atom(self, atom: Atom, items: Mapping[str, Item]) -> Poly:
        kind, data = atom.kind, atom.data
        if kind == "leaf":
            return self.of_atom(self.atom("leaf", data[0], tuple(_replace(item, items) for item in data[1])))
        if kind == "index":
            return self.of_atom(self.atom("index", _replace(data[0], items)))
        if kind == "one":
            item = _replace(data[0], items)
            return self.of_atom(self.atom("one", item)) if isinstance(item, Pair) else self.number(1)
        if kind == "fn":
            return self.apply(data[0], [self.substitute(arg, items) for arg in data[1]])
        if kind == "chi":
            return self.of_atom(self.atom("chi", self.substitute(data[0], items), data[1]))
        if kind == "poly":
            return self.substitute(data[0], items)
        if kind in ("sum", "max", "red"):
            return self._substitute_binder(atom, {name: item for name, item in items.items() if name in atom.free})
        raise AssertionError(kind)

    def _substitute_binder(self, atom: Atom, items: Mapping[str, Item]) -> Poly:
        kind, bound, body = atom.kind, atom.data[-2], self.body(atom)
        if _is_renaming(atom, items):
            # Nothing simplifies, so that the body need not be reduced anew: nested sums would be, at each level again.
            named, renamed = self._canonical([name for name, _ in bound], self.substitute(body, items))
            if kind == "sum":
                return self._sum_atom(named, renamed)
            return self.of_atom(self.atom(*(kind, *atom.data[:-2], named, renamed)))
        body, names = self._open(bound, body)
        body = self.substitute(body, items)
        if kind == "sum":
            return self.sum_over(names, body)
        return self.max_over(names, body) if kind == "max" else self.reduce_over(atom.data[0], names, body)

    def body(self, atom: Atom) -> Poly:
        """What a sum, maximum or other reduction is over, under its bound names."""
        return self.of_mono(atom.data[1]) if atom.kind == "sum" else atom.data[-1]

    def apply(self, name: str, args: Sequence[Poly]) -> Poly:
        """A function by name, through its laws where it has any."""
        if name == "log":
            return self.log(args[0])
        if name == "abs":
            return self.absolute(args[0])
        if name == "max":
            return self.maximum(*args)
        return self.fn(name, *args)

    def _open(self, bound: Bound, body: Poly) -> tuple[Poly, Names]:
        """The body with fresh names for the bound ones."""
        fresh: dict[str, Item] = {}
        for name, size in bound:
            self._fresh += 1
            new = f"~{self._fresh}"
            self.sizes[new] = size
            if name in self.part_names:
                self.part_names.add(new)
            fresh[name] = new
        # Fresh names never meet again: remembering substitutions of them would only fill the table.
        return self.substitute(body, fresh), tuple(str(item) for item in fresh.values())

    def open(self, atom: Atom, names: Mapping[str, Item]) -> Poly:
        """The body of a sum, maximum or other reduction with items for its bound names."""
        return self.substitute(self.body(atom), names)

    # --- sums ------------------------------------------------------------------------------------------------------

    def sum_over(self, names: Sequence[str], poly: Poly) -> Poly:
        key = (poly, tuple(sorted(names)))
        found = self._sums.get(key)
        if found is None:
            found = self.number(0)
            for mono, c in poly:
                found = self.add(found, self.scale(self._sum_of_product(names, mono), c))
            self._sums[key] = found
        return found

    def _sum_of_product(self, names: Sequence[str], mono: Mono) -> Poly:
        self.work += 1
        unmerged, bound = self._unmerge(names, self.of_mono(mono))
        if len(unmerged) != 1 or unmerged.terms[0][1] != 1:
            return self.sum_over(bound, unmerged)
        mono = unmerged.terms[0][0]
        flat = self._flatten(bound, mono)
        if len(flat) != 1 or flat.terms[0][1] != 1:
            return self.sum_over(bound, flat)
        mono = flat.terms[0][0]
        merged, bound = self._merge_pairs(bound, self.of_mono(mono))
        if len(merged) != 1 or merged.terms[0][1] != 1:
            return self.sum_over(bound, merged)
        mono = merged.terms[0][0]
        result = self.number(1)
        for group, factors in _components(bound, mono):
            if not group:
                result = self.mul(result, self.of_mono(factors))
            elif not factors:
                result = self.mul(result, self._count(group[0]))
            else:
                named, body = self._canonical(group, self.of_mono(factors))
                result = self.mul(result, self._sum_atom(named, body))
        return result

    def _sum_atom(self, bound: Bound, body: Poly) -> Poly:
        if len(body) == 1 and body.terms[0][1] == 1:
            return self.of_atom(self.atom("sum", bound, body.terms[0][0]))
        # Renaming may let the body simplify, so it is summed again under its new names.
        return self.sum_over([name for name, _ in bound], body)

    def _count(self, name: str) -> Poly:
        pair = self.part_pairs.get(name)
        if pair is not None:
            return self.sum_over([name], self.of_atom(self.atom("one", pair)))
        if name in self.part_names:
            raise OutOfFuel(f"the number of elements along '{name}' differs from part to part")
        return self.count_of(self.sizes[name])

    def count_of(self, size: Size) -> Poly:
        """The size as a factor: a number where it is static; a product of sizes is one of factors."""
        for symbol in sorted(size.symbols & self.extents.keys()):
            self.fixed[symbol] = self.extents[symbol]
        size = size.substitute(self.extents)
        if len(size.terms) != 1:
            return self.number(0) if size.value == 0 else self.of_atom(self.atom("size", size))
        ((factors, c),) = size.terms
        return self.product(self.number(c), *(self.of_atom(self.atom("size", parse(f.text))) for f in factors))

    def _flatten(self, bound: list[str], mono: Mono) -> Poly:
        """Open the sums among the factors that share a bound index."""
        result = self.number(1)
        for atom, e in mono:
            if atom.kind == "sum" and e == 1 and any(name in atom.free for name in bound):
                body, names = self._open(atom.data[0], self.of_mono(atom.data[1]))
                bound.extend(names)
                result = self.mul(result, body)
            else:
                result = self.mul(result, self.of_mono(((atom, e),)))
        return result

    def _unmerge(self, names: Sequence[str], body: Poly) -> tuple[Poly, list[str]]:
        """Bound dims that occur in the pieces they were merged from are bound as these: ``Σ_h`` is ``Σ_kv Σ_g``."""
        bound = list(names)
        for name in names:
            pieces = sorted(
                {p for mono, _ in body for a, _ in mono for p in a.pieces if p.name == name},
                key=lambda p: (str(p.outer_size), str(p.inner_size), p.is_outer),
            )
            if not pieces:
                continue
            self._fresh += 2
            outer, inner = f"~{self._fresh - 1}", f"~{self._fresh}"
            sizes = pieces[0].outer_size, pieces[0].inner_size
            self.sizes[outer], self.sizes[inner] = sizes
            body = self.substitute(body, {name: Pair(outer, inner, self.sizes[name], *sizes)})
            bound = [n for n in bound if n != name] + [outer, inner]
        return body, bound

    def _merge_pairs(self, bound: Sequence[str], body: Poly) -> tuple[Poly, list[str]]:
        """The whole dimension in the place of a pair whose two names are bound and occur in nothing else."""
        bound = list(bound)
        pairs: dict[Pair, None] = {}
        plain: set[str] = set()
        for mono, _ in body:
            for atom, _ in mono:
                pairs |= dict.fromkeys(sorted(atom.pairs, key=lambda p: (p.outer, p.inner)))
                plain |= atom.plain
        for pair in pairs:
            names = {pair.outer, pair.inner}
            others = any(names & {other.outer, other.inner} for other in pairs if other != pair)
            if names <= set(bound) and not names & plain and not others:
                self._fresh += 1
                whole = f"~{self._fresh}"
                self.sizes[whole] = pair.whole
                body = self._substitute_pair(body, pair, whole)
                bound = [name for name in bound if name not in names] + [whole]
        return body, bound

    def _substitute_pair(self, body: Poly, pair: Pair, whole: str) -> Poly:
        # The pair is found by its names, which occur nowhere else in the body.
        return self.substitute(body, {pair.outer: Whole(whole), pair.inner: Whole(whole)})

    def _canonical(self, names: Sequence[str], body: Poly) -> tuple[Bound, Poly]:
        """Names for the bound indices that depend on sizes and structure only."""
        level = body.level + 1
        groups: dict[str, list[str]] = {}
        for name in names:
            part = "'" if name in self.part_names else ""
            groups.setdefault(str(self.sizes[name]) + part, []).append(name)
        choices = [list(permutations(group)) for _, group in sorted(groups.items())]
        count = 1
        for choice in choices:
            count *= len(choice)
        if count > MAX_ORDERS:
            raise OutOfFuel("too many bound dims of the same size")
        best: tuple[tuple[object, ...], Bound, Poly] | None = None
        for chosen in product(*choices):
            mapping: dict[str, Item] = {}
            for group in chosen:
                for position, name in enumerate(group):
                    part = "'" if name in self.part_names else ""
                    new = f"{self.sizes[name]}{part}@{level}.{position}"
                    self.sizes[new] = self.sizes[name]
                    if part:
                        self.part_names.add(new)
                    mapping[name] = new
            renamed = self.substitute(body, mapping)
            key = tuple((mono_key(mono), c) for mono, c in renamed)
            if best is None or key < best[0]:
                best = (key, tuple((str(n), self.sizes[str(n)]) for n in mapping.values()), renamed)
        assert best is not None
        return tuple(sorted(best[1], key=lambda pair: pair[0])), best[2]

    # --- maxima and other reductions -------------------------------------------------------------------------------

    def max_over(self, names: Sequence[str], poly: Poly) -> Poly:
        """What does not depend on the names, positive factors and monotone functions stand outside."""
        dependent = {m: c for m, c in poly if mono_free(m) & set(names)}
        outside = self.poly({m: c for m, c in poly if m not in dependent})
        if not dependent:
            return poly
        body = self.poly(dependent)
        content = content_of(body)
        body = self.scale(body, Fraction(1) / content)
        factor: Mono = ONE
        if len(body) == 1:
            mono, c = body.terms[0]
            factor = tuple((a, e) for a, e in mono if not a.free & set(names) and positive(((a, e),)))
            body = self.of_mono(tuple(pair for pair in mono if pair not in factor), c)
            inner = monotone.maximum_inside(self, names, body)
            if inner is not None:
                return self.add(outside, self.scale(self.mul(inner, self.of_mono(factor)), content))
        body, bound = self._unmerge([name for name in names if name in body.free], body)
        atom = body.single
        if atom is not None and atom.kind == "max":
            body, inner = self._open(atom.data[0], atom.data[1])
            bound.extend(inner)
        merged, bound = self._merge_pairs(bound, body)
        named, body = self._canonical(bound, merged)
        result = self.of_atom(self.atom("max", named, body))
        return self.add(outside, self.scale(self.mul(result, self.of_mono(factor)), content))

    def min_over(self, names: Sequence[str], poly: Poly) -> Poly:
        return self.neg(self.max_over(names, self.neg(poly)))

    def reduce_over(self, kind: str, names: Sequence[str], poly: Poly) -> Poly:
        """A reduction with no laws but merging of its indices."""
        bound = [name for name in names if name in poly.free]
        if kind == "prod" and len(bound) < len(names):
            raise OutOfFuel("a product over a dimension that its operand does not have")
        atom = poly.single
        if atom is not None and atom.kind == "red" and atom.data[0] == kind:
            poly, inner = self._open(atom.data[1], atom.data[2])
            bound.extend(inner)
        if not bound:
            return poly
        poly, bound = self._unmerge(bound, poly)
        merged, bound = self._merge_pairs(bound, poly)
        named, body = self._canonical(bound, merged)
        return self.of_atom(self.atom("red", kind, named, body))


class Whole(str):
    """A name that stands for both halves of a pair."""

    __slots__ = ()


def _is_renaming(atom: Atom, items: Mapping[str, Item]) -> bool:
    """Whether free names get others, distinct ones, that occur neither free nor bound."""
    taken = (atom.free - items.keys()) | {name for name, _ in atom.data[-2]}
    new = {item for item in items.values() if isinstance(item, str) and not isinstance(item, Whole)}
    return len(new) == len(items) and not new & taken


def _replace(item: Item, items: Mapping[str, Item]) -> Item:
    if isinstance(item, str):
        return items.get(item) or item
    if isinstance(item, Piece):
        return _replace_piece(item, items.get(item.name) or item.name)
    outer, inner = items.get(item.outer, item.outer), items.get(item.inner, item.inner)
    if isinstance(outer, Whole) and isinstance(inner, Whole):
        return str(outer)
    if isinstance(outer, Piece) and isinstance(inner, Piece) and outer == inner._replace(is_outer=True):
        return outer.name  # cut and merged again
    if not isinstance(outer, str) or not isinstance(inner, str):
        raise OutOfFuel("a part of a dimension is cut again")
    return item._replace(outer=outer, inner=inner)


def _replace_piece(piece: Piece, by: Item) -> Item:
    if isinstance(by, Pair) and (by.outer_size, by.inner_size) == (piece.outer_size, piece.inner_size):
        return by.outer if piece.is_outer else by.inner  # merged and cut again
    if not isinstance(by, str) or isinstance(by, Whole):
        raise OutOfFuel("a merged dimension is cut or merged in another way")
    return piece._replace(name=by)


def _components(bound: Sequence[str], mono: Mono) -> list[tuple[list[str], Mono]]:
    """The factors in groups that share bound names; first those that have none, then names that occur nowhere."""
    groups: list[tuple[set[str], list[tuple[Atom, object]]]] = []
    outside: list[tuple[Atom, object]] = []
    for atom, e in mono:
        names = atom.free & set(bound)
        if not names:
            outside.append((atom, e))
            continue
        touching = [group for group in groups if group[0] & names]
        merged: tuple[set[str], list[tuple[Atom, object]]] = (set(names), [])
        for group in touching:
            merged[0].update(group[0])
            merged[1].extend(group[1])
            groups.remove(group)
        merged[1].append((atom, e))
        groups.append(merged)
    result: list[tuple[list[str], Mono]] = [([], tuple(outside))] if outside else []  # type: ignore[list-item]
    for names, factors in groups:
        ordered = tuple(sorted(factors, key=lambda pair: pair[0].id))
        result.append(([name for name in bound if name in names], ordered))  # type: ignore[arg-type]
    used = mono_free(mono)
    result.extend(([name], ONE) for name in bound if name not in used)
    return result
