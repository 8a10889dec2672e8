"""Kernels that differ in the extents of tiles alone.

What code a kernel consists of depends on its tiling only through a few answers: whether an extent is 1, whether it
divides a static size, whether masks cost enough for a loop of their own. To be weighed, one kernel of such a form is
emitted; each other tiling of the form gives that code other extents.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace

from cleave.schedule.emit import Emitted, grid_order
from cleave.schedule.loops import masks_cost
from cleave.schedule.region import Region
from cleave.schedule.tile_program import Block, Instruction, Kernel, Ref, tile_type
from cleave.schedule.tiling import Tiling


def form_of(region: Region, tiling: Tiling) -> Hashable:
    """What tilings have in common whose kernels may be of one form (``has_form`` says whether they are)."""
    answers = tuple(_answers(extent, region.static_size(name)) for name, extent in tiling.tiles.items())
    return answers, tiling.resident, tiling.columns, tiling.deferred, tiling.walked


def _answers(extent: int, size: int | None) -> tuple[bool, ...]:
    """What code asks about a tile extent, of a dim of this size if it is static."""
    if size is None:
        return (extent == 1,)
    return extent == 1, size > 0 and size % extent == 0, size < extent, size <= extent


def has_form(emitted: Emitted, tiling: Tiling) -> bool:
    """Whether the kernel of a tiling with the same ``form_of`` is this one but for extents."""
    tiles = tiling.tiles
    return emitted.masks is not None and all(masks_cost(mask, tiles) is cost for mask, cost in emitted.masks)


def resized(kernel: Kernel, region: Region, tiling: Tiling) -> Kernel:
    """The kernel with these tile extents, to be weighed: its indices, which take no time, are another tiling's."""
    order = grid_order(region, tiling)
    size = math.prod((count for _, count in order.axes[1:]), start=order.axes[0][1]) if order.axes else kernel.grid[0]
    return replace(kernel, grid=(size,), body=_resized(kernel.body, {}, tiling.tiles), order=order)


def _resized(block: Block, refs: dict[Ref, Ref], tiles: Mapping[str, int]) -> Block:
    """``refs`` collects what stands for what."""
    arguments = tuple(_resized_ref(ref, refs, tiles) for ref in block.arguments)
    instructions = [_resized_one(instruction, refs, tiles) for instruction in block.instructions]
    return Block(arguments, instructions, tuple(refs.get(ref, ref) for ref in block.yields))


def _resized_one(instruction: Instruction, refs: dict[Ref, Ref], tiles: Mapping[str, int]) -> Instruction:
    if instruction.op.startswith("arith."):
        return instruction
    operands = tuple(refs.get(ref, ref) for ref in instruction.operands)
    attrs, body = instruction.attrs, instruction.body
    if body:
        body = _resized(body, refs, tiles)
        attrs = {**attrs, "trips": attrs["course"].of(tiles)}
    results = tuple(_resized_ref(ref, refs, tiles) for ref in instruction.results)
    return Instruction(instruction.op, operands, results, attrs, body)


def _resized_ref(ref: Ref, refs: dict[Ref, Ref], tiles: Mapping[str, int]) -> Ref:
    if ref.type and ref.type.dims:
        refs[ref] = Ref(tile_type([(name, tiles[name]) for name in ref.names], ref.type.dtype))
    return refs.get(ref, ref)
