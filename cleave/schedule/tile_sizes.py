"""How large tiles are, and what contractions of them are to the hardware."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cleave.dialects.dims import Dim, Size
from cleave.schedule.tile_program import Instruction, Ref

BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "tf32": 4, "f16": 2, "bf16": 2, "i16": 2, "index": 8}


def elements_of(ref: Ref) -> int:
    """Elements of a tile; 1 for an index."""
    return ref.elements


def bytes_of(ref: Ref) -> int:
    return elements_of(ref) * BYTES.get(ref.tile.dtype, 1)


def value_of(size: Size, values: Mapping[str, int]) -> int:
    """As ``size.evaluate``, which is not done twice for the same numbers."""
    return (
        _value(size, tuple([values.get(symbol, -1) for symbol in size.symbols])) if size.symbols else size.evaluate({})
    )


@lru_cache(maxsize=1 << 14)
def _value(size: Size, numbers: tuple[int, ...]) -> int:
    known = zip(size.symbols, numbers, strict=True)
    return size.evaluate({symbol: number for symbol, number in known if number >= 0})


@dataclass(frozen=True)
class Amount:
    """A sum of sizes of tiles, as a function of their extents: by the number of a shape, what its elements count."""

    terms: tuple[tuple[int, int], ...] = ()

    def of(self, elements: Sequence[int]) -> int:
        """The sum where each shape has so many elements."""
        return sum([weight * elements[shape] for shape, weight in self.terms])

    def __add__(self, other: Amount) -> Amount:
        return _amount((*self.terms, *other.terms))


def _amount(terms: Sequence[tuple[int, int]]) -> Amount:
    if len(terms) < 2:
        return Amount(tuple(terms))
    total: dict[int, int] = {}
    for shape, weight in terms:
        total[shape] = total.get(shape, 0) + weight
    return Amount(tuple(sorted(total.items())))


class Shapes:
    """The shapes of a kernel's tiles, numbered as they are met."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Dim, ...], int] = {}

    def elements(self, tiles: Iterable[Ref], weight: int = 1) -> Amount:
        return _amount([(self._number(tile), weight) for tile in tiles])

    def bytes(self, tiles: Iterable[Ref], weight: int = 1) -> Amount:
        return _amount([(self._number(tile), weight * BYTES.get(tile.tile.dtype, 1)) for tile in tiles])

    def row(self, tile: Ref, dim: str) -> Amount:
        """The bytes of a tile's elements along one dim; of one element if it has no such dim."""
        dims = tuple(each for each in tile.tile.dims if each.name == dim)
        number = self._numbers.setdefault(dims, len(self._numbers))
        return Amount(((number, BYTES.get(tile.tile.dtype, 1)),))

    def each(self, tiles: Iterable[Ref]) -> list[Amount]:
        """The bytes of each tile, equal amounts once."""
        terms = {(self._number(tile), BYTES.get(tile.tile.dtype, 1)): None for tile in tiles}
        return [Amount((term,)) for term in terms]

    def at(self, extents: Mapping[str, int] | None) -> list[int]:
        """Elements of each shape where dims have these extents, or those of the tiles themselves."""
        if extents is None:
            return [math.prod([dim.size.value or 1 for dim in dims]) for dims in self._numbers]
        return [math.prod([extents[dim.name] for dim in dims]) for dims in self._numbers]

    def _number(self, tile: Ref) -> int:
        return self._numbers.setdefault(tile.type.dims if tile.type else (), len(self._numbers))


@dataclass(frozen=True)
class Sides:
    """The dims of a contraction: ``rows`` and ``columns`` are of one operand alone, those that the result has first and
    last, and ``depth`` those summed. ``batched``: it keeps dims of both operands, and has no such sides. ``narrow``:
    its operands' types are the tensor cores'."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    depth: tuple[str, ...]
    batched: bool
    narrow: bool

    def shape(self, extents: Mapping[str, int]) -> tuple[int, int, int]:
        """(rows, columns, depth) in elements; 0 where it has none. Fewer than 16 rows are taken for columns."""
        if self.batched:
            return 0, 0, 0
        sides = (self.rows, self.columns, self.depth)
        rows, columns, depth = [math.prod([extents[name] for name in names]) for names in sides]
        return (rows, columns, depth) if rows >= 16 else (max(rows, columns), min(rows, columns), depth)

    def is_tensor_core(self, extents: Mapping[str, int]) -> bool:
        """Whether tiles of these extents go to the tensor cores."""
        rows, columns, depth = self.shape(extents)
        return self.narrow and min(rows, depth) >= 16 and columns >= 8

    def is_matrix_product(self, extents: Mapping[str, int]) -> bool:
        """Whether it becomes ``tt.dot``, and not a product of registers that is summed."""
        rows, columns, depth = self.shape(extents)
        return min(rows, columns) >= 8 and max(rows, columns) >= 16 and depth >= 16


@lru_cache(maxsize=1 << 8)
def sides_of(contraction: Instruction) -> Sides:
    a, b = contraction.operands
    summed, left, right = set(contraction.attrs["over"]), set(a.names), set(b.names)
    rows, columns = left - right, right - left
    names = contraction.result.names
    if names and names[0] in columns:
        rows, columns = columns, rows
    ordered = tuple(dict.fromkeys((*a.names, *b.names)))
    sides = [tuple(name for name in ordered if name in each) for each in (rows, columns, summed & left)]
    narrow = {a.tile.dtype, b.tile.dtype} <= {"f16", "bf16", "tf32", "f8E4M3FN", "f8E5M2"}
    return Sides(sides[0], sides[1], sides[2], bool((left & right) - summed), narrow)


def extents_of(instruction: Instruction) -> dict[str, int]:
    """Those of its operands' tiles."""
    return {dim.name: dim.size.value or 1 for operand in instruction.operands for dim in operand.tile.dims}


@lru_cache(maxsize=1 << 8)
def is_tensor_core(contraction: Instruction) -> bool:
    """Whether tiles of these shapes and types go to the tensor cores."""
    return sides_of(contraction).is_tensor_core(extents_of(contraction))


@lru_cache(maxsize=1 << 8)
def contraction_shape(contraction: Instruction) -> tuple[int, int, int]:
    """(rows, columns, depth) of its tiles, as of ``Sides.shape``."""
    return sides_of(contraction).shape(extents_of(contraction))


def is_matrix_product(instruction: Instruction) -> bool:
    """Whether it becomes ``tt.dot``, and not a product of registers that is summed."""
    return instruction.op == "contract" and sides_of(instruction).is_matrix_product(extents_of(instruction))


def left_operand(contraction: Instruction) -> Ref:
    """The operand that has the rows of the result."""
    a, b = contraction.operands
    names = contraction.result.names
    return b if names and names[0] in b.names and names[0] not in a.names else a
