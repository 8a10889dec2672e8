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


def products(x: f32["m n"]) -> f32["m"]:
    """0 · −∞ in a part without elements: of a product, of a contraction, and of one of whose operands neither is 0."""
    y = x.split("n", "s=4 t=ceildiv(n,4)")
    sums, maxima = y.sum("t"), y.max("t")
    contracted = cleave.contract(sums, maxima, over="s") + cleave.contract(y.min("t") + 1.0, maxima, over="s")
    return (sums * maxima).sum("s") + contracted


def quotients(x: f32["m n"]) -> f32["m"]:
    y = x.split("n", "s=4 t=ceildiv(n,4)")
    return (y.sum("t") / (y * y).sum("t")).sum("s")


def logarithm(x: f32["m n"]) -> f32["m"]:
    """log Σ exp, written by hand: the sum of a part without elements is NaN."""
    y = x.split("n", "s=4 t=ceildiv(n,4)")
    top = y.max("t")
    sums, largest = cleave.exp(y - top).sum("t"), top.max("s")
    return largest + cleave.log((sums * cleave.exp(top - largest)).sum("s"))


def integers(x: i32["m n"]) -> i32["m"]:
    return x.split("n", "s=4 t=ceildiv(n,4)").max("t").sum("s") + x.split("n", "p=3 q=ceildiv(n,3)").sum("q").min("p")


def _softmax(part: Any) -> Any:
    e = np.exp(part - part.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _weighted(parts: Parts) -> Any:
    first = sum(part.max(1) * (number + 1) for number, part in enumerate(parts))
    return first + np.max([part.min(1) for part in parts], axis=0)


def _products(parts: Parts) -> Any:
    return sum((2 * part.sum(1) + part.min(1) + 1) * part.max(1) for part in parts)


PROGRAMS: dict[Callable[..., Any], Callable[[Parts], Any]] = {
    sum_of_maxima: lambda parts: sum(part.max(1) for part in parts),
    largest_sum: lambda parts: np.max([part.sum(1) for part in parts], axis=0),
    least_product: lambda parts: np.prod([part.prod(1) + 1 for part in parts], axis=0),
    normalised: lambda parts: sum(_softmax(part).max(1) for part in parts),
    mixed: _weighted,
    products: _products,
    quotients: lambda parts: sum(part.sum(1) / (part**2).sum(1) for part in parts),
    logarithm: lambda parts: np.log(np.exp(np.concatenate(parts, 1)).sum(1)),
}


def _cut(x: Any, count: int) -> Parts:
    length = -(-x.shape[1] // count)
    return [x[:, start : start + length] for start in range(0, x.shape[1], length)]


@cache
def _function(program: Callable[..., Any], superopt: bool) -> Any:
    return cleave.jit(program, superopt=superopt)


@pytest.mark.parametrize(
    ("program", "superopt"),
    [*((program, True) for program in PROGRAMS), (mixed, False), (products, False), (logarithm, False)],
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


def infinite(x: f32["m n"], w: f32["s=4"], b: f32["m"]) -> tuple[f32["m"], f32["m"], f32["m"], f32["m"]]:
    y = x.split("n", "s=4 t=ceildiv(n,4)")
    sums = y.sum("t")
    shared = (b * sums).sum("s"), cleave.contract(sums, b, over="s"), (y.max("t") + b).max("s")
    return *shared, cleave.contract(sums, w, over="s")


@pytest.mark.parametrize("superopt", [False, True])
def test_what_is_infinite_makes_no_nan_of_them(superopt: bool) -> None:
    """What parts share, and what is there at a part without elements."""
    x = np.random.default_rng(0).uniform(-2, -1, (2, 5)).astype(np.float32)
    w, b = np.array([1, 2, 3, np.nan], np.float32), np.array([np.inf, np.inf], np.float32)
    *shared, weighted = _function(infinite, superopt)(x, w, b)
    for found, sign in zip(shared, (-1, -1, 1), strict=True):
        np.testing.assert_array_equal(found, sign * b)
    wanted = sum(part.sum(1) * (number + 1) for number, part in enumerate(_cut(x, 4)))
    np.testing.assert_allclose(weighted, wanted, rtol=1e-4)


def of_booleans(x: f32["m n"]) -> f32["m"]:
    """The maximum of no booleans is false, whatever the maximum of no floats is."""
    y = x.split("n", "s=4 t=ceildiv(n,4)")
    return cleave.where((y > -9.0).max("t"), y.sum("t"), 1.0).sum("s")


def of_casts(x: i32["m n"]) -> f32["m"]:
    """The smallest integer is cast to a float that is not −∞."""
    top = x.split("n", "s=4 t=ceildiv(n,4)").max("t").astype("f32")
    return cleave.where(top == -float("inf"), 0.0, 1.0).sum("s")


def of_large_numbers(x: f32["m n"]) -> f32["m"]:
    """What f64 has and f32 has not: 0 · exp(100)."""
    sums = x.split("n", "s=4 t=ceildiv(n,4)").sum("t")
    return (sums * cleave.exp(sums + 100.0)).sum("s")


@pytest.mark.parametrize("program", [of_booleans, of_casts, of_large_numbers, products, quotients, logarithm])
def test_what_is_not_known_to_change_nothing_is_masked(program: Callable[..., Any]) -> None:
    assert without_empty_parts(trace(program)) is not trace(program)
    selects = [value for value in without_empty_parts(trace(program)).topological() if value.op == "select"]
    written = [value for value in trace(program).topological() if value.op == "select"]
    assert len(selects) > len(written)


def _combined(q: Any, k: Any, v: Any, guard: Callable[[Any], Any]) -> Any:
    into = "s=4 t=ceildiv(n,4)"
    scores = cleave.contract(q, k.split("n", into), over="d")
    top = scores.max("t")
    weights = cleave.exp(scores - guard(top))
    scale = cleave.exp(top - top.max("s"))
    sums = cleave.contract(weights, v.split("n", into), over="t") * scale
    return sums.sum("s") / (weights.sum("t") * scale).sum("s")


def unguarded_decoding(q: f32["d=16"], k: f32["n d=16"], v: f32["n e=16"]) -> f32["e"]:
    return _combined(q, k, v, lambda top: top)


@pytest.mark.parametrize("superopt", [False, True])
def test_decoding_written_by_hand(superopt: bool) -> None:
    q, k, v = (
        np.random.default_rng(1).standard_normal(shape).astype(np.float32) for shape in ((16,), (5, 16), (5, 16))
    )
    found = _function(unguarded_decoding, superopt)(q, k, v)
    np.testing.assert_allclose(found, _softmax((k @ q)[None])[0] @ v, rtol=2e-3, atol=1e-4)


def _decoding(q: f32["d"], k: f32["n d"], v: f32["n e"]) -> f32["e"]:
    """FlashDecoding, written by hand: a part without keys has weight 0."""
    return _combined(q, k, v, lambda top: cleave.where(top == -float("inf"), 0.0, top))


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
    for graph in (trace(_decoding), trace(_whole_parts)):
        assert without_empty_parts(graph) is graph
    for graph in found:
        assert without_empty_parts(graph, finite=True) is graph
    assert without_empty_parts(trace(sum_of_maxima)) is not trace(sum_of_maxima)


def test_parts_that_were_joined_are_refused() -> None:
    def joined(x: f32["m n"]) -> Any:
        return x.split("n", "s=4 t=ceildiv(n,4)").max("t").merge("m s", "p").sum("p")

    with pytest.raises(
        CleaveError, match="some elements along 'p' are parts of a split that are past its end"
    ) as caught:
        cleave.jit(joined).ttir()
    assert str(caught.value).startswith(f"{__file__}:{joined.__code__.co_firstlineno + 1}:")
