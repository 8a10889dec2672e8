"""Where Triton puts the elements of tensors: layouts of registers and of shared memory, as TTGIR spells them (sm_90).

Everything is for one warpgroup of four warps, the unit that issues ``wgmma``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.lowering.tt import Shape

WARPS = 4
ROWS = 64
"""Of one ``wgmma``: 16 for each warp."""
_LARGEST_COLUMNS = 256
_SWIZZLES = (128, 64, 32)  # bytes


@dataclass(frozen=True)
class Mma:
    """The accumulator of ``wgmma`` with so many columns, for operands of 16 bits."""

    columns: int

    def __str__(self) -> str:
        shape = f"instrShape = [16, {self.columns}, 16]"
        return f"#ttg.nvidia_mma<{{versionMajor = 3, versionMinor = 0, warpsPerCTA = [{WARPS}, 1], {shape}}}>"


@dataclass(frozen=True)
class Blocked:
    """Rows of 16 bytes for each thread where the tile is wide enough."""

    size: Shape
    threads: Shape
    warps: Shape

    def __str__(self) -> str:
        order = ", ".join(str(axis) for axis in reversed(range(len(self.size))))
        parts = zip(
            ("sizePerThread", "threadsPerWarp", "warpsPerCTA"), (self.size, self.threads, self.warps), strict=True
        )
        text = ", ".join(f"{name} = {list(extents)}" for name, extents in parts)
        return f"#ttg.blocked<{{{text}, order = [{order}]}}>"


@dataclass(frozen=True)
class Slice:
    """What is left of a layout without one dimension."""

    dim: int
    parent: Encoding

    def __str__(self) -> str:
        return f"#ttg.slice<{{dim = {self.dim}, parent = {self.parent}}}>"


@dataclass(frozen=True)
class LeftOperand:
    """Operand A of a product with this accumulator, in registers."""

    parent: Mma

    def __str__(self) -> str:
        return f"#ttg.dot_op<{{opIdx = 0, parent = {self.parent}, kWidth = 2}}>"


@dataclass(frozen=True)
class Linear:
    """Where each bit of the number of a register, a lane or a warp leads: so far along each dimension."""

    register: tuple[Shape, ...]
    lane: tuple[Shape, ...]
    warp: tuple[Shape, ...]

    def __str__(self) -> str:
        bits = (("register", self.register), ("lane", self.lane), ("warp", self.warp), ("block", ()))
        return f"#ttg.linear<{{{', '.join(f'{name} = {[list(bit) for bit in found]}' for name, found in bits)}}}>"

    def mapped(self, place: Callable[[int, int], Shape]) -> Linear:
        """The layout of a view of a matrix, whose element is at ``place`` of its row and column."""
        return Linear(*(tuple(place(*bit) for bit in found) for found in (self.register, self.lane, self.warp)))


Encoding = Mma | Blocked | Slice | LeftOperand | Linear


def accumulator(columns: int) -> Mma:
    return Mma(min(columns, _LARGEST_COLUMNS))


def accumulator_bits(shape: Shape) -> Linear:
    """The layout of an accumulator of one ``wgmma``'s columns, bit by bit: a thread has pairs of neighbours, eight rows
    below these the next pair, and so on eight columns further."""
    rows, columns = shape
    wide = tuple((0, 1 << bit) for bit in range(3, columns.bit_length() - 1))
    tall = tuple((1 << bit, 0) for bit in range(6, rows.bit_length() - 1))
    lanes = ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))
    return Linear(((0, 1), (8, 0), *wide, *tall), lanes, ((16, 0), (32, 0)))


def default(shape: Shape) -> Encoding:
    """For a tile whose layout nothing else says: like an accumulator where it can be one."""
    if len(shape) == 2 and shape[0] % ROWS == 0 and shape[1] % 8 == 0:
        return accumulator(shape[1])
    return _blocked(shape)


def reduced(shape: Shape, axis: int) -> Encoding:
    """For a tile that is reduced along ``axis``: of more than two dims each thread has all of these elements."""
    *outer, columns = shape
    if len(shape) < 3 or axis == len(outer):
        return default(shape)
    inner = max(1, min(4, columns))
    lanes = max(1, min(32, columns // inner))
    rest = next((place for place in reversed(range(len(outer))) if place != axis), 0)
    threads = [32 // lanes if place == rest else 1 for place in range(len(outer))]
    warps = [WARPS if place == rest else 1 for place in range(len(outer))]
    return Blocked((*(1 for _ in outer), inner), (*threads, lanes), (*warps, 1))


def _blocked(shape: Shape) -> Blocked:
    inner = max(1, min(8, shape[-1]))
    lanes = max(1, min(32, shape[-1] // inner))
    ones = (1,) * (len(shape) - 1)
    if not ones:
        return Blocked((inner,), (32,), (WARPS,))
    return Blocked((*ones, inner), (*ones[1:], 32 // lanes, lanes), (WARPS, *ones))


def tensor(shape: Shape, element: ir.Type, encoding: Encoding) -> ir.Type:
    return ir.RankedTensorType.get(list(shape), element, ir.Attribute.parse(str(encoding)))


# --- shared memory ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedMatrix:
    """A matrix as copies by descriptors write it and ``wgmma`` reads it. ``rank`` is that of the descriptor's block."""

    swizzle: int  # bytes
    bits: int
    transposed: bool = False
    rank: int = 2

    def __str__(self) -> str:
        rank = f", rank = {self.rank}" if self.rank != 2 else ""
        flipped = str(self.transposed).lower()
        text = f"swizzlingByteWidth = {self.swizzle}, transposed = {flipped}, elementBitWidth = {self.bits}{rank}"
        return f"#ttg.nvmma_shared<{{{text}}}>"


def swizzle_of(columns: int, bits: int) -> int | None:
    """The widest swizzle that rows of so many elements fill; None if they are too short for any."""
    return next((width for width in _SWIZZLES if columns * bits >= 8 * width), None)


def memdesc(shape: Shape, element: str, encoding: SharedMatrix | str, within: Shape | None = None) -> ir.Type:
    """``within``: the extents of the buffer of which it is a part."""
    extents = "x".join(map(str, shape))
    around = f", {'x'.join(map(str, within))}" if within else ""
    return ir.Type.parse(f"!ttg.memdesc<{extents}x{element}, {encoding}, #ttg.shared_memory, mutable{around}>")


def unswizzled(rank: int) -> str:
    """A tile as it is, the last dimension's elements side by side."""
    order = ", ".join(str(axis) for axis in reversed(range(rank)))
    return f"#ttg.swizzled_shared<{{vec = 1, perPhase = 1, maxPhase = 1, order = [{order}]}}>"


_BARRIER = unswizzled(1)


def barriers(count: int) -> ir.Type:
    return memdesc((count, 1), "i64", _BARRIER)


def barrier() -> ir.Type:
    return memdesc((1,), "i64", _BARRIER)
