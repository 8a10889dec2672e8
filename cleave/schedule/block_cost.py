"""What a kernel costs that is not warp-specialised: what it asks of the GPU, and what its blocks take alone.

It takes as long as what it asks of the whole GPU (memory, tensor cores, register code) or as a block's own chain of
loads, contractions and reductions, one after the other, whichever is longer; and some of the shorter one, for the two
overlap only in part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cleave.schedule.target import Target
from cleave.schedule.traffic import dram_reads
from cleave.schedule.workload import WARP_ROWS, Chain, Workload

OVERLAP = 0.3
"""Share of the shorter one of two things that compete for a multiprocessor which the longer one does not hide."""
EVEN = 6
"""How suddenly the longer one of two takes all the time: of equal ones both together take a power of 1 / ``EVEN`` of
two times as long."""
OVERLAP_DESCRIBED, TRAFFIC_OVERLAP_DESCRIBED = 0.15, 0.15
"""The same of kernels that load through descriptors and wait for contractions in their loops (where they do not, a
single block keeps the tensor cores busy); and such a share of the shorter one of traffic and computation."""
IN_STEP = 1.1
"""How many times as long L2 takes in such kernels where all blocks run at once, and ask for the same lines at the same
time."""
STEADY = 1.25
"""Rate of contractions over ``tensor_flops`` in such kernels where nothing in a loop waits for one."""
UNROLLED_REQUESTS, MOST_UNROLLED = 20.0, 8.0
"""Accesses of a thread, and iterations, that are in flight at once in loops that are not pipelined."""
ALONE = 0.16
"""Share of the time in DRAM that it costs where each block has pages of its own and comes back to them."""
EDGE = 0.6
"""Share of the DRAM bandwidth at which blocks read and write outside their loops where each has a multiprocessor."""
SLOWEST = 2.0
"""How many times as long as one load the slowest of all warps' takes, for which they wait where they meet in a loop."""
REPEATED, WAITED = 2.0, 0.4
"""How many times as long as others an access takes that repeats one of a pipeline: contractions stand around it; and
the share of such a load's latency that copies by pointers do not hide."""
THREADS, COPY = 32, 16
"""Threads of a warp; bytes that each copies at once from a tile large enough."""
MOST_REGISTERS = 255
"""Registers that a thread can have; more than these are spilled to memory."""
REGISTERS_BASE = 45
REGISTERS_BASE_POINTWISE = 28
REGISTERS_SHARE = 1.35
REGISTERS_USUAL = 1.05
"""Registers per thread as a function of the live bytes: so many that attention does not spill (fitted to what ptxas
says of kernels of attention), and as many as most kernels have, which says how many blocks run at once."""
SIMPLE = 0.43
"""Elements of simple register code as a share of the rate of multiply-adds, wherever one contraction by ``wgmma`` feeds
another."""
REGISTERS_DESCRIBED, TEMPORARY_DESCRIBED, EDGE_REGISTERS = 40, 0.3, 8
"""In kernels that load through descriptors: those beside the live ones, of which the temporary ones count more, and
those of a second loop for iterations with masks."""


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of one kernel by what bounds it, and its resources per block (bytes; registers per thread).

    ``latency``: the blocks of one multiprocessor after one another, each as if alone. ``start``: what even a kernel
    with nothing to do takes. ``overlap``, ``traffic_overlap`` and ``unit_overlap``: as ``OVERLAP``.
    """

    dram: float
    l2: float
    tensor: float
    special: float
    alu: float
    latency: float
    start: float
    overlap: float
    traffic_overlap: float
    blocks: int
    waves: int
    shared: int
    registers: int
    unit_overlap: float = OVERLAP

    @cached_property
    def running(self) -> float:
        """Without the launch."""
        units = overlapped(self.tensor, self.special + self.alu, self.unit_overlap)
        traffic = overlapped(self.dram, self.l2, self.traffic_overlap)
        throughput = overlapped(traffic, units, self.traffic_overlap)
        return self.start + overlapped(throughput, self.latency, self.overlap)

    def fits(self, target: Target) -> bool:
        return self.shared <= target.shared_per_block and self.registers <= MOST_REGISTERS


def overlapped(one: float, other: float, overlap: float) -> float:
    """Seconds of two things of which the longer one hides all but this share of the shorter one. Without any share two
    that take equally long still wait for one another now and then."""
    shorter, longer = sorted((one, other))
    if overlap or not longer:
        return longer + overlap * shorter
    return longer * (1 + (shorter / longer) ** EVEN) ** (1 / EVEN)


@dataclass(frozen=True)
class Resources:
    """What one thread block takes: bytes of shared memory; registers per thread."""

    shared: int
    registers: int


def cost_of(work: Workload, num_stages: int, num_warps: int, target: Target, compiled: Resources | None = None) -> Cost:
    """The cost of a workload with these numbers of pipeline stages and warps.

    ``compiled``: what the compiler says that a block takes, in place of an estimate.
    """
    return Costs(work, target).of(num_stages, num_warps, compiled)


@dataclass(frozen=True)
class _Warps:
    """What a number of warps makes of a workload: seconds on each unit, those that each chain computes in an iteration,
    and registers, the most and as usual."""

    tensor: float
    special: float
    alu: float
    computing: tuple[tuple[tuple[Chain, float], ...], ...]
    registers: tuple[int, int]


class Costs:
    """The costs of one workload: what neither stages nor warps change is found once."""

    def __init__(self, work: Workload, target: Target) -> None:
        self.work, self.target = work, target
        self.walks = work.beside or [work]
        # multiprocessors that the last blocks do not fill are idle: neither their units nor their ways to L2 are used
        self.idle = math.ceil(work.blocks / target.sms) * target.sms / work.blocks if work.blocks else 1.0
        self.traffic = work.blocks * (work.loaded + work.stored)
        self.described, self.lines = work.blocks * work.described, work.blocks * work.lines
        self.waits = any(chain.waited for each in self.walks for chain in each.chains)
        self.rotated = any(chain.chained for each in self.walks for chain in each.chains)
        self.staged = work.streamed > 0 or any(_has_stages(chain) for each in self.walks for chain in each.chains)
        self.l2, self.edge = self._l2(), target.sms * _edge(self.walks) / (EDGE * target.dram_bandwidth)
        self._found: dict[tuple[int, int], Cost] = {}
        self._with_warps: dict[int, _Warps] = {}
        self._with_blocks: dict[int, float] = {}

    def of(self, num_stages: int, num_warps: int, compiled: Resources | None = None) -> Cost:
        """As ``cost_of``."""
        work = self.work
        if not work.described and work.narrowest < COPY * THREADS * num_warps:
            num_stages = 1  # what would be copied in smaller pieces is not pipelined (cleave/lowering/narrow_copies.py)
        elif not self.staged:
            num_stages = 1
        if compiled:
            return self._cost(num_stages, num_warps, compiled, compiled)
        if (num_stages, num_warps) not in self._found:
            shared = work.resident + work.streamed * num_stages
            most, usual = (Resources(shared, registers) for registers in self._warps(num_warps).registers)
            self._found[num_stages, num_warps] = self._cost(num_stages, num_warps, most, usual)
        return self._found[num_stages, num_warps]

    def _cost(self, num_stages: int, num_warps: int, most: Resources, usual: Resources) -> Cost:
        work, target, described, warps = self.work, self.target, self.described, self._warps(num_warps)
        resident = max(1, _resident(usual.shared, usual.registers, num_warps, target))
        waves = math.ceil(work.blocks / (target.sms * resident)) if work.blocks else 0
        edge = self.edge if described and resident == 1 else 0.0
        return Cost(
            dram=self._dram(resident),
            l2=self.l2 * (IN_STEP if described and waves == 1 else 1.0),
            tensor=warps.tensor,
            special=warps.special,
            alu=warps.alu,
            latency=self._one_after_another(waves, self._alone(num_stages, num_warps, waves) + edge),
            start=target.kernel_latency + (target.described_latency if described else 0.0),
            overlap=(OVERLAP_DESCRIBED if self.waits else 0.0) if described else OVERLAP,
            traffic_overlap=TRAFFIC_OVERLAP_DESCRIBED if described else 0.0,
            blocks=work.blocks,
            waves=waves,
            shared=most.shared,
            registers=most.registers,
            unit_overlap=OVERLAP_DESCRIBED if self.rotated else OVERLAP,
        )

    def _one_after_another(self, waves: int, alone: float) -> float:
        """Seconds of blocks that take so long ``alone``: of so many waves, or until the last one has been started."""
        block = self.target.block_latency + alone
        return max(waves * block, self.work.blocks / self.target.block_rate + block) if self.work.blocks else 0.0

    def _l2(self) -> float:
        """Seconds: of the bytes, or of the accesses."""
        work, target, idle = self.work, self.target, self.idle
        accesses = work.blocks * idle * work.requests / target.request_rate
        pointers = (self.traffic - self.described) * idle / target.l2_bandwidth
        lines = self.lines * idle / (target.sms * target.line_bandwidth)
        return max(pointers + max(lines, self.described / target.described_l2_bandwidth), accesses)

    def _dram(self, resident: int) -> float:
        """Seconds where each multiprocessor has so many blocks at once."""
        bytes_ = min(self._dram_bytes(resident), max(self.traffic, self.work.compulsory))
        alone = min(bytes_, self.work.blocks * self.work.alone)
        return (bytes_ + ALONE * alone) / self.target.dram_bandwidth

    def _dram_bytes(self, resident: int) -> float:
        """Read and written where each multiprocessor has so many blocks at once."""
        if resident not in self._with_blocks:
            running, cache = self.target.sms * resident, self.target.l2_size
            reads = sum(dram_reads(each.walk, each.streams, running, cache) for each in self.walks)
            self._with_blocks[resident] = max(self.work.compulsory, reads + self.work.blocks * self.work.stored)
        return self._with_blocks[resident]

    def _warps(self, num_warps: int) -> _Warps:
        if num_warps not in self._with_warps:
            work, target = self.work, self.target
            repeat = max(1.0, WARP_ROWS * num_warps / work.chained_rows) if work.chained_rows else 1.0
            busy = work.blocks * self.idle * repeat
            flops = target.tensor_flops * (STEADY if self.described and not self.waits else 1.0)
            simple = (work.alu + work.fma) / (target.fma_flops * (SIMPLE if self.rotated else 1.0))
            self._with_warps[num_warps] = _Warps(
                tensor=busy * self._operations(num_warps) / flops,
                special=busy * work.special / target.special_rate,
                alu=busy * (simple + work.staged / (target.sms * target.shared_bandwidth)),
                computing=tuple(
                    tuple((chain, _computing(chain, num_warps, repeat, target)) for chain in each.chains)
                    for each in self.walks
                ),
                registers=_registers(work, num_warps),
            )
        return self._with_warps[num_warps]

    def _operations(self, num_warps: int) -> float:
        """Of a block on the tensor cores, as many as take ``wgmma`` so long."""
        work, slowdown = self.work, self.target.mma_slowdown
        chains = [(each.blocks * chain.trips, chain) for each in self.walks for chain in each.chains]
        again = sum([count * slowdown * _again(chain, num_warps) for count, chain in chains])
        again += sum([count * chain.narrow(num_warps) for count, chain in chains]) if self.described else 0.0
        return work.tensor + (slowdown - 1) * work.mma + again / max(work.blocks, 1)

    def _alone(self, num_stages: int, num_warps: int, waves: int) -> float:
        """Seconds of a block's own chain of loads, contractions and reductions: of the longest, or where there are
        several waves the mean."""
        times = [
            sum([c.trips * _iteration(c, computing, num_stages, num_warps, self.target) for c, computing in chains])
            for chains in self._warps(num_warps).computing
        ]
        return block_time(self.walks, times, waves)


def block_time(walks: Sequence[Workload], times: Sequence[float], waves: int) -> float:
    """Of kernels side by side whose blocks take so long: the longest, or where there are several waves the mean."""
    blocks = sum(each.blocks for each in walks)
    if waves > 1:
        return sum(each.blocks * time for each, time in zip(walks, times, strict=True)) / blocks
    return max(times, default=0.0)


def _has_stages(chain: Chain) -> bool:
    """Whether an iteration's time depends on how many are in flight."""
    return not chain.single and (chain.copied > 0 or (chain.described > 0 and chain.pipelined))


def _again(chain: Chain, num_warps: int) -> float:
    """Operations that warps without work of their own repeat."""
    return sum(flops * max(0.0, num_warps / max(1, warps) - 1) for flops, warps in chain.small)


def _edge(walks: Sequence[Workload]) -> float:
    """Bytes that a block reads and writes outside its loops, on the average."""
    loaded = sum(each.blocks * chain.described for each in walks for chain in each.chains if not chain.pipelined)
    return (loaded + sum(each.blocks * each.stored for each in walks)) / max(1, sum(each.blocks for each in walks))


def _registers(work: Workload, num_warps: int) -> tuple[int, int]:
    """What a thread takes at most without spilling, and what it usually takes."""
    live = work.live / (4 * 32 * num_warps)
    if work.described:
        loops = sum(chain.pipelined for chain in work.chains)
        temporary = TEMPORARY_DESCRIBED * work.temporary / (4 * 32 * num_warps)
        registers = REGISTERS_DESCRIBED + (EDGE_REGISTERS if loops > 1 else 0) + math.ceil(live + temporary)
        return registers, registers
    base = REGISTERS_BASE if work.tensor else REGISTERS_BASE_POINTWISE
    return base + math.ceil(REGISTERS_SHARE * live), base + math.ceil(REGISTERS_USUAL * live)


def _resident(shared: int, registers: int, num_warps: int, target: Target) -> int:
    """Blocks that a multiprocessor holds at once."""
    by_registers = target.registers // (max(registers, 1) * 32 * num_warps)
    return min(target.shared // max(shared, 1), by_registers, target.warps // num_warps)


def _computing(chain: Chain, num_warps: int, repeat: float, target: Target) -> float:
    """Seconds that a block which has its multiprocessor to itself computes in an iteration; the warps work ``repeat``
    times."""
    narrow = chain.narrow(num_warps) if chain.described else 0.0
    flops = target.tensor_flops * (STEADY if chain.described and not chain.waited else 1.0)
    compute = (
        (chain.waited if chain.described else chain.wgmmas) * target.wgmma_latency
        + chain.mmas * target.mma_latency
        + chain.exchanges * target.exchange_latency
        + chain.staged / target.shared_bandwidth
        + (chain.wgmma + narrow + target.mma_slowdown * (chain.mma + _again(chain, num_warps))) * target.sms / flops
        + chain.reductions * target.reduction_latency
        + chain.elements / (32 * num_warps) * target.element_time
    )
    return compute * repeat


def _iteration(chain: Chain, compute: float, num_stages: int, num_warps: int, target: Target) -> float:
    """Seconds of one iteration of a block that has its multiprocessor to itself, which computes for so many."""
    threads, seconds = 32 * num_warps, compute
    if chain.copied:
        copy = target.load_latency + chain.copied / target.block_bandwidth
        overlapped = num_stages > 1 and not chain.single
        seconds = max(compute, copy / (num_stages - 1)) if overlapped else compute + copy
    if chain.described:
        copy = target.load_latency + chain.lines / target.described_block_bandwidth
        hidden = chain.pipelined and num_stages > 1 and not chain.single
        seconds = max(seconds, copy / (num_stages - 1)) if hidden else seconds + copy
        seconds += target.load_latency / 2 if hidden and num_stages == 2 else 0.0
    waited = 1.0 if chain.described else WAITED
    seconds += waited * chain.repeated * target.load_latency
    seconds += REPEATED * chain.repeats / threads * target.request_latency
    if chain.requests:
        together = _unrolled(chain, threads)
        slowest = SLOWEST if chain.meetings and chain.trips > 1 else 1.0
        seconds += slowest * target.load_latency / together + chain.requests / threads * target.request_latency
    return seconds


def _unrolled(chain: Chain, threads: int) -> float:
    """Iterations whose loads are in flight at once: registers limit them, and the waits of a pipeline or of warps."""
    if chain.trips <= 1 or chain.pipelined or chain.meetings:
        return 1.0
    return min(MOST_UNROLLED, max(1.0, UNROLLED_REQUESTS * threads / chain.requests))
