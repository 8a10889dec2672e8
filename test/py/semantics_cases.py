"""Programs with inputs and what the right answer is, by reasoning and not by running anything of ours.

Each case is one kind of fault that users of tensor compilers have met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import ml_dtypes
import numpy as np

from cleave.dialects.graph import Graph, GraphBuilder, Value

F16, F32, BF16 = np.float16, np.float32, ml_dtypes.bfloat16
INF, NAN = np.inf, np.nan


@dataclass(frozen=True)
class Case:
    """``expected`` in f64; ``ulps`` of the result's type it may be off by, 0 being exact.

    ``sizes``: for symbols that no input binds, one run for each.
    """

    graph: Graph
    inputs: Sequence[np.ndarray]
    expected: Sequence[np.ndarray]
    ulps: float = 0
    sizes: Sequence[dict[str, int]] = field(default_factory=lambda: [{}])


CASES: dict[str, Callable[[], Case]] = {}


def case(function: Callable[[], Case]) -> Callable[[], Case]:
    cached = lru_cache(maxsize=None)(function)
    CASES[function.__name__] = cached
    return cached


def variants(prefix: str, make: Callable[..., Case], values: Sequence[object]) -> None:
    for value in values:
        CASES[f"{prefix}_{value}"] = lru_cache(maxsize=None)(lambda value=value: make(value))


def softmax_parts(b: GraphBuilder, s: Value, over: str = "n") -> tuple[Value, Value, Value]:
    """(maximum, exponentials, their sum)."""
    top = b.reduce(s, kind="max", over=[over])
    e = b.exp(b.sub(s, top))
    return top, e, b.reduce(e, kind="sum", over=[over])


def attention_of(b: GraphBuilder, s: Value, v: Value) -> Value:
    """softmax over n of the scores, times the values, divided last; in f32."""
    _, e, total = softmax_parts(b, s)
    return b.div(b.contract(e, v, over=["n"], dtype="f32"), total)


# --- reductions ------------------------------------------------------------------------------------------------------


@case
def row_and_column_reduction_in_one_kernel() -> Case:
    b = GraphBuilder("row_and_column")
    x = b.input("i j", "f32")
    y = b.add(b.mul(x, b.constant(3.0, "f32")), b.constant(0.5, "f32"))
    graph = b.build(b.reduce(y, kind="max", over=["j"]), b.reduce(y, kind="sum", over=["i"]))
    return Case(graph, [np.zeros((37, 129), F32)], [np.full(37, 0.5), np.full(129, 18.5)])


def _reduced_extent(width: object) -> Case:
    assert isinstance(width, int)
    b = GraphBuilder("sum_and_max")
    x = b.input("i j", "f32")
    graph = b.build(b.reduce(x, kind="sum", over=["j"]), b.reduce(x, kind="max", over=["j"]))
    rows = np.tile(np.arange(1, width + 1, dtype=F32), (5, 1))
    return Case(graph, [rows], [np.full(5, width * (width + 1) / 2), np.full(5, float(width))])


variants("reduced_extent", _reduced_extent, [3, 5, 40, 80, 96])


@case
def negative_rows_under_a_maximum() -> Case:
    """A fill of zero would win."""
    b = GraphBuilder("negative_max")
    x = b.input("i j", "f32")
    graph = b.build(b.reduce(x, kind="max", over=["j"]), b.reduce(b.neg(x), kind="min", over=["j"]))
    rows = -np.arange(1, 38, dtype=F32).reshape(1, 37).repeat(3, 0)
    return Case(graph, [rows], [np.full(3, -1.0), np.full(3, 1.0)])


@case
def product_reduction() -> Case:
    b = GraphBuilder("product")
    x = b.input("i j", "f32")
    return Case(b.build(b.reduce(x, kind="prod", over=["j"])), [np.full((3, 13), 2.0, F32)], [np.full(3, 2.0**13)])


@case
def exponential_of_a_padded_row() -> Case:
    """exp(0) of what does not exist is 1."""
    b = GraphBuilder("sum_of_exp")
    x = b.input("i j", "f32")
    return Case(b.build(b.reduce(b.exp(x), kind="sum", over=["j"])), [np.zeros((7, 45), F32)], [np.full(7, 45.0)])


@case
def maximum_of_sums_over_two_dims() -> Case:
    """Three small static dims, none of which is an output's: their tile as a whole does not fit a thread block."""
    b = GraphBuilder("maximum_of_sums")
    x = b.input("c b a", "f32")
    sums = b.contract(x, x, over=["a", "c"])
    graph = b.build(b.reduce(sums, kind="max", over=["b"]))
    values = np.ones((33, 17, 7), F32)
    values[:, 16] = 2
    return Case(graph, [values], [np.array(4.0 * 33 * 7)])


@case
def tile_count_is_no_multiple_of_a_grouping() -> Case:
    b = GraphBuilder("identity_matmul")
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    values = np.random.default_rng(0).standard_normal((512, 1408)).astype(F16)
    graph = b.build(b.contract(x, w, over=["k"], dtype="f16"))
    return Case(graph, [np.eye(512, dtype=F16), values], [values])


@case
def outputs_of_different_extent() -> Case:
    b = GraphBuilder("two_loops")
    x, y = b.input("p", "f32"), b.input("q", "f32")
    one = b.constant(1.0, "f32")
    graph = b.build(b.add(x, one), b.add(y, one))
    return Case(
        graph, [np.arange(90, dtype=F32), np.arange(200, dtype=F32)], [np.arange(90) + 1.0, np.arange(200) + 1.0]
    )


# --- sizes -----------------------------------------------------------------------------------------------------------


def _softmax_over(size: object) -> Case:
    assert isinstance(size, int)
    b = GraphBuilder("softmax")
    x = b.input("m n", "f16")
    _, e, total = softmax_parts(b, b.cast(x, dtype="f32"))
    return Case(b.build(b.div(e, total)), [np.ones((6, size), F16)], [np.full((6, size), 1 / size)], ulps=2)


variants("softmax_over", _softmax_over, [1, 5, 12, 33])


def _biased_matmul(name: str, m: int, n: int) -> Case:
    b = GraphBuilder(name)
    x, w, bias = b.input("m n", "f32"), b.input("n o", "f32"), b.input("o", "f32")
    graph = b.build(b.add(b.contract(x, w, over=["n"]), bias))
    row = np.arange(6, dtype=F32) + 1
    expected = np.tile(row.astype(float), (m, 1)) + n
    return Case(graph, [np.ones((m, n), F32), np.ones((n, 6), F32), row], [expected])


@case
def empty_contraction() -> Case:
    return _biased_matmul("empty_contraction", 4, 0)


@case
def no_rows() -> Case:
    return _biased_matmul("no_rows", 0, 5)


@case
def everything_is_one() -> Case:
    return _biased_matmul("everything_is_one", 1, 1)


@case
def empty_sum() -> Case:
    b = GraphBuilder("empty_sum")
    x = b.input("m n", "f32")
    return Case(b.build(b.reduce(x, kind="sum", over=["n"])), [np.zeros((5, 0), F32)], [np.zeros(5)])


@case
def empty_sum_of_exponentials() -> Case:
    """exp(0) of what does not exist is 1, however the empty dim is padded."""
    b = GraphBuilder("empty_sum_of_exp")
    x = b.input("m n", "f32")
    return Case(b.build(b.reduce(b.exp(x), kind="sum", over=["n"])), [np.zeros((5, 0), F32)], [np.zeros(5)])


# --- masks and infinities --------------------------------------------------------------------------------------------


def _finite_minus_infinity(dtype: object) -> Case:
    b = GraphBuilder("finite_minus_infinity")
    q, k, v = b.input("m d", str(dtype)), b.input("n d", str(dtype)), b.input("n", "f32")
    s = b.contract(q, k, over=["d"], dtype="f32")
    top, e, total = softmax_parts(b, s)
    graph = b.build(b.div(b.contract(e, v, over=["n"]), total), b.add(top, b.log(total)))
    kind = F16 if dtype == "f16" else F32
    inputs = [np.array([[-300]], kind), np.array([[400], [401]], kind), np.array([7, 9], F32)]
    return Case(graph, inputs, [np.array([7.0]), np.array([-120000.0])])


variants("finite_minus_infinity", _finite_minus_infinity, ["f16", "f32"])


@case
def fully_masked_row() -> Case:
    b = GraphBuilder("fully_masked_row")
    s, v = b.input("m n", "f32"), b.input("n", "f32")
    top, e, total = softmax_parts(b, s)
    graph = b.build(b.div(b.contract(e, v, over=["n"]), total), b.add(top, b.log(total)))
    scores = np.zeros((3, 4), F32)
    scores[1] = -INF
    expected = [np.array([5.0, NAN, 5.0]), np.array([np.log(4), NAN, np.log(4)])]
    return Case(graph, [scores, np.array([2, 4, 6, 8], F32)], expected, ulps=2)


@case
def first_tiles_of_a_row_are_masked() -> Case:
    """Only the last key counts, so the online maximum stays at minus infinity for a while."""
    b = GraphBuilder("late_key")
    s, v = b.input("m n", "f32"), b.input("n d", "f32")
    scores = np.full((2, 300), -INF, F32)
    scores[:, 299] = [3.0, -500.0]
    values = np.arange(600, dtype=F32).reshape(300, 2)
    return Case(b.build(attention_of(b, s, v)), [scores, values], [np.array([[598.0, 599.0]] * 2)])


def _causal(offset: object) -> Case:
    """Key j is seen by query i if j <= i + offset; a row with one key returns it, equal scores average."""
    assert isinstance(offset, int)
    b = GraphBuilder("causal")
    q, k, v = b.input("m d", "f16"), b.input("n d", "f16"), b.input("n", "f32")
    s = b.contract(q, k, over=["d"], dtype="f32")
    rows = b.add(b.index(dim="m", dtype="i32"), b.constant(offset, "i32"))
    seen = b.cmp(b.index(dim="n", dtype="i32"), rows, predicate="le")
    graph = b.build(attention_of(b, b.select(seen, s, b.constant(-INF, "f32")), v))
    m, n = 3, 5
    values = np.array([2.0**i for i in range(n)], F32)
    expected = np.array([values[: i + offset + 1].astype(float).mean() for i in range(m)])
    return Case(graph, [np.zeros((m, 4), F16), np.ones((n, 4), F16), values], [expected], ulps=2)


variants("causal", _causal, [0, 2])


@case
def logits_of_ten_thousand() -> Case:
    """exp overflows without its maximum; row 2 has two equal largest scores."""
    b = GraphBuilder("large_logits")
    q, k, v = b.input("m d", "f16"), b.input("n d", "f16"), b.input("n e", "f16")
    s = b.contract(q, k, over=["d"], dtype="f32")
    top, e, total = softmax_parts(b, s)
    out = b.cast(b.div(b.contract(b.cast(e, dtype="f16"), v, over=["n"], dtype="f32"), total), dtype="f16")
    queries, keys = np.zeros((3, 64), F16), np.zeros((70, 64), F16)
    queries[:, 0] = [100, -100, 100]
    keys[:, 0] = np.where(np.arange(70) % 2, -100, 99)
    keys[40, 0], keys[41, 0] = 100, -101
    queries[2, 1], keys[50, 0], keys[50, 1] = 1, 99, 100  # 100·99 + 100 = 100·100
    values = np.tile(np.arange(70, dtype=F16)[:, None], (1, 16))
    expected = np.array([40.0, 41.0, 45.0])[:, None].repeat(16, 1)
    logits = np.array([10000.0, 10100.0, 10000.0 + np.log(2)])
    return Case(b.build(out, b.add(top, b.log(total))), [queries, keys, values], [expected, logits], ulps=1)


@case
def soft_cap_and_mask() -> Case:
    """s/cap up to 400, far beyond where exp overflows; the mask comes after the cap and is not capped."""
    b = GraphBuilder("soft_cap")
    s, mask, v = b.input("m n", "f32"), b.input("m n", "f32"), b.input("n", "f32")
    cap = b.constant(50.0, "f32")
    capped = b.add(b.mul(b.tanh(b.div(s, cap)), cap), mask)
    scores = np.array([[20000.0, -20000.0, 0.0], [20000.0, 20000.0, 0.0]], F32)
    masks = np.array([[-INF, 0.0, 0.0], [0.0, 0.0, 0.0]], F32)
    expected = np.array([3.0, 1.5])  # exp(-50) is below half a unit in the last place
    return Case(b.build(attention_of(b, capped, v)), [scores, masks, np.array([1, 2, 3], F32)], [expected], ulps=2)


@case
def sink() -> Case:
    """One more exp(sink) in the denominator, counted once however the keys are cut."""
    b = GraphBuilder("sink")
    s, sink, v = b.input("m n", "f32"), b.input("m", "f32"), b.input("n", "f32")
    top = b.max(b.reduce(s, kind="max", over=["n"]), sink)
    e = b.exp(b.sub(s, top))
    total = b.add(b.reduce(e, kind="sum", over=["n"]), b.exp(b.sub(sink, top)))
    graph = b.build(b.div(b.contract(e, v, over=["n"]), total))
    n = 12
    inputs = [np.zeros((2, n), F32), np.array([0.0, -INF], F32), np.full(n, 13.0, F32)]
    return Case(graph, inputs, [np.array([12.0, 13.0])], 2, [{"s": parts} for parts in (1, 2, 5, 12)])


@case
def nan_beyond_the_valid_length() -> Case:
    """Keys and values in memory for 64, of which 33 are valid; the others are NaN."""
    b = GraphBuilder("valid_length")
    q, k, v, bias = b.input("m d", "f16"), b.input("p d", "f16"), b.input("p d", "f16"), b.input("n", "f32")
    k, v = (b.slice(x, dim="p", into="n", offset="0") for x in (k, v))
    s = b.add(b.contract(q, k, over=["d"], dtype="f32"), bias)
    graph = b.build(attention_of(b, s, v))
    keys, values = np.full((64, 16), NAN, F16), np.full((64, 16), NAN, F16)
    keys[:33], values[:33] = 1.0, 3.0
    return Case(graph, [np.ones((5, 16), F16), keys, values, np.zeros(33, F32)], [np.full((5, 16), 3.0)], ulps=2)


@case
def nan_at_a_masked_key() -> Case:
    """A program that selects zero for what is masked never sees the NaN there."""
    b = GraphBuilder("selected_values")
    s, v = b.input("m n", "f32"), b.input("n d", "f32")
    seen = b.cmp(b.index(dim="n", dtype="i32"), b.constant(33, "i32"), predicate="lt")
    zero, low = b.constant(0.0, "f32"), b.constant(-INF, "f32")
    graph = b.build(attention_of(b, b.select(seen, s, low), b.select(seen, v, zero)))
    scores, values = np.zeros((3, 40), F32), np.full((40, 2), 3.0, F32)
    scores[:, 33:], values[33:] = NAN, NAN
    return Case(graph, [scores, values], [np.full((3, 2), 3.0)], ulps=2)


@case
def nan_and_infinity_in_the_input() -> Case:
    b = GraphBuilder("specials")
    x = b.input("m n", "f32")
    graph = b.build(b.reduce(x, kind="max", over=["n"]), b.reduce(x, kind="sum", over=["n"]))
    rows = np.ones((4, 37), F32)
    rows[0, 5], rows[1, 36], rows[2, 0] = NAN, INF, -INF
    expected = [np.array([NAN, INF, 1.0, 1.0]), np.array([NAN, INF, -INF, 37.0])]
    return Case(graph, [rows], expected)


# --- algebra that must not be done -----------------------------------------------------------------------------------


def _unknown_sign(sign: object) -> Case:
    assert isinstance(sign, int)
    b = GraphBuilder("unknown_sign")
    x, c = b.input("m n", "f32"), b.input("m", "f32")
    scaled = b.mul(x, c)
    graph = b.build(b.reduce(scaled, kind="max", over=["n"]), b.max(scaled, b.constant(0.0, "f32")))
    rows = np.tile(np.arange(-18, 19, dtype=F32), (3, 1))
    wide = rows.astype(float) * sign
    return Case(graph, [rows, np.full(3, sign, F32)], [wide.max(1), np.maximum(wide, 0)])


variants("unknown_sign", _unknown_sign, [-2, 3])


@case
def difference_of_equal_products() -> Case:
    """One rounding of a product and none of the other would leave a remainder."""
    b = GraphBuilder("equal_products")
    x, y = b.input("n", "f32"), b.input("n", "f32")
    graph = b.build(b.sub(b.mul(x, y), b.mul(y, x)))
    values = np.random.default_rng(0).standard_normal((2, 133)).astype(F32)
    return Case(graph, [values[0], values[1]], [np.zeros(133)])


@case
def rows_of_equal_logits_sum_to_one() -> Case:
    b = GraphBuilder("equal_logits")
    x = b.input("m n", "f32")
    _, e, total = softmax_parts(b, b.sub(b.mul(x, x), b.mul(x, x)))
    graph = b.build(b.reduce(b.div(e, total), kind="sum", over=["n"]))
    return Case(graph, [np.full((3, 77), 1.1, F32)], [np.ones(3)], ulps=2)


def _explicit_rounding(dtype: object) -> Case:
    b = GraphBuilder("rounding")
    x = b.input("n", "f32")
    graph = b.build(b.cast(b.cast(x, dtype=str(dtype)), dtype="f32"))
    values = np.linspace(1, 2, 101, dtype=F32)
    return Case(graph, [values], [values.astype(BF16 if dtype == "bf16" else F16).astype(float)])


variants("explicit_rounding", _explicit_rounding, ["bf16", "f16"])


@case
def rounding_before_a_sum() -> Case:
    """1 + 2**-9 rounds to 1 in bf16: the sum of the rounded numbers is their count."""
    b = GraphBuilder("rounding_before_a_sum")
    x = b.input("m n", "f32")
    graph = b.build(b.reduce(b.cast(b.cast(x, dtype="bf16"), dtype="f32"), kind="sum", over=["n"]))
    return Case(graph, [np.full((3, 100), 1 + 2.0**-9, F32)], [np.full(3, 100.0)])


@case
def division_along_the_summed_axis() -> Case:
    b = GraphBuilder("division_along_the_summed_axis")
    p, w, v = b.input("m n", "f32"), b.input("n", "f32"), b.input("n d", "f32")
    graph = b.build(b.contract(b.div(p, w), v, over=["n"]))
    weights = 2.0 ** np.arange(-4, 5)
    inputs = [np.ones((3, 9), F32), weights.astype(F32), np.ones((9, 4), F32)]
    return Case(graph, inputs, [np.full((3, 4), (1 / weights).sum())])


@case
def scale_that_would_overflow_when_moved() -> Case:
    """x / r fits f16, x does not: moving the division past the contraction must not feed it x in f16."""
    b = GraphBuilder("overflow_when_moved")
    x, w = b.input("m k", "f32"), b.input("k n", "f16")
    r = b.sqrt(b.reduce(b.mul(x, x), kind="sum", over=["k"]))
    graph = b.build(b.contract(b.cast(b.div(x, r), dtype="f16"), w, over=["k"], dtype="f16"))
    return Case(graph, [np.full((3, 64), 2.0**20, F32), np.ones((64, 8), F16)], [np.full((3, 8), 8.0)], ulps=1)


@case
def split_partials_are_wide() -> Case:
    """Partial sums around 2 * 2048 with odd terms: rounding one to f16 would lose them."""
    b = GraphBuilder("wide_partials")
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    graph = b.build(b.contract(x, w, over=["k"], dtype="f16"))
    row = np.where(np.arange(600) < 300, 9.0, -9.0).astype(F16)
    row[0], row[599] = 10.0, -7.0  # the halves are 2701 and -2698, which f16 does not have
    inputs = [np.tile(row, (2, 1)), np.ones((600, 3), F16)]
    return Case(graph, inputs, [np.full((2, 3), 3.0)], 0, [{"s": parts} for parts in (1, 2, 3, 7)])


@case
def variance_with_a_large_mean() -> Case:
    b = GraphBuilder("variance")
    x = b.input("m n", "f32")
    count = b.reduce(b.constant(1.0, "f32", x.dims[1:]), kind="sum", over=["n"])
    d = b.sub(x, b.div(b.reduce(x, kind="sum", over=["n"]), count))
    graph = b.build(b.div(b.reduce(b.mul(d, d), kind="sum", over=["n"]), count))
    rows = (1e4 + np.random.default_rng(0).standard_normal((4, 300))).astype(F32)
    return Case(graph, [rows], [rows.astype(float).var(1)], ulps=1e-3 * 2**23)


@case
def quantisation_scale_of_a_zero_tile() -> Case:
    """The row's scale is its largest magnitude, which the first tiles do not show."""
    b = GraphBuilder("dynamic_scale")
    x, w = b.input("m k", "f32"), b.input("k n", "f16")
    scale = b.reduce(b.abs(x), kind="max", over=["k"])
    quantised = b.cast(b.div(x, scale), dtype="f16")
    graph = b.build(b.mul(b.contract(quantised, w, over=["k"], dtype="f32"), scale))
    rows = np.zeros((3, 512), F32)
    rows[:, 500:] = 4.0
    rows[1, 0] = 2.0
    expected = np.array([[48.0], [50.0], [48.0]]).repeat(5, 1)
    return Case(graph, [rows, np.ones((512, 5), F16)], [expected], ulps=2)


# --- what cannot be fused --------------------------------------------------------------------------------------------


@case
def gather_in_the_middle() -> Case:
    """a -> gather -> b, and a -> b."""
    b = GraphBuilder("gather_in_the_middle")
    x, i = b.input("n", "f32"), b.input("n", "i32")
    a = b.mul(x, b.constant(2.0, "f32"))
    picked = b.gather(b.rename(a, from_="n", to="p=n"), i, dim="p")
    graph = b.build(b.add(picked, a))
    values = np.arange(50, dtype=F32)
    return Case(graph, [values, np.arange(49, -1, -1, dtype=np.int32)], [np.full(50, 98.0)])


@case
def concatenation_in_the_middle() -> Case:
    b = GraphBuilder("concatenation_in_the_middle")
    x, y = b.input("p", "f32"), b.input("q", "f32")
    joined = b.concat(b.neg(x), y, dims=["p", "q"], into="n=p+q")
    graph = b.build(b.mul(joined, b.constant(2.0, "f32")))
    expected = np.concatenate([-2.0 * np.arange(35), 2.0 * np.arange(20)])
    return Case(graph, [np.arange(35, dtype=F32), np.arange(20, dtype=F32)], [expected])


@case
def normalisation_used_twice() -> Case:
    """A reduction in the middle: softmax of a row that is also added to itself."""
    b = GraphBuilder("used_twice")
    x = b.input("m n", "f32")
    _, e, total = softmax_parts(b, x)
    graph = b.build(b.add(b.div(e, total), x))
    return Case(graph, [np.full((5, 64), 3.0, F32)], [np.full((5, 64), 3 + 1 / 64)], ulps=1)
