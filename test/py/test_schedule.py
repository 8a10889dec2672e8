"""The scheduler against the reference executor: what the scheduled program computes is what the graph says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import graphs
import numpy as np
import pytest
from loop_structure import loops

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.passes.graph_io import from_graph, to_graph
from cleave.passes.schedule import Schedule
from cleave.passes.tile_io import from_tile_program
from cleave.passes.verify import verify
from cleave.reference import run
from cleave.schedule.emit import emit_kernel
from cleave.schedule.partition import kernels_of
from cleave.schedule.region import region_of
from cleave.schedule.scheduler import SHORTEST, STARTS, Scheduled, ScheduleOptions, Schedules, schedule
from cleave.schedule.tiling import Fusion
from cleave.schedule.tilings import space_of

NUMPY = {"f16": np.float16, "f32": np.float32}
CTX = context()


def inputs_for(graph: Graph, sizes: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = {**graph.extents, **sizes}
    return [rng.standard_normal([d.size.evaluate(sizes) for d in v.dims]).astype(NUMPY[v.dtype]) for v in graph.inputs]


def run_both(
    graph: Graph, scheduled: Scheduled, inputs: Sequence[np.ndarray], symbols: dict[str, int] | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(graph's, scheduled program's) outputs, both in f64: what differs is the program, not its rounding."""
    with CTX, ir.Location.unknown():
        plain, tiled = ir.Module.create(), ir.Module.create()
        from_graph(graph, plain)
        from_tile_program(scheduled.program, tiled)
        assert not verify(plain)
        assert tiled.operation.verify()
        assert not verify(tiled)
        return list(
            zip(
                run(plain, graph.name, list(inputs), precision="f64", sizes=symbols),
                run(tiled, graph.name, list(inputs), precision="f64", sizes=symbols),
                strict=True,
            )
        )


def assert_same(
    graph: Graph,
    sizes: dict[str, int],
    *,
    inputs: list[np.ndarray] | None = None,
    options: ScheduleOptions | None = None,
    symbols: dict[str, int] | None = None,
) -> Scheduled:
    scheduled = schedule(graph.deduplicated(), options or ScheduleOptions(sizes=symbols or {}, max_tilings=8))
    for expected, actual in run_both(graph, scheduled, inputs or inputs_for(graph, sizes), symbols):
        scale = np.nanmax(np.abs(expected), initial=1e-30)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-11 * scale)
    return scheduled


ODD_SIZES = [{"m": 70, "n": 133, "k": 50, "h": 2, "f": 33, "o": 20}, dict.fromkeys("mnkhfo", 1)]


@pytest.mark.parametrize("sizes", ODD_SIZES, ids=["odd", "one"])
@pytest.mark.parametrize(
    "graph",
    [
        graphs.matmul(),
        graphs.matmul_rowsum(),
        graphs.matmul_and_rowsum(),
        graphs.attention(),
        graphs.attention(mask=True, lse=True),
        graphs.attention(division_last=True),
        graphs.rmsnorm_matmul(),
        graphs.rmsnorm_matmul(scale_last=True),
        graphs.softmax(),
        graphs.variance(),
        graphs.gated_mlp(),
    ],
    ids=lambda graph: graph.name,
)
def test_known_graphs(graph: Graph, sizes: dict[str, int]) -> None:
    assert_same(graph, {s: n for s, n in sizes.items() if s not in graph.extents})


@pytest.mark.parametrize("count", [1, 2, 3, 7, 200])
def test_split_counts_that_do_not_divide(count: int) -> None:
    assert_same(graphs.split_matmul(), {"m": 20, "n": 33, "k": 133}, symbols={"s": count})
    assert_same(graphs.split_attention(), {"h": 2, "m": 5, "n": 133}, symbols={"s": count})


def test_split_is_parts_then_combine() -> None:
    options = ScheduleOptions(sizes={"h": 32, "m": 16, "n": 4096, "s": 8})
    scheduled = schedule(graphs.split_attention(), options)
    parts, combine = scheduled.program.kernels
    assert [loop.attrs["dim"] for loop in loops(parts)] == ["t"]
    assert {loop.attrs["dim"] for loop in loops(combine)} == {"s"}


@pytest.mark.parametrize("sizes", [{"m": 5, "k": 0, "n": 6}, {"m": 0, "k": 5, "n": 6}])
def test_empty_dims(sizes: dict[str, int]) -> None:
    assert_same(graphs.matmul(), sizes)


@pytest.mark.parametrize(
    ("graph", "dim", "accumulators"),
    [
        (graphs.matmul(), "k", 1),
        (graphs.matmul_rowsum(), "n", 1),
        (graphs.matmul_and_rowsum(), "k", 2),
        (graphs.rmsnorm_matmul(scale_last=True), "k", 2),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_one_kernel_one_loop(graph: Graph, dim: str, accumulators: int) -> None:
    """Of the kernel that computes everything, whether or not the scheduler would take it."""
    graph = graph.deduplicated()
    (outputs,) = kernels_of(graph, frozenset(), wide=True)
    region = region_of(outputs, frozenset(outputs), graph.extents)
    space = space_of(region, {**dict.fromkeys("mnk", 4096), **graph.extents})
    tiling = space.tiling(space.points[0])
    assert tiling is not None
    (loop,) = loops(emit_kernel("k", region, tiling, graph.extents, Fusion()).kernel)
    assert (loop.attrs["dim"], len(loop.results)) == (dim, accumulators)


def test_attention_is_one_kernel_with_one_loop() -> None:
    scheduled = schedule(graphs.attention(division_last=True), ScheduleOptions(sizes={"h": 32, "m": 4096, "n": 4096}))
    (kernel,) = scheduled.program.kernels
    (loop,) = loops(kernel)
    assert loop.attrs["dim"] == "n"
    assert len(loop.results) == 4  # maximum and its anchor, sum and product with the values
    assert scheduled.program.allocated == scheduled.program.graph.outputs


def test_without_horizontal_fusion_every_reduction_has_its_own_loop() -> None:
    options = ScheduleOptions(horizontal_fusion=False, sizes={"h": 2, "m": 128, "n": 1024})
    graph = graphs.attention(division_last=True)
    scheduled = assert_same(graph, {"h": 2, "m": 17, "n": 65}, options=options)
    assert max(len(loop.results) for kernel in scheduled.program.kernels for loop in loops(kernel)) == 1


def test_without_iterative_tiling_reductions_are_kernels() -> None:
    options = ScheduleOptions(iterative_tiling=False, sizes={"h": 2, "m": 128, "n": 1024})
    scheduled = assert_same(graphs.attention(division_last=True), {"h": 2, "m": 17, "n": 65}, options=options)
    assert len(scheduled.program.launches) > 3


def test_fully_masked_rows_are_nan_and_partly_masked_blocks_are_not() -> None:
    graph = graphs.attention(mask=True, lse=True, division_last=True)
    inputs = inputs_for(graph, {"h": 1, "m": 3, "n": 133})
    inputs[3][:] = 0
    inputs[3][1] = -np.inf
    inputs[3][2, :70] = -np.inf
    scheduled = schedule(graph.deduplicated(), ScheduleOptions())
    for expected, actual in run_both(graph, scheduled, inputs):
        np.testing.assert_array_equal(np.isnan(expected), np.isnan(actual))
        assert np.isnan(actual[:, 1]).all()
        np.testing.assert_allclose(actual, expected, rtol=1e-11)


def test_logits_far_beyond_the_range_of_exp() -> None:
    graph = graphs.attention(division_last=True)
    inputs = inputs_for(graph, {"h": 1, "m": 5, "n": 70})
    inputs[0] *= 100
    inputs[1] *= 100
    assert_same(graph, {}, inputs=inputs)


def test_round_trip_through_mlir() -> None:
    graph = graphs.attention(mask=True, lse=True)
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        again = to_graph(from_graph(graph, module))
    assert str(again) == str(graph)
    assert again.extents == graph.extents


def test_one_tensor_in_two_roles() -> None:
    b = GraphBuilder("gram")
    x = b.input("m k", "f16")
    graph = b.build(b.contract(x, b.rename(x, from_="m", to="n=m"), over=["k"]))
    assert_same(graph, {"m": 37, "k": 19})


def _slice_of_input() -> Graph:
    b = GraphBuilder("slice_of_input")
    part = b.slice(b.input("m d", "f32"), dim="d", into="e=8", offset="3")
    return b.build(b.reduce(b.exp(part), kind="sum", over=["e"]))


def _slice_of_symbolic_size() -> Graph:
    b = GraphBuilder("slice_of_symbolic_size")
    part = b.slice(b.input("n d", "f32"), dim="n", into="v=l", offset="0")
    return b.build(b.reduce(part, kind="sum", over=["v"]), b.input("l q", "f32"))


def _slice_of_product() -> Graph:
    b = GraphBuilder("slice_of_product")
    y = b.contract(b.input("m d", "f32"), b.input("d f", "f32"), over=["d"])
    return b.build(b.exp(b.slice(y, dim="f", into="e=8", offset="3")))


def _slice_of_exp() -> Graph:
    b = GraphBuilder("slice_of_exp")
    part = b.slice(b.exp(b.input("m d", "f32")), dim="d", into="e=8", offset="3")
    return b.build(b.mul(part, part))


def _merged(*, output: bool) -> Graph:
    b = GraphBuilder("merged")
    y = b.merge(b.contract(b.input("a b d", "f32"), b.input("d f", "f32"), over=["d"]), dims=["a", "b"], into="h=a*b")
    return b.build(y if output else b.reduce(y, kind="max", over=["h"]))


def _merged_out_of_order() -> Graph:
    b = GraphBuilder("merged_out_of_order")
    x = b.input("a b d", "f32")
    return b.build(
        b.merge(x, dims=["b", "a"], into="z=a*b"),
        b.reduce(b.merge(b.exp(x), dims=["d", "a"], into="y=a*d"), kind="sum", over=["b"]),
    )


def _merge_of_a_slice() -> Graph:
    """Rows that are cut short do not lie one after the other."""
    b = GraphBuilder("merge_of_a_slice")
    part = b.slice(b.input("a d", "f32"), dim="d", into="e=8", offset="3")
    whole = b.slice(b.input("n f", "f32"), dim="n", into="k=5", offset="2")
    return b.build(
        b.exp(b.merge(part, dims=["a", "e"], into="h=8*a")),
        b.merge(part, dims=["a", "e"], into="i=8*a"),
        b.exp(b.merge(whole, dims=["k", "f"], into="j=5*f")),
    )


@pytest.mark.parametrize(
    "graph",
    [
        _merged_out_of_order(),
        _merge_of_a_slice(),
        _slice_of_input(),
        _slice_of_symbolic_size(),
        _slice_of_product(),
        _slice_of_exp(),
        _merged(output=False),
        _merged(output=True),
    ],
    ids=lambda graph: graph.name,
)
def test_views(graph: Graph) -> None:
    assert_same(graph, {"m": 9, "n": 9, "d": 20, "f": 17, "l": 5, "q": 2, "a": 3, "b": 5})


def test_a_dim_reduced_and_kept() -> None:
    b = GraphBuilder("centred")
    x = b.input("m n", "f32")
    graph = b.build(b.sub(x, b.reduce(x, kind="max", over=["n"])))
    assert_same(graph, {"m": 9, "n": 300})


def test_what_cannot_be_scheduled_says_so() -> None:
    b = GraphBuilder("gathered_parts")
    x = b.split(b.input("n d", "f32"), dim="n", into=["s", "t=ceildiv(n,s)"])
    graph = b.build(b.gather(x, b.input("i", "i32"), dim="s"))
    with pytest.raises(CleaveError, match="positions along 's', a dimension made by"):
        schedule(graph, ScheduleOptions())


def test_the_choice_is_deterministic() -> None:
    graph = graphs.gated_mlp()
    tilings = [[c[0].tiling for c in schedule(graph, ScheduleOptions()).candidates] for _ in range(2)]
    assert tilings[0] == tilings[1]


def test_the_text_does_not_depend_on_hashes_or_addresses() -> None:
    example = Path(__file__).parents[2] / "examples" / "attention.mlir"
    command = [sys.executable, "-m", "cleave.tools.cleave_opt", "--superopt", "--schedule", str(example)]
    texts = [
        subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("0", "1", "2")
    ]
    assert texts[0]
    assert len(set(texts)) == 1


def test_random_graphs() -> None:
    """CLEAVE_TEST_SECONDS (default 15) of random graphs; CLEAVE_TEST_SEED starts elsewhere."""
    deadline = time.monotonic() + float(os.environ.get("CLEAVE_TEST_SECONDS", "15"))
    seed = int(os.environ.get("CLEAVE_TEST_SEED", "0"))
    first = seed
    while seed - first < 10 or time.monotonic() < deadline:
        graph = graphs.random_graph(seed)
        for sizes in ({"a": 5, "b": 17, "c": 35}, {"a": 1, "b": 33, "c": 2}):
            try:
                assert_same(graph, sizes)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, sizes {sizes}\n{graph}") from error
        seed += 1


@pytest.mark.parametrize(
    ("switch", "chosen"), [({}, "parts"), ({"split": False}, "whole"), ({"superopt": False}, "source")]
)
def test_ablations_pass_over_alternatives(switch: dict[str, bool], chosen: str) -> None:
    def program(name: str) -> Graph:
        """Three ways to reduce a long row, each cheaper than the last; that they are not equal does not matter here."""
        b = GraphBuilder("f", facts=["1 <= s"] if name == "parts" else [])
        x, w = b.input("m k", "f16"), b.input("k n", "f16")
        if name == "parts":
            x = b.split(x, dim="k", into=("s", "t=ceildiv(k, s)"))
            return b.build(b.reduce(b.reduce(x, kind="max", over=["t"]), kind="max", over=["s"]))
        if name == "whole":
            return b.build(b.reduce(x, kind="max", over=["k"]))
        return b.build(b.reduce(b.contract(x, w, over=["k"]), kind="max", over=["n"]))

    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        for name in ("source", "whole", "parts"):
            attributes = {} if name == "source" else {"cleave.alternative_of": ir.FlatSymbolRefAttr.get("f")}
            from_graph(program(name).named("f" if name == "source" else name), module, attributes)
        Schedule(sizes="m=1,k=1000000,n=64", **switch).apply(CTX, module)
        text = str(module)
    found = "parts" if "cleave.split" in text else "source" if "cleave.contract" in text else "whole"
    assert found == chosen


def test_two_outputs_share_what_they_have_in_common() -> None:
    """The renaming of bound dims apart from an output's keeps one value one value."""
    options = ScheduleOptions(sizes={"h": 32, "m": 4096, "n": 4096}, max_tilings=4)
    (kernel,) = schedule(graphs.attention(lse=True, division_last=True).deduplicated(), options).program.kernels
    for loop in loops(kernel):
        assert loop.body
        assert sum(i.op == "contract" for i in loop.body.walk()) == 2


@pytest.mark.parametrize("sizes", [{"m": 37, "k": 19}, {"m": 1, "k": 1}], ids=["odd", "one"])
@pytest.mark.parametrize(
    "graph", [graphs.gram(), graphs.centred_gram(), graphs.symmetric_attention()], ids=lambda graph: graph.name
)
def test_one_value_under_two_tile_maps(graph: Graph, sizes: dict[str, int]) -> None:
    """Computed twice, under other names, in one kernel; or written to memory and read twice: by cost."""
    sizes = {name: n for name, n in sizes.items() if name not in graph.extents}
    for iterative in (True, False):
        assert_same(graph, sizes, options=ScheduleOptions(iterative_tiling=iterative, max_tilings=4))


def test_a_value_in_two_roles_is_recomputed_or_written_by_cost() -> None:
    """A cheap value of few elements is computed by every block, one of a long reduction once for all of them."""
    counts = []
    for size in (32, 8192):
        b = GraphBuilder("projected_gram")
        x, w = b.input("m k", "f16"), b.input("k d=64", "f16")
        y = b.contract(x, w, over=["k"], dtype="f16")
        graph = b.build(b.contract(y, b.rename(y, from_="m", to="n=m"), over=["d"], dtype="f16"))
        options = ScheduleOptions(sizes={"m": 512, "k": size}, max_tilings=8)
        counts.append(len(schedule(graph, options).program.launches))
    assert counts == [1, 2]


def test_a_name_of_two_sizes_is_refused() -> None:
    """Kernels tell dims apart by their names: one of the sizes would be taken for the other."""
    b = GraphBuilder("sums")
    x, y = b.input("m n", "f32"), b.input("m n=k", "f32")
    graph = b.build(b.sub(b.reduce(x, kind="sum", over=["n"]), b.reduce(y, kind="sum", over=["n"])))
    with pytest.raises(CleaveError, match="cannot prove that dimension 'n' has one size: k and, in another tensor, n"):
        schedule(graph, ScheduleOptions())
    equal = GraphBuilder("sums", ["k = n"])
    x, y = equal.input("m n", "f32"), equal.input("m n=k", "f32")
    assert_same(equal.build(equal.sub(x, y)), {"m": 5, "n": 7, "k": 7})


def test_numbers_of_parts_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of one part is one part: no schedule is ranked with it again."""
    graph, tried = graphs.split_matmul(), list[int]()
    at = Schedules._at

    def counted(self: Schedules, sizes: dict[str, int], tilings: int) -> object:
        tried.append(sizes["s"])
        return at(self, sizes, tilings)

    monkeypatch.setattr(Schedules, "_at", counted)
    for size, shares in (
        ({"m": 8192, "n": 8192, "k": 256}, [1.0, 2.0]),
        ({"m": 16, "n": 256, "k": 65536}, [0.5, 1.0, 2.0]),
    ):
        schedules, tried[:] = Schedules(graph, ScheduleOptions(sizes=size)), []
        assert schedules.shares(2) == shares
        ranked = tried[len([count for count in STARTS if size["k"] // count >= SHORTEST]) :]
        assert len(set(ranked)) == len(ranked) == len(shares)
