"""What the scheduled kernels become for sm_90: tensor-core instructions, asynchronous copies, no spills."""

from __future__ import annotations

import re
from dataclasses import replace

import graphs
import pytest

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.lowering.compile_ttir import Compiled, compile_many
from cleave.lowering.emit import kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.targets import Target
from cleave.passes.tile_io import from_tile_program
from cleave.schedule.scheduler import ScheduleOptions, schedule

CTX = context()


def matmul(size: int = 4096) -> Graph:
    b = GraphBuilder("matmul")
    x, w = b.input(f"m k={size}", "f16"), b.input(f"k n={size}", "f16")
    return b.build(b.contract(x, w, over=["k"], dtype="f16"))


def matmul_with_facts() -> Graph:
    """Dynamic sizes of which only divisibility is known."""
    b = GraphBuilder("matmul_facts", facts=["k = 16*k1", "n = 16*n1"])
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    return b.build(b.contract(x, w, over=["k"], dtype="f16"))


def static(graph: Graph, **extents: int) -> Graph:
    return replace(graph, extents={**graph.extents, **extents})


def compiled(graph: Graph, sizes: dict[str, int]) -> list[Compiled]:
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(schedule(graph.deduplicated(), ScheduleOptions(sizes=sizes)).program, module)
        LowerToTriton().apply(CTX, module)
        requests = [kernel.request(Target.parse("sm_90")) for kernel in kernel_modules(module)]
    results = compile_many(requests)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return [result for result in results if isinstance(result, Compiled)]


KEYS, ROWS = {"n": 4096}, {"m": 4096}
SUBGRAPHS: dict[str, tuple[Graph, dict[str, int]]] = {
    "matmul": (matmul(), {}),
    "matmul_facts": (matmul_with_facts(), {"k": 4096, "n": 4096, "k1": 256, "n1": 256}),
    "matmul_matmul": (graphs.matmul_matmul(), {"h": 32, **KEYS}),
    "matmul_rowsum": (static(graphs.matmul_rowsum(), n=4096), {}),
    "swiglu": (graphs.swiglu_layer(), {}),
    "rmsnorm_matmul": (static(graphs.rmsnorm_matmul(scale_last=True, size=4096), n=6144), {}),
    "mha64": (graphs.grouped_attention(32, 1, 64, 64), KEYS),
    "mha": (graphs.grouped_attention(32, 1, 128, 128), KEYS),
    "gqa": (graphs.grouped_attention(8, 4, 128, 128), KEYS),
    "mqa": (graphs.grouped_attention(1, 32, 128, 128), KEYS),
    "mla": (graphs.grouped_attention(128, 1, 192, 128), KEYS),
}
"""Subgraphs of ``cleave-bench`` with many rows: what bounds them are contractions."""
_LOOP = re.compile(r"scf\.for.*?\n(.*?)scf\.yield", re.DOTALL)
_CONVERSION = re.compile(r"ttg\.convert_layout[^\n]*-> tensor<(\d+)x(\d+)x\w+, (#[\w.]+)")


@pytest.mark.parametrize("name", SUBGRAPHS)
def test_subgraphs_with_many_rows(name: str) -> None:
    graph, sizes = SUBGRAPHS[name]
    kernels = compiled(graph, {**ROWS, **sizes})
    assert [kernel.spills for kernel in kernels] == [0] * len(kernels)
    main = [kernel for kernel in kernels if "wgmma.mma_async" in kernel.ptx]
    assert len(main) == 1 and all("mma.sync" not in kernel.ptx for kernel in kernels)
    assert "cp.async.cg" in main[0].ptx or "cp.async.bulk" in main[0].ptx
    for loop in _LOOP.findall(main[0].ttgir):
        # What feeds a contraction from registers stays there; a tile that was stored to shared memory would not.
        moved = [(rows, columns, layout) for rows, columns, layout in _CONVERSION.findall(loop) if columns != "1"]
        assert all(layout == "#ttg.dot_op" for _, _, layout in moved)
        assert not re.search(r"ttg\.local_alloc %", loop)


@pytest.mark.parametrize("name", ["matmul", "matmul_facts", "swiglu", "mha", "gqa", "mla"])
def test_contraction_bound_loops_load_through_descriptors(name: str) -> None:
    graph, sizes = SUBGRAPHS[name]
    chosen = schedule(graph.deduplicated(), ScheduleOptions(sizes={**ROWS, **sizes})).program
    assert any(launch.kernel.descriptors for launch in chosen.launches)


def test_few_rows_load_through_pointers() -> None:
    """A descriptor takes longer to fetch than it saves."""
    chosen = schedule(matmul(), ScheduleOptions(sizes={"m": 16})).program
    assert not any(launch.kernel.descriptors for launch in chosen.launches)
