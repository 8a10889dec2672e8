"""Which axes of which tensors are one dimension, and what it is called.

Axes and loops that an op ties together form a class; a class becomes a named dim. Two axes of one tensor, and two loops
of one op, are never one dim: where uniting would make them so, the use is *renamed* instead. Equal extents alone tie
nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add, mul

from cleave.dialects.dims import Dim, Size, const, sym

#: Names by role, in order of preference. "s" and "t" are left to splits.
ROWS = ("m", "i", "r")
COLUMNS = ("n", "p", "r", "c")
BATCHED_COLUMNS = ("n", "e", "p")
CONTRACTED = ("k", "d", "l")
BATCHED_CONTRACTED = ("d", "k", "l")
BATCH = ("b", "h", "g")
FACTORS = ("h", "g", "b")
LAST_FACTOR = ("d", "e")
ANY = tuple("prcefgjlovwxyz")


class DimClasses:
    """Union-find over axes and loops, with classes that must stay apart."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}
        self._apart: dict[Hashable, set[Hashable]] = {}
        self.extents: dict[Hashable, int] = {}
        self.products: dict[Hashable, tuple[Hashable, ...]] = {}
        self.sums: dict[Hashable, tuple[Hashable, ...]] = {}
        self.renames: list[tuple[Hashable, Hashable]] = []

    def find(self, node: Hashable) -> Hashable:
        """The class of ``node``, a new one at first sight."""
        parent = self._parent.setdefault(node, node)
        while parent != node:
            node, parent = parent, self._parent[parent]
        return node

    def set_extent(self, node: Hashable, extent: int | None) -> None:
        if extent is not None:
            self.extents.setdefault(self.find(node), extent)

    def extent(self, node: Hashable) -> int | None:
        return self.extents.get(self.find(node))

    def keep_apart(self, nodes: Iterable[Hashable]) -> None:
        roots = [self.find(node) for node in nodes]
        for root in roots:
            self._apart.setdefault(root, set()).update(other for other in roots if other != root)

    def unite(self, a: Hashable, b: Hashable) -> bool:
        """Make two classes one; False, and no change, where they must stay apart."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return True
        if b in {self.find(other) for other in self._apart.get(a, ())}:
            return False
        self._parent[b] = a
        self._apart.setdefault(a, set()).update(self._apart.get(b, ()))
        for other in self._apart.get(b, set()):
            self._apart.setdefault(self.find(other), set()).add(a)
        for table in (self.extents, self.products):
            if b in table:
                table.setdefault(a, table.pop(b))  # pyright: ignore[reportArgumentType, reportCallIssue]
        if b in self.sums:
            self.define_sum(a, self.sums.pop(b))
        return True

    def define_product(self, whole: Hashable, factors: Sequence[Hashable]) -> None:
        """``whole`` is the merger of ``factors``. Factors of the same extents, in the same order, are the same dims."""
        known = self.products.setdefault(self.find(whole), tuple(factors))
        extents, others = [self.extent(f) for f in factors], [self.extent(f) for f in known]
        if extents == others and None not in extents:
            for one, other in zip(known, factors, strict=True):
                self.unite(one, other)

    def define_sum(self, whole: Hashable, parts: Sequence[Hashable]) -> None:
        """``whole`` is ``parts`` one after the other, its size only known as the sum of theirs.

        Of two sums of one size that have all parts but one in common, the others are of one size, too.
        """
        known = self.sums.setdefault(self.find(whole), tuple(parts))
        mine, theirs = list(parts), list(known)
        for part in parts:
            same = next((other for other in theirs if self._is_as_large(part, other)), None)
            if same is not None:
                mine.remove(part)
                theirs.remove(same)
        if len(mine) == len(theirs) == 1 and not self.unite(theirs[0], mine[0]):
            self.define_rename(mine[0], theirs[0])

    def _is_as_large(self, one: Hashable, other: Hashable) -> bool:
        extent = self.extent(one)
        return self.find(one) == self.find(other) or (extent is not None and extent == self.extent(other))

    def unite_equal_products(self) -> None:
        """Two mergers of the same factors are one dim."""
        first: dict[tuple[Hashable, ...], Hashable] = {}
        for whole, factors in list(self.products.items()):
            key = tuple(self.find(factor) for factor in factors)
            if key in first:
                self.unite(first[key], whole)
            else:
                first[key] = whole

    def define_rename(self, source: Hashable, target: Hashable) -> None:
        """In some use the dim ``source`` is called as ``target``: two dims of one size."""
        self.renames.append((source, target))

    def same_size(self) -> list[list[Hashable]]:
        """The classes that renames tie to one size, in groups."""
        groups = {root: [root] for pair in self.renames for root in map(self.find, pair)}
        for source, target in self.renames:
            one, other = groups[self.find(source)], groups[self.find(target)]
            if one is not other:
                one.extend(other)
                groups |= dict.fromkeys(other, one)
        return list({id(group): group for group in groups.values()}.values())


@dataclass
class Names:
    """Names given to classes so far."""

    classes: DimClasses
    by_class: dict[Hashable, str] = field(default_factory=dict)

    def give(self, node: Hashable, pool: Sequence[str]) -> None:
        """Name the class of ``node`` by the first free name of the pool, unless it has one."""
        root = self.classes.find(node)
        if root in self.by_class:
            return
        taken = set(self.by_class.values())
        numbered = (f"d{index}" for index in range(len(taken) + 1))
        self.by_class[root] = next(name for name in (*pool, *ANY, *numbered) if name not in taken)

    def give_group(self, nodes: Sequence[Hashable], pool: Sequence[str]) -> None:
        """The last of a group of axes of one role has the role's name, those before it are batch-like."""
        for node in nodes[-1:]:
            self.give(node, pool)
        for node in nodes[:-1]:
            self.give(node, BATCH)

    def give_axes(self, nodes: Sequence[Hashable]) -> None:
        """Names by position for a tensor's axes that no contraction has named. Mergers wait for their factors."""
        counted = [node for node in nodes if self.classes.extent(node) != 1]
        for position, node in enumerate(reversed(counted)):
            if self.classes.find(node) not in self.classes.products:
                self.give(node, (("n",), ROWS)[position] if position < 2 else BATCH)
        for node in nodes:
            if self.classes.extent(node) == 1:
                self.give(node, ("u",))

    def give_factors(self, factors: Sequence[Hashable]) -> None:
        """Factors of a merger are called as heads and their depth, unless they have names."""
        if any(self.classes.find(factor) in self.by_class for factor in factors):
            return
        for factor in factors[:-1]:
            self.give(factor, FACTORS)
        self.give(factors[-1], LAST_FACTOR)

    def give_mergers(self) -> None:
        """A merger is called as its factors are, joined."""
        for whole, factors in list(self.classes.products.items()):
            self.give(whole, ("".join(self.name(factor) for factor in factors),))

    def name(self, node: Hashable) -> str:
        self.give(node, ())
        return self.by_class[self.classes.find(node)]


def named_dims(names: Names) -> dict[str, Dim]:
    """Each name's dim. Its size is the symbol of the name, or what the program says: 1, a product, a sum, another's."""
    classes = names.classes
    order = list(names.by_class)
    group_of = {root: sorted(group, key=order.index) for group in classes.same_size() for root in group}
    derived = {
        classes.find(whole): (combine, parts)
        for combine, table in ((mul, classes.products), (add, classes.sums))
        for whole, parts in table.items()
    }

    def size(node: Hashable, above: tuple[Hashable, ...] = ()) -> Size:
        root = classes.find(node)
        group = group_of.get(root, [root])
        if classes.extent(root) == 1:
            return const(1)
        found = next((derived[member] for member in group if member in derived), None)
        if found is None or group[0] in above:
            return sym(names.by_class[group[0]])
        combine, parts = found
        return reduce(combine, (size(part, (*above, group[0])) for part in parts))

    return {name: Dim(name, size(root)) for root, name in names.by_class.items()}


def static_extents(names: Names, dims: Mapping[str, Dim]) -> dict[str, int]:
    """The extents of the symbols that are static."""
    found = {name: names.classes.extent(root) for root, name in names.by_class.items()}
    return {name: extent for name, extent in found.items() if extent is not None and dims[name].size is sym(name)}
