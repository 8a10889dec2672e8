"""Outputs along a dim that is also reduced (softmax, norms): one kernel, rows that are held or gone through twice."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import compile_graph, reference

import cleave
from cleave import f16, f32
from cleave.bench.subgraphs import ngpt_residual
from cleave.dialects.graph import Graph
from cleave.language.trace import trace
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.tile_program import has_loops


def softmax(x: f32["h m n"]) -> f32["h m n"]:
    return cleave.softmax(x, "n")


def softmax_of_columns(x: f32["m n"]) -> f32["m n"]:
    return cleave.softmax(x, "m")


def layer_norm(x: f16["m n"], g: f16["n"], b: f16["n"]) -> f16["m n"]:
    return cleave.layer_norm(x, "n", g, b)


def norm_and_its_scale(x: f16["m n"]) -> tuple[f16["m n"], f32["m"]]:
    scale = cleave.rsqrt((x * x).sum("n") + 1e-6)
    return x * scale, scale


def masked_softmax(x: f32["m n"]) -> f32["m n"]:
    return cleave.softmax(cleave.where(cleave.index("n") <= cleave.index("m"), x, -math.inf), "n")


ROWS = (softmax, softmax_of_columns, layer_norm, norm_and_its_scale, masked_softmax, ngpt_residual)
SIZES = ({"h": 2, "m": 5, "n": 37}, {"h": 1, "m": 1, "n": 1}, {"h": 3, "m": 2, "n": 1500}, {"h": 0, "m": 3, "n": 4})


def _inputs(graph: Graph, sizes: dict[str, int]) -> list[Any]:
    rng = np.random.default_rng(0)
    dtypes = {"f16": np.float16, "f32": np.float32}
    return [
        rng.standard_normal([dim.size.evaluate(sizes) for dim in value.dims]).astype(dtypes[value.dtype])
        for value in graph.inputs
    ]


@pytest.mark.parametrize("function", ROWS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_one_kernel_and_right(function: Any, static: bool) -> None:
    graph = trace(function)
    for sizes in SIZES:
        sizes = {**sizes, "k": sizes["n"]}
        symbols = {name for value in graph.inputs for dim in value.dims for name in dim.size.symbols}
        extents = {name: sizes[name] for name in ("n", "k") if static and name in symbols and sizes["h"]}
        made = replace(graph, extents=extents)
        compiled = compile_graph(made, {"m": 4096, "h": 8, "n": 4096, "k": 4096, **extents}, tilings=8)
        assert len(compiled.plan.launches) == 1
        inputs = _inputs(graph, sizes)
        for out, exact in zip(compiled(inputs), reference(made, inputs, "f64"), strict=True):
            np.testing.assert_allclose(out, exact, rtol=2e-3 if out.dtype == np.float16 else 1e-5, atol=1e-6)


def test_a_row_that_fits_is_read_once() -> None:
    graph = replace(trace(layer_norm), extents={"n": 1024})
    (candidates,) = schedule(graph.deduplicated(), ScheduleOptions(sizes={"m": 4096})).candidates
    held = [candidate for candidate in candidates if candidate.tiling.resident]
    assert held and all(not has_loops(candidate.kernel) for candidate in held)
    tiles = {**held[0].tiling.grid, **held[0].tiling.reduced}
    assert {tiles[name] for name in held[0].tiling.resident} == {1024}


def test_a_row_of_any_length_is_gone_through_again_by_its_block() -> None:
    program = schedule(trace(layer_norm).deduplicated(), ScheduleOptions(sizes={"m": 4096, "n": 4096})).program
    (launch,) = program.launches
    loops = [i for i in launch.kernel.body.instructions if i.op == "scf.for"]
    assert [bool(loop.results) for loop in loops][-1] is False and any(loop.results for loop in loops)
    assert [i.op for i in loops[-1].body.instructions].count("store") == 1 and str(launch.kernel.grid[0]).count(
        "m"
    ) == 1
