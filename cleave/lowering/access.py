"""What a load or a store touches: a tensor in memory, and where in it a tile lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleave.bindings import ir
from cleave.dialects.tensor_type import TensorType
from cleave.lowering.scalars import Scalar
from cleave.lowering.tiles import Tile


@dataclass(frozen=True)
class MemoryRef:
    """A kernel's tensor argument number ``number``: the pointer to element 0, and how many elements each dim steps.

    ``alignment``: what the pointer is known to be a multiple of, in bytes. ``written``: the kernel writes it, so that
    copies by descriptors, which are not ordered with ordinary writes, may not read it. ``described``: the argument
    whose descriptors are this one's, too.
    """

    pointer: ir.Value
    type: TensorType
    strides: tuple[Scalar, ...]
    number: int = 0
    alignment: int = 1
    written: bool = False
    described: int = 0


@dataclass(frozen=True)
class Access:
    """Where a tile lies: one offset and one bound for each dimension of the memory.

    Along the dims of ``indices`` positions come from these tiles; below 0 or at a bound there is nothing.
    """

    memory: MemoryRef
    offsets: Sequence[Scalar]
    bounds: Sequence[Scalar]
    in_bounds: frozenset[str]
    indices: Mapping[str, Tile] = field(default_factory=dict)
