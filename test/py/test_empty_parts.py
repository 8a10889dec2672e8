"""Parts of a split that are wholly past the end: no reduction over the parts takes them for parts of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import graphs
import numpy as np
import pytest

import cleave
from cleave import f32, i32
from cleave.bindings import context, ir
from cleave.dialects.empty_parts import without_empty_parts
from cleave.errors import CleaveError
from cleave.language.trace import trace
from cleave.reference import run
from cleave.search import SearchOptions, superoptimise

Parts = list[Any]
"""Those that exist, as arrays."""


def sum_of_maxima(x: f32["m n"]) -> f32["m"]:
    return x.split("n", "s=4 t=ceildiv(n,4)").max("t").sum("s")


def largest_sum(x: f32["m n"]) -> f32["m"]:
    return x.split("n", "s=4 t=ceildiv(n,4)").sum("t").max("s")


def least_product(x: f32["m n"]) -> f32["m"]:
    return (x.split("n", "s=4 t=ceildiv(n,4)").prod("t") + 1.0).rename(s="p=4").prod("p")


def normalised(x: f32["m n"]) -> f32["m"]:
    y = x.split("n", "s=4 t=ceildiv(n,4)")
    return cleave.softmax(y, "t").max("t").sum("s")


def mixed(x: f32["m n"]) -> f32["m"]:
    weights = cleave.index("s=4").astype("f32") + 1.0
    y = x.split("n", "s=4 t=ceildiv(n,4)")
    return cleave.contract(y.max("t"), weights, over="s") + y.min("t").max("s")


def integers(x: i32["m n"]) -> i32["m"]:
    return x.split("n", "s=4 t=ceildiv(n,4)").max("t").sum("s") + x.split("n", "p=3 q=ceildiv(n,3)").sum("q").min("p")


def _softmax(part: Any) -> Any:
    e = np.exp(part - part.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _weighted(parts: Parts) -> Any:
    first = sum(part.max(1) * (number + 1) for number, part in enumerate(parts))
    return first + np.max([part.min(1) for part in parts], axis=0)


PROGRAMS: dict[Callable[..., Any], Callable[[Parts], Any]] = {
    sum_of_maxima: lambda parts: sum(part.max(1) for part in parts),
    largest_sum: lambda parts: np.max([part.sum(1) for part in parts], axis=0),
    least_product: lambda parts: np.prod([part.prod(1) + 1 for part in parts], axis=0),
    normalised: lambda parts: sum(_softmax(part).max(1) for part in parts),
    mixed: _weighted,
}


def _cut(x: Any, count: int) -> Parts:
    length = -(-x.shape[1] // count)
    return [x[:, start : start + length] for start in range(0, x.shape[1], length)]


@cache
def _function(program: Callable[..., Any], superopt: bool) -> Any:
    return cleave.jit(program, superopt=superopt)


@pytest.mark.parametrize(
    ("program", "superopt"),
    [*((program, True) for program in PROGRAMS), (mixed, False)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_they_are_skipped(program: Callable[..., Any], superopt: bool) -> None:
    function = _function(program, superopt)
    for n in (1, 2, 3, 4, 5, 6, 9, 12, 13):
        x = np.random.default_rng(n).uniform(-2, -1, (3, n))
        wanted, given = PROGRAMS[program](_cut(x, 4)), x.astype(np.float32)
        np.testing.assert_allclose(function(given), wanted, rtol=1e-4, err_msg=f"n = {n}")
        with context():
            module = ir.Module.parse(function.source)
        np.testing.assert_allclose(run(module, None, [x], precision="f64")[0], wanted, rtol=1e-9)


def test_they_are_skipped_among_integers() -> None:
    for n in (1, 3, 4, 5, 6, 7, 13):
        x = np.random.default_rng(n).integers(-9, -1, (2, n)).astype(np.int32)
        wanted = sum(part.max(1) for part in _cut(x, 4)) + np.min([part.sum(1) for part in _cut(x, 3)], axis=0)
        np.testing.assert_array_equal(_function(integers, False)(x), wanted)


def _decoding(q: f32["d"], k: f32["n d"], v: f32["n e"]) -> f32["e"]:
    """FlashDecoding, written by hand: a part without keys has weight 0."""
    into = "s=4 t=ceildiv(n,4)"
    scores = cleave.contract(q, k.split("n", into), over="d")
    top = scores.max("t")
    weights = cleave.exp(scores - cleave.where(top == -float("inf"), 0.0, top))
    scale = cleave.exp(top - top.max("s"))
    sums = cleave.contract(weights, v.split("n", into), over="t") * scale
    return sums.sum("s") / (weights.sum("t") * scale).sum("s")


def _whole_parts(x: f32["m n=16"]) -> f32["m"]:
    return x.split("n", "s=4 t=4").max("t").sum("s")


def test_what_changes_nothing_stays_as_it_is() -> None:
    """What is known to be neutral, parts that all exist, and all that the search makes of splits."""
    searched = (
        graphs.attention(),
        graphs.rmsnorm_matmul(),
        graphs.variance(),
        graphs.log_sum_exp(),
        graphs.causal_attention(),
    )
    found = [other.graph for graph in searched for other in superoptimise(graph, SearchOptions()).alternatives]
    assert sum(any(value.op == "split" for value in graph.topological()) for graph in found) >= 4
    for graph in (trace(_decoding), trace(_whole_parts), *found):
        assert without_empty_parts(graph) is graph
    assert without_empty_parts(trace(sum_of_maxima)) is not trace(sum_of_maxima)


def test_parts_that_were_joined_are_refused() -> None:
    def joined(x: f32["m n"]) -> Any:
        return x.split("n", "s=4 t=ceildiv(n,4)").max("t").merge("m s", "p").sum("p")

    with pytest.raises(
        CleaveError, match="some elements along 'p' are parts of a split that are past its end"
    ) as caught:
        cleave.jit(joined).ttir()
    assert str(caught.value).startswith(f"{__file__}:{joined.__code__.co_firstlineno + 1}:")
