"""Parts of splits whose length is free: whole vectors, in every schedule, with the numbers of the source."""

from __future__ import annotations

from functools import cache

import graphs
import numpy as np
import pytest
from compiled import CTX, compile_graph, reference
from test_ptx import compiled as ptx_of

from cleave.bindings import ir
from cleave.dialects.dims import Answer, Facts, parse
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.errors import CleaveError
from cleave.passes.graph_io import from_graph
from cleave.passes.verify import verify
from cleave.schedule.alignment import aligned
from cleave.schedule.emit import emit_kernel
from cleave.schedule.part_lengths import UNIT, in_whole_vectors
from cleave.schedule.region import region_of
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.tiling import Fusion, Tiling
from cleave.schedule.workload import VECTOR, workload
from cleave.search.superoptimise import superoptimise

LENGTH = "u*ceildiv(n, s*u)"


def log_sum_exp(keys: str = "n") -> Graph:
    """The head of a language model: the vocabulary's elements are neighbours in memory."""
    b = GraphBuilder("log_sum_exp")
    x, w = b.input("m k=64", "f16"), b.input(f"k {keys}", "f16")
    z = b.contract(x, w, over=["k"], dtype="f32")
    top = b.reduce(z, kind="max", over=["n"])
    total = b.reduce(b.exp(b.sub(z, top)), kind="sum", over=["n"])
    return b.build(b.add(top, b.log(total)))


def masked_log_sum_exp() -> Graph:
    """Of the keys up to each row's number: parts behind it have a maximum of −∞, as parts without elements."""
    b = GraphBuilder("masked_log_sum_exp")
    x = b.input("m n", "f32")
    seen = b.cmp(b.index(dim="n", dtype="i32"), b.index(dim="m", dtype="i32"), predicate="le")
    z = b.select(seen, x, b.constant(float("-inf"), "f32"))
    top = b.reduce(z, kind="max", over=["n"])
    return b.build(b.add(top, b.log(b.reduce(b.exp(b.sub(z, top)), kind="sum", over=["n"]))))


@cache
def in_parts(make: str) -> Graph:
    graph = {"head": log_sum_exp, "static head": lambda: log_sum_exp("n=1040"), "masked": masked_log_sum_exp}[make]()
    return next(a.graph for a in superoptimise(graph.deduplicated()).alternatives if a.split == "n")


@pytest.mark.parametrize("symbol", ["s", "u"])
def test_a_size_against_the_facts_is_named(symbol: str) -> None:
    with pytest.raises(CleaveError, match=f"requires 1 <= {symbol}, which does not hold for {symbol} = 0"):
        in_whole_vectors(in_parts("head"), {"s": 3, "u": 5, symbol: 0})


def the_split(graph: Graph) -> Value:
    return next(value for value in graph.topological() if value.op == "split")


def test_parts_of_any_length_cover_the_dim() -> None:
    import z3

    assert Facts.parse(["1 <= s", "1 <= u"]).less_equal(parse("n"), parse(f"s*{LENGTH}")) is Answer.YES
    n, s, u, quotient = z3.Ints("n s u quotient")
    solver = z3.Solver()
    solver.add(n >= 0, s >= 1, u >= 1, quotient * (s * u) >= n, (quotient - 1) * (s * u) < n)
    assert solver.check() == z3.sat
    solver.add(s * (u * quotient) < n)
    assert solver.check() == z3.unsat


def test_the_search_leaves_the_length_open_and_the_schedule_takes_vectors() -> None:
    graph = in_parts("head")
    assert the_split(graph).attrs["into"] == ("s", f"t={LENGTH}") and "1 <= u" in graph.facts.texts
    for sizes, unit in (({}, UNIT), ({"u": 64}, 64)):
        found = in_whole_vectors(graph, sizes)
        assert the_split(found).type.size("t") is parse(f"{unit}*ceildiv(n, {unit}*s)")
        assert found.facts.texts == ("1 <= s",) and in_whole_vectors(found, {}) is found
        with CTX, ir.Location.unknown():
            module = ir.Module.create()
            from_graph(found, module)
            assert not verify(module)


def test_lengths_that_somebody_wrote_stay() -> None:
    graph = graphs.split_attention()
    assert in_whole_vectors(graph, {}) is graph
    b = GraphBuilder("f", facts=["1 <= s"])
    u = b.input("u", "f32")  # the size of a dim, though the length is a multiple of it
    parts = b.split(b.input("n", "f32"), dim="n", into=["s", f"t={LENGTH}"])
    graph = b.build(b.mul(b.reduce(parts, kind="sum", over=["s", "t"]), u))
    assert in_whole_vectors(graph, {}) is graph


@pytest.mark.parametrize("make", ["head", "static head", "masked"])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100])
def test_numbers(make: str, parts: int) -> None:
    """Where parts are shorter than a vector, and where many have no elements at all."""
    graph = in_parts(make)
    program = _compiled(make)
    rng = np.random.default_rng(parts)
    for n in (1040,) if make == "static head" else (1, 15, 16, 17, 130):
        shapes = [(5, n)] if make == "masked" else [(5, 64), (64, n)]
        inputs = [rng.standard_normal(s).astype(np.float32 if make == "masked" else np.float16) for s in shapes]
        (expected,) = reference(log_sum_exp() if make == "head" else _source(make), inputs, "f64")
        (found,) = program(inputs, {"s": parts})
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
        (executed,) = reference(graph, inputs, "f64", {"s": parts, "u": 1 + parts % 3})
        np.testing.assert_allclose(executed, expected, rtol=1e-9)


def _source(make: str) -> Graph:
    return masked_log_sum_exp() if make == "masked" else log_sum_exp("n=1040")


@cache
def _compiled(make: str):
    return compile_graph(in_parts(make), {"m": 16, "n": 4096})


def test_all_loads_are_whole_vectors() -> None:
    """Where rows are; the parts' tails too, which have masks."""
    sizes = {"m": 16, "n": 128256}
    form = aligned(in_parts("head"), sizes)
    assert form is not None
    for graph in (in_parts("static head"), form):
        kernel = ptx_of(graph, sizes)[0]
        assert "cp.async" in kernel.ptx and "ld.global.b16" not in kernel.ptx and ".cg.shared.global" in kernel.ptx
        assert "cp.async.ca" not in kernel.ptx


@pytest.mark.parametrize(("words", "vectors"), [(1040, True), (1041, False)])
def test_the_cost_model_knows_the_pitch_of_parts(words: int, vectors: bool) -> None:
    b = GraphBuilder("rows", extents={"n": words})
    x = b.split(b.input("m n", "f16"), dim="n", into=["s", "t=16*ceildiv(n, 16*s)"])
    total = b.reduce(b.cast(x, dtype="f32"), kind="sum", over=["t"])
    region = region_of((total,), frozenset((total,)), {"n": words})
    tiling = Tiling({"m": 1, "s": 1}, {"t": 128})
    kernel = emit_kernel("k", region, tiling, {"n": words}, Fusion()).kernel
    work = workload(kernel, {"m": 64, "s": 4, "n": words}, {"n": words})
    width = min(VECTOR, 4) if vectors else 2
    assert work.requests == pytest.approx(work.loaded / width)


def test_many_parts_fill_the_gpu_where_there_is_little_else() -> None:
    sizes = {"m": 16, "n": 128256}
    form = aligned(in_parts("head"), sizes)
    assert form is not None
    found = schedule(form, ScheduleOptions(sizes=sizes, max_tilings=8))
    assert found.program.choices["s"] > 64
    first, *_ = found.program.launches
    names = [value.names for value in found.program.allocated]
    assert all("n" not in each and "t" not in each for each in names), "the product stays out of memory"
    assert first.kernel.grid[0].evaluate({**sizes, "s": 1}) == 1
