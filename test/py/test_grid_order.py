"""The order in which thread blocks go through the tiles: every tile once, in bands, and what that reads from DRAM."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import graphs
import numpy as np
import pytest
from compiled import CTX, reference

from cleave.bindings import ir
from cleave.dialects.dims import sym
from cleave.lowering.emit import kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.plan import plan_of
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.execute import execute
from cleave.schedule.emit import emit_kernel
from cleave.schedule.index_math import Grid, grid_of
from cleave.schedule.region import region_of
from cleave.schedule.rename import in_memory_order
from cleave.schedule.tile_program import Block, Launch, Ref, TileBuilder, TileProgram
from cleave.schedule.tiling import Fusion, Tiling
from cleave.schedule.traffic import Stream, Walk, best_group, dram_reads

ARITH: dict[str, Callable[[int, int], int]] = {
    "arith.addi": int.__add__, "arith.subi": int.__sub__, "arith.muli": int.__mul__, "arith.divui": int.__floordiv__,
    "arith.remui": int.__mod__, "arith.minsi": min, "arith.maxsi": max,
}  # fmt: skip


def walked(tiles: Sequence[int], group: int, *, static: bool) -> list[tuple[int, ...]]:
    """The coordinates of every block, from the instructions of the grid; tiles have 4 elements."""
    names = ("a", "b", "c")[: len(tiles)]
    return coordinates(grid_of([(name, sym(name), 4) for name in names], group), tiles, static=static)


def coordinates(grid: Grid, tiles: Sequence[int], *, static: bool) -> list[tuple[int, ...]]:
    """Of every block, where the grid, whose tiles have 4 elements, has so many tiles."""
    names = [name for name, _, _ in grid.axes]
    sizes = {name: 4 * count - 1 for name, count in zip(names, tiles, strict=True)}
    block = Block()
    offsets = grid.offsets(TileBuilder(block), sizes if static else {})
    found: list[tuple[int, ...]] = []
    for program in range(math.prod(tiles)):
        values: dict[Ref, int] = {}
        for instruction in block.instructions:
            if instruction.op == "program_id":
                values[instruction.result] = program
            elif instruction.op == "arith.constant":
                values[instruction.result] = instruction.attrs["value"]
            elif instruction.op == "extent":
                (size,) = (count for _, count, _ in grid.axes if str(count) == instruction.attrs["size"])
                values[instruction.result] = size.evaluate(sizes)
            else:
                a, b = (values[operand] for operand in instruction.operands)
                values[instruction.result] = ARITH[instruction.op](a, b)
        found.append(tuple(values[offsets[name]] // 4 for name in names))
    return found


def in_bands(tiles: Sequence[int], group: int) -> list[tuple[int, ...]]:
    """The same from its definition."""
    *outer, rows, columns = tiles
    found: list[tuple[int, ...]] = []
    for rest in itertools.product(*map(range, outer)):
        for first in range(0, rows, group):
            band = range(first, min(rows, first + group))
            found += [(*rest, row, column) for column in range(columns) for row in band]
    return found


@pytest.mark.parametrize("tiles", [(5, 7), (1, 6), (6, 1), (8, 4), (2, 3, 5), (3, 9, 2)], ids=str)
@pytest.mark.parametrize("group", [2, 4, 8])
@pytest.mark.parametrize("static", [True, False])
def test_bands(tiles: tuple[int, ...], group: int, static: bool) -> None:
    assert walked(tiles, group, static=static) == in_bands(tiles, group)


def test_without_bands_the_last_dim_varies_fastest() -> None:
    assert walked((2, 3, 4), 1, static=False) == list(itertools.product(range(2), range(3), range(4)))


@pytest.mark.parametrize(("m", "n"), [(37, 70), (1, 1), (130, 20), (0, 5)])
def test_numbers(m: int, n: int) -> None:
    graph = in_memory_order(graphs.matmul().deduplicated())
    region = region_of(graph.outputs, frozenset(graph.outputs), graph.extents)
    emitted = emit_kernel("k", region, Tiling({"m": 16, "n": 16}, {"k": 32}, group=4), graph.extents, Fusion())
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        launch = Launch(replace(emitted.kernel, num_stages=2), emitted.operands)
        from_tile_program(TileProgram(graph, graph.outputs, (launch,)), module)
        LowerToTriton().apply(CTX, module)
        plan, texts = plan_of(module, graph.name), {kernel.name: kernel.text for kernel in kernel_modules(module)}
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float16) for shape in ((m, 45), (45, n))]
    (expected,), (found,) = reference(graph, inputs, "f64"), execute(plan, texts, inputs)
    np.testing.assert_allclose(found.astype(float), expected, rtol=0, atol=2e-2)


# --- what comes from DRAM ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("walk", [Walk((5, 7)), Walk((6, 8), 4), Walk((2, 8, 6), 2), Walk((3, 4), 8)], ids=str)
def test_spans_are_those_of_the_first_blocks(walk: Walk) -> None:
    """Exact where a window is whole bands or whole columns; never fewer tiles than there are."""
    blocks = in_bands(walk.tiles, walk.group) if walk.group > 1 else list(itertools.product(*map(range, walk.tiles)))
    for window in range(1, walk.blocks + 1):
        exact = [len({block[axis] for block in blocks[:window]}) for axis in range(len(walk.tiles))]
        assert all(span >= n for span, n in zip(walk.spans(window), exact, strict=True)), window
    assert walk.spans(walk.blocks) == walk.tiles


def test_what_fits_the_cache_is_read_once() -> None:
    streams = (Stream(10.0, frozenset([0]), 80, 0), Stream(20.0, frozenset([1]), 160, 1))
    assert dram_reads(Walk((8, 8)), streams, running=4, cache=1000) == 240


def test_what_a_block_reads_again_comes_from_the_cache_if_it_fits() -> None:
    streams = (Stream(10.0, frozenset([0]), 640, 0), Stream(10.0, frozenset([0]), 640, 0))
    assert dram_reads(Walk((64,)), streams, running=8, cache=160) == 640
    assert dram_reads(Walk((64,)), streams, running=8, cache=159) == 1280


def test_bands_read_less() -> None:
    """Four blocks at a time: a row of four reads five tiles, a square of four reads four."""
    streams = (Stream(1.0, frozenset([0]), 8, 0), Stream(1.0, frozenset([1]), 8, 1))
    assert dram_reads(Walk((8, 8)), streams, running=4, cache=0) == 16 * 5
    assert dram_reads(Walk((8, 8), 2), streams, running=4, cache=0) == 16 * 4
    assert dram_reads(Walk((0, 8), 2), streams, running=4, cache=0) == 0
    assert best_group(Walk((8, 8)), streams, running=8, cache=0) == 4
    assert best_group(Walk((8, 8)), streams, running=8, cache=1000) == 1
    assert best_group(Walk((64,)), streams[:1], running=8, cache=0) == 1


def test_a_grid_without_blocks() -> None:
    """Where a dim is empty, and others are not, nothing is read, and nothing divided by its tiles."""
    assert Walk((3, 0, 2)).spans(132) == (3, 0, 2)
    assert Walk((3, 0), 2).blocks == 0
