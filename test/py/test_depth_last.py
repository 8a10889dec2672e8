"""What a kernel leaves for a product in tf32 lies in memory with that product's depth last."""

from __future__ import annotations

import numpy as np
import pytest

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.passes.graph_io import from_graph
from cleave.reference import run
from cleave.schedule.candidates import Candidate
from cleave.schedule.depth_last import with_depth_last
from cleave.schedule.scheduler import ScheduleOptions, schedule

ROWS, DEPTH, COLUMNS, KEYS = 5, 12, 21, 37


def reassociated(kind: str = "tf32", *, parts: bool = False, kept: bool = False, depth: int = DEPTH) -> Graph:
    """q·(kᵀ·v), of which the inner product may be summed over ``parts``, and may be a result itself."""
    b = GraphBuilder("f")
    keys = f"s n d={depth}" if parts else f"n d={depth}"
    q, k, v = b.input(f"m d={depth}", "f16"), b.input(keys, "f16"), b.input("n e", "f16")
    inner = b.contract(k, v, over=["n"], dtype="f32")
    inner = b.reduce(inner, kind="sum", over=["s"]) if parts else inner
    outer = b.contract(b.cast(q, dtype=kind), b.cast(inner, dtype=kind), over=["d"], dtype="f32")
    return b.build(*((outer, inner) if kept else (outer,)))


def evaluated(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with context(), ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module)
        return run(module, graph.name, inputs, precision="declared")


def inner_product(graph: Graph) -> Value:
    return next(value for value in graph.topological() if value.op == "contract" and "n" in value.attrs["over"])


def inputs(graph: Graph) -> list[np.ndarray]:
    sizes = {"m": ROWS, "d": DEPTH, "e": COLUMNS, "n": KEYS, "s": 3}
    rng = np.random.default_rng(0)
    return [rng.standard_normal([sizes[name] for name in each.names]).astype(np.float16) for each in graph.inputs]


@pytest.mark.parametrize("parts", [False, True])
def test_the_depth_is_last_and_the_numbers_are_the_same(parts: bool) -> None:
    graph = reassociated(parts=parts)
    found = with_depth_last(graph)
    assert inner_product(graph).names[-2:] == ("d", "e")
    assert inner_product(found).names == (*(("s",) if parts else ()), "e", "d")
    assert found.outputs[0].type == graph.outputs[0].type
    np.testing.assert_array_equal(evaluated(found, inputs(graph)), evaluated(graph, inputs(graph)))


@pytest.mark.parametrize(
    "graph", [reassociated("bf16"), reassociated("f32"), reassociated(kept=True), reassociated(depth=13)]
)
def test_other_products_and_results_keep_their_order(graph: Graph) -> None:
    """So do rows that would not be whole vectors."""
    assert [value.type for value in with_depth_last(graph).topological()] == [v.type for v in graph.topological()]


def test_an_operand_may_lack_a_dim_that_is_summed_over() -> None:
    b = GraphBuilder("f")
    q, k, v = b.input("m d=12 c", "f16"), b.input("n d=12", "f16"), b.input("n e", "f16")
    inner = b.cast(b.contract(k, v, over=["n"], dtype="f32"), dtype="tf32")
    graph = b.build(b.contract(b.cast(q, dtype="tf32"), inner, over=["d", "c"], dtype="f32"))
    assert inner_product(with_depth_last(graph)).names == ("e", "d")


def test_a_kernel_leaves_its_result_so() -> None:
    graph = _chained()
    sizes = {"h": 32, "m": 4096, "n": 4096}
    first, second = schedule(graph, ScheduleOptions(sizes=sizes, max_tilings=4)).program.launches
    assert [ref.type.names for ref in first.kernel.outputs if ref.type] == [("h", "e", "d")]
    assert [ref.type.names for ref in second.kernel.outputs if ref.type] == [("h", "m", "e")]


def test_only_a_result_that_is_turned_is_doubted() -> None:
    """Columns inside of a kernel that its result has last, too, are no reason to."""
    inside = [each for each in _with_columns(_chained()) if each.tiling.columns == {"e"}]
    assert inside and not any(each.swapped for each in inside)
    turned = [each for each in _with_columns(_product()) if each.tiling.columns == {"m"}]
    assert turned and all(each.swapped and each.doubt > 1 for each in turned)


def _with_columns(graph: Graph) -> list[Candidate]:
    sizes = {"h": 32, "m": 16, "n": 4096, "k": 4096}
    scheduled = schedule(graph, ScheduleOptions(sizes={**sizes, "e": 4096}, max_tilings=64))
    return [each for launch in scheduled.candidates for each in launch if each.tiling.columns]


def _chained() -> Graph:
    b = GraphBuilder("chained")
    q, k, v = b.input("h m d=64", "f16"), b.input("h n d=64", "f16"), b.input("h n e=64", "f16")
    inner = b.cast(b.contract(k, v, over=["n"], dtype="f32"), dtype="tf32")
    return b.build(b.cast(b.contract(b.cast(q, dtype="tf32"), inner, over=["d"], dtype="f32"), dtype="f16"))


def _product() -> Graph:
    b = GraphBuilder("product")
    return b.build(b.contract(b.input("m k", "f16"), b.input("k e", "f16"), over=["k"], dtype="f16"))
