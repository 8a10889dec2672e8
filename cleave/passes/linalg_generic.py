"""A ``linalg.generic`` read: its loops, its maps, and how its body combines what it reduces."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from cleave.bindings import ir
from cleave.passes.linalg_body import Unraisable

Kind = Literal["sum", "prod", "max", "min", "maxnum", "minnum"]

#: The ops that combine an accumulator with a term, whether they are so on i1, and the reduction that this is.
_COMBINERS: dict[tuple[str, bool], Kind] = {
    ("arith.addf", False): "sum", ("arith.subf", False): "sum", ("arith.addi", False): "sum",
    ("arith.subi", False): "sum", ("arith.mulf", False): "prod", ("arith.muli", False): "prod",
    ("arith.maximumf", False): "max", ("arith.maxsi", False): "max", ("arith.minimumf", False): "min",
    ("arith.minsi", False): "min", ("arith.andi", True): "min", ("arith.muli", True): "min", ("arith.ori", True): "max",
    ("arith.maxnumf", False): "maxnum", ("arith.minnumf", False): "minnum",
}  # fmt: skip
_SUBTRACTIONS = ("arith.subf", "arith.subi")
_PRODUCTS = ("arith.mulf", "arith.muli")


@dataclass(frozen=True)
class Term:
    """A value of the body that a reduction combines with the accumulator; ``negative``: it is subtracted."""

    value: ir.Value
    negative: bool


@dataclass(frozen=True)
class Reduction:
    kind: Kind
    terms: tuple[Term, ...]

    @property
    def factors(self) -> tuple[ir.Value, ir.Value] | None:
        """The two factors, where this is a sum of products."""
        if self.kind != "sum" or len(self.terms) != 1 or self.terms[0].negative:
            return None
        owner = self.terms[0].value.owner
        if isinstance(owner, ir.Block) or owner.name not in _PRODUCTS:
            return None
        return owner.operands[0], owner.operands[1]


class Generic:
    """Loops are numbered as in the op; a map is the loop of each axis, None where the axis is the constant 0."""

    def __init__(self, op: ir.Operation) -> None:
        if not op.results:
            raise Unraisable("it works on memory, not on tensors")
        self.op = op
        self.block = op.regions[0].blocks[0]
        self.reduced = ["reduction" in str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
        self.maps = [self._map(attribute) for attribute in ir.ArrayAttr(op.attributes["indexing_maps"])]
        self.inputs = len(op.operands) - len(op.results)
        self.outputs = [self.block.arguments[self.inputs + i] for i in range(len(op.results))]
        self.reads = [view.operation for view in self.block.operations if view.operation.name == "tensor.extract"]
        self.yields = list(list(self.block.operations)[-1].operation.operands)
        for map_ in self.maps[self.inputs :]:
            if sorted(loop for loop in map_ if loop is not None) != self.parallel:
                raise Unraisable("an output map that is no permutation of the parallel loops")

    def _map(self, attribute: ir.Attribute) -> tuple[int | None, ...]:
        map_ = ir.AffineMapAttr(attribute).value
        loops: list[int | None] = []
        for result in map_.results:
            if isinstance(result, ir.AffineDimExpr):
                loops.append(result.position)
            elif isinstance(result, ir.AffineConstantExpr) and result.value == 0:
                loops.append(None)
            else:
                raise Unraisable(f"the indexing map {map_}")
        used = [loop for loop in loops if loop is not None]
        if len(set(used)) != len(used):
            raise Unraisable(f"the indexing map {map_}, which has a loop twice")
        return tuple(loops)

    @property
    def parallel(self) -> list[int]:
        return [loop for loop, reduced in enumerate(self.reduced) if not reduced]

    @property
    def reductions(self) -> list[int]:
        return [loop for loop, reduced in enumerate(self.reduced) if reduced]

    @property
    def output_order(self) -> list[int]:
        """The loops as the first output has them, then the reductions."""
        return [loop for loop in self.maps[self.inputs] if loop is not None] + self.reductions

    @cached_property
    def read_outputs(self) -> list[bool]:
        """For each output, whether its initial value counts."""
        return [any(True for _ in argument.uses) for argument in self.outputs]

    def local(self, value: ir.Value) -> ir.Operation | None:
        """The op of the body that makes ``value``; None for what comes from elsewhere."""
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.operation.block != self.block:
            return None
        return owner.operation

    def arguments_of(self, value: ir.Value) -> frozenset[int]:
        """The numbers of the block arguments that ``value`` is computed from."""
        if isinstance(value.owner, ir.Block):
            return frozenset(i for i, argument in enumerate(self.block.arguments) if argument == value)
        if self.local(value) is None:
            return frozenset()
        if value not in self._arguments:
            self._arguments[value] = frozenset().union(*(self.arguments_of(o) for o in value.owner.operands))
        return self._arguments[value]

    @cached_property
    def _arguments(self) -> dict[ir.Value, frozenset[int]]:
        return {}

    def loops_of(self, value: ir.Value) -> frozenset[int]:
        """The loops along which ``value`` varies, ``linalg.index`` aside."""
        return frozenset(loop for number in self.arguments_of(value) for loop in self.maps[number] if loop is not None)

    def reduction(self, result: int) -> Reduction:
        """How result ``result`` is reduced. Unraisable where the body is no combination of accumulator and terms."""
        accumulator, root = self.outputs[result], self.yields[result]
        owner = self.local(root)
        kind = _COMBINERS.get((owner.name, str(root.type) == "i1")) if owner else None
        if kind is None:
            raise Unraisable(f"its body reduces by '{owner.name}'" if owner else "its body keeps the last value only")
        terms = self._terms(root, accumulator, kind, False)
        if terms.count(None) != 1:
            raise Unraisable("its body does not have the accumulator exactly once")
        found = tuple(term for term in terms if term is not None)
        accumulators = frozenset(range(self.inputs, len(self.block.arguments)))
        if any(self.arguments_of(term.value) & accumulators for term in found):
            raise Unraisable("its body computes a term from an accumulator")
        return Reduction(kind, found)

    def _terms(self, value: ir.Value, accumulator: ir.Value, kind: Kind, negative: bool) -> list[Term | None]:
        """The terms under combiners of ``kind``; None stands for the accumulator."""
        if value == accumulator:
            if negative:
                raise Unraisable("its body subtracts the accumulator")
            return [None]
        number = self.inputs + self.outputs.index(accumulator)
        owner = self.local(value)
        if number not in self.arguments_of(value) or owner is None:
            return [Term(value, negative)]
        if _COMBINERS.get((owner.name, str(value.type) == "i1")) != kind:
            raise Unraisable(f"its body applies '{owner.name}' to the accumulator")
        left, right = owner.operands
        flipped = negative != (owner.name in _SUBTRACTIONS)
        return [*self._terms(left, accumulator, kind, negative), *self._terms(right, accumulator, kind, flipped)]
