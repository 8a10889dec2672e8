"""Tile programs: kernels over static tiles, and the host steps that launch them. Plain data, one to one with the IR.

A ``Ref`` is an SSA value: a tile or a tensor in memory (``type`` is its ``TensorType``) or an index (``type`` is None).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from cleave.dialects import ops
from cleave.dialects.dims import Dim, Size, const
from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import TensorType

LOADS = frozenset(("load", "gather_load"))
"""The instructions that read tensors in memory, their first operand."""


@dataclass(frozen=True, eq=False)
class Ref:
    """An SSA value of a kernel; equality is identity.

    ``row``: of a tensor in memory, how many elements the rows have of which its own are parts, if they are.
    """

    type: TensorType | None = None
    row: Size | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        return self.type.names if self.type else ()

    @cached_property
    def elements(self) -> int:
        """Of a tile; dims of unknown size count as one."""
        return math.prod(dim.size.value or 1 for dim in self.type.dims) if self.type else 1

    @property
    def tile(self) -> TensorType:
        """The type of a tile; an error in our own code for an index."""
        assert self.type is not None
        return self.type


@dataclass(frozen=True, eq=False)
class Instruction:
    """One op of a kernel: a row of the op table by its name, ``arith.*`` on indices, or ``scf.for`` with a body.

    ``scf.if`` has two bodies and no results.
    """

    op: str
    operands: tuple[Ref, ...]
    results: tuple[Ref, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    body: Block | None = None
    location: str | None = None
    otherwise: Block | None = None

    @property
    def bodies(self) -> tuple[Block, ...]:
        if self.body is None and self.otherwise is None:
            return ()
        return tuple(block for block in (self.body, self.otherwise) if block)

    @property
    def result(self) -> Ref:
        return self.results[0]


@dataclass(eq=False)
class Block:
    """Instructions in order; a loop's block has its index and accumulators as arguments and yields the new ones."""

    arguments: tuple[Ref, ...] = ()
    instructions: list[Instruction] = field(default_factory=list)
    yields: tuple[Ref, ...] = ()

    def walk(self) -> Iterator[Instruction]:
        """All instructions, those of loops after the loop itself."""
        for instruction in self.instructions:
            yield instruction
            if instruction.body:
                for body in instruction.bodies:
                    yield from body.walk()


@dataclass(frozen=True)
class Order:
    """Which tiles the thread blocks compute, one after the other: the last of ``axes`` (dim, tiles) varies fastest.

    With a ``group`` of g > 1, the last two axes are gone through in bands of g tiles of the first of the two, each band
    along that one first: blocks that run together share more of what they read.
    """

    axes: tuple[tuple[str, Size], ...]
    group: int = 1


@dataclass(frozen=True, eq=False)
class Kernel:
    """A grid of thread blocks that run ``body``; ``outputs`` are those of ``arguments`` that it writes.

    ``descriptors``: matrices are loaded through tensor descriptors where that is possible, not through pointers.
    ``warp_specialised``: one warp copies and others compute, where the target and the lowering permit it.
    ``order``: in which the grid goes through the output, where that is known. ``beside``: the kernels that it runs side
    by side, if it does.
    """

    name: str
    arguments: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    grid: tuple[Size, ...]
    body: Block
    num_warps: int
    num_stages: int
    descriptors: bool = False
    warp_specialised: bool = False
    roles: Mapping[Ref, Ref] = field(default_factory=dict[Ref, Ref])
    order: Order | None = None
    beside: tuple[Kernel, ...] = ()


@dataclass(frozen=True, eq=False)
class Launch:
    """Run ``kernel`` on the tensors that hold these graph values, in the order of its arguments.

    ``overlaps``: it may start before the launch in front of it is complete; its kernel waits for that itself.
    ``cooperative``: all its blocks run at once. ``unless``: the kernel of a cooperative launch, without which (the GPU
    has no room for all its blocks) this launch is made. ``product``: a library makes it where there is one,
    by its first algorithm, the second and so on.
    """

    kernel: Kernel
    operands: tuple[Value, ...]
    overlaps: bool = False
    cooperative: bool = False
    unless: str = ""
    product: int = 0


@dataclass(frozen=True, eq=False)
class TileProgram:
    """``graph`` scheduled: memory for each value in ``allocated``, zeros for ``counters``, then the launches in order.

    ``choices``: what symbols that no input binds (split counts) are, unless the launch says otherwise.
    ``aligned``: the same function for sizes that meet its graph's facts as well, to be run wherever they do.
    """

    graph: Graph
    allocated: tuple[Value, ...]
    launches: tuple[Launch, ...]
    choices: Mapping[str, int] = field(default_factory=dict)
    counters: tuple[Value, ...] = ()
    aligned: TileProgram | None = None

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(dict.fromkeys(launch.kernel for launch in self.launches))


def has_loops(kernel: Kernel) -> bool:
    return any(instruction.op == "scf.for" for instruction in kernel.body.walk())


def tile_type(dims: Sequence[tuple[str, int]], dtype: str) -> TensorType:
    """The type of a tile with these static extents."""
    return _tile_type(tuple(dims), dtype)


@lru_cache(maxsize=1 << 12)
def _tile_type(dims: tuple[tuple[str, int], ...], dtype: str) -> TensorType:
    return TensorType(tuple(Dim(name, const(extent)) for name, extent in dims), dtype)


def _result_type(
    op: str, types: tuple[TensorType, ...], attrs: Mapping[str, Any], order: tuple[str, ...] | None, dtype: str | None
) -> TensorType:
    """That of a compute op, with its dims in this order and of this dtype if these are given."""
    inferred = ops.infer(op, types, attrs)
    dims = inferred.dims if order is None else tuple([Dim(name, inferred.size(name)) for name in order])
    return TensorType(dims, dtype or inferred.dtype)


@lru_cache(maxsize=1 << 12)
def _pointwise_type(
    op: str,
    types: tuple[TensorType, ...],
    attrs: tuple[tuple[str, Any], ...],
    order: tuple[str, ...] | None,
    dtype: str | None,
) -> TensorType:
    return _result_type(op, types, dict(attrs), order, dtype)


class TileBuilder:
    """Appends instructions to a block; constants and extents are made once, index arithmetic folds constants."""

    def __init__(self, block: Block, outer: TileBuilder | None = None) -> None:
        self.block = block
        self.outer = outer
        self._indices: dict[Any, Ref] = {}
        self._constants: dict[Ref, int] = outer._constants if outer else {}

    def add(
        self, op: str, operands: Sequence[Ref], type_: TensorType | None, location: str | None = None, **attrs: Any
    ) -> Ref:
        """Append an op with one result of this type."""
        result = Ref(type_)
        attrs = {key.rstrip("_"): value for key, value in attrs.items()}
        self.block.instructions.append(Instruction(op, tuple(operands), (result,), attrs, None, location))
        return result

    def compute(
        self,
        op: str,
        *operands: Ref,
        dtype: str | None = None,
        order: Sequence[str] | None = None,
        location: str | None = None,
        **attrs: Any,
    ) -> Ref:
        """Append a compute op of the table, its type inferred."""
        attrs = {key.rstrip("_"): value for key, value in attrs.items()}
        types = tuple([operand.tile for operand in operands])
        names = None if order is None else tuple(order)
        if op in ops.POINTWISE:
            type_ = _pointwise_type(op, types, tuple(attrs.items()), names, dtype)
        else:
            type_ = _result_type(op, types, attrs, names, dtype)
        return self.add(op, operands, type_, location, **attrs)

    def cast(self, tile: Ref, dtype: str) -> Ref:
        return tile if tile.tile.dtype == dtype else self.compute("cast", tile, dtype=dtype)

    def fill(self, value: float | int, type_: TensorType) -> Ref:
        """A tile of one value."""
        return self.add("constant", (), type_, value=value)

    def index(self, value: int) -> Ref:
        """An index constant, made in the outermost block."""
        return self._once(("constant", value), "arith.constant", value)

    def extent(self, size: Size, known: Mapping[str, int]) -> Ref:
        """A size's value at run time; a constant where ``known`` fixes its symbols."""
        value = size.value if size.value is not None else size.evaluate(known) if size.symbols <= known.keys() else None
        return self.index(value) if value is not None else self._once(("extent", size), "extent", str(size))

    def _once(self, key: Any, op: str, attr: int | str) -> Ref:
        if self.outer:
            return self.outer._once(key, op, attr)
        if key not in self._indices:
            result = Ref()
            name = "value" if op == "arith.constant" else "size"
            self.block.instructions.insert(len(self._indices), Instruction(op, (), (result,), {name: attr}))
            self._indices[key] = result
            if isinstance(attr, int):
                self._constants[result] = attr
        return self._indices[key]

    def constant_of(self, index: Ref) -> int | None:
        return self._constants.get(index)

    def arith(self, op: str, a: Ref, b: Ref) -> Ref:
        """``addi muli subi divui remui minui maxui minsi maxsi`` on indices."""
        x, y = self.constant_of(a), self.constant_of(b)
        if x is not None and y is not None:
            return self.index(_FOLD[op](x, y))
        if (
            (op in ("addi", "subi") and y == 0)
            or (op in ("muli", "divui") and y == 1)
            or (a is b and op in _IDEMPOTENT)
        ):
            return a
        if (op == "addi" and x == 0) or (op == "muli" and x == 1):
            return b
        if op == "remui" and y == 1:
            return self.index(0)
        return self.add(f"arith.{op}", (a, b), None)


_IDEMPOTENT = ("minui", "maxui", "minsi", "maxsi")
_FOLD = {
    "addi": lambda x, y: x + y,
    "subi": lambda x, y: x - y,
    "muli": lambda x, y: x * y,
    "divui": lambda x, y: x // y,
    "remui": lambda x, y: x % y,
    "minui": min,
    "minsi": min,
    "maxsi": max,
    "maxui": max,
}
