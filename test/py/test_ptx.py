"""What the scheduled kernels become for sm_90: tensor-core instructions, asynchronous copies, no spills."""

from __future__ import annotations

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


def compiled(graph: Graph, sizes: dict[str, int]) -> list[Compiled]:
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(schedule(graph, ScheduleOptions(sizes=sizes)).program, module)
        LowerToTriton().apply(CTX, module)
        requests = [kernel.request(Target.parse("sm_90")) for kernel in kernel_modules(module)]
    results = compile_many(requests)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return [result for result in results if isinstance(result, Compiled)]


@pytest.mark.parametrize(
    ("graph", "sizes"),
    [
        (matmul(), {"m": 4096}),
        (matmul_with_facts(), {"m": 4096, "k": 4096, "n": 4096, "k1": 256, "n1": 256}),
        (graphs.attention(division_last=True), {"h": 32, "m": 4096, "n": 4096}),
        (graphs.attention(division_last=True, head=128), {"h": 32, "m": 4096, "n": 4096}),
    ],
    ids=["matmul", "matmul_facts", "attention64", "attention128"],
)
def test_wgmma_and_asynchronous_copies(graph: Graph, sizes: dict[str, int]) -> None:
    (kernel,) = compiled(graph, sizes)
    assert "wgmma.mma_async" in kernel.ptx
    assert "mma.sync" not in kernel.ptx
    assert "cp.async.cg" in kernel.ptx or "cp.async.bulk" in kernel.ptx
    assert kernel.spills == 0
