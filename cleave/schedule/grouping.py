"""Which reductions share a loop: those over the same dims that share upstream work and whose dependences separate."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.dialects.graph import Value
from cleave.schedule.derivatives import State
from cleave.schedule.region import Region
from cleave.schedule.scope import Scope, home_of
from cleave.schedule.separability import Form
from cleave.schedule.tiling import Fusion, Tiling


class Grouping:
    """The loops of one kernel."""

    def __init__(self, region: Region, tiling: Tiling, fusion: Fusion) -> None:
        self.region, self.tiling, self.fusion = region, tiling, fusion
        self.open: list[Value] = []
        """The members of the loops that are being emitted."""
        self.estimates = False
        """Whether a loop so far uses ``Fusion.estimates``."""

    def group_of(self, first: Value, scope: Scope) -> list[Value]:
        """``first`` and the reductions that join its loop, operands first."""
        group, count = [first], 0
        peers = self._peers(first, scope) if self.fusion.horizontal else []
        while count < len(group):  # again: one may fit only when what is between it and ``first`` has joined
            count = len(group)
            for other in peers:
                if other not in group and self._joins(other, group, scope):
                    group.append(other)
        group.sort(key=self.region.position.__getitem__)
        self.estimates |= any(self.state(member, group).centres for member in group)
        return group

    def state(self, member: Value, group: Sequence[Value]) -> State:
        """What the loop of ``group`` carries for one of its members."""
        running = frozenset(group) & self.region.upstream[member]
        found = self._state(member, running) if running else State(member)
        assert found is not None, "a member of a group separates"
        return found

    def _peers(self, first: Value, scope: Scope) -> list[Value]:
        """The reductions of the scope over the same dims that have no loop yet, last ones first."""
        loops = self.tiling.looped(first)
        taken = {first, *self.open, *scope.tiles}
        alike = [v for v in reversed(self.region.reductions) if v not in taken and self.tiling.looped(v) == loops]
        return [v for v in alike if all(scope.span(n) for n in v.names) and home_of(v, scope, self.region) is scope]

    def _joins(self, other: Value, group: list[Value], scope: Scope) -> bool:
        upstream, loops = self.region.upstream, self.tiling.looped(other)
        work = self.region.varying(other, loops)
        if not any(work & upstream[member] for member in group):
            return False
        return self._fits((*group, other))

    def _fits(self, group: tuple[Value, ...]) -> bool:
        """Whether every dependence inside the group separates and none passes through another loop.

        What it depends on is in the key: the dims that are looped over are those that are not resident.
        """
        key = (group, self.tiling.resident, self.fusion.estimates)
        if key not in self.region.groups:
            self.region.groups[key] = self._is_one_loop(group)
        return self.region.groups[key]

    def _is_one_loop(self, group: tuple[Value, ...]) -> bool:
        states: list[State] = []
        for later in group:
            earlier = [member for member in group if member in self.region.upstream[later]]
            if earlier and self._passes_through_loop(earlier, later, group):
                return False
            state = self._state(later, frozenset(earlier)) if earlier else State(later)
            if state is None:
                return False
            states.append(state)
        return _agree([state.form for state in states])

    def _passes_through_loop(self, earlier: list[Value], later: Value, group: tuple[Value, ...]) -> bool:
        return any(
            other not in group
            and other in self.region.upstream[later]
            and self.region.depends(other, earlier)
            and self.tiling.looped(other)
            and not set(other.names) & set(self.tiling.looped(later))
            for other in self.region.reductions
        )

    def _state(self, member: Value, running: frozenset[Value]) -> State | None:
        loops = self.tiling.looped(member)
        held = set(member.attrs["over"]).difference(loops)
        if len(loops) != 1 or any(not held.isdisjoint(other.names) for other in running):
            return None  # what is summed over a dim that is held whole is not corrected for each element along it
        state = self.region.state(member, running, loops[0])
        return state if state is None or self.fusion.estimates or not state.centres else None


def _agree(forms: Sequence[Form]) -> bool:
    """Whether no value is a power in one body and something else in another: the two are guarded differently."""
    powers = {a for form in forms for a in form.powers}
    others = {a for form in forms for a in (*form.degrees, *form.exponents)}
    return powers.isdisjoint(others)
