"""The cost model: a pure function from (kernel, sizes, target) to predicted time and resources.

`bench/cost_model.py` measures how good it is (bench/results/h200/cost-model.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.dialects.graph import Graph, Value
from cleave.dialects.size import SizeLike
from cleave.schedule.block_cost import Cost, Costs, Resources, cost_of
from cleave.schedule.specialised_cost import specialised_cost
from cleave.schedule.target import Target
from cleave.schedule.tile_program import Kernel, TileProgram
from cleave.schedule.tile_sizes import BYTES
from cleave.schedule.warp_specialised import specialised_form
from cleave.schedule.workload import Workload, workload

__all__ = [
    "BYTES", "Cost", "Costs", "Resources", "Workload", "cost_of", "kernel_cost", "known_of", "launch_time",
    "program_cost", "specialised_cost", "workload",
]  # fmt: skip


def kernel_cost(
    kernel: Kernel,
    sizes: Mapping[str, int],
    target: Target,
    known: Mapping[str, SizeLike] | None = None,
    operands: Sequence[Value] = (),
) -> Cost:
    """The cost of one launch where every symbol has the size given; ``known`` as in ``workload``, ``operands`` as in
    ``specialised_form``."""
    work = workload(kernel, sizes, known)
    form = specialised_form(kernel, work, known or {}, target, operands) if kernel.warp_specialised else None
    return specialised_cost(work, form, target) if form else cost_of(work, kernel.num_stages, kernel.num_warps, target)


def launch_time(count: int, target: Target) -> float:
    """Seconds that launching this many kernels one after the other takes."""
    return target.launch + (count - 1) * target.between_launches if count else 0.0


def known_of(graph: Graph) -> dict[str, SizeLike]:
    """What kernels of this graph are told of its symbols."""
    return {**graph.facts.definitions, **graph.extents}


def program_cost(program: TileProgram, sizes: Mapping[str, int], target: Target) -> float:
    """Predicted seconds of the whole program."""
    known = known_of(program.graph)
    costs = [kernel_cost(launch.kernel, sizes, target, known, launch.operands) for launch in program.launches]
    return sum(cost.running for cost in costs) + launch_time(len(costs), target)
