"""From a region and its tiling to a kernel: iterative tiling and horizontal fusion.

Work is driven by demand from the outputs. A value is computed in the outermost scope that has all its dims, which is
what hoists loop-invariant work. A reduction over a looped dim opens a loop in its scope, together with the other
reductions there over the same dim that share upstream work (one loop, several accumulators); the operands are then
demanded inside, where the same rule opens the next loops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleave.dialects.graph import Value
from cleave.dialects.ops import POINTWISE, TensorType, accumulator
from cleave.dialects.rounding import transparent
from cleave.errors import CleaveError
from cleave.schedule.index_math import Grid, grid_of
from cleave.schedule.monoid import COMBINE, accumulator_of, neutral_element
from cleave.schedule.padding import outside
from cleave.schedule.region import Region
from cleave.schedule.scope import Scope, Span
from cleave.schedule.separability import Cascade, Factors, unguarded
from cleave.schedule.tile_program import Block, Instruction, Kernel, Ref, TileBuilder, tile_type


@dataclass(frozen=True)
class Tiling:
    """Tile extents: of the output dims (1: one element for each block), and of the reduced dims.

    ``resident`` dims are covered by one tile, without a loop.
    """

    grid: Mapping[str, int]
    reduced: Mapping[str, int]
    resident: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Fusion:
    """Ablation switches: ``horizontal`` puts reductions that share work into one loop."""

    horizontal: bool = True


@dataclass(frozen=True)
class Emitted:
    """A kernel and the graph values that its arguments hold, in order."""

    kernel: Kernel
    operands: tuple[Value, ...]


def emit_kernel(name: str, region: Region, tiling: Tiling, extents: Mapping[str, int], fusion: Fusion) -> Emitted:
    """The kernel that computes ``region``; ``extents`` has the symbols whose sizes are static."""
    emitter = _Emitter(region, tiling, extents, fusion)
    kernel = emitter.emit(name)
    return Emitted(kernel, tuple(emitter.arguments))


class _Emitter:
    def __init__(self, region: Region, tiling: Tiling, extents: Mapping[str, int], fusion: Fusion) -> None:
        self.region, self.tiling, self.extents, self.fusion = region, tiling, extents, fusion
        self.sizes = {dim.name: dim.size for value in region.upstream for dim in value.dims}
        self.transparent = transparent(region.values, region.results)
        self._known_factors: dict[tuple[Value, frozenset[Value]], Factors | None] = {}

    # --- the kernel ---

    def emit(self, name: str) -> Kernel:
        self.arguments = {value: Ref(value.type) for value in (*self.region.reads, *self.region.outputs)}
        root = Scope(TileBuilder(Block()), None, {})
        grid = self._open_grid(root)
        for dim in sorted(self.tiling.resident):
            root.spans[dim] = self._span(root, dim, root.builder.index(0), self.tiling.reduced[dim])
        for output, result in zip(self.region.outputs, self.region.results, strict=True):
            self._store(output, self.value(result, root), root)
        written = tuple(self.arguments[output] for output in self.region.outputs)
        arguments = tuple(self.arguments.values())
        return Kernel(name, arguments, written, (grid.size,), root.builder.block, num_warps=4, num_stages=1)

    def _open_grid(self, root: Scope) -> Grid:
        grid = grid_of([(name, self.sizes[name], self.tiling.grid[name]) for name in self.region.parallel])
        offsets = grid.offsets(root.builder, self.extents)
        for name, offset in sorted(offsets.items(), key=lambda item: item[0] in self.region.parts):
            root.spans[name] = self._span(root, name, offset, self.tiling.grid[name])
        return grid

    def _span(self, scope: Scope, name: str, offset: Ref, extent: int) -> Span:
        bound = scope.builder.extent(self.sizes[name], self.extents)
        if name in self.region.parts:
            return Span(offset, extent, self._part_bound(scope, name, bound), exact=False)
        known = scope.builder.constant_of(bound)
        exact = extent == 1 if known is None else known > 0 and known % extent == 0
        return Span(offset, extent, bound, exact)

    def _part_bound(self, scope: Scope, name: str, size: Ref) -> Ref:
        """How much of this part exists: the last parts of a split are shorter, or empty."""
        outer, whole_size = self.region.parts[name]
        builder, part = scope.builder, scope.span(outer)
        if part is None or part.extent != 1:
            raise CleaveError(f"reducing '{outer}' before '{name}', which is inside its parts, cannot be scheduled yet")
        whole = builder.extent(whole_size, self.extents)
        start = builder.arith("minui", builder.arith("muli", part.offset, size), whole)
        return builder.arith("minui", size, builder.arith("subi", whole, start))

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
        wanted = self._tile_type(value, scope)
        if set(tile.names) == set(wanted.names):
            return tile
        zero = scope.builder.fill(0, wanted)
        return scope.builder.compute("add" if value.dtype != "i1" else "max", tile, zero, order=wanted.names)

    def _tile_type(self, value: Value, scope: Scope, dtype: str | None = None) -> TensorType:
        spans = [(name, scope.required_span(name).extent) for name in value.names]
        return tile_type([(name, extent) for name, extent in spans if extent > 1], dtype or value.dtype)

    # --- values ---

    def value(self, value: Value, scope: Scope) -> Ref:
        """The tile of ``value``, computed in its home scope if it has not been."""
        home = self._home(value, scope)
        if value not in home.tiles:
            home.tiles[value] = self._compute(value, home)
            for name in value.names:  # now: a mask that an operand gets later is not in this tile
                pad = outside(value, name, self.region, home.pad)
                home.pads.setdefault((value, name), math.nan if pad is None else pad)
        return home.tiles[value]

    def _home(self, value: Value, scope: Scope) -> Scope:
        while scope.parent and not self._needs(value, scope):
            scope = scope.parent
        return scope

    def _needs(self, value: Value, scope: Scope) -> bool:
        return (
            value in scope.tiles
            or any(n in scope.spans for n in value.names)
            or (bool(scope.running) and self.region.depends(value, scope.running))
        )

    def _compute(self, value: Value, scope: Scope) -> Ref:
        if value in self.region.memory:
            return self._load(value, scope)
        if value.op == "constant":
            return scope.builder.fill(value.attrs["value"], tile_type([], value.dtype))
        if value.op == "index":
            return self._index(value, scope)
        if value.op in POINTWISE:
            return self._pointwise(value, scope)
        return self._reduction(value, scope)

    def _load(self, value: Value, scope: Scope) -> Ref:
        spans = [scope.required_span(name) for name in value.names]
        exact = tuple(name for name, span in zip(value.names, spans, strict=True) if span.exact)
        attrs = {"fill": 0, "segments": (1, len(spans), len(spans)), **({"in_bounds": exact} if exact else {})}
        operands = [self.arguments[value], *(s.offset for s in spans), *(s.bound for s in spans)]
        return scope.builder.add("load", operands, self._tile_type(value, scope), value.location, **attrs)

    def _index(self, value: Value, scope: Scope) -> Ref:
        (dim,) = value.dims
        return scope.builder.cast(self._position(dim.name, scope), value.dtype)

    def _position(self, name: str, scope: Scope) -> Ref:
        """The global index along a dim, i64."""
        span, builder = scope.required_span(name), scope.builder
        offset = builder.add("splat", [span.offset], TensorType((), "i64"))
        if span.extent == 1:
            return offset
        within = builder.add("index", (), tile_type([(name, span.extent)], "i64"), dim=f"{name}={span.extent}")
        return within if builder.constant_of(span.offset) == 0 else builder.compute("add", within, offset)

    def _pointwise(self, value: Value, scope: Scope) -> Ref:
        for operand in value.operands:
            self.value(operand, scope)  # all before any is used: one may be a reduction that masks another one's tile
        operands = [self.value(operand, scope) for operand in value.operands]
        order = self._tile_type(value, scope).names
        names = {name for operand in operands for name in operand.names}
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
        if value.op == "reduce" and value.operands[0].op == "constant" and value.attrs["kind"] != "prod":
            return self._constant_reduction(value, scope)
        if not self._looped(value):
            return scope.builder.cast(self._partial(value, scope), value.dtype)
        group = self._group(value, scope)
        self._emit_loop(group, scope)
        return scope.tiles[value]

    def _constant_reduction(self, value: Value, scope: Scope) -> Ref:
        """A sum of equal elements is their number times one of them; their maximum or minimum is one of them."""
        builder, dtype = scope.builder, accumulator(value.dtype)
        tile = builder.fill(value.operands[0].attrs["value"], tile_type([], dtype))
        for name in value.attrs["over"] if value.attrs["kind"] == "sum" else ():
            count = builder.add("splat", [builder.extent(self.sizes[name], self.extents)], TensorType((), "i64"))
            tile = builder.compute("mul", tile, builder.cast(count, dtype))
        return builder.cast(tile, value.dtype)

    def _looped(self, value: Value) -> tuple[str, ...]:
        return tuple(name for name in value.attrs["over"] if name not in self.tiling.resident)

    def _partial(self, value: Value, scope: Scope) -> Ref:
        """The reduction over what is in hand, in the accumulator's type."""
        over = value.attrs["over"]
        operands = [self._padded(operand, value, scope) for operand in value.operands]
        present = [name for name in over if any(name in operand.names for operand in operands)]
        missing = [name for name in over if name not in present and scope.required_span(name).extent > 1]
        dtype = accumulator_of(value)
        if value.op == "contract" and present:
            tile = scope.builder.compute(
                "contract",
                *operands,
                over=tuple(present),
                dtype=dtype,
                order=self._order(value, operands, present, scope),
                location=value.location,
            )
        elif value.op == "contract":
            tile = scope.builder.compute("mul", *(scope.builder.cast(operand, dtype) for operand in operands))
        else:
            tile = scope.builder.cast(operands[0], dtype)
            if present:
                tile = scope.builder.compute(
                    "reduce",
                    tile,
                    kind=value.attrs["kind"],
                    over=tuple(present),
                    order=self._order(value, operands, present, scope),
                    location=value.location,
                )
        return self._repeated(tile, value, missing, scope)

    def _order(self, value: Value, operands: Sequence[Ref], over: Sequence[str], scope: Scope) -> list[str]:
        names = {name for operand in operands for name in operand.names} - set(over)
        return [name for name in self._tile_type(value, scope).names if name in names]

    def _repeated(self, tile: Ref, value: Value, missing: Sequence[str], scope: Scope) -> Ref:
        """A sum over a dim that the summand does not have is a product with the number of elements in hand."""
        kind = value.attrs.get("kind", "sum")
        for name in missing:
            if kind in ("max", "min"):
                continue
            if kind == "prod":
                raise CleaveError(
                    f"a product over '{name}', which the operand does not have, cannot be scheduled yet", value.location
                )
            tile = scope.builder.compute("mul", tile, scope.builder.cast(self._count(name, scope), tile.tile.dtype))
        return tile

    def _count(self, name: str, scope: Scope) -> Ref:
        span, builder = scope.required_span(name), scope.builder
        rest = builder.arith("subi", span.bound, span.offset)
        return builder.add("splat", [builder.arith("minui", rest, builder.index(span.extent))], TensorType((), "i64"))

    def _padded(self, operand: Value, reduction: Value, scope: Scope) -> Ref:
        """The operand's tile, with the neutral element where it does not exist along the reduced dims."""
        if operand.dtype == "tf32":  # a type that only contractions have: pad what is cast to it
            return scope.builder.cast(self._padded(operand.operands[0], reduction, scope), "tf32")
        tile = self.value(operand, scope)
        kind = reduction.attrs.get("kind", "sum")
        neutral = neutral_element(kind, operand.dtype)
        for name in reduction.attrs["over"]:
            span = scope.required_span(name)
            if span.exact or name not in tile.names or outside(operand, name, self.region, scope.pad) == neutral:
                continue
            tile = self._masked(tile, name, neutral, scope)
            home = self._home(operand, scope)
            home.tiles[operand] = tile
            home.pads[operand, name] = neutral
        return tile

    def _masked(self, tile: Ref, name: str, fill: float, scope: Scope) -> Ref:
        builder = scope.builder
        bound = builder.add("splat", [scope.required_span(name).bound], TensorType((), "i64"))
        inside = builder.compute("cmp", self._position(name, scope), bound, predicate="lt")
        outside = builder.fill(fill, tile_type([], tile.tile.dtype))
        return builder.compute("select", inside, tile, outside, order=tile.names)

    # --- loops ---

    def _group(self, first: Value, scope: Scope) -> list[Value]:
        """``first`` and the reductions that join its loop, operands first."""
        group = [first]
        if self.fusion.horizontal:
            for other in self.region.reductions:
                if other is not first and self._is_peer(other, first, scope) and self._joins(other, group, scope):
                    group.append(other)
        return sorted(group, key=self.region.position.__getitem__)

    def _is_peer(self, other: Value, first: Value, scope: Scope) -> bool:
        in_scope = all(scope.span(name) for name in other.names) and self._home(other, scope) is scope
        return in_scope and other not in scope.tiles and self._looped(other) == self._looped(first)

    def _joins(self, other: Value, group: list[Value], scope: Scope) -> bool:
        upstream, loops = self.region.upstream, self._looped(other)
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
            and self._looped(other)
            and not set(other.names) & set(self._looped(later))
            for other in self.region.reductions
        )

    def _factors(self, value: Value, running: frozenset[Value]) -> Factors | None:
        key = (value, running)
        if key not in self._known_factors:
            self._known_factors[key] = self._separate(value, running)
        return self._known_factors[key]

    def _separate(self, value: Value, running: frozenset[Value]) -> Factors | None:
        loops = self._looped(value)
        if len(loops) != 1 or value.attrs.get("kind", "sum") != "sum":
            return None
        cascade = Cascade(
            running, lambda v: self.region.depends(v, running), lambda v: loops[0] not in v.names, self.transparent
        )
        if value.op == "contract":
            parts = [cascade.factors(operand) for operand in value.operands]
            return None if None in parts else _sum_factors([part for part in parts if part is not None])
        return cascade.factors(value.operands[0])

    def _emit_loop(self, group: list[Value], scope: Scope) -> None:
        initial = [self._initial(member, scope) for member in group]
        results = self._nest(group, list(self._looped(group[0])), initial, scope)
        for member, result in zip(group, results, strict=True):
            scope.tiles[member] = scope.builder.cast(result, member.dtype)
        for member in group:
            running = frozenset(group) & self.region.upstream[member]
            for w in self._factors(member, running) or () if running else ():
                scope.tiles[member] = self._as_in_source(member, w, scope)

    def _initial(self, member: Value, scope: Scope) -> Ref:
        dtype = accumulator_of(member)
        kind = member.attrs.get("kind", "sum")
        return scope.builder.fill(neutral_element(kind, dtype), self._tile_type(member, scope, dtype))

    def _nest(self, group: list[Value], loops: list[str], accumulators: list[Ref], scope: Scope) -> list[Ref]:
        """Loops over ``loops``, outermost first, that carry the accumulators; returns their final values."""
        if not loops:
            return self._update(group, accumulators, scope)
        name, tile = loops[0], self.tiling.reduced[loops[0]]
        builder = scope.builder
        body = Block((Ref(), *(Ref(accumulator.type) for accumulator in accumulators)))
        inner = Scope(TileBuilder(body, builder), scope, {})
        inner.spans[name] = self._span(scope, name, body.arguments[0], tile)
        body.yields = tuple(self._nest(group, loops[1:], list(body.arguments[1:]), inner))
        results = tuple(Ref(accumulator.type) for accumulator in accumulators)
        attrs = {"dim": name, "size": self.sizes[name], "step": tile}
        bounds = (builder.index(0), inner.spans[name].bound, builder.index(tile))
        builder.block.instructions.append(
            Instruction("scf.for", (*bounds, *accumulators), results, attrs, body, group[-1].location)
        )
        return list(results)

    def _update(self, group: list[Value], accumulators: list[Ref], scope: Scope) -> list[Ref]:
        """One iteration: each accumulator with this tile's part; later members see the earlier ones' running values."""
        before = [scope.builder.cast(tile, member.dtype) for member, tile in zip(group, accumulators, strict=True)]
        old = Scope(scope.builder, scope, {}, dict(zip(group, before, strict=True)), frozenset(group))
        scope.running = frozenset(group)
        results: list[Ref] = []
        for member, accumulator_ in zip(group, accumulators, strict=True):
            accumulated = self._rescaled(member, accumulator_, group, old, scope)
            combined = self._combine(member, accumulated, self._partial(member, scope), scope)
            if any(member in self.region.upstream[other] for other in group):
                scope.tiles[member] = scope.builder.cast(combined, member.dtype)
            results.append(combined)
        return results

    def _combine(self, member: Value, accumulated: Ref, part: Ref, scope: Scope) -> Ref:
        op = COMBINE[member.attrs.get("kind", "sum")]
        return scope.builder.compute(op, accumulated, part, order=accumulated.names, location=member.location)

    # --- cascades ---

    def _rescaled(self, member: Value, accumulated: Ref, group: list[Value], old: Scope, scope: Scope) -> Ref:
        """The accumulator, corrected for the movement of the running values that its body uses."""
        running = frozenset(group) & self.region.upstream[member]
        factors = self._factors(member, running) if running else None
        for w, kappa in (factors or {}).items():
            factor = self._factor(w, kappa, old, scope)
            factor = scope.builder.cast(factor, accumulated.tile.dtype)
            accumulated = scope.builder.compute("mul", accumulated, factor, order=accumulated.names)
        return accumulated

    def _factor(self, w: Value, kappa: float, old: Scope, scope: Scope) -> Ref:
        """exp(κ·(w before − w now)), w now being 0 while it is −inf (nothing has been summed then)."""
        key = Value("exp", (w,), w.type, {"kappa": kappa})
        known = next(
            (k for k in scope.tiles if k.op == "exp" and k.attrs.get("kappa") == kappa and k.operands == (w,)), None
        )
        if known:
            return scope.tiles[known]
        builder = scope.builder
        before = self.value(unguarded(w), old)
        now = self._guarded(w, scope)
        moved = builder.compute("sub", before, now)
        if kappa != 1.0:
            moved = builder.compute("mul", moved, builder.fill(kappa, tile_type([], moved.tile.dtype)))
        scope.tiles[key] = builder.compute("exp", moved)
        return scope.tiles[key]

    def _guarded(self, w: Value, scope: Scope) -> Ref:
        """w with 0 in place of −inf; everything in this scope uses it from here on."""
        if w not in scope.guarded:
            tile = self.value(w, scope)
            scope.tiles[w] = self._where_empty(tile, 0.0, tile, scope)
            scope.guarded.add(w)
        return scope.tiles[w]

    def _where_empty(self, w: Ref, then: float, otherwise: Ref, scope: Scope) -> Ref:
        builder = scope.builder
        empty = builder.compute("cmp", w, builder.fill(-math.inf, tile_type([], w.tile.dtype)), predicate="eq")
        replacement = builder.fill(then, tile_type([], otherwise.tile.dtype))
        return builder.compute("select", empty, replacement, otherwise, order=otherwise.names)

    def _as_in_source(self, member: Value, w: Value, scope: Scope) -> Ref:
        """Where w has stayed −inf the source has exp(−inf − (−inf)), so NaN (a maximum is never over an empty dim)."""
        tile = scope.tiles[member]
        return self._where_empty(self.value(w, scope), math.nan, tile, scope)


def _sum_factors(parts: Sequence[Factors]) -> Factors:
    return {w: sum(part.get(w, 0.0) for part in parts) for part in parts for w in part}
