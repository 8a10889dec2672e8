"""Rules for the ops of scheduled modules: memory, tiles, the grid. Tensors in kernels are arrays that stores change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import parse
from cleave.dialects.ops import OPS
from cleave.errors import CleaveError
from cleave.reference.graph_rules import Tensor, align, parts, result_shape
from cleave.reference.machine import Machine, Meeting, Rule, Step, as_index
from cleave.reference.numerics import Array


def alloc(machine: Machine, op: ir.Operation) -> Step:
    dtype = cleave.tensor_type_of(op.results[0]).dtype
    if "contents" in op.attributes:
        return lambda: np.zeros(result_shape(machine, op), machine.numerics.storage(dtype))
    return lambda: machine.numerics.poison(result_shape(machine, op), dtype)


def program_id(machine: Machine, op: ir.Operation) -> Step:
    axis = ir.IntegerAttr(op.attributes["axis"]).value

    def step() -> Array:
        if axis >= len(machine.program_id):
            raise CleaveError(f"the grid has no axis {axis}")
        return np.asarray(machine.program_id[axis])

    return step


def extent(machine: Machine, op: ir.Operation) -> Step:
    size = parse(cleave.plain("string", op.attributes["size"]))
    return lambda: np.asarray(machine.symbols.evaluate(size))


def splat(machine: Machine, op: ir.Operation) -> Step:
    return lambda value: np.asarray(value).astype(np.int64)


def scalar(machine: Machine, op: ir.Operation) -> Step:
    return lambda value: np.asarray(value).astype(np.int64)


class _Access:
    """The memory that one load or store touches."""

    def __init__(self, op: ir.Operation, memory: ir.Value, tile: ir.Value) -> None:
        self.memory = cleave.tensor_type_of(memory)
        self.tile, self.extents = cleave.decode(tile.type)
        self.in_bounds = cleave.plain_attrs(op, OPS[op.name.removeprefix("cleave.")]).get("in_bounds", ())

    def indices(self, array: Array, offsets: Sequence[Array], bounds: Sequence[Array]) -> tuple[Any, Any]:
        """Open grids of the elements that no bound masks: their places in memory, and in the tile."""
        extents = dict(zip(self.tile.names, self.extents, strict=True))
        places: list[Array] = []
        kept: list[Array] = []
        for name, offset, bound in zip(self.memory.names, offsets, bounds, strict=True):
            positions = as_index(offset) + np.arange(extents.get(name) or 1)
            valid = (positions < as_index(bound)) | (name in self.in_bounds)
            places.append(positions[valid])
            kept.append(np.flatnonzero(valid))
        if all(positions.size for positions in places):
            self._check(places, array.shape)
        return np.ix_(*places), np.ix_(*kept)

    def _check(self, places: Sequence[Array], shape: Sequence[int]) -> None:
        for name, positions, limit in zip(self.memory.names, places, shape, strict=True):
            for position in (positions.min(), positions.max()):
                if not 0 <= position < limit:
                    raise CleaveError(f"index {position} leaves dimension '{name}' of extent {limit} and is not masked")

    def tile_shape(self) -> list[int]:
        """The tile with an axis for each dim of the memory, in its order."""
        extents = dict(zip(self.tile.names, self.extents, strict=True))
        return [extents.get(name) or 1 for name in self.memory.names]

    def drop(self, full: Array) -> Array:
        """From the memory's dims to the tile's."""
        kept = [name for name in self.memory.names if name in self.tile.names]
        return align(full.reshape([n for name, n in zip(self.memory.names, full.shape, strict=True) if name in kept]),
                     kept, self.tile.names)  # fmt: skip


def load(machine: Machine, op: ir.Operation) -> Step:
    access = _Access(op, op.operands[0], op.results[0])
    fill = machine.numerics.literal(cleave.plain_attrs(op, OPS["load"])["fill"], access.tile.dtype)
    rank = len(access.memory.dims)

    def step(source: Tensor, *positions: Array) -> Array:
        source, exists = parts(source)
        grid, where = access.indices(source, positions[:rank], positions[rank:])
        if exists is not None and not np.broadcast_to(exists, source.shape)[grid].all():
            raise CleaveError("reads elements past the end of a split dimension")
        full = np.full(access.tile_shape(), fill, fill.dtype)
        full[where] = source[grid]
        return access.drop(full)

    return step


def gather_load(machine: Machine, op: ir.Operation) -> Step:
    """Element by element: the position of each along every dim of the memory, and whether it exists."""
    attrs = cleave.plain_attrs(op, OPS["gather_load"])
    memory, (tile, extents) = cleave.tensor_type_of(op.operands[0]), cleave.decode(op.results[0].type)
    fill = machine.numerics.literal(attrs["fill"], tile.dtype)
    dims, rank = attrs["dims"], len(memory.dims)
    types = [cleave.tensor_type_of(operand) for operand in list(op.operands)[1 : 1 + len(dims)]]
    shape = [extent or 1 for extent in extents]
    ranges = {name: align(np.arange(n), [name], tile.names) for name, n in zip(tile.names, shape, strict=True)}

    def step(source: Tensor, *operands: Array) -> Array:
        data, exists = parts(source)
        if exists is not None:
            raise CleaveError("gathers from a tensor some of whose elements do not exist")
        indices = [align(x, t.names, tile.names) for x, t in zip(operands[: len(dims)], types, strict=True)]
        chosen = dict(zip(dims, indices, strict=True))
        offsets, bounds = operands[len(dims) : -rank or None], operands[len(operands) - rank :]
        places: list[Array] = []
        valid: Array = np.asarray(True)
        for name, offset, bound, limit in zip(memory.names, offsets, bounds, data.shape, strict=True):
            place = chosen.get(name, as_index(offset) + ranges.get(name, np.asarray(0)))
            here = (place >= 0) & (place < as_index(bound)) | np.asarray(name in attrs.get("in_bounds", ()))
            if (here & ((place < 0) | (place >= limit))).any():
                raise CleaveError(f"an index leaves dimension '{name}' of extent {limit} and is not masked")
            places.append(place)
            valid = valid & here
        valid = np.broadcast_to(valid, shape)
        full = np.full(shape, fill, fill.dtype)
        full[valid] = data[tuple(np.broadcast_to(place, shape)[valid] for place in places)]
        return full

    return step


def store(machine: Machine, op: ir.Operation) -> Step:
    access = _Access(op, op.operands[1], op.operands[0])
    rank = len(access.memory.dims)

    def step(tile: Array, destination: Array, *positions: Array) -> None:
        grid, where = access.indices(destination, positions[:rank], positions[rank:])
        full = align(np.asarray(tile), access.tile.names, access.memory.names)
        destination[grid] = full[where]

    return step


def group_barrier(machine: Machine, op: ir.Operation) -> Step:
    return lambda counters, group, count: Meeting(counters, as_index(group), as_index(count))


def nothing(machine: Machine, op: ir.Operation) -> Step:
    """Launches run one after the other here."""
    return lambda: None


RULES: dict[str, Rule] = {
    "cleave.alloc": alloc,
    "cleave.program_id": program_id,
    "cleave.extent": extent,
    "cleave.splat": splat,
    "cleave.scalar": scalar,
    "cleave.load": load,
    "cleave.gather_load": gather_load,
    "cleave.store": store,
    "cleave.trigger": nothing,
    "cleave.wait": nothing,
    "cleave.group_barrier": group_barrier,
}
