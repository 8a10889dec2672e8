"""The parts of dims that a block or an iteration has in hand, and where they end."""

from __future__ import annotations

from collections.abc import Mapping

from cleave.dialects.dims import Size
from cleave.errors import CleaveError
from cleave.schedule.region import Region
from cleave.schedule.scope import Scope, Span
from cleave.schedule.tile_program import Ref


class Spans:
    """The spans of one kernel; ``extents`` has the symbols whose sizes are static."""

    def __init__(self, region: Region, extents: Mapping[str, int]) -> None:
        self.region, self.extents = region, extents

    @property
    def sizes(self) -> Mapping[str, Size]:
        """The size of each dim of the region."""
        return self.region.sizes

    def span(self, scope: Scope, name: str, offset: Ref, extent: int) -> Span:
        """``extent`` elements of a dim from ``offset`` on."""
        bound = self.bound(scope, name)
        if name in self.region.parts:
            return Span(offset, extent, bound, exact=False)
        known = scope.builder.constant_of(bound)
        exact = extent == 1 if known is None else known > 0 and known % extent == 0
        return Span(offset, extent, bound, exact)

    def bound(self, scope: Scope, name: str) -> Ref:
        """How many elements of the dim there are."""
        bound = scope.builder.extent(self.sizes[name], self.extents)
        return self._part_bound(scope, name, bound) if name in self.region.parts else bound

    def _part_bound(self, scope: Scope, name: str, size: Ref) -> Ref:
        """How much of this part exists: the last parts of a split are shorter, or empty."""
        outer, whole_size = self.region.parts[name]
        builder, part = scope.builder, scope.span(outer)
        if part is None and self.region.parts[name].divides(self.sizes[outer] * self.sizes[name], self.extents):
            return size
        if part is None or part.extent != 1:
            text = f"reducing '{outer}' before '{name}', which is inside its parts, cannot be scheduled yet"
            raise CleaveError(text, notes=(f"unless all parts have as many: {whole_size} = {outer}*{name}",))
        whole = builder.extent(whole_size, self.extents)
        start = builder.arith("minui", builder.arith("muli", part.offset, size), whole)
        return builder.arith("minui", size, builder.arith("subi", whole, start))
