"""What a kernel does at given sizes: the numbers of the cost model that no target and no option of it changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleave.dialects.dims import Size
from cleave.dialects.size import SizeLike
from cleave.schedule.occupancy import live_bytes, repeated_loads, shared_bytes
from cleave.schedule.tile_program import LOADS, Block, Instruction, Kernel, Ref
from cleave.schedule.tile_sizes import BYTES, bytes_of, contraction_shape, elements_of, is_tensor_core
from cleave.schedule.traffic import Stream, Walk
from cleave.schedule.warps import WGMMA_ROWS, exchanges, is_between_warps, narrowest_copy, staged

SPECIAL = frozenset("exp exp2 log sqrt rsqrt tanh erf sigmoid div pow".split())
VECTOR = 16
"""Bytes of the widest access of a thread; rows whose size is not known to be a multiple of it take narrower ones."""
LANE = 4
"""Bytes that a warp's access to memory moves at a time for each thread: wider accesses take so many times longer."""
REGISTER = 4
"""Bytes of the register that each narrow access of a pipelined loop has until its value goes to shared memory."""


@dataclass
class Chain:
    """One iteration of a loop, without the loops in it, or what lies outside all loops (``trips`` 1).

    ``copied``: bytes of loads that are wide asynchronous copies to shared memory, in flight while other iterations
    compute, as in loops that are ``pipelined``, unless there is a ``single`` one. ``described``: of loads through
    descriptors. ``requests``: accesses of up to ``LANE`` bytes of a thread that all other loads take. ``repeated``:
    loads that feed contractions and register code; the latter gets a load of its own, which is not pipelined, of
    ``repeats`` accesses in all. ``exchanges``: as of ``warps``, and operands that are ``staged`` (which is their
    bytes). ``chained``: whether a contraction by ``wgmma`` feeds another. ``special``: elements of special functions.
    ``wgmma`` and ``mma``: floating-point operations of contractions by instruction; ``wgmmas``, ``mmas`` and
    ``reductions``: how many; ``meetings``: reductions in which warps wait for one another; ``waited``: contractions
    that register code waits for; ``narrow``: operations that ``wgmma`` loses where tiles have few columns; ``small``:
    operations of those by ``mma.sync``, and the warps that there is work for.
    ``elements``: of tiles of register code, those of special functions eight times.
    """

    trips: float
    pipelined: bool = False
    single: bool = False
    copied: float = 0.0
    described: float = 0.0
    requests: float = 0.0
    wgmma: float = 0.0
    mma: float = 0.0
    repeated: int = 0
    repeats: float = 0.0
    exchanges: int = 0
    staged: float = 0.0
    wgmmas: int = 0
    waited: int = 0
    narrow: float = 0.0
    mmas: int = 0
    small: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    reductions: int = 0
    meetings: int = 0
    chained: bool = False
    special: float = 0.0
    elements: float = 0.0


MEANS = "loaded described narrow stored requests tensor mma fma special alu staged"
"""What kernels side by side have of these is a mean over their blocks."""


@dataclass
class Workload:
    """What a kernel does at given sizes: per block where nothing else is said; bytes and operations.

    ``compulsory``: bytes of its tensors; of one that is only gathered from, what all blocks read (``gathered``: each).
    ``resident`` and ``streamed``: shared memory of tiles outside and inside loops. ``live``: bytes of accumulators and
    the largest tile of register code, which is ``temporary``. ``described``: of ``loaded``, those that go through
    descriptors; ``describable``: whether loads of a pipelined loop could. ``mma``: the part of ``tensor`` that tiles of
    less than 64 rows do by ``mma.sync``. ``requests``, ``narrow`` and ``staged``: as in ``Chain``. ``chained_rows``: of
    the tile of a contraction by ``wgmma`` that feeds another, if there is one: Triton gives such a tile's rows to the
    warps, and if they are too few, warps repeat one another's work. ``narrowest``: bytes of the smallest tile that a
    pipelined loop copies for ``wgmma``. ``walk`` and ``streams``: see ``traffic``. ``beside``: of kernels side by side,
    each one's; what the whole has of theirs is a mean over all blocks.
    """

    blocks: int = 0
    compulsory: float = 0.0
    resident: int = 0
    streamed: int = 0
    live: int = 0
    temporary: int = 0
    loaded: float = 0.0
    described: float = 0.0
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
    gathered: dict[Ref, float] = field(default_factory=dict[Ref, float])
    beside: list[Workload] = field(default_factory=list["Workload"])


def workload(kernel: Kernel, sizes: Mapping[str, int], known: Mapping[str, SizeLike] | None = None) -> Workload:
    """What one launch does where every symbol has the size given.

    ``known``: what the kernel's code is told of symbols: static extents, and multiples such as ``16*n16``.
    """
    if kernel.beside:
        return _together([workload(each, sizes, known) for each in kernel.beside], kernel, sizes)
    work = Workload(
        blocks=math.prod(max(0, size.evaluate(sizes)) for size in kernel.grid),
    )
    work.live, work.temporary = live_bytes(kernel)
    work.resident, work.streamed = shared_bytes(kernel)
    work.chained_rows = min((rows for block in _blocks(kernel.body) for rows in _chained_rows(block)), default=0)
    widths = {argument: _access(argument, known or {}) for argument in kernel.arguments}
    axes: tuple[tuple[str, Size], ...] = ()
    if kernel.order:
        axes = kernel.order.axes
        work.walk = Walk(tuple(max(0, tiles.evaluate(sizes)) for _, tiles in axes), kernel.order.group)
    names = tuple(name for name, _ in axes)
    numbers = {argument: number for number, argument in enumerate(kernel.arguments)}
    around = _Surroundings(sizes, widths, names, kernel.roles, numbers, _sized(kernel), kernel.descriptors)
    _count(kernel.body, Chain(1.0), around, work)
    work.live += math.ceil(max((REGISTER * chain.requests for chain in work.chains if chain.pipelined), default=0))
    work.compulsory = _compulsory(kernel, sizes, work)
    return work


def _together(works: list[Workload], kernel: Kernel, sizes: Mapping[str, int]) -> Workload:
    """The workload of kernels side by side: what they have in common is read once."""
    blocks = sum(work.blocks for work in works)
    twice = sum(work.compulsory for work in works) - sum(
        _bytes_of(argument, sizes) for each in kernel.beside for argument in each.arguments
    )
    whole = Workload(
        blocks=blocks,
        compulsory=sum(_bytes_of(argument, sizes) for argument in kernel.arguments) + min(0.0, twice),
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


@dataclass(frozen=True)
class _Surroundings:
    """The sizes of symbols, how many bytes a thread reads at once from each tensor, the grid's dims in order, and
    which tensors are others with other names. ``numbers``: of the kernel's arguments.

    ``sized``: the indices that are sizes of dims. ``descriptors``: as of the kernel.
    """

    sizes: Mapping[str, int]
    widths: Mapping[Ref, int]
    axes: tuple[str, ...]
    roles: Mapping[Ref, Ref]
    numbers: Mapping[Ref, int]
    sized: frozenset[Ref]
    descriptors: bool


def _bytes_of(argument: Ref, sizes: Mapping[str, int]) -> int:
    return math.prod(dim.size.evaluate(sizes) for dim in argument.tile.dims) * BYTES.get(argument.tile.dtype, 1)


def _count(block: Block, chain: Chain, around: _Surroundings, work: Workload) -> None:
    work.chains.append(chain)
    repeated = repeated_loads(block, around.roles)
    chain.staged, operands = staged(block)
    chain.exchanges = exchanges(block) + operands
    work.staged += chain.trips * chain.staged
    chain.chained = bool(_chained_rows(block))
    if chain.pipelined:
        work.narrowest = min(work.narrowest, narrowest_copy(block))
        chain.waited = sum(i.op == "contract" and not _is_accumulated(i.result, block) for i in block.instructions)
        twice = [i.result for i in block.instructions if i.op == "load" and _has_both_uses(i.result, block)]
        chain.repeated, chain.repeats = len(twice), sum(bytes_of(tile) / LANE for tile in twice)
    for instruction in block.instructions:
        if instruction in repeated:
            continue
        if instruction.body:
            trips = trip_count(instruction, around.sizes)
            inner = Chain(
                chain.trips * trips, pipelined=_is_pipelined(instruction), single="stages" in instruction.attrs
            )
            _count(instruction.body, inner, around, work)
        else:
            _count_one(instruction, chain, around, work)


def _is_pipelined(loop: Instruction) -> bool:
    """Triton pipelines the loads of a loop with a contraction, all of them; those of other loops go to registers.

    Loops that it would pipeline wrongly are held back by the lowering (``lowering/ttir_race.py``).
    """
    block = loop.body or Block()
    products = [i for i in block.instructions if i.op == "contract" and is_tensor_core(i)]
    return bool(products) and not _is_held_back(products, block)


def _left_operand(contraction: Instruction) -> Ref:
    """The operand that has the rows of the result."""
    a, b = contraction.operands
    names = contraction.result.names
    return b if names and names[0] in b.names and names[0] not in a.names else a


def _is_held_back(products: Sequence[Instruction], block: Block) -> bool:
    """Whether a product of many rows takes its left operand from registers, and nothing in the loop uses a product."""
    computed = {i.result for i in block.instructions if i.op not in LOADS and i.results}
    registers = any(_left_operand(i) in computed and contraction_shape(i)[0] >= WGMMA_ROWS for i in products)
    return registers and all(_is_accumulated(i.result, block) for i in products)


def _is_accumulated(product: Ref, block: Block) -> bool:
    """Whether it is only added to what the next iteration adds to."""
    users = [i for i in block.instructions if product in i.operands]
    return all(i.op == "add" and i.result in block.yields for i in users)


def _has_both_uses(tile: Ref, block: Block) -> bool:
    users = [i for i in block.instructions if tile in i.operands]
    return {i.op == "contract" and is_tensor_core(i) for i in users} == {True, False}


def trip_count(loop: Instruction, sizes: Mapping[str, int]) -> int:
    """Iterations of a loop where every symbol has the size given, on the average over thread blocks."""
    return max(0, loop.attrs["trips"].evaluate(sizes))


def _count_one(instruction: Instruction, chain: Chain, around: _Surroundings, work: Workload) -> None:
    op = instruction.op
    if op in LOADS:
        _count_load(instruction, chain, around, work)
    elif op == "store":
        work.stored += chain.trips * bytes_of(instruction.operands[0])
    elif op == "contract":
        _count_contraction(instruction, chain, work)
    elif op in SPECIAL:
        chain.elements += SPECIAL_ELEMENTS * elements_of(instruction.result)
        chain.special += elements_of(instruction.result)
        work.special += chain.trips * elements_of(instruction.result)
    elif instruction.results and instruction.result.type and op not in ("constant", "splat", "index"):
        source = instruction.operands[0] if op == "reduce" else instruction.result
        chain.reductions += op == "reduce"
        chain.meetings += op == "reduce" and is_between_warps(instruction)
        chain.elements += elements_of(source)
        work.alu += chain.trips * elements_of(source)


def _count_load(load: Instruction, chain: Chain, around: _Surroundings, work: Workload) -> None:
    source, size = load.operands[0], bytes_of(load.result)
    width, describable = _width(load, around), _is_describable(load, around.widths, around.sized)
    work.loaded += chain.trips * size
    varying = load.attrs.get("varying", source.names)
    shared = frozenset(axis for axis, name in enumerate(around.axes) if name in varying)
    tensor = around.numbers[around.roles.get(source, source)]
    work.streams += (Stream(chain.trips * size, shared, _bytes_of(source, around.sizes), tensor),)
    if load.op == "gather_load":
        work.gathered[source] = work.gathered.get(source, 0.0) + chain.trips * size
    work.describable |= describable and chain.pipelined
    if describable and around.descriptors:
        work.described += chain.trips * size
        chain.described += size
    elif chain.pipelined and width == VECTOR:
        chain.copied += size
    else:
        chain.requests += size / min(width, LANE)
        work.requests += chain.trips * size / min(width, LANE)


def describable_loads(kernel: Kernel, known: Mapping[str, SizeLike]) -> frozenset[Ref]:
    """The tiles that could be loaded through descriptors."""
    widths = {argument: _access(argument, known) for argument in kernel.arguments}
    sized = _sized(kernel)
    return frozenset(i.result for i in kernel.body.walk() if i.op in LOADS and _is_describable(i, widths, sized))


def _sized(kernel: Kernel) -> frozenset[Ref]:
    """The indices that are sizes of dims."""
    return frozenset(i.result for i in kernel.body.walk() if i.op in ("extent", "arith.constant"))


def _is_describable(load: Instruction, widths: Mapping[Ref, int], sized: frozenset[Ref]) -> bool:
    """Whether it can go through a descriptor: a matrix with wide rows, that ends where its tensor does."""
    if load.op != "load":
        return False
    rank = (len(load.operands) - 1) // 2
    bounds = zip(load.operands[0].names, load.operands[1 + rank :], strict=True)
    inside = load.attrs.get("in_bounds", ())
    ends = all(name in inside or bound in sized for name, bound in bounds)
    return ends and len(load.result.names) == 2 and widths[load.operands[0]] == VECTOR


SPECIAL_ELEMENTS = 8
"""Elements of simple register code that one of a special function takes as long as."""


def _width(load: Instruction, around: _Surroundings) -> int:
    """Bytes that a thread reads at once: of elements at unrelated positions one after the other, one."""
    source = load.operands[0]
    if load.op == "gather_load" and not load.attrs["contiguous"] and source.names[-1] in load.attrs["dims"]:
        return BYTES.get(source.tile.dtype, 1)
    return around.widths[source]


def _compulsory(kernel: Kernel, sizes: Mapping[str, int], work: Workload) -> float:
    loaded = {i.operands[0] for i in kernel.body.walk() if i.op == "load"}
    needed: dict[Ref, float] = {}
    for argument in kernel.arguments:
        if argument in kernel.roles:
            continue
        read = work.blocks * work.gathered.get(argument, math.inf) if argument not in loaded else math.inf
        tensor = kernel.roles.get(argument, argument)
        needed[tensor] = max(needed.get(tensor, 0.0), min(_bytes_of(argument, sizes), read))
    return sum(needed.values())


def _access(argument: Ref, known: Mapping[str, SizeLike]) -> int:
    """Bytes that a thread reads at once from a tensor: what the sizes of its rows, and of those that they are parts of,
    are known to be a multiple of."""
    width = BYTES.get(argument.tile.dtype, 1)
    if not argument.tile.dims:
        return width
    sizes = [argument.tile.dims[-1].size, *([argument.row] if argument.row else [])]
    multiple = math.gcd(*(coefficient for size in sizes for _, coefficient in size.substitute(known).terms))
    return max(width, math.gcd(VECTOR, multiple * width))


def _chained_rows(block: Block) -> list[int]:
    """Rows of the ``wgmma`` contractions of a block that have an operand computed from another one of them."""
    computed: set[Ref] = set()
    found: list[int] = []
    for instruction in block.instructions:
        fed = not computed.isdisjoint(instruction.operands)
        if instruction.op == "contract" and is_tensor_core(instruction):
            if fed:
                rows = contraction_shape(instruction)[0]
                found += [rows] if rows >= WGMMA_ROWS else []
            computed.add(instruction.result)
        elif fed and not instruction.body:
            computed.update(instruction.results)
    return found


MMA_ROWS, MMA_COLUMNS = 16, 8
"""Of what a warp computes at once by ``mma.sync``; warps for which nothing is left repeat one another's work."""
ROWS_READ = 8
"""Columns that ``wgmma`` could compute while it reads its rows from shared memory, which it does for each tile."""


def _count_contraction(instruction: Instruction, chain: Chain, work: Workload) -> None:
    a, b = instruction.operands
    everything = {dim.name: dim.size.value or 1 for ref in (a, b) for dim in ref.tile.dims}
    flops = 2.0 * math.prod(everything.values())
    if not is_tensor_core(instruction):
        chain.elements += flops / 2
        work.fma += chain.trips * flops
        return
    flops *= 2.0 if "tf32" in (a.tile.dtype, b.tile.dtype) else 1.0
    work.tensor += chain.trips * flops
    if contraction_shape(instruction)[0] >= WGMMA_ROWS:
        chain.wgmma += flops
        chain.wgmmas += 1
        narrow = flops * ROWS_READ / contraction_shape(instruction)[1]
        chain.narrow += narrow
        work.narrow += chain.trips * narrow
    else:
        rows, columns, _ = contraction_shape(instruction)
        chain.mma += flops
        chain.small.append((flops, math.ceil(rows / MMA_ROWS) * math.ceil(columns / MMA_COLUMNS)))
        chain.mmas += 1
        work.mma += chain.trips * flops


def _blocks(block: Block) -> list[Block]:
    inner = [instruction.body for instruction in block.instructions if instruction.body]
    return [block, *(each for body in inner for each in _blocks(body))]
