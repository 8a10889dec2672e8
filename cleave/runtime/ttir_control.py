"""The semantics of TTIR's operations with regions, and of calls: the table ``CONTROL_RULES``.

A rule compiles the operation's regions with the compiler it is given and returns the step to run.
"""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttir_frame import CompiledBlock, Frame, Step, truth
from cleave.runtime.ttir_ir import Operation, Region, SymbolRef, TensorType
from cleave.runtime.ttir_numbers import dtype_of
from cleave.runtime.ttir_rule import attribute

if TYPE_CHECKING:
    from cleave.runtime.ttir_compile import Compiler

# Control flow


def _regions(op: Operation, count: int) -> list[Region]:
    if len(op.regions) != count:
        raise CleaveError(f"{count} regions are expected, got {len(op.regions)}")
    return op.regions


def _write(frame: Frame, slots: list[int], values: Sequence[Any]) -> None:
    for slot, value in zip(slots, values, strict=True):
        frame[slot] = value


def _for(compiler: Compiler, op: Operation) -> Step:
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


def _if(compiler: Compiler, op: Operation) -> Step:
    condition = compiler.slots[op.operands[0]]
    branches = [compiler.region(r, op.name) if r.blocks else CompiledBlock([]) for r in _regions(op, 2)]
    outputs = [compiler.new_slot(result) for result in op.results]
    if any(len(branch.passed) != len(outputs) for branch in branches):
        raise CleaveError("the branches do not yield as many values as there are results")
    then, otherwise = branches

    def step(frame: Frame) -> None:
        _write(frame, outputs, (then if truth(frame[condition]) else otherwise).call(frame, ()))

    return step


def _while(compiler: Compiler, op: Operation) -> Step:
    initial = compiler.reads(op.operands)
    before, after = (compiler.region(region, op.name) for region in _regions(op, 2))
    outputs = [compiler.new_slot(result) for result in op.results]

    def step(frame: Frame) -> None:
        values: Sequence[Any] = [frame[i] for i in initial]
        while True:
            condition, *values = before.call(frame, values)
            if not truth(condition):
                break
            values = after.call(frame, values)
        _write(frame, outputs, values)

    return step


def _call(compiler: Compiler, op: Operation) -> Step:
    callee = attribute(op, "callee")
    function = compiler.source.module.functions.get(callee.name if isinstance(callee, SymbolRef) else "")
    if function is None:
        raise CleaveError(f"the callee {callee} is not in the module")
    if tuple(value.type for value in op.operands) != function.type.inputs:
        raise CleaveError(f"the operands do not fit @{function.name}{function.type}")
    inputs = compiler.reads(op.operands)
    outputs = [compiler.new_slot(result) for result in op.results]
    compiled_form, in_combiner = compiler.compiled_form, compiler.in_combiner

    def step(frame: Frame) -> None:
        code = compiled_form(function, in_combiner)  # Not before: functions may call each other in circles.
        _write(frame, outputs, code.call(frame[0], [frame[i] for i in inputs]))

    return step


# Reductions and scans: the combiner runs on slabs of the tiles


Combine = Callable[[Frame, list[Any], list[Any]], list[Any]]


def _combiner(compiler: Compiler, op: Operation) -> tuple[Combine, list[int], int]:
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


def _reduce(compiler: Compiler, op: Operation) -> Step:
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


def _scan(compiler: Compiler, op: Operation) -> Step:
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


CONTROL_RULES: dict[str, Callable[[Compiler, Operation], Step]] = {
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "tt.call": _call,
    "tt.reduce": _reduce,
    "tt.scan": _scan,
}
