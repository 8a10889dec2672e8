"""Tiles that take longer and longer: which come first, how evenly blocks share them, and that each is computed once."""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from compiled import CTX, reference
from lowered import NUMPY
from test_grid_order import coordinates
from test_warp_specialised_forms import TWO_AXES, taken

import cleave
from cleave.bindings import ir
from cleave.dialects.dims import sym
from cleave.language.annotations import f16
from cleave.language.trace import trace
from cleave.lowering.emit import kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.execute import execute
from cleave.schedule.balance import longest_first, longest_first_pays, rounds_of_most, unevenness
from cleave.schedule.index_math import grid_of
from cleave.schedule.scheduler import ScheduleOptions, Schedules, with_candidates

SIZES = {"m": 4096, "n": 4096}


def causal(q: f16["h m d=64"], k: f16["h n d=64"], v: f16["h n e=64"]) -> f16["h m e=64"]:
    """Divided last, as the search leaves it: one loop over the keys."""
    scores = cleave.contract(q, k, over="d") * 0.125
    scores = cleave.where(cleave.index("n") <= cleave.index("m"), scores, -math.inf)
    weights = cleave.exp(scores - scores.max("n"))
    return cleave.contract(weights.astype(f16), v, over="n") / weights.sum("n")


GRAPH = trace(causal)


def test_the_growing_dim_is_the_outermost_and_comes_backwards() -> None:
    assert longest_first(("a", "m", "g"), {"m"}) == ("m", "a", "g")
    grid = grid_of([(name, sym(name), 4) for name in "mab"], 1, frozenset("m"))
    wanted = [(m, a, b) for m, a, b in itertools.product(reversed(range(5)), range(2), range(3))]
    assert coordinates(grid, (5, 2, 3), static=False) == coordinates(grid, (5, 2, 3), static=True) == wanted


@pytest.mark.parametrize("heads", [8, 32])
@pytest.mark.parametrize("rows", [22, 32, 43])
def test_unevenness_in_rounds(heads: int, rows: int) -> None:
    """As the loop over tiles takes them."""
    blocks = 132
    for within, row, sizes in (
        (1, 0, {"rows": rows, "columns": heads}),
        (heads, 1, {"rows": heads, "columns": rows}),
    ):
        shares = [taken(TWO_AXES, block, blocks, sizes) for block in range(blocks)]
        works = [sum(rows - place[row] for place in share) for share in shares]
        assert sum(works) == heads * rows * (rows + 1) // 2
        found = unevenness(rows, within, heads * rows, blocks, True)
        assert found == pytest.approx(max(works) * blocks / sum(works))


def test_unevenness_where_blocks_begin_as_others_end() -> None:
    """Against a simulation by events."""
    rows, heads, running = 16, 32, 132
    for within in (1, heads):
        waiting = [rows - number // within % rows for number in range(rows * heads)][::-1]
        ends: list[int] = []
        while waiting:
            now = heapq.heappop(ends) if len(ends) == running else 0
            heapq.heappush(ends, now + waiting.pop())
        mean = heads * rows * (rows + 1) / 2 / running
        assert unevenness(rows, within, rows * heads, running, False) == pytest.approx(max(ends) / mean)


def test_where_it_pays() -> None:
    def pays(heads: int, rows: int, *, in_rounds: bool = True) -> bool:
        return longest_first_pays({"a": heads, "g": 1, "m": rows}, {"m"}, 132, in_rounds=in_rounds)

    assert unevenness(32, 1, 256, 132, True) > 1.6 > 1.01 > unevenness(32, 8, 256, 132, True)
    assert pays(8, 32) and pays(8, 64) and pays(32, 43)
    assert not pays(32, 32) and not pays(32, 64)  # as even within 4 %, in rounds
    assert pays(32, 32, in_rounds=False)
    assert not pays(1, 256)  # there is one order
    assert not pays(128, 43)  # no two blocks would read the same keys
    assert not pays(4, 16)  # each block has one tile at most
    assert not longest_first_pays({"a": 8, "m": 32}, set(), 132, in_rounds=True)


def test_rounds_of_the_block_that_has_most() -> None:
    """In tiles of mean length: 16 tiles of up to 16 are one round, whose longest is 16 / 8.5 of the mean."""
    assert rounds_of_most({"a": 8, "m": 16}, {"m"}, 132) == pytest.approx(16 / 8.5)
    works = [0] * 3
    for number, work in enumerate([4, 3, 2, 1, 4, 3, 2, 1]):
        works[[0, 1, 2, 2, 1, 0, 0, 1][number]] += work
    assert rounds_of_most({"a": 2, "m": 4}, {"m"}, 3) == pytest.approx(max(works) / 2.5)
    assert rounds_of_most({"a": 8, "m": 16}, {"a", "m"}, 132) is None
    assert rounds_of_most({"a": 8, "m": 0}, {"m"}, 132) is None


def test_a_kernel_takes_as_long_as_the_block_that_has_most() -> None:
    """With 8 heads each block has one tile at most; with 33 four rounds of them, and in the mean four times as much."""

    def latency(heads: int) -> float:
        sizes = {"h": heads, "m": 2048, "n": 2048}
        found = Schedules(GRAPH.deduplicated(), ScheduleOptions(sizes=sizes, warp_specialise=True)).finalists(200)
        launches = [each.candidates[0] for each in found if len(each.candidates) == 1]
        wanted = {"m": 128, "n": 128}
        return next(
            each.cost.latency
            for each in itertools.chain(*launches)
            if each.warp_specialised and wanted.items() <= each.tiling.tiles.items() and not each.tiling.deferred
        )

    most = {heads: rounds_of_most({"h": heads, "m": 16}, {"m"}, 132) or 0.0 for heads in (8, 33)}
    assert most[8] == pytest.approx(16 / 8.5) and 4 <= most[33] < 4.2
    assert latency(33) / latency(8) == pytest.approx(most[33] / most[8])


@pytest.mark.parametrize(
    ("heads", "specialised", "first"),
    [(8, True, True), (8, False, True), (32, True, False), (32, False, True), (128, True, False), (128, False, False)],
)
def test_schedules_have_it_where_it_pays_and_compute_each_tile(heads: int, specialised: bool, first: bool) -> None:
    """In rounds of 132 blocks 32 heads are even; where blocks begin as others end, the usual order leaves 13 % more."""
    options = ScheduleOptions(sizes={"h": heads, **SIZES}, warp_specialise=specialised)
    found = Schedules(GRAPH.deduplicated(), options).finalists(32)
    chosen = next(each for each in found if len(each.candidates) == 1)
    candidate = next(each for each in chosen.candidates[0] if each.warp_specialised is specialised)
    order = candidate.kernel.order
    assert candidate.tiling.group == 1 or not first
    assert order and candidate.tiling.longest_first is (order.axes[0][0] == "m") is first
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(with_candidates(chosen.program, [candidate]), module)
        (LowerToTtgir() if specialised else LowerToTriton()).apply(CTX, module)
        kernels = kernel_modules(module)
        plan = plan_of(module, GRAPH.name, {kernel.name: kernel for kernel in kernels})
    rng = np.random.default_rng(1)
    sizes = {"h": 3, "m": 300, "n": 300}
    bound = {**GRAPH.extents, **sizes}
    shapes = [[dim.size.evaluate(bound) for dim in value.dims] for value in GRAPH.inputs]
    inputs = [rng.standard_normal(s).astype(NUMPY[v.dtype]) for s, v in zip(shapes, GRAPH.inputs, strict=True)]
    (expected,) = reference(GRAPH, inputs, "f64", bound)
    texts = {kernel.name: kernel.text for kernel in kernels}
    assert all("async_tma_copy_local_to_global" in text for text in texts.values()) is specialised
    (result,) = execute(plan, texts, inputs, choose_free(plan, sizes))
    assert np.abs(result - expected).max() < 1e-2 * np.abs(expected).max()


def test_two_blocks_of_one_consumer_run_at_once() -> None:
    """256 tiles of 64 rows are one for each of 264 blocks: no order is better. For 132 blocks one is, by a half."""
    assert longest_first_pays({"h": 8, "m": 32}, {"m"}, 132, in_rounds=True)
    options = ScheduleOptions(sizes={"h": 8, "m": 2048, "n": 2048}, warp_specialise=True)
    found = Schedules(GRAPH.deduplicated(), options).finalists(200)
    candidates = itertools.chain(*(each.candidates[0] for each in found if len(each.candidates) == 1))
    whole = {"m": 64, "e": 64}
    of_one = [each for each in candidates if each.warp_specialised and whole.items() <= each.tiling.tiles.items()]
    assert of_one and not any(each.tiling.longest_first for each in of_one if each.num_warps == 4)


def test_kernels_of_another_order_are_others() -> None:
    (launch,) = next(
        each.candidates
        for each in Schedules(GRAPH.deduplicated(), ScheduleOptions(sizes={"h": 8, **SIZES})).finalists(4)
        if len(each.candidates) == 1
    )
    tiling = launch[0].tiling
    assert replace(tiling, longest_first=not tiling.longest_first).key != tiling.key
