"""Kernels side by side as one warp-specialised launch: one producer and the same consumers for all of them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from compiled import CTX, reference

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.lowering import rings
from cleave.lowering.compile_ttir import compile_many
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.lowering.targets import Target
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import LaunchPlan
from cleave.schedule.candidates import Candidate
from cleave.schedule.scheduler import Scheduled, ScheduleOptions, schedule, with_candidates
from cleave.tuner.candidates import choices

WIDTHS = {"p": 4096, "q": 1024, "r": 1024}


@cache
def projections(names: str = "pqr", inputs: str = "x", unit: int = 8) -> Graph:
    """Of one tensor or several, which have rows in common."""
    b = GraphBuilder("projections", facts=[f"{name} = {unit}*{name}1" for name in f"k{names}{inputs}"])
    left = [b.input(f"m {'k' if name == 'x' else name}", "f16") for name in inputs]
    rows = [(x, x.names[-1]) for x in left] * (len(names) if len(left) == 1 else 1)
    products = zip(rows, names, strict=True)
    return b.build(*(b.contract(x, b.input(f"{k} {n}", "f16"), over=[k], dtype="f16") for (x, k), n in products))


def sizes_of(graph: Graph, rows: int, **given: int) -> dict[str, int]:
    found = {name: given.get(name, 4096) for value in graph.inputs for name in value.names} | {"m": rows}
    return found | {f"{name}1": size // 8 for name, size in found.items() if name != "m"}


@cache
def scheduled(graph: Graph, rows: int = 256) -> Scheduled:
    sizes = sizes_of(graph, rows, **WIDTHS)
    return schedule(graph.deduplicated(), ScheduleOptions(sizes=sizes, warp_specialise=True))


def specialised(found: Scheduled, rows: int) -> Candidate:
    """The best with tiles of so many rows."""
    fitting = (each for each in found.candidates[0] if each.warp_specialised)
    return next(each for each in fitting if each.tiling.tiles["m"] == rows)


@cache
def lowered(graph: Graph, rows: int, stages: int = 2) -> tuple[LaunchPlan, KernelModule]:
    found = scheduled(graph)
    program = with_candidates(found.program, [specialised(found, rows)])
    with CTX, ir.Location.unknown(), patch.object(rings, "MOST_STAGES", stages):
        module = ir.Module.create()
        from_tile_program(program, module)
        LowerToTtgir(chosen=True).apply(CTX, module)
        assert module.operation.verify()
        (kernel,) = kernel_modules(module)
        return plan_of(module, graph.name, {kernel.name: kernel}), kernel


def error(graph: Graph, plan: LaunchPlan, kernel: KernelModule, sizes: dict[str, int], seed: int) -> float:
    """The largest, relative to the largest number."""
    rng = np.random.default_rng(seed)
    shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in graph.inputs]
    inputs = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    found = execute(plan, {kernel.name: kernel.text}, inputs, choose_free(plan, sizes), seed=seed)
    pairs = zip(reference(graph, inputs, "f64", sizes), found, strict=True)
    return max(np.abs(a - b).max(initial=0.0) / np.abs(a).max(initial=1e-9) for a, b in pairs)


SIZES = [
    {"rows": 130, "k": 72, "p": 72, "q": 136, "r": 40},
    {"rows": 1, "k": 8, "p": 8, "q": 8, "r": 8},
    {"rows": 70, "k": 136, "p": 0, "q": 72, "r": 8},
    {"rows": 65, "k": 0, "p": 24, "q": 0, "r": 40},
    {"rows": 0, "k": 8, "p": 8, "q": 8, "r": 8},
]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "-".join(map(str, sizes.values())))
@pytest.mark.parametrize("rows", [64, 128])
def test_numbers(sizes: dict[str, int], rows: int) -> None:
    """Sizes at which some of the grids are empty; one consumer and two; slots go on from kernel to kernel."""
    plan, kernel = lowered(projections(), rows)
    assert plan.launches[0].persistent and "ttg.warp_specialize" in kernel.text
    assert error(projections(), plan, kernel, sizes_of(projections(), **sizes), seed=rows) < 1e-3


def test_numbers_of_unlike_kernels() -> None:
    """With sums of different lengths, which have nothing in common but the rows."""
    graph = projections("pq", "ab")
    plan, kernel = lowered(graph, 128)
    for seed in range(2):
        assert error(graph, plan, kernel, sizes_of(graph, 200, a=72, b=200, p=136, q=40), seed) < 1e-3


def test_tiles_that_are_alike_share_buffers() -> None:
    """Of three products two rings and one buffer for results. What a branch leaves is where the next one begins."""
    plan, kernel = lowered(projections(), 128)
    buffers = re.findall(r'"ttg\.local_alloc"\(\) : \(\) -> !ttg\.memdesc<\d+x(\d+x\d+)xf16', kernel.text)
    assert len(buffers) == 3
    sizes = sizes_of(projections(), 200, k=296, p=136, q=136, r=136)
    carried = r'"scf\.yield"\((%\w+#\d), %\w+#\d, (%\w+#\d), %\w+#\d\) : \(i32, i32, i32, i32\)'
    forgotten = re.sub(carried, r'"scf.yield"(\1, \1, \2, \2) : (i32, i32, i32, i32)', kernel.text)
    assert forgotten != kernel.text
    with pytest.raises(CleaveError):
        error(projections(), plan, replace(kernel, text=forgotten), sizes, 0)


def test_code() -> None:
    """Without spills: the producer, which copies in three branches, has more registers."""
    _, kernel = lowered(projections("pq"), 128, stages=6)
    assert "array<i32: 224, 224>" in kernel.text
    (compiled,) = compile_many([kernel.request(Target.parse("sm_90"))])
    assert not isinstance(compiled, CleaveError)
    assert (compiled.num_warps, compiled.registers, compiled.spills, compiled.notes) == (12, 168, 0, ())


def test_code_of_copies_by_threads() -> None:
    """Rows of whole vectors of 8 bytes: between the branches threads hold the addresses of all that a loop copies."""
    graph = projections("pq", unit=4)
    _, kernel = lowered(graph, 128)
    assert "ttg.async_copy_global_to_local" in kernel.text
    (compiled,) = compile_many([kernel.request(Target.parse("sm_90"))])
    assert not isinstance(compiled, CleaveError) and compiled.spills == 0


@pytest.mark.parametrize("rows", [256, 1024])
def test_as_fast_as_one_product_of_the_same_width(rows: int) -> None:
    together = scheduled(projections(), rows)
    sizes = sizes_of(projections("p"), rows, p=sum(WIDTHS.values()))
    single = schedule(projections("p"), ScheduleOptions(sizes=sizes, warp_specialise=True))
    assert len(together.program.launches) == 1
    assert single.seconds * 0.98 < together.seconds < single.seconds * 1.02


def test_programs_to_measure_have_the_form() -> None:
    options = ScheduleOptions(sizes=sizes_of(projections(), 256, **WIDTHS), warp_specialise=True)
    found = choices([projections().deduplicated()], options, 6)
    assert found[0].warp_specialised and 2 <= sum(choice.warp_specialised for choice in found) < 6
