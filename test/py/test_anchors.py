"""Exponentials taken from anchors: the digits of softmax whatever a row's scores are (cleave/schedule/anchors.py)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
from lowered import lower, run_lowered

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.passes.tile_io import from_tile_program
from cleave.schedule import anchors
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.tile_program import Kernel

ROWS, KEYS, DEPTH = 6, 300, 16
INF = math.inf


def attention(scale: float, *, top: bool = False) -> Graph:
    """Scores from f16, plus a bias; also log-sum-exp and, with ``top``, the maximum."""
    b = GraphBuilder("attention")
    q, k, v = b.input("m d", "f16"), b.input("n d", "f16"), b.input("n e", "f16")
    s = b.add(b.contract(q, k, over=["d"], dtype="f32"), b.input("m n", "f32"))
    s = s if scale == 1 else b.mul(s, b.constant(scale, "f32"))
    w = b.reduce(s, kind="max", over=["n"])
    p = b.exp(b.sub(s, w))
    total = b.reduce(p, kind="sum", over=["n"])
    out = b.div(b.contract(b.cast(p, dtype="f16"), v, over=["n"], dtype="f32"), total)
    return b.build(out, b.add(w, b.log(total)), *([w] if top else []))


def kernel_of(graph: Graph) -> Kernel:
    sizes = {"m": ROWS, "n": 4096, "d": DEPTH, "e": 16}
    (kernel,) = schedule(graph.deduplicated(), ScheduleOptions(sizes=sizes, max_tilings=4)).program.kernels
    return kernel


@lru_cache
def lowered(scale: float, *, top: bool = False) -> ir.Module:
    """Tiles of keys are fewer than the keys of the tests."""
    sizes = {"m": ROWS, "n": 4096, "d": DEPTH, "e": 16}
    program = schedule(attention(scale, top=top).deduplicated(), ScheduleOptions(sizes=sizes, max_tilings=4)).program
    with context(), ir.Location.unknown():
        tiled = ir.Module.create()
        from_tile_program(program, tiled)
        text = str(tiled)
    assert '"cleave.fma"' in text
    return lower(text)


def results(scale: float, bias: np.ndarray, v: np.ndarray, *, top: bool = False) -> list[np.ndarray]:
    """Of the scheduled graph, interpreted; products with zeros give scores that are the bias."""
    q, k = np.zeros((len(bias), DEPTH), np.float16), np.zeros((bias.shape[1], DEPTH), np.float16)
    with np.errstate(all="ignore"):
        return run_lowered(lowered(scale, top=top), "attention", [q, k, v, bias], {})


def expected(scale: float, bias: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Softmax and log-sum-exp of the very scores, in f64."""
    s = bias.astype(np.float64) * float(np.float32(scale))
    w = s.max(1, keepdims=True)
    p = np.exp(s - w)
    total = p.sum(1, keepdims=True)
    return p @ v.astype(np.float64) / total, (w + np.log(total))[:, 0]


def scores(size: float, scale: float, order: str) -> np.ndarray:
    """Rows near ±``size`` whose terms are from 1 to e⁻³⁰ times the largest, as far as f32 tells them apart."""
    rng = np.random.default_rng(int(math.log2(size + 1)))
    below = rng.uniform(0, 30 / scale, (ROWS, KEYS))
    below = {"any": below, "rising": -np.sort(-below), "falling": np.sort(below)}[order]
    return (np.array([1, -1] * (ROWS // 2))[:, None] * size - below).astype(np.float32)


def assert_close(scale: float, bias: np.ndarray, allowed: float = 2e-3) -> None:
    v = np.random.default_rng(1).standard_normal((bias.shape[1], 16)).astype(np.float16)
    out, sums = results(scale, bias, v)
    exact, exact_sums = expected(scale, bias, v)
    np.testing.assert_allclose(out, exact, rtol=0, atol=allowed)
    np.testing.assert_allclose(sums, exact_sums, rtol=3e-7, atol=2e-6)


SCALES = [1.0, 0.125, 0.088388, 3.0]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("size", [0, 100, 2**13, 2**20, 2**24, 2**27 // 5])
def test_large_scores_keep_their_digits(size: int, scale: float) -> None:
    for order in ("any", "rising", "falling"):
        assert_close(scale, scores(size, scale, order))


@pytest.mark.parametrize("scale", SCALES)
def test_rows_of_any_size(scale: float) -> None:
    """From a·w = 2²⁸ on a term that is not the largest may be anything below 2⁻¹⁶ of it."""
    for exponent in (26, 27, 28, 29, 30, 31, 32, 33, 40, 60, 100, 126):
        assert_close(scale, scores(2.0**exponent, scale, "any"), allowed=2e-3 + KEYS * 2.0**-15)


def test_rows_that_a_finite_number_masks() -> None:
    masks = [0, -1e4, -1e6, -1e9, -1e30, float(np.finfo(np.float32).min)]
    bias = np.broadcast_to(np.array(masks, np.float32)[:, None], (ROWS, KEYS)).copy()
    for scale in (1.0, 0.125):
        assert_close(scale, bias)


def test_rows_whose_scores_rise_from_one_regime_to_the_next() -> None:
    """The running maximum goes through all sizes, tile by tile; what was summed before vanishes beside it."""
    steps = np.array([-3e38, -1e12, -(2.0**29), -100, 5, 2.0**20, 2.0**28, 2.0**29, 1e12, 1e38], np.float32)
    bias = np.repeat(steps, 128)[None].repeat(2, 0)
    bias[1] += np.where(bias[1] == 2.0**20, -(2.0**20), 0)
    for scale in (1.0, 0.125):
        assert_close(scale, bias)
        assert_close(scale, bias[:, : 128 * 5])


def test_rows_without_a_number_and_with_infinities() -> None:
    bias = np.zeros((4, KEYS), np.float32)
    bias[1], bias[2, 7], bias[3, 200] = -INF, INF, np.nan
    bias[0, :150] = -INF
    v = np.ones((KEYS, 16), np.float16)
    out, sums = results(0.125, bias, v)
    np.testing.assert_allclose(out[0], 1, rtol=1e-3)
    assert np.isnan(out[1:]).all() and np.isnan(sums[1:]).all()


def test_a_maximum_that_is_an_output_is_the_maximum() -> None:
    bias = scores(2.0**20, 0.125, "rising")
    _, _, top = results(0.125, bias, np.ones((KEYS, 16), np.float16), top=True)
    np.testing.assert_array_equal(top, (bias * np.float32(0.125)).max(1))


def test_anchors_are_those_of_products_alone() -> None:
    """Sums of exponentials without a product wait for memory: they have no use for an anchor."""
    b = GraphBuilder("log_sum_exp")
    x = b.input("m n", "f32")
    w = b.reduce(x, kind="max", over=["n"])
    graph = b.build(b.add(w, b.log(b.reduce(b.exp(b.sub(x, w)), kind="sum", over=["n"]))))
    assert not any(i.op == "fma" for i in kernel_of(graph).body.walk())


@pytest.mark.parametrize("scale", [2.0**-140, 1e-30, 0.18, 1.0, 1.44, 1e4])
def test_an_anchor_is_finite_and_exact_where_it_is_large(scale: float) -> None:
    """By brute force over sizes: b = a·w is finite; from ``LARGEST`` on it is exact; below, a is the scale."""
    sizes = [sign * m * 2.0**e for e in range(-126, 128) for m in (1.0, 1.7) for sign in (1, -1)]
    w = np.array([size for size in sizes if abs(size) <= float(np.finfo(np.float32).max)], np.float32)
    ranges = anchors.multipliers(scale)
    a = np.array([next(a for limit, a in ranges if abs(each) < limit) for each in w], np.float64)
    exact = a * w.astype(np.float64)
    shift = exact.astype(np.float32)
    assert np.isfinite(shift).all()
    small = np.abs(exact) < anchors.LARGEST
    assert (a[small & (np.abs(w * float(scale)) < anchors.LARGEST / 4)] == scale).all()
    assert (np.abs(exact - shift)[small] <= 8).all() and (exact == shift)[~small].all()
