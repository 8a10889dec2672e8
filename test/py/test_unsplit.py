"""Sources that split dims themselves: the search sees the whole dims, and improves them as it does others."""

from __future__ import annotations

import numpy as np
import pytest
from search_programs import evaluate, inputs_of, scores

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.search import superoptimise


def split_keys(b: GraphBuilder) -> tuple[Value, Value, Value]:
    q, k, v = b.input("h m d", "f16"), b.input("h n d", "f16"), b.input("h n e", "f16")
    k, v = (b.split(x, dim="n", into=["s", "t=ceildiv(n,s)"]) for x in (k, v))
    return q, k, v


def softmax_on_parts() -> Graph:
    """Plain attention, but the keys are in parts."""
    b = GraphBuilder("softmax_on_parts", facts=["1 <= s"])
    q, k, v = split_keys(b)
    z = scores(b, q, k)
    p = b.exp(b.sub(z, b.reduce(z, kind="max", over=["s", "t"])))
    p = b.div(p, b.reduce(p, kind="sum", over=["s", "t"]))
    return b.build(b.cast(b.contract(b.cast(p, dtype="f16"), v, over=["s", "t"]), dtype="f16"))


def partial_softmax() -> Graph:
    """Each part's maximum, sum and product with the values, combined; each part is divided before it is."""
    b = GraphBuilder("partial_softmax", facts=["1 <= s"])
    q, k, v = split_keys(b)
    z = scores(b, q, k)
    top = b.reduce(z, kind="max", over=["t"])
    p = b.exp(b.sub(z, top))
    weight = b.exp(b.sub(top, b.reduce(top, kind="max", over=["s"])))
    total = b.contract(weight, b.reduce(p, kind="sum", over=["t"]), over=["s"])
    out = b.contract(b.div(weight, total), b.contract(b.cast(p, dtype="f16"), v, over=["t"], dtype="f32"), over=["s"])
    return b.build(b.cast(out, dtype="f16"))


def scaled_split_k(inner: str = "t=ceildiv(k,s)", k: str = "k") -> Graph:
    """A scale that is applied to every element of x before a contraction in parts."""
    b = GraphBuilder("scaled_split_k", facts=["1 <= s"])
    x, w = b.input(f"m {k}", "f16"), b.input(f"{k} n", "f16")
    x, w = (b.split(v, dim="k", into=["s", inner]) for v in (x, w))
    y = b.mul(b.cast(x, dtype="f32"), b.input("m", "f32"))
    return b.build(b.reduce(b.contract(y, b.cast(w, dtype="f32"), over=["t"]), kind="sum", over=["s"]))


SOURCES = {
    "softmax_on_parts": softmax_on_parts,
    "partial_softmax": partial_softmax,
    "scaled_split_k": scaled_split_k,
    "exact": lambda: scaled_split_k("t", "k=s*t"),
}


def dims(graph: Graph) -> set[str]:
    return {name for value in graph.topological() for name in value.names}


@pytest.mark.parametrize("name", SOURCES)
def test_all_are_equal_and_some_are_better(name: str) -> None:
    source, *others = superoptimise(SOURCES[name]()).alternatives
    sizes = {"h": 2, "m": 3, "n": 7, "d": 4, "e": 2, "k": 12, "s": 3, "s1": 2, "t": 4, "u": 3, "u1": 2}
    inputs = inputs_of(source.graph, sizes)
    (want,) = evaluate(source.graph, inputs, sizes)
    for other in others:
        np.testing.assert_allclose(evaluate(other.graph, inputs, sizes)[0], want, rtol=1e-9, atol=1e-12)
    assert any(a.cost.depth < source.cost.depth for a in others)


@pytest.mark.parametrize("name", ["softmax_on_parts", "partial_softmax"])
def test_the_split_goes_or_is_another(name: str) -> None:
    """Among what is found: attention on whole keys, and in parts of the search's own, both without the source's."""
    _, *others = superoptimise(SOURCES[name]()).alternatives
    assert any(a.split is None and not {"s", "t"} & dims(a.graph) for a in others)
    assert any(a.split == "n" and not {"s", "t"} & dims(a.graph) for a in others)
    assert all(v.op != "div" or "e" in v.names for v in others[0].graph.topological())
