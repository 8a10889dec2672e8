"""What single terms of the cost model say, where an H200 showed them (bench/results/h200/cost-model.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.schedule.block_cost import overlapped
from cleave.schedule.cost import Cost, Workload, cost_of, workload
from cleave.schedule.emit import emit_kernel
from cleave.schedule.region import region_of
from cleave.schedule.scheduler import ScheduleOptions
from cleave.schedule.tile_program import Kernel
from cleave.schedule.tiling import Fusion, Tiling

TARGET = ScheduleOptions().target
FACTS = ["k = 16*k1", "n = 16*n1"]
Tiles = dict[str, int]


def _product() -> Graph:
    b = GraphBuilder("product", facts=FACTS)
    return b.build(b.contract(b.input("m k", "f16"), b.input("k n", "f16"), over=["k"], dtype="f16"))


def _largest_of_product() -> Graph:
    """A loop over n, and in it one over k, which reads some columns of each row of a matrix in memory."""
    b = GraphBuilder("largest", facts=FACTS)
    product = b.contract(b.input("m k", "f16"), b.input("k n", "f16"), over=["k"])
    return b.build(b.reduce(product, kind="max", over=["n"]))


def _sum_of_parts() -> Graph:
    b = GraphBuilder("parts")
    return b.build(b.reduce(b.input("s m n", "f32"), kind="sum", over=["s"]))


def _kernel(graph: Graph, tiles: Tiles) -> Kernel:
    region = region_of(graph.outputs, frozenset(graph.outputs), {})
    reduced = {name: tile for name, tile in tiles.items() if name not in region.parallel}
    tiling = Tiling({name: tiles[name] for name in region.parallel}, reduced)
    return replace(emit_kernel("kernel", region, tiling, {}, Fusion()).kernel, descriptors=True)


def _work(graph: Graph, tiles: Tiles, **sizes: int) -> Workload:
    sizes |= {f"{name}1": size // 16 for name, size in sizes.items()}
    return workload(_kernel(graph, tiles), sizes, graph.facts.definitions)


def _cost(graph: Graph, tiles: Tiles, warps: int, stages: int, **sizes: int) -> Cost:
    return cost_of(_work(graph, tiles, **sizes), stages, warps, TARGET)


def test_short_rows_are_copied_as_slowly_as_whole_lines() -> None:
    """Of 32 elements of x and 64 of the other operand: 64 bytes count as 128, 128 bytes as themselves."""
    work = _work(_product(), {"m": 64, "n": 64, "k": 32}, m=128, k=4096, n=4096)
    (_, loop) = work.chains
    assert loop.described == 64 * 64 + 32 * 128
    assert loop.lines == 64 * 128 + 32 * 128
    assert work.lines == loop.trips * loop.lines


MEASURED: dict[str, tuple[Graph, Tiles, int, int, float, Tiles, int, int, float, Tiles]] = {
    "rows of half a line": (
        _product(), {"m": 64, "n": 64, "k": 32}, 8, 8, 30.5, {"m": 64, "n": 64, "k": 64}, 8, 5, 19.9, {"m": 128}
    ),
    "warps that divide few columns": (
        _product(), {"m": 64, "n": 32, "k": 64}, 8, 8, 25.7, {"m": 64, "n": 32, "k": 64}, 4, 8, 20.4, {"m": 128}
    ),
    "few loads in flight": (
        _product(), {"m": 64, "n": 64, "k": 128}, 4, 3, 19.7, {"m": 64, "n": 64, "k": 128}, 4, 6, 13.2, {"m": 64}
    ),
}  # fmt: skip
"""A graph; tiles, warps, stages and microseconds of the slower kernel and of the faster one; sizes beside k and n."""


@pytest.mark.parametrize("case", MEASURED)
def test_the_faster_kernel_is_predicted_to_be_faster(case: str) -> None:
    graph, tiles, warps, stages, slow, others, other_warps, other_stages, fast, rows = MEASURED[case]
    slower = _cost(graph, tiles, warps, stages, k=4096, n=4096, **rows).running
    faster = _cost(graph, others, other_warps, other_stages, k=4096, n=4096, **rows).running
    assert 1.03 < slower / faster < 1.3 * slow / fast


@pytest.mark.parametrize(("width", "alone"), [(4096, True), (1024, True), (512, False)])
def test_pages_of_memory_that_a_block_has_for_itself(width: int, alone: bool) -> None:
    """A page has 1024 columns of f16: log-sum-exp of 131072 words in 128 parts of 1024 took 295 microseconds, in 512 of
    256 it took 252."""
    work = _work(_largest_of_product(), {"m": 16, "n": 128, "k": 16}, m=16, k=4096, n=width)
    assert work.alone == alone * 4096 * width * 2
    ratio = cost_of(work, 4, 4, TARGET).dram / cost_of(replace(work, alone=0.0), 4, 4, TARGET).dram
    assert ratio == pytest.approx(1.16 if alone else 1.0, abs=0.04)


def test_blocks_are_started_one_after_another() -> None:
    """A combination of parts took 3.6 microseconds longer in 4096 blocks than in 1024."""
    few, many = (_cost(_sum_of_parts(), {"m": 1, "n": n, "s": 1}, 4, 1, s=8, m=1024, n=128) for n in (128, 32))
    assert (few.blocks, many.blocks) == (1024, 4096)
    assert 2e-6 < many.running - few.running < 5e-6


def test_equal_times_do_not_quite_overlap() -> None:
    assert overlapped(1.0, 1.0, 0.0) == pytest.approx(2 ** (1 / 6))
    assert overlapped(1.0, 0.5, 0.0) == pytest.approx(1.0, abs=0.01)
    assert overlapped(2.0, 1.0, 0.3) == overlapped(1.0, 2.0, 0.3) == 2.3
    assert overlapped(0.0, 0.0, 0.0) == 0.0
