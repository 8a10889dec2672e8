"""Loops in parts: full tiles without masks, edges with them, and none where a mask leaves nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from lowered import run_lowered

from cleave.bindings import context, ir
from cleave.dialects.dims import const
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.passes.graph_io import from_graph
from cleave.passes.tile_io import from_tile_program
from cleave.reference import run
from cleave.schedule import loops
from cleave.schedule.affine import Affine
from cleave.schedule.conditions import Limit
from cleave.schedule.emit import emit_kernel
from cleave.schedule.ranges import Trips, growing
from cleave.schedule.region import region_of
from cleave.schedule.tile_program import Kernel, Launch, TileProgram
from cleave.schedule.tiling import Fusion, Tiling

CTX = context(allow_unregistered=True)
INFINITY = float("inf")
TILE = 16
AROUND_A_TILE = (0, 1, TILE - 1, TILE, TILE + 1, 2 * TILE + 3)


@pytest.fixture(autouse=True)
def masks_always_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiles here are small; in small tiles masks cost little."""
    monkeypatch.setattr(loops, "MASKED_ELEMENTS", 1)


def scheduled(graph: Graph, tiling: Tiling, *, horizontal: bool = True) -> tuple[Kernel, ir.Module]:
    """The function as one kernel with these tiles, lowered."""
    region = region_of(graph.outputs, frozenset(graph.outputs), graph.extents)
    tiling = replace(tiling, grid={**dict.fromkeys(region.parallel, 1), **tiling.grid})
    emitted = emit_kernel(f"{graph.name}__k0", region, tiling, graph.extents, Fusion(horizontal=horizontal))
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(TileProgram(graph, graph.outputs, (Launch(emitted.kernel, emitted.operands),)), module)
        LowerToTriton().apply(CTX, module)
        assert module.operation.verify()
    return emitted.kernel, module


def expected(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module)
        return run(module, graph.name, inputs, precision="f64")


def arrays(graph: Graph, sizes: Mapping[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    kinds = {"f16": np.float16, "f32": np.float32}
    return [
        rng.standard_normal([dim.size.evaluate({**sizes, **graph.extents}) for dim in value.dims]).astype(
            kinds[value.dtype]
        )
        for value in graph.inputs
    ]


def agree(graph: Graph, module: ir.Module, sizes: Mapping[str, int]) -> None:
    inputs = arrays(graph, sizes)
    for got, want in zip(run_lowered(module, graph.name, inputs), expected(graph, inputs), strict=True):
        assert np.array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_allclose(np.nan_to_num(got.astype(float)), np.nan_to_num(want), atol=4e-3, rtol=4e-3)


def loops_of(kernel: Kernel) -> list[str]:
    return [str(i.attrs["dim"]) for i in kernel.body.walk() if i.op == "scf.for"]


# --- main loop and tail -----------------------------------------------------------------------------------------------


def product() -> tuple[Graph, Tiling]:
    b = GraphBuilder("product")
    x, w = b.input("m k", "f32"), b.input("k n", "f32")
    return b.build(b.contract(x, w, over=["k"])), Tiling({"m": TILE, "n": TILE}, {"k": TILE})


def attention(
    mask: Callable[[GraphBuilder, Value], Value] | None = None, *, division_first: bool = False
) -> tuple[Graph, Tiling]:
    b = GraphBuilder("attention")
    q, k, v = b.input("m d=8", "f32"), b.input("n d", "f32"), b.input("n e=8", "f32")
    s = b.contract(q, k, over=["d"])
    s = mask(b, s) if mask else s
    top = b.reduce(s, kind="max", over=["n"])
    e = b.exp(b.sub(s, top))
    total = b.reduce(e, kind="sum", over=["n"])
    if division_first:
        out = b.contract(b.div(e, total), v, over=["n"])
    else:
        out = b.div(b.contract(e, v, over=["n"]), total)
    return b.build(out), Tiling({"m": TILE, "e": 8}, {"n": TILE, "d": 8}, frozenset("d"))


def rows(kind: str) -> tuple[Graph, Tiling]:
    b = GraphBuilder(f"rows_{kind}")
    return b.build(b.reduce(b.input("m n", "f32"), kind=kind, over=["n"])), Tiling({"m": 4}, {"n": TILE})


def both_dims() -> tuple[Graph, Tiling]:
    """Two dims reduced at once: a nest of two loops, with the count of elements that one summand lacks."""
    b = GraphBuilder("both_dims")
    x, y = b.input("m a n", "f32"), b.input("m a", "f32")
    total = b.add(
        b.reduce(x, kind="sum", over=["a", "n"]), b.reduce(b.add(y, b.constant(1.0, "f32")), kind="sum", over=["a"])
    )
    return b.build(total), Tiling({"m": 4}, {"a": TILE, "n": TILE})


def split_rows() -> tuple[Graph, Tiling]:
    """Sums of parts; the last parts are shorter or empty."""
    b = GraphBuilder("split_rows")
    x = b.split(b.input("m n", "f32"), dim="n", into=["s=3", "t=ceildiv(n, 3)"])
    return b.build(b.reduce(x, kind="sum", over=["t"])), Tiling({"m": 4}, {"t": TILE})


PLAIN = {
    "product": (product, "mkn"), "attention": (attention, "mn"), "sum": (lambda: rows("sum"), "mn"),
    "max": (lambda: rows("max"), "mn"), "both_dims": (both_dims, "man"), "split": (split_rows, "mn"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_sizes_around_a_tile(name: str) -> None:
    build, names = PLAIN[name]
    graph, tiling = build()
    _, module = scheduled(graph, tiling)
    maxima = name in ("max", "attention")
    for size in AROUND_A_TILE[maxima:]:
        agree(graph, module, {**dict.fromkeys(names, TILE + 3), names[-1]: size, names[1]: size})


def test_full_tiles_have_no_masks_and_edges_come_last() -> None:
    kernel, _ = scheduled(*attention())
    main, edge = (i for i in kernel.body.walk() if i.op == "scf.for")
    assert main.body and edge.body and main.results[0] in edge.operands
    loads = {name: [i for i in loop.body.walk() if i.op == "load"] for name, loop in (("main", main), ("edge", edge))}
    assert all("n" in load.attrs["in_bounds"] for load in loads["main"])
    assert not any("n" in load.attrs["in_bounds"] for load in loads["edge"])
    compared = [sum(i.op == "cmp" for i in loop.body.walk()) for loop in (main, edge)]
    assert compared[0] < compared[1]
    assert edge.attrs["stages"] == loops.EDGE_STAGES


def test_a_static_multiple_has_one_loop_and_a_static_rest_two() -> None:
    for size, count in ((3 * TILE, 1), (3 * TILE + 1, 2), (TILE - 1, 1)):
        b = GraphBuilder("static")
        graph = b.build(b.reduce(b.input(f"m n={size}", "f32"), kind="max", over=["n"]))
        kernel, module = scheduled(graph, Tiling({"m": 4}, {"n": TILE}))
        assert len(loops_of(kernel)) == count
        agree(graph, module, {"m": 5})


def test_masks_of_loads_alone_cost_nothing() -> None:
    kernel, _ = scheduled(*product())
    assert loops_of(kernel) == ["k"]


def test_where_masks_cost_little_there_is_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MASKED_ELEMENTS", 2048)
    kernel, _ = scheduled(*attention())
    assert loops_of(kernel) == ["n"]


# --- masks that leave tiles out ---------------------------------------------------------------------------------------


def minus_infinity(b: GraphBuilder) -> Value:
    return b.constant(-INFINITY, "f32")


def shifted(b: GraphBuilder, shift: int) -> Value:
    return b.add(b.index(dim="m"), b.constant(shift, "i64"))


def causal(shift: int = 0) -> Callable[[GraphBuilder, Value], Value]:
    """j ≤ i + shift"""
    return lambda b, s: b.select(b.cmp(b.index(dim="n"), shifted(b, shift), predicate="le"), s, minus_infinity(b))


def masked_where(b: GraphBuilder, s: Value) -> Value:
    """−∞ where j > i, and where j is odd, which no tile is throughout."""
    s = b.select(b.cmp(b.index(dim="n"), b.index(dim="m"), predicate="gt"), minus_infinity(b), s)
    half = b.div(b.index(dim="n"), b.constant(2, "i64"))
    return b.select(b.cmp(b.mul(half, b.constant(2, "i64")), b.index(dim="n"), predicate="ne"), minus_infinity(b), s)


def window(width: int) -> Callable[[GraphBuilder, Value], Value]:
    """i − width < j ≤ i, as one condition"""

    def mask(b: GraphBuilder, s: Value) -> Value:
        upper = b.cmp(b.index(dim="n"), b.index(dim="m"), predicate="le")
        lower = b.cmp(b.sub(b.index(dim="m"), b.index(dim="n")), b.constant(width, "i64"), predicate="lt")
        return b.select(b.mul(upper, lower), s, minus_infinity(b))

    return mask


def later(b: GraphBuilder, s: Value) -> Value:
    """j ≥ 2i, so most rows of a square are masked throughout"""
    twice = b.mul(b.index(dim="m"), b.constant(2, "i64"))
    return b.select(b.cmp(b.index(dim="n"), twice, predicate="ge"), s, minus_infinity(b))


def diagonal(b: GraphBuilder, s: Value) -> Value:
    return b.select(b.cmp(b.index(dim="n"), b.index(dim="m"), predicate="eq"), s, minus_infinity(b))


MASKS = {
    "causal": causal(), "causal+5": causal(5), "causal-19": causal(-19), "causal-1": causal(-1), "gt": masked_where,
    "window1": window(1), "window9": window(9), "window40": window(40), "later": later, "diagonal": diagonal,
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_attention(name: str) -> None:
    """Rows that are masked throughout are NaN; all others are right."""
    graph, tiling = attention(MASKS[name])
    _, module = scheduled(graph, tiling)
    for m, n in ((1, TILE + 1), (TILE, 1), (TILE, TILE), (2 * TILE + 3, TILE - 1), (2 * TILE + 3, 5 * TILE + 3)):
        agree(graph, module, {"m": m, "n": n})


@pytest.mark.parametrize("name", ["causal-19", "window9"])
def test_masked_rows_are_nan_in_a_second_loop(name: str) -> None:
    """A loop that has the maximum already must still see a row that is masked throughout."""
    graph, tiling = attention(MASKS[name], division_first=True)
    kernel, module = scheduled(graph, tiling, horizontal=False)
    assert len(loops_of(kernel)) > 2
    for m, n in ((TILE, TILE), (2 * TILE + 3, TILE - 1), (2 * TILE + 3, 5 * TILE + 3)):
        agree(graph, module, {"m": m, "n": n})


@pytest.mark.parametrize(
    ("name", "seen"),
    [("causal", (0, 3)), ("causal-1", (0, 3)), ("window9", (0, 3)), ("later", (0, 9)), ("diagonal", (0, 3))],
)
def test_masked_tiles_are_not_read(name: str, seen: tuple[int, int]) -> None:
    """NaN in keys and values that only fully masked tiles have does not show, though 0·NaN is NaN."""
    graph, tiling = attention(MASKS[name])
    _, module = scheduled(graph, tiling)
    m, n = 2 * TILE + 3, 9 * TILE
    inputs = arrays(graph, {"m": m, "n": n})
    (want,) = run_lowered(module, graph.name, inputs)
    poisoned = [array.copy() for array in inputs]
    for array in poisoned[1:]:
        array[: seen[0] * TILE] = array[seen[1] * TILE :] = np.nan
    (got,) = run_lowered(module, graph.name, poisoned)
    np.testing.assert_array_equal(got, want)


def test_blocks_with_most_to_do_come_first() -> None:
    expected = {"causal": {"m"}, "causal-19": {"m"}, "gt": {"m"}, "window9": set(), "later": set(), "diagonal": set()}
    for name, dims in expected.items():
        graph, _ = attention(MASKS[name])
        assert growing(region_of(graph.outputs, frozenset(graph.outputs), graph.extents)) == dims


def test_a_window_reads_only_its_tiles() -> None:
    graph, tiling = attention(window(TILE))
    _, module = scheduled(graph, tiling)
    n = 6 * TILE
    inputs = arrays(graph, {"m": n, "n": n})
    (want,) = run_lowered(module, graph.name, inputs)
    inputs[1][: 3 * TILE] = inputs[2][: 3 * TILE] = np.nan
    (got,) = run_lowered(module, graph.name, inputs)
    np.testing.assert_array_equal(got[4 * TILE :], want[4 * TILE :])


def test_a_finite_mask_leaves_nothing_out() -> None:
    """−10⁹ is no neutral element of a maximum."""

    def finite(b: GraphBuilder, s: Value) -> Value:
        seen = b.cmp(b.index(dim="n"), b.index(dim="m"), predicate="le")
        return b.select(seen, s, b.constant(-1e9, "f32"))

    graph, tiling = attention(finite)
    kernel, module = scheduled(graph, tiling)
    assert not any(i.op == "arith.minsi" for i in kernel.body.walk())
    agree(graph, module, {"m": TILE + 3, "n": 3 * TILE + 1})


def test_one_mask_of_two_reductions_leaves_nothing_out() -> None:
    """What one of the reductions in a loop still needs is computed."""
    b = GraphBuilder("half_masked")
    x = b.input("m n", "f32")
    seen = b.cmp(b.index(dim="n"), b.index(dim="m"), predicate="le")
    masked = b.reduce(b.select(seen, x, b.constant(0.0, "f32")), kind="sum", over=["n"])
    graph = b.build(b.mul(masked, b.reduce(x, kind="sum", over=["n"])))
    _, module = scheduled(graph, Tiling({"m": 4}, {"n": TILE}))
    agree(graph, module, {"m": 7, "n": 3 * TILE + 1})


def test_indices_that_may_wrap_are_no_limits() -> None:
    """In i32 the sum of two indices, or an index plus 2³¹ − 1, can be negative."""
    b = GraphBuilder("wrapping")
    x = b.input("m n", "f32")
    far = b.add(b.index(dim="m", dtype="i32"), b.constant(2**31 - 1, "i32"))
    seen = b.cmp(b.index(dim="n", dtype="i32"), far, predicate="le")
    graph = b.build(b.reduce(b.select(seen, x, b.constant(0.0, "f32")), kind="sum", over=["n"]))
    kernel, module = scheduled(graph, Tiling({"m": 4}, {"n": TILE}))
    assert not any(i.op == "arith.minsi" for i in kernel.body.walk())
    agree(graph, module, {"m": 7, "n": 3 * TILE + 1})


def test_a_mask_of_parts() -> None:
    """The index along a dim that is split is an affine form of its parts."""
    b = GraphBuilder("parts")
    x = b.input("m n", "f32")
    seen = b.cmp(b.index(dim="n"), b.index(dim="m"), predicate="le")
    masked = b.split(b.select(seen, x, b.constant(0.0, "f32")), dim="n", into=["s=3", "t=ceildiv(n, 3)"])
    graph = b.build(b.reduce(masked, kind="sum", over=["t"]))
    kernel, module = scheduled(graph, Tiling({"m": 4}, {"t": TILE}))
    assert any(i.op == "arith.minsi" for i in kernel.body.walk())
    for m, n in itertools.product((9, 50), (0, 1, 48, 49, 101)):
        agree(graph, module, {"m": m, "n": n})


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("rows", [64, 256])
def test_predicted_iterations_are_the_mean_of_all_blocks(rows: int, parts: int) -> None:
    """Causal, keys in parts: blocks whose part lies past their rows have none, and make no others shorter."""
    keys = 256 // parts
    sizes = {"m": const(rows), "s": const(parts), "t": const(keys)}
    last = Affine({"m": const(1), "s": const(-keys)}, const(0), -256, 256)
    tiles = {"m": 32, "s": 1, "t": 1}
    trips = Trips("t", sizes, (Limit(True, (last,)),))
    blocks = itertools.product(range(31, rows, 32), range(parts))
    left = [min(max(row - keys * part + 1, 0), keys) for row, part in blocks]
    assert trips.count(tiles, {}) == pytest.approx(sum(left) / len(left), abs=0.6)
