"""A split in one launch: each block computes its part, waits for the other parts of its tile, and combines a share.

Two kernels become one where the second reduces, for each tile of the first one's grid, what the blocks of that tile
wrote: its dims are dims of the first one's grid, and the grid dims that it has not are those whose blocks wait for one
another (the parts of a split-K, say). The tile is cut into units; the i-th of a group of n blocks combines the units i,
i+n, ….
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cleave.dialects.dims import Dim, Size, ceildiv, const
from cleave.dialects.graph import Value
from cleave.dialects.ops import POINTWISE, REDUCTIONS
from cleave.dialects.tensor_type import TensorType
from cleave.schedule.emit import Emitted, Emitter, roles_of
from cleave.schedule.index_math import Grid
from cleave.schedule.region import Region
from cleave.schedule.rename import viewed
from cleave.schedule.scope import Scope, Span
from cleave.schedule.tile_program import Block, Instruction, Kernel, Ref, TileBuilder
from cleave.schedule.tile_sizes import value_of
from cleave.schedule.tiling import Fusion, Tiling

_IN_PLACE = POINTWISE | REDUCTIONS | {"constant", "index"}
"""Ops that read an operand where their own result is, but for the dims that they reduce."""


@dataclass(frozen=True)
class Pair:
    """What computes the parts, and what combines them."""

    parts: Region
    combine: Region

    @property
    def members(self) -> tuple[str, ...]:
        """The grid dims along which the blocks of one group lie."""
        return tuple(name for name in self.parts.parallel if name not in self.combine.parallel)

    @property
    def is_shareable(self) -> bool:
        """Whether the blocks of a group write all that the combination of their tile reads of the parts."""
        written = frozenset(self.parts.outputs)
        reads = [value for value in self.combine.reads if viewed(value) in written]
        sizes = {dim.name: dim.size for value in self.parts.outputs for dim in value.dims}
        dims = {dim.name: dim.size for value in self.combine.outputs for dim in value.dims}
        same = all(sizes.get(name) is size for name, size in dims.items())
        in_place = all(value.op in _IN_PLACE for value in self.combine.values)
        return bool(reads) and written.issuperset(reads) and same and in_place and bool(self.members)


@dataclass(frozen=True)
class Shared:
    """A kernel for a pair; its last operand are the counters."""

    emitted: Emitted
    counters: Value


def emit_shared(
    name: str, pair: Pair, tiling: Tiling, units: Tiling, extents: Mapping[str, int], fusion: Fusion
) -> Shared:
    """``tiling`` is that of the parts; ``units`` that of the combination, whose grid tiles divide it."""
    first, second = Emitter(pair.parts, tiling, extents, fusion), Emitter(pair.combine, units, extents, fusion)
    second.arguments = {value: first.arguments.get(value, ref) for value, ref in second.arguments.items()}
    root = Scope(TileBuilder(Block()), None, {}, order=first.order)
    grid = first.open_grid(root, pair.parts.parallel, (*pair.parts.outputs, *pair.combine.outputs))
    first.compute(root)
    counts = {name: count for name, count, _ in grid.axes}
    groups, count = (
        math.prod((counts[n] for n in names), start=const(1)) for names in (pair.combine.parallel, pair.members)
    )
    counters = Value("counters", (), TensorType((Dim("groups", groups),), "i32"), {})
    place, builder = Ref(counters.type), root.builder
    members = builder.extent(count, extents)
    group, member = (_number(names, grid, root, extents) for names in (pair.combine.parallel, pair.members))
    builder.block.instructions.append(Instruction("group_barrier", (place, group, members), ()))
    _combine_shares(second, root, member, members, count, tiling)
    arguments = {**first.arguments, **second.arguments, counters: place}
    written = tuple(arguments[value] for value in (*pair.parts.outputs, *pair.combine.outputs, counters))
    held, roles = tuple(arguments.values()), roles_of(arguments)
    kernel = Kernel(name, held, written, (grid.size,), builder.block, 4, 1, order=grid.order, roles=roles)
    return Shared(Emitted(kernel, tuple(arguments), estimates=False), counters)


def _number(names: Sequence[str], grid: Grid, root: Scope, extents: Mapping[str, int]) -> Ref:
    """The block's tile among those along these dims, the last of which varies fastest."""
    builder, total = root.builder, root.builder.index(0)
    for name, count, tile in (axis for name in names for axis in grid.axes if axis[0] == name):
        coordinate = builder.arith("divui", root.required_span(name).offset, builder.index(tile))
        before = builder.arith("muli", total, builder.extent(count, extents))
        total = builder.arith("addi", before, coordinate)
    return total


def _combine_shares(second: Emitter, root: Scope, member: Ref, members: Ref, count: Size, tiling: Tiling) -> None:
    """A loop over the units that are this block's."""
    outer, region, units = root.builder, second.region, second.tiling.grid
    counts = {name: tiling.grid[name] // units[name] for name in region.parallel}
    body = Block((Ref(),))
    inner = Scope(TileBuilder(body, outer), None, {}, order=second.order)
    builder, rest = inner.builder, body.arguments[0]
    for name in reversed(region.parallel):
        number = builder.index(counts[name])
        within = builder.arith("muli", builder.arith("remui", rest, number), builder.index(units[name]))
        rest = builder.arith("divui", rest, number)
        whole = root.required_span(name)
        # exact only if the whole tile is: a unit may lie past the end of a tile that does not
        offset = builder.arith("addi", whole.offset, within)
        inner.spans[name] = Span(offset, units[name], whole.bound, whole.exact)
    second.compute(inner)
    total = math.prod(counts.values())
    attrs = {"dim": "share", "trips": partial(value_of, ceildiv(const(total), count))}
    bounds = (member, outer.index(total), members)
    outer.block.instructions.append(Instruction("scf.for", bounds, (), attrs, body))
