"""What the rules share: the machine that walks blocks, and the table's types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cleave.bindings import ir
from cleave.dialects.tensor_type import TensorType
from cleave.errors import CleaveError
from cleave.reference.numerics import Array, Numerics
from cleave.reference.symbols import Symbols

#: What an op does with its operands' values: None, a result, or a tuple of results.
Step = Callable[..., Any]
#: An op's rule: reads what is static of the op once and returns its step.
Rule = Callable[["Machine", ir.Operation], Step]

TERMINATORS = frozenset(("func.return", "linalg.yield", "scf.yield", "tensor.yield", "scf.condition"))


@dataclass(frozen=True, eq=False)
class Meeting:
    """What a block waits for: that ``count`` blocks have counted themselves at one place."""

    counters: Array
    group: int
    count: int

    @property
    def is_complete(self) -> bool:
        return self.counters[self.group] >= self.count

    def step(self) -> None:
        """On arrival and when going on; the last one leaves a zero."""
        self.counters[self.group] = (self.counters[self.group] + 1) % (2 * self.count)


class Machine:
    """Runs functions of one module; ``symbols`` are those of the function that is running."""

    def __init__(self, module: ir.Operation, rules: Mapping[str, Rule], numerics: Numerics) -> None:
        self.rules, self.numerics = rules, numerics
        self._module = module  # its ops live as long as it does
        self.functions = {
            ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation
            for op in module.regions[0].blocks[0].operations
            if op.operation.name == "func.func"
        }
        self.symbols = Symbols()
        self.program_id: tuple[int, ...] = ()
        self.loops: list[Array] = []  # of the linalg.generic whose body is running
        self._frame: dict[ir.Value, Any] = {}
        self._compiled: dict[ir.Block, Any] = {}

    def call(self, func: ir.Operation, arguments: Sequence[Any], symbols: Symbols) -> tuple[Any, ...]:
        """Run a function on values whose symbols are bound already."""
        if not func.regions[0].blocks:
            raise CleaveError(f"function '{func.attributes['sym_name']}' has no body", location_of(func))
        outer = self._frame, self.symbols
        self._frame, self.symbols = {}, symbols
        try:
            return self.run_block(func.regions[0].blocks[0], arguments)
        finally:
            self._frame, self.symbols = outer

    def run_blocks(
        self, func: ir.Operation, arguments: Sequence[Any], symbols: Symbols, places: Iterable[tuple[int, ...]]
    ) -> None:
        """Run a kernel for each place of a grid, one block after the other as far as they need not wait."""
        outer = self._frame, self.symbols, self.program_id
        waiting: list[Iterator[Meeting]] = []
        try:
            for place in places:
                block = self._block(func, arguments, symbols, place)
                waiting += [block] if next(block, None) else []
            while waiting:
                still = [block for block in waiting if next(block, None)]
                if len(still) == len(waiting):
                    raise CleaveError(f"{len(still)} blocks wait for others that do not come", location_of(func))
                waiting = still
        finally:
            self._frame, self.symbols, self.program_id = outer

    def _block(
        self, func: ir.Operation, arguments: Sequence[Any], symbols: Symbols, program_id: tuple[int, ...]
    ) -> Iterator[Meeting]:
        """Run a kernel for one thread block; yields where it has to wait for others."""
        block = func.regions[0].blocks[0]
        if block not in self._compiled:
            self._compiled[block] = self._compile(block)
        parameters, steps, _ = self._compiled[block]
        frame = dict(zip(parameters, arguments, strict=True))
        for op, step, operands, results in steps:
            self._frame, self.symbols, self.program_id = frame, symbols, program_id
            value = self._evaluate(op, step, operands, results)
            if isinstance(value, Meeting):
                value.step()
                while not value.is_complete:
                    yield value
                value.step()

    def _evaluate(self, op: ir.Operation, step: Step, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        try:
            value = step(*[self._frame[operand] for operand in operands])
        except CleaveError as error:
            raise error.at(location_of(op)) from None
        for result, part in zip(results, value if isinstance(value, tuple) else (value,), strict=False):
            self._frame[result] = part
        return value

    def run_block(self, block: ir.Block, arguments: Sequence[Any] = ()) -> tuple[Any, ...]:
        """Run a block in the present frame; the values that its terminator passes on."""
        if block not in self._compiled:
            self._compiled[block] = self._compile(block)
        parameters, steps, returned = self._compiled[block]
        frame = self._frame
        for parameter, argument in zip(parameters, arguments, strict=True):
            frame[parameter] = argument
        for op, step, operands, results in steps:
            if isinstance(self._evaluate(op, step, operands, results), Meeting):
                raise CleaveError("a block waits for others inside a loop", location_of(op))
        return tuple(frame[value] for value in returned)

    def _compile(self, block: ir.Block) -> Any:
        steps: list[Any] = []
        for view in block.operations:
            op = view.operation
            if op.name in TERMINATORS:
                return list(block.arguments), steps, list(op.operands)
            if op.name not in self.rules:
                raise CleaveError(f"the reference executor has no rule for '{op.name}'", location_of(op))
            try:
                step = self.rules[op.name](self, op)
            except CleaveError as error:
                raise error.at(location_of(op)) from None
            steps.append((op, step, list(op.operands), list(op.results)))
        return list(block.arguments), steps, []

    def shape(self, type_: TensorType, extents: Sequence[int | None]) -> tuple[int, ...]:
        """The extents of an encoded type: the static ones, the others by the sizes' values."""
        return tuple(
            self.symbols.evaluate(dim) if extent is None else extent
            for dim, extent in zip(type_.dims, extents, strict=True)
        )


def location_of(op: ir.Operation) -> str:
    """``file:line:col`` where the op has such a location."""
    location = op.location
    if location.is_a_file():
        return f"{location.filename}:{location.start_line}:{location.start_col}"
    return str(location)


def element_dtype(type_: ir.Type) -> str:
    """The dtype's name of a scalar or of a tensor's elements."""
    return str(type_.element_type) if isinstance(type_, ir.ShapedType) else str(type_)


def integers(attribute: ir.Attribute) -> list[int]:
    """The entries of a dense integer array attribute."""
    return [int(entry) for entry in attribute]  # pyright: ignore[reportGeneralTypeIssues]


def as_index(value: Any) -> int:
    """A scalar as a Python integer; CleaveError where it is another one for each element of a ``linalg.generic``."""
    array = np.asarray(value)
    if array.size != 1:
        raise CleaveError("an index or extent that depends on the element is not supported here")
    return int(array.reshape(()))


__all__ = ["Array", "Machine", "Meeting", "Rule", "Step", "as_index", "element_dtype", "integers", "location_of"]
