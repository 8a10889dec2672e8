"""The cost model: a pure function from (kernel, sizes, target) to predicted time and resources."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cleave.schedule.target import Target
from cleave.schedule.tile_program import Block, Instruction, Kernel, Ref, TileProgram

BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "tf32": 4, "f16": 2, "bf16": 2, "i16": 2, "index": 8}
SPECIAL = frozenset("exp exp2 log sqrt rsqrt tanh erf sigmoid div pow".split())


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of one kernel by what bounds it, and its resources per block (bytes; registers per thread)."""

    dram: float
    l2: float
    tensor: float
    special: float
    alu: float
    latency: float
    blocks: int
    waves: int
    shared: int
    registers: int

    @property
    def running(self) -> float:
        """Without the launch."""
        cores, units = self.tensor, self.special + self.alu
        compute = max(cores, units) + 0.3 * min(cores, units)
        return max(self.dram, self.l2, compute) + self.latency

    def fits(self, target: Target) -> bool:
        return self.shared <= target.shared_per_block and self.registers <= 255


@dataclass
class Workload:
    """What a kernel does at given sizes: per block where nothing else is said; bytes, operations, loop iterations.

    ``compulsory``: bytes of its tensors. ``resident`` and ``streamed``: shared memory of tiles outside and inside
    loops. ``live``: bytes of accumulators and the largest tile of register code.
    """

    blocks: int = 0
    compulsory: int = 0
    resident: int = 0
    streamed: int = 0
    live: int = 0
    loaded: float = 0.0
    stored: float = 0.0
    tensor: float = 0.0
    fma: float = 0.0
    special: float = 0.0
    alu: float = 0.0
    steps: float = 0.0


def workload(kernel: Kernel, sizes: Mapping[str, int]) -> Workload:
    """What one launch does where every symbol has the size given."""
    work = Workload(
        blocks=math.prod(max(0, size.evaluate(sizes)) for size in kernel.grid),
        compulsory=sum(_bytes_of(argument, sizes) for argument in kernel.arguments),
        live=_live(kernel),
    )
    work.resident, work.streamed = _shared(kernel)
    _count(kernel.body, 1.0, sizes, work)
    return work


def kernel_cost(kernel: Kernel, sizes: Mapping[str, int], target: Target) -> Cost:
    """The cost of one launch where every symbol has the size given."""
    return cost_of(workload(kernel, sizes), kernel.num_stages, kernel.num_warps, target)


def launch_time(count: int, target: Target) -> float:
    """Seconds that launching this many kernels one after the other takes."""
    return target.launch + (count - 1) * target.next_launch if count else 0.0


def cost_of(work: Workload, num_stages: int, num_warps: int, target: Target) -> Cost:
    """The cost of a workload with these numbers of pipeline stages and warps."""
    blocks, shared = work.blocks, work.resident + work.streamed * num_stages
    registers = REGISTERS_BASE + math.ceil(REGISTERS_SHARE * work.live / (4 * 32 * num_warps))
    resident = max(1, min(target.shared // max(shared, 1), target.registers // (registers * 32 * num_warps)))
    waves = math.ceil(blocks / (target.sms * resident)) if blocks else 0
    # multiprocessors that the last blocks do not fill are idle: neither their units nor their ways to L2 are used
    idle = math.ceil(blocks / target.sms) * target.sms / blocks if blocks else 1.0
    traffic = blocks * (work.loaded + work.stored)
    misses = work.compulsory if work.compulsory <= target.l2_size else max(work.compulsory, 0.15 * traffic)
    return Cost(
        dram=min(misses, max(traffic, work.compulsory)) / target.dram_bandwidth,
        l2=traffic * idle / target.l2_bandwidth,
        tensor=blocks * idle * work.tensor / target.tensor_flops,
        special=blocks * idle * work.special / target.special_rate,
        alu=blocks * idle * (work.alu + work.fma) / target.fma_flops,
        latency=waves * (target.block_latency + work.steps * target.step_latency / num_stages),
        blocks=blocks,
        waves=waves,
        shared=shared,
        registers=registers,
    )


def program_cost(program: TileProgram, sizes: Mapping[str, int], target: Target) -> float:
    """Predicted seconds of the whole program."""
    costs = [kernel_cost(launch.kernel, sizes, target) for launch in program.launches]
    return sum(cost.running for cost in costs) + launch_time(len(costs), target)


def _elements(ref: Ref) -> int:
    return math.prod(dim.size.value or 1 for dim in ref.tile.dims) if ref.type else 1


def _bytes(ref: Ref) -> int:
    return _elements(ref) * BYTES.get(ref.tile.dtype, 1)


def _bytes_of(argument: Ref, sizes: Mapping[str, int]) -> int:
    return math.prod(dim.size.evaluate(sizes) for dim in argument.tile.dims) * BYTES.get(argument.tile.dtype, 1)


def _count(block: Block, times: float, sizes: Mapping[str, int], work: Workload) -> None:
    for instruction in block.instructions:
        if instruction.body:
            trips = trip_count(instruction, sizes)
            work.steps += times * trips
            _count(instruction.body, times * trips, sizes, work)
        else:
            _count_one(instruction, times, work)


def trip_count(loop: Instruction, sizes: Mapping[str, int]) -> int:
    """Iterations of a loop where every symbol has the size given."""
    size = loop.attrs["size"].evaluate(sizes)
    return -(-size // loop.attrs["step"])


def _count_one(instruction: Instruction, times: float, work: Workload) -> None:
    op = instruction.op
    if op == "load":
        work.loaded += times * _bytes(instruction.result)
    elif op == "store":
        work.stored += times * _bytes(instruction.operands[0])
    elif op == "contract":
        _count_contraction(instruction, times, work)
    elif op in SPECIAL:
        work.special += times * _elements(instruction.result)
    elif instruction.results and instruction.result.type and op not in ("constant", "splat", "index"):
        source = instruction.operands[0] if op == "reduce" else instruction.result
        work.alu += times * _elements(source)


def is_tensor_core(a: Ref, b: Ref, over: tuple[str, ...]) -> bool:
    """Whether tiles of these shapes and types go to the tensor cores."""
    rows, columns, depth = contraction_shape(a, b, over)
    narrow = {a.tile.dtype, b.tile.dtype} <= {"f16", "bf16", "tf32", "f8E4M3FN", "f8E5M2"}
    return narrow and min(rows, depth) >= 16 and columns >= 8


def contraction_shape(a: Ref, b: Ref, over: tuple[str, ...]) -> tuple[int, int, int]:
    """(rows, columns, depth): extents of the dims only in a, only in b, and summed; 0 where dims of both are kept."""

    def extent(ref: Ref, names: set[str]) -> int:
        return math.prod(dim.size.value or 1 for dim in ref.tile.dims if dim.name in names)

    summed, left, right = set(over), set(a.names), set(b.names)
    if (left & right) - summed:
        return 0, 0, 0
    return extent(a, left - right), extent(b, right - left), extent(a, summed & left)


def _count_contraction(instruction: Instruction, times: float, work: Workload) -> None:
    a, b = instruction.operands
    over = tuple(instruction.attrs["over"])
    everything = {dim.name: dim.size.value or 1 for ref in (a, b) for dim in ref.tile.dims}
    flops = 2.0 * math.prod(everything.values())
    if is_tensor_core(a, b, over):
        work.tensor += times * flops * (2.0 if "tf32" in (a.tile.dtype, b.tile.dtype) else 1.0)
    else:
        work.fma += times * flops


def _shared(kernel: Kernel) -> tuple[int, int]:
    """Bytes of tiles in shared memory: outside loops what feeds contractions; inside every load, for all are pipelined.

    So measured: Triton 3.6 gives a mask that no contraction reads as many buffers as the keys.
    """
    fed = {operand for i in kernel.body.walk() if i.op == "contract" for operand in i.operands}
    totals = [0, 0]

    def visit(block: Block, inside: int) -> None:
        for instruction in block.instructions:
            if instruction.body:
                visit(instruction.body, 1)
            elif instruction.op == "load" and (inside or instruction.result in fed):
                totals[inside] += _bytes(instruction.result)

    visit(kernel.body, 0)
    return totals[0], totals[1]


REGISTERS_BASE = 45
REGISTERS_SHARE = 1.35
"""Registers per thread as a function of the live bytes: fitted to ptxas on the kernels of facts/triton-handover.md §4.2
and on plain contractions."""


def _live(kernel: Kernel) -> int:
    """Bytes of the accumulators of the fullest loop, and of the largest other tile of register code."""
    carried = largest = 0
    for block in _blocks(kernel.body):
        carried = max(carried, sum(_bytes(ref) for ref in block.arguments[1:]))
        in_place = _updates(block)
        for instruction in block.instructions:
            if instruction.op in ("load", "constant", "index") or not instruction.results or instruction.body:
                continue
            if instruction.op == "contract":
                a, b = instruction.operands
                if not is_tensor_core(a, b, instruction.attrs["over"]):
                    largest = max(largest, _bytes(a) + _bytes(b) + _bytes(instruction.result))
            if instruction.result.type and instruction.result not in in_place:
                largest = max(largest, _bytes(instruction.result))
    return carried + largest


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
