"""The one loop of a variance is Welford's recurrence, on tiles Chan's, and as accurate as two loops."""

from __future__ import annotations

from fractions import Fraction
from typing import Any
from unittest import mock

import cascades
import numpy as np
import pytest
from compiled import CTX
from discovery_programs import PROGRAMS
from lowered import run_lowered

from cleave.bindings import ir
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.reference import run
from cleave.reference.machine import Machine
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.tiling import Fusion

VARIANCE = cascades.moment(2).deduplicated()


def welford(elements: list[int], tile: int) -> list[tuple[Fraction, ...]]:
    """(count, mean, M2) after each tile; each is merged by Chan's formula, which for one element is Welford's."""
    n, mean, m2 = Fraction(0), Fraction(0), Fraction(0)
    states: list[tuple[Fraction, ...]] = []
    for start in range(0, len(elements), tile):
        part = [Fraction(x) for x in elements[start : start + tile]]
        own = sum(part) / len(part)
        delta, total = own - mean, n + len(part)
        m2 += sum((x - own) ** 2 for x in part) + delta * delta * n * len(part) / total
        n, mean = total, mean + delta * len(part) / total
        states.append((n, mean, m2))
    return states


def test_the_recurrence_of_single_elements_is_welfords() -> None:
    elements, mean, m2 = [3, -1, 4, 1, -5, 9], Fraction(0), Fraction(0)
    for number, (x, state) in enumerate(zip(elements, welford(elements, 1), strict=True), 1):
        before = mean
        mean += (x - before) / number
        m2 += (x - before) * (x - mean)
        assert state == (number, mean, m2)


def states_of_the_loop(elements: list[int], tile: int) -> list[tuple[float, ...]]:
    """What the loop of the variance's kernel carries after each tile, in f64."""
    states: list[tuple[float, ...]] = []
    run_block = Machine.run_block

    def recorded(machine: Machine, block: ir.Block, arguments: Any = ()) -> tuple[Any, ...]:
        results = run_block(machine, block, arguments)
        if len(results) > 1:
            states.append(tuple(float(np.ravel(result)[0]) for result in results))
        return results

    program = cascades.one_kernel(VARIANCE, {"m": 1, "n": tile})
    with CTX, ir.Location.unknown(), mock.patch.object(Machine, "run_block", recorded):
        run(cascades.module_of(program), VARIANCE.name, [np.array([elements], np.float32)], precision="f64")
    return states


@pytest.mark.parametrize("tile", [1, 4, 16])
def test_the_loop_carries_welfords_state(tile: int) -> None:
    """Σx, M2, M2's first derivative by the mean, which is 0 at the mean, and its second, 2n; and the mean."""
    elements = [int(x) for x in np.random.default_rng(0).integers(-50, 90, 37)]
    found, wanted = states_of_the_loop(elements, tile), welford(elements, tile)
    assert len(found) == len(wanted) == -(-37 // tile)
    for state, (n, mean, m2) in zip(found, wanted, strict=True):
        np.testing.assert_allclose(state, [float(v) for v in (n * mean, m2, 0, 2 * n, mean)], rtol=1e-12, atol=1e-9)


def one_element_at_a_time(x: np.ndarray) -> np.ndarray:
    mean, m2 = np.zeros_like(x[:, 0]), np.zeros_like(x[:, 0])
    for number, column in enumerate(x.T, 1):
        before = mean
        mean = mean + (column - before) / np.float32(number)
        m2 = m2 + (column - before) * (column - mean)
    return m2 / np.float32(x.shape[1])


def kernel_error(x: np.ndarray, *, loops: int) -> float:
    """Of the kernel that reads x once or twice, in f32."""
    program = cascades.one_kernel(VARIANCE, {"m": 16, "n": 128}, Fusion(estimates=loops == 1))
    assert len(cascades.loop_dims(program.kernels[0])) == loops
    with CTX, ir.Location.unknown():
        module = cascades.module_of(program)
        LowerToTriton().apply(CTX, module)
        return error(run_lowered(module, VARIANCE.name, [x])[0], x)


def error(variance: np.ndarray, x: np.ndarray) -> float:
    exact = x.astype(np.float64).var(axis=1)
    return float(np.linalg.norm(variance - exact) / np.linalg.norm(exact))


def test_one_loop_is_as_accurate_as_two_at_a_large_mean() -> None:
    x = (np.random.default_rng(0).standard_normal((16, 4096)) + 1e4).astype(np.float32)
    once, twice = kernel_error(x, loops=1), kernel_error(x, loops=2)
    assert once <= 1.5 * twice < 3e-6
    assert error(one_element_at_a_time(x), x) > 30 * once
    squares = (x * x).mean(axis=1, dtype=np.float32) - x.mean(axis=1, dtype=np.float32) ** 2
    assert error(squares, x) > 1e5 * once


def test_the_loop_is_what_the_scheduler_makes_of_two_passes() -> None:
    scheduled = schedule(PROGRAMS["variance"]().deduplicated(), ScheduleOptions(sizes={"m": 4096}, max_tilings=4))
    assert cascades.loop_dims(scheduled.program.kernels[0]) == ["k"]
