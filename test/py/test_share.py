"""A split in one launch: numbers, and blocks that wait for one another."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from compiled import CTX, compile_graph, reference
from test_overlap import arrays, rmsnorm_split

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import compile_ttir
from cleave.lowering.targets import Target
from cleave.passes.tile_io import from_tile_program
from cleave.reference import run
from cleave.runtime.ttir_assembly import GROUP_BARRIER
from cleave.runtime.ttir_interpreter import Buffer, run_kernel
from cleave.runtime.ttir_text import parse_ttir
from cleave.schedule import share
from cleave.schedule.arrange import arranged
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.tile_program import TileProgram

HINT = {"h": 8, "m": 16, "n": 4096, "k": 4096, "s": 4}
SHARE = ScheduleOptions(sizes=HINT, combine="share")
ODD = {"h": 1, "m": 19, "n": 133, "k": 70}
ONE = dict.fromkeys("hmnk", 1)
GRAPHS = [graphs.split_matmul(), graphs.split_attention(), rmsnorm_split()]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_numbers(graph: Graph) -> None:
    compiled = compile_graph(graph, options=SHARE)
    assert [launch.cooperative for launch in compiled.plan.launches] == [True, False, False]
    for sizes, count in [*((ODD, s) for s in (1, 2, 3, 80)), (ONE, 2), ({**ONE, "m": 0}, 2)]:
        inputs = arrays(graph, {name: n for name, n in sizes.items() if name not in graph.extents})
        (expected,) = reference(graph, inputs, "f64", {"s": count})
        for cooperative in (True, False) if count == 3 else (True,):
            (actual,) = compiled(inputs, {"s": count}, cooperative=cooperative)
            assert np.abs(actual - expected).max(initial=0) <= 2e-3 * np.abs(expected).max(initial=0)


@pytest.mark.parametrize(("group", "rows"), [(4, 16), (32, 2)])
def test_rows_of_a_group_are_packed_although_the_combination_has_other_tiles(group: int, rows: int) -> None:
    """Triton 3.6 to 3.9 abort on a reshape between a product and the softmax of such a kernel."""
    graph = graphs.split_attention(group=group)
    sizes = {"h": 8, "m": rows, "n": 4096, "s": 8}
    compiled = compile_graph(graph, options=ScheduleOptions(sizes=sizes, combine="share"))
    kernel = compiled.kernels["split_attention__k0_shared"]
    assert "tt.dot" in kernel and "tt.reshape" not in kernel
    assert compile_ttir(kernel, Target.parse("sm_90"), num_warps=4, num_stages=2, stop="ptx").ptx
    inputs = arrays(graph, {"h": 2, "m": 3, "n": 70})
    for count in (1, 3):
        (expected,) = reference(graph, inputs, "f64", {"s": count})
        (actual,) = compiled(inputs, {"s": count})
        assert np.abs(actual - expected).max() <= 2e-3 * np.abs(expected).max()


def test_a_sum_of_everything() -> None:
    """The combination has no dims of its own."""
    b = GraphBuilder("dot", facts=["1 <= s"])
    x, y = (b.split(b.input("n", "f16"), dim="n", into=("s", "t=ceildiv(n, s)")) for _ in range(2))
    graph = b.build(b.reduce(b.contract(x, y, over=["t"]), kind="sum", over=["s"]))
    compiled = compile_graph(graph, options=ScheduleOptions(sizes={"n": 65536, "s": 64}, combine="share"))
    assert compiled.plan.launches[0].cooperative
    inputs = arrays(graph, {"n": 700})
    (expected,) = reference(graph, inputs, "f64", {"s": 5})
    np.testing.assert_allclose(compiled(inputs, {"s": 5})[0], expected, atol=1e-3)


def test_parts_go_through_one_tile_each() -> None:
    """Alone a block of this product goes through several tiles of rows; it combines its share of only one."""
    b = GraphBuilder("squares")
    y = b.contract(b.input("m d=64", "f16"), b.input("d n", "f16"), over=["d"], dtype="f32")
    graph, sizes = b.build(y, b.reduce(b.mul(y, y), kind="sum", over=["n"])), {"m": 1024, "n": 4096}
    assert schedule(graph, ScheduleOptions(sizes=sizes)).candidates[0][0].tiling.coarsened
    compiled = compile_graph(graph, options=ScheduleOptions(sizes=sizes, combine="share"))
    assert [launch.cooperative for launch in compiled.plan.launches] == [True, False, False]
    inputs = arrays(graph, {"m": 300, "n": 70})
    for actual, expected in zip(compiled(inputs), reference(graph, inputs, "f64"), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5 * np.abs(expected).max())


def test_an_empty_sum() -> None:
    compiled = compile_graph(graphs.split_matmul(), options=SHARE)
    inputs = arrays(graphs.split_matmul(), {"m": 3, "n": 5, "k": 0})
    np.testing.assert_array_equal(compiled(inputs, {"s": 3})[0], np.zeros((3, 5)))


def program(graph: Graph) -> TileProgram:
    return arranged(schedule(graph.deduplicated(), SHARE), SHARE)


def test_the_reference_executor_agrees() -> None:
    graph = graphs.split_attention()
    inputs = arrays(graph, {"h": 2, "m": 5, "n": 70})
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(program(graph), module)
        (actual,) = run(module, graph.name, inputs, precision="f64", sizes={"s": 3})
    (expected,) = reference(graph, inputs, "f64", {"s": 3})
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-11)


def test_without_the_barrier_shares_are_combined_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, emit = graphs.split_matmul(), share.emit_shared

    def without(*arguments: object) -> share.Shared:
        shared = emit(*arguments)  # type: ignore[arg-type]
        body = shared.emitted.kernel.body
        body.instructions = [i for i in body.instructions if i.op != "group_barrier"]
        return shared

    monkeypatch.setattr("cleave.schedule.arrange.emit_shared", without)
    inputs = arrays(graph, {"m": 19, "n": 33, "k": 70})
    assert np.isnan(compile_graph(graph, options=SHARE)(inputs, {"s": 3})[0]).any()


def test_what_reads_other_tiles_is_a_launch_of_its_own() -> None:
    b = GraphBuilder("two_products", facts=["1 <= s"])
    x, w, v = b.input("m k", "f16"), b.input("k n", "f16"), b.input("n o", "f16")
    x, w = (b.split(value, dim="k", into=("s", "t=ceildiv(k, s)")) for value in (x, w))
    product = b.reduce(b.contract(x, w, over=["t"], dtype="f32"), kind="sum", over=["s"])
    graph = b.build(b.contract(b.cast(product, dtype="f16"), v, over=["n"]))
    sizes = {"m": 16, "k": 4096, "n": 128, "o": 128, "s": 4}
    options = ScheduleOptions(sizes=sizes, combine="share")
    launches = arranged(schedule(graph.deduplicated(), options), options).launches
    for launch in launches:
        if launch.cooperative:
            assert graph.outputs[0] not in launch.operands


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_ptx(arch: str) -> None:
    kernel = compile_graph(graphs.split_matmul(), options=SHARE).kernels["split_matmul__k0_shared"]
    ptx = compile_ttir(kernel, Target.parse(arch), num_warps=4, num_stages=2, stop="ptx").ptx
    barrier, (load,) = ptx.index("red.release.gpu.global.inc.u32"), [ptx.index("ld.acquire.gpu.global.u32")]
    assert ptx.rindex("st.global", 0, barrier) < barrier < load < ptx.index("ld.global.b32", load)


# --- the barrier itself ----------------------------------------------------------------------------------------------

ESCAPED = GROUP_BARRIER.replace("\n", "\\0A")
MEET = f"""
"builtin.module"() ({{
"tt.func"() <{{function_type = (!tt.ptr<i32>, !tt.ptr<i32>, !tt.ptr<i32>, i32) -> (), sym_name = "meet"}}> ({{
^bb0(%parts: !tt.ptr<i32>, %sums: !tt.ptr<i32>, %counter: !tt.ptr<i32>, %count: i32):
  %block = "tt.get_program_id"() <{{axis = 0 : i32}}> : () -> i32
  %own = "tt.addptr"(%parts, %block) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
  %old = "tt.load"(%own) <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (!tt.ptr<i32>) -> i32
  %one = "arith.constant"() <{{value = 1 : i32}}> : () -> i32
  %new = "arith.addi"(%old, %one) : (i32, i32) -> i32
  "tt.store"(%own, %new) : (!tt.ptr<i32>, i32) -> ()
  %0 = "tt.elementwise_inline_asm"(%counter, %count) <{{asm_string = "{ESCAPED}", constraints = "=r,l,r,~{{memory}}", packed_element = 1 : i32, pure = false}}> : (!tt.ptr<i32>, i32) -> i32
  %first = "tt.load"(%parts) <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (!tt.ptr<i32>) -> i32
  %p1 = "tt.addptr"(%parts, %one) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
  %second = "tt.load"(%p1) <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (!tt.ptr<i32>) -> i32
  %sum = "arith.addi"(%first, %second) : (i32, i32) -> i32
  %to = "tt.addptr"(%sums, %block) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
  "tt.store"(%to, %sum) : (!tt.ptr<i32>, i32) -> ()
  "tt.return"() : () -> ()
}}) : () -> ()
}}) : () -> ()
"""  # noqa: E501


def meet(counter: np.ndarray, programs: list[tuple[int, int, int]] | None = None) -> list[int]:
    parts, sums = np.array([10, 20], np.int32), np.zeros(2, np.int32)
    run_kernel(parse_ttir(MEET, "<meet>"), (2,), [Buffer(parts), Buffer(sums), Buffer(counter), 2], programs)
    return sums.tolist()


def test_a_counter_serves_one_launch_after_another() -> None:
    counter = np.zeros(1, np.int32)
    for _ in range(3):
        assert meet(counter) == [32, 32]
        assert counter[0] == 0


def test_blocks_that_never_come_are_found_out() -> None:
    with pytest.raises(CleaveError, match="1 programs wait for others that do not come"):
        meet(np.zeros(1, np.int32), [(0, 0, 0)])


def test_a_counter_that_was_not_zeroed_is_found_out() -> None:
    with pytest.raises(CleaveError, match="wait for others that do not come"):
        meet(np.full(1, -1, np.int32))
