"""Programmatic dependent launch: a kernel starts while the one before it runs, and waits for it where it must.

In a program whose launches overlap, every kernel but the first has one ``wait``, which all its blocks reach before they
write anything or read what any launch of the program writes; what depends on neither comes before it. A wait ends when
the launch before is complete. That launch is complete only after its own blocks have waited, so it implies that all
earlier ones are complete as well: a kernel may read what one two launches earlier wrote, and overwrite what that one
read. The first launch of a call never overlaps, so nothing of a call starts before what was enqueued ahead of it is
complete: inputs are there, and memory that the call before used is free.

A kernel lets the next one start (``trigger``) at once if that one reads memory ahead of its wait, otherwise behind its
own last loop: blocks that only wait take room and issue slots. On an H200 they cost combinations of splits up to 5 µs
where they were started at once, and nothing where they were started behind the loop (bench/results/h200/combine.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cleave.dialects.graph import Value
from cleave.schedule.rename import viewed
from cleave.schedule.tile_program import LOADS, Block, Instruction, Kernel, Launch, Ref

ORDERED = frozenset(("store", "group_barrier", "wait"))
"""Ops that stay behind a wait."""


def overlapping(launches: Sequence[Launch]) -> tuple[Launch, ...]:
    """The launches, each but the first allowed to start before the one in front of it is complete."""
    if len(launches) < 2:
        return tuple(launches)
    written = {viewed(value) for launch in launches for value in _written(launch)}
    waiting = [_waiting(launch.kernel, _given(launch, written)) for launch in launches[1:]]
    kernels = [launches[0].kernel, *waiting]
    kernels[:-1] = [triggering(kernel, following) for kernel, following in itertools.pairwise(kernels)]
    pairs = zip(launches, kernels, strict=True)
    return tuple(replace(launch, kernel=kernel, overlaps=launch is not launches[0]) for launch, kernel in pairs)


def _written(launch: Launch) -> Iterable[Value]:
    pairs = zip(launch.kernel.arguments, launch.operands, strict=True)
    return (value for argument, value in pairs if argument in launch.kernel.outputs)


def _given(launch: Launch, written: set[Value]) -> frozenset[Ref]:
    """The arguments whose memory no launch of the program writes."""
    pairs = zip(launch.kernel.arguments, launch.operands, strict=True)
    return frozenset(argument for argument, value in pairs if viewed(value) not in written)


def triggering(kernel: Kernel, following: Kernel) -> Kernel:
    """The kernel with a trigger, for the one that may then start."""
    own = kernel.body.instructions
    loops = [index + 1 for index, instruction in enumerate(own) if instruction.body]
    at = 0 if _reads_ahead(following) else max(loops, default=0)
    body = Block(kernel.body.arguments, [*own[:at], Instruction("trigger", (), ()), *own[at:]])
    return replace(kernel, body=body)


def _reads_ahead(kernel: Kernel) -> bool:
    """Whether there is a load ahead of the wait."""
    ahead = itertools.takewhile(lambda instruction: instruction.op != "wait", kernel.body.walk())
    return any(instruction.op in LOADS for instruction in ahead)


def _waiting(kernel: Kernel, given: frozenset[Ref]) -> Kernel:
    """The kernel with a wait, and ahead of it all that needs nothing but the tensors ``given``."""
    early: list[Instruction] = []
    late: list[Instruction] = []
    behind: set[Ref] = set()
    for instruction in kernel.body.instructions:
        if _is_early(instruction, given, behind):
            early.append(instruction)
        else:
            late.append(instruction)
            behind.update(instruction.results)
    body = Block(kernel.body.arguments, [*early, Instruction("wait", (), ()), *late])
    return replace(kernel, body=body)


def _is_early(instruction: Instruction, given: frozenset[Ref], behind: set[Ref]) -> bool:
    everything = [instruction, *(inner for body in instruction.bodies for inner in body.walk())]
    used = {operand for each in everything for operand in each.operands}
    yields = {ref for each in everything for body in each.bodies for ref in body.yields}
    loads = [each for each in everything if each.op in LOADS]
    ordered = any(each.op in ORDERED for each in everything)
    return not ordered and all(load.operands[0] in given for load in loads) and behind.isdisjoint(used | yields)
