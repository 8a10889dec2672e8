"""Variances and covariances: all ways to write them are one function, and a split of two passes is Chan's."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from discovery_programs import PROGRAMS
from search_programs import evaluate, inputs_of

from cleave.dialects.dims import Dim
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.search import Alternative, SearchOptions, superoptimise
from cleave.search.binders import Algebra
from cleave.search.lift import Lifter
from cleave.search.limits import Limits
from cleave.search.terms import Poly


def total(b: GraphBuilder, x: Value, over: str) -> Value:
    return b.reduce(x, kind="sum", over=[over])


def count(b: GraphBuilder, x: Value, over: str) -> Value:
    """How many elements there are along the dim, from the program itself."""
    dims = [dim for dim in x.dims if dim.name in (over, "s")]
    return total(b, b.constant(1.0, "f32", dims), over)


def two_pass(b: GraphBuilder, x: Value, y: Value) -> Value:
    n = count(b, x, "k")
    deviations = (b.sub(v, b.div(total(b, v, "k"), n)) for v in (x, y))
    return b.div(total(b, b.mul(*deviations), "k"), n)


def one_pass(b: GraphBuilder, x: Value, y: Value) -> Value:
    n = count(b, x, "k")
    means = (b.div(total(b, v, "k"), n) for v in (x, y))
    return b.sub(b.div(total(b, b.mul(x, y), "k"), n), b.mul(*means))


def shifted(b: GraphBuilder, x: Value, y: Value) -> Value:
    """One pass over deviations from any other number."""
    shift = b.input("m", "f32")
    return one_pass(b, b.sub(x, shift), b.sub(y, shift))


def chan(b: GraphBuilder, x: Value, y: Value) -> Value:
    """Each part's count, means and sum of products of deviations; combined as Chan, Golub and LeVeque do."""
    x, y = (b.split(v, dim="k", into=["s", "t=ceildiv(k,s)"]) for v in (x, y))
    n = count(b, x, "t")
    means = [b.div(total(b, v, "t"), n) for v in (x, y)]
    within = total(b, b.mul(*(b.sub(v, mean) for v, mean in zip((x, y), means, strict=True))), "t")
    whole = total(b, n, "s")
    overall = [b.div(total(b, b.mul(mean, n), "s"), whole) for mean in means]
    between = b.mul(*(b.sub(mean, all_) for mean, all_ in zip(means, overall, strict=True)))
    return b.div(total(b, b.add(within, b.mul(between, n)), "s"), whole)


FORMS = {"two passes": two_pass, "one pass": one_pass, "shifted": shifted, "Chan": chan}


def program(name: str, same: bool) -> Graph:
    b = GraphBuilder("variance", facts=["1 <= k", "1 <= s"])
    x = b.input("m k", "f32")
    return b.build(FORMS[name](b, x, x if same else b.input("m k", "f32")))


@pytest.mark.parametrize("same", [True, False])
def test_all_forms_are_one(same: bool) -> None:
    lifter = Lifter(Algebra())
    forms: dict[str, Poly] = {}
    for name in FORMS:
        graph = program(name, same)
        forms[name] = lifter.lift(graph)[graph.outputs[0]]
    assert len(set(forms.values())) == 1, forms


def test_a_wrong_combination_is_none_of_them() -> None:
    """Parts weighted alike, though their counts differ."""
    b = GraphBuilder("wrong", facts=["1 <= k", "1 <= s"])
    x = b.input("m k", "f32")
    parts = b.split(x, dim="k", into=["s", "t=ceildiv(k,s)"])
    n = count(b, parts, "t")
    mean = b.div(total(b, parts, "t"), n)
    centred = b.sub(parts, mean)
    within = total(b, total(b, b.mul(centred, centred), "t"), "s")
    graph = b.build(b.div(within, count(b, x, "k")))
    lifter = Lifter(Algebra())
    right = program("two passes", True)
    assert lifter.lift(graph)[graph.outputs[0]] is not lifter.lift(right)[right.outputs[0]]


@cache
def found() -> tuple[Alternative, ...]:
    return superoptimise(PROGRAMS["variance"](), SearchOptions(keep=4)).alternatives


def test_a_split_of_two_passes_is_chans() -> None:
    """A sum of squared deviations from each part's own mean, and the squared distances of these from the mean."""
    (source, *_), chans = found(), [a for a in found() if a.split == "k" and deviations(a.graph)]
    assert chans and not deviations(source.graph)
    assert all(a.certificate.floats is not None for a in chans)
    sizes = {"m": 3, "k": 128, "u": 1}
    for parts in (1, 3, 5, 200):
        (x,) = inputs_of(source.graph, {**sizes, "s": parts})
        want = evaluate(source.graph, [x + 1e4], {**sizes, "s": parts})[0]
        for a in chans:
            np.testing.assert_allclose(evaluate(a.graph, [x + 1e4], {**sizes, "s": parts})[0], want, rtol=1e-9)


def deviations(graph: Graph) -> bool:
    """Whether elements of a part meet the part's own mean before they are squared."""
    for value in graph.topological():
        if value.op == "sub" and {"s", "t"} <= set(value.names):
            means = [o for o in value.operands if "s" in o.names and "t" not in o.names]
            if means:
                return True
    return False


def test_two_passes_are_reached_from_one() -> None:
    """In the space they are; what is kept is decided by cost."""
    from cleave.search.enumerate import nodes_of
    from cleave.search.seeds import make_space

    graph, lifter = program("one pass", True), Lifter(Algebra())
    forms = lifter.lift(graph)
    space = make_space(graph, forms, lifter, None)
    space.grow([forms[graph.outputs[0]]], nodes_of, Limits(200, 60.0))
    x = lifter.algebra.substitute(forms[graph.inputs[0]], {})
    mean = lifter.algebra.div(lifter.algebra.sum_over(["k"], x), lifter.algebra.count_of(Dim.parse("k").size))
    assert lifter.algebra.sub(x, mean) in space.nodes
