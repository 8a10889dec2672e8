"""Loads and stores through tensor descriptors, which the launch makes (TMA): which tiles permit them, and the access.

A descriptor describes a whole tensor; what a block covers beyond the tensor's end reads as 0 and is not written. So an
access may take one only where the bounds are the tensor's own extents, and 0 is what a load fills with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from cleave.bindings import ir
from cleave.dialects.dims import Answer, Size, const
from cleave.lowering import tt
from cleave.lowering.access import Access, MemoryRef
from cleave.lowering.scalars import Scalar, Scalars, fits
from cleave.lowering.tiles import Layout, Tile, of_dtype, permuted
from cleave.runtime.descriptors import ALIGNMENT, LARGEST_RANK, DescriptorSpec

LOAD = "tt.descriptor_load"
_BYTES = {"f8E4M3FN": 1, "f8E5M2": 1, "f16": 2, "bf16": 2, "f32": 4, "tf32": 4}
_MATRIX = 2  # dims of a tile: what tensor cores read from shared memory as the hardware writes it there


class Descriptors:
    """Builds the accesses; ``argument`` adds a parameter to the kernel, from its description and type.

    ``stored``: the arguments to which tiles may be stored.
    """

    def __init__(
        self, scalars: Scalars, argument: Callable[[str, ir.Type], ir.Value], stored: Set[int] = frozenset()
    ) -> None:
        self.scalars, self.argument, self.stored = scalars, argument, stored
        self._made: dict[DescriptorSpec, ir.Value] = {}

    def load(self, access: Access, layout: Layout, fill: float | int) -> tuple[ir.Value, tuple[str, ...]] | None:
        """The tile, with its dims in the order of the descriptor's; None where the load must be one by pointers."""
        order = None if access.memory.written else self._block(access, layout, fill)
        if order is None:
            return None
        descriptor, offsets = self._place(access, layout, order)
        shape = tuple(_extent(layout, name) for name in order[-_MATRIX:])
        return tt.descriptor_load(descriptor, offsets, shape), order[-_MATRIX:]

    def store(self, access: Access, tile: Tile) -> bool:
        """Whether the tile could be stored through a descriptor, and so was."""
        layout = Layout(tile.names, tile.shape, tile.dtype)
        allowed = access.memory.number in self.stored and not access.indices
        order = self._block(access, layout, 0) if allowed else None
        if order is None:
            return False
        descriptor, offsets = self._place(access, layout, order)
        tile = permuted(tile, order[-_MATRIX:])
        tt.descriptor_store(descriptor, offsets, tt.cast(of_dtype(tile), str(tt.scalar(tile.dtype))))
        return True

    def _block(self, access: Access, layout: Layout, fill: float | int) -> tuple[str, ...] | None:
        """The dims of the descriptor's block, if it can have one."""
        order = self._order(access.memory, layout)
        if order is None or not self._describable(access.memory, order, layout):
            return None
        return order if all(self._inside(access, axis, fill) for axis in range(len(order))) else None

    def _place(self, access: Access, layout: Layout, order: Sequence[str]) -> tuple[ir.Value, list[ir.Value]]:
        axes = [access.memory.type.names.index(name) for name in order]
        extents = tuple(_extent(layout, name) for name in order)
        spec = DescriptorSpec(access.memory.described, tuple(axes), extents)
        offsets = [self.scalars.narrowed_value(access.offsets[axis]) for axis in axes]
        return self._descriptor(spec, layout.dtype), offsets

    def _descriptor(self, spec: DescriptorSpec, dtype: str) -> ir.Value:
        if spec not in self._made:
            self._made[spec] = self.argument(str(spec), tt.descriptor(spec.extents, str(tt.scalar(dtype))))
        return self._made[spec]

    def _order(self, memory: MemoryRef, layout: Layout) -> tuple[str, ...] | None:
        """The memory's dims: those of which the tile has one element, then the tile's, that without gaps last."""
        if len(memory.type.names) > LARGEST_RANK or len(layout.names) != _MATRIX or layout.dtype not in _BYTES:
            return None
        tiled = [name for name in memory.type.names if name in layout.names]
        dense = [n for n, s in zip(memory.type.names, memory.strides, strict=True) if n in tiled and s.constant == 1]
        if not dense or len(tiled) < _MATRIX:  # of a packed axis memory has no dim
            return None
        others = [name for name in memory.type.names if name not in tiled]
        return (*others, *(name for name in tiled if name != dense[-1]), dense[-1])

    def _describable(self, memory: MemoryRef, order: tuple[str, ...], layout: Layout) -> bool:
        """Whether the hardware takes such addresses and strides."""
        width = _BYTES[layout.dtype]
        if memory.alignment < ALIGNMENT or _extent(layout, order[-1]) * width < ALIGNMENT:
            return False
        strides = dict(zip(memory.type.names, memory.strides, strict=True))
        return all(self._divides(ALIGNMENT // width, strides[name].size) for name in order[:-1])

    def _divides(self, divisor: int, size: Size | None) -> bool:
        return size is not None and self.scalars.facts.divides(const(divisor), size) is Answer.YES

    def _inside(self, access: Access, axis: int, fill: float | int) -> bool:
        """Whether what the tile has along an axis exists, or is past the tensor's own end and to be 0."""
        dim, offset, bound = access.memory.type.dims[axis], access.offsets[axis], access.bounds[axis]
        size, facts = self.scalars.known(dim.size), self.scalars.facts
        if not fits(offset.low, offset.high):
            return False
        if dim.name not in access.in_bounds:
            ends = bound.size is not None and facts.equal(bound.size, size) is Answer.YES
            if not ends or fill != 0:
                return False
        return self.scalars.bounds(size)[0] >= 1 or self._runs_only_with_elements(offset, size)

    def _runs_only_with_elements(self, offset: Scalar, size: Size) -> bool:
        """Whether there is no such offset where ``size`` is 0: empty tensors have no descriptor."""
        if offset.limit is None:
            return False
        limit, size = (self.scalars.facts.simplify(self.scalars.known(each)) for each in (offset.limit, size))
        return all(self.scalars.bounds(limit.substitute({symbol: 0}))[1] <= 0 for symbol in size.symbols)


def _extent(layout: Layout, name: str) -> int:
    return layout.shape[layout.names.index(name)] if name in layout.names else 1
