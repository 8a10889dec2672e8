"""Errors that show only where sums are long: the float checks have such draws, and judge them on average."""

from __future__ import annotations

from collections.abc import Callable

import graphs
import numpy as np
import pytest
from compiled import reference

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.reference.accuracy import compare
from cleave.search import SearchOptions, superoptimise
from cleave.search.trials import ENOUGH, Trials


def split_difference() -> Graph:
    """Σ e·(e - z) with both operands in f16: as Σ e² - Σ e·z in tf32 it rounds z alone, which is larger than e - z."""
    return graphs.random_graph(9018)


def errors_hold(source: Graph, program: Graph) -> bool:
    """The contract at sizes of which none is the search's, by the reference executor."""
    sizes = {"a": 5, "b": 200, "c": 64, "s": 3, "s1": 3}
    rng = np.random.default_rng(0)
    shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in source.inputs]
    kinds = {"f16": np.float16, "f32": np.float32}
    inputs = [rng.standard_normal(s).astype(kinds[v.dtype]) for s, v in zip(shapes, source.inputs, strict=True)]
    exact, own, made = (
        reference(source, inputs, "f64"),
        reference(source, inputs),
        reference(program, inputs, sizes={"s": 3, "s1": 3}),
    )
    return all(compare(e, o, m, v.dtype).holds for e, o, m, v in zip(exact, own, made, source.outputs, strict=True))


def test_cancelling_summands_are_not_rounded_alone() -> None:
    source = split_difference().deduplicated()
    alternatives = superoptimise(source, SearchOptions()).alternatives[1:]
    assert alternatives and all(errors_hold(source, a.graph) for a in alternatives)


def test_without_long_sums_it_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trials, "long", lambda _: [])
    source = split_difference().deduplicated()
    assert not all(errors_hold(source, a.graph) for a in superoptimise(source).alternatives)


def dot(dims: str) -> Graph:
    b = GraphBuilder("dot")
    return b.build(b.contract(b.input(dims, "f16"), b.input("k", "f16"), over=["k"]))


@pytest.mark.parametrize("make", [lambda: dot("k"), lambda: dot("m k"), graphs.attention, split_difference])
def test_enough_elements(make: Callable[[], Graph]) -> None:
    """Each reduced dim is long in turn, with enough elements to tell chance from more, and little work."""
    source = make()
    groups = Trials(source, 0, {}).long()
    assert groups
    for trials in groups:
        for number in range(len(source.outputs)):
            assert sum(trial.exact[number].size for trial in trials) >= ENOUGH
        assert len({str(trial.inputs) for trial in trials}) == len(trials)


def test_static_dims_at_their_own_size_are_not_tried_again() -> None:
    b = GraphBuilder("dot")
    static = b.build(b.contract(b.input("m k=100", "f16"), b.input("k", "f16"), over=["k"]))
    assert not Trials(static, 0, {}).long()
