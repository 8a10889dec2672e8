"""The order of dims in computed tiles: one for a whole kernel, that in which its contractions have them.

A contraction's result has the rows first, its left operand the rows before what is summed, its right operand that
before the columns. Tiles in the order of the source would be transposed wherever one names its dims in another order,
as a mask may that is computed from positions.

Without contractions, what is summed comes behind what is not, but for neighbours in memory: Triton gives neighbours to
the threads of a warp, and warps to the first dims. Summed dims there would be summed across warps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cleave.dialects.graph import Value


@dataclass(frozen=True)
class TileOrder:
    """``ranks`` of the dims of contractions, among themselves; ``last`` come behind all others. ``loads``: whether what
    is loaded has this order, too, and not that of memory."""

    ranks: Mapping[str, int] = field(default_factory=dict[str, int])
    last: frozenset[str] = frozenset()
    loads: bool = False

    def of(self, names: Sequence[str]) -> list[str]:
        """The names in order; one without a rank keeps its place."""
        ranked = iter(sorted((name for name in names if name in self.ranks), key=self.ranks.__getitem__))
        found = [next(ranked) if name in self.ranks else name for name in names]
        return sorted(found, key=self.last.__contains__)


def tile_order(reductions: Sequence[Value], last: frozenset[str]) -> TileOrder:
    """The order in which the first contractions have their dims; those of others fit in as they can.

    Where there are none, that of reductions, those of the most dims first.
    """
    order: list[str] = []
    multiplied = [value for value in reductions if _multiplies(value)]
    for value in multiplied:
        _merge(order, _as_multiplied(value, last))
    for value in () if multiplied else sorted(reductions, key=lambda value: -len(_summed(value).dims)):
        _merge(order, _as_reduced(value))
    return TileOrder({name: rank for rank, name in enumerate(order)}, last, loads=not multiplied)


def _as_multiplied(contraction: Value, last: Collection[str]) -> list[str]:
    """Rows, summed dims, columns; dims of both operands stay where the result has them."""
    names = sorted(contraction.names, key=last.__contains__)
    one, other = (set(operand.names) for operand in contraction.operands)
    alone = [name for name in names if name not in one & other]
    rows = one - other if alone and alone[0] in one else other - one
    summed = [name for name in contraction.attrs["over"] if name in one & other]
    at = max((place + 1 for place, name in enumerate(names) if name in rows), default=0)
    return [*names[:at], *summed, *names[at:]]


def _multiplies(reduction: Value) -> bool:
    """Whether it is a contraction with rows or columns: each operand has dims that the other one has not."""
    if reduction.op != "contract":
        return False
    one, other = (set(operand.names) for operand in reduction.operands)
    return not (one <= other or other <= one)


def _summed(reduction: Value) -> Value:
    """The operand with all dims of what is summed."""
    return max(reduction.operands, key=lambda operand: len(operand.dims))


def _as_reduced(reduction: Value) -> list[str]:
    """What is not summed, what is, neighbours."""
    *outer, neighbours = _summed(reduction).names
    return [*sorted(outer, key=reduction.attrs["over"].__contains__), neighbours]


def _merge(order: list[str], names: Sequence[str]) -> None:
    """Insert new names, each behind the one before it."""
    at = 0
    for name in names:
        if name not in order:
            order.insert(at, name)
        at = max(at, order.index(name) + 1)
