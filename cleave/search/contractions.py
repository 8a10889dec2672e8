"""Orders of contraction: every way to sum a product of factors two at a time, all connected by bound dims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from cleave.search.monotone import exponent_of
from cleave.search.space import Node, Space
from cleave.search.terms import Atom, Mono, Number, OutOfFuel, Poly

MAX_UNITS = 9


def contraction_nodes(space: Space, atom: Atom, exponent: Poly) -> Iterator[Node]:
    """Nodes for ``exp(exponent) * atom``, the sum's own exponentials taking the exponent in."""
    names = space.opening(atom.data[0], atom.free | exponent.free)
    body = space.algebra.mul(space.algebra.open(atom, names), space.algebra.exp(exponent))
    yield from sum_nodes(space, [str(name) for name in names.values()], body)


def sum_nodes(space: Space, names: Sequence[str], body: Poly) -> Iterator[Node]:
    """Nodes for the sum over ``names`` of a single product."""
    if len(body) != 1 or body.terms[0][1] != 1:
        return
    yield from _conditional_nodes(space, names, body.terms[0][0])
    units = factor_units(space, body.terms[0][0])
    if len(units) == 1:
        yield Node("reduce", ("sum", tuple(names)), (units[0],))
        return
    if len(units) > MAX_UNITS:
        raise OutOfFuel(f"a sum of products of {len(units)} factors")
    for left, right in _bipartitions(units, names):
        shared = _free(left) & _free(right)
        over = tuple(name for name in names if name in shared)
        if not over:
            continue
        children = tuple(_part(space, side, [n for n in names if n not in over]) for side in (left, right))
        yield Node("contract", over, children)
        own = tuple(name for name in names if name not in over)
        if own and len(units) == 2:
            # One reduction instead of two in a row; the sum of one operand alone costs less work.
            yield Node("contract", (*over, *own), (units[0], units[1]))


def _conditional_nodes(space: Space, names: Sequence[str], mono: Mono) -> Iterator[Node]:
    """``Σ_{n,k} [c_n]·a·b = Σ_n [c_n]·(Σ_k a·b)``: conditions stand outside the sum over what they do not depend on.

    What is not selected is not looked at: each inner sum is under one value of the conditions.
    """
    algebra = space.algebra
    conditions = {atom: e for atom, e in mono if atom.kind == "chi"}
    rest = [(atom, e) for atom, e in mono if atom not in conditions]
    around = frozenset[str]().union(*(chi.free for chi in conditions))
    inner = [name for name in names if name not in around]
    if not conditions or len(inner) in (0, len(names)):
        return
    inside = algebra.sum_over(inner, algebra.of_mono(tuple(rest)))
    outer = tuple(name for name in names if name in around)
    yield Node("reduce", ("sum", outer), (algebra.mul(algebra.of_mono(tuple(conditions.items())), inside),))


def factor_units(space: Space, mono: Mono) -> list[Poly]:
    """Factors that are computed together: the exponentials; every other one by itself.

    Each has the conditions that guard it; those that guard none stand with the exponentials, or the last factor.
    """
    units: list[dict[Atom, Number]] = [{atom: e} for atom, e in mono if atom.kind not in ("exp", "chi", "prime")]
    together = {atom: e for atom, e in mono if atom.kind == "exp"}
    if together:
        units.append(together)
    placed: set[Atom] = set()
    for unit in units:
        for chi in [chi for atom in unit for chi in space.masks.guarding(atom, mono)]:
            unit[chi] = 1
            placed.add(chi)
    free = {atom: e for atom, e in mono if atom.kind == "chi" and atom not in placed}
    constants = {atom: e for atom, e in mono if atom.kind == "prime"}
    units = units or [{}]
    units[-1] |= free
    units[0] |= constants
    return [space.algebra.of_mono(tuple(sorted(unit.items(), key=lambda pair: pair[0].id))) for unit in units]


def _bipartitions(units: Sequence[Poly], names: Sequence[str]) -> Iterator[tuple[list[Poly], list[Poly]]]:
    """Splits in two parts, each connected by bound names; the first unit is always on the left."""
    rest = list(range(1, len(units)))
    for count in range(len(units) - 1):
        for chosen in combinations(rest, count):
            left = [units[0], *(units[i] for i in chosen)]
            right = [units[i] for i in rest if i not in chosen]
            if _connected(left, names) and _connected(right, names):
                yield left, right


def _connected(units: Sequence[Poly], names: Sequence[str]) -> bool:
    bound = set(names)
    reached, todo = set(units[0].free & bound), list(units[1:])
    while todo:
        step = next((unit for unit in todo if unit.free & reached), None)
        if step is None:
            return False
        reached |= step.free & bound
        todo.remove(step)
    return True


def _free(units: Sequence[Poly]) -> set[str]:
    return set().union(*(unit.free for unit in units))


def _part(space: Space, units: Sequence[Poly], names: Sequence[str]) -> Poly:
    """The product of the units, summed over the names that only they have."""
    body = space.algebra.product(*units)
    return space.algebra.sum_over([name for name in names if name in _free(units)], body)


__all__ = ["contraction_nodes", "exponent_of", "sum_nodes"]
