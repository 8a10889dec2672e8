"""Kernels of which one warp copies and warpgroups multiply (docs/hopper.md): which kernels can be.

The lowering has the last word (``lowering/to_ttgir.py``). The same is derived here from the tile program alone, so that
tilings can be ranked for this form: those that are best for it are not those that are best without.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from cleave.dialects.graph import Value
from cleave.dialects.size import SizeLike
from cleave.schedule.copying_threads import (
    MOST_COPYING,
    PRODUCER,
    ThreadCopy,
    consumer_registers,
    copying_registers,
)  # fmt: skip
from cleave.schedule.occupancy import repeated_loads
from cleave.schedule.target import Target
from cleave.schedule.tile_program import LOADS, Block, Instruction, Kernel, Ref
from cleave.schedule.tile_sizes import bytes_of, is_matrix_product
from cleave.schedule.warps import WGMMA_ROWS
from cleave.schedule.whole_operands import even_loads
from cleave.schedule.workload import VECTOR, Workload, copyable_loads, describable_loads

ARCHITECTURES = ("sm_90",)
BLOCKS = {1: 2, 2: 1, 3: 1}
"""Of a multiprocessor, by consumers."""
STAGES, MOST_STAGES = 2, 6
RESERVED, RESERVED_EXCHANGING, ALIGNMENT = 2048, 1536, 1024
"""Bytes of shared memory for other barriers and what threads exchange, less beside tiles that consumers exchange (of
which these take 300), and of which buffers are multiples."""
BARRIERS = 16
"""Bytes of the two barriers that each buffer of a ring has."""
EXCHANGED = 128
"""Bytes of which buffers are multiples through which consumers exchange tiles."""
NARROWEST = 32
"""Bytes of the shortest rows of tiles in shared memory."""
THREADS = 128
"""Of a consumer."""
REGISTERS, REGISTERS_BASE = {1: 232, 2: 232, 3: 176}, {1: 40, 2: 40, 3: 24}
"""A thread's of a consumer, and those of them that hold no tile, by consumers: as estimated of kernels that do not
spill, of which those with three have 160."""
EXCHANGING_REGISTERS = 24
"""Of these, that consumers have for the tiles that they exchange and where these are."""
REGISTERS_BESIDE = {1: 200, 2: 216, 3: 176}
"""Of kernels side by side: their producer has more to remember."""
SHARED_REGISTERS = 8
"""Of those estimated, that hold first one and then another tile, where the producer's threads have addresses."""
THREE, TWO = 192, 128
"""Rows of tiles for three consumers, and of those for two from which they are made."""


@dataclass(frozen=True)
class Division:
    """Each of ``consumers`` has an equal part of ``dim``; of nothing, where there is one.

    ``repeats``: some products have not the dim, and are computed by all of them, or in parts along ``exchanged``.
    """

    consumers: int = 1
    dim: str = ""
    repeats: bool = False
    exchanged: str = ""

    def extent(self, ref: Ref, names: Set[str]) -> int:
        """Of one consumer's tile along these dims together."""
        whole = math.prod(dim.size.value or 1 for dim in ref.tile.dims if dim.name in names)
        return whole // self.consumers if self.divided(ref) in names else whole

    def divided(self, ref: Ref) -> str | None:
        """Of which dim of a tile consumers have parts; of what is loaded they have all, where they exchange it."""
        return next((name for name in (self.dim, self.exchanged) if name and name in ref.names), None)


@dataclass(frozen=True)
class Form:
    """What a kernel is in this form: bytes of shared memory, registers of each of a consumer's threads.

    ``products`` and ``elements``: how many times as much all consumers multiply and compute as the kernel says.
    """

    division: Division
    stages: int
    shared: int
    registers: int
    products: float = 1.0
    elements: float = 1.0

    @property
    def warps(self) -> int:
        """That compute."""
        return THREADS // 32 * self.division.consumers


def specialised_form(
    kernel: Kernel,
    work: Workload,
    known: Mapping[str, SizeLike],
    target: Target,
    operands: Sequence[Value] = (),
) -> Form | None:
    """The form that the lowering gives a kernel; None where it has none, or would spill. Kernels side by side are
    divided along one dim, and never so that products are repeated. ``operands``: the graph values of its arguments,
    unless parts of splits are whole tensors there already."""
    parts = kernel.beside or (kernel,)
    refused = any(_has_ranges_from_tiles(part) or _stores_products_in_turn(part) for part in parts)
    if target.arch not in ARCHITECTURES or refused:
        return None
    described = frozenset[Ref]().union(*(describable_loads(part, known) for part in parts))
    by_threads = {tile: width for part in parts for tile, width in copyable_loads(part, known).items()}
    if operands and not kernel.beside:
        described |= {tile for tile in even_loads(kernel, operands) if by_threads.get(tile) == VECTOR}
        by_threads = {tile: width for tile, width in by_threads.items() if tile not in described}
    tiles = _Tiles(parts, described, by_threads)
    most = REGISTERS_BESIDE if kernel.beside else REGISTERS
    for group in tiles.divisions()[: 2 if kernel.beside else 4]:
        for division in group:
            stages, shared = tiles.stages(division, target)
            if stages < STAGES or not tiles.multiplies(division):
                continue
            registers = _registers(work, tiles, division)
            if registers <= tiles.most_registers(division, most):
                return Form(division, stages, shared, registers, *tiles.repeated(division))
            if division.exchanged:  # the lowering exchanges what can be
                return None
            break
    return None


def _has_ranges_from_tiles(kernel: Kernel) -> bool:
    """Whether loops end where elements of a tile say, which not all warps have."""
    reduced = {instruction.result for instruction in kernel.body.walk() if instruction.op == "reduce"}
    return any(instruction.op == "scalar" and instruction.operands[0] in reduced for instruction in kernel.body.walk())


def _stores_products_in_turn(kernel: Kernel) -> bool:
    """Whether a loop has several tiles of the result, each a product: what goes through tiles here is the block."""
    loops = [list(instruction.body.walk()) for instruction in kernel.body.walk() if instruction.body]
    return any(any(map(is_matrix_product, loop)) and any(i.op == "store" for i in loop) for loop in loops)


def _registers(work: Workload, tiles: _Tiles, division: Division) -> int:
    live = tiles.live(division) if division.repeats else (work.live + tiles.computed_operands()) / division.consumers
    return REGISTERS_BASE[division.consumers] + math.ceil(live / (4 * THREADS))


class _Tiles:
    """Of kernels side by side, or of one. ``described``: what descriptors load; ``by_threads``: what threads copy, in
    vectors of so many bytes."""

    def __init__(self, kernels: Sequence[Kernel], described: Set[Ref], by_threads: Mapping[Ref, int]) -> None:
        self.everything = [instruction for kernel in kernels for instruction in kernel.body.walk()]
        self.ahead = list(itertools.takewhile(lambda i: i.op != "group_barrier", self.everything))
        behind = {i.result for i in self.everything[len(self.ahead) :] if i.op in LOADS}
        self.kernels, self.by_threads = kernels, by_threads
        self.copied = (described | by_threads.keys()) - behind
        self.products = [i for i in self.everything if is_matrix_product(i)]
        self.loops = [i.body for i in self.everything if i.body] or [kernel.body for kernel in kernels]

    # --- the division ---

    def divisions(self) -> tuple[list[Division], ...]:
        """In groups, in the order in which they are tried (as ``lowering/division.py`` does): in two or three, along
        the longest dims first; not at all; in two with products in parts that are exchanged; with some that both
        compute. What blocks do when they have met is divided otherwise, and they divide no columns."""
        refused = {name for i in self.ahead for name in self._kept_whole(i)}
        shared_out = [i.operands[0] if i.op == "store" else i.result for i in self.ahead if _is_shared_out(i)]
        stored = [i.operands[0] for i in self.ahead if i.op == "store"]
        every = {(dim.name, dim.size.value or 1) for ref in shared_out for dim in ref.tile.dims}
        extents = dict(every)
        refused |= {name for name, extent in every if extents[name] != extent}
        shared, repeating = list[Division](), list[Division]()
        for name, extent in sorted(extents.items(), key=lambda item: -item[1]):
            consumers = 3 if extent == THREE else 2
            if name in refused:
                continue
            if all(name in ref.names for ref in shared_out) and extent % consumers == 0:
                shared.append(Division(consumers, name))
            elif any(name in ref.names for ref in stored) and extent % 2 == 0 and self.ahead == self.everything:
                repeating.append(Division(2, name, repeats=True))
        exchanging = [
            replace(each, exchanged=name)
            for each in repeating
            for name in sorted(extents)
            if name != each.dim and extents[name] % each.consumers == 0 and self._can_be_exchanged(name, each.dim)
        ]
        return shared, [Division()], exchanging, repeating

    def _can_be_exchanged(self, name: str, columns: str) -> bool:
        """As ``lowering/exchange.py`` does."""
        some = any(name in product.result.names and columns not in product.result.names for product in self.products)
        return some and all(_permits_exchange(instruction, name, columns) for instruction in self.everything)

    def _kept_whole(self, instruction: Instruction) -> set[str]:
        if instruction.op in ("contract", "reduce"):
            return set(instruction.attrs["over"])
        if instruction.op == "store":
            return set(instruction.operands[0].names) - set(instruction.operands[1].names)
        if instruction.op == "gather_load":
            return set(instruction.attrs["dims"])
        return set()

    def multiplies(self, division: Division) -> bool:
        """Whether a loop, or that over tiles, multiplies what is copied, and warpgroups can do all products."""
        within = [load for body in self.loops for load in body.instructions if load.op in LOADS]
        some = any(load.result in self.copied for load in within)
        multiplied = {operand for product in self.products for operand in product.operands}
        pointers = any(load.result in multiplied - self.copied for load in within)
        late = any(is_matrix_product(i) for i in self.everything[len(self.ahead) :])
        return bool(self.products) and some and not pointers and not late and all(
            self._is_warpgroups(product, division) for product in self.products
        )  # fmt: skip

    def _is_warpgroups(self, product: Instruction, division: Division) -> bool:
        left, right = _factors(product)
        rows = division.extent(left, set(left.names) & set(product.result.names))
        columns = division.extent(right, set(right.names) & set(product.result.names))
        types = {left.tile.dtype, right.tile.dtype}
        wide = rows % WGMMA_ROWS == 0 and columns % 8 == 0
        return wide and right in self.copied and len(types) == 1 and types <= {"f16", "bf16"}

    def most_registers(self, division: Division, most: Mapping[int, int]) -> int:
        """As estimated, of a consumer's thread that does not spill: less where the producer's have more."""
        consumers = division.consumers
        if not self.by_threads:
            return most[consumers] - (EXCHANGING_REGISTERS if division.exchanged else 0)
        loads = [i for i in self.everything if i.op in LOADS and i.result in self.by_threads]
        copies = {load.operands[0]: self._copy(load, division) for load in loads}
        producer = copying_registers(copies.values())
        if len(self.kernels) > 1:
            bodies = [[self._copy(i, division) for i in body.instructions if i in loads] for body in self.loops]
            producer = max(copying_registers(body, branching=True) for body in bodies)
        left = consumer_registers(consumers, producer) if producer <= MOST_COPYING else 0
        less = consumer_registers(consumers, PRODUCER[consumers]) - left
        return min(most[consumers] - less, left + SHARED_REGISTERS)

    def _copy(self, load: Instruction, division: Division) -> ThreadCopy:
        """Of one consumer's part, if it has one."""
        (rows, row), neighbours = _rows(load), load.operands[0].names[-1]
        if division.dim == neighbours:
            row //= division.consumers
        elif division.dim in load.result.names:
            rows //= division.consumers
        return ThreadCopy(rows, row, self.by_threads[load.result], load.op == "gather_load")

    def computed_operands(self) -> int:
        """Bytes of left operands in registers: the largest."""
        lefts = [_factors(product)[0] for product in self.products]
        return max((bytes_of(left) for left in lefts if left not in self.copied), default=0)

    def live(self, division: Division) -> int:
        """Bytes of what a consumer's loop carries, and of the largest product in it that is not added up."""
        loops = [i.body for i in self.everything if i.body]
        return max((_live(body, division) for body in loops), default=0) + self.computed_operands()

    def repeated(self, division: Division) -> tuple[float, float]:
        """How many times as much all consumers multiply and compute together as the kernel says."""
        if not division.repeats:
            return 1.0, 1.0
        inside = [i for loop in self.everything if loop.body for i in loop.body.instructions if i.results]
        plain = [i for i in inside if i.result.type and i.op not in (*LOADS, "contract", "constant", "splat")]
        return (
            _repetition([(_flops(product), product.result) for product in self.products], division),
            _repetition([(i.result.elements, i.result) for i in plain], division),
        )

    # --- shared memory ---

    def stages(self, division: Division, target: Target) -> tuple[int, int]:
        """How many fit, and bytes of all; 0 stages where tiles have no layout in shared memory."""
        rings: dict[tuple[int, Hashable], int] = {}
        for depth, loads in (found for kernel in self.kernels for found in self._loads(kernel)):
            seen: list[Hashable] = []
            for load in loads:
                if _rows(load)[1] < NARROWEST:
                    return 0, 0
                own, by_threads = division.dim in load.result.names, load.result in self.by_threads
                seen.append(kind := (_tile_in_memory(load), own, by_threads))
                rings[depth, (kind, seen.count(kind))] = bytes_of(load.result)
        padding = 0 if division.exchanged else ALIGNMENT
        once = sum(size + padding for (depth, _), size in rings.items() if not depth)
        reserved = RESERVED_EXCHANGING + self._exchanged(division) if division.exchanged else RESERVED
        each = sum(size + BARRIERS for (depth, _), size in rings.items() if depth)
        capacity = target.shared_per_block // BLOCKS[division.consumers] - reserved
        stages = min(MOST_STAGES, (capacity - once) // max(each, 1))
        return stages, once + stages * each + (reserved if division.exchanged else 0)

    def _exchanged(self, division: Division) -> int:
        """Bytes through which consumers exchange tiles; blocks that exchange the same share them."""
        blocks = [block for kernel in self.kernels for _, block in _blocks(kernel.body)]
        found = {tuple(_exchanged_bytes(i, division) for i in block.instructions) for block in blocks}
        return sum(sum(sizes) for sizes in {tuple(filter(None, sizes)) for sizes in found})

    def _loads(self, kernel: Kernel) -> Iterator[tuple[int, list[Instruction]]]:
        """Of each block, which is so deep in loops, those that have a buffer."""
        alone = kernel.body in self.loops
        for depth, block in _blocks(kernel.body, depth=int(alone)):
            again = repeated_loads(block, kernel.roles)  # of these the whole or a part is in another's buffer
            yield depth, [i for i in block.instructions if i.results and i.result in self.copied and i not in again]


def _tile_in_memory(load: Instruction) -> Hashable:
    """What tiles have in common that one ring holds: extents in memory's order, and a type."""
    tile = load.result.tile
    extents = {dim.name: dim.size for dim in tile.dims}
    return tuple(extents[name] for name in load.operands[0].names if name in extents), tile.dtype


def _own_bytes(ref: Ref, division: Division) -> int:
    """Of one consumer's part of a tile."""
    return bytes_of(ref) // (division.consumers if division.divided(ref) else 1)


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _permits_exchange(instruction: Instruction, name: str, columns: str) -> bool:
    if instruction.op == "store":
        return name not in instruction.operands[0].names
    names = set(instruction.result.names) if instruction.results else set[str]()
    if instruction.op == "gather_load":
        return name not in names
    if instruction.op in ("contract", "reduce") and name in instruction.attrs["over"]:
        wide = sum(columns in operand.names for operand in instruction.operands)
        return bool(names) if instruction.op == "reduce" else columns in names and wide == 1
    return instruction.op == "load" or not {name, columns} <= names


def _exchanged_bytes(instruction: Instruction, division: Division) -> int:
    """Of the tiles that consumers have in parts and need all of, or combine."""
    if instruction.op not in ("contract", "reduce") or division.exchanged not in instruction.attrs["over"]:
        return 0
    if instruction.op == "reduce":
        return division.consumers * _aligned(bytes_of(instruction.result), EXCHANGED)
    parts = (operand for operand in instruction.operands if division.dim not in operand.names)
    return sum(_aligned(bytes_of(part), EXCHANGED) for part in parts)


def _live(loop: Block, division: Division) -> int:
    sums = [i.operands for i in loop.instructions if i.op == "add" and i.result in loop.yields]
    products = [i.result for i in loop.instructions if is_matrix_product(i)]
    others = [ref for ref in products if not any(ref in operands for operands in sums)]
    carried = sum(_own_bytes(ref, division) for ref in loop.arguments if ref.type)
    return carried + max((_own_bytes(ref, division) for ref in others), default=0)


def _flops(product: Instruction) -> int:
    """Up to a factor."""
    left, _ = _factors(product)
    summed = set(left.names) - set(product.result.names)
    return product.result.elements * Division().extent(left, summed)


def _repetition(work: Sequence[tuple[int, Ref]], division: Division) -> float:
    """What all consumers do of it, as a multiple."""
    done = sum(amount * (1 if division.divided(ref) else division.consumers) for amount, ref in work)
    return done / max(1, sum(amount for amount, _ in work))


def _is_shared_out(instruction: Instruction) -> bool:
    return instruction.op in ("store", "contract")


def _factors(product: Instruction) -> tuple[Ref, Ref]:
    """The operand that has the rows of the result, and the other one."""
    a, b = product.operands
    first = product.result.names[0]
    return (b, a) if first in b.names and first not in a.names else (a, b)


def _rows(load: Instruction) -> tuple[int, int]:
    """Of a tile as it lies in memory: how many, and the bytes of each."""
    tile, neighbours = load.result, load.operands[0].names[-1]
    columns = next((dim.size.value or 1 for dim in tile.tile.dims if dim.name == neighbours), 1)
    return tile.elements // columns, columns * bytes_of(tile) // max(1, tile.elements)


def _blocks(block: Block, depth: int = 0) -> Iterator[tuple[int, Block]]:
    yield depth, block
    for instruction in block.instructions:
        for body in instruction.bodies:
            yield from _blocks(body, depth + 1)
