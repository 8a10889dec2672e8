"""Types of tensors: named dims and an element type."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from cleave.dialects.dims import Answer, Dim, Facts, Size
from cleave.errors import CleaveError

FLOATS = ("f16", "bf16", "f32", "f64", "tf32", "f8E4M3FN", "f8E5M2")
INTEGERS = ("i1", "i8", "i16", "i32", "i64", "index")
DTYPES = FLOATS + INTEGERS


class TensorType(NamedTuple):
    """A tensor's named dims, in the order of memory, and its element type."""

    dims: tuple[Dim, ...]
    dtype: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple([dim.name for dim in self.dims])

    def size(self, name: str) -> Size:
        """The size of the dim ``name``; CleaveError if there is none."""
        for dim in self.dims:
            if dim.name == name:
                return dim.size
        raise CleaveError(f"no dimension '{name}' in {self}")

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.dims))}] {self.dtype}"


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def number_of(value: Any, dtype: str) -> float | int | bool:
    """A constant's number. CleaveError for one that the type has not: too large, or none of its integers."""
    try:
        return _as_float(float(value), dtype) if is_float(dtype) else _as_integer(operator.index(value), dtype)
    except (TypeError, ValueError):
        if isinstance(value, float):
            raise CleaveError(f"{value} is a float beside elements of {dtype}", notes=(_CAST_FOR_FLOAT,)) from None
        raise CleaveError(f"{value!r} is no number for elements of {dtype}") from None
    except OverflowError:
        raise CleaveError(f"the number is too large for {dtype}") from None


_CAST_FOR_FLOAT = 'write an integer, or astype("f32") on the tensor'


def _as_float(number: float, dtype: str) -> float:
    struct.pack("<d" if dtype == "f64" else "<f", number)
    return number


def _as_integer(number: int, dtype: str) -> int | bool:
    bits = {"i1": 1, "index": 64}.get(dtype) or int(dtype[1:])
    lowest, highest = (0, 1) if dtype == "i1" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not lowest <= number <= highest:
        note = f"{dtype} has the integers {lowest} to {highest}; astype makes another type of the tensor"
        raise CleaveError(f"the number is out of the range of {dtype}", notes=(note,))
    return bool(number) if dtype == "i1" else number


def accumulator(dtype: str) -> str:
    """The type in which sums of ``dtype`` are accumulated."""
    return dtype if dtype == "f64" or not is_float(dtype) else "f32"


def union(types: Sequence[TensorType], facts: Facts) -> tuple[Dim, ...]:
    """The dims of all operands, aligned by name, in the order in which they first occur."""
    found: dict[str, Dim] = {}
    for index, type_ in enumerate(types):
        for dim in type_.dims:
            known = found.setdefault(dim.name, dim)
            if known.size is not dim.size:
                require_same_size(dim.name, known.size, dim.size, f"operand {index}", facts)
    return tuple(found.values())


def require_same_size(name: str, one: Size, other: Size, where: str, facts: Facts) -> None:
    answer = facts.equal(one, other)
    if answer is Answer.NO:
        raise CleaveError(f"dimension '{name}' has size {one} and, in {where}, size {other}")
    if answer is Answer.UNKNOWN:
        raise CleaveError(
            f"cannot prove that dimension '{name}' has one size: {one} and, in {where}, {other}",
            notes=(
                f"choose another name for one of the two, or, if they have one size, state the fact "
                f'"{one} = {other}" (cleave.facts, facts= of jit)',
            ),
        )


INSERT_CAST = "insert cleave.cast"


def require_one_dtype(types: Sequence[TensorType]) -> str:
    dtypes = {t.dtype for t in types}
    if len(dtypes) != 1:
        raise CleaveError(
            f"operands have different element types: {', '.join(t.dtype for t in types)}", notes=(INSERT_CAST,)
        )
    return types[0].dtype
