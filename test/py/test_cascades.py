"""Reductions that use one another's results, in one loop: against the reference, at sizes and numbers that hurt."""

from __future__ import annotations

from collections.abc import Callable

import cascades
import graphs
import numpy as np
import pytest
from compiled import CTX, reference
from lowered import run_lowered

from cleave.bindings import ir
from cleave.dialects.graph import Graph
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.reference import run
from cleave.reference.accuracy import compare
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.tiling import Fusion

KINDS = {"f16": np.float16, "f32": np.float32}
TILES = {"m": 16, "n": 16, "k": 16, "s": 2, "d": 64}
SIZES = {"m": 3, "n": 77, "k": 20, "s": 7, "h": 2}

GRAPHS = {
    graph.name: graph.deduplicated()
    for graph in (
        cascades.moment(2),
        cascades.moment(4),
        cascades.standardised_moment(3),
        cascades.covariance(),
        cascades.covariances(),
        cascades.masked_variance(),
        cascades.normalised_sum(),
        cascades.normalised_sum(power=2),
        cascades.rms_contraction(),
        cascades.rms_contraction("f32"),
        cascades.layernorm_contraction(),
        cascades.layernorm_contraction("f16"),
        cascades.ngpt(),
        cascades.entropy(),
        cascades.scaled_by_maximum(),
        cascades.chan(),
        graphs.attention(),
    )
}


def inputs_for(graph: Graph, sizes: dict[str, int], mean: float = 0.0) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    known = {**sizes, **graph.extents}
    shapes = [[dim.size.evaluate(known) for dim in value.dims] for value in graph.inputs]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    if graph.name == "chan":
        arrays[0] = np.abs(arrays[0]) + 1
        arrays[1] += mean
    else:
        arrays[0] += mean
    return [array.astype(KINDS[value.dtype]) for array, value in zip(arrays, graph.inputs, strict=True)]


def assert_holds(graph: Graph, inputs: list[np.ndarray], tiles: dict[str, int] = TILES) -> None:
    """In one loop over each dim: over the reals, and as lowered by the accuracy contract."""
    program = cascades.one_kernel(graph, tiles)
    dims = cascades.loop_dims(program.kernels[0])
    assert len(dims) == len(set(dims)), "two loops"
    exact, plain = reference(graph, inputs, "f64"), reference(graph, inputs)
    with CTX, ir.Location.unknown(), np.errstate(all="ignore"):
        module = cascades.module_of(program)
        wide = run(module, graph.name, inputs, precision="f64")
        LowerToTriton().apply(CTX, module)
        outputs = run_lowered(module, graph.name, inputs)
    for ref, source, real, out, value in zip(exact, plain, wide, outputs, graph.outputs, strict=True):
        assert compare(ref, ref, real, "f64").optimised < 1e-12
        found = compare(ref, source, out, value.dtype)
        assert found.holds, found


@pytest.mark.parametrize("mean", [0.0, 1e4])
@pytest.mark.parametrize("name", GRAPHS)
def test_one_loop(name: str, mean: float) -> None:
    graph = GRAPHS[name]
    assert_holds(graph, inputs_for(graph, SIZES, 0.0 if name == "attention" else mean))


@pytest.mark.parametrize("n", [1, 17])
@pytest.mark.parametrize("name", ["moment2", "layernorm_f32", "rms_f32", "normalised1", "entropy"])
def test_few_elements(name: str, n: int) -> None:
    graph = GRAPHS[name]
    assert_holds(graph, inputs_for(graph, {**SIZES, "n": n}, 5.0))


@pytest.mark.parametrize("name", ["moment2", "layernorm_f32", "rms_f32", "normalised1", "ngpt"])
def test_no_elements(name: str) -> None:
    """A sum of nothing is zero, whatever the mean of nothing is."""
    graph = GRAPHS[name]
    assert_holds(graph, inputs_for(graph, {**SIZES, "n": 0}))


def _zero_start(x: np.ndarray) -> None:
    x[:, :40] = 0


def _zeros(x: np.ndarray) -> None:
    x[1] = 0


def _cancelling(x: np.ndarray) -> None:
    """The first tile sums to zero."""
    x[:, :16] = np.tile([1, -1], 8)


def _special(number: float) -> Callable[[np.ndarray], None]:
    def change(x: np.ndarray) -> None:
        x[1, 20] = number

    return change


def _jumping(x: np.ndarray) -> None:
    """From tiny to large: what has been seen says nothing about what comes."""
    x[:, :32] *= 1e-12
    x[:, 32:] *= 1e6


def _constant(x: np.ndarray) -> None:
    x[:] = 1234.5


CHANGES = {
    "zero start": _zero_start,
    "zero row": _zeros,
    "cancelling": _cancelling,
    "nan": _special(np.nan),
    "inf": _special(np.inf),
    "-inf": _special(-np.inf),
    "jumping": _jumping,
    "constant": _constant,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "name", ["moment2", "covariances", "layernorm_f32", "normalised1", "ngpt", "scaled_by_maximum", "entropy"]
)
def test_guards(name: str, change: str) -> None:
    graph = GRAPHS[name]
    inputs = inputs_for(graph, SIZES)
    CHANGES[change](inputs[1 if name == "ngpt" else 0])
    assert_holds(graph, inputs)


def test_scales_that_are_zero_or_infinite() -> None:
    """Without an epsilon the scale of a row of zeros is infinite: NaN in the source, and only in that row."""
    graph = cascades.rms_contraction("f32", epsilon=0.0).deduplicated()
    for change in (_zeros, _zero_start):
        inputs = inputs_for(graph, SIZES)
        change(inputs[0])
        assert_holds(graph, inputs)


def test_what_does_not_separate_has_a_second_loop() -> None:
    program = cascades.one_kernel(cascades.uncascaded().deduplicated(), TILES)
    assert cascades.loop_dims(program.kernels[0]) == ["n", "n"]


def test_estimates_can_be_turned_off() -> None:
    program = cascades.one_kernel(GRAPHS["moment2"], TILES, Fusion(estimates=False))
    assert cascades.loop_dims(program.kernels[0]) == ["n", "n"]


def test_the_number_of_loops_is_chosen_by_cost() -> None:
    """Long rows are read once; both ways of short ones are among the candidates."""
    scheduled = schedule(GRAPHS["moment2"], ScheduleOptions(sizes={"m": 4096, "n": 1 << 20}))
    assert cascades.loop_dims(scheduled.program.kernels[0]) == ["n"]
    counts = {len(cascades.loop_dims(candidate.kernel)) for candidate in scheduled.candidates[0]}
    assert counts == {1, 2}
