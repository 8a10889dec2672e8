"""Kernels that differ in the extents of tiles alone.

What code a kernel consists of depends on its tiling only through a few answers: whether an extent is 1, whether it
divides a static size, whether masks cost enough for a loop of their own. To be weighed, one kernel of such a form is
emitted; each other tiling of the form gives that code other extents.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cached_property, partial

from cleave.dialects.size import SizeLike
from cleave.schedule.emit import Emitted, tile_counts
from cleave.schedule.loops import masks_cost
from cleave.schedule.outline import Outlines
from cleave.schedule.region import Region
from cleave.schedule.tile_program import Block, Instruction, Kernel, Ref, has_loops, tile_type
from cleave.schedule.tiling import Tiling
from cleave.schedule.traffic import Walk
from cleave.schedule.workload import Surroundings, Workload, counted


def form_of(region: Region, tiling: Tiling) -> Hashable:
    """What tilings have in common whose kernels may be of one form (``Form.has`` says whether they are)."""
    shared_out = tiling.grid.keys() - tiling.walked - tiling.resident - region.positioned
    sizes = {name: region.static_size(name) for name in tiling.tiles}
    answers = tuple(
        _answers(extent, sizes[name], offset=name not in shared_out) for name, extent in tiling.tiles.items()
    )
    coarsened = tuple(tiling.coarsened.items())
    return answers, tiling.resident, tiling.columns, tiling.deferred, tiling.walked, coarsened


def _answers(extent: int, size: int | None, *, offset: bool) -> tuple[bool, ...]:
    """What code asks about a tile extent, of a dim of this size if it is static; ``offset``: whether it matters for
    tiles without masks that there is only one, at 0."""
    if size is None:
        return (extent == 1,)
    divides = size > 0 and size % extent == 0
    return (extent == 1, divides, size < extent, size <= extent) if offset or not divides else (extent == 1, divides)


class Form:
    """The tilings of a region whose kernels are that of ``tiling``, which is ``emitted``, but for extents."""

    def __init__(self, region: Region, tiling: Tiling, emitted: Emitted) -> None:
        self.region, self.emitted = region, emitted
        self._outlines = Outlines(emitted.kernel, tiling.tiles, partial(_with_extents, emitted.kernel))

    def has(self, tiling: Tiling) -> bool:
        """Whether it is a tiling's, which has the same ``form_of``."""
        masks = self.emitted.masks
        return masks is not None and all(masks_cost(mask, tiling.tiles) is cost for mask, cost in masks)

    @cached_property
    def has_loops(self) -> bool:
        return has_loops(self.emitted.kernel)

    def kernel(self, tiling: Tiling) -> Kernel:
        """With the extents of a tiling; its indices, which take no time, are another tiling's."""
        return _with_extents(self.emitted.kernel, tiling.tiles)

    def workload(
        self, tiling: Tiling, sizes: Mapping[str, int], known: Mapping[str, SizeLike], *, descriptors: bool = False
    ) -> Workload:
        """That of a tiling's kernel, with loads through descriptors or without."""
        counts = tile_counts(self.region, tiling, sizes)
        walk = Walk(tuple(counts.values()), tiling.group)
        around = Surroundings(sizes, known, walk.blocks, walk, tuple(counts), descriptors, tiling.tiles)
        return counted(self._outlines.at(tiling.tiles), around)


def _with_extents(kernel: Kernel, tiles: Mapping[str, int]) -> Kernel:
    return replace(kernel, body=_resized(kernel.body, {}, tiles))


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
        attrs = {**attrs, "trips": partial(attrs["course"].count, tiles)}
    results = tuple(_resized_ref(ref, refs, tiles) for ref in instruction.results)
    return Instruction(instruction.op, operands, results, attrs, body)


def _resized_ref(ref: Ref, refs: dict[Ref, Ref], tiles: Mapping[str, int]) -> Ref:
    if ref.type and ref.type.dims:
        refs[ref] = Ref(tile_type([(name, tiles[name]) for name in ref.names], ref.type.dtype))
    return refs.get(ref, ref)
