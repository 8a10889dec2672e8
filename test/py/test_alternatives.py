"""Every program that the search returns can be scheduled, and computes what the source does."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from discovery_programs import PROGRAMS

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.passes.graph_io import from_graph
from cleave.passes.tile_io import from_tile_program
from cleave.passes.verify import verify
from cleave.reference import run
from cleave.schedule.free_symbols import free_symbols
from cleave.schedule.partition import cuts
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.search.superoptimise import superoptimise

CTX = context()
NUMPY = {"f16": np.float16, "f32": np.float32}
SIZES = {
    "m": 19,
    "n": 77,
    "k": 45,
    "h": 2,
    "f": 33,
    "o": 20,
    "kv": 2,
    "g": 3,
    "e": 21,
    "d": 13,
    "r": 5,
    "c": 70,
    "u": 7,
}
PARTS = 3

GRAPHS = [
    graphs.matmul(),
    graphs.matmul_rowsum(),
    graphs.matmul_and_rowsum(),
    graphs.matmul_matmul(),
    graphs.attention(mask=True, lse=True),
    graphs.causal_attention(),
    graphs.causal_attention(cap=True),
    graphs.causal_attention(sink=True),
    graphs.gqa(),
    graphs.qk_norm_attention(),
    graphs.rmsnorm_matmul(),
    graphs.rmsnorm_swiglu(),
    graphs.layernorm_matmul(),
    graphs.gated_mlp(),
    graphs.lora(),
    graphs.linear_attention(),
    graphs.log_sum_exp(),
    graphs.cross_entropy(),
    graphs.variance(),
    PROGRAMS["variance"]().named("variance_in_parts"),
    PROGRAMS["appended"](),
]


def inputs_for(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = {**SIZES, **graph.extents}
    made: list[np.ndarray] = []
    for value in graph.inputs:
        shape = [dim.size.evaluate(sizes) for dim in value.dims]
        if value.dtype == "i32":
            made.append(rng.integers(0, sizes["n"], shape).astype(np.int32))
        else:
            made.append(rng.standard_normal(shape).astype(NUMPY[value.dtype]))
    return made


def execute(module: ir.Module, graph: Graph, inputs: list[np.ndarray], free: dict[str, int]) -> list[np.ndarray]:
    assert not verify(module)
    return run(module, graph.name, inputs, precision="f64", sizes=free)


def results(program: Graph, inputs: list[np.ndarray], tilings: int) -> list[list[np.ndarray]]:
    """Of the graph and of the kernels for it."""
    free = dict.fromkeys(sorted(free_symbols(program)), PARTS)
    with CTX, ir.Location.unknown():
        plain, tiled = ir.Module.create(), ir.Module.create()
        from_graph(program, plain)
        from_tile_program(schedule(program, ScheduleOptions(sizes=free, max_tilings=tilings)).program, tiled)
        return [execute(module, program, inputs, free) for module in (plain, tiled)]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_alternatives(graph: Graph) -> None:
    inputs, expected = inputs_for(graph), None
    for alternative in superoptimise(graph).alternatives:
        found = results(alternative.graph.named(graph.name).deduplicated(), inputs, 3)
        expected = expected or found[0]
        for outputs in found:
            for actual, wanted in zip(outputs, expected, strict=True):
                np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())


def test_parts_that_need_what_all_parts_give() -> None:
    """Deviations from a mean, by parts once more: the mean is combined in memory first."""
    b = GraphBuilder("deviations")
    x = b.split(b.input("m n", "f32"), dim="n", into=["s", "t=ceildiv(n, s)"])
    total = b.reduce(b.reduce(x, kind="sum", over=["t"]), kind="sum", over=["s"])
    d = b.abs(b.sub(x, b.mul(total, b.constant(0.01, "f32"))))
    graph = b.build(b.reduce(b.reduce(d, kind="max", over=["t"]), kind="max", over=["s"])).deduplicated()
    assert all(any(value.attrs.get("over") == ("s",) for value in cut) for cut in cuts(graph))
    wanted, actual = results(graph, inputs_for(graph), 3)
    np.testing.assert_allclose(actual[0], wanted[0], rtol=1e-12)
