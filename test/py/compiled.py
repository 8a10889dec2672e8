"""Graphs compiled for the interpreter, as written and as the superoptimiser's alternatives, for tests of numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from unittest import mock

import numpy as np

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.passes.graph_io import from_graph
from cleave.passes.tile_io import from_tile_program
from cleave.passes.verify import verify
from cleave.reference import run
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import LaunchPlan
from cleave.schedule import candidates
from cleave.schedule.arrange import arranged
from cleave.schedule.explore import Score
from cleave.schedule.free_symbols import free_symbols
from cleave.schedule.scheduler import ScheduleOptions, _Scheduler, schedule
from cleave.schedule.tile_program import TileProgram
from cleave.schedule.tilings import Point, Space
from cleave.search.superoptimise import superoptimise

CTX = context(allow_unregistered=True)


@dataclass(frozen=True)
class Compiled:
    plan: LaunchPlan
    kernels: Mapping[str, str]

    def __call__(
        self, inputs: Sequence[np.ndarray], sizes: Mapping[str, int] | None = None, *, cooperative: bool = True
    ) -> list[np.ndarray]:
        """``sizes``: of symbols that no argument binds; the others of these are chosen."""
        given = choose_free(self.plan, sizes or {}) | dict(sizes or {})
        return execute(self.plan, self.kernels, inputs, given, cooperative=cooperative)


def lowered_by(
    lowering: LowerToTriton | LowerToTtgir, program: TileProgram
) -> tuple[LaunchPlan, dict[str, KernelModule]]:
    """A scheduled program's launch plan, and its kernels by name."""
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(program, module)
        assert not verify(module), list(map(str, verify(module)))
        lowering.apply(CTX, module)
        assert module.operation.verify()
        kernels = {kernel.name: kernel for kernel in kernel_modules(module)}
        return plan_of(module, program.graph.name, kernels), kernels


def compile_graph(
    graph: Graph, sizes: Mapping[str, int] | None = None, options: ScheduleOptions | None = None, *, tilings: int = 4
) -> Compiled:
    """Schedule (for these representative sizes) and lower. The kernels take any sizes that are not static.

    ``tilings``: how many are weighed; which one it is matters little here.
    """
    options = options or ScheduleOptions(sizes=dict(sizes or {}), max_tilings=tilings)
    program = arranged(schedule(graph.deduplicated(), options), options)
    plan, kernels = lowered_by(LowerToTriton(), program)
    return Compiled(plan, {name: kernel.text for name, kernel in kernels.items()})


@contextmanager
def drawn_schedules(rng: random.Random) -> Generator[None]:
    """Within it, which values are kept in memory and the tilings that are weighed are drawn, not searched for.

    That is less work than to find the best, and reaches kernels that no cost model would choose.
    """
    partitions = _Scheduler._partitions

    def explore(space: Space, judge: Callable[[Point], Score], count: int) -> dict[Point, Score]:
        points = space.points
        return {point: judge(point) for point in rng.sample(points, min(count, len(points)))}

    with (
        mock.patch.object(_Scheduler, "_partitions", lambda self: [rng.choice(partitions(self))]),
        mock.patch.object(candidates, "explore", explore),
    ):
        yield


def reference(
    graph: Graph, inputs: Sequence[np.ndarray], precision: str = "declared", sizes: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The graph as written, by the reference executor; of symbols that nothing gives each is 2."""
    sizes = {**dict.fromkeys(free_symbols(graph), 2), **(sizes or {})}
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module)
        assert not verify(module), list(map(str, verify(module)))
        return run(module, graph.name, list(inputs), precision=precision, sizes=sizes)  # type: ignore[arg-type]


@cache
def alternatives(graph: Graph) -> tuple[Graph, ...]:
    """What the superoptimiser returns beside the graph itself."""
    found = superoptimise(graph.deduplicated()).alternatives
    return tuple(alternative.graph.named(f"{graph.name}_{index}") for index, alternative in enumerate(found))[1:]


def static(graph: Graph, inputs: Sequence[np.ndarray]) -> Graph:
    """The graph with every symbol that the inputs' shapes give static."""
    extents = dict(graph.extents)
    for value, array in zip(graph.inputs, inputs, strict=True):
        extents |= {dim.name: n for dim, n in zip(value.dims, array.shape, strict=True) if str(dim.size) == dim.name}
    return replace(graph, extents=extents)
