"""From a region and its tiling to a kernel: iterative tiling and horizontal fusion.

Work is driven by demand from the outputs. A value is computed in the outermost scope that has all its dims, which is
what hoists loop-invariant work. A reduction over a looped dim opens a loop in its scope, together with the other
reductions there over the same dim that share upstream work (one loop, several accumulators); the operands are then
demanded inside, where the same rule opens the next loops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cleave.dialects.graph import Value
from cleave.dialects.ops import POINTWISE
from cleave.dialects.tensor_type import TensorType, accumulator
from cleave.schedule.anchors import exponential
from cleave.schedule.balance import longest_first
from cleave.schedule.bottom_up import bottom_up
from cleave.schedule.coarsening import BlockTrips
from cleave.schedule.gather import Gathers
from cleave.schedule.grouping import Grouping
from cleave.schedule.index_math import Grid, grid_of
from cleave.schedule.loops import Loops, Masks
from cleave.schedule.padding import outside
from cleave.schedule.ranges import Trips, growing
from cleave.schedule.reduction import PartialReductions
from cleave.schedule.region import Region
from cleave.schedule.reindex import is_of_equal_elements
from cleave.schedule.rename import renamed, viewed
from cleave.schedule.scope import Scope, home_of, position, tile_type_of
from cleave.schedule.separability import BASES
from cleave.schedule.spans import Spans
from cleave.schedule.tile_order import tile_order
from cleave.schedule.tile_program import Block, Instruction, Kernel, Ref, TileBuilder, tile_type
from cleave.schedule.tile_sizes import value_of
from cleave.schedule.tiling import Fusion, Tiling


@dataclass(frozen=True)
class Emitted:
    """A kernel and the graph values that its arguments hold, in order; ``estimates``: whether it uses any.

    ``masks``: where code depends on what masks cost, how it does; None where extents matter in other ways too.
    """

    kernel: Kernel
    operands: tuple[Value, ...]
    estimates: bool
    masks: tuple[tuple[Masks, bool], ...] | None = None


def emit_kernel(name: str, region: Region, tiling: Tiling, extents: Mapping[str, int], fusion: Fusion) -> Emitted:
    """The kernel that computes ``region``; ``extents`` has the symbols whose sizes are static."""
    emitter = Emitter(region, tiling, extents, fusion)
    kernel = emitter.emit(name)
    masks = None if emitter.loops.computed else tuple(emitter.loops.masks)
    return Emitted(kernel, tuple(emitter.arguments), emitter.grouping.estimates, masks)


def tile_counts(region: Region, tiling: Tiling, sizes: Mapping[str, int]) -> dict[str, int]:
    """How many tiles the grid has along each of its dims, in order, where symbols have these sizes."""
    order = _ordered(region, tiling, tiling.on_grid(region.parallel))
    occupied = _occupied(region, order, region.outputs)
    counts = {name: -(-value_of(region.sizes[name], sizes) // tiling.of_block(name)) for name in order}
    return {name: max(count, int(name in occupied)) for name, count in counts.items()}


def _holder(value: Value, scope: Scope) -> Scope | None:
    """The scope that takes the exponential ``value`` from an anchor: this one, or one around it."""
    return next((each for each in scope.outward() if value in each.anchored), None)


def _is_decided(value: Value, scope: Scope) -> bool:
    """Whether the loops of ``scope`` leave a comparison, or the one that a select is by, one outcome."""
    asked = value.operands[0] if value.op == "select" else value
    return scope.outcome(value) is not None or scope.outcome(asked) is not None


def _grid(region: Region, tiling: Tiling, order: Sequence[str], written: Sequence[Value]) -> Grid:
    tiles = [(name, region.sizes[name], tiling.of_block(name)) for name in _ordered(region, tiling, order)]
    return grid_of(tiles, tiling.group, growing(region), _occupied(region, order, written))


def _ordered(region: Region, tiling: Tiling, order: Sequence[str]) -> Sequence[str]:
    return longest_first(order, growing(region)) if tiling.longest_first else order


def _occupied(region: Region, order: Sequence[str], written: Sequence[Value]) -> frozenset[str]:
    """Dims with a block where they are empty: those that not all tensors ``written`` have, but for numbers of parts,
    which are never 0."""
    sizes, pairs = region.sizes, [(part.outer, inner) for inner, part in region.parts.items()]
    known = [(outer, inner) for outer, inner in pairs if outer in sizes and inner in sizes]
    counts = {outer for outer, inner in known if sizes[outer].symbols <= sizes[inner].symbols}
    return frozenset(name for name in order if not all(name in value.names for value in written)) - counts


def roles_of(arguments: Mapping[Value, Ref]) -> dict[Ref, Ref]:
    """Arguments that are the same tensor under other names as an earlier one."""
    first: dict[Value, Ref] = {}
    for value, argument in arguments.items():
        first.setdefault(renamed(value), argument)
    same = {argument: first[renamed(value)] for value, argument in arguments.items()}
    return {argument: other for argument, other in same.items() if argument is not other}


def _reference(value: Value) -> Ref:
    """A tensor in memory, or a view of one."""
    whole = viewed(value)
    return Ref(value.type, whole.dims[-1].size if whole is not value and whole.dims else None)


class Emitter:
    """Builds what a region computes: a whole kernel or, where the spans of the grid's dims are given, within one."""

    def __init__(self, region: Region, tiling: Tiling, extents: Mapping[str, int], fusion: Fusion) -> None:
        self.region, self.tiling, self.extents = region, tiling, extents
        self.order = tile_order(region.reductions, tiling.columns)
        self.spans = Spans(region, extents)
        self.gathers = Gathers(self, extents)
        self.partials = PartialReductions(self)
        self.grouping = Grouping(region, tiling, fusion)
        self.loops = Loops(self, tiling, self.grouping, self.spans)
        self.arguments = {value: _reference(value) for value in (*region.reads, *region.outputs)}
        self.begins: dict[str, Ref] = {}
        """Where the block's part of a dim begins of which it goes through several tiles."""

    # --- the kernel ---

    def emit(self, name: str) -> Kernel:
        root = Scope(TileBuilder(Block()), None, {}, order=self.order)
        grid = self.open_grid(root, self.tiling.on_grid(self.region.parallel), self.region.outputs)
        self.compute(root)
        written = tuple(self.arguments[output] for output in self.region.outputs)
        arguments = tuple(self.arguments.values())
        block, roles = root.builder.block, roles_of(self.arguments)
        return Kernel(name, arguments, written, (grid.size,), block, 4, 1, order=grid.order, roles=roles)

    def compute(self, root: Scope) -> None:
        """All outputs, where the dims of the grid are in hand."""
        for dim in sorted(self.tiling.resident):
            root.spans[dim] = self.spans.span(root, dim, root.builder.index(0), self.tiling.tiles[dim])
        looped = self.tiling.walked | self.tiling.coarsened.keys()
        groups: dict[frozenset[str], list[tuple[Value, Value]]] = {}
        for pair in zip(self.region.outputs, self.region.results, strict=True):
            groups.setdefault(frozenset(looped.intersection(pair[0].names)), []).append(pair)
        for walked, pairs in groups.items():
            self._walk(sorted(walked), pairs, root)

    def _walk(self, dims: Sequence[str], pairs: Sequence[tuple[Value, Value]], scope: Scope) -> None:
        """Store outputs, in loops over dims of which the block has several tiles."""
        if not dims:
            for output, result in pairs:
                self._store(output, self.value(result, scope), scope)
            return
        name, tile = dims[0], self.tiling.grid[dims[0]]
        block, builder = Block((Ref(),)), scope.builder
        inner = Scope(TileBuilder(block, builder), scope, {})
        inner.spans[name] = self.spans.span(scope, name, block.arguments[0], tile)
        self._walk(dims[1:], pairs, inner)
        operands = (*self._stretch(name, scope), builder.index(tile))
        count = self.tiling.coarsened.get(name)
        course = BlockTrips(name, self.spans.sizes[name], count) if count else Trips(name, self.spans.sizes)
        about = {"dim": name, "trips": partial(course.count, self.tiling.tiles), "course": course}
        builder.block.instructions.append(Instruction("scf.for", operands, (), about, block, pairs[0][0].location))

    def _stretch(self, name: str, scope: Scope) -> tuple[Ref, Ref]:
        """Where the tiles of a dim begin and end that the block goes through: the whole dim, or its own part."""
        builder, bound = scope.builder, self.spans.bound(scope, name)
        if name not in self.begins:
            return builder.index(0), bound
        begin, extent = self.begins[name], self.tiling.of_block(name)
        end, known = builder.arith("addi", begin, builder.index(extent)), builder.constant_of(bound)
        whole = known and known % extent == 0
        return begin, end if whole else builder.arith("minui", end, bound)

    def open_grid(self, root: Scope, order: Sequence[str], written: Sequence[Value]) -> Grid:
        """One block for each tile; the last dim of ``order`` varies fastest, but for what the tiling says.

        A dim that is not in all tensors that are ``written`` may be empty, and those without it still have elements.
        """
        grid, occupied = _grid(self.region, self.tiling, order, written), _occupied(self.region, order, written)
        offsets = grid.offsets(root.builder, self.extents)
        self.begins = {name: offsets.pop(name) for name in self.tiling.coarsened}
        for name, offset in sorted(offsets.items(), key=lambda item: item[0] in self.region.parts):
            span = self.spans.span(root, name, offset, self.tiling.grid[name])
            exists = name not in occupied or root.builder.constant_of(span.bound) is not None
            root.spans[name] = span if exists else replace(span, exact=False)
        return grid

    def _store(self, output: Value, tile: Ref, scope: Scope) -> None:
        destination = self.arguments[output]
        spans = [scope.required_span(name) for name in output.names]
        exact = tuple(name for name, span in zip(output.names, spans, strict=True) if span.exact)
        tile = self._broadcast(scope.builder.cast(tile, output.dtype), output, scope)
        operands = (tile, destination, *(s.offset for s in spans), *(s.bound for s in spans))
        attrs = {"segments": (1, 1, len(spans), len(spans)), **({"in_bounds": exact} if exact else {})}
        scope.builder.block.instructions.append(Instruction("store", operands, (), attrs, None, output.location))

    def _broadcast(self, tile: Ref, value: Value, scope: Scope) -> Ref:
        """The tile with all of the value's tile dims (a constant, say, has none)."""
        wanted = tile_type_of(value, scope)
        if set(tile.names) == set(wanted.names):
            return tile
        zero = scope.builder.fill(0, wanted)
        return scope.builder.compute("add" if value.dtype != "i1" else "max", tile, zero, order=wanted.names)

    # --- values ---

    def value(self, value: Value, scope: Scope) -> Ref:
        """The tile of ``value``, computed in its home scope if it has not been."""
        home = home_of(value, scope, self.region)
        if value not in home.tiles:
            bottom_up({}, (value, home), self._operands, self._tile)
        return home.tiles[value]

    def _operands(self, key: tuple[Value, Scope]) -> list[tuple[Value, Scope]]:
        """What a pointwise op is computed of, each with its home scope."""
        value, home = key
        if value in home.tiles or value in self.region.memory or value.op not in POINTWISE:
            return []
        if _is_decided(value, home) or (value.op in BASES and _holder(value, home)):
            return []
        return [(operand, home_of(operand, home, self.region)) for operand in value.operands]

    def _tile(self, key: tuple[Value, Scope]) -> Ref:
        value, home = key
        if value not in home.tiles:
            home.tiles[value] = self._compute(value, home)
            for name in value.names:  # now: a mask that an operand gets later is not in this tile
                if name in self.tiling.reduced and not home.required_span(name).exact:
                    pad = outside(value, name, self.region, home.pad)
                    home.pads.setdefault((value, name), math.nan if pad is None else pad)
        return home.tiles[value]

    def _compute(self, value: Value, scope: Scope) -> Ref:
        if value in self.region.memory:
            return self._load(value, scope)
        if value.op == "constant":
            return scope.builder.fill(value.attrs["value"], tile_type([], value.dtype))
        if value.op == "index":
            return self._index(value, scope)
        if value.op == "gather":
            return self.gathers.load(value, self.arguments, scope)
        if value.op in POINTWISE:
            return (value.op in BASES and self._anchored(value, scope)) or self._pointwise(value, scope)
        return self._reduction(value, scope)

    def _load(self, value: Value, scope: Scope) -> Ref:
        spans = [scope.required_span(name) for name in value.names]
        exact = tuple(name for name, span in zip(value.names, spans, strict=True) if span.exact)
        attrs = {"fill": 0, "segments": (1, len(spans), len(spans)), **({"in_bounds": exact} if exact else {})}
        operands = [self.arguments[value], *(s.offset for s in spans), *(s.bound for s in spans)]
        extents = {name: span.extent for name, span in zip(value.names, spans, strict=True) if span.extent > 1}
        order = scope.root.order
        names = order.of(list(extents)) if order.loads else extents
        tile = tile_type([(name, extents[name]) for name in names], value.dtype)
        return scope.builder.add("load", operands, tile, value.location, **attrs)

    def _index(self, value: Value, scope: Scope) -> Ref:
        (dim,) = value.dims
        return scope.builder.cast(position(dim.name, scope), value.dtype)

    def _anchored(self, value: Value, scope: Scope) -> Ref | None:
        """An exponential that the loop of ``scope``, or one around it, takes from an anchor."""
        holder = _holder(value, scope)
        if holder is None:
            return None
        of, order = holder.anchored[value], tile_type_of(value, scope).names
        tile, at = self.value(of.z, scope), self.loops.cascades.rescaling.anchor(of, holder)
        return exponential(scope.builder, tile, at, order, value.location)

    def _pointwise(self, value: Value, scope: Scope) -> Ref:
        outcome = scope.outcome(value)
        if outcome is not None:
            return scope.builder.fill(outcome, tile_type([], "i1"))
        if value.op == "select" and (chosen := scope.outcome(value.operands[0])) is not None:
            return self.value(value.operands[1 if chosen else 2], scope)
        for operand in value.operands:
            self.value(operand, scope)  # all before any is used: one may be a reduction that masks another one's tile
        operands = [self.value(operand, scope) for operand in value.operands]
        order = tile_type_of(value, scope).names
        names = {name for operand in operands for name in operand.names}
        if value.op == "cast" and operands[0].type == tile_type_of(value, scope):
            return operands[0]  # it only fixes the order of dims of a tensor
        return scope.builder.compute(
            value.op,
            *operands,
            dtype=value.dtype,
            location=value.location,
            order=[name for name in order if name in names],
            **value.attrs,
        )

    # --- reductions ---

    def _reduction(self, value: Value, scope: Scope) -> Ref:
        if is_of_equal_elements(value):
            return self._constant_reduction(value, scope)
        if not self.tiling.looped(value):
            return scope.builder.cast(self.partials.partial(value, scope), value.dtype)
        self.loops.emit(self.grouping.group_of(value, scope), scope)
        return scope.tiles[value]

    def _constant_reduction(self, value: Value, scope: Scope) -> Ref:
        """A sum of equal elements is their number times one of them; their maximum or minimum is one of them."""
        builder, dtype = scope.builder, accumulator(value.dtype)
        tile = builder.fill(value.operands[0].attrs["value"], tile_type([], dtype))
        for name in value.attrs["over"] if value.attrs["kind"] == "sum" else ():
            count = builder.add("splat", [self.spans.bound(scope, name)], TensorType((), "i64"))
            tile = builder.compute("mul", tile, builder.cast(count, dtype))
        return builder.cast(tile, value.dtype)
