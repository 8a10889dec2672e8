"""Loops: several reductions over the same dims, each with an accumulator."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cleave.dialects.graph import Value
from cleave.schedule.anchors import EMPTY
from cleave.schedule.cascade import Cascades
from cleave.schedule.grouping import Grouping
from cleave.schedule.monoid import COMBINE, accumulator_of, neutral_element
from cleave.schedule.ranges import Iterations, Range, Ranges, Trips
from cleave.schedule.reduction import PartialReductions
from cleave.schedule.scope import Scope, Tiles, tile_type_of
from cleave.schedule.spans import Spans
from cleave.schedule.tile_program import Block, Instruction, Ref, TileBuilder, tile_type
from cleave.schedule.tiling import Tiling


@dataclass(frozen=True)
class _Nest:
    """Loops over ``loops`` in ``scope`` that compute ``group``; ``iterations`` are those of the outermost."""

    group: Sequence[Value]
    loops: Sequence[str]
    scope: Scope
    iterations: Iterations


class Loops:
    """The loops of one kernel."""

    def __init__(self, tiles: Tiles, tiling: Tiling, grouping: Grouping, spans: Spans) -> None:
        self.tiles, self.tiling, self.spans = tiles, tiling, spans
        self.ranges = Ranges(tiles, spans)
        self.partials = PartialReductions(tiles)
        self.masks: list[tuple[Masks, bool]] = []
        """What masks are in the loops so far, and whether they cost enough for a loop of their own."""
        self.computed = False
        """Whether code depends on tile extents in other ways too (see ``Iterations``)."""
        self.grouping, self.cascades = grouping, Cascades(tiles, grouping)

    def emit(self, group: Sequence[Value], scope: Scope) -> None:
        """Compute the reductions of ``group``, which share a loop; their tiles are then in ``scope``."""
        carried, loops = self.cascades.carried(group), self.tiling.looped(group[0])
        initial = [self._initial(reduction, group, scope) for reduction in carried.reductions]
        initial += [self.cascades.initial(centre, group, scope) for centre in carried.centres]
        initial += [scope.builder.fill(EMPTY, tile_type_of(of.w, scope)) for of in carried.anchored]
        self.grouping.open += group
        results = list(self._nest(group, loops, initial, scope))
        del self.grouping.open[-len(group) :]
        for index, reduction in enumerate(carried.reductions):
            if self._deferred(reduction, group):
                results[index] = self._summed(reduction, results[index], scope)
        count = self.spans.bound(scope, loops[0]) if carried.centres else None
        for member in group:
            state = self.grouping.state(member, group)
            scope.tiles[member] = self.cascades.finished(state, group, results, count, scope)

    def _initial(self, member: Value, group: Sequence[Value], scope: Scope) -> Ref:
        dtype = accumulator_of(member)
        kind = member.attrs.get("kind", "sum")
        type_ = tile_type_of(member, scope, dtype)
        if self._deferred(member, group):
            (looped,) = member.attrs["over"]
            extents = {name: type_.size(name).value or 1 for name in type_.names}
            extents[looped] = self.tiling.reduced[looped]
            order = scope.root.order.of(member.operands[0].names)
            type_ = tile_type([(name, extents[name]) for name in order if name in extents], dtype)
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
    ) -> Sequence[Ref]:
        """Loops over ``loops``, outermost first, that carry the accumulators; returns their final values.

        Iterations that need no masks get a loop of their own where masks cost much.
        """
        if not loops:
            return self._update(group, accumulators, scope)
        masked_alike = () if self.cascades.carried(group).centres else group  # what else is carried needs every tile
        iterations = self.ranges.of(masked_alike, loops[0], self.tiling.reduced[loops[0]], scope)
        self.computed |= iterations.computed
        nest = _Nest(group, loops, scope, iterations)
        made, full, trips = iterations.made, iterations.full, iterations.trips
        if iterations.all_full:
            return self._loop(nest, made, trips, self._body(nest, accumulators, masked=False), accumulators)
        masked = self._body(nest, accumulators, masked=True)
        unmasked = None if iterations.none_full else self._body(nest, accumulators, masked=False)
        if unmasked is None or not self._cost(unmasked, masked):
            return self._loop(nest, made, trips, masked, accumulators)
        results = self._loop(nest, full, replace(trips, kind="full"), unmasked, accumulators)
        return self._edges(nest, masked, results)

    def _cost(self, unmasked: Block, masked: Block) -> bool:
        masks = _elements(masked)
        masks.subtract(_elements(unmasked))
        cost = masks_cost(masks, self.tiling.tiles)
        self.masks.append((masks, cost))
        return cost

    def _body(self, nest: _Nest, accumulators: Sequence[Ref], *, masked: bool) -> Block:
        """One iteration. Its first argument is where its tile begins."""
        name = nest.loops[0]
        block = Block((Ref(), *(Ref(accumulator.type) for accumulator in accumulators)))
        outcomes = {} if masked else nest.iterations.outcomes
        inner = Scope(TileBuilder(block, nest.scope.builder), nest.scope, {}, outcomes=outcomes)
        span = self.spans.span(nest.scope, name, block.arguments[0], self.tiling.reduced[name])
        inner.spans[name] = span if masked else replace(span, exact=True)
        block.yields = tuple(self._nest(nest.group, nest.loops[1:], block.arguments[1:], inner))
        return block

    def _loop(
        self, nest: _Nest, over: Range, course: Trips, block: Block, accumulators: Sequence[Ref], **attrs: int
    ) -> tuple[Ref, ...]:
        results = tuple(Ref(accumulator.type) for accumulator in accumulators)
        builder, name = nest.scope.builder, nest.loops[0]
        tile = self.tiling.reduced[name]
        operands = (over.start, over.stop, builder.index(tile), *accumulators)
        about = {"dim": name, "trips": partial(course.count, self.tiling.tiles), "course": course, **attrs}
        location = nest.group[-1].location
        builder.block.instructions.append(Instruction("scf.for", operands, results, about, block, location))
        return results

    def _edges(self, nest: _Nest, block: Block, accumulators: Sequence[Ref]) -> tuple[Ref, ...]:
        """The iterations before and after those without masks, as one loop."""
        made, full = nest.iterations.made, nest.iterations.full
        rest = replace(nest.iterations.trips, kind="rest")
        if not nest.iterations.outcomes:
            return self._loop(nest, Range(full.stop, made.stop), rest, block, accumulators, stages=EDGE_STAGES)
        if not nest.iterations.before:
            return self._loop(nest, Range(full.stop, made.stop), rest, block, accumulators)
        builder = nest.scope.builder
        gap = builder.arith("maxsi", builder.arith("subi", full.stop, full.start), builder.index(0))
        stop = builder.arith("subi", made.stop, gap)
        return self._loop(nest, Range(made.start, stop), rest, self._jumping(nest, block, gap), accumulators)

    def _jumping(self, nest: _Nest, block: Block, gap: Ref) -> Block:
        """The iteration with tiles from the start of the full ones on moved by ``gap``."""
        builder, tile = TileBuilder(Block(), nest.scope.builder), self.tiling.reduced[nest.loops[0]]
        index, size = Ref(), builder.index(tile)
        past = builder.arith("addi", builder.arith("subi", index, nest.iterations.full.start), size)
        past = builder.arith("minsi", builder.arith("maxsi", past, builder.index(0)), size)  # 0 or the tile's extent
        moved = builder.arith("muli", builder.arith("divui", past, size), gap)
        begins = builder.arith("addi", index, moved)  # always below the end, which says so in terms of sizes
        begin = Instruction("arith.minsi", (begins, nest.iterations.made.stop), (block.arguments[0],))
        instructions = [*builder.block.instructions, begin, *block.instructions]
        return Block((index, *block.arguments[1:]), instructions, block.yields)

    def _update(self, group: Sequence[Value], accumulators: Sequence[Ref], scope: Scope) -> list[Ref]:
        """One iteration: each accumulator with this tile's part; later members see the earlier ones' running values."""
        carried, running = self.cascades.carried(group), frozenset(group)
        before, _ = carried.unpack(accumulators)
        read = [member for member in group if any(member in self.tiles.region.upstream[other] for other in group)]
        old_tiles = {member: scope.builder.cast(before[member], member.dtype) for member in read}
        old = Scope(scope.builder, scope, {}, old_tiles, running)
        scope.running, scope.anchored = running, self.cascades.anchored(group)
        for of, shift in carried.anchors(accumulators):
            self.cascades.rescaling.keep(of, shift, old)
        results: dict[Value, Ref] = {}
        for member in group:
            state = self.grouping.state(member, group)
            for reduction, tile in self.cascades.corrected(state, carried, accumulators, old, scope).items():
                part = self.partials.elements if self._deferred(reduction, group) else self.partials.partial
                results[reduction] = self._combine(reduction, tile, part(reduction, scope), scope)
            if member in read:
                loop = self.tiling.looped(member)[-1]
                scope.tiles[member] = self.cascades.estimate(member, results[member], loop, scope)
        centres = [self.cascades.centre(a, scope) for a in carried.centres]
        anchors = [self.cascades.rescaling.anchor(of, scope).shift for of in carried.anchored]
        return [*results.values(), *centres, *anchors]

    def _combine(self, member: Value, accumulated: Ref, part: Ref, scope: Scope) -> Ref:
        op = COMBINE[member.attrs.get("kind", "sum")]
        return scope.builder.compute(op, accumulated, part, order=accumulated.names, location=member.location)


Masks = Mapping[tuple[str, ...], int]
"""By the dims of a tile: in how many tiles more register code computes elements with masks than without."""


def masks_cost(masks: Masks, tiles: Mapping[str, int]) -> bool:
    """Whether masks are so much work on tiles that iterations without them had better be a loop of their own.

    Masks of loads alone cost nothing that was measured: of aligned rows they are one predicate for 16 bytes.
    """
    elements = sum(count * math.prod(tiles[name] for name in names) for names, count in masks.items())
    return elements >= MASKED_ELEMENTS


MASKED_ELEMENTS = 2048
"""Elements that masks must cost in an iteration, so that leaving them out saves more than it costs to begin another
loop, which waits for its first loads."""
EDGE_STAGES = 2
"""Pipeline stages of a loop of at most one iteration: its copies are asynchronous and take no registers."""


def _elements(block: Block) -> Counter[tuple[str, ...]]:
    """How many tiles of these dims register code computes in one iteration."""
    return Counter(
        i.result.names
        for i in block.walk()
        if i.op not in ("load", "contract") and not i.body and i.results and i.result.type
    )
