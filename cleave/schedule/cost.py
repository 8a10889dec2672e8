"""The cost model: a pure function from (kernel, sizes, target) to predicted time and resources.

A kernel takes as long as what it asks of the whole GPU (memory, tensor cores, register code) or as a block's own chain
of loads, contractions and reductions, one after the other, whichever is longer; and some of the shorter one, for the
two overlap only in part. `bench/cost_model.py` measures how good this is (bench/results/h200/cost-model.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.dialects.graph import Graph
from cleave.dialects.size import SizeLike
from cleave.schedule.target import Target
from cleave.schedule.tile_program import Kernel, TileProgram
from cleave.schedule.traffic import dram_reads
from cleave.schedule.warp_specialised import BLOCKS, Form, specialised_form
from cleave.schedule.workload import BYTES, SPECIAL_ELEMENTS, Chain, Workload, trip_count, workload

__all__ = [
    "BYTES", "Cost", "Resources", "Workload", "cost_of", "kernel_cost", "known_of", "launch_time", "program_cost",
    "trip_count", "workload",
]  # fmt: skip

OVERLAP = 0.3
"""Share of the shorter one of two things that compete for a multiprocessor which the longer one does not hide."""
OVERLAP_DESCRIBED, TRAFFIC_OVERLAP_DESCRIBED = 0.15, 0.15
"""The same of kernels that load through descriptors and wait for contractions in their loops (where they do not, a
single block keeps the tensor cores busy); and such a share of the shorter one of traffic and computation."""
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

    @property
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
    blocks = work.blocks
    if not work.described and work.narrowest < COPY * THREADS * num_warps:
        num_stages = 1  # what would be copied in smaller pieces is not pipelined (cleave/lowering/narrow_copies.py)
    most, usual = (compiled, compiled) if compiled else _estimated(work, num_stages, num_warps)
    resident = max(1, _resident(usual.shared, usual.registers, num_warps, target))
    waves = math.ceil(blocks / (target.sms * resident)) if blocks else 0
    # multiprocessors that the last blocks do not fill are idle: neither their units nor their ways to L2 are used
    idle = math.ceil(blocks / target.sms) * target.sms / blocks if blocks else 1.0
    traffic, described = blocks * (work.loaded + work.stored), blocks * work.described
    walks = work.beside or [work]
    reads = sum(dram_reads(each.walk, each.streams, target.sms * resident, target.l2_size) for each in walks)
    misses = max(work.compulsory, reads + blocks * work.stored)
    repeat = max(1.0, WARP_ROWS * num_warps / work.chained_rows) if work.chained_rows else 1.0
    busy = blocks * idle * repeat
    again = sum(each.blocks * chain.trips * _again(chain, num_warps) for each in walks for chain in each.chains)
    again /= max(blocks, 1)
    tensor = work.tensor + (target.mma_slowdown - 1) * work.mma + (work.narrow if described else 0.0)
    tensor += target.mma_slowdown * again
    accesses = blocks * idle * work.requests / target.request_rate
    chains = [(each.blocks, _alone(each, num_stages, num_warps, repeat, target)) for each in walks]
    alone = max((time for _, time in chains), default=0.0)
    if waves > 1:
        alone = sum(count * time for count, time in chains) / blocks
    waits = any(chain.waited for each in walks for chain in each.chains)
    flops = target.tensor_flops * (STEADY if described and not waits else 1.0)
    rotated = any(chain.chained for each in walks for chain in each.chains)
    simple = (work.alu + work.fma) / (target.fma_flops * (SIMPLE if rotated else 1.0))
    edge = target.sms * _edge(walks) / (EDGE * target.dram_bandwidth) if described and resident == 1 else 0.0
    return Cost(
        dram=min(misses, max(traffic, work.compulsory)) / target.dram_bandwidth,
        l2=max(
            (traffic - described) * idle / target.l2_bandwidth + described * idle / target.described_l2_bandwidth,
            accesses,
        ),
        tensor=busy * tensor / flops,
        special=busy * work.special / target.special_rate,
        alu=busy * (simple + work.staged / (target.sms * target.shared_bandwidth)),
        latency=waves * (target.block_latency + alone + edge),
        start=target.kernel_latency + (target.described_latency if described else 0.0),
        overlap=(OVERLAP_DESCRIBED if waits else 0.0) if described else OVERLAP,
        traffic_overlap=TRAFFIC_OVERLAP_DESCRIBED if described else 0.0,
        blocks=blocks,
        waves=waves,
        shared=most.shared,
        registers=most.registers,
        unit_overlap=OVERLAP_DESCRIBED if rotated else OVERLAP,
    )


def _again(chain: Chain, num_warps: int) -> float:
    """Operations that warps without work of their own repeat."""
    return sum(flops * max(0.0, num_warps / max(1, warps) - 1) for flops, warps in chain.small)


def _edge(walks: Sequence[Workload]) -> float:
    """Bytes that a block reads and writes outside its loops, on the average."""
    loaded = sum(each.blocks * chain.described for each in walks for chain in each.chains if not chain.pipelined)
    return (loaded + sum(each.blocks * each.stored for each in walks)) / max(1, sum(each.blocks for each in walks))


def _alone(work: Workload, num_stages: int, num_warps: int, repeat: float, target: Target) -> float:
    """Seconds of a block's own chain of loads, contractions and reductions."""
    return sum(chain.trips * _iteration(chain, num_stages, num_warps, repeat, target) for chain in work.chains)


def _estimated(work: Workload, num_stages: int, num_warps: int) -> tuple[Resources, Resources]:
    """What a block takes at most without spilling, and what it usually takes."""
    shared = work.resident + work.streamed * num_stages
    live = work.live / (4 * 32 * num_warps)
    if work.described:
        loops = sum(chain.pipelined for chain in work.chains)
        registers = (
            REGISTERS_DESCRIBED
            + (EDGE_REGISTERS if loops > 1 else 0)
            + math.ceil(live + TEMPORARY_DESCRIBED * work.temporary / (4 * 32 * num_warps))
        )
        return Resources(shared, registers), Resources(shared, registers)
    base = REGISTERS_BASE if work.tensor else REGISTERS_BASE_POINTWISE
    most, usual = (base + math.ceil(share * live) for share in (REGISTERS_SHARE, REGISTERS_USUAL))
    return Resources(shared, most), Resources(shared, usual)


def _resident(shared: int, registers: int, num_warps: int, target: Target) -> int:
    """Blocks that a multiprocessor holds at once."""
    by_registers = target.registers // (max(registers, 1) * 32 * num_warps)
    return min(target.shared // max(shared, 1), by_registers, target.warps // num_warps)


def _iteration(chain: Chain, num_stages: int, num_warps: int, repeat: float, target: Target) -> float:
    """Seconds of one iteration of a block that has its multiprocessor to itself; the warps work ``repeat`` times."""
    threads = 32 * num_warps
    narrow = chain.narrow if chain.described else 0.0
    flops = target.tensor_flops * (STEADY if chain.described and not chain.waited else 1.0)
    compute = (
        (chain.waited if chain.described else chain.wgmmas) * target.wgmma_latency
        + chain.mmas * target.mma_latency
        + chain.exchanges * target.exchange_latency
        + chain.staged / target.shared_bandwidth
        + (chain.wgmma + narrow + target.mma_slowdown * (chain.mma + _again(chain, num_warps))) * target.sms / flops
        + chain.reductions * target.reduction_latency
        + chain.elements / threads * target.element_time
    )
    compute *= repeat
    seconds = compute
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
    together = sum(chain.trips * _specialised_iteration(chain, form, target) for chain in work.chains)
    stored = resident * work.stored * target.sms / target.l2_bandwidth
    latency = waves * (target.block_latency + target.load_latency + together + stored)
    hidden, rate = OVERLAP_DESCRIBED, CHAINED if any(chain.chained for chain in work.chains) else 1.0
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
    copied = share * chain.described / target.described_l2_bandwidth
    alone = target.load_latency + chain.described / target.described_block_bandwidth if chain.described else 0.0
    exposed = chain.requests and chain.pipelined and not chain.chained  # beneath the first products otherwise
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
