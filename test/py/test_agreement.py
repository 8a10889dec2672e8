"""Kernels that compute a sum anew: where their results are compared it is kept in memory, otherwise it need not be."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any
from unittest.mock import patch

import graphs
import numpy as np
import pytest
from compiled import compile_graph, drawn_schedules, reference

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.schedule.agreement import kernels_that_agree
from cleave.schedule.partition import cuts, kernels_of
from cleave.schedule.scheduler import _Scheduler

Kernels = tuple[tuple[Value, ...], ...]


def sub(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.sub(x, y)


def plus_negative(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.add(x, b.neg(y))


def plus_product_with_minus_one(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.add(x, b.mul(y, b.constant(-1.0, "f32")))


def plus_product_with_a_negative(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.add(b.mul(b.constant(1.0, "f32"), b.neg(y)), x)


def plus_cast_negative(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.add(b.op("cast", x, dtype="f64"), b.op("cast", b.mul(b.constant(-1.0, "f32"), y), dtype="f64"))


DIFFERENCES = [sub, plus_negative, plus_product_with_minus_one, plus_product_with_a_negative, plus_cast_negative]


@cache
def softmax_of_sums(terms: str = "k", difference: Callable[[GraphBuilder, Value, Value], Value] = sub) -> Graph:
    b = GraphBuilder("softmax_of_sums")
    x = b.reduce(b.input(f"c {terms}", "f32"), kind="sum", over=["k"])
    e = b.exp(difference(b, x, b.reduce(x, kind="max", over=["c"])))
    return b.build(b.div(e, b.reduce(e, kind="sum", over=["c"])))


def normalised_pair() -> Graph:
    """A norm that each of two products may compute for itself; what they have of it is multiplied, not compared."""
    b = GraphBuilder("normalised_pair")
    x = b.input("m k", "f32")
    y = b.mul(x, b.rsqrt(b.reduce(b.mul(x, x), kind="sum", over=["k"])))
    left, right = (b.contract(y, b.input("k p", "f32"), over=["k"]) for _ in range(2))
    return b.build(b.mul(left, right))


def sums_computed_again(graph: Graph, kernels: Kernels) -> set[Value]:
    """Sums that more than one kernel computes."""
    written = {value for outputs in kernels for value in outputs}

    def computed(value: Value) -> set[Value]:
        return {value}.union(*(computed(operand) for operand in value.operands if operand not in written))

    inside = [set[Value]().union(*map(computed, outputs)) for outputs in kernels]
    sums = [value for value in graph.topological() if value.attrs.get("kind") == "sum"]
    return {value for value in sums if sum(value in values for values in inside) > 1}


def partitions(graph: Graph, *, agree: bool) -> list[Kernels]:
    how = kernels_that_agree if agree else kernels_of
    return [tuple(how(graph, cut, wide=wide)) for cut in cuts(graph) for wide in (True, False)]


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_a_sum_is_kept_where_its_maximum_is_subtracted_from_it(difference: Any) -> None:
    graph = softmax_of_sums(difference=difference)
    assert any(sums_computed_again(graph, kernels) for kernels in partitions(graph, agree=False))
    assert not any(sums_computed_again(graph, kernels) for kernels in partitions(graph, agree=True))


def test_not_where_it_is_one_tile_in_any_case() -> None:
    graph = softmax_of_sums("k=32")
    assert partitions(graph, agree=True) == partitions(graph, agree=False)


def test_products_are_computed_again() -> None:
    """Scores, of which one kernel takes the maximum and another one the exponential."""
    graph = graphs.attention(division_last=True).deduplicated()
    assert partitions(graph, agree=True) == partitions(graph, agree=False)


def test_what_is_not_compared_is_computed_again() -> None:
    graph = normalised_pair()
    assert any(sums_computed_again(graph, kernels) for kernels in partitions(graph, agree=True))
    assert partitions(graph, agree=True) == partitions(graph, agree=False)


def error(kernels: Kernels, seed: int) -> float:
    """Of a softmax over sums of 1,600 terms, on drawn tilings."""
    graph = softmax_of_sums()
    x = 1 + 2 * np.random.default_rng(seed).standard_normal((31, 1600), dtype=np.float32)
    with drawn_schedules(random.Random(seed)), patch.object(_Scheduler, "_partitions", lambda self: [kernels]):
        (found,) = compile_graph(graph, {"c": 31, "k": 1600}, tilings=1)([x])
    (expected,) = reference(graph, [x], "f64")
    return float(np.abs(found - expected).max() / expected.max())


def test_numbers() -> None:
    """Ten times as far from the truth, or more, where each of three kernels sums in an order of its own."""
    graph = softmax_of_sums()
    three = [kernels for kernels in partitions(graph, agree=False) if len(kernels) == 3]
    apart = next(kernels for kernels in three if sums_computed_again(graph, kernels))
    kept = next(kernels for kernels in partitions(graph, agree=True) if len(kernels) > 3)
    errors = [max(error(kernels, seed) for seed in range(3)) for kernels in (apart, kept)]
    assert errors[1] < 1e-5 < errors[0]
