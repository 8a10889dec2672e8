"""Rings of buffers between the warp that copies tiles and the warpgroups that consume them.

Each ring has ``stages`` buffers, each with a barrier *full* (the copy is there) and a barrier *empty* (all consumers
have read it). Both sides go round with a slot and a phase, the parity of the round. What is loaded once, outside all
loops, has one buffer that is never empty again; what is loaded beside inner loops with loads of their own has one, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import encodings, tt, ttg
from cleave.lowering.encodings import SharedMatrix
from cleave.lowering.ttir_types import ttir_type

BARRIER_BYTES = 8
ALIGNMENT = 1024
"""Bytes of which buffers with the widest swizzle are multiples."""
MOST_STAGES = 6


@dataclass(frozen=True)
class Ring:
    """``parts``: how many tiles of ``shape`` one stage holds, one for each consumer, or one for all."""

    number: int
    shape: tt.Shape
    element: str
    bits: int
    stages: int
    parts: int
    reused: bool

    @property
    def tile_bytes(self) -> int:
        return self.shape[0] * self.shape[1] * self.bits // 8

    @property
    def stage_bytes(self) -> int:
        return self.parts * self.tile_bytes

    @property
    def layout(self) -> SharedMatrix:
        return ttg.shared_matrix(self.shape[1], self.bits)

    @property
    def tiles_type(self) -> ir.Type:
        return encodings.memdesc((self.stages * self.parts, *self.shape), self.element, self.layout)

    @property
    def tile_type(self) -> ir.Type:
        return encodings.memdesc(self.shape, self.element, self.layout)


@dataclass(frozen=True)
class Buffers:
    """A ring's memory as one partition sees it."""

    tiles: ir.Value
    full: ir.Value
    empty: ir.Value | None


@dataclass(frozen=True)
class State:
    """Where a partition is in a ring."""

    slot: ir.Value
    phase: ir.Value


def next_state(ring: Ring, state: State) -> State:
    raised = tt.same("arith.addi", state.slot, ttg.i32(1))
    wraps = tt.compare("eq", raised, ttg.i32(ring.stages))
    flipped = tt.same("arith.xori", state.phase, ttg.i32(1))
    return State(tt.select(wraps, ttg.i32(0), raised), tt.select(wraps, flipped, state.phase))


def slot_before(ring: Ring, slot: ir.Value) -> ir.Value:
    first = tt.compare("eq", slot, ttg.i32(0))
    return tt.select(first, ttg.i32(ring.stages - 1), tt.same("arith.subi", slot, ttg.i32(1)))


def rings_of(loads: Sequence[ir.Operation], parts: Mapping[ir.Value, int], capacity: int) -> dict[ir.Value, Ring]:
    """The ring of each load, as many stages as ``capacity`` bytes hold. Loads of loops one after the other share.

    CleaveError for tiles that have no layout in shared memory, or where two stages do not fit.
    """
    groups: dict[object, list[ir.Operation]] = {}
    for load in loads:
        groups.setdefault(_place(load, loads), []).append(load)
    made = [_ring(number, group, parts) for number, group in enumerate(groups.values())]
    innermost = max(map(_depth, loads), default=0)
    deep = [ring for ring, group in zip(made, groups.values(), strict=True) if _depth(group[0]) == innermost > 0]
    stages = _stages(made, deep, capacity)
    found: dict[ir.Value, Ring] = {}
    for ring, group in zip(made, groups.values(), strict=True):
        whole = replace(ring, stages=stages) if ring in deep else ring
        found.update((load.results[0], whole) for load in group)
    return found


def _depth(op: ir.Operation) -> int:
    outer, depth = tt.parent(op), 0
    while outer.name != "tt.func":
        depth += outer.name == "scf.for"
        outer = tt.parent(outer)
    return depth


def _place(load: ir.Operation, loads: Sequence[ir.Operation]) -> object:
    """Equal for loads that may share a ring: by the same descriptor, at the same place of their loops."""
    depth = _depth(load)
    if depth == 0:
        return loads.index(load)
    before = loads[: loads.index(load)]
    number = sum(other.block == load.block and other.operands[0] == load.operands[0] for other in before)
    return (load.operands[0], depth, number)


def _ring(number: int, group: Sequence[ir.Operation], parts: Mapping[ir.Value, int]) -> Ring:
    load = group[0]
    type_ = ttir_type(load.results[0])
    shape = type_.shape or ()
    if len(shape) != 2 or encodings.swizzle_of(shape[1], type_.bits) is None:
        raise CleaveError(f"a tile of shape {list(shape)} has no layout in shared memory for products")
    return Ring(number, shape, type_.element, type_.bits, 1, parts[load.results[0]], _depth(load) > 0)


def _stages(rings: Sequence[Ring], deep: Sequence[Ring], capacity: int) -> int:
    """How many stages the ``deep`` ones have; the others have one buffer."""
    once = sum(ring.stage_bytes + ALIGNMENT for ring in rings if ring not in deep)
    each = sum(ring.stage_bytes + 2 * BARRIER_BYTES for ring in deep)
    stages = min(MOST_STAGES, (capacity - once) // max(1, each))
    if stages < 2:
        raise CleaveError(f"two stages take {once + 2 * each} bytes of shared memory; {capacity} are there")
    return stages
