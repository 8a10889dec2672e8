"""Where a program of an interpreted kernel pauses: inline assembly that waits for other blocks or other launches."""
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime import ttir_assembly as assembly
from cleave.runtime.ttir_frame import CompiledBlock, Frame, Step, explained
from cleave.runtime.ttir_ir import Operation
from cleave.runtime.ttir_numbers import DTYPES
from cleave.runtime.ttir_rule import attribute

_I32 = DTYPES["i32"]


class Pause:
    """A step at which a program may have to wait; a step like others where it need not."""

    def __init__(self, output: int) -> None:
        self.output = output

    def __call__(self, frame: Frame) -> None:
        raise CleaveError("waiting for others inside a loop, a branch or a called function is not supported")

    def arrive(self, frame: Frame) -> None:
        frame[self.output] = np.int32(0)

    def is_ready(self, frame: Frame) -> bool:
        return True

    def leave(self, frame: Frame) -> None:
        pass

    def carried_out(self, frame: Frame) -> Iterator[Pause]:
        """Pauses until the program may go on; nothing where it may at once."""
        self.arrive(frame)
        while not self.is_ready(frame):
            yield self
        self.leave(frame)

    @property
    def moved(self) -> bool:
        """Whether the program has come further than at its last pause, beside waits for other launches."""
        return False


class Wait(Pause):
    """For the launches before this one."""

    def carried_out(self, frame: Frame) -> Iterator[Pause]:
        self.arrive(frame)
        yield self


class GroupBarrier(Pause):
    """For the blocks that count themselves at one address."""

    def __init__(self, output: int, address: int, count: int) -> None:
        super().__init__(output)
        self.address, self.count = address, count

    def arrive(self, frame: Frame) -> None:
        super().arrive(frame)
        self._increment(frame)

    def is_ready(self, frame: Frame) -> bool:
        return int(frame[0].memory.load(frame[self.address], _I32, None, None)) & 0xFFFFFFFF >= int(frame[self.count])

    def leave(self, frame: Frame) -> None:
        self._increment(frame)

    def _increment(self, frame: Frame) -> None:
        """PTX's ``inc``: back to 0 from twice the count less one, or more."""
        last = 2 * int(frame[self.count]) - 1

        def wrapped(old: Any, _: Any) -> Any:
            return np.where(old.view(np.uint32) >= last, 0, old + 1).astype(np.int32)

        frame[0].memory.update(frame[self.address], (np.int32(1),), None, wrapped, _I32)


def _nothing(output: int) -> Step:
    def step(frame: Frame) -> None:
        frame[output] = np.int32(0)

    return step


_MEETING = re.compile(r"bar\.(sync|arrive) (\d+|\$1), (\d+); mov\.b32 \$0, 0;")


def _meet(output: int, waits: bool, barrier: Callable[[Frame], int], threads: int) -> Step:
    """At a named barrier of the block."""

    def step(frame: Frame) -> None:
        frame[0].block.meet(barrier(frame), threads, waits)
        frame[output] = np.int32(0)

    return step


def _count_block(output: int, address: int, count: int) -> Step:
    """The threads of the first partition behind the default one come to a barrier of blocks for all of them."""
    barrier = GroupBarrier(output, address, count)

    def step(frame: Frame) -> None:
        block = frame[0].block
        if block.current.number != 1:
            return
        block.pause()
        block.check_ordered()
        barrier.arrive(frame)
        block.pause(lambda: barrier.is_ready(frame), elsewhere=True)
        barrier.leave(frame)

    return step


def _exponentials(output: int, exponent: int) -> Step:
    """Each element by the polynomial, the less exact way: which ones a thread has is not modelled."""
    coefficients = np.array(assembly.POLYNOMIAL, np.uint32).view(np.float32)
    of_a_nan = np.uint32(assembly.OF_A_NAN).view(np.float32)

    def step(frame: Frame) -> None:
        x = np.fmax(frame[exponent], np.float32(assembly.LEAST))
        whole = np.rint(x)
        part, found = x - whole, np.full_like(x, coefficients[0])
        for coefficient in coefficients[1:]:
            found = found * part + coefficient
        frame[output] = np.where(np.isnan(frame[exponent]), of_a_nan, np.ldexp(found, whole.astype(np.int32)))

    return step


def inline_assembly(op: Operation, inputs: Sequence[int], output: int, *, partitioned: bool = False) -> Step:
    """The step of one of the texts of ``ttir_assembly``; CleaveError for any other.

    ``partitioned``: within a partition, ahead of which the block has waited for earlier launches.
    """
    text = attribute(op, "asm_string")
    if text == assembly.EXPONENTIALS:
        return _exponentials(output, *inputs)
    meeting = _MEETING.fullmatch(text)
    if partitioned and meeting:
        waits, barrier, threads = meeting[1] == "sync", meeting[2], int(meeting[3])
        if barrier == assembly.GIVEN and len(inputs) == 1:
            return _meet(output, waits, lambda frame: int(frame[inputs[0]]), threads)
        if barrier != assembly.GIVEN and len(inputs) != 1:
            return _meet(output, waits, lambda _: int(barrier), threads)
    if partitioned and text == assembly.COUNT_BLOCK and len(inputs) == 2:
        return _count_block(output, *inputs)
    if text in (assembly.TRIGGER, assembly.NOTHING) or (partitioned and text == assembly.WAIT):
        return _nothing(output)
    if text == assembly.WAIT:
        return Wait(output)
    if text == assembly.GROUP_BARRIER and len(inputs) == 2:
        return GroupBarrier(output, *inputs)
    raise CleaveError("this inline assembly is not known to the interpreter")


def steps_of(block: CompiledBlock, frame: Frame) -> Iterator[Pause]:
    """Run a function's block; yields where the program cannot go on yet."""
    step: Step | None = None
    try:
        for step in block.steps:
            if not isinstance(step, Pause):
                step(frame)
                continue
            yield from step.carried_out(frame)
    except Exception as error:
        raise explained(error, block.owners[id(step)]) from error
