"""Constant factors outside of extrema: what the graph computes stays the same to the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cleave.bindings import context, ir
from cleave.dialects.dims import Dim
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.passes.graph_io import from_graph
from cleave.reference import run
from cleave.schedule.scaled_extrema import with_scaled_extrema

INF = math.inf


def evaluated(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """By the reference executor, every op rounded to its type."""
    with context(), ir.Location.unknown(), np.errstate(all="ignore"):
        module = ir.Module.create()
        from_graph(graph, module)
        return run(module, graph.name, inputs, precision="declared")


def scaled(b: GraphBuilder, x: Value, factor: float, op: str) -> Value:
    c = b.constant(factor, x.dtype)
    return b.div(x, c) if op == "div" else b.mul(x, c) if op == "mul" else b.mul(c, x)


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    x = (np.random.default_rng(0).standard_normal(shape) * 1e10).astype(np.float32)
    x[0, 3], x[1, 4], x[2, 5], x[3], x[4, 1] = np.nan, INF, -INF, -0.0, 1e-42
    return x


@pytest.mark.parametrize("op", ["mul", "mul_left", "div"])
@pytest.mark.parametrize("factor", [0.3, 1e30, 1e-40, 3.0, 0.125])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_extrema_and_what_compares_with_them(kind: str, factor: float, op: str) -> None:
    b = GraphBuilder("f")
    x = b.input("m n=16", "f32")
    s = scaled(b, x, factor, op)
    top = b.reduce(s, kind=kind, over=["n"])
    graph = b.build(top, b.cast(b.cmp(s, top, predicate="eq"), dtype="f32"))
    found = with_scaled_extrema(graph)
    reduced = next(value for value in found.topological() if value.op == "reduce")
    assert reduced.operands[0].op == "input"
    for one, other in zip(evaluated(graph, [numbers((7, 16))]), evaluated(found, [numbers((7, 16))]), strict=True):
        np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize("factor", [-0.3, 0.0, INF, math.nan])
def test_other_factors_stay(factor: float) -> None:
    b = GraphBuilder("f")
    x = b.input("m n=16", "f32")
    graph = b.build(b.reduce(scaled(b, x, factor, "mul"), kind="max", over=["n"]))
    assert [v.op for v in with_scaled_extrema(graph).topological()] == [v.op for v in graph.topological()]


def test_narrow_products_and_sums_stay() -> None:
    """A product in f16 is the user's rounding; a sum is not the sum of products to the last bit."""
    b = GraphBuilder("f")
    x, y = b.input("m n=16", "f16"), b.input("m n=16", "f32")
    graph = b.build(
        b.reduce(scaled(b, x, 0.3, "mul"), kind="max", over=["n"]),
        b.reduce(scaled(b, y, 0.3, "mul"), over=["n"], kind="sum"),
    )
    assert [v.op for v in with_scaled_extrema(graph).topological()] == [v.op for v in graph.topological()]


def test_differences_masks_and_guards() -> None:
    """The exponent of softmax with a mask; a factor that both sides share is outside of the difference."""
    b = GraphBuilder("f")
    x, seen = b.input("m n=16", "f32"), b.input("m n=16", "i1")
    s = b.select(seen, scaled(b, x, 0.3, "mul"), b.constant(-INF, "f32"))
    top = b.reduce(s, kind="max", over=["n"])
    w = b.select(b.cmp(top, b.constant(-INF, "f32"), predicate="eq"), b.constant(0.0, "f32"), top)
    graph = b.build(b.exp(b.sub(s, w)), top, w)
    found = with_scaled_extrema(graph)
    exponent = found.outputs[0].operands[0]
    assert exponent.op == "mul" and exponent.operands[0].op == "sub"
    assert {v.op for v in exponent.operands[0].operands} == {"select"}
    x = np.random.default_rng(0).standard_normal((7, 16)).astype(np.float32) * 30
    seen = np.random.default_rng(1).random((7, 16)) < 0.5
    seen[2] = False
    for one, other in zip(evaluated(graph, [x, seen]), evaluated(found, [x, seen]), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)


def test_a_mask_that_orders_dims_otherwise() -> None:
    """As in causal attention, where positions of keys and queries come first."""
    b = GraphBuilder("f")
    x, seen = b.input("h m n=16", "f32"), b.input("n=16 m", "i1")
    s = b.select(seen, scaled(b, x, 0.3, "mul"), b.constant(-INF, "f32"))
    assert s.names != x.names
    top = b.reduce(s, kind="max", over=["n"])
    graph = b.build(b.exp(b.sub(s, top)), top)
    found = with_scaled_extrema(graph)
    assert found.outputs[0].operands[0].op == "mul"
    assert {v.op for v in found.outputs[0].operands[0].operands[0].operands} <= {"select", "reduce"}
    assert [output.type for output in found.outputs] == [output.type for output in graph.outputs]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((3, 7, 16)).astype(np.float32) * 30, rng.random((16, 7)) < 0.7]
    inputs[1][0] = True
    for one, other in zip(evaluated(graph, inputs), evaluated(found, inputs), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)


def test_a_maximum_beside_a_sink_stays() -> None:
    """Exponents are then relative to the larger of the two, which is no multiple of scaled scores."""
    b = GraphBuilder("f")
    s = scaled(b, b.input("m n=16", "f32"), 0.3, "mul")
    w = b.max(b.reduce(s, kind="max", over=["n"]), b.input("m", "f32"))
    graph = b.build(b.reduce(b.exp(b.sub(s, w)), kind="sum", over=["n"]))
    assert [v.op for v in with_scaled_extrema(graph).topological()] == [v.op for v in graph.topological()]


def test_a_constant_that_adds_a_dim_stays() -> None:
    b = GraphBuilder("f")
    x = b.input("m", "f32")
    c = b.constant(0.3, "f32", (Dim.parse("n"),))
    b.extents["n"] = 16
    graph = b.build(b.reduce(b.mul(x, c), kind="max", over=["n"]))
    assert [v.op for v in with_scaled_extrema(graph).topological()] == [v.op for v in graph.topological()]


def test_different_factors_stay_inside() -> None:
    b = GraphBuilder("f")
    x = b.input("m n=16", "f32")
    top = b.reduce(scaled(b, x, 0.3, "mul"), kind="max", over=["n"])
    found = with_scaled_extrema(b.build(b.exp(b.sub(scaled(b, x, 0.5, "mul"), top))))
    assert found.outputs[0].operands[0].op == "sub"
