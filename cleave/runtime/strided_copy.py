"""Row-major copies of tensors with other strides, by the CUDA driver alone.

A copy of the driver's moves rows of bytes at one distance from each other, so a tensor is copied as some of these. It
is for tensors of libraries that cannot be asked for a copy on a stream; PyTorch's are copied by PyTorch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleave.runtime.layout import BYTES, Layout

if TYPE_CHECKING:
    from cleave.runtime.cuda_driver import DeviceArray, Driver


@dataclass(frozen=True)
class Rows:
    """``count`` rows of ``width`` bytes: where the first is in source and target, and how far the next is, in bytes."""

    source: int
    target: int
    width: int
    count: int
    source_pitch: int
    target_pitch: int


def copied(driver: Driver, address: int, layout: Layout, dtype: str, stream: int) -> DeviceArray:
    """A row-major copy, made on ``stream``, of the tensor at ``address``."""
    made = driver.array(layout.shape, dtype)
    for rows in row_copies(layout, BYTES[dtype]):
        driver.copy_rows(made.data_ptr(), address, rows, stream)
    return made


def row_copies(layout: Layout, width: int) -> Iterator[Rows]:
    """What to copy from a tensor of elements of ``width`` bytes to a row-major one."""
    if layout.count == 0:
        return
    dims = list(_merged(layout, width))
    row = width
    if dims and dims[-1][1:] == (width, width):
        row = dims.pop()[0] * width
    dims.append((1, row, row))
    apart = [number for number, (_, source, _) in enumerate(dims) if source >= row]
    across = max(apart, key=lambda number: dims[number][0])
    count, source_pitch, target_pitch = dims.pop(across)
    for places in itertools.product(*(range(extent) for extent, _, _ in dims)):
        source, target = (sum(i * dim[n] for i, dim in zip(places, dims, strict=True)) for n in (1, 2))
        yield Rows(source, target, row, count, source_pitch, target_pitch)


def _merged(layout: Layout, width: int) -> Iterator[tuple[int, int, int]]:
    """Extents with the distances in source and target, in bytes; dims that lie as one in both are one."""
    found: list[tuple[int, int, int]] = []
    for extent, source, target in zip(
        layout.shape, layout.strides, Layout.row_major(layout.shape).strides, strict=True
    ):
        if extent == 1:
            continue
        inner = extent, source * width, target * width
        if found and found[-1][1] == inner[1] * extent and found[-1][2] == inner[2] * extent:
            inner = found.pop()[0] * extent, inner[1], inner[2]
        found.append(inner)
    return iter(found)
