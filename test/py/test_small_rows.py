"""Few rows: swapped operands, packed rows, deferred sums, deep pipelines: numbers at sizes nothing divides, and PTX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from compiled import Compiled, reference

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.lowering.compile_ttir import Compiled as Binary
from cleave.lowering.compile_ttir import compile_many
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.plan import plan_of
from cleave.lowering.targets import Target
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.launch_plan import LaunchPlan
from cleave.schedule.emit import emit_kernel
from cleave.schedule.region import region_of
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.tile_program import Launch, TileProgram
from cleave.schedule.tiling import Fusion, Tiling

CTX = context(allow_unregistered=True)
ROWS = (0, 1, 15, 16, 17, 127, 130)


def matmul(size: int = 0) -> Graph:
    b = GraphBuilder("matmul")
    k, n = (f"k={size}", f"n={size}") if size else ("k", "n")
    return b.build(b.contract(b.input(f"m {k}", "f16"), b.input(f"k {n}", "f16"), over=["k"], dtype="f32"))


def row_norm() -> Graph:
    b = GraphBuilder("row_norm")
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    wide = b.cast(x, dtype="f32")
    squares = b.reduce(b.mul(wide, wide), kind="sum", over=["k"])
    return b.build(b.mul(b.contract(x, w, over=["k"], dtype="f32"), b.rsqrt(b.add(squares, b.constant(1e-6, "f32")))))


def grouped(*, causal: bool = False, kv: int = 2, group: int = 3, head: int = 32, dtype: str = "f32") -> Graph:
    """Attention of ``group`` query heads for each key head; causal: query i sees the keys up to i."""
    b = GraphBuilder("grouped")
    q, k, v = b.input(f"a={kv} g={group} m d={head}", "f16"), b.input("a n d", "f16"), b.input(f"a n e={head}", "f16")
    s = b.contract(q, k, over=["d"], dtype="f32")
    if causal:
        seen = b.cmp(b.op("index", dim="n", dtype="i64"), b.op("index", dim="m", dtype="i64"), predicate="le")
        s = b.select(seen, s, b.constant(float("-inf"), "f32"))
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    total = b.reduce(e, kind="sum", over=["n"])
    return b.build(b.cast(b.div(b.contract(b.cast(e, dtype="f16"), v, over=["n"]), total), dtype=dtype))


@dataclass(frozen=True)
class Form:
    graph: Graph
    tiling: Tiling
    sizes: Mapping[str, int]


def products(columns: str = "", *, deferred: bool = False) -> Tiling:
    return Tiling({"m": 16, "n": 64}, {"k": 32}, frozenset(), frozenset(columns), deferred)


def heads(g: int, m: int, columns: str = "", *, deferred: bool = False) -> Tiling:
    grid = {"a": 1, "g": g, "m": m, "e": 32}
    return Tiling(grid, {"d": 32, "n": 32}, frozenset({"d"}), frozenset(columns), deferred)


FORMS = {
    "swapped": Form(matmul(), products("m"), {"k": 70, "n": 133}),
    "sums": Form(row_norm(), products(deferred=True), {"k": 70, "n": 133}),
    "swapped sums": Form(row_norm(), products("m", deferred=True), {"k": 70, "n": 133}),
    "swapped chain": Form(grouped(), heads(1, 16, "m"), {"n": 77}),
    "packed": Form(grouped(), heads(4, 16), {"n": 77}),
    "packed, deferred": Form(grouped(), heads(4, 4, deferred=True), {"n": 77}),
    "packed and swapped": Form(grouped(), heads(2, 8, "gm", deferred=True), {"n": 77}),
    "packed, causal": Form(grouped(causal=True), heads(4, 16), {"n": 131}),
    "packed and swapped, causal": Form(grouped(causal=True), heads(4, 4, "gm"), {"n": 131}),
}


def lowered(graph: Graph, tiling: Tiling, *, warps: int = 4, stages: int = 3) -> tuple[LaunchPlan, list[KernelModule]]:
    graph = graph.deduplicated()
    outputs: tuple[Value, ...] = tuple(graph.outputs)
    region = region_of(outputs, frozenset(outputs), graph.extents)
    emitted = emit_kernel(f"{graph.name}__k0", region, tiling, graph.extents, Fusion())
    kernel = replace(emitted.kernel, num_warps=warps, num_stages=stages)
    return _lowered(TileProgram(graph, outputs, (Launch(kernel, emitted.operands),)))


def _lowered(program: TileProgram) -> tuple[LaunchPlan, list[KernelModule]]:
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(program, module)
        assert module.operation.verify()
        LowerToTriton().apply(CTX, module)
        kernels = kernel_modules(module)
        return plan_of(module, program.graph.name, {kernel.name: kernel for kernel in kernels}), kernels


def beyond(array: np.ndarray) -> np.ndarray:
    """The same numbers, within a larger array of NaN."""
    around = np.full([n + 3 for n in array.shape], np.nan, array.dtype)
    inside = around[tuple(slice(n) for n in array.shape)]
    inside[...] = array
    return inside


@pytest.mark.parametrize("name", FORMS)
def test_numbers(name: str) -> None:
    form = FORMS[name]
    plan, kernels = lowered(form.graph, form.tiling)
    compiled = Compiled(plan, {kernel.name: kernel.text for kernel in kernels})
    for rows in ROWS:
        sizes = {**form.graph.extents, **form.sizes, "m": rows}
        rng = np.random.default_rng(rows)
        shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in form.graph.inputs]
        inputs = [beyond(rng.standard_normal(shape).astype(np.float16)) for shape in shapes]
        (actual,) = compiled(inputs)
        (expected,) = reference(form.graph, inputs, "f64")
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-3 * np.abs(expected).max(initial=1))


# --- code -------------------------------------------------------------------------------------------------------------


def binaries(kernels: Sequence[KernelModule]) -> list[Binary]:
    results = compile_many([kernel.request(Target.parse("sm_90")) for kernel in kernels])
    for result in results:
        if isinstance(result, Exception):
            raise result
    return [result for result in results if isinstance(result, Binary)]


def test_sixteen_rows_are_the_columns_of_wgmma() -> None:
    graph = replace(matmul(4096), name="matmul_16")
    scheduled = schedule(graph.deduplicated(), ScheduleOptions(sizes={"m": 16}))
    (binary,) = binaries(_lowered(scheduled.program)[1])
    assert "wgmma.mma_async.sync.aligned.m64n16k16" in binary.ptx
    assert "mma.sync" not in binary.ptx
    assert binary.spills == 0


def test_packed_rows_are_one_matrix() -> None:
    """64 rows of four heads by 16 queries: the code of 64 queries of one head, no layout changes in the loop."""
    graph = grouped(kv=8, group=4, head=128, dtype="f16")
    grid = {"a": 1, "g": 4, "m": 16, "e": 128}
    tiling = Tiling(grid, {"d": 128, "n": 64}, frozenset({"d"}))
    packed, plain = (
        binaries(lowered(graph, replace(tiling, grid={**grid, **tiles}))[1])[0] for tiles in ({}, {"g": 1, "m": 64})
    )
    assert packed.ptx.count("wgmma.mma_async") == plain.ptx.count("wgmma.mma_async") > 0
    assert packed.ptx.count("shared") <= plain.ptx.count("shared")
    assert "mma.sync" not in packed.ptx
    assert packed.spills == 0


_RING = re.compile(r"(%\w+) = ttg\.memdesc_index (%\w+)\[")
_READ = re.compile(r"ttg\.local_load (%\w+)")
_DOT = re.compile(r"ttng\.warp_group_dot (%\w+), (%\w+),")
_VIEW = re.compile(r"(%\w+) = ttg\.memdesc_trans (%\w+)")


@pytest.mark.parametrize("columns", ["", "m"])
def test_no_ring_of_copies_feeds_wgmma_and_registers(columns: str) -> None:
    """Triton 3.6 races there: the sum of squares of a row and its product read copies of their own."""
    b = GraphBuilder("row_norm")
    x, w = b.input("m k=4096", "f16"), b.input("k n=4096", "f16")
    wide = b.cast(x, dtype="f32")
    squares = b.reduce(b.mul(wide, wide), kind="sum", over=["k"])
    graph = b.build(b.mul(b.contract(x, w, over=["k"], dtype="f32"), b.rsqrt(squares)))
    tiling = Tiling({"m": 64, "n": 64}, {"k": 64}, frozenset(), frozenset(columns), deferred=True)
    (binary,) = binaries(lowered(graph, tiling, stages=4)[1])
    rings = dict(_RING.findall(binary.ttgir))
    views = dict(_VIEW.findall(binary.ttgir))
    fed = {rings.get(views.get(operand, operand)) for pair in _DOT.findall(binary.ttgir) for operand in pair}
    assert {rings.get(source) for source in _READ.findall(binary.ttgir)} & fed <= {None}
    assert fed - {None}


def test_narrow_copies_feed_no_wgmma() -> None:
    """16 rows by 32 are 4 bytes for each of 256 threads: not pipelined, since such copies came too late on an H200."""
    tiling = Tiling({"m": 16, "n": 64}, {"k": 32}, frozenset(), frozenset("m"))
    (narrow,), (wide,) = (
        binaries(lowered(matmul(4096), tiled, warps=8, stages=4)[1])
        for tiled in (tiling, replace(tiling, reduced={"k": 128}))
    )
    assert "wgmma.mma_async" in narrow.ptx
    assert "cp.async" not in narrow.ptx
    assert any("not pipelined" in note for note in narrow.notes)
    assert "cp.async.cg" in wide.ptx
    assert not wide.notes
