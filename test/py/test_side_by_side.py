"""Independent kernels in one launch, their grids one after the other."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from compiled import compile_graph, reference
from test_ptx import compiled

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.side_by_side import levels, outputs_of

SIZES = {"m": 64, "k": 4096, "q": 4096, "v": 1024, "w": 1024}


def two_unrelated() -> Graph:
    """Two outputs that have nothing in common but a dimension."""
    b = GraphBuilder("two_unrelated")
    x, y = b.input("m k", "f32"), b.input("m q", "f32")
    return b.build(b.reduce(x, kind="sum", over=["k"]), b.exp(y))


def then_another() -> Graph:
    """Two kernels side by side, and one that needs what they write."""
    b = GraphBuilder("then_another")
    x = b.input("m k", "f16")
    left, right = (b.contract(x, b.input(f"k {n}", "f16"), over=["k"], dtype="f16") for n in ("q", "v"))
    return b.build(left, right, b.contract(left, b.input("q w", "f16"), over=["q"], dtype="f16"))


@pytest.mark.parametrize(
    "sizes",
    [
        {"m": 5, "k": 45, "q": 70, "v": 33, "w": 17},
        {"m": 1, "k": 1, "q": 1, "v": 1, "w": 1},
        {"m": 40, "k": 33, "q": 0, "v": 33, "w": 100},
        {"m": 3, "k": 5, "q": 1, "v": 0, "w": 0},
        {"m": 0, "k": 3, "q": 1, "v": 2, "w": 3},
        {"m": 3, "k": 0, "q": 7, "v": 2, "w": 3},
    ],
    ids=lambda sizes: "-".join(map(str, sizes.values())),
)
@pytest.mark.parametrize("graph", [graphs.qkv(), two_unrelated(), then_another()], ids=lambda graph: graph.name)
def test_numbers(graph: Graph, sizes: dict[str, int]) -> None:
    """Sizes at which some of the grids are empty; NaN in outputs that nobody writes."""
    program = compile_graph(graph, SIZES, tilings=4)
    rng = np.random.default_rng(0)
    shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in graph.inputs]
    kinds = {"f16": np.float16, "f32": np.float32}
    inputs = [rng.standard_normal(s).astype(kinds[v.dtype]) for s, v in zip(shapes, graph.inputs, strict=True)]
    for expected, out in zip(reference(graph, inputs, "f64"), program(inputs), strict=True):
        np.testing.assert_allclose(out, expected, rtol=0, atol=3e-3 * np.abs(expected).max(initial=1e-9))


def test_one_launch_where_it_is_faster() -> None:
    together, apart = (
        schedule(graphs.qkv(), ScheduleOptions(sizes=SIZES, horizontal_fusion=on, max_tilings=4))
        for on in (True, False)
    )
    assert (len(together.program.launches), len(apart.program.launches)) == (1, 3)
    assert together.seconds < apart.seconds
    (kernel,) = together.program.kernels
    assert len(kernel.beside) == 3


def test_what_depends_on_a_kernel_comes_after_it() -> None:
    scheduled = schedule(then_another(), ScheduleOptions(sizes=SIZES, horizontal_fusion=False, max_tilings=4))
    assert len(levels([(launch.operands, outputs_of(launch)) for launch in scheduled.program.launches])) == 2


def test_code_of_three_projections() -> None:
    """Each branch with its own loop on the tensor cores, its loads by descriptors, all in the same shared memory."""
    b = GraphBuilder("qkv", facts=[f"{name} = 16*{name}1" for name in "kqvw"])
    x = b.input("m k", "f16")
    graph = b.build(*(b.contract(x, b.input(f"k {n}", "f16"), over=["k"], dtype="f16") for n in "qvw"))
    known = {f"{name}1": SIZES[name] // 16 for name in "kqvw"}
    (kernel,) = compiled(graph, {**SIZES, **known, "m": 2048})
    assert "wgmma.mma_async" in kernel.ptx
    assert "cp.async.bulk.tensor" in kernel.ptx
    assert "cp.async.c" not in kernel.ptx
    assert kernel.fits
    assert kernel.spills == 0
