"""The loops of kernels, for tests of which reductions share one."""

from __future__ import annotations

from cleave.schedule.tile_program import Instruction, Kernel


def loops(kernel: Kernel) -> list[Instruction]:
    """All loops; those that only go on with what another one has accumulated, over the edges, count as that one."""
    found = [instruction for instruction in kernel.body.walk() if instruction.op == "scf.for"]
    accumulated = {result for loop in found for result in loop.results}
    return [loop for loop in found if accumulated.isdisjoint(loop.operands)]
