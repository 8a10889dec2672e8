"""``cleave.empty_rows = "zero"``: rows without an unmasked key give 0, in the reference and in every compiled form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from compiled import CTX, alternatives, compile_graph
from semantics_cases import attention_of, softmax_parts

from cleave.bindings import ir
from cleave.dialects.empty_rows import zero_empty_rows
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.passes import pipelines, registry
from cleave.passes.graph_io import EMPTY_ROWS, from_graph, meant_graph
from cleave.reference import run

INF = np.inf


def built(outputs: Callable[[GraphBuilder, Value, Value], tuple[Value, ...]]) -> Graph:
    b = GraphBuilder(outputs.__name__.strip("_"))
    return b.build(*outputs(b, b.input("m n", "f32"), b.input("n d", "f32")))


def _deferred(b: GraphBuilder, s: Value, v: Value) -> tuple[Value, ...]:
    top, e, total = softmax_parts(b, s)
    return b.div(b.contract(e, v, over=["n"]), total), b.add(top, b.log(total))


def _weights_first(b: GraphBuilder, s: Value, v: Value) -> tuple[Value, ...]:
    scaled = b.mul(s, b.constant(0.5, "f32"))
    return (b.contract(softmax(b, scaled), v, over=["n"]),)


def softmax(b: GraphBuilder, s: Value) -> Value:
    _, e, total = softmax_parts(b, s)
    return b.div(e, total)


def _by_the_logarithm(b: GraphBuilder, s: Value, v: Value) -> tuple[Value, ...]:
    """The weights as exp(s − lse)."""
    top, _, total = softmax_parts(b, s)
    lse = b.add(b.log(total), top)
    return b.contract(b.exp(b.sub(s, lse)), v, over=["n"]), lse


def _by_a_reciprocal(b: GraphBuilder, s: Value, v: Value) -> tuple[Value, ...]:
    _, e, total = softmax_parts(b, s)
    return (b.mul(b.contract(e, v, over=["n"]), b.div(b.constant(1.0, "f32"), total)),)


def _scaled_difference(b: GraphBuilder, s: Value, v: Value) -> tuple[Value, ...]:
    top = b.reduce(s, kind="max", over=["n"])
    e = b.exp2(b.mul(b.sub(s, top), b.constant(1.5, "f32")))
    return (b.div(b.contract(e, v, over=["n"]), b.reduce(e, kind="sum", over=["n"])),)


FORMS = [_deferred, _weights_first, _by_the_logarithm, _by_a_reciprocal, _scaled_difference]


def reference(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module, {EMPTY_ROWS: ir.StringAttr.get("zero")})
        return run(module, graph.name, inputs, precision="f64")


def assert_same(actual: list[np.ndarray], expected: list[np.ndarray], what: object) -> None:
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=str(what))


def inputs(m: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(m + n)
    scores = rng.standard_normal((m, n)).astype(np.float32)
    scores[1::3] = -INF
    scores[2, : n // 2 + 1] = -INF
    return [scores, rng.standard_normal((n, 3)).astype(np.float32)]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_and_alternative(form: Callable[..., tuple[Value, ...]]) -> None:
    graph = built(form)
    for program in (graph, *alternatives(graph)):
        compiled = compile_graph(zero_empty_rows(program))
        for m, n in ((4, 1), (5, 150)) if program is graph else ((5, 150),):
            expected = reference(graph, inputs(m, n))
            assert (expected[0][1] == 0).all()
            assert np.isfinite(expected[0]).all()
            assert len(expected) == 1 or expected[1][1] == -INF
            for parts in (1, 3) if any(v.op == "split" for v in program.topological()) else (1,):
                assert_same(compiled(inputs(m, n), {"s": parts}), expected, program)


def test_right_answers() -> None:
    scores, values = np.zeros((3, 4), np.float32), np.array([[2], [4], [6], [8]], np.float32)
    scores[1] = -INF
    for form in FORMS:
        out = reference(built(form), [scores, values])
        np.testing.assert_allclose(out[0][:, 0], [5, 0, 5], rtol=1e-12)
        if len(out) > 1:
            np.testing.assert_allclose(out[1], [np.log(4), -INF, np.log(4)], rtol=1e-12)


def test_attention_stays_one_loop() -> None:
    sizes = {"m": 64, "n": 4096, "d": 64}
    (text,) = compile_graph(zero_empty_rows(built(_deferred)), sizes).kernels.values()
    assert 1 <= text.count('"scf.for"') <= 2  # over full tiles and over the rest, or over all


def test_a_sink_and_a_division_that_is_no_softmax() -> None:
    """A row without keys has its sink; x over the sum of magnitudes stays 0/0."""
    b = GraphBuilder("others")
    s, v, sink = b.input("m n", "f32"), b.input("n", "f32"), b.input("m", "f32")
    top = b.max(b.reduce(s, kind="max", over=["n"]), sink)
    e = b.exp(b.sub(s, top))
    total = b.add(b.reduce(e, kind="sum", over=["n"]), b.exp(b.sub(sink, top)))
    out = b.div(b.contract(e, v, over=["n"]), total)
    graph = b.build(out, b.div(v, b.reduce(b.abs(v), kind="sum", over=["n"])))
    scores = np.array([[-INF, -INF], [-INF, -INF], [0, 0]], np.float32)
    values = [scores, np.zeros(2, np.float32), np.array([1, -INF, 0], np.float32)]
    expected = [[0, 0, 0], [np.nan, np.nan]]
    assert_same(reference(graph, values), [np.array(x) for x in expected], "reference")
    assert_same(compile_graph(zero_empty_rows(graph))(values), [np.array(x) for x in expected], "compiled")


def test_the_attribute_goes_through_the_passes() -> None:
    b = GraphBuilder("attention")
    graph = b.build(attention_of(b, b.input("m n", "f32"), b.input("n d", "f32")))
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module, {EMPTY_ROWS: ir.StringAttr.get("zero")})
        pipelines.run([registry.create("cleave-superopt")], module)
        functions = [op.operation for op in module.body.operations]
        assert len(functions) > 1
        for func in functions:
            assert EMPTY_ROWS in func.attributes
            assert any(value.op == "select" for value in meant_graph(func).topological())
