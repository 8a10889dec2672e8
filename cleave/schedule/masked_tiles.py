"""Conditions that mask: those of which one outcome, throughout a tile, makes what a loop adds neutral.

Tiles where it comes out so can be left out. Over the real numbers 0·x = 0, so a weight of 0 takes a value away even
where that is an infinity or a NaN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from cleave.dialects.graph import Value
from cleave.schedule.conditions import is_combined, is_disjunction
from cleave.schedule.monoid import neutral_element
from cleave.schedule.padding import Outside
from cleave.schedule.region import Region


def masking(group: Sequence[Value], name: str, region: Region) -> dict[Value, bool]:
    """The conditions along dim ``name`` that mask all reductions of ``group``: each with the outcome that does not.

    Comparisons, and what is made of two conditions where both must have the other outcome to mask.
    """
    if not group:
        return {}
    shared = frozenset[Value].intersection(*(region.upstream[member] for member in group))
    conditions = [v for v in region.values if v in shared and (v.op == "cmp" or is_combined(v)) and name in v.names]
    found: dict[Value, bool] = {}
    for value, outcome in itertools.product(conditions, (False, True)):
        possible = value.op == "cmp" or is_disjunction(value, not outcome)
        if possible and all(_is_neutral(member, name, {value: outcome}, region) for member in group):
            found[value] = not outcome
    return found


def _is_neutral(reduction: Value, name: str, outcomes: Mapping[Value, bool], region: Region) -> bool:
    tile = _Masked(name, region, outcomes)
    parts = [tile.of(operand) for operand in reduction.operands]
    if reduction.op == "contract":
        return 0.0 in parts
    return parts[0] == neutral_element(reduction.attrs["kind"], reduction.operands[0].dtype)


class _Masked(Outside):
    """The one value of a tile where these comparisons have these outcomes."""

    def __init__(self, name: str, region: Region, outcomes: Mapping[Value, bool]) -> None:
        super().__init__(name, region, lambda value, _: self._given(value))
        self.outcomes = outcomes

    def _given(self, value: Value) -> float | None:
        if value in self.outcomes:
            return float(self.outcomes[value])
        return math.nan if value in self.region.memory or value.op == "gather" else None

    def find(self, value: Value) -> float | None:
        found = super().find(value)
        if found is not None:
            return found
        if value.op in ("mul", "contract") and any(self.of(operand) == 0 for operand in value.operands):
            return 0.0
        if value.op == "div" and self.of(value.operands[0]) == 0:
            return 0.0
        return None
