"""Compiled blocks: closures over the numbered slots of a frame.

A value lives in a numbered slot of a list (the frame); slot 0 holds the ``Machine``. A step is a closure that reads and
writes the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cleave.errors import CleaveError
from cleave.runtime.ttir_ir import Operation

Frame = list[Any]
Step = Callable[[Frame], None]


class CompiledBlock:
    """Steps in order, the slots of what the terminator passes on, and where a branch goes with which part of that."""

    def __init__(self, arguments: list[int]) -> None:
        self.arguments = arguments
        self.steps: list[Step] = []
        self.owners: dict[int, Operation] = {}
        self.passed: list[int] = []
        self.successors: list[tuple[str, slice]] = []

    def add(self, step: Step, owner: Operation) -> None:
        self.steps.append(step)
        self.owners[id(step)] = owner

    def run(self, frame: Frame) -> None:
        step: Step | None = None
        try:
            for step in self.steps:
                step(frame)
        except Exception as error:
            raise explained(error, self.owners[id(step)]) from error

    def call(self, frame: Frame, values: Sequence[Any]) -> list[Any]:
        """Run with arguments; return what the terminator passes on."""
        for slot, value in zip(self.arguments, values, strict=True):
            frame[slot] = value
        self.run(frame)
        return [frame[slot] for slot in self.passed]


def explained(error: Exception, op: Operation) -> CleaveError:
    """The error with the operation and its place, unless an inner operation has already given its own."""
    if isinstance(error, CleaveError):
        return error if error.location else CleaveError(f"'{op.name}': {error.message}", op.position, error.notes)
    if isinstance(error, RecursionError):
        return CleaveError(f"'{op.name}': nested or recursive too deeply", op.position)
    return CleaveError(f"'{op.name}' cannot be evaluated: {error}", op.position)


def truth(value: Any) -> bool:
    if value.shape:
        raise CleaveError("a condition that differs between elements (in a reduction's combiner)")
    return bool(value)
