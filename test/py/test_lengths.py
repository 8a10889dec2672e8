"""Loops that end where lengths in memory say, and where one of two conditions suffices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from compiled import compile_graph
from lowered import run_lowered
from test_ranges import TILE, expected, minus_infinity, scheduled

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.schedule import loops
from cleave.schedule.tiling import Tiling

Mask = Callable[[GraphBuilder, dict[str, Value]], Value]
ROWS, KEYS = 2 * TILE + 3, 5 * TILE + 3
EXTREME = 2**63 - 1


@pytest.fixture(autouse=True)
def masks_always_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MASKED_ELEMENTS", 1)


def attention(mask: Mask) -> Graph:
    """Of batches; ``mask`` says which keys each row sees, by lengths and starts of batches, and of rows."""
    b = GraphBuilder("attention")
    q, k, v = b.input("b m d=8", "f32"), b.input("b n d", "f32"), b.input("b n e=8", "f32")
    data = {"length": b.input("b", "i32"), "start": b.input("b", "i32"), "rows": b.input("m", "i64")}
    s, hidden = b.contract(q, k, over=["d"]), minus_infinity(b)
    s = b.select(mask(b, data), *((hidden, s) if mask in (past, outside) else (s, hidden)))
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    return b.build(b.div(b.contract(e, v, over=["n"]), b.reduce(e, kind="sum", over=["n"])))


def key(b: GraphBuilder, dtype: str = "i32") -> Value:
    return b.index(dim="n", dtype=dtype)


def row(b: GraphBuilder) -> Value:
    return b.index(dim="m", dtype="i32")


def below_length(b: GraphBuilder, data: dict[str, Value]) -> Value:
    return b.cmp(key(b), data["length"], predicate="lt")


def from_start(b: GraphBuilder, data: dict[str, Value]) -> Value:
    return b.cmp(key(b), data["start"], predicate="ge")


def causal(b: GraphBuilder, data: dict[str, Value]) -> Value:
    return b.cmp(key(b), row(b), predicate="le")


def at_the_end(b: GraphBuilder, data: dict[str, Value]) -> Value:
    """The rows are the last ones of those: j ≤ i + length − 3, in i64, where it cannot wrap around."""
    last = b.sub(b.add(b.cast(row(b), dtype="i64"), b.cast(data["length"], dtype="i64")), b.constant(3, "i64"))
    return b.cmp(key(b, "i64"), last, predicate="le")


def of_each_row(b: GraphBuilder, data: dict[str, Value]) -> Value:
    return b.cmp(key(b, "i64"), data["rows"], predicate="lt")


def past(b: GraphBuilder, data: dict[str, Value]) -> Value:
    """What ``prefix`` does not see."""
    return b.mul(b.cmp(key(b), row(b), predicate="gt"), b.cmp(key(b), data["length"], predicate="ge"))


def outside(b: GraphBuilder, data: dict[str, Value]) -> Value:
    """What ``between`` does not see."""
    return b.max(b.cmp(key(b), data["start"], predicate="lt"), b.cmp(key(b), data["length"], predicate="ge"))


def either(one: Mask, other: Mask) -> Mask:
    return lambda b, data: b.max(one(b, data), other(b, data))


def both(one: Mask, other: Mask) -> Mask:
    return lambda b, data: b.mul(one(b, data), other(b, data))


MASKS: dict[str, Mask] = {
    "length": below_length, "start": from_start, "between": both(from_start, below_length), "rows": of_each_row,
    "at_the_end": at_the_end, "causal_and_length": both(causal, below_length),
    "prefix": either(causal, below_length), "prefix_and_start": both(either(causal, below_length), from_start),
    "window_or_length": either(both(causal, from_start), below_length),
    "start_or_length": either(from_start, below_length), "three": either(either(causal, below_length), of_each_row),
    "past": past, "outside": outside,
}  # fmt: skip
LENGTHS = [(0, 1, TILE), (TILE - 1, TILE + 1, KEYS), (KEYS + 7, -5, 2 * TILE), (2**31 - 1, -(2**31), 3)]


def arrays(lengths: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    count = len(lengths)
    shapes = [(count, ROWS, 8), (count, KEYS, 8), (count, KEYS, 8)]
    floats = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    rows = np.resize(np.array([3, 0, KEYS, -1, EXTREME, -EXTREME - 1, TILE]), ROWS).astype(np.int64)
    starts = np.array(lengths[1:] + lengths[:1], np.int32) // 2
    return [*floats, np.array(lengths, np.int32), starts, rows]


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("name", MASKS)
def test_numbers(name: str, batches: int) -> None:
    """Rows that see no key are NaN; all others are right, whether a block has one batch or more."""
    graph = attention(MASKS[name])
    tiling = Tiling({"b": batches, "m": TILE, "e": 8}, {"n": TILE, "d": 8}, frozenset("d"))
    _, module = scheduled(graph, tiling)
    for lengths in LENGTHS if batches == 1 else LENGTHS[1:3]:
        inputs = arrays(lengths)
        (got,), (want,) = run_lowered(module, graph.name, inputs), expected(graph, inputs)
        assert np.array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_allclose(np.nan_to_num(got), np.nan_to_num(want), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "seen"),
    [("length", (0, 2)), ("start", (1, 6)), ("between", (1, 2)), ("at_the_end", (0, 5)), ("prefix", (0, 3)),
     ("prefix_and_start", (1, 3)), ("window_or_length", (0, 3)), ("start_or_length", (0, 6)),
     ("past", (0, 3)), ("outside", (1, 2))],
)  # fmt: skip
def test_tiles_that_are_masked_are_not_read(name: str, seen: tuple[int, int]) -> None:
    """NaN in keys and values of other tiles does not show, though 0·NaN is NaN."""
    graph = attention(MASKS[name])
    tiling = Tiling({"b": 1, "m": TILE, "e": 8}, {"n": TILE, "d": 8}, frozenset("d"))
    _, module = scheduled(graph, tiling)
    inputs = arrays((2 * TILE,))
    inputs[4][:] = TILE + 2
    (want,) = run_lowered(module, graph.name, inputs)
    for array in inputs[1:3]:
        array[:, : seen[0] * TILE] = array[:, seen[1] * TILE :] = np.nan
    (got,) = run_lowered(module, graph.name, inputs)
    np.testing.assert_array_equal(got, want)


def test_no_length_is_read_that_a_reduction_makes() -> None:
    b = GraphBuilder("counted")
    x, seen = b.input("m n", "f32"), b.input("m n", "i32")
    count = b.reduce(seen, kind="sum", over=["n"])
    kept = b.select(b.cmp(b.index(dim="n", dtype="i32"), count, predicate="lt"), x, b.constant(0.0, "f32"))
    graph = b.build(b.reduce(kept, kind="sum", over=["n"]))
    kernel, module = scheduled(graph, Tiling({"m": 4}, {"n": TILE}))
    assert not any(i.op == "scalar" for i in kernel.body.walk())
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((5, KEYS)).astype(np.float32), rng.integers(0, 2, (5, KEYS)).astype(np.int32)]
    np.testing.assert_allclose(run_lowered(module, graph.name, inputs)[0], expected(graph, inputs)[0], atol=1e-4)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_parts_of_a_split_end_at_lengths_too(dtype: str) -> None:
    """FlashDecoding: parts past the length read one tile, which is masked."""
    b = GraphBuilder("parts", facts=["1 <= s"])
    x, length = b.input("b n", "f32"), b.input("b", "i32")
    seen = b.cmp(b.index(dim="n", dtype=dtype), b.cast(length, dtype=dtype), predicate="lt")
    kept = b.select(seen, x, b.constant(0.0, "f32"))
    parts = b.split(kept, dim="n", into=["s", "t=16*ceildiv(n, 16*s)"])
    graph = b.build(b.reduce(parts, kind="sum", over=["t"]))
    kernel, _ = scheduled(graph, Tiling({"b": 1}, {"t": TILE}))
    assert any(i.op == "scalar" for i in kernel.body.walk())
    program = compile_graph(graph)
    lengths = np.array([0, 1, TILE, 2 * TILE + 1, KEYS, KEYS + 5, -7], np.int32)
    values = np.random.default_rng(0).standard_normal((len(lengths), KEYS)).astype(np.float32)
    beyond = np.arange(KEYS) >= np.maximum(lengths, 0)[:, None]
    values[beyond] = np.nan
    for count in (1, 2, 3, 100):
        (got,) = program([values, lengths], {"s": count})
        np.testing.assert_allclose(got.sum(axis=0), np.where(beyond, 0, values).sum(axis=1), atol=1e-5)
