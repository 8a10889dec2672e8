"""``linalg.generic`` and what stands in its body. Named ops are generalised by upstream before we see them.

One mechanism serves every indexing map: each loop is an array of its indices, laid along its own axis of the iteration
space, so that a map's results are index arrays that broadcast against each other, and an operand's elements are
``tensor[indices]``. Parallel loops run all at once; reduction loops run one step after another, in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.reference.machine import Machine, Rule, Step, element_dtype
from cleave.reference.numerics import Array


def indexing_maps(op: ir.Operation) -> list[ir.AffineMap]:
    """The maps of a ``linalg.generic``, one for each operand."""
    return [ir.AffineMapAttr(attribute).value for attribute in ir.ArrayAttr(op.attributes["indexing_maps"])]


def is_reduction(op: ir.Operation) -> list[bool]:
    """For each loop of a ``linalg.generic``, whether it is a reduction."""
    return ["reduction" in str(attribute) for attribute in ir.ArrayAttr(op.attributes["iterator_types"])]


def evaluate(expression: ir.AffineExpr, loops: Sequence[Array]) -> Array:
    """An affine expression on arrays of indices."""
    if isinstance(expression, ir.AffineDimExpr):
        return loops[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return np.full((1,) * len(loops), expression.value, np.int64)
    for kind, function in _BINARY:
        if isinstance(expression, kind):
            return function(evaluate(expression.lhs, loops), evaluate(expression.rhs, loops))
    raise CleaveError(f"indexing expression {expression} is not supported")


_BINARY = (
    (ir.AffineAddExpr, np.add),
    (ir.AffineMulExpr, np.multiply),
    (ir.AffineModExpr, np.mod),
    (ir.AffineFloorDivExpr, np.floor_divide),
    (ir.AffineCeilDivExpr, lambda a, b: -((-a) // b)),
)


def loop_extents(maps: Sequence[ir.AffineMap], shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """How often each loop runs. CleaveError where two operands disagree."""
    found: dict[int, tuple[int, int]] = {}
    for number, (map_, shape) in enumerate(zip(maps, shapes, strict=True)):
        for expression, extent in zip(map_.results, shape, strict=True):
            if not isinstance(expression, ir.AffineDimExpr):
                continue
            known, by = found.setdefault(expression.position, (extent, number))
            if known != extent:
                raise CleaveError(
                    f"loop d{expression.position} runs to {known} by operand {by} and to {extent} by operand {number}"
                )
    return [found[loop][0] for loop in range(maps[0].n_dims)]


def generic(machine: Machine, op: ir.Operation) -> Step:
    maps, reductions = indexing_maps(op), is_reduction(op)
    inputs = len(op.operands) - len(op.results)
    body, rank = op.regions[0].blocks[0], len(reductions)
    for map_ in maps[inputs:]:
        _check_output_map(map_, reductions)

    def step(*operands: Array) -> tuple[Array, ...]:
        extents = loop_extents(maps, [operand.shape for operand in operands])
        loops = [np.arange(n).reshape([-1 if axis == loop else 1 for axis in range(rank)])
                 for loop, n in enumerate(extents)]  # fmt: skip
        outs = [operand.copy() for operand in operands[inputs:]]
        space = tuple(1 if reduced else n for n, reduced in zip(extents, reductions, strict=True))
        for point in itertools.product(*(range(n) for n, reduced in zip(extents, reductions, strict=True) if reduced)):
            position = iter(point)
            here = [np.full((1,) * rank, next(position)) if reduced else loop
                    for loop, reduced in zip(loops, reductions, strict=True)]  # fmt: skip
            _run_once(machine, body, maps, here, list(operands[:inputs]), outs, space)
        return tuple(outs)

    return step


def _check_output_map(map_: ir.AffineMap, reductions: Sequence[bool]) -> None:
    """Every element of an output has one value only: the map has each parallel loop, and no other."""
    loops = [e.position for e in map_.results if isinstance(e, ir.AffineDimExpr)]
    constants = sum(isinstance(e, ir.AffineConstantExpr) for e in map_.results)
    parallel = [loop for loop, reduced in enumerate(reductions) if not reduced]
    if sorted(loops) != parallel or len(loops) + constants != len(map_.results):
        raise CleaveError(f"output map {map_} is no permutation of the parallel loops")


def _run_once(
    machine: Machine, body: ir.Block, maps: Sequence[ir.AffineMap], loops: list[Array],
    inputs: list[Array], outs: list[Array], space: tuple[int, ...],
) -> None:  # fmt: skip
    """The body at one point of the reduction loops and all points of the parallel ones; updates ``outs``."""
    indices = [tuple(evaluate(expression, loops) for expression in map_.results) for map_ in maps]
    values = [_elements(tensor, index, len(loops)) for tensor, index in zip([*inputs, *outs], indices, strict=True)]
    outer, machine.loops = machine.loops, loops
    results = machine.run_block(body, values)
    machine.loops = outer
    for out, index, result in zip(outs, indices[len(inputs) :], results, strict=True):
        whole = np.broadcast_to(result, space)
        out[index] = whole if index else whole.reshape(())


def _elements(tensor: Array, index: tuple[Array, ...], rank: int) -> Array:
    for axis, (positions, extent) in enumerate(zip(index, tensor.shape, strict=True)):
        if positions.size and (positions.min() < 0 or positions.max() >= extent):
            raise CleaveError(f"the indexing map leaves axis {axis} of an operand of extent {extent}")
    return tensor[index] if index else tensor.reshape((1,) * rank)


def index(machine: Machine, op: ir.Operation) -> Step:
    loop = ir.IntegerAttr(op.attributes["dim"]).value
    return lambda: machine.loops[loop]


def softmax(machine: Machine, op: ir.Operation) -> Step:
    axis = ir.IntegerAttr(op.attributes["dimension"]).value
    numerics, dtype = machine.numerics, element_dtype(op.results[0].type)

    def step(x: Array, out: Array) -> Array:
        shifted = numerics.pointwise("sub", (x, x.max(axis, keepdims=True)), dtype)
        power = numerics.pointwise("exp", (shifted,), dtype)
        total = power.astype(numerics.compute(dtype)).sum(axis, keepdims=True)
        return numerics.pointwise("div", (power, numerics.round(total, dtype)), dtype)

    return step


RULES: dict[str, Rule] = {"linalg.generic": generic, "linalg.index": index, "linalg.softmax": softmax}
