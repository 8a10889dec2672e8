"""Compile TTIR functions into closures: blocks, loops, branches, reductions, scans and calls.

A value lives in a numbered slot of a list (the frame); slot 0 holds the ``Machine``. A step is a closure that reads and
writes the frame. Constants, and what follows from constants alone, are computed at compile time into the frame's
template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttir_ir import (
    Block,
    DescriptorType,
    Function,
    OpaqueType,
    Operation,
    Region,
    SymbolRef,
    TensorType,
    Type,
    Value,
)
from cleave.runtime.ttir_memory_rules import MACHINE_RULES, Machine
from cleave.runtime.ttir_numbers import dtype_of
from cleave.runtime.ttir_rule import Evaluate, attribute
from cleave.runtime.ttir_rules import PURE_RULES

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
            raise _explained(error, self.owners[id(step)]) from error

    def call(self, frame: Frame, values: Sequence[Any]) -> list[Any]:
        """Run with arguments; return what the terminator passes on."""
        for slot, value in zip(self.arguments, values, strict=True):
            frame[slot] = value
        self.run(frame)
        return [frame[slot] for slot in self.passed]


def _explained(error: Exception, op: Operation) -> CleaveError:
    """The error with the operation and its place, unless an inner operation has already given its own."""
    if isinstance(error, CleaveError):
        return error if error.location else CleaveError(f"'{op.name}': {error.message}", op.position, error.notes)
    if isinstance(error, RecursionError):
        return CleaveError(f"'{op.name}': nested or recursive too deeply", op.position)
    return CleaveError(f"'{op.name}' cannot be evaluated: {error}", op.position)


class CompiledFunction:
    """Blocks by label, the entry first."""

    def __init__(self, blocks: dict[str, CompiledBlock], template: Frame) -> None:
        self.blocks = blocks
        self.entry = next(iter(blocks.values()))
        self.template = template

    def call(self, machine: Machine, values: Sequence[Any]) -> list[Any]:
        frame = self.template.copy()
        frame[0] = machine
        block = self.entry
        while True:
            passed = block.call(frame, values)
            if not block.successors:
                return passed
            conditional = len(block.successors) == 2
            label, part = block.successors[1 if conditional and not _truth(passed[0]) else 0]
            block, values = self.blocks[label], passed[part]


def compiled(function: Function, in_combiner: bool = False) -> CompiledFunction:
    """The compiled form of ``function``, made once. In combiners of reductions scalars are whole slabs of a tile."""
    forms: dict[bool, CompiledFunction] = function.compiled
    if in_combiner not in forms:
        forms[in_combiner] = _Compiler(function, in_combiner).function()
    return forms[in_combiner]


class _Compiler:
    def __init__(self, function: Function, in_combiner: bool) -> None:
        self.source = function
        self.in_combiner = in_combiner
        self.template: Frame = [None]
        self.slots: dict[Value, int] = {}
        self.constants: set[int] = set()

    def function(self) -> CompiledFunction:
        blocks = {block.label: self.block(block) for block in self.source.body.blocks}
        return CompiledFunction(blocks, self.template)

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
            if op.name in _TERMINATORS:
                code.passed, code.successors = self.reads(op.operands), _successors(op)
                continue
            try:
                step = self.step(op)
            except Exception as error:
                raise _explained(error, op) from error
            if step is not None:
                code.add(step, op)
        return code

    def step(self, op: Operation) -> Step | None:
        if op.name in CONTROL_RULES:
            return CONTROL_RULES[op.name](self, op)
        if op.name in MACHINE_RULES:
            return self.evaluation(op, MACHINE_RULES[op.name](op), [0, *self.reads(op.operands)])
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


# Control flow


def _regions(op: Operation, count: int) -> list[Region]:
    if len(op.regions) != count:
        raise CleaveError(f"{count} regions are expected, got {len(op.regions)}")
    return op.regions


def _write(frame: Frame, slots: list[int], values: Sequence[Any]) -> None:
    for slot, value in zip(slots, values, strict=True):
        frame[slot] = value


def _truth(value: Any) -> bool:
    if value.shape:
        raise CleaveError("a condition that differs between elements (in a reduction's combiner)")
    return bool(value)


def _for(compiler: _Compiler, op: Operation) -> Step:
    low, high, stride, *initial = compiler.reads(op.operands)
    body = compiler.region(_regions(op, 1)[0], op.name)
    outputs = [compiler.new_slot(result) for result in op.results]
    if len(body.arguments) != 1 + len(initial) or not len(body.passed) == len(initial) == len(outputs):
        raise CleaveError("the loop's initial values, arguments, yields and results differ in number")
    make = dtype_of(op.operands[0].type).type
    is_unsigned = bool(op.attributes.get("unsignedCmp", False))
    bits = 8 * dtype_of(op.operands[0].type).itemsize

    def bound(value: Any) -> int:
        return int(value) & ((1 << bits) - 1) if is_unsigned else int(value)

    induction, carried, passed = body.arguments[0], body.arguments[1:], body.passed

    def step(frame: Frame) -> None:
        first, end, by = bound(frame[low]), bound(frame[high]), bound(frame[stride])
        if by <= 0:
            raise CleaveError(f"the loop's step is {by}")
        values = [frame[i] for i in initial]
        for i in range(first, end, by):
            frame[induction] = make(i)
            _write(frame, carried, values)
            body.run(frame)
            values = [frame[slot] for slot in passed]
        _write(frame, outputs, values)

    return step


def _if(compiler: _Compiler, op: Operation) -> Step:
    condition = compiler.slots[op.operands[0]]
    branches = [compiler.region(r, op.name) if r.blocks else CompiledBlock([]) for r in _regions(op, 2)]
    outputs = [compiler.new_slot(result) for result in op.results]
    if any(len(branch.passed) != len(outputs) for branch in branches):
        raise CleaveError("the branches do not yield as many values as there are results")
    then, otherwise = branches

    def step(frame: Frame) -> None:
        _write(frame, outputs, (then if _truth(frame[condition]) else otherwise).call(frame, ()))

    return step


def _while(compiler: _Compiler, op: Operation) -> Step:
    initial = compiler.reads(op.operands)
    before, after = (compiler.region(region, op.name) for region in _regions(op, 2))
    outputs = [compiler.new_slot(result) for result in op.results]

    def step(frame: Frame) -> None:
        values: Sequence[Any] = [frame[i] for i in initial]
        while True:
            condition, *values = before.call(frame, values)
            if not _truth(condition):
                break
            values = after.call(frame, values)
        _write(frame, outputs, values)

    return step


def _call(compiler: _Compiler, op: Operation) -> Step:
    callee = attribute(op, "callee")
    function = compiler.source.module.functions.get(callee.name if isinstance(callee, SymbolRef) else "")
    if function is None:
        raise CleaveError(f"the callee {callee} is not in the module")
    if tuple(value.type for value in op.operands) != function.type.inputs:
        raise CleaveError(f"the operands do not fit @{function.name}{function.type}")
    inputs = compiler.reads(op.operands)
    outputs = [compiler.new_slot(result) for result in op.results]
    in_combiner = compiler.in_combiner

    def step(frame: Frame) -> None:
        code = compiled(function, in_combiner)  # Not before: functions may call each other in circles.
        _write(frame, outputs, code.call(frame[0], [frame[i] for i in inputs]))

    return step


# Reductions and scans: the combiner runs on slabs of the tiles


Combine = Callable[[Frame, list[Any], list[Any]], list[Any]]


def _combiner(compiler: _Compiler, op: Operation) -> tuple[Combine, list[int], int]:
    """The combiner on two lists of slabs, the slots of the tiles, and the axis."""
    outer, compiler.in_combiner = compiler.in_combiner, True
    body = compiler.region(_regions(op, 1)[0], op.name)
    compiler.in_combiner = outer
    tiles = compiler.reads(op.operands)
    if len(body.arguments) != 2 * len(tiles) or not len(body.passed) == len(tiles) == len(op.results):
        raise CleaveError(f"a combiner of {len(tiles)} tiles takes {2 * len(tiles)} arguments and gives {len(tiles)}")
    axis, shape = attribute(op, "axis"), cast(TensorType, op.operands[0].type).shape
    if not 0 <= axis < len(shape):
        raise CleaveError(f"axis {axis} is out of range for {op.operands[0].type}")

    def combine(frame: Frame, left: list[Any], right: list[Any]) -> list[Any]:
        return [np.broadcast_to(x, left[0].shape) for x in body.call(frame, (*left, *right))]

    return combine, tiles, axis


def _reduce(compiler: _Compiler, op: Operation) -> Step:
    combine, tiles, axis = _combiner(compiler, op)
    outputs = [compiler.new_slot(result) for result in op.results]
    before = (slice(None),) * axis

    def step(frame: Frame) -> None:
        values = [frame[i] for i in tiles]
        while (extent := values[0].shape[axis]) > 1:
            half = extent // 2
            low = [x[(*before, slice(0, half))] for x in values]
            high = [x[(*before, slice(half, 2 * half))] for x in values]
            rest = [x[(*before, slice(2 * half, None))] for x in values]
            values = combine(frame, low, high)
            if extent % 2:
                values = [np.concatenate((x, r), axis) for x, r in zip(values, rest, strict=True)]
        _write(frame, outputs, [x[(*before, 0)] for x in values])

    return step


def _scan(compiler: _Compiler, op: Operation) -> Step:
    combine, tiles, axis = _combiner(compiler, op)
    outputs = [compiler.new_slot(result) for result in op.results]
    before = (slice(None),) * axis
    flip = (*before, slice(None, None, -1)) if attribute(op, "reverse") else ()

    def step(frame: Frame) -> None:
        values = [frame[i][flip] for i in tiles]
        distance, extent = 1, values[0].shape[axis]
        while distance < extent:
            head = [x[(*before, slice(0, distance))] for x in values]
            low = [x[(*before, slice(0, extent - distance))] for x in values]
            high = [x[(*before, slice(distance, None))] for x in values]
            sums = combine(frame, low, high)
            values = [np.concatenate((h, s), axis) for h, s in zip(head, sums, strict=True)]
            distance *= 2
        _write(frame, outputs, [x[flip] for x in values])

    return step


CONTROL_RULES: dict[str, Callable[[_Compiler, Operation], Step]] = {
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "tt.call": _call,
    "tt.reduce": _reduce,
    "tt.scan": _scan,
}
_TERMINATORS = frozenset(
    ("scf.yield", "scf.condition", "tt.return", "tt.reduce.return", "tt.scan.return", "cf.br", "cf.cond_br")
)
