"""Long functions are scheduled in sections: what that costs, what is chosen, and that it computes what they say."""

from __future__ import annotations

import numpy as np
import pytest

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.passes.graph_io import from_graph
from cleave.passes.schedule import Schedule
from cleave.reference import run
from cleave.schedule import candidates
from cleave.schedule.scheduler import LONG, Scheduled, ScheduleOptions, Schedules, schedule
from cleave.schedule.sections import Sections

ROWS = 5


def normed(b: GraphBuilder, x: Value) -> Value:
    mean = b.mul(b.reduce(b.mul(x, x), kind="sum", over=["k"]), b.constant(1 / 64, "f32"))
    return b.mul(x, b.rsqrt(b.add(mean, b.constant(1e-5, "f32"))))


def layers(count: int, width: int = 1024) -> Graph:
    """x + tanh(norm(x)·w), so many times; 16 values each."""
    b = GraphBuilder("f")
    x = b.input(f"m k={width}", "f16")
    for _ in range(count):
        wide = b.cast(x, dtype="f32")
        y = b.cast(normed(b, wide), dtype="f16")
        h = b.tanh(b.contract(y, b.input(f"k={width} n={width}", "f16"), over=["k"], dtype="f32"))
        x = b.cast(b.add(wide, b.rename(h, **{"from": "n", "to": f"k={width}"})), dtype="f16")
    return b.build(x).deduplicated()


def norms(count: int) -> Graph:
    b = GraphBuilder("f")
    x = b.input("m k=1024", "f32")
    for _ in range(count):
        x = normed(b, x)
    return b.build(x).deduplicated()


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of values of each region for which a kernel is emitted."""
    found: list[int] = []
    emit = candidates.emit_kernel

    def counted(name: str, region: candidates.Region, *rest: object) -> candidates.Emitted:
        found.append(len(region.values))
        return emit(name, region, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(candidates, "emit_kernel", counted)
    return found


def scheduled(graph: Graph) -> Scheduled:
    return schedule(graph, ScheduleOptions())


def test_layers_are_weighed_once(emitted: list[int]) -> None:
    """Twice as many: nothing new is emitted but the kernels of the program itself."""
    few, before = scheduled(layers(8)), len(emitted)
    many, after = scheduled(layers(16)), len(emitted) - before
    assert len(many.program.launches) == 2 * len(few.program.launches)
    assert after - before <= len(few.program.launches)
    assert max(emitted) <= LONG


def test_layers_take_as_long_as_the_same_number_of_single_ones() -> None:
    one, many = (scheduled(layers(count)) for count in (1, 12))
    assert many.seconds < 12 * one.seconds


def test_what_is_best_in_one_kernel_is_one_however_long(emitted: list[int]) -> None:
    """Of cascaded norms the row stays in registers; 8 and 16 in one kernel are weighed, not each number of them."""
    found = scheduled(norms(16))
    assert len(found.program.launches) == 1
    assert len({values for values in emitted if values > LONG}) <= 3


def test_sections_end_on_the_residual_stream() -> None:
    graph = layers(4)
    sections = Sections(graph, lambda value: len(value.dims) * (2 if value.dtype == "f16" else 4))
    inputs = [sections.graph_of(index, index + 1).inputs for index in range(1, len(sections))]
    residual = [value for (value, *others) in inputs if not others and value.operands[0].op == "add"]
    assert len(residual) == 3 and {value.dtype for value in residual} == {"f16"}


def test_progress_is_told() -> None:
    told: list[str] = []
    Schedules(layers(4), ScheduleOptions(progress=told.append)).best(4)
    assert told[0].startswith("section 1 of ") and any(text.startswith("sections 1 to 2 of ") for text in told)


def test_sections_compute_what_the_function_says() -> None:
    count, width = 4, 64
    graph = layers(count, width)
    assert len(graph.topological()) > LONG
    random = np.random.default_rng(0)
    x = random.standard_normal((ROWS, width)).astype(np.float16)
    weights = [(random.standard_normal((width, width)) / 8).astype(np.float16) for _ in range(count)]
    expected = x.astype(np.float64)
    for weight in weights:
        y = expected / np.sqrt((expected**2).mean(axis=1, keepdims=True) + 1e-5)
        expected = expected + np.tanh(y @ weight)
    with context() as ctx, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module)
        Schedule().apply(ctx, module)
        (found,) = run(module, "f", [x, *weights], precision="declared")
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-2)
