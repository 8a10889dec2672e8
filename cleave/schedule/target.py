"""What the cost model knows of a GPU. Rates are per second, sizes in bytes, times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from cleave.errors import CleaveError


@dataclass(frozen=True)
class Target:
    """One GPU. ``tensor_flops``: dense f16 tensor-core rate; tf32 runs at half of it, f64 and f32 on the FMA units.

    ``shared_per_block`` is the largest dynamic shared memory of one block, ``shared`` that of one multiprocessor.
    Rates of the H200 row are those reached there, the others the vendor's
    data sheets scaled by the same shares.

    What follows ``registers`` was fitted to 2,300 measured pairs on an H200 (bench/results/h200/cost-model.md and
    decode.md) and is taken for the others. Once for each kernel: ``kernel_latency``, from its start to its end where a
    block has nothing to do; ``block_rate``: blocks started in a second. In each block, alone on its multiprocessor:
    ``block_latency`` for its start, ``load_latency`` for a load, ``block_bandwidth`` for asynchronous copies,
    ``request_latency`` for each access of a thread that is no such copy (``request_rate``: of all together),
    ``wgmma_latency`` and ``mma_latency`` for a contraction beside its operations, ``reduction_latency`` for a
    reduction, ``exchange_latency`` for what warps exchange, ``shared_bandwidth`` for what they write to shared memory,
    ``element_time`` for an element of a thread's register code.
    ``overlap_saving``: what a launch saves that overlaps with the one ahead. ``barrier_latency``: for blocks to meet.
    ``mma_slowdown``: of tensor cores in tiles of less than 64 rows, against ``wgmma``.

    The ``described`` values are those of loads through tensor descriptors, fitted to bench/results/h200/contractions.md
    in the same way: of one block, of all blocks from the L2 cache, and how much later a kernel starts.
    ``line_bandwidth``: of the copy engine of one multiprocessor, which moves whole lines.
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
    kernel_latency: float = 1.5e-6
    block_latency: float = 0.4e-6
    block_rate: float = 1e9
    load_latency: float = 0.6e-6
    block_bandwidth: float = 42e9
    request_latency: float = 20e-9
    request_rate: float = 3e12
    wgmma_latency: float = 0.05e-6
    mma_latency: float = 0.3e-6
    mma_slowdown: float = 2.7
    reduction_latency: float = 20e-9
    exchange_latency: float = 0.36e-6
    shared_bandwidth: float = 200e9
    element_time: float = 0.12e-9
    overlap_saving: float = 0.5e-6
    barrier_latency: float = 2.5e-6
    described_block_bandwidth: float = 66e9
    described_l2_bandwidth: float = 11e12
    line_bandwidth: float = 110e9
    described_latency: float = 0.5e-6

    @property
    def has_descriptors(self) -> bool:
        """Whether it loads through tensor descriptors (TMA)."""
        return int(self.arch.removeprefix("sm_")) >= 90

    @property
    def between_launches(self) -> float:
        """Seconds that a launch takes after another one, with which it overlaps where that is possible."""
        return self.next_launch - (self.overlap_saving if self.overlaps_launches else 0.0)

    @property
    def overlaps_launches(self) -> bool:
        """Whether it has programmatic dependent launch."""
        return int(self.arch.removeprefix("sm_")) >= 90


@dataclass(frozen=True)
class Architecture:
    """Limits of a compute capability, by the table in NVIDIA's CUDA programming guide; shared memory in bytes.

    ``shared_per_block``: the most dynamic shared memory that one thread block may ask for; ``shared``, ``warps`` and
    ``registers`` (of 32 bits): of a multiprocessor.
    """

    name: str
    shared_per_block: int
    shared: int
    warps: int
    registers: int = 65536
    registers_per_thread: int = 255

    @property
    def number(self) -> int:
        """As Triton counts it: 90 for sm_90."""
        return int(self.name.removeprefix("sm_"))


_KIB = 1024
ARCHITECTURES: dict[str, Architecture] = {
    "sm_80": Architecture("sm_80", 163 * _KIB, 164 * _KIB, 64),
    "sm_86": Architecture("sm_86", 99 * _KIB, 100 * _KIB, 48),
    "sm_89": Architecture("sm_89", 99 * _KIB, 100 * _KIB, 48),
    "sm_90": Architecture("sm_90", 227 * _KIB, 228 * _KIB, 64),
    "sm_100": Architecture("sm_100", 227 * _KIB, 228 * _KIB, 64),
}

_ROWS = (
    # name, architecture, SMs, TB/s DRAM, TB/s L2, MiB L2, TFLOP/s tensor, FMA, T special/s
    ("a100", "sm_80", 108, 1.8, 4.5, 40, 260, 19, 2.4),
    ("rtx3090", "sm_86", 82, 0.85, 2.5, 6, 70, 35, 2.2),
    ("rtx4090", "sm_89", 128, 0.93, 4.0, 72, 165, 80, 5.1),
    ("h100", "sm_90", 132, 3.0, 8.5, 50, 700, 60, 4.0),
    ("h200", "sm_90", 132, 4.2, 8.5, 60, 700, 60, 4.0),
    ("b200", "sm_100", 148, 7.0, 16.0, 120, 1600, 75, 4.5),
)
TARGETS: dict[str, Target] = {
    name: Target(
        name,
        arch,
        sms,
        ARCHITECTURES[arch].shared_per_block,
        ARCHITECTURES[arch].shared,
        dram * 1e12,
        l2 * 1e12,
        size << 20,
        tensor * 1e12,
        fma * 1e12,
        special * 1e12,
        registers=ARCHITECTURES[arch].registers,
        warps=ARCHITECTURES[arch].warps,
    )
    for name, arch, sms, dram, l2, size, tensor, fma, special in _ROWS
}
_BY_ARCH = {"sm_80": "a100", "sm_86": "rtx3090", "sm_89": "rtx4090", "sm_90": "h200", "sm_100": "b200"}
_REFUSED = {"sm_120": "consumer Blackwell", "rtx5090": "consumer Blackwell", "sm_75": "Turing", "sm_70": "Volta"}


def target_named(name: str) -> Target:
    """The target of this name or architecture (``h200``, ``sm_90``); CleaveError with the known ones otherwise."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CleaveError(f"{name!r} is no name of a target", notes=(f"known targets: {_known()}",))
    text = name.strip()
    key = _BY_ARCH.get(text.removesuffix("a") if text.startswith("sm_") else text, text)
    if key in TARGETS:
        return TARGETS[key]
    reason = f": {_REFUSED[text]} is not supported" if text in _REFUSED else ""
    raise CleaveError(f"unknown target '{name}'{reason}", notes=(f"known targets: {_known()}",))


def _known() -> str:
    return ", ".join((*ARCHITECTURES, *TARGETS))
