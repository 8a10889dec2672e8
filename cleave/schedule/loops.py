"""Loops: several reductions over the same dims, each with an accumulator."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.dialects.graph import Value
from cleave.schedule.cascade import Cascades
from cleave.schedule.grouping import Grouping
from cleave.schedule.monoid import COMBINE, accumulator_of, neutral_element
from cleave.schedule.reduction import PartialReductions
from cleave.schedule.scope import Scope, Tiles, tile_type_of
from cleave.schedule.spans import Spans
from cleave.schedule.tile_program import Block, Instruction, Ref, TileBuilder, tile_type
from cleave.schedule.tiling import Tiling


class Loops:
    """The loops of one kernel."""

    def __init__(self, tiles: Tiles, tiling: Tiling, grouping: Grouping, spans: Spans) -> None:
        self.tiles, self.tiling, self.spans = tiles, tiling, spans
        self.partials = PartialReductions(tiles)
        self.grouping, self.cascades = grouping, Cascades(tiles, grouping)

    def emit(self, group: Sequence[Value], scope: Scope) -> None:
        """Compute the reductions of ``group``, which share a loop; their tiles are then in ``scope``."""
        carried, loops = self.cascades.carried(group), self.tiling.looped(group[0])
        initial = [self._initial(reduction, group, scope) for reduction in carried.reductions]
        initial += [self.cascades.initial(centre, group, scope) for centre in carried.centres]
        self.grouping.open += group
        results = self._nest(group, loops, initial, scope)
        del self.grouping.open[-len(group) :]
        for index, reduction in enumerate(carried.reductions):
            if self._deferred(reduction, group):
                results[index] = self._summed(reduction, results[index], scope)
        count = self.spans.bound(scope, loops[0]) if carried.centres else None
        for member in group:
            state = self.grouping.state(member, group)
            scope.tiles[member] = self.cascades.finished(state, carried, results, count, scope)

    def _initial(self, member: Value, group: Sequence[Value], scope: Scope) -> Ref:
        dtype = accumulator_of(member)
        kind = member.attrs.get("kind", "sum")
        type_ = tile_type_of(member, scope, dtype)
        if self._deferred(member, group):
            (looped,) = member.attrs["over"]
            dims = [
                *((name, type_.size(name).value or 1) for name in type_.names),
                (looped, self.tiling.reduced[looped]),
            ]
            type_ = tile_type(sorted(dims, key=lambda dim: dim[0] in self.tiling.columns), dtype)
        return scope.builder.fill(neutral_element(kind, dtype), type_)

    def _deferred(self, member: Value, group: Sequence[Value]) -> bool:
        """Whether the loop keeps a sum for each element of its tile: one that nothing in the loop uses."""
        if not self.tiling.deferred or member not in group or member.attrs.get("kind") != "sum":
            return False
        used = any(member in self.tiles.region.upstream[other] for other in group)
        if used or self.grouping.state(member, group).centres:
            return False
        over = member.attrs["over"]
        tiled = len(over) == 1 and over[0] not in self.tiling.resident and self.tiling.reduced[over[0]] > 1
        return tiled and over[0] in member.operands[0].names

    def _summed(self, member: Value, elements: Ref, scope: Scope) -> Ref:
        over = tuple(member.attrs["over"])
        order = [name for name in elements.names if name not in over]
        return scope.builder.compute("reduce", elements, kind="sum", over=over, order=order, location=member.location)

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
        carried, running = self.cascades.carried(group), frozenset(group)
        before, _ = carried.unpack(accumulators)
        old_tiles = {member: scope.builder.cast(before[member], member.dtype) for member in group}
        old = Scope(scope.builder, scope, {}, old_tiles, running)
        scope.running = running
        results: dict[Value, Ref] = {}
        for member in group:
            state = self.grouping.state(member, group)
            for reduction, tile in self.cascades.corrected(state, carried, accumulators, old, scope).items():
                part = self.partials.elements if self._deferred(reduction, group) else self.partials.partial
                results[reduction] = self._combine(reduction, tile, part(reduction, scope), scope)
            if any(member in self.tiles.region.upstream[other] for other in group):
                loop = self.tiling.looped(member)[-1]
                scope.tiles[member] = self.cascades.estimate(member, results[member], loop, scope)
        return [*results.values(), *(self.cascades.centre(a, scope) for a in carried.centres)]

    def _combine(self, member: Value, accumulated: Ref, part: Ref, scope: Scope) -> Ref:
        op = COMBINE[member.attrs.get("kind", "sum")]
        return scope.builder.compute(op, accumulated, part, order=accumulated.names, location=member.location)
