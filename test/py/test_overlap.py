"""Launches that overlap: what waits, what does not, and numbers when every launch starts as early as it may."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from compiled import compile_graph, reference

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.schedule import overlap
from cleave.schedule.arrange import arranged
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.target import target_named
from cleave.schedule.tile_program import Kernel, Launch


def arrays(graph: Graph, sizes: dict[str, int]) -> list[np.ndarray]:
    rng, known = np.random.default_rng(0), {**graph.extents, **sizes}
    shapes = [[dim.size.evaluate(known) for dim in value.dims] for value in graph.inputs]
    return [rng.standard_normal(shape).astype(np.float16) for shape in shapes]


def rmsnorm_split() -> Graph:
    """Split-K with the norm of the rows in the combination."""
    b = GraphBuilder("rmsnorm_split", facts=["1 <= s"])
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    xs, ws = (b.split(value, dim="k", into=("s", "t=ceildiv(k, s)")) for value in (x, w))
    product = b.reduce(b.contract(xs, ws, over=["t"], dtype="f32"), kind="sum", over=["s"])
    wide = b.cast(x, dtype="f32")
    norm = b.rsqrt(b.reduce(b.mul(wide, wide), kind="sum", over=["k"]))
    return b.build(b.cast(b.mul(product, norm), dtype="f16"))


SIZES = {"h": 2, "m": 5, "n": 133, "k": 70}


@pytest.mark.parametrize(
    "graph", [graphs.split_matmul(), graphs.split_attention(), rmsnorm_split()], ids=lambda graph: graph.name
)
def test_numbers(graph: Graph) -> None:
    compiled = compile_graph(graph, options=ScheduleOptions(sizes={"s": 4}, combine="pdl"))
    assert [launch.overlaps for launch in compiled.plan.launches] == [False] + [True] * (
        len(compiled.plan.launches) - 1
    )
    for sizes, count in [(SIZES, s) for s in (1, 3, 80)] + [(dict.fromkeys("hmnk", 1), 2)]:
        inputs = arrays(graph, {name: n for name, n in sizes.items() if name not in graph.extents})
        for actual, expected in zip(
            compiled(inputs, {"s": count}), reference(graph, inputs, "f64", {"s": count}), strict=True
        ):
            scale = np.abs(expected).max()
            assert np.abs(actual - expected).max() <= 2e-3 * scale


def test_a_read_ahead_of_the_wait_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter starts launches early, so what is read too early is poison."""
    monkeypatch.setattr("compiled.verify", lambda module: [])  # which would find it as well
    monkeypatch.setattr(overlap, "_given", lambda launch, written: frozenset(launch.kernel.arguments))
    graph = graphs.split_matmul()
    inputs = arrays(graph, {"m": 5, "n": 33, "k": 70})
    assert np.isnan(
        compile_graph(graph, options=ScheduleOptions(sizes={"s": 4}, combine="pdl"))(inputs, {"s": 3})[0]
    ).all()


def ops(kernel: Kernel) -> list[str]:
    return [instruction.op for instruction in kernel.body.instructions]


def test_independent_work_is_done_before_the_wait() -> None:
    options = ScheduleOptions(sizes={"m": 16, "n": 4096, "k": 4096, "s": 4}, combine="pdl")
    parts, combine = arranged(schedule(rmsnorm_split().deduplicated(), options), options).kernels
    assert ops(parts)[0] == "trigger"
    assert "wait" not in ops(parts)
    wait, at = ops(combine).index("wait"), [i for i, op in enumerate(ops(combine)) if op == "scf.for"]
    dims = {i: str(combine.body.instructions[i].attrs["dim"]).partition("_")[0] for i in at}
    assert {dim for i, dim in dims.items() if i < wait} == {"k"}
    assert {dim for i, dim in dims.items() if i > wait} == {"s"}
    assert "trigger" not in ops(combine)


def test_blocks_that_would_only_wait_are_started_late() -> None:
    options = ScheduleOptions(sizes={"m": 16, "n": 4096, "k": 4096, "s": 4}, combine="pdl")
    parts, _ = arranged(schedule(graphs.split_matmul(), options), options).kernels
    names = ops(parts)
    assert names.index("scf.for") < names.index("trigger") < names.index("store")


def test_kernels_in_the_middle_trigger_and_wait() -> None:
    options = ScheduleOptions(iterative_tiling=False, sizes={"h": 2, "m": 64, "n": 64}, combine="pdl")
    launches = arranged(schedule(graphs.attention(), options), options).launches
    assert len(launches) > 2
    for launch in launches[1:-1]:
        names = ops(launch.kernel)
        assert names.count("trigger") == names.count("wait") == 1
    written = [_written(launch) for launch in launches]
    reads = [(i, j) for j, later in enumerate(launches) for i in range(j - 1) if written[i] & set(later.operands)]
    assert reads, "no launch reads what one two launches earlier wrote"


def _written(launch: Launch) -> set[Value]:
    pairs = zip(launch.kernel.arguments, launch.operands, strict=True)
    return {value for argument, value in pairs if argument in launch.kernel.outputs}


@pytest.mark.parametrize("options", [{"combine": "plain"}, {"target": target_named("a100")}])
def test_launches_follow_one_another_where_they_cannot_overlap(options: dict[str, object]) -> None:
    wanted = ScheduleOptions(sizes={"s": 4}, **options)  # type: ignore[arg-type]
    program = arranged(schedule(graphs.split_matmul(), wanted), wanted)
    assert not any(launch.overlaps for launch in program.launches)
    assert not {"wait", "trigger"} & {op for kernel in program.kernels for op in ops(kernel)}
