"""Blocks that go through several tiles of an output dim: what stands ahead of the loop, the numbers, and the choice."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from lowered import run_lowered
from test_ranges import CTX, arrays, expected, scheduled

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.lowering.form import Form as SpecialisedForm
from cleave.lowering.lower_to_triton import surroundings
from cleave.lowering.to_ttgir import lower_warp_specialised
from cleave.passes.tile_io import from_tile_program
from cleave.schedule.coarsening import MANY, SHORT, coarsenable
from cleave.schedule.emit import emit_kernel
from cleave.schedule.forms import Form, form_of
from cleave.schedule.region import region_of
from cleave.schedule.scheduler import Scheduled, ScheduleOptions, schedule, with_candidates
from cleave.schedule.tile_program import Block, Kernel
from cleave.schedule.tile_sizes import Shapes
from cleave.schedule.tiling import Fusion, Tiling
from cleave.schedule.tilings import space_of
from cleave.schedule.warps import CONFLICT, staged
from cleave.schedule.workload import workload

TILE = 16


def product(depth: int = TILE, dtype: str = "f32") -> Graph:
    """A product with what is computed from its right operand, for each of ``h``."""
    b = GraphBuilder("product")
    x, w = b.input(f"h m d={depth}", dtype), b.input("h d n", dtype)
    return b.build(b.contract(x, b.mul(w, w), over=["d"], dtype="f32"))


def chained(*, kept: bool = False) -> Graph:
    """q·(kᵀ·v), and kᵀ·v as a result of its own."""
    b = GraphBuilder("chained")
    q, k, v = b.input(f"h m d={TILE}", "f16"), b.input("h n d", "f16"), b.input(f"h n e={TILE}", "f16")
    inner = b.contract(k, v, over=["n"], dtype="f32")
    outer = b.contract(b.cast(q, dtype="tf32"), b.cast(inner, dtype="tf32"), over=["d"], dtype="f32")
    return b.build(*((outer, inner) if kept else (outer,)))


def attention() -> Graph:
    """Of causal rows: positions along the dim."""
    b = GraphBuilder("attention")
    q, k, v = b.input(f"m d={TILE}", "f32"), b.input(f"n={TILE} d", "f32"), b.input("n e", "f32")
    at = [b.op("index", dim=name, dtype="i64") for name in (f"n={TILE}", "m")]
    s = b.select(b.cmp(*at, predicate="le"), b.contract(q, k, over=["d"]), b.constant(-1e30, "f32"))
    p = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    return b.build(b.div(b.contract(p, v, over=["n"]), b.reduce(p, kind="sum", over=["n"])))


def tilings(graph: Graph, count: int) -> list[Tiling]:
    """Some of those that are offered for many rows."""
    region = region_of(graph.outputs, frozenset(graph.outputs), graph.extents)
    sizes = {name: size.evaluate(dict.fromkeys(size.symbols, MANY)) for name, size in region.sizes.items()}
    space = space_of(region, sizes)
    found = [space.tiling(point) for point in space.points]
    small = [each for each in found if each and each.coarsened and max(each.grid.values()) <= 2 * TILE]
    return small[:: max(1, len(small) // count)]


@pytest.mark.parametrize("graph", [product(), product(SHORT, "f16"), chained(), chained(kept=True), attention()])
def test_any_number_of_rows_is_right(graph: Graph) -> None:
    found = tilings(graph, 3)
    assert len({tuple(each.coarsened.items()) for each in found}) > 1
    for each in found:
        _, module = scheduled(graph, each)
        tile = each.of_block("m")
        for rows in (0, 1, tile - 1, tile, tile + 1, 2 * tile + TILE + 5):
            for heads, columns in ((2, TILE + 3), (0, 1)):
                sizes = {"h": heads, "m": rows, "n": columns, "e": columns}
                inputs = arrays(graph, sizes)
                for got, exact in zip(run_lowered(module, graph.name, inputs), expected(graph, inputs), strict=True):
                    np.testing.assert_allclose(got, exact, atol=2e-3 * np.abs(exact).max(initial=0))


def loop_of(kernel: Kernel) -> Block:
    (loop,) = [i for i in kernel.body.instructions if i.op == "scf.for" and i.attrs["dim"] == "m"]
    assert loop.body and not loop.results
    return loop.body


def test_what_has_not_the_dim_stands_ahead_of_the_loop() -> None:
    graph = product()
    kernel, _ = scheduled(graph, Tiling({"m": TILE, "n": TILE}, {"d": TILE}, frozenset("d"), coarsened={"m": 3}))
    inside = [i.op for i in loop_of(kernel).instructions if not i.op.startswith("arith.")]
    assert inside == ["load", "contract", "store"]
    ahead = [i.op for i in kernel.body.instructions if not i.op.startswith("arith.")]
    assert ahead.index("load") < ahead.index("mul") < ahead.index("scf.for")
    assert [grid.evaluate({"h": 2, "m": 7 * TILE + 1, "n": 1}) for grid in kernel.grid] == [2 * 3]


def test_a_sum_without_the_dim_is_made_once_for_all_its_tiles() -> None:
    """A block sums kᵀ·v up in a loop over the keys, and then goes through rows."""
    tiling = Tiling({"m": TILE, "e": TILE}, {"n": TILE, "d": TILE}, frozenset("d"), coarsened={"m": 3})
    kernel, _ = scheduled(chained(), tiling)
    loops = [i for i in kernel.body.instructions if i.op == "scf.for"]
    assert [loop.attrs["dim"] for loop in loops] == ["n", "m"]


def cast_operands() -> Kernel:
    """Of a product by tf32 tensor cores: rows are cast in the loop, the other operand need not be."""
    b = GraphBuilder("cast")
    x, w = (b.cast(b.input(*each), dtype="tf32") for each in (("m d=64", "f16"), ("d e=32", "f32")))
    tiling = Tiling({"m": TILE, "e": 32}, {"d": 64}, frozenset("d"), coarsened={"m": 3})
    return scheduled(b.build(b.contract(x, w, over=["d"], dtype="f32")), tiling)[0]


def test_an_operand_without_the_dim_is_cast_ahead_of_the_loop() -> None:
    kernel = cast_operands()
    ahead, inside = (
        [i.result.names for i in block.instructions if i.op == "cast" and i.result.tile.dtype == "tf32"]
        for block in (kernel.body, loop_of(kernel))
    )
    assert ahead == [("d", "e")] and inside == [("m", "d")]


def test_what_is_cast_ahead_of_the_loop_goes_to_shared_memory_for_its_products() -> None:
    """Once, with bank conflicts, for it varies fastest along the result's columns; rows are written in each iteration,
    without."""
    kernel, shapes = cast_operands(), Shapes()
    counted = [staged(block, shapes) for block in (kernel.body, loop_of(kernel))]
    found = [(amount.of(shapes.at(None)), operands) for amount, operands in counted]
    assert found == [(CONFLICT * 64 * 32 * 4, 1), (TILE * 64 * 4, 1)]


def test_which_dims_are_offered() -> None:
    def offered(graph: Graph, rows: int = MANY) -> set[str]:
        region = region_of(graph.outputs, frozenset(graph.outputs), graph.extents)
        sizes = {name: size.evaluate(dict.fromkeys(size.symbols, 8)) for name, size in region.sizes.items()}
        return set(coarsenable(region, {**sizes, "m": rows}))

    assert offered(product(SHORT)) == offered(chained()) == offered(attention()) == {"m"}
    assert not offered(product(), MANY - 1)
    assert not offered(product(SHORT + 1))
    b = GraphBuilder("long")  # summed over so many that nobody knows
    assert not offered(b.build(b.contract(b.input("m k", "f16"), b.input("k n", "f16"), over=["k"])))
    b = GraphBuilder("rows")  # each row by itself: nothing is the same for several
    assert not offered(b.build(b.reduce(b.input(f"m d={TILE}", "f32"), kind="sum", over=["d"])))


@pytest.mark.parametrize("rows", [0, 1, TILE - 1, TILE, 5 * TILE, 100, 4096])
def test_a_block_goes_through_as_many_tiles_as_there_are(rows: int) -> None:
    """On the average over blocks, rounded up: each tile is one block's, counted here tile by tile."""
    tiling = Tiling({"m": TILE, "n": TILE}, {"d": TILE}, frozenset("d"), coarsened={"m": 4})
    work = workload(scheduled(product(), tiling)[0], {"h": 1, "m": rows, "n": TILE, "d": TILE})
    tiles = Counter(first // (4 * TILE) for first in range(0, rows, TILE))
    average = sum(tiles.values()) / max(1, len(tiles))
    assert work.blocks == len(tiles)
    assert average <= work.chains[1].trips < average + 1


def test_workloads_are_those_of_own_code() -> None:
    """Of a form whose code has other extents."""
    graph, sizes = product(64, "f16"), {"h": 4, "m": 4096, "n": 512, "d": 64}
    region = region_of(graph.outputs, frozenset(graph.outputs), graph.extents)
    first, other = (
        Tiling({"h": 1, "m": rows, "n": columns}, {"d": 64}, frozenset("d"), coarsened={"m": 4})
        for rows, columns in ((64, 64), (128, 32))
    )
    assert form_of(region, first) == form_of(region, other) != form_of(region, replace(other, coarsened={"m": 8}))
    own, found = (emit_kernel("kernel", region, each, graph.extents, Fusion()) for each in (other, first))
    expected = workload(own.kernel, sizes)
    alike = Form(region, first, found).workload(other, sizes, {})
    assert alike.chains == expected.chains and alike.blocks == expected.blocks == 4 * 8 * 16
    assert [chain.trips for chain in alike.chains] == [1, 4]


# --- the choice -------------------------------------------------------------------------------------------------------


def chosen(rows: int, *, warp_specialise: bool = False) -> Scheduled:
    b = GraphBuilder("many")
    q, w = b.input("h m d=64", "f16"), b.input("h d e=64", "f32")
    tile = [b.cast(value, dtype="tf32") for value in (q, w)]
    graph = b.build(b.cast(b.contract(*tile, over=["d"], dtype="f32"), dtype="f16"))
    return schedule(graph, ScheduleOptions(sizes={"h": 32, "m": rows}, warp_specialise=warp_specialise))


def test_many_rows_are_gone_through_in_blocks() -> None:
    many, few = (chosen(rows).candidates[0] for rows in (4096, MANY - 1))
    assert many[0].tiling.coarsened and many[0].num_stages > 1 and not any(each.tiling.coarsened for each in few)
    single = next(each for each in many if not each.tiling.coarsened)
    assert many[0].cost.running < 0.9 * single.cost.running


def test_it_is_not_warp_specialised() -> None:
    """There the block itself goes through tiles; the lowering refuses such a loop."""
    b = GraphBuilder("f")
    x, w = b.input("m d=64", "f16"), b.input("d=64 n=4096", "f16")
    graph = b.build(b.cast(b.contract(x, w, over=["d"], dtype="f32"), dtype="f16"))
    found = schedule(graph, ScheduleOptions(sizes={"m": 4096}, warp_specialise=True))
    coarse = next(each for each in found.candidates[0] if each.tiling.coarsened and each.descriptors)
    specialised = [each.tiling for each in found.candidates[0] if each.warp_specialised]
    assert specialised and not any(tiling.coarsened for tiling in specialised)
    program = with_candidates(found.program, [replace(coarse, warp_specialised=True)])
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(program, module)
        (func,) = [op.operation for op in module.body.operations if "cleave.kernel" in op.operation.attributes]
        with pytest.raises(CleaveError, match="a loop stores a product"):
            lower_warp_specialised(func, surroundings(func, module), SpecialisedForm())


@pytest.mark.parametrize("rows", [32000, 32768, 131072])
def test_groups_of_rows_of_which_the_last_is_shorter_have_schedules(rows: int) -> None:
    """Their number is no dim of which a block takes several: what a group has depends on which one it is."""
    b = GraphBuilder("groups")
    x, w = b.input("m d=64", "f16"), b.input("d=64 n", "f16")
    groups = b.split(x, dim="m", into=("s", "t=32"))
    graph = b.build(b.contract(groups, w, over=["d"], dtype="f32"))
    found = schedule(graph.deduplicated(), ScheduleOptions(sizes={"m": rows, "n": 512, "s": rows // 32}))
    assert not any("s" in candidate.tiling.coarsened for launch in found.candidates for candidate in launch)


def test_enough_blocks_are_left_at_a_fourth_of_a_dynamic_size() -> None:
    """Of a static one there is no less."""
    target = ScheduleOptions().target
    for size, static in (("m", False), ("m=4096", True)):
        b = GraphBuilder("product")
        x, w = b.input(f"{size} d=128", "f16"), b.input("d=128 n=512", "f16")
        graph = b.build(b.contract(x, w, over=["d"], dtype="f32"))
        (launch,) = schedule(graph.deduplicated(), ScheduleOptions(sizes={"m": 4096})).candidates
        blocks = [c.cost.blocks for c in launch if c.tiling.coarsened]
        assert (min(blocks, default=math.inf) < 3.6 * target.sms) == static
