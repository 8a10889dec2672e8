"""Where the tensors of a launch plan lie in memory: shapes and strides, without arrays."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cleave.dialects.dims import Dim
from cleave.dialects.given_sizes import LARGEST_EXTENT
from cleave.errors import CleaveError
from cleave.runtime.bind_sizes import Sizes
from cleave.runtime.launch_plan import Launch, TensorSpec, View

#: CUDA's limits on a grid: axes x, y, z.
GRID_LIMITS = (2**31 - 1, 65535, 65535)
BYTES = {"f8E4M3FN": 1, "f8E5M2": 1, "f16": 2, "bf16": 2, "f32": 4, "f64": 8,
         "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "index": 8}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Extents, and the distance of neighbours along each dim, in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def row_major(shape: Sequence[int]) -> Layout:
        strides = tuple(itertools.accumulate(reversed(shape[1:]), operator.mul, initial=1))[: len(shape)]
        return Layout(tuple(shape), strides[::-1])

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def is_row_major(self) -> bool:
        """Whether the elements lie one after the other; the strides of extents of 1 do not matter."""
        wanted = Layout.row_major(self.shape).strides
        triples = zip(self.shape, self.strides, wanted, strict=True)
        return self.count == 0 or all(n == 1 or have == want for n, have, want in triples)


def shape_of(spec: TensorSpec, sizes: Sizes) -> tuple[int, ...]:
    """The tensor's extents at this call. CleaveError if one is beyond what kernels can count."""
    pairs = zip(spec.dims, spec.extents, strict=True)
    shape = tuple(sizes.evaluate(Dim.parse(dim).size) if n is None else n for dim, n in pairs)
    check_extents(spec, shape)
    return shape


def check_extents(spec: TensorSpec, shape: Sequence[int]) -> None:
    """CleaveError if an extent is beyond what kernels can count."""
    for dim, extent in zip(spec.dims, shape, strict=True):
        if not 0 <= extent <= LARGEST_EXTENT:
            text = f"dimension '{Dim.parse(dim).name}' of {spec.name} is {extent}"
            raise CleaveError(f"{text}; an extent is at least 0 and at most {LARGEST_EXTENT}")


def viewed(view: View, source: Layout, sizes: Sizes) -> Layout:
    """The same memory under other dims; a split's elements past the end are masked by the kernels."""
    shape, count = shape_of(view.tensor, sizes), len(view.names)
    first = _position(view)
    before, after = source.strides[:first], source.strides[first + count :]
    own = source.strides[first : first + count]
    if count == len(view.into) == 1:
        strides = own
    elif count == 1:
        strides = (own[0] * shape[first + 1], own[0])
    else:
        strides = own[-1:]
        extents = source.shape[first : first + count]
        if any(own[i] != own[i + 1] * extents[i + 1] for i in range(count - 1)):
            raise CleaveError(f"the dims {', '.join(view.names)} of {view.source} are not one run of memory")
    return Layout(shape, (*before, *strides, *after))


def view_offset(view: View, source: Layout, sizes: Sizes) -> int:
    """How many elements of the source's memory lie before the view's first; CleaveError if a slice leaves its dim."""
    offset = sizes.evaluate(view.offset)
    if view.offset == "0":
        return 0
    axis = _position(view)
    extent, limit = shape_of(view.tensor, sizes)[axis], source.shape[axis]
    if not 0 <= offset <= limit - extent:
        text = f"the slice of '{view.names[0]}' of {view.source} is {offset} to {offset + extent}"
        raise CleaveError(f"{text}; the dimension has {limit}")
    return offset * source.strides[axis]


def _position(view: View) -> int:
    """The axis at which the view's dims change, which is the same in the source."""
    names = [Dim.parse(dim).name for dim in view.tensor.dims]
    name = Dim.parse(view.into[0]).name
    if name not in names:
        raise CleaveError(f"the view {view.tensor.name} is said to have a dim '{name}', which it has not")
    return names.index(name)


def grid_of(launch: Launch, sizes: Sizes) -> tuple[int, ...]:
    """The launch's grid at this call. CleaveError where the hardware has no such grid."""
    grid = tuple(sizes.evaluate(size) for size in launch.grid)
    for axis, extent, limit in zip("xyz", grid, GRID_LIMITS, strict=False):
        if extent > limit and 0 not in grid:
            text = f"kernel {launch.kernel} needs {extent} programs along {axis}"
            raise CleaveError(f"{text}; a grid has at most {limit}")
    return grid


def number_argument(text: str, operands: Sequence[Layout], sizes: Sizes) -> int:
    """The value of a kernel argument that is no pointer, from its description (see ``Launch``)."""
    kind, _, rest = text.partition(":")
    if kind == "size":
        return sizes.evaluate(rest)
    if kind == "stride":
        operand, _, axis = rest.partition(":")
        return operands[int(operand)].strides[int(axis)]
    raise CleaveError(f"a kernel argument is described by '{text}', which is not known")
