"""Rules for ``scf``, ``cf.assert``, calls, and launches of kernels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import parse
from cleave.errors import CleaveError
from cleave.reference.graph_rules import parts
from cleave.reference.machine import Machine, Rule, Step, as_index
from cleave.reference.numerics import Array
from cleave.reference.symbols import Symbols


def for_loop(machine: Machine, op: ir.Operation) -> Step:
    body = op.regions[0].blocks[0]

    def step(lower: Array, upper: Array, stride: Array, *carried: Any) -> tuple[Any, ...]:
        if as_index(stride) < 1:
            raise CleaveError(f"the loop's step is {as_index(stride)}")
        for position in range(as_index(lower), as_index(upper), as_index(stride)):
            carried = machine.run_block(body, (np.asarray(position), *carried))
        return carried

    return step


def if_else(machine: Machine, op: ir.Operation) -> Step:
    def step(condition: Array) -> tuple[Any, ...]:
        if np.any(condition) and not np.all(condition):
            raise CleaveError("branches that only some elements take are not supported")
        branch = op.regions[0 if np.all(condition) else 1]
        return machine.run_block(branch.blocks[0]) if len(branch.blocks) else ()

    return step


def assertion(machine: Machine, op: ir.Operation) -> Step:
    message = ir.StringAttr(op.attributes["msg"]).value

    def step(condition: Array) -> None:
        if not np.all(condition):
            raise CleaveError(f"assertion failed: {message}")

    return step


def call(machine: Machine, op: ir.Operation) -> Step:
    name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
    if name not in machine.functions:
        raise CleaveError(f"there is no function '{name}'")
    callee = machine.functions[name]
    if not callee.regions[0].blocks:
        raise CleaveError(
            f"'{name}' has no body", notes=("the reference executor runs modules before --lower-to-triton",)
        )
    if "cleave.unless" in op.attributes:  # cooperative launches always have room here
        return lambda *arguments: ()
    kernel = "cleave.kernel" in callee.attributes
    grid = [parse(text) for text in cleave.plain("strings", op.attributes["cleave.grid"])] if kernel else []

    def step(*arguments: Any) -> tuple[Any, ...]:
        symbols = bind_arguments(callee, arguments, machine.symbols.values if kernel else {})
        if not kernel:
            return machine.call(callee, arguments, symbols)
        places = itertools.product(*(range(symbols.evaluate(size)) for size in grid))
        machine.run_blocks(callee, arguments, symbols, places)
        return ()

    def checked(*arguments: Any) -> tuple[Any, ...]:
        if kernel and not 1 <= len(grid) <= 3:
            raise CleaveError(f"a grid has one to three sizes, not {len(grid)}")
        return step(*arguments)

    return checked


def bind_arguments(func: ir.Operation, arguments: Any, known: dict[str, int]) -> Symbols:
    """The symbols of ``func`` for these arguments."""
    symbols = Symbols(known, cleave.facts_of(func))
    tensors = []
    for index, (parameter, argument) in enumerate(zip(func.regions[0].blocks[0].arguments, arguments, strict=True)):
        if "#cleave.dims" in str(parameter.type):
            tensors.append((f"input {index}", cleave.decode(parameter.type)[0], parts(argument)[0].shape))
    symbols.bind(tensors)
    return symbols


def border(machine: Machine, op: ir.Operation) -> Step:
    """From a plain tensor to one with named dims, or back: the same elements. Names given here bind their symbols."""
    if len(op.results) != 1 or len(op.operands) != 1:
        raise CleaveError("a cast of several values at once is not supported")
    if "#cleave.dims" not in str(op.results[0].type):
        return lambda x: x
    type_ = cleave.tensor_type_of(op.results[0])

    def step(x: Array) -> Array:
        machine.symbols.bind([("the tensor here", type_, x.shape)])
        return x

    return step


RULES: dict[str, Rule] = {
    "scf.for": for_loop,
    "scf.if": if_else,
    "cf.assert": assertion,
    "func.call": call,
    "builtin.unrealized_conversion_cast": border,
}
