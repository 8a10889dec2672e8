"""What a kernel does at given sizes: the numbers of the cost model that no target and no option of it changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cleave.dialects.dims import Size
from cleave.dialects.size import SizeLike
from cleave.schedule.tile_program import LOADS, Block, Instruction, Kernel, Ref
from cleave.schedule.traffic import Stream, Walk

BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "tf32": 4, "f16": 2, "bf16": 2, "i16": 2, "index": 8}
SPECIAL = frozenset("exp exp2 log sqrt rsqrt tanh erf sigmoid div pow".split())
VECTOR = 16
"""Bytes of the widest access of a thread; rows whose size is not known to be a multiple of it take narrower ones."""
LANE = 4
"""Bytes that a warp's access to memory moves at a time for each thread: wider accesses take so many times longer."""


@dataclass
class Chain:
    """One iteration of a loop, without the loops in it, or what lies outside all loops (``trips`` 1).

    ``copied``: bytes of loads that are wide asynchronous copies to shared memory, in flight while other iterations
    compute, as in loops that are ``pipelined``, unless there is a ``single`` one. ``requests``: accesses of up to
    ``LANE`` bytes of a thread that all other loads take.
    ``wgmma`` and ``mma``: floating-point operations of contractions by instruction; ``wgmmas``, ``mmas`` and
    ``reductions``: how many. ``elements``: of tiles of register code, those of special functions eight times.
    """

    trips: float
    pipelined: bool = False
    single: bool = False
    copied: float = 0.0
    requests: float = 0.0
    wgmma: float = 0.0
    mma: float = 0.0
    wgmmas: int = 0
    mmas: int = 0
    reductions: int = 0
    elements: float = 0.0


@dataclass
class Workload:
    """What a kernel does at given sizes: per block where nothing else is said; bytes and operations.

    ``compulsory``: bytes of its tensors; of one that is only gathered from, what all blocks read (``gathered``: each).
    ``resident`` and ``streamed``: shared memory of tiles outside and inside loops. ``live``: bytes of accumulators and
    the largest tile of register code. ``mma``: the part of ``tensor`` that tiles of less than 64 rows do by
    ``mma.sync``. ``requests``: as in ``Chain``. ``chained_rows``: of the tile of a contraction by ``wgmma`` that feeds
    another, if there is one: Triton gives such a tile's rows to the warps, and if they are too few, warps repeat one
    another's work. ``walk`` and ``streams``: see ``traffic``. ``beside``: of kernels side by side, each one's; what the
    whole has of theirs is a mean over all blocks.
    """

    blocks: int = 0
    compulsory: float = 0.0
    resident: int = 0
    streamed: int = 0
    live: int = 0
    loaded: float = 0.0
    stored: float = 0.0
    requests: float = 0.0
    tensor: float = 0.0
    mma: float = 0.0
    fma: float = 0.0
    special: float = 0.0
    alu: float = 0.0
    chained_rows: int = 0
    chains: list[Chain] = field(default_factory=list[Chain])
    walk: Walk = field(default_factory=lambda: Walk(()))
    streams: list[Stream] = field(default_factory=list[Stream])
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
        live=_live(kernel),
    )
    work.resident, work.streamed = _shared(kernel)
    work.chained_rows = min((rows for block in _blocks(kernel.body) for rows in _chained_rows(block)), default=0)
    widths = {argument: _access(argument, known or {}) for argument in kernel.arguments}
    axes: tuple[tuple[str, Size], ...] = ()
    if kernel.order:
        axes = kernel.order.axes
        work.walk = Walk(tuple(max(0, tiles.evaluate(sizes)) for _, tiles in axes), kernel.order.group)
    _count(kernel.body, Chain(1.0), _Surroundings(sizes, widths, tuple(name for name, _ in axes), kernel.roles), work)
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
        chained_rows=min((work.chained_rows for work in works if work.chained_rows), default=0),
        beside=works,
    )
    for name in ("loaded", "stored", "requests", "tensor", "mma", "fma", "special", "alu"):
        setattr(whole, name, sum(work.blocks * getattr(work, name) for work in works) / max(blocks, 1))
    return whole


@dataclass(frozen=True)
class _Surroundings:
    """The sizes of symbols, how many bytes a thread reads at once from each tensor, the grid's dims in order, and
    which tensors are others with other names."""

    sizes: Mapping[str, int]
    widths: Mapping[Ref, int]
    axes: tuple[str, ...]
    roles: Mapping[Ref, Ref]


def _elements(ref: Ref) -> int:
    return math.prod(dim.size.value or 1 for dim in ref.tile.dims) if ref.type else 1


def _bytes(ref: Ref) -> int:
    return _elements(ref) * BYTES.get(ref.tile.dtype, 1)


def _bytes_of(argument: Ref, sizes: Mapping[str, int]) -> int:
    return math.prod(dim.size.evaluate(sizes) for dim in argument.tile.dims) * BYTES.get(argument.tile.dtype, 1)


def _count(block: Block, chain: Chain, around: _Surroundings, work: Workload) -> None:
    work.chains.append(chain)
    repeated = _repeated_loads(block, around.roles)
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


def _repeated_loads(block: Block, roles: Mapping[Ref, Ref]) -> set[Instruction]:
    """Loads of what another load of the block has loaded, under other names perhaps: Triton makes them one."""
    seen: set[object] = set()
    found: set[Instruction] = set()
    for instruction in block.instructions:
        if instruction.op == "load":
            extents = tuple(dim.size for dim in instruction.result.tile.dims)
            source, *place = instruction.operands
            key = (roles.get(source, source), *place, extents)
            found |= {instruction} if key in seen else set()
            seen.add(key)
    return found


def _is_pipelined(loop: Instruction) -> bool:
    """Triton pipelines the loads of a loop with a contraction, all of them; those of other loops go to registers."""
    block = loop.body or Block()
    return any(i.op == "contract" and is_tensor_core(i) for i in block.instructions)


def trip_count(loop: Instruction, sizes: Mapping[str, int]) -> int:
    """Iterations of a loop where every symbol has the size given, on the average over thread blocks."""
    return max(0, loop.attrs["trips"].evaluate(sizes))


def _count_one(instruction: Instruction, chain: Chain, around: _Surroundings, work: Workload) -> None:
    op = instruction.op
    if op in LOADS:
        size, width = _bytes(instruction.result), _width(instruction, around)
        work.loaded += chain.trips * size
        source = instruction.operands[0]
        varying = instruction.attrs.get("varying", source.names)
        shared = frozenset(axis for axis, name in enumerate(around.axes) if name in varying)
        work.streams.append(Stream(chain.trips * size, shared, _bytes_of(source, around.sizes)))
        if op == "gather_load":
            work.gathered[source] = work.gathered.get(source, 0.0) + chain.trips * size
        if chain.pipelined and width == VECTOR:
            chain.copied += size
        else:
            chain.requests += size / min(width, LANE)
            work.requests += chain.trips * size / min(width, LANE)
    elif op == "store":
        work.stored += chain.trips * _bytes(instruction.operands[0])
    elif op == "contract":
        _count_contraction(instruction, chain, work)
    elif op in SPECIAL:
        chain.elements += SPECIAL_ELEMENTS * _elements(instruction.result)
        work.special += chain.trips * _elements(instruction.result)
    elif instruction.results and instruction.result.type and op not in ("constant", "splat", "index"):
        source = instruction.operands[0] if op == "reduce" else instruction.result
        chain.reductions += op == "reduce"
        chain.elements += _elements(source)
        work.alu += chain.trips * _elements(source)


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
    total = 0.0
    for argument in kernel.arguments:
        read = work.blocks * work.gathered.get(argument, math.inf) if argument not in loaded else math.inf
        total += min(_bytes_of(argument, sizes), read)
    return total


def _access(argument: Ref, known: Mapping[str, SizeLike]) -> int:
    """Bytes that a thread reads at once from a tensor: what the sizes of its rows are known to be a multiple of."""
    width = BYTES.get(argument.tile.dtype, 1)
    if not argument.tile.dims:
        return width
    size = argument.tile.dims[-1].size.substitute(known)
    multiple = math.gcd(*(coefficient for _, coefficient in size.terms))
    return max(width, math.gcd(VECTOR, multiple * width))


def is_tensor_core(contraction: Instruction) -> bool:
    """Whether tiles of these shapes and types go to the tensor cores."""
    rows, columns, depth = contraction_shape(contraction)
    types = {operand.tile.dtype for operand in contraction.operands}
    return types <= {"f16", "bf16", "tf32", "f8E4M3FN", "f8E5M2"} and min(rows, depth) >= 16 and columns >= 8


def contraction_shape(contraction: Instruction) -> tuple[int, int, int]:
    """(rows, columns, depth): extents of the dims that the result has first and last, each of one operand alone, and
    of those summed; 0 where dims of both operands are kept. Fewer than 16 rows are taken for columns."""
    a, b = contraction.operands
    summed, left, right = set(contraction.attrs["over"]), set(a.names), set(b.names)
    if (left & right) - summed:
        return 0, 0, 0
    sides = [(_extent(a, left - right), left - right), (_extent(b, right - left), right - left)]
    names = contraction.result.names
    if names and names[0] in sides[1][1]:
        sides.reverse()
    (rows, _), (columns, _) = sides
    return max(rows, columns) if rows < 16 else rows, min(rows, columns) if rows < 16 else columns, _extent(a, summed)


def _extent(ref: Ref, names: Iterable[str]) -> int:
    return math.prod(dim.size.value or 1 for dim in ref.tile.dims if dim.name in names)


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


WGMMA_ROWS = 64


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
    else:
        chain.mma += flops
        chain.mmas += 1
        work.mma += chain.trips * flops


def _is_matrix_product(instruction: Instruction) -> bool:
    """Whether it becomes ``tt.dot``, and not a product of registers that is summed."""
    if instruction.op != "contract":
        return False
    rows, columns, depth = contraction_shape(instruction)
    return min(rows, columns) >= 8 and max(rows, columns) >= 16 and depth >= 16


def _shared(kernel: Kernel) -> tuple[int, int]:
    """Bytes of tiles in shared memory: outside loops what feeds contractions; every load of a loop with a contraction.

    So measured: Triton 3.6 gives a mask that no contraction reads as many buffers as the keys, and Triton 3.7 none to
    the loads of loops without contractions.
    """
    fed = {operand for i in kernel.body.walk() if _is_matrix_product(i) for operand in i.operands}
    return _staged(kernel.body, fed, kernel), _streamed(kernel.body, fed, kernel)


def _staged(block: Block, fed: set[Ref], kernel: Kernel, *, every: bool = False) -> int:
    """Bytes of the loads of a block, without its loops, that feed contractions, or of all of them."""
    repeated = _repeated_loads(block, kernel.roles)
    loads = [i for i in block.instructions if i.op in LOADS and i not in repeated]
    return sum(_bytes(load.result) for load in loads if every or load.result in fed)


def _streamed(block: Block, fed: set[Ref], kernel: Kernel) -> int:
    """Bytes of the loop of a block that needs most; loops after one another use the same memory."""
    bodies = [instruction.body for instruction in block.instructions if instruction.body]
    every = [any(_is_matrix_product(i) for i in body.instructions) for body in bodies]
    needs = (
        _staged(body, fed, kernel, every=whole) + _streamed(body, fed, kernel)
        for body, whole in zip(bodies, every, strict=True)
    )
    return max(needs, default=0)


def _live(kernel: Kernel) -> int:
    """Bytes of the fullest block's accumulators and its largest other tile of register code."""
    return max(sum(map(_bytes, block.arguments[1:])) + _largest(block) for block in _blocks(kernel.body))


def _largest(block: Block) -> int:
    largest = 0
    in_place = _updates(block)
    for instruction in block.instructions:
        if instruction.op in (*LOADS, "constant", "index") or not instruction.results or instruction.body:
            continue
        if instruction.op == "contract" and not is_tensor_core(instruction):
            largest = max(largest, sum(map(_bytes, (*instruction.operands, instruction.result))))
        if instruction.result.type and instruction.result not in in_place:
            largest = max(largest, _bytes(instruction.result))
    return largest


def _blocks(block: Block) -> list[Block]:
    inner = [instruction.body for instruction in block.instructions if instruction.body]
    return [block, *(each for body in inner for each in _blocks(body))]


def _updates(block: Block) -> set[Ref]:
    """The results that only update an accumulator in place: what is yielded, and what is added to make it."""
    found = set(block.yields)
    for instruction in block.instructions:
        if instruction.results and instruction.result in found and instruction.op in ("add", "cast"):
            found |= set(instruction.operands)
    return found
