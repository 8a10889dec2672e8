"""What is chosen at shapes where an H200 showed that the choice matters (bench/results/h200/)."""

from __future__ import annotations

from dataclasses import replace

import graphs
import numpy as np
import pytest
from compiled import compile_graph, reference

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.schedule.cost import kernel_cost
from cleave.schedule.emit import emit_kernel
from cleave.schedule.region import region_of
from cleave.schedule.scheduler import COARSE, Scheduled, ScheduleOptions, schedule
from cleave.schedule.tile_program import LOADS, Kernel
from cleave.schedule.tile_sizes import is_tensor_core
from cleave.schedule.tiling import Fusion, Tiling
from cleave.tuner.candidates import choices

TARGET = ScheduleOptions().target
WIDTHS = {"q": 4096, "v": 1024, "w": 1024}
FACTS = [f"{name} = 16*{name}1" for name in ("k", *WIDTHS)]


def _scheduled(graph: Graph, tilings: int = 12, **sizes: int) -> Scheduled:
    known = {f"{name}1": size // 16 for name, size in sizes.items()}
    return schedule(graph.deduplicated(), ScheduleOptions(sizes={**known, **sizes}, max_tilings=tilings))


def _projections(*, normalised: bool) -> Graph:
    """x, or RMSNorm of x, times three matrices."""
    b = GraphBuilder("projections", facts=FACTS)
    x = b.input("m k", "f16")
    rows = _normalised(b, x, b.input("k", "f16")) if normalised else x
    return b.build(*(b.contract(rows, b.input(f"k {n}", "f16"), over=["k"], dtype="f16") for n in WIDTHS))


def _normalised(b: GraphBuilder, x: Value, gain: Value) -> Value:
    wide = b.cast(x, dtype="f32")
    mean = b.div(b.reduce(b.mul(wide, wide), kind="sum", over=["k"]), b.constant(4096.0, "f32"))
    return b.cast(b.mul(b.mul(wide, b.rsqrt(mean)), b.cast(gain, dtype="f32")), dtype="f16")


def _products_of_registers(kernel: Kernel) -> int:
    """Products on tensor cores of operands that are computed where they are multiplied."""
    loaded = {result for i in kernel.body.walk() if i.op in LOADS for result in i.results}
    products = (i for i in kernel.body.walk() if i.op == "contract" and is_tensor_core(i))
    return sum(not loaded.issuperset(product.operands) for product in products)


def test_three_products_of_normalised_rows() -> None:
    """Rows normalised in a kernel of their own: in the products' loops they would come from registers."""
    scheduled = _scheduled(_projections(normalised=True), m=2048, k=4096, **WIDTHS)
    norm, products = scheduled.program.kernels
    assert len(norm.outputs) == 1
    assert len(products.beside) == 3
    assert _products_of_registers(products) == 0


def test_kernels_side_by_side_fit() -> None:
    """Three products whose tiles would fill shared memory three times."""
    scheduled = _scheduled(_projections(normalised=False), m=2048, k=4096, **WIDTHS)
    assert all(candidates[0].cost.fits(TARGET) for candidates in scheduled.candidates)
    (products,) = scheduled.program.kernels
    assert len(products.beside) == 3


def _residual_on_sphere() -> Graph:
    """nGPT's: of x and h, each of length 1, what lies between them, of length 1 again."""
    b = GraphBuilder("residual", facts=["k = 16*k1"])
    x, h, gain = (b.cast(b.input(dims, "f16"), dtype="f32") for dims in ("m k=4096", "m k", "k"))

    def unit(value: Value) -> Value:
        return b.mul(value, b.rsqrt(b.reduce(b.mul(value, value), kind="sum", over=["k"])))

    one, other = unit(x), unit(h)
    return b.build(b.cast(unit(b.add(one, b.mul(gain, b.sub(other, one)))), dtype="f16"))


SPHERE = replace(_residual_on_sphere(), extents={"k": 4096})


def test_rows_are_held_where_they_fit() -> None:
    """Rows that are normalised stay in registers: going through them again waits for memory again."""
    assert _scheduled(SPHERE, 64, m=16384, k=4096).candidates[0][0].tiling.resident >= {"k"}


def test_few_candidates_are_of_many_kinds() -> None:
    """Rows that are held and rows that are walked, not six numbers of stages."""
    found = choices([SPHERE.deduplicated()], ScheduleOptions(sizes={"m": 16384, "k1": 256}), 6)
    assert found[0].seconds == min(choice.seconds for choice in found)
    assert {"k=4096*" in choice.label for choice in found} == {True, False}


def _product() -> Graph:
    b = GraphBuilder("product", facts=FACTS)
    return b.build(b.contract(b.input("m k", "f16"), b.input("k q", "f16"), over=["k"], dtype="f16"))


def _product_in_tf32() -> Graph:
    """As an alternative of RMSNorm with a gain and a product has it: the loop multiplies the rows by the gain."""
    b = GraphBuilder("product", facts=FACTS)
    x, gain, w = b.input("m k", "f16"), b.input("k", "f16"), b.input("k q", "f16")
    rows = b.cast(b.mul(b.cast(x, dtype="f32"), b.cast(gain, dtype="f32")), dtype="tf32")
    return b.build(b.contract(rows, b.cast(w, dtype="tf32"), over=["k"], dtype="f16"))


def _norm_behind_product() -> Graph:
    b = GraphBuilder("norm_and_product", facts=FACTS)
    x, w = b.input("m k", "f16"), b.input("k q", "f16")
    wide = b.cast(x, dtype="f32")
    squares = b.reduce(b.mul(wide, wide), kind="sum", over=["k"])
    return b.build(b.cast(b.mul(b.contract(x, w, over=["k"]), b.rsqrt(squares)), dtype="f16"))


MEASURED: dict[str, tuple[Graph, dict[str, int], dict[str, int], int, int, bool, float]] = {
    "products by descriptors": (
        _product(), {"m": 2048, "k": 4096, "q": 4096}, {"m": 128, "q": 256, "k": 64}, 8, 3, True, 97.2
    ),
    "tf32 from registers": (
        _product_in_tf32(), {"m": 2048, "k": 4096, "q": 6144}, {"m": 64, "q": 128, "k": 64}, 8, 2, False, 2875.0
    ),
    "rows for a product and a sum": (
        _norm_behind_product(), {"m": 64, "k": 4096, "q": 6144}, {"m": 64, "q": 64, "k": 128}, 8, 6, False, 34.4
    ),
}  # fmt: skip
"""A kernel's graph, sizes, tiles, warps, stages, whether it loads by descriptors, and its microseconds on an H200."""


@pytest.mark.parametrize("case", MEASURED)
def test_predictions(case: str) -> None:
    graph, sizes, tiles, warps, stages, descriptors, measured = MEASURED[case]
    region = region_of(graph.outputs, frozenset(graph.outputs), {})
    grid = {name: tiles[name] for name in region.parallel}
    tiling = Tiling(grid, {name: tile for name, tile in tiles.items() if name not in grid}, deferred=True)
    kernel = emit_kernel("kernel", region, tiling, {}, Fusion()).kernel
    kernel = replace(kernel, num_warps=warps, num_stages=stages, descriptors=descriptors)
    known = {**sizes, **{f"{name}1": size // 16 for name, size in sizes.items()}}
    cost = kernel_cost(kernel, known, TARGET, graph.facts.definitions)
    assert 0.7 < cost.running * 1e6 / measured < 1.35


def test_two_products_share_a_loop() -> None:
    """SwiGLU of many rows: one kernel for both, although two kernels look better on the first few tilings."""
    graph = replace(graphs.swiglu(), extents={"k": 4096, "n": 14336})
    assert len(_scheduled(graph, 64, m=4096, k=4096, n=14336).program.launches) == 1


def test_small_tiles_are_loaded_by_pointers() -> None:
    """``mma.sync`` of what descriptors load took 29 microseconds, of what pointers load 19."""
    (candidates,) = _scheduled(_product(), 64, m=64, k=4096, q=4096).candidates
    small = [each for each in candidates if each.tiling.grid["m"] < 64 and not each.tiling.columns]
    assert small
    assert not any(each.descriptors for each in small)


@pytest.mark.parametrize(("rows", "swapped"), [(16, True), (64, False)])
def test_operands_are_swapped_for_few_rows_alone(rows: int, swapped: bool) -> None:
    (candidates,) = _scheduled(_product(), 64, m=rows, k=4096, q=4096).candidates
    assert bool(candidates[0].tiling.columns) == swapped
    assert candidates[0].num_warps == 4


def test_numbers_of_parts_are_chosen_with_tiles_that_suit_them() -> None:
    """Half as many parts, or twice as many, are not faster with other tiles: here 4 parts of 128 rows are, not 2."""
    graph = replace(graphs.split_attention(head=128), extents={"h": 32, "d": 128, "e": 128})
    sizes = {"m": 128, "n": 4096}

    def seconds(**given: int) -> tuple[float, int]:
        options = ScheduleOptions(sizes={**sizes, **given}, max_tilings=COARSE, warp_specialise=True)
        found = schedule(graph.deduplicated(), options)
        return found.seconds, found.program.choices.get("s", 0)

    best, count = seconds()
    for other in (max(1, count // 2), 2 * count):
        assert best <= seconds(s=other)[0]


def test_blocks_of_a_combination_have_several_rows() -> None:
    """Of 4096 rows of 128 elements in 4 parts: a block for each row takes longer to start than to sum."""
    graph = graphs.split_attention(head=128)
    options = ScheduleOptions(sizes={"h": 32, "m": 128, "n": 4096, "s": 4}, max_tilings=8, combine="plain")
    parts, combination = schedule(graph.deduplicated(), options).candidates
    assert parts[0].cost.blocks <= 512
    assert combination[0].tiling.grid["m"] > 1
    assert combination[0].cost.blocks <= 1024
    compiled = compile_graph(graph, options=options)
    draw = np.random.default_rng(0)
    q, k, v = (draw.standard_normal((2, rows, 128)).astype(np.float16) for rows in (9, 37, 37))
    (found,) = compiled((q, k, v), {"s": 3})
    (expected,) = reference(graph, (q, k, v), sizes={"s": 3})
    np.testing.assert_allclose(found.astype(float), expected.astype(float), atol=2e-3)
