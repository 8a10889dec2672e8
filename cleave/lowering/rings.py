"""Rings of buffers between the warp that copies tiles and the warpgroups that consume them.

Each ring has ``stages`` buffers, each with a barrier *full* (the copy is there) and a barrier *empty* (all consumers
have read it). Both sides go round with a slot and a phase, the parity of the round. What is loaded once, outside all
loops, has one buffer that is never empty again; what is loaded beside inner loops with loads of their own has one, too.
Loops and branches that follow one another fill the same rings, where their tiles are alike: what one does not take is
there for the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import encodings, tt, ttg
from cleave.lowering.encodings import SharedMatrix
from cleave.lowering.ttir_types import ttir_type
from cleave.passes.functions import is_within

BARRIER_BYTES = 8
ALIGNMENT = 1024
"""Bytes of which buffers with the widest swizzle are multiples."""
MOST_STAGES = 6
_BOX_ROWS, _BOX_BITS = 256, 1024
"""Of a tile, and of each of its rows, that one copy takes."""


@dataclass(frozen=True)
class Ring:
    """``parts``: how many tiles of ``shape`` one stage holds, one for each consumer, or one for all.

    ``threads``: so many copy the tiles, and each arrives when its copies are there; none where a descriptor does.
    """

    number: int
    shape: tt.Shape
    element: str
    bits: int
    stages: int
    parts: int
    reused: bool
    threads: int = 0

    @property
    def arrivals(self) -> int:
        """With which a buffer is full."""
        return self.threads or 1

    @property
    def tile_bytes(self) -> int:
        return self.shape[0] * self.shape[1] * self.bits // 8

    @property
    def stage_bytes(self) -> int:
        return self.parts * self.tile_bytes

    @property
    def copying_warps(self) -> int:
        """To how many Triton gives the copies of one tile at most, a power of two."""
        rows, columns = self.shape
        boxes = -(-rows // _BOX_ROWS) * -(-columns * self.bits // _BOX_BITS)
        return min(encodings.WARPS, 1 << (boxes - 1).bit_length())

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
    if ring.stages == 1:
        return State(state.slot, tt.same("arith.xori", state.phase, ttg.i32(1)))
    raised = tt.same("arith.addi", state.slot, ttg.i32(1))
    wraps = tt.compare("eq", raised, ttg.i32(ring.stages))
    flipped = tt.same("arith.xori", state.phase, ttg.i32(1))
    return State(tt.select(wraps, ttg.i32(0), raised), tt.select(wraps, flipped, state.phase))


def slot_before(ring: Ring, slot: ir.Value) -> ir.Value:
    first = tt.compare("eq", slot, ttg.i32(0))
    return tt.select(first, ttg.i32(ring.stages - 1), tt.same("arith.subi", slot, ttg.i32(1)))


@dataclass(frozen=True)
class Sharing:
    """By what is loaded: how many consumers have a tile of their own, and by how many threads it is copied, if any."""

    parts: Mapping[ir.Value, int]
    threads: Mapping[ir.Value, int]

    def kind(self, load: ir.Operation) -> tuple[tt.Shape, str, int, int]:
        """Equal for tiles that one ring may hold."""
        value = load.results[0]
        type_ = ttir_type(value)
        return type_.shape or (), type_.element, self.parts[value], self.threads.get(value, 0)


def rings_of(
    loads: Sequence[ir.Operation], sharing: Sharing, capacity: int, padding: int = ALIGNMENT
) -> dict[ir.Value, Ring]:
    """The ring of each load, as many stages as ``capacity`` bytes hold. Loads of blocks one after the other share.

    ``padding``: bytes that a buffer of no ring may lose to its alignment.
    CleaveError for tiles that have no layout in shared memory, or where two stages do not fit.
    """
    groups: dict[object, list[ir.Operation]] = {}
    for load in loads:
        groups.setdefault(_place(load, loads, sharing), []).append(load)
    made = [_ring(number, group[0], sharing) for number, group in enumerate(groups.values())]
    pairs = zip(made, groups.values(), strict=True)
    deep = [ring for ring, group in pairs if any(_is_innermost(load, loads) for load in group)]
    stages = _stages(made, deep, capacity, padding)
    found: dict[ir.Value, Ring] = {}
    for ring, group in zip(made, groups.values(), strict=True):
        whole = replace(ring, stages=stages) if ring in deep else ring
        found.update((load.results[0], whole) for load in group)
    return found


def _loops(op: ir.Operation) -> list[ir.Operation]:
    """Those around it, the innermost first."""
    outer, found = tt.parent(op), list[ir.Operation]()
    while outer.name != "tt.func":
        found += [outer] if outer.name == "scf.for" else []
        outer = tt.parent(outer)
    return found


def _is_innermost(load: ir.Operation, loads: Sequence[ir.Operation]) -> bool:
    """Whether it is in a loop without inner loops that load."""
    around = _loops(load)
    return bool(around) and not any(around[0] in _loops(other)[1:] for other in loads)


def _place(load: ir.Operation, loads: Sequence[ir.Operation], sharing: Sharing) -> object:
    """Equal for loads that may share a ring: of tiles that are alike, equally deep, and not both there at a time."""
    depth = len(_loops(load))
    if depth == 0:
        return loads.index(load)
    before = [other for other in loads[: loads.index(load)] if len(_loops(other)) == depth]
    beside = [other for other in before if is_within(load, tt.parent(other))]
    kind = sharing.kind(load)
    return (kind, depth, sum(sharing.kind(other) == kind for other in beside))


def _ring(number: int, load: ir.Operation, sharing: Sharing) -> Ring:
    shape, element, parts, threads = sharing.kind(load)
    bits = ttir_type(load.results[0]).bits
    if len(shape) != 2 or encodings.swizzle_of(shape[1], bits) is None:
        raise CleaveError(f"a tile of shape {list(shape)} has no layout in shared memory for products")
    return Ring(number, shape, element, bits, 1, parts, bool(_loops(load)), threads)


def _stages(rings: Sequence[Ring], deep: Sequence[Ring], capacity: int, padding: int) -> int:
    """How many stages the ``deep`` ones have; the others have one buffer."""
    once = sum(ring.stage_bytes + padding for ring in rings if ring not in deep)
    each = sum(ring.stage_bytes + 2 * BARRIER_BYTES for ring in deep)
    stages = min(MOST_STAGES, (capacity - once) // max(1, each))
    if stages < 2:
        raise CleaveError(f"two stages take {once + 2 * each} bytes of shared memory; {capacity} are there")
    return stages


# --- in shared memory -------------------------------------------------------------------------------------------------


def allocated(ring: Ring) -> Buffers:
    tiles, full = ttg.alloc(ring.tiles_type), ttg.alloc(encodings.barriers(ring.stages))
    return Buffers(tiles, full, ttg.alloc(encodings.barriers(ring.stages)) if ring.reused else None)


def initialise(ring: Ring, buffers: Buffers, consumers: int) -> None:
    for stage in range(ring.stages):
        slot = ttg.i32(stage)
        ttg.init(ttg.element(buffers.full, slot, encodings.barrier()), ring.arrivals)
        if buffers.empty is not None:
            ttg.init(ttg.element(buffers.empty, slot, encodings.barrier()), consumers)


def parts_of(buffers: Buffers) -> list[ir.Value]:
    return [buffers.tiles, buffers.full, *([buffers.empty] if buffers.empty is not None else [])]


def rebuilt(buffers: Sequence[Buffers], values: Sequence[ir.Value]) -> list[Buffers]:
    """The same buffers as the arguments of a partition."""
    given = iter(values)
    return [Buffers(next(given), next(given), next(given) if each.empty is not None else None) for each in buffers]
