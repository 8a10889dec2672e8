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

ROWS, KEYS, DEPTH = 6, 300, 16
INF = math.inf


def attention(
    scale: float, *, top: bool = False, guard: bool = False, wide: bool = False, multiplied: bool = False
) -> Graph:
    """Scores from f16, plus a bias; also log-sum-exp and, with ``top``, the maximum. ``guard``: 0 in place of a maximum
    that is −inf; ``wide``: the result in f32; ``multiplied``: weights times something in f16."""
    b = GraphBuilder("attention")
    q, k, v = b.input("m d", "f16"), b.input("n d", "f16"), b.input("n e", "f16")
    s = b.add(b.contract(q, k, over=["d"], dtype="f32"), b.input("m n", "f32"))
    s = s if scale == 1 else b.mul(s, b.constant(scale, "f32"))
    w = b.reduce(s, kind="max", over=["n"])
    if guard:
        w = b.select(b.cmp(w, b.constant(-INF, "f32"), predicate="eq"), b.constant(0.0, "f32"), w)
    p = b.exp(b.sub(s, w))
    total = b.reduce(p, kind="sum", over=["n"])
    if multiplied:
        p = b.mul(p, b.input("n", "f32"))
    out = b.div(b.contract(b.cast(p, dtype="f16"), v, over=["n"], dtype="f32"), total)
    return b.build(out if wide else b.cast(out, dtype="f16"), b.add(w, b.log(total)), *([w] if top else []))


def scheduled(graph: Graph) -> str:
    """Its tile program; tiles of keys are fewer than the keys of the tests."""
    sizes = {"m": ROWS, "n": 4096, "d": DEPTH, "e": 16}
    program = schedule(graph.deduplicated(), ScheduleOptions(sizes=sizes, max_tilings=4)).program
    with context(), ir.Location.unknown():
        tiled = ir.Module.create()
        from_tile_program(program, tiled)
        return str(tiled)


def has_anchors(graph: Graph) -> bool:
    return '"cleave.fma"' in scheduled(graph)


@lru_cache
def lowered(scale: float, *, top: bool = False, guard: bool = False) -> ir.Module:
    text = scheduled(attention(scale, top=top, guard=guard))
    assert '"cleave.fma"' in text
    return lower(text)


def results(scale: float, bias: np.ndarray, v: np.ndarray, **form: bool) -> list[np.ndarray]:
    """Of the scheduled graph, interpreted; products with zeros give scores that are the bias."""
    q, k = np.zeros((len(bias), DEPTH), np.float16), np.zeros((bias.shape[1], DEPTH), np.float16)
    with np.errstate(all="ignore"):
        return run_lowered(lowered(scale, **form), "attention", [q, k, v, bias], {})


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


def assert_close(scale: float, bias: np.ndarray, allowed: float = 2e-3, **form: bool) -> None:
    v = np.random.default_rng(1).standard_normal((bias.shape[1], 16)).astype(np.float16)
    out, sums = results(scale, bias, v, **form)
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


def test_rows_whose_first_keys_are_masked() -> None:
    """What comes first is −inf; then the maximum rises from nothing to any number, also below 0."""
    for level in (-2e38, -1e9, -1000, -100, -1, 0, 1, 1000, 1e9):
        bias = np.full((2, 4 * 128), level, np.float32)
        bias[:, :300] = -INF
        for guard in (False, True):
            assert_close(1.0, bias, guard=guard)
            assert_close(0.125, bias, guard=guard)


def test_a_guarded_row_without_a_key_is_nothing() -> None:
    """0/0 of sums that are 0, and a log-sum-exp of −inf."""
    bias = np.full((2, KEYS), -INF, np.float32)
    out, sums = results(0.125, bias, np.ones((KEYS, 16), np.float16), guard=True)
    assert np.isnan(out).all() and (sums == -INF).all()


@pytest.mark.parametrize("scale", [0.6932, *SCALES])
def test_the_last_scores_with_digits(scale: float) -> None:
    """At the ends of ranges, and at powers of two, below which neighbours are nearer to each other."""
    least = anchors.LARGEST / (scale / math.log(2))
    for top in (2.0 ** math.floor(math.log2(least)), 2.0 ** math.ceil(math.log2(least)), least * 0.999, least * 1.001):
        high = np.float32(top)
        low = np.nextafter(high, np.float32(0))
        for one, other in ((high, low), (-low, -high)):
            for order in (1, -1):
                bias = np.array([[one] + [other] * (KEYS - 1)], np.float32)[:, ::order]
                assert_close(scale, bias, allowed=2e-3 if top < least else 2e-3 + KEYS * 2.0**-15)


def test_rows_that_rise_out_of_the_last_range() -> None:
    """From where a is 1 to where it is a larger power of two."""
    for scale, low, high in ((1.0, -1.5e38, -8e37), (3.0, -1e38, -3e37), (100.0, -1e36, -1e34), (100.0, -1e36, 1e30)):
        bias = np.full((2, 4 * 128), low, np.float32)
        bias[:, 300:] = high
        assert_close(scale, bias)


@pytest.mark.parametrize("level", [30.0, 100.0, 1000.0, 1e4, 1e6])
def test_rows_of_equal_weights_and_of_one(level: float) -> None:
    """A result in f16 is right to a unit in its last place: no term is 1, and all are rounded alike."""
    bias = np.full((2, KEYS), level, np.float32)
    bias[1, 1:] = -level
    v = np.random.default_rng(1).standard_normal((KEYS, 16)).astype(np.float16)
    out, _ = results(0.088388, bias, v)
    exact, _ = expected(0.088388, bias, v)
    np.testing.assert_allclose(out, exact, rtol=2.0**-10, atol=2.0**-12)


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
    assert not has_anchors(graph)
    assert has_anchors(attention(0.125))


def test_anchors_are_for_results_as_narrow_as_weights() -> None:
    """Not where f32 results would show how weights are rounded, and not of scales without digits."""
    assert not has_anchors(attention(0.125, wide=True))
    assert not has_anchors(attention(2.0**-110)) and not has_anchors(attention(2.0**70))


@pytest.mark.parametrize("level", [92634744.0, -92622040.0, 1e4, 0.0])
def test_multiples_of_weights_fit_where_they_do_in_the_source(level: float) -> None:
    """Weights of 10,000 in f16, next to its end: no term is more than 1 before."""
    graph, bias = attention(1.0, multiplied=True), np.full((2, KEYS), level, np.float32)
    v = np.ones((KEYS, 16), np.float16)
    inputs = [np.zeros((2, DEPTH), np.float16), np.zeros((KEYS, DEPTH), np.float16), v, bias]
    out, *_ = run_lowered(lower(scheduled(graph)), "attention", [*inputs, np.full(KEYS, 1e4, np.float32)], {})
    np.testing.assert_allclose(out, 1e4, rtol=1e-3)


@pytest.mark.parametrize("scale", [2.0**-99, 1e-20, 0.18, 1.0, 1.44, 1e4, 2.0**60])
def test_an_anchor_is_finite_and_exact_where_it_is_large(scale: float) -> None:
    """By brute force: b is finite, and a·w within 8 of it; where a is no longer the scale b is a·w, and the next number
    below w is 16 units of a·w away, as of the scale's."""
    ranges = anchors.multipliers(scale)
    ends = [limit for limit, _ in ranges if limit < math.inf]
    sizes = [m * 2.0**e for e in range(-126, 128) for m in (1.0, 1.7)] + [
        m * e for e in ends for m in (0.999, 1, 1.001)
    ]
    w = np.array([size for size in sizes if size <= float(np.finfo(np.float32).max)], np.float32)
    a = np.array([next(a for limit, a in ranges if each < limit) for each in w], np.float64)
    exact = a * w.astype(np.float64)
    with np.errstate(over="ignore"):
        shift = exact.astype(np.float32)
    below = w.astype(np.float64) - np.nextafter(w, np.float32(0)).astype(np.float64)
    small = a == scale
    assert np.isfinite(shift).all() and (np.abs(exact - shift)[small] <= 8).all() and (exact == shift)[~small].all()
    assert (scale * below >= 16)[~small].all() and ((a * below >= 16) | (w > 2.0**100 / scale))[~small].all()
