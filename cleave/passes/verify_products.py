"""What a kernel computes that a library may stand for: one product of two tensors in memory, and nothing else.

The kernel is followed from what it stores back to what it loads. Where tiles begin and end is not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.rounding import widens
from cleave.errors import CleaveError
from cleave.passes.functions import ops_inside

_CONTRACTIONS = ("cleave.contract", "cleave.mul")
"""The latter where a loop takes one element of each dim that is summed over at a time."""
_ACCUMULATORS = ("f32", "f64")
_NO_NUMBERS = frozenset(
    f"{dialect}.{op}"
    for dialect, ops in (("cleave", "extent program_id wait trigger"), ("scf", "for yield"), ("func", "return"))
    for op in ops.split()
)
"""Ops that make no element of a tensor."""
_NOTE = "a library makes the plain product of two tensors: take cleave.product from the call"


def kernel_problems(kernel: ir.Operation) -> Iterator[CleaveError]:
    """Why the kernel, of whose three tensors one is its result, is no plain product, at the op; none if it is one."""
    try:
        _Product(kernel).check()
    except CleaveError as error:
        yield CleaveError(error.message, error.location, (*error.notes, _NOTE))


class _Product:
    """A kernel while it is followed; ``used`` has the results and stores that its product needs."""

    def __init__(self, kernel: ir.Operation) -> None:
        arguments, marks = list(kernel.regions[0].blocks[0].arguments), ir.ArrayAttr(kernel.attributes["arg_attrs"])
        out = next(number for number, mark in enumerate(marks) if "cleave.out" in ir.DictAttr(mark))
        self.kernel, self.out, self.operands = kernel, arguments[out], arguments[:out] + arguments[out + 1 :]
        self.used: set[ir.Value] = set()

    def check(self) -> None:
        stores = [op for op in ops_inside(self.kernel) if op.name == "cleave.store"]
        if len(stores) != 1 or stores[0].operands[1] != self.out:
            at = stores[-1] if stores else self.kernel
            raise _refused(at, f"a product has one store, of its result, and this kernel {len(stores)}")
        tile = stores[0].operands[0]
        if _name(tile) == "cleave.cast":
            tile = self._operand(tile)
        summands = self._summands(tile)
        if summands.total() != 1 or not all(map(_is_result, summands)):
            raise _refused(stores[0], "what is stored is not the sum of one contraction")
        for op in ops_inside(self.kernel):
            self._check_used(op)

    def _check_used(self, op: ir.Operation) -> None:
        tiles = [value for value in op.results if isinstance(value.type, ir.ShapedType)]
        known = op.name in _NO_NUMBERS or op.name.startswith("arith.") or op.name == "cleave.store"
        if not (known or tiles) or not all(tile in self.used for tile in tiles):
            raise _refused(op, f"'{op.name}' is no part of a product")

    # --- sums ---

    def _summands(self, value: ir.Value) -> Counter[ir.Value]:
        """The contractions, sums of loops, and what loops carry, of which a tile is the sum, each as often as it is."""
        self.used.add(value)
        if isinstance(value.owner, ir.Block):
            return Counter([value])
        op = value.owner.operation
        if op.name == "cleave.add":
            return self._summands(op.operands[0]) + self._summands(op.operands[1])
        if op.name == "scf.for":
            return self._carried(op, ir.OpResult(value).result_number) + Counter([value])
        if op.name == "cleave.constant":
            if cleave.plain("number", op.attributes["value"]) != 0:
                raise _refused(op, "a product is summed up from 0")
            return Counter()
        if op.name not in _CONTRACTIONS:
            raise _refused(op, f"'{op.name}' is no part of a product")
        self._check_contraction(op)
        return Counter([value])

    def _carried(self, loop: ir.Operation, number: int) -> Counter[ir.Value]:
        """What the loop begins with, but for the sum of one before it that ends where this one begins."""
        body, start = loop.regions[0].blocks[0], loop.operands[3 + number]
        *_, end = body.operations
        own = body.arguments[1 + number]
        found = self._summands(end.operation.operands[number])
        if found[own] != 1 or found.total() != 2 or not any(_is_result(value) for value in found):
            raise _refused(loop, "the loop of a product adds one contraction to what it carries")
        summands = self._summands(start)
        if _name(start) == "scf.for" and _owner(start).operands[1] == loop.operands[0]:
            del summands[start]
        return summands

    # --- contractions ---

    def _check_contraction(self, op: ir.Operation) -> None:
        a, b, out = (set(cleave.tensor_type_of(value).names) for value in (*self.operands, self.out))
        left, right = (set(cleave.tensor_type_of(value).names) & a & b for value in op.operands)
        over = cleave.plain("strings", op.attributes["over"]) if "over" in op.attributes else ()
        if left != right or {*over} != left - out:
            raise _refused(
                op, f"a product is summed over what its result lacks of {sorted((a & b) - out)} in its tiles"
            )
        if cleave.tensor_type_of(op.results[0]).dtype not in _ACCUMULATORS:
            raise _refused(op, f"a product is summed up in {' or '.join(_ACCUMULATORS)}")
        loaded = [self._loaded(operand) for operand in op.operands]
        if loaded not in (self.operands, self.operands[::-1]):
            raise _refused(op, "a product is of its kernel's two operands, and this one of one with itself")

    def _loaded(self, value: ir.Value) -> ir.Value:
        """The tensor in memory of which a tile is a part, with no number changed."""
        self.used.add(value)
        name = _name(value)
        if name == "cleave.cast":
            source = self._operand(value)
            narrow, wide = (cleave.tensor_type_of(each).dtype for each in (source, value))
            if not widens(narrow, wide):
                raise _refused(_owner(value), f"the operands of a product are as they are in memory, not as {wide}")
            return self._loaded(source)
        if name != "cleave.load":
            at = self.kernel if isinstance(value, ir.BlockArgument) else _owner(value)
            raise _refused(at, f"the operands of a product are loads, not '{name}'")
        if cleave.plain("number", _owner(value).attributes["fill"]) != 0:
            raise _refused(_owner(value), "past the end of an operand a product has 0")
        return _owner(value).operands[0]

    def _operand(self, value: ir.Value) -> ir.Value:
        self.used.add(value)
        return _owner(value).operands[0]


def _owner(value: ir.Value) -> ir.Operation:
    assert not isinstance(value.owner, ir.Block)
    return value.owner.operation


def _name(value: ir.Value) -> str:
    return "a block's argument" if isinstance(value.owner, ir.Block) else value.owner.name


def _is_result(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block)


def _refused(op: ir.Operation, text: str) -> CleaveError:
    return CleaveError(text, op.location)
