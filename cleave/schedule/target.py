"""What the cost model knows of a GPU. Rates are per second, sizes in bytes, times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from cleave.errors import CleaveError


@dataclass(frozen=True)
class Target:
    """One GPU. ``tensor_flops``: dense f16 tensor-core rate; tf32 runs at half of it, f64 and f32 on the FMA units.

    ``shared_per_block`` is the largest dynamic shared memory of one block, ``shared`` that of one multiprocessor.
    Rates of the H200 row are those reached there (design.md §8, facts/decode-schedules.md), the others the vendor's
    data sheets scaled by the same shares.

    What follows ``registers`` was fitted to 1,527 measured pairs on an H200 (bench/results/h200/cost-model.md) and is
    taken for the others. Once for each kernel: ``kernel_latency``, from its start to its end where a block has nothing
    to do. In each block, alone on its multiprocessor: ``block_latency`` for its start, ``load_latency`` for a load,
    ``block_bandwidth`` for asynchronous copies, ``request_latency`` for each access of a thread that is no such copy
    (``request_rate``: of all together), ``wgmma_latency`` and ``mma_latency`` for a contraction beside its operations,
    ``reduction_latency`` for a reduction, ``element_time`` for an element of a thread's register code.
    ``overlap_saving``: what a launch saves that overlaps with the one ahead. ``barrier_latency``: for blocks to meet.
    ``mma_slowdown``: of tensor cores in tiles of less than 64 rows, against ``wgmma``.
    """

    name: str
    arch: str
    sms: int
    shared_per_block: int
    shared: int
    dram_bandwidth: float
    l2_bandwidth: float
    l2_size: int
    tensor_flops: float
    fma_flops: float
    special_rate: float
    launch: float = 1.46e-6
    next_launch: float = 0.85e-6
    registers: int = 65536
    warps: int = 64
    kernel_latency: float = 4e-6
    block_latency: float = 0.4e-6
    load_latency: float = 0.6e-6
    block_bandwidth: float = 42e9
    request_latency: float = 20e-9
    request_rate: float = 3e12
    wgmma_latency: float = 0.05e-6
    mma_latency: float = 0.3e-6
    mma_slowdown: float = 1.4
    reduction_latency: float = 20e-9
    element_time: float = 0.12e-9
    overlap_saving: float = 0.7e-6
    barrier_latency: float = 2e-6

    @property
    def overlaps_launches(self) -> bool:
        """Whether it has programmatic dependent launch."""
        return int(self.arch.removeprefix("sm_")) >= 90


_ROWS = (
    # name, arch, SMs, KiB shared per block, KiB per SM, TB/s DRAM, TB/s L2, MiB L2, TFLOP/s tensor, FMA, T special/s
    ("a100", "sm_80", 108, 163, 164, 1.8, 4.5, 40, 260, 19, 2.4),
    ("rtx3090", "sm_86", 82, 99, 100, 0.85, 2.5, 6, 70, 35, 2.2),
    ("rtx4090", "sm_89", 128, 99, 100, 0.93, 4.0, 72, 165, 80, 5.1),
    ("h100", "sm_90", 132, 227, 228, 3.0, 8.5, 50, 700, 60, 4.0),
    ("h200", "sm_90", 132, 227, 228, 4.2, 8.5, 60, 700, 60, 4.0),
    ("b200", "sm_100", 148, 227, 228, 7.0, 16.0, 120, 1600, 75, 4.5),
)
TARGETS: dict[str, Target] = {
    name: Target(
        name,
        arch,
        sms,
        block << 10,
        sm << 10,
        dram * 1e12,
        l2 * 1e12,
        size << 20,
        tensor * 1e12,
        fma * 1e12,
        special * 1e12,
    )
    for name, arch, sms, block, sm, dram, l2, size, tensor, fma, special in _ROWS
}
_BY_ARCH = {"sm_80": "a100", "sm_86": "rtx3090", "sm_89": "rtx4090", "sm_90": "h200", "sm_100": "b200"}


def target_named(name: str) -> Target:
    """The target of this name or architecture (``h200``, ``sm_90``); CleaveError with the known ones otherwise."""
    key = _BY_ARCH.get(name.removesuffix("a"), name)
    if key not in TARGETS:
        raise CleaveError(f"unknown target '{name}'", notes=(f"known: {', '.join((*TARGETS, *_BY_ARCH))}",))
    return TARGETS[key]
