"""Triton's types, read from their text: upstream's bindings know them only as opaque."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from cleave.bindings import ir

_FP8 = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3B11FNUZ")
_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "tf32": 32, **dict.fromkeys(_FP8, 8)}


@dataclass(frozen=True)
class TtirType:
    """``shape``: a tensor's extents, None for a scalar. ``element``: what it holds, "ptr" for pointers.

    ``pointee``: what pointers point to. ``block``: the extents of a descriptor's block, of elements ``element``.
    """

    shape: tuple[int, ...] | None
    element: str
    pointee: str | None = None
    block: tuple[int, ...] | None = None

    @property
    def is_fp8(self) -> bool:
        return self.element in _FP8

    @property
    def is_float(self) -> bool:
        return self.element in _BITS

    @property
    def bits(self) -> int:
        """Bits of one element in memory."""
        if self.element in _BITS:
            return _BITS[self.element]
        return max(8, int(self.element[1:])) if re.fullmatch(r"i\d+", self.element) else 64

    @property
    def size(self) -> int:
        """The number of elements."""
        total = 1
        for n in self.shape or ():
            total *= n
        return total


def ttir_type(value: ir.Value) -> TtirType:
    """The type of an SSA value."""
    return _parse(str(value.type))


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> TtirType:
    match = re.fullmatch(r"tensor<((?:\d+x)*)(.+)>", text)
    if match:
        inner = _parse(match[2])
        return TtirType(_extents(match[1]), inner.element, inner.pointee)
    pointer = re.fullmatch(r"!tt\.ptr<(.+?)(?:, \d+)?>", text)
    if pointer:
        return TtirType(None, "ptr", pointer[1])
    descriptor = re.fullmatch(r"!tt\.tensordesc<(?:tensor<)?((?:\d+x)+)(\w+)>?>", text)
    if descriptor:
        return TtirType(None, descriptor[2], block=_extents(descriptor[1]))
    return TtirType(None, text)


def _extents(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split("x") if n)
