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
    block_latency: float = 1.5e-6
    step_latency: float = 0.35e-6

    @property
    def has_wgmma(self) -> bool:
        return self.arch.startswith("sm_90")


_KIB, _MIB, _T = 1024, 1024 * 1024, 1e12

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            "a100", "sm_80", 108, 163 * _KIB, 164 * _KIB, 1.8 * _T, 4.5 * _T, 40 * _MIB, 260 * _T, 19 * _T, 2.4 * _T
        ),
        Target(
            "rtx4090", "sm_89", 128, 99 * _KIB, 100 * _KIB, 0.93 * _T, 4.0 * _T, 72 * _MIB, 165 * _T, 80 * _T, 5.1 * _T
        ),
        Target(
            "h100", "sm_90", 132, 227 * _KIB, 228 * _KIB, 3.0 * _T, 11.0 * _T, 50 * _MIB, 700 * _T, 60 * _T, 4.0 * _T
        ),
        Target(
            "h200", "sm_90", 132, 227 * _KIB, 228 * _KIB, 4.2 * _T, 11.0 * _T, 60 * _MIB, 700 * _T, 60 * _T, 4.0 * _T
        ),
        Target(
            "b200", "sm_100", 148, 227 * _KIB, 228 * _KIB, 7.0 * _T, 16.0 * _T, 120 * _MIB, 1600 * _T, 75 * _T, 4.5 * _T
        ),
    )
}
_BY_ARCH = {"sm_80": "a100", "sm_89": "rtx4090", "sm_90": "h200", "sm_100": "b200"}


def target_named(name: str) -> Target:
    """The target of this name or architecture (``h200``, ``sm_90``); CleaveError with the known ones otherwise."""
    key = _BY_ARCH.get(name.removesuffix("a"), name)
    if key not in TARGETS:
        raise CleaveError(f"unknown target '{name}'", notes=(f"known: {', '.join((*TARGETS, *_BY_ARCH))}",))
    return TARGETS[key]
