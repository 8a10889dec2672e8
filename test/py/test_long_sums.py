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
from cleave.search.floats import FloatChecker
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


def hidden(expanded: bool) -> Graph:
    """Where y < Σ x², which nearly always is so for inputs of unit size, the output does not show y = Σ (v - mean v)·p.

    ``expanded``: y as Σ v·p less mean v · Σ p, of which both are rounded on their own and Σ p through the columns of w.
    """
    b = GraphBuilder("hidden", facts=["1 <= a"])
    x, w = b.input("b c", "f32"), b.input("a b", "f32")
    v = b.reduce(b.mul(w, w), kind="sum", over=["b"])
    ones = b.constant(1.0, "f32", [d for d in w.dims if d.name == "a"])
    mean = b.div(b.reduce(v, kind="sum", over=["a"]), b.reduce(ones, kind="sum", over=["a"]))
    p = b.contract(b.cast(w, dtype="tf32"), b.cast(x, dtype="tf32"), over=["b"], dtype="f32")
    if expanded:
        total = b.contract(b.reduce(w, kind="sum", over=["a"]), x, over=["b"], dtype="f32")
        y = b.sub(b.reduce(b.mul(v, p), kind="sum", over=["a"]), b.mul(mean, total))
    else:
        y = b.reduce(b.mul(b.sub(v, mean), p), kind="sum", over=["a"])
    y = b.div(y, b.add(b.reduce(b.abs(y), kind="sum", over=["c"]), b.constant(0.5, "f32")))
    larger = b.cmp(y, b.reduce(b.mul(x, x), kind="sum", over=["c"]), predicate="ge")
    return b.build(b.select(larger, y, b.constant(0.5, "f32")))


def test_trials_are_of_a_scale_that_shows_roundings() -> None:
    (trials,) = [trials for trials in Trials(hidden(expanded=False), 0, {}).long() if trials[0].sizes["b"] > 100]
    assert trials[0].draw.scales
    rounded = [own != exact for trial in trials for own, exact in zip(trial.own, trial.exact, strict=True)]
    assert np.mean(rounded) >= 0.25


def test_errors_that_a_comparison_hides_are_seen() -> None:
    """v varies by an eighth of its size, so the difference of two products with it loses three bits of theirs."""
    _, why = FloatChecker(hidden(expanded=False), 0, {}).check(hidden(expanded=True))
    assert "on average" in why
