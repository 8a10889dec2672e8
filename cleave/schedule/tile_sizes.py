"""How large tiles are, and what contractions of them are to the hardware."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cleave.schedule.tile_program import Instruction, Ref

BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "tf32": 4, "f16": 2, "bf16": 2, "i16": 2, "index": 8}


def elements_of(ref: Ref) -> int:
    """Elements of a tile; 1 for an index."""
    return ref.elements


def bytes_of(ref: Ref) -> int:
    return elements_of(ref) * BYTES.get(ref.tile.dtype, 1)


def is_tensor_core(contraction: Instruction) -> bool:
    """Whether tiles of these shapes and types go to the tensor cores."""
    rows, columns, depth = contraction_shape(contraction)
    types = {operand.tile.dtype for operand in contraction.operands}
    return types <= {"f16", "bf16", "tf32", "f8E4M3FN", "f8E5M2"} and min(rows, depth) >= 16 and columns >= 8


def contraction_shape(contraction: Instruction) -> tuple[int, int, int]:
    """(rows, columns, depth): extents of the dims that the result has first and last, each of one operand alone, and
    of those summed; 0 where dims of both operands are kept. Fewer than 16 rows are taken for columns."""
    a, b = contraction.operands
    summed, left, right = set(contraction.attrs["over"]), set(a.names), set(b.names)
    if (left & right) - summed:
        return 0, 0, 0
    sides = [(_extent(a, left - right), left - right), (_extent(b, right - left), right - left)]
    names = contraction.result.names
    if names and names[0] in sides[1][1]:
        sides.reverse()
    (rows, _), (columns, _) = sides
    return max(rows, columns) if rows < 16 else rows, min(rows, columns) if rows < 16 else columns, _extent(a, summed)


def _extent(ref: Ref, names: Iterable[str]) -> int:
    return math.prod(dim.size.value or 1 for dim in ref.tile.dims if dim.name in names)
