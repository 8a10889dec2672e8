"""Tensors that are not row-major, as parts of row-major ones around them.

The rows of a slice of a wider tensor lie further apart than they are long: their distance, the pitch, is the length of
the rows of a tensor that is row-major and has the slice as a part of each row. So the function is compiled for that
tensor, and a slice of it, which costs no copy.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from cleave.runtime.cuda_tensors import ALIGNMENT, address_of, layout_of
from cleave.runtime.layout import BYTES, LARGEST_EXTENT, Layout


@dataclass(frozen=True, order=True)
class Pitched:
    """How a tensor lies in memory: ``order``, its dims from the outermost to the one whose elements are neighbours;
    ``padded``: whether there is more along each of them, in this order, than the tensor has."""

    order: tuple[int, ...]
    padded: tuple[bool, ...]

    @staticmethod
    def of(layout: Layout, dtype: str) -> tuple[Pitched, Layout] | None:
        """For a tensor with these strides, and the row-major one that it is a part of.

        None where there is none: for elements that are not neighbours along any dim, or are used several times, and for
        rows that do not all start at a multiple of 16 bytes, for which a copy is quicker to read.
        """
        extents, strides = layout.shape, layout.strides
        order = sorted(range(len(extents)), key=lambda axis: (extents[axis] > 1, -strides[axis], axis))
        if not order or strides[order[-1]] != 1 or 0 in extents:
            return None
        pitches = [extents[order[0]]]
        for outer, inner in itertools.pairwise(order):
            if extents[outer] == 1:  # its stride does not matter
                pitches.append(extents[inner])
                continue
            pitch, rest = divmod(strides[outer], strides[inner])
            if rest or not extents[inner] <= pitch <= LARGEST_EXTENT or strides[outer] * BYTES[dtype] % ALIGNMENT:
                return None
            pitches.append(pitch)
        padded = tuple(pitch != extents[axis] for axis, pitch in zip(order, pitches, strict=True))
        return Pitched(tuple(order), padded), Layout.row_major(pitches)


@dataclass(frozen=True)
class Around:
    """The row-major tensor around ``part``, with the methods of PyTorch's tensors that the launcher asks for."""

    part: Any
    shape: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        return self.part.dtype if hasattr(self.part, "data_ptr") else layout_of("a tensor", self.part)[1]

    @property
    def device(self) -> Any:
        return self.part.device

    def get_device(self) -> int:
        return self.part.get_device()

    def data_ptr(self) -> int:
        return address_of(self.part)

    def stride(self) -> tuple[int, ...]:
        return Layout.row_major(self.shape).strides
