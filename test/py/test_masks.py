"""What a source does not look at, and what it sums over nothing: no alternative makes NaN or infinity of it.

The oracle is the reference executor on the source, with ordinary numbers in the place of what is masked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache

import ml_dtypes
import numpy as np
import pytest
import search_programs as programs
from compiled import reference
from discovery_programs import PROGRAMS
from search_programs import norm, softmax_times

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.search import Alternative, superoptimise
from cleave.search.draws import possibly_empty
from cleave.search.floats import FloatChecker
from cleave.search.trials import Trials

SIZES = {"m": 4, "n": 9, "k": 9, "d": 3, "e": 2, "r": 3, "h": 2, "v": 9}
LIMIT = 5  # of the dim that is masked


def before(b: GraphBuilder, dim: str) -> Value:
    return b.cmp(b.index(dim=dim, dtype="i64"), b.constant(LIMIT, "i64"), predicate="lt")


def causal(b: GraphBuilder) -> Value:
    return b.cmp(b.index(dim="n", dtype="i64"), b.index(dim="m", dtype="i64"), predicate="le")


def masked(b: GraphBuilder, condition: Value, value: Value, fill: float = 0.0) -> Value:
    return b.select(condition, value, b.constant(fill, value.dtype))


def masked_values() -> Graph:
    b = GraphBuilder("masked_values")
    z, v = b.input("m n", "f32"), b.input("n d", "f32")
    seen = before(b, "n")
    return b.build(softmax_times(b, masked(b, seen, z, -np.inf), masked(b, seen, v), "f32"))


def masked_narrow_values() -> Graph:
    b = GraphBuilder("masked_narrow_values")
    z, v = b.input("m n", "f32"), b.input("n d", "f16")
    seen = before(b, "n")
    return b.build(softmax_times(b, masked(b, seen, z, -np.inf), masked(b, seen, v)))


def causal_values() -> Graph:
    """The mask on the product of probabilities and values: both may be anything where it is false."""
    b = GraphBuilder("causal_values")
    z, v = b.input("m n", "f32"), b.input("n d", "f32")
    p = masked(b, causal(b), b.mul(b.exp(z), v))
    return b.build(b.reduce(p, kind="sum", over=["n"]))


def causal_weights() -> Graph:
    """The mask on exponentials: the values are looked at, so they stay finite."""
    b = GraphBuilder("causal_weights")
    z, v = b.input("m n", "f32"), b.input("n d", "f32")
    return b.build(b.contract(masked(b, causal(b), b.exp(z)), v, over=["n"]))


def masked_norm() -> Graph:
    b = GraphBuilder("masked_norm")
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    y = norm(b, masked(b, before(b, "k"), x), "k", None, 5.0)
    return b.build(b.contract(y, w, over=["k"]))


def masked_latent() -> Graph:
    """What is masked is a contraction, which algebra may take apart."""
    b = GraphBuilder("masked_latent")
    z, c, w = b.input("m n", "f32"), b.input("n r", "f32"), b.input("r e", "f32")
    seen = before(b, "n")
    values = masked(b, seen, b.contract(c, w, over=["r"]))
    return b.build(softmax_times(b, masked(b, seen, z, -np.inf), values, "f32"))


def two_conditions() -> Graph:
    """x is a factor of both terms, and hidden from both where neither condition holds."""
    b = GraphBuilder("two_conditions")
    x, u, v = b.input("m n", "f32"), b.input("n", "f32"), b.input("n", "f32")
    early = b.cmp(b.index(dim="n", dtype="i64"), b.constant(2, "i64"), predicate="lt")
    return b.build(b.add(masked(b, early, b.mul(x, u)), masked(b, before(b, "n"), b.mul(x, v))))


def two_masked_sums() -> Graph:
    b = GraphBuilder("two_masked_sums")
    x, u, v = b.input("m n", "f32"), b.input("n", "f32"), b.input("n", "f32")
    early = b.cmp(b.index(dim="n", dtype="i64"), b.constant(2, "i64"), predicate="lt")
    sums = [b.reduce(masked(b, c, b.mul(x, y)), kind="sum", over=["n"]) for c, y in ((early, u), (before(b, "n"), v))]
    return b.build(b.add(*sums))


def numbers_only() -> Graph:
    """NaN in the input counts as 0."""
    b = GraphBuilder("numbers_only")
    x, w = b.input("m k", "f32"), b.input("k n", "f32")
    size = b.abs(x)
    return b.build(b.contract(masked(b, b.cmp(size, b.constant(1e30, "f32"), predicate="lt"), x), w, over=["k"]))


def picked_logit() -> Graph:
    """One logit of each row, made of one column of the weight."""
    b = GraphBuilder("picked_logit")
    x, w = b.input("m k", "f32"), b.input("k v", "f32")
    hit = b.cmp(b.index(dim="v", dtype="i64"), b.constant(2, "i64"), predicate="eq")
    return b.build(b.reduce(masked(b, hit, b.contract(x, w, over=["k"])), kind="sum", over=["v"]))


def beyond(axis: int) -> Callable[[tuple[int, ...]], np.ndarray]:
    """Where the position along the axis is not before the limit."""
    return lambda shape: np.broadcast_to(
        np.moveaxis(np.arange(shape[axis]).reshape(-1, *[1] * (len(shape) - 1)), 0, axis) >= LIMIT, shape
    )


def above_diagonal(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(shape[1]) > np.arange(shape[0])[:, None]


def all_but(column: int) -> Callable[[tuple[int, ...]], np.ndarray]:
    return lambda shape: np.broadcast_to(np.arange(shape[-1]) != column, shape)


def last_element(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape) == np.prod(shape) - 1


Hidden = Mapping[int, Callable[[tuple[int, ...]], np.ndarray]]
MASKED: dict[Callable[[], Graph], Hidden] = {
    masked_values: {0: beyond(1), 1: beyond(0)},
    masked_narrow_values: {0: beyond(1), 1: beyond(0)},
    causal_values: {0: above_diagonal},
    causal_weights: {0: above_diagonal},
    masked_norm: {0: beyond(1)},
    masked_latent: {0: beyond(1), 1: beyond(0)},
    two_conditions: {0: beyond(1), 1: lambda shape: np.arange(shape[0]) >= 2, 2: beyond(0)},
    two_masked_sums: {0: beyond(1), 1: lambda shape: np.arange(shape[0]) >= 2, 2: beyond(0)},
    numbers_only: {0: last_element},
    picked_logit: {1: all_but(2)},
}


@cache
def alternatives(make: Callable[[], Graph]) -> tuple[Alternative, ...]:
    return superoptimise(make()).alternatives


def inputs_of(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    kinds = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i64": np.int64}
    shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in graph.inputs]
    return [
        (rng.integers(0, 2, s) if v.dtype == "i64" else rng.standard_normal(s)).astype(kinds[v.dtype])
        for s, v in zip(shapes, graph.inputs, strict=True)
    ]


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", MASKED, ids=lambda make: make.__name__)
def test_what_is_masked_may_be_anything(make: Callable[[], Graph], special: float) -> None:
    source = make()
    inputs = inputs_of(source, SIZES)
    if make is numbers_only:
        inputs[0][..., -1:] = 0
    (expected,) = reference(source, [np.where(_mask(make, i, x), 0, x).astype(x.dtype) for i, x in enumerate(inputs)])
    hidden = [np.where(_mask(make, i, x), special, x).astype(x.dtype) for i, x in enumerate(inputs)]
    assert np.isfinite(expected).all()
    for alternative in alternatives(make):
        (out,) = reference(alternative.graph, hidden, sizes={"s": 3, "s1": 3})
        np.testing.assert_allclose(out, expected, rtol=4e-3, atol=4e-3, err_msg=str(alternative.graph))


def _mask(make: Callable[[], Graph], index: int, array: np.ndarray) -> np.ndarray:
    rule = MASKED[make].get(index)
    return np.zeros(array.shape, bool) if rule is None else rule(array.shape)


@pytest.mark.parametrize("make", MASKED, ids=lambda make: make.__name__)
def test_the_float_check_finds_what_is_masked(make: Callable[[], Graph]) -> None:
    if make is numbers_only:
        pytest.skip("what is hidden depends on the number itself")
    names = [trial.draw.name for trial in Trials(make(), 0, {}).all()]
    assert "NaN and infinity where the source does not look" in names


def test_something_is_found_beside_masks() -> None:
    for make in (masked_values, masked_latent, masked_norm, causal_weights):
        assert len(alternatives(make)) > 1, make.__name__


def test_a_select_moved_to_the_other_factor_is_refused() -> None:
    """Equal over the reals, and NaN times 0."""
    b = GraphBuilder("moved")
    z, v = b.input("m n", "f32"), b.input("n d", "f32")
    graph = b.build(b.contract(masked(b, before(b, "n"), b.exp(z)), v, over=["n"]))
    source_b = GraphBuilder("moved")
    z, v = source_b.input("m n", "f32"), source_b.input("n d", "f32")
    source = source_b.build(source_b.contract(source_b.exp(z), masked(source_b, before(source_b, "n"), v), over=["n"]))
    check, why = FloatChecker(source, 0, {}).check(graph)
    assert check is None and "NaN and infinity" in why


# --- empty dims ------------------------------------------------------------------------------------------------------


def unsafe_attention() -> Graph:
    """Without a maximum, so that there may be no keys."""
    b = GraphBuilder("unsafe")
    q, k, v = b.input("m d", "f32"), b.input("n d", "f32"), b.input("n e", "f32")
    p = b.exp(b.contract(q, k, over=["d"]))
    return b.build(b.contract(b.div(p, b.reduce(p, kind="sum", over=["n"])), v, over=["n"]))


def norm_by_count(eps: float | None) -> Graph:
    """An RMS norm of a symbolic dim, whose mean is 0/0 where it is empty; without eps also 1/0."""
    b = GraphBuilder("norm_by_count")
    x, w = b.input("m k", "f32"), b.input("k n", "f32")
    total = b.reduce(b.mul(x, x), kind="sum", over=["k"])
    if eps is not None:
        count = b.reduce(b.constant(1.0, "f32", x.dims[1:]), kind="sum", over=["k"])
        total = b.add(b.div(total, count), b.constant(eps, "f32"))
    return b.build(b.contract(b.mul(x, b.rsqrt(total)), w, over=["k"]))


def quotient_of_an_input() -> Graph:
    b = GraphBuilder("quotient")
    x, y = b.input("m n", "f32"), b.input("m", "f32")
    return b.build(b.reduce(b.div(x, y), kind="sum", over=["n"]))


def log_weighted() -> Graph:
    b = GraphBuilder("log_weighted")
    x, y = b.input("m n", "f32"), b.input("m", "f32")
    return b.build(b.reduce(b.mul(x, b.log(y)), kind="sum", over=["n"]))


EMPTY: dict[str, Callable[[], Graph]] = {
    "unsafe_attention": unsafe_attention,
    "norm_by_count": lambda: norm_by_count(1e-6),
    "norm_without_eps": lambda: norm_by_count(None),
    "quotient_of_an_input": quotient_of_an_input,
    "log_weighted": log_weighted,
    **{name: PROGRAMS[name] for name in PROGRAMS if possibly_empty(PROGRAMS[name]())},
}


@cache
def named(name: str) -> tuple[Alternative, ...]:
    return superoptimise(EMPTY[name]()).alternatives


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_dim_gives_no_nan(name: str) -> None:
    source = EMPTY[name]()
    for symbol in possibly_empty(source):
        sizes = {**programs.sizes_of(source), symbol: 0}
        for zero in (False, True):
            inputs = [np.zeros_like(x) if zero else x for x in inputs_of(source, sizes)]
            expected = reference(source, inputs, sizes=sizes)
            for alternative in named(name):
                for out, want in zip(reference(alternative.graph, inputs, sizes=sizes), expected, strict=True):
                    assert np.all(np.isfinite(out) | ~np.isfinite(want)), (symbol, str(alternative.graph))


@pytest.mark.parametrize("name", ["unsafe_attention", "norm_by_count", "norm_without_eps"])
def test_the_factor_still_leaves_the_sum(name: str) -> None:
    """With a select on it for the empty dim."""
    found = [a.graph for a in named(name)[1:]]
    assert any(v.op == "select" for graph in found for v in graph.topological())


def test_a_fact_makes_the_select_needless() -> None:
    graph = unsafe_attention()
    b = GraphBuilder("unsafe", facts=["1 <= n"])
    found = superoptimise(Graph("unsafe", graph.inputs, graph.outputs, b.facts)).alternatives
    assert len(found) > 1
    assert not any(v.op == "select" for a in found for v in a.graph.topological() if a.split is None)


def test_draws_that_make_nan_warn_of_nothing() -> None:
    """Where whole rows are masked, the source makes −inf − (−inf)."""
    b = GraphBuilder("rows_masked")
    k, v = b.input("m", "i32"), b.input("n", "f32")
    scores = masked(b, b.cmp(k, b.constant(0, "i32"), predicate="gt"), b.mul(v, b.constant(0.0, "f32")), -np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Trials(b.build(softmax_times(b, scores, v, "f32")), 0, {}).all()
