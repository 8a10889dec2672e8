"""Compile TTIR functions into blocks of closures.

Constants, and what follows from constants alone, are computed at compile time into the template of the frame.
"""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttgir_rules import MACHINE_RULES as PARTITION_RULES
from cleave.runtime.ttgir_rules import specialized
from cleave.runtime.ttir_control import CONTROL_RULES
from cleave.runtime.ttir_frame import CompiledBlock, Frame, Step, explained, truth
from cleave.runtime.ttir_ir import (
    Block,
    DescriptorType,
    Function,
    OpaqueType,
    Operation,
    Region,
    TensorType,
    Type,
    Value,
)
from cleave.runtime.ttir_memory_rules import MACHINE_RULES, Machine
from cleave.runtime.ttir_numbers import dtype_of
from cleave.runtime.ttir_pauses import Pause, inline_assembly, steps_of
from cleave.runtime.ttir_rule import Evaluate, attribute
from cleave.runtime.ttir_rules import PURE_RULES

TERMINATORS = frozenset(
    (
        "scf.yield",
        "scf.condition",
        "tt.return",
        "tt.reduce.return",
        "tt.scan.return",
        "cf.br",
        "cf.cond_br",
        "ttg.warp_yield",
        "ttg.warp_return",
    )
)


class CompiledFunction:
    """Blocks by label, the entry first."""

    def __init__(self, blocks: dict[str, CompiledBlock], template: Frame) -> None:
        self.blocks = blocks
        self.entry = next(iter(blocks.values()))
        self.template = template
        self.pauses = any(isinstance(step, Pause) for block in blocks.values() for step in block.steps)

    def start(self, machine: Machine, values: Sequence[Any]) -> Iterator[Pause]:
        """``call`` of a function without results that yields wherever it has to wait for others."""
        frame = self.template.copy()
        frame[0] = machine
        block = self.entry
        while True:
            for slot, value in zip(block.arguments, values, strict=True):
                frame[slot] = value
            yield from steps_of(block, frame)
            if not block.successors:
                return
            block, values = self._next(block, [frame[slot] for slot in block.passed])

    def call(self, machine: Machine, values: Sequence[Any]) -> list[Any]:
        frame = self.template.copy()
        frame[0] = machine
        block = self.entry
        while True:
            passed = block.call(frame, values)
            if not block.successors:
                return passed
            block, values = self._next(block, passed)

    def _next(self, block: CompiledBlock, passed: list[Any]) -> tuple[CompiledBlock, list[Any]]:
        """Where a branch goes, and with what."""
        conditional = len(block.successors) == 2
        label, part = block.successors[1 if conditional and not truth(passed[0]) else 0]
        return self.blocks[label], passed[part]


def _passes_fit(code: CompiledFunction, results: int) -> bool:
    """Whether every block passes on as many values as the blocks it goes to, or the function's caller, take."""
    for block in code.blocks.values():
        if not block.successors and len(block.passed) != results:
            return False
        for label, part in block.successors:
            target = code.blocks.get(label)
            if target is None or len(block.passed[part]) != len(target.arguments):
                return False
    return True


def compiled(function: Function, in_combiner: bool = False) -> CompiledFunction:
    """The compiled form of ``function``, made once. In combiners of reductions scalars are whole slabs of a tile."""
    forms: dict[bool, CompiledFunction] = function.compiled
    if in_combiner not in forms:
        forms[in_combiner] = Compiler(function, in_combiner).function()
    return forms[in_combiner]


class Compiler:
    def __init__(self, function: Function, in_combiner: bool) -> None:
        self.source = function
        self.in_combiner = in_combiner
        self.template: Frame = [None]
        self.slots: dict[Value, int] = {}
        self.constants: set[int] = set()
        self.waits_inside = False  # a partition's waits: all of the block waits ahead of the partitions

    def function(self) -> CompiledFunction:
        blocks = {block.label: self.block(block) for block in self.source.body.blocks}
        code = CompiledFunction(blocks, self.template)
        if not _passes_fit(code, len(self.source.type.results)):
            message = f"the branches and returns of @{self.source.name} do not pass on what is taken"
            raise CleaveError(message, self.source.position)
        return code

    @staticmethod
    def compiled_form(function: Function, in_combiner: bool) -> CompiledFunction:
        """``compiled``, for the rules."""
        return compiled(function, in_combiner)

    def new_slot(self, value: Value) -> int:
        slot = self.slots[value] = len(self.template)
        self.template.append(None)
        return slot

    def reads(self, values: Sequence[Value]) -> list[int]:
        return [self.slots[value] for value in values]

    def region(self, region: Region, owner: str) -> CompiledBlock:
        if len(region.blocks) != 1:
            raise CleaveError(f"a region of '{owner}' with {len(region.blocks)} blocks is not run")
        return self.block(region.blocks[0])

    def block(self, block: Block) -> CompiledBlock:
        code = CompiledBlock([self.new_slot(argument) for argument in block.arguments])
        for op in block.operations:
            try:
                self.add(code, op)
            except Exception as error:
                raise explained(error, op) from error
        return code

    def add(self, code: CompiledBlock, op: Operation) -> None:
        if op.name in TERMINATORS:
            code.passed, code.successors = self.reads(op.operands), _successors(op)
            return
        step = self.step(op)
        if step is not None:
            code.add(step, op)

    def step(self, op: Operation) -> Step | None:
        if op.name in CONTROL_RULES:
            return CONTROL_RULES[op.name](self, op)
        if op.name == "ttg.warp_specialize":
            return specialized(self, op)
        rule = MACHINE_RULES.get(op.name) or PARTITION_RULES.get(op.name)
        if rule:
            return self.evaluation(op, rule(op), [0, *self.reads(op.operands)])
        if op.name == "tt.elementwise_inline_asm":
            inputs = self.reads(op.operands)
            return inline_assembly(op, inputs, self.new_slot(op.results[0]), partitioned=self.waits_inside)
        if op.name not in PURE_RULES:
            raise CleaveError("this operation is not known to the interpreter")
        return self.pure(op)

    def pure(self, op: Operation) -> Step | None:
        """None when the operation was done at compile time."""
        inputs = self.reads(op.operands)
        step = self.evaluation(op, PURE_RULES[op.name](op), inputs)
        if not op.results or not self.constants.issuperset(inputs):
            return step
        try:
            step(self.template)
        except CleaveError:
            return step  # It may never be reached.
        self.constants.update(self.reads(op.results))
        return None

    def evaluation(self, op: Operation, function: Evaluate, inputs: list[int]) -> Step:
        outputs = [self.new_slot(result) for result in op.results]
        if len(outputs) == 1:
            check = None if self.in_combiner else _expected(op.results[0].type)
            return _single(function, inputs, outputs[0], check)

        def step(frame: Frame) -> None:
            results = function(*[frame[i] for i in inputs])
            for slot, result in zip(outputs, results, strict=True):
                frame[slot] = result

        return step


def _successors(op: Operation) -> list[tuple[str, slice]]:
    """Where a branch goes, with the part of its operands that it passes there."""
    if op.name == "cf.br":
        return [(op.successors[0], slice(None))]
    if op.name == "cf.cond_br":
        then = 1 + attribute(op, "operandSegmentSizes")[1]
        return [(op.successors[0], slice(1, then)), (op.successors[1], slice(then, None))]
    return []


def _expected(type_: Type) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    if isinstance(type_, DescriptorType | OpaqueType):
        return None
    return dtype_of(type_), type_.shape if isinstance(type_, TensorType) else ()


def _single(
    function: Evaluate, inputs: list[int], output: int, expected: tuple[np.dtype[Any], tuple[int, ...]] | None
) -> Step:
    """A step with one result, whose dtype and shape are checked against its type: wrong IR must not go unseen."""
    evaluate = _reader(function, inputs)
    if expected is None:

        def unchecked(frame: Frame) -> None:
            frame[output] = evaluate(frame)

        return unchecked
    dtype, shape = expected

    def step(frame: Frame) -> None:
        value = evaluate(frame)
        if value.dtype != dtype or value.shape != shape:
            raise CleaveError(f"the result is {value.dtype}{list(value.shape)}, its type says {dtype}{list(shape)}")
        frame[output] = value

    return step


def _reader(function: Evaluate, inputs: list[int]) -> Evaluate:
    if len(inputs) == 1:
        (a,) = inputs
        return lambda frame: function(frame[a])
    if len(inputs) == 2:
        a, b = inputs
        return lambda frame: function(frame[a], frame[b])
    if len(inputs) == 3:
        a, b, c = inputs
        return lambda frame: function(frame[a], frame[b], frame[c])
    return lambda frame: function(*[frame[i] for i in inputs])
