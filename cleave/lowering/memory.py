"""Tiles in memory: strides, offsets within a tile, masks; ``cleave.load``, ``gather_load`` and ``store``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from cleave.bindings import ir
from cleave.lowering import tt
from cleave.lowering.access import Access, MemoryRef
from cleave.lowering.descriptors import Descriptors
from cleave.lowering.packing import Packing, Place
from cleave.lowering.scalars import Scalar, Scalars, fits
from cleave.lowering.tiles import Layout, Tile, aligned, of_dtype, permuted


class MemoryBuilder:
    """Builds loads and stores; what does not change within a kernel is built once, at its entry."""

    def __init__(self, scalars: Scalars, packing: Packing, descriptors: Descriptors | None = None) -> None:
        """``descriptors``: loads, and stores to some arguments, go through one where that is possible."""
        self.scalars, self.packing, self.descriptors = scalars, packing, descriptors
        self._once: dict[object, ir.Value] = {}

    def load(self, access: Access, layout: Layout, fill: float | int, *, to_copy: bool = False) -> Tile:
        """The tile; elements at or past a bound are ``fill`` and are not read. ``to_copy``: as it lies in memory, so
        that it can be copied to shared memory."""
        described = self.descriptors if not access.indices else None
        block = described.load(access, layout, fill) if described else None
        if block:
            return self._described(*block, layout)
        order = self._neighbours_last(access, layout) if to_copy and not access.memory.written else layout.names
        if order != layout.names:
            turned = Layout(order, tuple(layout.shape[layout.names.index(name)] for name in order), layout.dtype)
            return permuted(self._loaded(access, turned, fill), layout.names)
        return self._loaded(access, layout, fill)

    def _loaded(self, access: Access, layout: Layout, fill: float | int) -> Tile:
        pointers = self._pointers(access, layout)
        mask = self._mask(access, layout)
        element = tt.scalar(memory_element(layout.dtype))
        other = tt.constant(fill, element, layout.shape) if mask is not None else None
        loaded = tt.load(pointers, mask, other)
        return Tile(tt.cast(loaded, layout.element), layout.names, layout.shape, layout.dtype)

    def _described(self, value: ir.Value, names: Sequence[str], layout: Layout) -> Tile:
        """What a descriptor loaded, as the tile that is asked for."""
        tile = permuted(Tile(value, tuple(names), tt.shape_of(value), layout.dtype), layout.names)
        return replace(tile, value=tt.cast(tile.value, layout.element))

    def store(self, access: Access, tile: Tile) -> None:
        """Write the tile's elements that are not at or past a bound."""
        if self.descriptors and self.descriptors.store(access, tile):
            return
        # In the order of memory, so that neighbouring threads write neighbouring elements.
        places = self._places(access.memory, Layout(tile.names, tile.shape, tile.dtype))
        tile = permuted(tile, list(dict.fromkeys(place.axis for _, place in places)))
        layout = Layout(tile.names, tile.shape, tile.dtype)
        value = tt.cast(of_dtype(tile), memory_element(tile.dtype))
        tt.store(self._pointers(access, layout), value, self._mask(access, layout))

    def _neighbours_last(self, access: Access, layout: Layout) -> tuple[str, ...]:
        """The tile's axes, that of which memory has the elements without gaps last."""
        steps = dict(zip(access.memory.type.names, access.memory.strides, strict=True))
        dense = [name for name in layout.names if name in steps and name not in access.indices]
        dense = [name for name in dense if steps[name].constant == 1 and self.packing.place_in(layout, name).inner == 1]
        return (*(name for name in layout.names if name not in dense[-1:]), *dense[-1:])

    # --- addresses ---

    def _pointers(self, access: Access, layout: Layout) -> ir.Value:
        """Base in 64 bits, offsets within the tile in 32 where they are proved to fit: few registers, no overflow."""
        base = self._base(access)
        if not layout.shape:
            return base
        # The indices before the offsets within a tile, which are the same in every iteration: one addition moves all.
        offsets = [self._indexed(name, access, layout) for name, tile in access.indices.items() if tile.names]
        within = self._within(access, layout)
        pointers = tt.splat(base, layout.shape)
        return functools.reduce(tt.addptr, [*offsets, *([] if within is None else [within])], pointers)

    def _indexed(self, name: str, access: Access, layout: Layout) -> ir.Value:
        """How far the indices along a dimension are from its first element, over the whole tile."""
        tile, axis = access.indices[name], access.memory.type.names.index(name)
        stride, bound = access.memory.strides[axis], access.bounds[axis]
        narrow = fits(min(0, bound.high * stride.low), bound.high * stride.high)
        line = tt.cast(tile.value, "i32" if narrow else "i64")
        if stride.constant != 1:
            step = self.scalars.narrowed_value(stride) if narrow else self.scalars.widened(stride)
            line = tt.same("arith.muli", line, tt.splat(step, tile.shape))
        return aligned(Tile(line, tile.names, tile.shape, "i64"), layout.names, layout.shape).value

    def _base(self, access: Access) -> ir.Value:
        terms: list[ir.Value] = []
        names = access.memory.type.names
        for name, offset, stride in zip(names, access.offsets, access.memory.strides, strict=True):
            tile = access.indices.get(name)
            if offset.constant == 0 and (tile is None or tile.names):
                continue
            term = self.scalars.widened(offset) if tile is None or tile.names else tt.cast(tile.value, "i64")
            terms.append(term if stride.constant == 1 else tt.same("arith.muli", term, self.scalars.widened(stride)))
        if not terms:
            return access.memory.pointer
        total = functools.reduce(lambda a, b: tt.same("arith.addi", a, b), terms)
        return tt.addptr(access.memory.pointer, total)

    def _within(self, access: Access, layout: Layout) -> ir.Value | None:
        names = tuple(name for name in access.memory.type.names if name not in access.indices)
        key = ("within", access.memory.pointer, names, layout)
        return self._built(key, lambda: self._build_within(access.memory, names, layout))

    def _build_within(self, memory: MemoryRef, names: Sequence[str], layout: Layout) -> ir.Value | None:
        strides = dict(zip(memory.type.names, memory.strides, strict=True))
        places = [(name, place) for name, place in self._places(memory, layout) if name in names]
        dims = [(strides[name], place) for name, place in places if place.size > 1]
        reach = [((place.size - 1) * stride.low, (place.size - 1) * stride.high) for stride, place in dims]
        narrow = fits(sum(low for low, _ in reach), sum(high for _, high in reach))
        total: ir.Value | None = None
        for stride, place in dims:
            term = self._line(place, stride, narrow, layout)
            total = term if total is None else tt.same("arith.addi", total, term)
        return total

    def _places(self, memory: MemoryRef, layout: Layout) -> list[tuple[str, Place]]:
        """The dimensions of memory that a tile has, each with its place, in the order of memory."""
        places = ((name, self.packing.place_in(layout, name)) for name in memory.type.names)
        return [(name, place) for name, place in places if place.axis in layout.names]

    def _line(self, place: Place, stride: Scalar, narrow: bool, layout: Layout) -> ir.Value:
        """The offsets along one dimension, over the whole tile."""
        line = tt.cast(self.range(place), "i32" if narrow else "i64")
        if stride.constant != 1:
            step = self.scalars.narrowed_value(stride) if narrow else self.scalars.widened(stride)
            line = tt.same("arith.muli", line, tt.splat(step, (place.extent,)))
        return aligned(Tile(line, (place.axis,), (place.extent,), "i64"), layout.names, layout.shape).value

    def range(self, place: Place) -> ir.Value:
        """The indices of a dimension along its axis, from 0, in i32."""
        found = self._built(("range", place.extent, place.inner, place.size), lambda: _indices(place))
        assert found is not None
        return found

    def _built(self, key: object, build: Callable[[], ir.Value | None]) -> ir.Value | None:
        if key not in self._once:
            assert self.scalars.entry is not None
            with self.scalars.entry:
                built = build()
            if built is None:
                return None
            self._once[key] = built
        return self._once[key]

    # --- masks ---

    def _mask(self, access: Access, layout: Layout) -> ir.Value | None:
        """Where the tile's elements exist; None where all are known to."""
        parts: list[ir.Value] = []
        guards: list[ir.Value] = []
        places = dict(self._places(access.memory, layout))
        for name, offset, bound in zip(access.memory.type.names, access.offsets, access.bounds, strict=True):
            if name in access.in_bounds:
                continue
            if name in access.indices:
                inside = self._inside(access.indices[name], bound)
                parts.append(aligned(inside, layout.names, layout.shape).value)
                continue
            place = places.get(name)
            rest = self.scalars.arith("subi", bound, offset)
            if rest.low >= (place.size if place else 1):
                continue
            if place is None or place.size == 1:
                guards.append(tt.compare("gt", rest.value, tt.constant_like(rest.value, 0)))
            else:
                line = tt.compare("lt", self.range(place), tt.splat(self._clamped(rest), (place.extent,)))
                axis = Tile(line, (place.axis,), (place.extent,), "i1")
                parts.append(aligned(axis, layout.names, layout.shape).value)
        if guards:
            guard = functools.reduce(lambda a, b: tt.same("arith.andi", a, b), guards)
            parts.append(tt.splat(guard, layout.shape))
        return functools.reduce(lambda a, b: tt.same("arith.andi", a, b), parts) if parts else None

    def _inside(self, tile: Tile, bound: Scalar) -> Tile:
        """Where indices are from 0 to below the bound."""
        narrow = tile.element == "i32" and bound.narrow
        value = tile.value if narrow else tt.cast(tile.value, "i64")
        limit = bound.value if narrow else self.scalars.widened(bound)
        inside = tt.compare("lt", value, tt.splat(limit, tile.shape))
        if tile.bounds is None or tile.bounds[0] < 0:
            inside = tt.same("arith.andi", tt.compare("ge", value, tt.constant_like(value, 0)), inside)
        return Tile(inside, tile.names, tile.shape, "i1")

    def _clamped(self, rest: Scalar) -> ir.Value:
        """In i32, to compare with a tile's range; larger than any tile is as good as larger still.

        Both limits are multiples of all vectors, so that what is known to be one still is.
        """
        if not fits(rest.low, rest.high):
            least, most = (self.scalars.constant(limit) for limit in (-(2**30), 2**30))
            rest = self.scalars.arith("minsi", self.scalars.arith("maxsi", rest, least), most)
        return self.scalars.narrowed_value(rest)


def _indices(place: Place) -> ir.Value:
    value = tt.make_range(place.extent)
    if place.inner > 1:
        value = tt.same("arith.divsi", value, tt.constant_like(value, place.inner))
    if place.inner * place.size < place.extent:
        value = tt.same("arith.remsi", value, tt.constant_like(value, place.size))
    return value


def memory_element(dtype: str) -> str:
    """The element type in memory: Triton cannot access i1."""
    return {"i1": "i8", "index": "i64", "tf32": "f32"}.get(dtype, dtype)
