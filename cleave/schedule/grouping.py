"""Which reductions share a loop: those over the same dims that share upstream work and whose dependences separate."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.dialects.graph import Value
from cleave.dialects.rounding import transparent
from cleave.schedule.region import Region
from cleave.schedule.scope import Scope, home_of
from cleave.schedule.separability import Cascade, Factors
from cleave.schedule.tiling import Fusion, Tiling


class Grouping:
    """The loops of one kernel."""

    def __init__(self, region: Region, tiling: Tiling, fusion: Fusion) -> None:
        self.region, self.tiling, self.fusion = region, tiling, fusion
        self.transparent = transparent(region.values, region.results)
        self._known_factors: dict[tuple[Value, frozenset[Value]], Factors | None] = {}

    def group_of(self, first: Value, scope: Scope) -> list[Value]:
        """``first`` and the reductions that join its loop, operands first."""
        group = [first]
        if self.fusion.horizontal:
            for other in self.region.reductions:
                if other is not first and self._is_peer(other, first, scope) and self._joins(other, group, scope):
                    group.append(other)
        return sorted(group, key=self.region.position.__getitem__)

    def factors(self, member: Value, group: Sequence[Value]) -> Factors:
        """How the running values of its group scale a member's body; empty where it uses none."""
        running = frozenset(group) & self.region.upstream[member]
        return (self._factors(member, running) or {}) if running else {}

    def _is_peer(self, other: Value, first: Value, scope: Scope) -> bool:
        in_scope = all(scope.span(name) for name in other.names) and home_of(other, scope, self.region) is scope
        return in_scope and other not in scope.tiles and self.tiling.looped(other) == self.tiling.looped(first)

    def _joins(self, other: Value, group: list[Value], scope: Scope) -> bool:
        upstream, loops = self.region.upstream, self.tiling.looped(other)
        work = self.region.varying(other, loops)
        if not any(work & upstream[member] for member in group):
            return False
        return self._fits([*group, other], scope)

    def _fits(self, group: list[Value], scope: Scope) -> bool:
        """Whether every dependence inside the group separates and none passes through another loop of this scope."""
        for later in group:
            earlier = [member for member in group if member in self.region.upstream[later]]
            if earlier and (
                self._passes_through_loop(earlier, later, group, scope)
                or self._factors(later, frozenset(earlier)) is None
            ):
                return False
        return True

    def _passes_through_loop(self, earlier: list[Value], later: Value, group: list[Value], scope: Scope) -> bool:
        return any(
            other not in group
            and other in self.region.upstream[later]
            and self.region.depends(other, earlier)
            and self.tiling.looped(other)
            and not set(other.names) & set(self.tiling.looped(later))
            for other in self.region.reductions
        )

    def _factors(self, value: Value, running: frozenset[Value]) -> Factors | None:
        key = (value, running)
        if key not in self._known_factors:
            self._known_factors[key] = self._separate(value, running)
        return self._known_factors[key]

    def _separate(self, value: Value, running: frozenset[Value]) -> Factors | None:
        loops = self.tiling.looped(value)
        if len(loops) != 1 or value.attrs.get("kind", "sum") != "sum":
            return None
        cascade = Cascade(
            running, lambda v: self.region.depends(v, running), lambda v: loops[0] not in v.names, self.transparent
        )
        if value.op == "contract":
            parts = [cascade.factors(operand) for operand in value.operands]
            return None if None in parts else _sum_factors([part for part in parts if part is not None])
        return cascade.factors(value.operands[0])


def _sum_factors(parts: Sequence[Factors]) -> Factors:
    return {w: sum(part.get(w, 0.0) for part in parts) for part in parts for w in part}
