"""Loops: several reductions over the same dims, each with an accumulator."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.dialects.graph import Value
from cleave.schedule.grouping import Grouping
from cleave.schedule.monoid import COMBINE, accumulator_of, neutral_element
from cleave.schedule.reduction import PartialReductions
from cleave.schedule.rescale import Rescaling
from cleave.schedule.scope import Scope, Tiles, tile_type_of
from cleave.schedule.spans import Spans
from cleave.schedule.tile_program import Block, Instruction, Ref, TileBuilder
from cleave.schedule.tiling import Tiling


class Loops:
    """The loops of one kernel."""

    def __init__(self, tiles: Tiles, tiling: Tiling, grouping: Grouping, spans: Spans) -> None:
        self.tiles, self.tiling, self.spans = tiles, tiling, spans
        self.partials = PartialReductions(tiles)
        self.rescaling = Rescaling(tiles, grouping)

    def emit(self, group: Sequence[Value], scope: Scope) -> None:
        """Compute the reductions of ``group``, which share a loop; their tiles are then in ``scope``."""
        initial = [self._initial(member, scope) for member in group]
        results = self._nest(group, self.tiling.looped(group[0]), initial, scope)
        for member, result in zip(group, results, strict=True):
            scope.tiles[member] = scope.builder.cast(result, member.dtype)
        for member in group:
            self.rescaling.as_in_source(member, group, scope)

    def _initial(self, member: Value, scope: Scope) -> Ref:
        dtype = accumulator_of(member)
        kind = member.attrs.get("kind", "sum")
        return scope.builder.fill(neutral_element(kind, dtype), tile_type_of(member, scope, dtype))

    def _nest(
        self, group: Sequence[Value], loops: Sequence[str], accumulators: Sequence[Ref], scope: Scope
    ) -> list[Ref]:
        """Loops over ``loops``, outermost first, that carry the accumulators; returns their final values."""
        if not loops:
            return self._update(group, accumulators, scope)
        name, tile = loops[0], self.tiling.reduced[loops[0]]
        builder = scope.builder
        body = Block((Ref(), *(Ref(accumulator.type) for accumulator in accumulators)))
        inner = Scope(TileBuilder(body, builder), scope, {})
        inner.spans[name] = self.spans.span(scope, name, body.arguments[0], tile)
        body.yields = tuple(self._nest(group, loops[1:], list(body.arguments[1:]), inner))
        results = tuple(Ref(accumulator.type) for accumulator in accumulators)
        attrs = {"dim": name, "size": self.spans.sizes[name], "step": tile}
        bounds = (builder.index(0), inner.spans[name].bound, builder.index(tile))
        builder.block.instructions.append(
            Instruction("scf.for", (*bounds, *accumulators), results, attrs, body, group[-1].location)
        )
        return list(results)

    def _update(self, group: Sequence[Value], accumulators: Sequence[Ref], scope: Scope) -> list[Ref]:
        """One iteration: each accumulator with this tile's part; later members see the earlier ones' running values."""
        before = [scope.builder.cast(tile, member.dtype) for member, tile in zip(group, accumulators, strict=True)]
        old = Scope(scope.builder, scope, {}, dict(zip(group, before, strict=True)), frozenset(group))
        scope.running = frozenset(group)
        results: list[Ref] = []
        for member, accumulator_ in zip(group, accumulators, strict=True):
            accumulated = self.rescaling.rescaled(member, accumulator_, group, old, scope)
            combined = self._combine(member, accumulated, self.partials.partial(member, scope), scope)
            if any(member in self.tiles.region.upstream[other] for other in group):
                scope.tiles[member] = scope.builder.cast(combined, member.dtype)
            results.append(combined)
        return results

    def _combine(self, member: Value, accumulated: Ref, part: Ref, scope: Scope) -> Ref:
        op = COMBINE[member.attrs.get("kind", "sum")]
        return scope.builder.compute(op, accumulated, part, order=accumulated.names, location=member.location)
