"""LayerNorm and a linear layer in one pass at any width: the offset that keeps digits exists at every size."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from compiled import Compiled, compile_graph, reference
from discovery_programs import PROGRAMS
from test_discoveries import alternatives, independent, rank_two_correction

from cleave.dialects.dims import Facts
from cleave.dialects.graph import GraphBuilder
from cleave.reference.accuracy import compare
from cleave.search.recentre import recentred

NAME = "layernorm_linear_symbolic"


@cache
def kernels(split: bool) -> Compiled:
    """One pass, the mean as a correction by column sums; without and with parts."""
    found = [a.graph for a in alternatives(NAME)[1:] if (a.split is not None) == split]
    one_pass = next(graph for graph in found if independent("t" if split else "k")(graph))
    assert split or rank_two_correction(one_pass)
    return compile_graph(one_pass, {"m": 64, "n": 64, "k": 300})


def test_no_facts_are_asked_for() -> None:
    facts = [a.graph.facts.texts for a in alternatives(NAME)]
    assert all(texts in ((), ("1 <= s", "1 <= u")) for texts in facts)
    assert all("k = 0" in a.certificate.floats.draws for a in alternatives(NAME)[1:] if a.certificate.floats)


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("k", [0, 1, 15, 17, 300])
@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_kernels_at_any_width(split: bool, k: int, mean: float) -> None:
    source = PROGRAMS[NAME]()
    rng = np.random.default_rng(k)
    shapes = [(5, k), (k, 7), (k,), (k,)]
    x, *others = [rng.standard_normal(shape) for shape in shapes]
    inputs = [np.asarray(a, np.float16) for a in (x + mean, *others)]
    exact, own = reference(source, inputs, "f64"), reference(source, inputs)
    made = kernels(split)(inputs, {"s": 3} if split else {})
    for e, o, m in zip(exact, own, made, strict=True):
        assert np.all(np.isfinite(m)) and compare(e, o, m, "f16").holds


@pytest.mark.parametrize(
    ("size", "facts", "count"),
    [
        ("k", [], "min(k, 16)"),
        ("k", ["20 <= k"], "16"),
        ("k=3", [], "3"),
        ("k=64", [], "16"),
        ("k", ["k = 16*j"], "16*min(j, 1)"),
    ],
)
def test_how_many_elements_the_offset_is_made_of(size: str, facts: list[str], count: str) -> None:
    b = GraphBuilder("variance", Facts.parse(facts))
    x = b.input(f"m {size}", "f32")
    graph = b.build(b.reduce(b.mul(x, x), kind="sum", over=["k"]))
    slices = [value for value in recentred(graph, {0: "k"}).topological() if value.op == "slice"]
    assert [str(value.size("first")) for value in slices] == [count]
