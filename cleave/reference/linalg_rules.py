"""``linalg.generic`` and what stands in its body, and affine maps. Named ops are generalised before we see them.

One mechanism serves every indexing map: each loop is an array of its indices, laid along its own axis of the iteration
space, so that a map's results are index arrays that broadcast against each other, and an operand's elements are
``tensor[indices]``. Parallel loops run all at once; reduction loops run one step after another, in order.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

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


def evaluate(expression: ir.AffineExpr, dims: Sequence[Array], symbols: Sequence[Array] = ()) -> Array:
    """An affine expression on indices, or on arrays of them."""
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return symbols[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return np.asarray(expression.value, np.int64)
    for kind, function in _BINARY:
        if isinstance(expression, kind):
            return function(*(evaluate(side, dims, symbols) for side in (expression.lhs, expression.rhs)))
    raise CleaveError(f"indexing expression {expression} is not supported")


def _divided(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Rounded in one direction. CleaveError where the divisor is not positive, of which MLIR leaves the result open."""

    def divide(a: Array, b: Array) -> Array:
        if np.any(b <= 0):
            raise CleaveError(f"an affine map divides by {np.min(b)}, but divisors must be positive")
        return function(a, b)

    return divide


_BINARY = (
    (ir.AffineAddExpr, np.add),
    (ir.AffineMulExpr, np.multiply),
    (ir.AffineModExpr, _divided(np.mod)),
    (ir.AffineFloorDivExpr, _divided(np.floor_divide)),
    (ir.AffineCeilDivExpr, _divided(lambda a, b: -((-a) // b))),
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
        if 0 in extents:
            return tuple(operand.copy() for operand in operands[inputs:])
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
    indices = [tuple(np.array(evaluate(e, loops), ndmin=len(loops)) for e in map_.results) for map_ in maps]
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


def affine(choose: Callable[[Array, Array], Array]) -> Rule:
    """The results of an affine map, of which ``choose`` takes one of two."""

    def rule(machine: Machine, op: ir.Operation) -> Step:
        map_ = ir.AffineMapAttr(op.attributes["map"]).value

        def step(*operands: Array) -> Array:
            indices = [np.asarray(operand) for operand in operands]
            dims, symbols = indices[: map_.n_dims], indices[map_.n_dims :]
            return functools.reduce(choose, (evaluate(expression, dims, symbols) for expression in map_.results))

        return step

    return rule


RULES: dict[str, Rule] = {
    "affine.apply": affine(np.add),  # of one result
    "affine.max": affine(np.maximum),
    "affine.min": affine(np.minimum),
    "linalg.generic": generic,
    "linalg.index": index,
    "linalg.softmax": softmax,
}
