"""A part of the exponentials of warp-specialised loops by a polynomial (cleave/lowering/exponentials.py)."""

from __future__ import annotations

import re

import graphs
import numpy as np
import pytest
from compiled import reference
from test_warp_specialised import lowered, run

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.lowering.compile_ttir import compile_many
from cleave.lowering.form import Form
from cleave.lowering.targets import Target
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.execute import execute
from cleave.runtime.ttir_assembly import LEAST, POLYNOMIAL, TOGETHER

SHARED = Form(polynomial=True)
MARK = f"packed_element = {TOGETHER} : i32"


def polynomial(x: np.ndarray) -> np.ndarray:
    coefficients = np.array(POLYNOMIAL, np.uint32).view(np.float32)
    found = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        found = found * x + coefficient
    return found


def test_the_polynomial() -> None:
    x = np.linspace(-0.5, 0.5, 100001, dtype=np.float32)
    assert np.abs(polynomial(x) / np.exp2(x.astype(float)) - 1).max() < 1.02e-4
    assert polynomial(np.zeros(1, np.float32)) == 1


def test_the_least_exponent_leaves_a_number() -> None:
    """What is added to the bits of the polynomial never makes the exponent of a number that is below 1 negative."""
    x = np.linspace(-0.5, 0.5, 1001, dtype=np.float32)
    bits = polynomial(x).view(np.int32) + np.int32(int(LEAST) * 2**23)
    assert (bits >= 0).all() and (bits.view(np.float32) <= 2.0**-125).all()


RIGHT: list[tuple[Graph, dict[str, int]]] = [
    (graphs.attention(division_last=True), {"h": 1, "m": 70, "n": 150}),
    (graphs.attention(division_last=True), {"h": 2, "m": 1, "n": 1}),
    (graphs.attention(division_last=True), {"h": 1, "m": 0, "n": 3}),
    (graphs.causal_attention(), {"h": 1, "m": 70, "n": 200}),
]


@pytest.mark.parametrize(("graph", "sizes"), RIGHT)
def test_numbers(graph: Graph, sizes: dict[str, int]) -> None:
    _, (kernel,), _ = lowered(graph, form=SHARED)
    assert MARK in kernel.text
    assert run(graph, {kernel.name: kernel.text}, sizes, 0, form=SHARED) < 1e-3


def test_masked_tiles_are_computed_as_before() -> None:
    """Causal attention has a loop without a mask and one with it, in each of two consumers and three places of each."""
    _, (usual,), _ = lowered(graphs.causal_attention())
    _, (kernel,), _ = lowered(graphs.causal_attention(), form=SHARED)
    tiles = re.compile(r'"math\.exp2"\(%\w+\)[^:]*: \(tensor<64x\d+xf32')
    assert 0 < len(tiles.findall(kernel.text)) < len(tiles.findall(usual.text))


def test_rows_without_a_number_and_masked_throughout() -> None:
    graph = graphs.attention(division_last=True, mask=True)
    plan, (kernel,), _ = lowered(graph, form=SHARED)
    bound = {**graph.extents, "h": 1, "m": 70, "n": 150}
    rng = np.random.default_rng(0)
    shapes = [[dim.size.evaluate(bound) for dim in value.dims] for value in graph.inputs]
    dtypes = {"f16": np.float16, "f32": np.float32}
    inputs = [rng.standard_normal(s).astype(dtypes[v.dtype]) for s, v in zip(shapes, graph.inputs, strict=True)]
    mask = inputs[-1] if inputs[-1].dtype == np.float32 else inputs[2]
    mask.reshape(-1, 150)[3, :149] = -np.inf
    mask.reshape(-1, 150)[7, 40] = np.inf
    inputs[0][0, 5] = np.nan
    (expected,) = reference(graph, inputs, "f64", bound)
    with np.errstate(all="ignore"):
        (found,) = execute(plan, {kernel.name: kernel.text}, inputs, choose_free(plan, {}))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert np.isnan(found[0, [5, 7]]).all() and np.isfinite(found[0, 3]).all()


def logits() -> Graph:
    """Also the sums themselves, in f32."""
    return graphs.attention(division_last=True, lse=True)


def exponents_without_a_maximum() -> Graph:
    b = GraphBuilder("features")
    q, k, v = b.input("h m d=64", "f16"), b.input("h n d=64", "f16"), b.input("h n e=64", "f16")
    weights = b.cast(b.exp(b.contract(q, k, over=["d"], dtype="f32")), dtype="f16")
    return b.build(b.contract(weights, v, over=["n"], dtype="f16"))


@pytest.mark.parametrize("graph", [logits(), exponents_without_a_maximum()], ids=["logits", "features"])
def test_other_exponentials_are_not_replaced(graph: Graph) -> None:
    _, kernels, _ = lowered(graph, form=SHARED)
    assert all(MARK not in kernel.text for kernel in kernels)


def test_ptx() -> None:
    _, (kernel,), _ = lowered(graphs.attention(division_last=True), form=SHARED)
    (compiled,) = compile_many([kernel.request(Target.parse("sm_90"))])
    assert not isinstance(compiled, Exception)
    assert compiled.spills <= 128 and not compiled.notes  # a number of a thread, kept in memory; no tile
    assert "add.rn.f32 j, x" in compiled.ptx
