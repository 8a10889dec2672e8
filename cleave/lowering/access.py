"""What a load or a store touches: a tensor in memory, and where in it a tile lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.dialects.ops import TensorType
from cleave.lowering.scalars import Scalar


@dataclass(frozen=True)
class MemoryRef:
    """A kernel's tensor argument number ``number``: the pointer to element 0, and how many elements each dim steps.

    ``alignment``: what the pointer is known to be a multiple of, in bytes.
    """

    pointer: ir.Value
    type: TensorType
    strides: tuple[Scalar, ...]
    number: int = 0
    alignment: int = 1


@dataclass(frozen=True)
class Access:
    """Where a tile lies: one offset and one bound for each dimension of the memory."""

    memory: MemoryRef
    offsets: Sequence[Scalar]
    bounds: Sequence[Scalar]
    in_bounds: frozenset[str]
