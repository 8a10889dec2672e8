"""What a kernel does at given sizes: the numbers of the cost model that no target and no option of it changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from cleave.dialects.dims import Size
from cleave.dialects.size import SizeLike
from cleave.schedule.outline import Fetch, Outline, Product, Stretch, has_rows, is_matrix, outline_of, sized
from cleave.schedule.tile_program import LOADS, Instruction, Kernel, Ref
from cleave.schedule.tile_sizes import BYTES, value_of
from cleave.schedule.traffic import Stream, Walk

VECTOR = 16
"""Bytes of the widest access of a thread; rows whose size is not known to be a multiple of it take narrower ones."""
LINE = 128
"""Bytes of a row that the copy engine moves at a time; shorter rows take it as long."""
PAGE = 2048
"""Bytes that lie side by side in DRAM: what opens them takes time, which blocks that read of them together share."""
LANE = 4
"""Bytes that a warp's access to memory moves at a time for each thread: wider accesses take so many times longer."""
REGISTER = 4
"""Bytes of the register that each narrow access of a pipelined loop has until its value goes to shared memory."""


@dataclass
class Chain:
    """One iteration of a loop, without the loops in it, or what lies outside all loops (``trips`` 1).

    ``copied``: bytes of loads that are wide asynchronous copies to shared memory, in flight while other iterations
    compute, as in loops that are ``pipelined``, unless there is a ``single`` one. ``described``: of loads through
    descriptors; ``lines``: the same with rows filled up to whole lines. ``requests``: accesses of up to ``LANE`` bytes
    of a thread that all other loads take. ``repeated``: loads that feed contractions and register code; the latter gets
    a load of its own, which is not pipelined, of ``repeats`` accesses in all. ``exchanges``: as of ``warps``, and
    operands that are ``staged`` (which is their bytes). ``chained``: whether a contraction by ``wgmma`` feeds another.
    ``special``: elements of special functions. ``wgmma`` and ``mma``: floating-point operations of contractions by
    instruction; ``wgmmas``, ``mmas`` and ``reductions``: how many; ``meetings``: reductions in which warps wait for one
    another; ``waited``: contractions that register code waits for; ``wide``: operations, rows and columns of each by
    ``wgmma``; ``small``: operations of those by ``mma.sync``, and the warps that there is work for.
    ``elements``: of tiles of register code, those of special functions eight times; ``computes``: whether this does
    more than to add contractions up; ``apart``: and has nothing of them, nor they of it; ``kept``: and is the same for
    tiles beside one another along the grid's last axis. ``multiplied``: bytes of operands of contractions that are not
    ``described`` and can be copied by threads, in so many ``vectors``; ``replaced``: those of ``requests`` that are
    such; ``picked``: whether an index says where some of them are.
    """

    trips: float
    pipelined: bool = False
    single: bool = False
    copied: float = 0.0
    described: float = 0.0
    lines: float = 0.0
    requests: float = 0.0
    wgmma: float = 0.0
    mma: float = 0.0
    repeated: int = 0
    repeats: float = 0.0
    exchanges: int = 0
    staged: float = 0.0
    wgmmas: int = 0
    waited: int = 0
    wide: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])
    mmas: int = 0
    small: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    reductions: int = 0
    meetings: int = 0
    chained: bool = False
    special: float = 0.0
    elements: float = 0.0
    computes: bool = False
    apart: bool = False
    kept: bool = False
    multiplied: float = 0.0
    vectors: float = 0.0
    replaced: float = 0.0
    picked: bool = False

    def narrow(self, num_warps: int) -> float:
        """Operations that ``wgmma`` loses where tiles have few columns, or many warps divide these."""
        shares = [(flops, columns // max(1, WARP_ROWS * num_warps // rows)) for flops, rows, columns in self.wide]
        return sum(flops * columns_lost(columns) / columns for flops, columns in shares)


MEANS = "loaded described lines alone narrow stored requests tensor mma fma special alu staged"
"""What kernels side by side have of these is a mean over their blocks."""


@dataclass
class Workload:
    """What a kernel does at given sizes: per block where nothing else is said; bytes and operations.

    ``compulsory``: bytes of its tensors; of one that is only gathered from, what all blocks read (``gathered``: each).
    ``resident`` and ``streamed``: shared memory of tiles outside and inside loops. ``live``: bytes of accumulators and
    the largest tile of register code, which is ``temporary``. ``described``: of ``loaded``, those that go through
    descriptors; ``alone``: a little of a page of DRAM at a time, of which no other block has any at that time;
    ``describable``: whether loads of a pipelined loop could. ``mma``: the part of ``tensor`` that tiles of less than 64
    rows do by ``mma.sync``. ``narrow``: operations that ``wgmma`` loses in tiles of few columns. ``lines``,
    ``requests`` and ``staged``: as in ``Chain``. ``chained_rows``: of the tile of a contraction by ``wgmma`` that feeds
    another, if there is one: Triton gives such a tile's rows to the warps, and if they are too few, warps repeat one
    another's work. ``narrowest``: bytes of the smallest tile that a pipelined loop copies for ``wgmma``. ``walk`` and
    ``streams``: see ``traffic``. ``rounds``: how many tiles of mean length the block has that has most, where tiles
    are of several lengths and that is known (``balance.py``). ``beside``: of kernels side by side, each one's; what
    the whole has of theirs is a mean over all blocks.
    """

    blocks: int = 0
    compulsory: float = 0.0
    resident: int = 0
    streamed: int = 0
    live: int = 0
    temporary: int = 0
    loaded: float = 0.0
    described: float = 0.0
    lines: float = 0.0
    alone: float = 0.0
    describable: bool = False
    narrow: float = 0.0
    stored: float = 0.0
    requests: float = 0.0
    tensor: float = 0.0
    mma: float = 0.0
    fma: float = 0.0
    special: float = 0.0
    alu: float = 0.0
    staged: float = 0.0
    chained_rows: int = 0
    narrowest: float = math.inf
    chains: list[Chain] = field(default_factory=list[Chain])
    walk: Walk = field(default_factory=lambda: Walk(()))
    streams: tuple[Stream, ...] = ()
    rounds: float | None = None
    gathered: dict[Ref, float] = field(default_factory=dict[Ref, float])
    beside: list[Workload] = field(default_factory=list["Workload"])


@dataclass(frozen=True)
class Surroundings:
    """Where a kernel runs. ``sizes``: of symbols; ``known``: what its code is told of them, static extents, and
    multiples such as ``16*n16``. ``blocks`` and ``walk``: of its grid, whose dims are ``axes``, in order.
    ``descriptors``: as of the kernel. ``extents``: of its tiles, if they are not its own.
    """

    sizes: Mapping[str, int]
    known: Mapping[str, SizeLike]
    blocks: int
    walk: Walk
    axes: tuple[str, ...]
    descriptors: bool
    extents: Mapping[str, int] | None = None

    def trips(self, loop: Instruction) -> int:
        """Iterations of a loop, on the average over thread blocks."""
        if self.extents is None:
            return max(0, loop.attrs["trips"](self.sizes))
        return max(0, loop.attrs["course"].count(self.extents, self.sizes))

    def width(self, argument: Ref) -> int:
        """Bytes that a thread reads at once from a tensor: what the sizes of its rows, and of those that they are parts
        of, are known to be a multiple of."""
        width = BYTES.get(argument.tile.dtype, 1)
        if not argument.tile.dims:
            return width
        multiple = self._multiple(argument.tile.dims[-1].size)
        if argument.row:
            multiple = math.gcd(multiple, self._multiple(argument.row))
        return max(width, math.gcd(VECTOR, multiple * width))

    def _multiple(self, size: Size) -> int:
        return _multiple(size, tuple([(symbol, self.known.get(symbol)) for symbol in size.symbols]))


def bytes_at(argument: Ref, sizes: Mapping[str, int]) -> int:
    """Of a tensor where symbols have these sizes."""
    extents = [value_of(dim.size, sizes) for dim in argument.tile.dims]
    return math.prod(extents) * BYTES.get(argument.tile.dtype, 1)


@lru_cache(maxsize=1 << 12)
def _multiple(size: Size, known: tuple[tuple[str, SizeLike | None], ...]) -> int:
    said = size.substitute({symbol: value for symbol, value in known if value is not None})
    return math.gcd(*(coefficient for _, coefficient in said.terms))


def workload(kernel: Kernel, sizes: Mapping[str, int], known: Mapping[str, SizeLike] | None = None) -> Workload:
    """What one launch does where every symbol has the size given; ``known``: as in ``Surroundings``."""
    if kernel.beside:
        return workload_beside(kernel.beside, kernel.arguments, sizes, known)
    axes = kernel.order.axes if kernel.order else ()
    walk = Walk(tuple(max(0, value_of(tiles, sizes)) for _, tiles in axes), kernel.order.group if kernel.order else 1)
    blocks = math.prod(max(0, value_of(size, sizes)) for size in kernel.grid)
    names = tuple(name for name, _ in axes)
    return counted(outline_of(kernel), Surroundings(sizes, known or {}, blocks, walk, names, kernel.descriptors))


def counted(outline: Outline, around: Surroundings) -> Workload:
    """What a kernel of this outline does there."""
    return _Count(outline, around).workload()


class _Count:
    def __init__(self, outline: Outline, around: Surroundings) -> None:
        self.outline, self.around = outline, around
        self.elements = outline.shapes.at(around.extents)
        self.widths = {argument: around.width(argument) for argument in outline.arguments}
        self.bytes = {argument: bytes_at(argument, around.sizes) for argument in outline.arguments}
        self.numbers = {argument: number for number, argument in enumerate(outline.arguments)}
        self.work = Workload(around.blocks, walk=around.walk)

    def workload(self) -> Workload:
        work, occupied = self.work, self.outline.occupied
        for stretch in self.outline.stretches:
            self._chain(stretch)
        work.live, work.temporary = occupied.live(self.elements)
        work.resident, work.streamed = occupied.shared(self.elements)
        work.live += math.ceil(max((REGISTER * chain.requests for chain in work.chains if chain.pipelined), default=0))
        chained = [product for stretch in self.outline.stretches for product in stretch.chained]
        work.chained_rows = min((self._shape(product)[0] for product in chained), default=0)
        work.compulsory = self._compulsory()
        return work

    def _chain(self, stretch: Stretch) -> None:
        work, loop, elements = self.work, stretch.loop, self.elements
        trips = work.chains[stretch.around].trips * self.around.trips(loop) if loop else 1.0
        special, simple = stretch.special.of(elements), stretch.simple.of(elements)
        chain = Chain(
            trips,
            stretch.pipelined,
            single=loop is not None and "stages" in loop.attrs,
            repeated=stretch.repeated,
            repeats=stretch.repeats.of(elements) / LANE,
            exchanges=stretch.exchanges,
            staged=stretch.staged.of(elements),
            waited=stretch.waited,
            reductions=stretch.reductions,
            meetings=stretch.meetings,
            chained=bool(stretch.chained),
            special=special,
            elements=SPECIAL_ELEMENTS * special + simple,
            computes=stretch.computes,
            apart=stretch.apart,
            kept=stretch.computes and self._differs_less(stretch.follows),
        )
        work.chains.append(chain)
        work.narrowest = min([work.narrowest, *(copy.of(elements) for copy in stretch.copies)])
        work.stored += trips * stretch.stored.of(elements)
        work.staged += trips * chain.staged
        work.special += trips * special
        work.alu += trips * simple
        around = self.outline.stretches[stretch.around].loop if loop else None
        for load in stretch.loads:
            self._load(load, chain)
            if around and around.attrs["dim"] in load.source.names[-1:]:
                self._alone(load, chain, self.around.trips(around))
        for product in stretch.products:
            self._product(product, chain)

    def _differs_less(self, names: frozenset[str] | None) -> bool:
        """Whether what differs along these dims is the same along the last axis of several."""
        axes = self.around.axes
        return names is not None and len(axes) > 1 and axes[-1] not in names

    def _load(self, load: Fetch, chain: Chain) -> None:
        work, source, size = self.work, load.source, load.bytes.of(self.elements)
        width, describable = load.element or self.widths[source], load.matrix and self.widths[source] == VECTOR
        work.loaded += chain.trips * size
        shared = frozenset([axis for axis, name in enumerate(self.around.axes) if name in load.varying])
        tensor = self.numbers[self.outline.roles.get(source, source)]
        work.streams += (Stream(chain.trips * size, shared, self.bytes[source], tensor),)
        if load.gathers:
            work.gathered[source] = work.gathered.get(source, 0.0) + chain.trips * size
        work.describable |= describable and chain.pipelined
        if describable and self.around.descriptors:
            row = load.row.of(self.elements)
            lines = size * math.ceil(row / LINE) * LINE / row
            work.described += chain.trips * size
            work.lines += chain.trips * lines
            chain.described += size
            chain.lines += lines
            return
        copied = load.multiplied and width >= LANE
        chain.multiplied += size if copied else 0.0
        chain.vectors += size / width if copied else 0.0
        chain.picked |= copied and load.gathers
        if chain.pipelined and width == VECTOR:
            chain.copied += size
            return
        requests = size / min(width, LANE)
        chain.requests += requests
        chain.replaced += requests if copied else 0.0
        work.requests += chain.trips * requests

    def _alone(self, load: Fetch, chain: Chain, walks: int) -> None:
        """Count that an outer loop of so many iterations walks along the rows in memory, another one to their end."""
        row = load.row.of(self.elements)
        if row < PAGE <= (walks + 1) * row:
            self.work.alone += chain.trips * load.bytes.of(self.elements)

    def _product(self, product: Product, chain: Chain) -> None:
        work, extents = self.work, self.around.extents or product.own
        flops = 2.0 * math.prod([extents[name] for name in product.names])
        if not product.tensor:
            chain.elements += flops / 2
            work.fma += chain.trips * flops
            return
        flops *= 2.0 if product.tf32 else 1.0
        work.tensor += chain.trips * flops
        rows, columns, _ = self._shape(product)
        if product.many_rows:
            chain.wgmma += flops
            chain.wgmmas += 1
            chain.wide.append((flops, WARP_ROWS * MOST_WARPS if chain.chained else rows, columns))
            work.narrow += chain.trips * flops * columns_lost(columns) / columns
        else:
            chain.mma += flops
            chain.small.append((flops, math.ceil(rows / MMA_ROWS) * math.ceil(columns / MMA_COLUMNS)))
            chain.mmas += 1
            work.mma += chain.trips * flops

    def _shape(self, product: Product) -> tuple[int, int, int]:
        return product.sides.shape(self.around.extents or product.own)

    def _compulsory(self) -> float:
        """Bytes of each tensor, or those that are gathered from it."""
        work, needed = self.work, dict[Ref, float]()
        for argument in self.outline.arguments:
            if argument not in self.outline.roles:
                read = (
                    work.blocks * work.gathered.get(argument, math.inf)
                    if argument not in self.outline.loaded
                    else math.inf
                )
                needed[argument] = min(self.bytes[argument], read)
        return sum(needed.values())


WARP_ROWS, MOST_WARPS = 16, 8
"""Rows of ``wgmma`` that each warp computes; most warps of a block, which divide rows alone in loops in which one
product feeds another (and repeat one another's work)."""
MMA_ROWS, MMA_COLUMNS = 16, 8
"""Of what a warp computes at once by ``mma.sync``; warps for which nothing is left repeat one another's work."""
ROWS_READ = 8
"""Columns that ``wgmma`` could compute while it reads its rows from shared memory, which it does for each tile."""
FEW_COLUMNS = 64
"""Of a tile of fewer ``wgmma`` reads its 64 rows more slowly than it could multiply them: operands come at 128 bytes a
cycle, two columns are multiplied in one."""
SPECIAL_ELEMENTS = 8
"""Elements of simple register code that one of a special function takes as long as."""


def columns_lost(columns: int) -> float:
    """How many more ``wgmma`` could compute in the time that it takes for so many."""
    return ROWS_READ + max(0.0, (FEW_COLUMNS - columns) / 2)


def describable_loads(kernel: Kernel, known: Mapping[str, SizeLike]) -> frozenset[Ref]:
    """The tiles that could be loaded through descriptors."""
    around = Surroundings({}, known, 0, Walk(()), (), descriptors=True)
    sizes, loads = sized(kernel), [i for i in kernel.body.walk() if i.op in LOADS]
    wide = {argument for argument in kernel.arguments if around.width(argument) == VECTOR}
    return frozenset(i.result for i in loads if is_matrix(i, sizes) and i.operands[0] in wide)


def copyable_loads(kernel: Kernel, known: Mapping[str, SizeLike]) -> dict[Ref, int]:
    """The other operands of contractions that threads could copy, in vectors of so many bytes."""
    around = Surroundings({}, known, 0, Walk(()), (), descriptors=True)
    described = describable_loads(kernel, known)
    multiplied = {operand for i in kernel.body.walk() if i.op == "contract" for operand in i.operands}
    loads = [i for i in kernel.body.walk() if i.op in LOADS and i.result in multiplied - described and has_rows(i)]
    widths = {i.result: around.width(i.operands[0]) for i in loads}
    return {tile: width for tile, width in widths.items() if width >= LANE}


def workload_beside(
    kernels: Sequence[Kernel],
    arguments: Sequence[Ref],
    sizes: Mapping[str, int],
    known: Mapping[str, SizeLike] | None = None,
) -> Workload:
    """That of kernels side by side, which have these arguments together: what they have in common is read once."""
    works = [workload(kernel, sizes, known) for kernel in kernels]
    blocks = sum(work.blocks for work in works)
    twice = sum(work.compulsory for work in works) - sum(
        bytes_at(argument, sizes) for kernel in kernels for argument in kernel.arguments
    )
    whole = Workload(
        blocks=blocks,
        compulsory=sum(bytes_at(argument, sizes) for argument in arguments) + min(0.0, twice),
        resident=max(work.resident for work in works),
        streamed=max(work.streamed for work in works),
        live=max(work.live for work in works),
        temporary=max(work.temporary for work in works),
        chained_rows=min((work.chained_rows for work in works if work.chained_rows), default=0),
        narrowest=min(work.narrowest for work in works),
        beside=works,
    )
    for name in MEANS.split():
        setattr(whole, name, sum(work.blocks * getattr(work, name) for work in works) / max(blocks, 1))
    return whole
