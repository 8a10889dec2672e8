"""How many elements of a row threads may copy at once: what Triton's axis analysis finds of addresses and masks.

A copy of several elements needs neighbours in memory, an address that is a multiple of its size, and one mask for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.lowering import tt
from cleave.lowering.ttir_types import TtirType, ttir_type

WIDEST, NARROWEST = 16, 4
"""Bytes of an asynchronous copy by one thread."""


@dataclass(frozen=True)
class Along:
    """Of a value along its last axis, as powers of two, of which 0 stands for any.

    ``run``: elements in a row that count up by one; ``equal``: that are equal; ``divisor``: of the first of each run,
    of pointers in elements.
    """

    run: int = 1
    equal: int = 1
    divisor: int = 1

    def at(self, run: int) -> int:
        """What the first of each of these shorter runs is a multiple of."""
        return math.gcd(self.divisor, run) if run < self.run else self.divisor


_SUMS = ("arith.addi", "arith.subi", "tt.addptr")
_SAME = ("arith.extsi", "arith.extui", "arith.trunci")
_COMMON = ("arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui", "arith.remsi", "arith.remui", "arith.select")
_LOGIC = ("arith.andi", "arith.ori")
_AT_MULTIPLES = (2, 5, 6, 9)
"""Comparisons x < y and x >= y, by their numbers: the same for all x from one multiple to before the next."""


class Contiguity:
    """``hints``: bytes of which pointers, and numbers of which integers are multiples, by arguments."""

    def __init__(self, hints: Mapping[ir.Value, int]) -> None:
        self.hints = hints
        self._found: dict[ir.Value, Along] = {}

    def vector(self, load: ir.Operation) -> int:
        """Elements that one copy may have of what a ``tt.load`` of a matrix reads."""
        pointers, *masked = load.operands
        address = self.along(pointers)
        together = math.gcd(address.run, address.divisor, *(self.along(mask).equal for mask in masked[:1]))
        return math.gcd(WIDEST // element_bytes(load.results[0]), together)

    def along(self, value: ir.Value) -> Along:
        if value not in self._found:
            self._found[value] = self._of(value)
        return self._found[value]

    def _of(self, value: ir.Value) -> Along:
        if isinstance(value.owner, ir.Block):
            return self._of_argument(value, value.owner)
        op = value.owner.operation
        if op.name == "arith.constant":
            return _of_constant(op)
        if op.name == "tt.make_range":
            return Along(tt.shape_of(value)[0], 1, 0)
        if op.name in ("tt.splat", *_SAME):
            return self.along(op.operands[0])
        if op.name in ("tt.expand_dims", "tt.broadcast"):
            return self._stretched(op)
        if op.name in (*_SUMS, *_COMMON, *_LOGIC, "arith.muli", "arith.cmpi"):
            return self._combined(op, [self.along(operand) for operand in op.operands])
        return _unknown(value)

    def _of_argument(self, value: ir.Value, block: ir.Block) -> Along:
        owner = block.owner.operation
        if owner.name == "tt.func":
            return Along(1, 0, self.hints.get(value, 1) // _bytes_of_pointee(value) or 1)
        if owner.name == "scf.for" and value == block.arguments[0]:
            low, step = self.along(owner.operands[0]), self.along(owner.operands[2])
            return Along(1, 0, math.gcd(low.divisor, step.divisor))
        return _unknown(value)

    def _stretched(self, op: ir.Operation) -> Along:
        """A row of one element has it as often as is asked for."""
        before, shape = self.along(op.operands[0]), tt.shape_of(op.results[0])
        last = len(shape) - 1
        new = ir.IntegerAttr(op.attributes["axis"]).value == last if op.name == "tt.expand_dims" else False
        if new:
            return Along(1, 0, _of_each(before))
        return Along(1, 0, before.divisor) if tt.shape_of(op.operands[0])[-1] < shape[-1] else before

    def _combined(self, op: ir.Operation, parts: list[Along]) -> Along:
        equal = math.gcd(*(part.equal for part in parts))
        if op.name in _SUMS:
            a, b = parts
            run = max(math.gcd(a.run, b.equal), 1 if op.name == "arith.subi" else math.gcd(a.equal, b.run))
            return Along(run, equal, math.gcd(a.at(run), b.at(run)))
        if op.name == "arith.muli":
            return Along(1, equal, math.prod(map(_of_each, parts)))
        if op.name == "arith.cmpi" and ir.IntegerAttr(op.attributes["predicate"]).value in _AT_MULTIPLES:
            a, b = parts
            return Along(1, equal and max(equal, math.gcd(a.run, b.equal, a.divisor, _of_each(b))), 1)
        if op.name in _COMMON:
            return Along(1, equal, math.gcd(*map(_of_each, parts[-2:])))
        return Along(1, equal, 1)


def _unknown(value: ir.Value) -> Along:
    return Along() if tt.shape_of(value) else Along(1, 0, 1)


def _of_each(values: Along) -> int:
    """What every element is a multiple of."""
    return values.divisor if values.run == 1 else 1


def _of_constant(op: ir.Operation) -> Along:
    attr = op.attributes["value"]
    if isinstance(attr, ir.DenseElementsAttr):
        if not attr.is_splat:
            return Along()
        attr = attr.get_splat_value()
    return Along(1, 0, _power(attr.value) if isinstance(attr, ir.IntegerAttr) else 1)


def _power(number: int) -> int:
    """The power of two that divides it; 0 for 0."""
    return number & -number


def element_bytes(value: ir.Value) -> int:
    return ttir_type(value).bits // 8


def _bytes_of_pointee(pointer: ir.Value) -> int:
    """1 for what is no pointer."""
    pointee = ttir_type(pointer).pointee
    return TtirType(None, pointee).bits // 8 if pointee else 1
