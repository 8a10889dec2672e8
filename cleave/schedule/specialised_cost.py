"""What a warp-specialised kernel costs: consumers multiply and compute while a producer copies."""

from __future__ import annotations

import math
from dataclasses import replace

from cleave.schedule import block_cost
from cleave.schedule.block_cost import OVERLAP_DESCRIBED, SIMPLE, Cost, Resources, block_time, cost_of, overlapped
from cleave.schedule.copying_threads import PRODUCER_THREADS
from cleave.schedule.target import Target
from cleave.schedule.traffic import blocks_in_bands
from cleave.schedule.warp_specialised import BLOCKS, Form
from cleave.schedule.workload import SPECIAL_ELEMENTS, Chain, Workload

CHAINED, HAND_OVER, IN_ORDER, APART = 1.2, 0.02e-6, 0.3, 2.25
"""Rate of contractions over ``tensor_flops`` in rotated loops; seconds that the barriers of an iteration take; as
``OVERLAP``, for products and register code of loops that wait for their products before anything else can run; and how
many times as long as elsewhere register code takes beside products, neither of which waits for the other: shared
memory, which products read all the time, keeps its operands waiting (RMSNorm's sum of squares beside tiles of 128 × 256
and 128 × 128: 690 and 508 ns of an iteration on an H200)."""
TURN = 0.15e-6
"""Seconds that register code of an iteration takes to read its operands and to let the products follow that wait for
it, however little it computes."""


def specialised_cost(work: Workload, form: Form, target: Target) -> Cost:
    """As ``cost_of``, of the warp-specialised form of a kernel; ``work`` is that with descriptors."""
    resident = BLOCKS[form.division.consumers]
    work = _repeated(work, form) if form.division.repeats else work
    whole = cost_of(work, form.stages, form.warps, target, Resources(form.shared, form.registers))
    waves = math.ceil(work.blocks / (target.sms * resident))
    walks = work.beside or [work]
    together = block_time(walks, [_specialised_loops(each, form, target) for each in walks], waves)
    stored = resident * work.stored * target.sms / target.l2_bandwidth
    rounds = waves if work.rounds is None else work.rounds
    latency = rounds * (target.block_latency + target.load_latency + together + stored)
    hidden, rate = OVERLAP_DESCRIBED, CHAINED if any(chain.chained for each in walks for chain in each.chains) else 1.0
    rate = block_cost.STEADY if form.division.repeats else rate
    units = replace(whole, tensor=whole.tensor / rate, unit_overlap=hidden)
    return replace(units, latency=latency, waves=waves, overlap=0.0, traffic_overlap=0.0)


def _repeated(work: Workload, form: Form) -> Workload:
    """With what all consumers compute, in loops that are not rotated.

    Products of one go on beneath register code of the other, as if loops had products alone: on an H200 an iteration
    of latent attention took 1.07 to 1.16 times as long as its products at that rate.
    """
    products, elements = form.products, form.elements
    parts = form.division.consumers if form.division.exchanged else 1  # all products are divided by columns then

    def more(chain: Chain) -> Chain:
        wide = [(products * flops, rows, columns // parts) for flops, rows, columns in chain.wide]
        special, code = elements * chain.special, elements * chain.elements
        done = {"wgmma": products * chain.wgmma, "wide": wide, "special": special, "elements": code}
        return replace(chain, **done, chained=False, computes=False)

    units = {"special": elements * work.special, "alu": elements * work.alu, "fma": elements * work.fma}
    chains = [more(chain) for chain in work.chains]
    return replace(work, tensor=products * work.tensor, chained_rows=0, chains=chains, **units)


def _specialised_loops(work: Workload, form: Form, target: Target) -> float:
    """Seconds of all loops of a block."""
    return sum(chain.trips * _iteration_of_several_tiles(chain, work, form, target) for chain in work.chains)


def _iteration_of_several_tiles(chain: Chain, work: Workload, form: Form, target: Target) -> float:
    """The mean of an iteration's seconds: what is kept is computed for the first of the tiles of a row alone."""
    first = _specialised_iteration(chain, form, target)
    running = BLOCKS[form.division.consumers] * target.sms
    tiles = work.walk.in_row(blocks_in_bands(work.blocks, running)) if chain.kept else 1
    if tiles == 1:
        return first
    sums = sum(rows * columns for _, rows, columns in chain.wide)
    others = replace(chain, computes=False, special=0.0, elements=sums, reductions=0, meetings=0)
    return (first + (tiles - 1) * _specialised_iteration(others, form, target)) / tiles


def _specialised_iteration(chain: Chain, form: Form, target: Target) -> float:
    """Seconds of an iteration of all blocks of a multiprocessor. With three consumers one computes at any time."""
    share = BLOCKS[form.division.consumers] * target.sms
    apart, between = chain.computes and chain.apart, chain.computes and not chain.apart
    rate = target.tensor_flops * (CHAINED if chain.chained else 1.0 if between else block_cost.STEADY)
    tensor = share * (chain.wgmma + chain.narrow(form.warps)) / rate
    simple = (chain.elements - SPECIAL_ELEMENTS * chain.special) / (SIMPLE * target.fma_flops)
    registers = share * (chain.special / target.special_rate + simple)
    chained = OVERLAP_DESCRIBED if form.division.consumers < 3 else 0.0
    hidden = chained if chain.chained else IN_ORDER if chain.waited else 0.0
    computed = max(tensor, APART * registers) if apart else overlapped(tensor, registers, hidden)
    copied = share * (chain.lines / (target.sms * target.line_bandwidth) + chain.multiplied / target.l2_bandwidth)
    alone = target.load_latency + chain.lines / target.described_block_bandwidth if chain.described else 0.0
    if chain.multiplied:
        threads = chain.vectors / PRODUCER_THREADS * target.request_latency
        # an iteration's indices are loaded in the one before
        copied = max(copied, threads, target.load_latency if chain.picked else 0.0)
        alone = max(alone, target.load_latency + max(chain.multiplied / target.block_bandwidth, threads))
    requests = chain.requests - chain.replaced
    exposed = requests > 0 and chain.pipelined and not chain.chained  # beneath the first products otherwise
    waited = target.load_latency if exposed else 0.0
    waited += chain.reductions * target.reduction_latency
    waited += TURN if between and chain.pipelined and not chain.chained else 0.0
    return max(computed, copied, alone / (form.stages - 1)) + waited + (HAND_OVER if chain.pipelined else 0.0)
