"""Tensor descriptors as kernel arguments: what a launch plan says of one, and how its tensor lies in memory."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from cleave.errors import CleaveError
from cleave.runtime.layout import Layout

ALIGNMENT = 16
"""Bytes of which the address, all strides but the last, and the innermost extent of a block are multiples."""
LARGEST_RANK = 5
DESCRIPTOR = "desc:"
"""With which the description of a kernel argument begins that is one."""
_TEXT = re.compile(r"desc:(\d+):(\d+(?:,\d+)*):(\d+(?:x\d+)*)")


@dataclass(frozen=True)
class DescriptorSpec:
    """``desc:1:0,2,1:1x64x128``: operand 1 with its axes in this order, the contiguous one last, in such blocks."""

    operand: int
    axes: tuple[int, ...]
    extents: tuple[int, ...]

    def __str__(self) -> str:
        return f"desc:{self.operand}:{','.join(map(str, self.axes))}:{'x'.join(map(str, self.extents))}"

    @staticmethod
    def parse(text: str) -> DescriptorSpec:
        match = _TEXT.fullmatch(text)
        if match is None:
            raise CleaveError(f"a kernel argument is described by '{text}', which is not known")
        axes, extents = tuple(map(int, match[2].split(","))), tuple(map(int, match[3].split("x")))
        if sorted(axes) != list(range(len(extents))):
            raise CleaveError(f"the descriptor '{text}' does not name each axis once")
        return DescriptorSpec(int(match[1]), axes, extents)

    def described(self, tensor: Layout) -> Layout:
        """The tensor with its axes in the descriptor's order; dims of one element get a stride that can be described.

        CleaveError where the order does not fit the tensor.
        """
        if len(self.axes) != len(tensor.shape):
            raise CleaveError(f"the descriptor '{self}' is given a tensor of rank {len(tensor.shape)}")
        shape = tuple(tensor.shape[axis] for axis in self.axes)
        dense = Layout.row_major([*shape[:-1], -(-shape[-1] // ALIGNMENT) * ALIGNMENT]).strides
        strides = (tensor.strides[axis] for axis in self.axes)
        return Layout(shape, tuple(d if n == 1 else s for n, s, d in zip(shape, strides, dense, strict=True)))


@dataclass(frozen=True)
class Box:
    """What one copy moves: its extents, and how it is swizzled in shared memory (a CUtensorMapSwizzle)."""

    extents: tuple[int, ...]
    swizzle: int


def refusal(layout: Layout, address: int, width: int) -> str | None:
    """Why a tensor of elements of ``width`` bytes, in the descriptor's order, has no descriptor; None if it has one."""
    if address % ALIGNMENT:
        return f"starts at an address that is no multiple of {ALIGNMENT} bytes"
    if layout.strides[-1] != 1:
        return f"has a stride of {layout.strides[-1]} along its contiguous dimension"
    outer = [stride for stride, n in zip(layout.strides[:-1], layout.shape[:-1], strict=True) if n > 1]
    if any(stride * width % ALIGNMENT or stride < 0 for stride in outer):
        return f"has strides {list(layout.strides)} of which not all but the last are multiples of {ALIGNMENT} bytes"
    return None


def is_empty(layout: Layout) -> bool:
    return math.prod(layout.shape) == 0
