"""The cost model: a pure function from (kernel, sizes, target) to predicted time and resources.

A kernel takes as long as what it asks of the whole GPU (memory, tensor cores, register code) or as a block's own chain
of loads, contractions and reductions, one after the other, whichever is longer; and some of the shorter one, for the
two overlap only in part. `bench/cost_model.py` measures how good this is (bench/results/h200/cost-model.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cleave.dialects.graph import Graph
from cleave.dialects.size import SizeLike
from cleave.schedule.target import Target
from cleave.schedule.tile_program import Kernel, TileProgram
from cleave.schedule.tile_sizes import BYTES
from cleave.schedule.traffic import dram_reads
from cleave.schedule.warp_specialised import BLOCKS, PRODUCER_THREADS, Form, specialised_form
from cleave.schedule.workload import SPECIAL_ELEMENTS, Chain, Workload, workload

__all__ = [
    "BYTES", "Cost", "Costs", "Resources", "Workload", "cost_of", "kernel_cost", "known_of", "launch_time",
    "program_cost", "workload",
]  # fmt: skip

OVERLAP = 0.3
"""Share of the shorter one of two things that compete for a multiprocessor which the longer one does not hide."""
OVERLAP_DESCRIBED, TRAFFIC_OVERLAP_DESCRIBED = 0.15, 0.15
"""The same of kernels that load through descriptors and wait for contractions in their loops (where they do not, a
single block keeps the tensor cores busy); and such a share of the shorter one of traffic and computation."""
IN_STEP = 1.4
"""How many times as long L2 takes in such kernels where all blocks run at once, and ask for the same lines at the same
time: SwiGLU of 128 rows moves 5.3 to 5.6 TB/s to the multiprocessors, a product of 4096 rows 8.6."""
STEADY = 1.25
"""Rate of contractions over ``tensor_flops`` in such kernels where nothing in a loop waits for one."""
UNROLLED_REQUESTS, MOST_UNROLLED = 20.0, 8.0
"""Accesses of a thread, and iterations, that are in flight at once in loops that are not pipelined."""
EDGE = 0.6
"""Share of the DRAM bandwidth at which blocks read and write outside their loops where each has a multiprocessor."""
SLOWEST = 2.0
"""How many times as long as one load the slowest of all warps' takes, for which they wait where they meet in a loop."""
REPEATED, WAITED = 2.0, 0.4
"""How many times as long as others an access takes that repeats one of a pipeline: contractions stand around it; and
the share of such a load's latency that copies by pointers do not hide."""
THREADS, COPY = 32, 16
"""Threads of a warp; bytes that each copies at once from a tile large enough."""
WARP_ROWS = 16
"""Rows of a contraction that one warp computes."""
MOST_REGISTERS = 255
"""Registers that a thread can have; more than these are spilled to memory."""
REGISTERS_BASE = 45
REGISTERS_BASE_POINTWISE = 28
REGISTERS_SHARE = 1.35
REGISTERS_USUAL = 1.05
"""Registers per thread as a function of the live bytes: so many that attention does not spill (fitted to ptxas on the
kernels of facts/triton-handover.md §4.2), and as many as most kernels have, which says how many blocks run at once."""
CHAINED, SIMPLE, HAND_OVER, IN_ORDER = 1.2, 0.43, 0.02e-6, 0.6
"""Of warp-specialised kernels: rate of contractions over ``tensor_flops`` in rotated loops; elements of simple register
code as a share of the rate of multiply-adds, wherever one contraction by ``wgmma`` feeds another; seconds that the
barriers of an iteration take; and, as ``OVERLAP``, for products and register code of loops that wait for their products
before anything else can run."""
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
        units = _overlapped(self.tensor, self.special + self.alu, self.unit_overlap)
        traffic = _overlapped(self.dram, self.l2, self.traffic_overlap)
        throughput = _overlapped(traffic, units, self.traffic_overlap)
        return self.start + _overlapped(throughput, self.latency, self.overlap)

    def fits(self, target: Target) -> bool:
        return self.shared <= target.shared_per_block and self.registers <= MOST_REGISTERS


def _overlapped(one: float, other: float, overlap: float) -> float:
    return max(one, other) + overlap * min(one, other)


def kernel_cost(
    kernel: Kernel, sizes: Mapping[str, int], target: Target, known: Mapping[str, SizeLike] | None = None
) -> Cost:
    """The cost of one launch where every symbol has the size given; ``known`` as in ``workload``."""
    work = workload(kernel, sizes, known)
    form = specialised_form(kernel, work, known or {}, target) if kernel.warp_specialised else None
    return specialised_cost(work, form, target) if form else cost_of(work, kernel.num_stages, kernel.num_warps, target)


def launch_time(count: int, target: Target) -> float:
    """Seconds that launching this many kernels one after the other takes."""
    return target.launch + (count - 1) * target.next_launch if count else 0.0


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
        self.described = work.blocks * work.described
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
            dram=min(self._dram_bytes(resident), max(self.traffic, work.compulsory)) / target.dram_bandwidth,
            l2=self.l2 * (IN_STEP if described and waves == 1 else 1.0),
            tensor=warps.tensor,
            special=warps.special,
            alu=warps.alu,
            latency=waves * (target.block_latency + self._alone(num_stages, num_warps, waves) + edge),
            start=target.kernel_latency + (target.described_latency if described else 0.0),
            overlap=(OVERLAP_DESCRIBED if self.waits else 0.0) if described else OVERLAP,
            traffic_overlap=TRAFFIC_OVERLAP_DESCRIBED if described else 0.0,
            blocks=work.blocks,
            waves=waves,
            shared=most.shared,
            registers=most.registers,
            unit_overlap=OVERLAP_DESCRIBED if self.rotated else OVERLAP,
        )

    def _l2(self) -> float:
        """Seconds: of the bytes, or of the accesses."""
        work, target, described, idle = self.work, self.target, self.described, self.idle
        accesses = work.blocks * idle * work.requests / target.request_rate
        pointers = (self.traffic - described) * idle / target.l2_bandwidth
        return max(pointers + described * idle / target.described_l2_bandwidth, accesses)

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
        chains = ((each.blocks * chain.trips, chain) for each in self.walks for chain in each.chains)
        again = sum(count * _again(chain, num_warps) for count, chain in chains) / max(work.blocks, 1)
        return work.tensor + (slowdown - 1) * work.mma + (work.narrow if self.described else 0.0) + slowdown * again

    def _alone(self, num_stages: int, num_warps: int, waves: int) -> float:
        """Seconds of a block's own chain of loads, contractions and reductions: of the longest, or where there are
        several waves the mean."""
        times = [
            sum([c.trips * _iteration(c, computing, num_stages, num_warps, self.target) for c, computing in chains])
            for chains in self._warps(num_warps).computing
        ]
        return _block_time(self.walks, times, waves)


def _block_time(walks: Sequence[Workload], times: Sequence[float], waves: int) -> float:
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
    narrow = chain.narrow if chain.described else 0.0
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
        copy = target.load_latency + chain.described / target.described_block_bandwidth
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


def specialised_cost(work: Workload, form: Form, target: Target) -> Cost:
    """As ``cost_of``, of the warp-specialised form of a kernel; ``work`` is that with descriptors."""
    resident = BLOCKS[form.division.consumers]
    work = _repeated(work, form) if form.division.repeats else work
    whole = cost_of(work, form.stages, form.warps, target, Resources(form.shared, form.registers))
    waves = math.ceil(work.blocks / (target.sms * resident))
    walks = work.beside or [work]
    together = _block_time(walks, [_specialised_loops(each, form, target) for each in walks], waves)
    stored = resident * work.stored * target.sms / target.l2_bandwidth
    latency = waves * (target.block_latency + target.load_latency + together + stored)
    hidden, rate = OVERLAP_DESCRIBED, CHAINED if any(chain.chained for each in walks for chain in each.chains) else 1.0
    units = replace(whole, tensor=whole.tensor / rate, unit_overlap=hidden)
    return replace(units, latency=latency, waves=waves, overlap=0.0, traffic_overlap=0.0)


def _repeated(work: Workload, form: Form) -> Workload:
    """With what all consumers compute, in loops that are not rotated."""
    products, elements = form.products, form.elements

    def more(chain: Chain) -> Chain:
        wgmma, narrow = products * chain.wgmma, products * chain.narrow
        special, code = elements * chain.special, elements * chain.elements
        return replace(chain, wgmma=wgmma, narrow=narrow, special=special, elements=code, chained=False)

    units = {"special": elements * work.special, "alu": elements * work.alu, "fma": elements * work.fma}
    chains = [more(chain) for chain in work.chains]
    return replace(work, tensor=products * work.tensor, chained_rows=0, chains=chains, **units)


def _specialised_loops(work: Workload, form: Form, target: Target) -> float:
    """Seconds of all loops of a block."""
    return sum(chain.trips * _specialised_iteration(chain, form, target) for chain in work.chains)


def _specialised_iteration(chain: Chain, form: Form, target: Target) -> float:
    """Seconds of an iteration of all blocks of a multiprocessor. With three consumers one computes at any time."""
    share = BLOCKS[form.division.consumers] * target.sms
    rate = target.tensor_flops * (CHAINED if chain.chained else 1.0)
    tensor = share * (chain.wgmma + chain.narrow) / rate
    simple = (chain.elements - SPECIAL_ELEMENTS * chain.special) / (SIMPLE * target.fma_flops)
    registers = share * (chain.special / target.special_rate + simple)
    chained = OVERLAP_DESCRIBED if form.division.consumers < 3 else 0.0
    hidden = chained if chain.chained else IN_ORDER if chain.waited else 0.0
    computed = _overlapped(tensor, registers, hidden)
    copied = share * (chain.described / target.described_l2_bandwidth + chain.multiplied / target.l2_bandwidth)
    alone = target.load_latency + chain.described / target.described_block_bandwidth if chain.described else 0.0
    if chain.multiplied:
        threads = chain.vectors / PRODUCER_THREADS * target.request_latency
        # an iteration's indices are loaded in the one before
        copied = max(copied, threads, target.load_latency if chain.picked else 0.0)
        alone = max(alone, target.load_latency + max(chain.multiplied / target.block_bandwidth, threads))
    requests = chain.requests - chain.replaced
    exposed = requests > 0 and chain.pipelined and not chain.chained  # beneath the first products otherwise
    waited = target.load_latency if exposed else 0.0
    waited += chain.reductions * target.reduction_latency
    return max(computed, copied, alone / (form.stages - 1)) + waited + (HAND_OVER if chain.pipelined else 0.0)


def known_of(graph: Graph) -> dict[str, SizeLike]:
    """What kernels of this graph are told of its symbols."""
    return {**graph.facts.definitions, **graph.extents}


def program_cost(program: TileProgram, sizes: Mapping[str, int], target: Target) -> float:
    """Predicted seconds of the whole program."""
    costs = [kernel_cost(launch.kernel, sizes, target, known_of(program.graph)) for launch in program.launches]
    return sum(cost.running for cost in costs) + launch_time(len(costs), target)
