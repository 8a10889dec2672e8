"""The body of one generic as graph ops: elementwise values, contractions, reductions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleave.bindings import ir
from cleave.dialects.tensor_type import is_float
from cleave.passes.linalg_body import SCALAR_OPS, Unraisable
from cleave.passes.linalg_connect import loops_read, shape_of
from cleave.passes.linalg_generic import Generic, Reduction

if TYPE_CHECKING:
    from cleave.passes.linalg_raise import Raiser

_NARROW = ("f16", "bf16", "f8E4M3FN", "f8E5M2")
_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


class BodyRaiser:
    """The body of one generic: its scalars as tensors along the loops that they vary along."""

    def __init__(self, raiser: Raiser, number: int, generic: Generic, loops: Sequence[str]) -> None:
        self.raiser, self.emitter = raiser, raiser.emitter
        self.number, self.generic, self.loops = number, generic, loops
        self._known: dict[ir.Value, ir.Value] = {}

    def result(self, index: int) -> ir.Value:
        generic = self.generic
        if not generic.reductions:
            return self.value(generic.yields[index])
        reduction = generic.reduction(index)
        if reduction.kind in ("maxnum", "minnum"):
            return self._ignoring_nan(reduction, index)
        total = self._reduced(reduction, str(generic.outputs[index].type))
        if not generic.read_outputs[index]:
            return total
        initial = self.operand(generic.inputs + index)
        if _is_neutral(self.emitter.literal(initial), reduction.kind, self.emitter.dtype(initial)):
            return total
        return self.emitter.emit(_COMBINE[reduction.kind], initial, total)

    def _ignoring_nan(self, reduction: Reduction, index: int) -> ir.Value:
        """A maximum or minimum of the terms that are no NaN, and of the initial value."""
        generic, kind = self.generic, "max" if reduction.kind == "maxnum" else "min"
        initial = self.operand(generic.inputs + index)
        start, dtype = self.emitter.literal(initial), self.emitter.dtype(initial)
        if start is None or math.isnan(start):
            raise Unraisable(f"its body reduces by {reduction.kind}f from a value that may be NaN")
        neutral = self.emitter.constant(-math.inf if kind == "max" else math.inf, dtype)
        terms: list[ir.Value] = []
        for term in reduction.terms:
            value = self.value(term.value)
            nan = self.emitter.emit("cmp", value, value, predicate="ne")
            terms.append(self.emitter.emit("select", nan, neutral, value))
        whole = functools.reduce(lambda a, b: self.emitter.emit(kind, a, b), terms)
        over = [self.loops[loop] for loop in generic.reductions]
        total = self.emitter.emit("reduce", self.emitter.spread(whole, over), kind=kind, over=over)
        return total if _is_neutral(start, kind, dtype) else self.emitter.emit(kind, initial, total)

    def value(self, value: ir.Value) -> ir.Value:
        """A scalar of the body, or of its surroundings."""
        if value not in self._known:
            self._known[value] = self._value(value)
        return self._known[value]

    def _value(self, value: ir.Value) -> ir.Value:
        if isinstance(value.owner, ir.Block) and value.owner == self.generic.block:
            return self.operand(ir.BlockArgument(value).arg_number)
        op = self.generic.local(value)
        if op is None:
            return self.raiser.scalar(value)
        if op.name == "linalg.index":
            name = self.loops[ir.IntegerAttr(op.attributes["dim"]).value]
            return self.emitter.emit("index", dim=str(self.emitter.dims[name]), dtype="index")
        if op.name == "tensor.extract":
            return self._gathered(op)
        if op.name not in SCALAR_OPS:
            raise Unraisable(f"its body has '{op.name}'")
        operands = [self.value(operand) for operand in op.operands]
        self.emitter.keep_order = value not in self.generic.yields
        try:
            return SCALAR_OPS[op.name](self.emitter, op, operands)
        finally:
            self.emitter.keep_order = True

    def _gathered(self, op: ir.Operation) -> ir.Value:
        """A tensor read at a computed position along one axis, at loops' indices along the others of more than 1."""
        shape, names = shape_of(op.operands[0]), self.raiser.dim_names(op.operands[0])
        read = {axis: loop for axis, loop in enumerate(loops_read(op)) if shape[axis] != 1}
        loops = [loop for loop in read.values() if loop is not None]
        computed = [axis for axis in read if read[axis] is None]
        if len(computed) != 1 or len(set(loops)) != len(loops):
            raise Unraisable("its body reads a tensor at several computed positions, or at one loop's index twice")
        (axis,), name = computed, names[computed[0]]
        position = self.emitter.counted(self.value(op.operands[1 + axis]))
        pairs = {names[axis]: self.loops[loop] for axis, loop in read.items() if loop is not None}
        if name in (*self.emitter.names(position), *pairs.values()):
            pairs[name] = self.raiser.new_dim(f"{name}_0", self.emitter.dims[name].size)
        table = self.emitter.laid_out(self.raiser.tensor(op.operands[0]), names)
        table = self.raiser.without(table, [names[axis] for axis in range(len(names)) if axis not in read])
        table = self.raiser.renamed(table, {old: new for old, new in pairs.items() if old != new})
        return self.emitter.emit("gather", table, position, dim=pairs.get(name, name))

    def operand(self, index: int) -> ir.Value:
        """Operand ``index``, its dims called as the loops are."""
        plain = self.generic.op.operands[index]
        value = self.raiser.tensor(plain)
        names, map_ = self.raiser.dim_names(plain), self.generic.maps[index]
        value = self.raiser.without(value, [name for name, loop in zip(names, map_, strict=True) if loop is None])
        pairs = {names[axis]: self.loops[loop] for axis, loop in enumerate(map_)
                 if loop is not None and (self.number, index, axis) in self.raiser.connector.renames}  # fmt: skip
        return self.raiser.renamed(value, pairs) if pairs else value

    def _reduced(self, reduction: Reduction, dtype: str) -> ir.Value:
        over = [self.loops[loop] for loop in self.generic.reductions]
        if reduction.factors is not None and dtype != "i1":
            a, b = (self.value(factor) for factor in reduction.factors)
            if set(self.emitter.names(a)) != set(self.emitter.names(b)):
                a, b = self._narrowed(reduction.factors, a, b, dtype)
                present = {*self.emitter.names(a), *self.emitter.names(b)}
                a = self.emitter.spread(a, [name for name in over if name not in present])
                return self.emitter.emit("contract", a, b, over=over, dtype=dtype)
        term = self.emitter.spread(self._combined(reduction), over)
        return self.emitter.emit("reduce", term, kind=reduction.kind, over=over)

    def _narrowed(
        self, factors: tuple[ir.Value, ir.Value], a: ir.Value, b: ir.Value, dtype: str
    ) -> tuple[ir.Value, ir.Value]:
        """Factors that were widened only to be multiplied in f32, as they were before: a contraction widens."""
        sources: list[ir.Value] = []
        for factor in factors:
            op = self.generic.local(factor)
            if dtype != "f32" or op is None or op.name != "arith.extf" or str(op.operands[0].type) not in _NARROW:
                return a, b
            sources.append(op.operands[0])
        if sources[0].type != sources[1].type:
            return a, b
        return self.value(sources[0]), self.value(sources[1])

    def _combined(self, reduction: Reduction) -> ir.Value:
        """All terms as one, so that the accumulator is combined with it alone."""
        combine = _COMBINE[reduction.kind]
        total: ir.Value | None = None
        for term in reduction.terms:
            value = self.value(term.value)
            if total is None:
                total = self.emitter.emit("neg", value) if term.negative else value
            else:
                total = self.emitter.emit("sub" if term.negative else combine, total, value)
        assert total is not None  # a combiner has two operands, one of which is the accumulator
        return total


def _is_neutral(value: float | int | bool | None, kind: str, dtype: str) -> bool:
    """Whether combining with the literal ``value`` changes nothing."""
    if value is None:
        return False
    if kind in ("sum", "prod"):
        return value == (0 if kind == "sum" else 1)
    if dtype == "i1":
        return value is (kind == "min")
    if is_float(dtype):
        return value == (float("-inf") if kind == "max" else float("inf"))
    bits = 64 if dtype == "index" else int(dtype[1:])
    return value == (-(1 << bits - 1) if kind == "max" else (1 << bits - 1) - 1)
