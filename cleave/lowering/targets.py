"""The GPUs that kernels are compiled for, as data."""

from __future__ import annotations

from dataclasses import dataclass

from cleave.errors import CleaveError
from cleave.schedule.target import TARGETS as GPUS


@dataclass(frozen=True)
class Target:
    """What the compiler must know of one GPU architecture. Sizes in bytes, per streaming multiprocessor (SM) or block.

    Source: the table of compute capabilities in NVIDIA's CUDA programming guide.
    """

    name: str  # "sm_90"
    arch: int  # compute capability as Triton counts it: 90
    shared_per_block: int  # the most dynamic shared memory that one thread block may ask for
    shared_per_sm: int
    threads_per_sm: int
    registers_per_sm: int = 65536  # 32-bit registers
    registers_per_thread: int = 255
    warp_size: int = 32

    @staticmethod
    def parse(text: str) -> Target:
        """The target called ``text``, an architecture or a GPU; CleaveError listing the known ones otherwise."""
        name = text.strip()
        arch = GPUS[name].arch if name in GPUS else name
        for target in TARGETS:
            if target.name == arch:
                return target
        known = ", ".join((*(t.name for t in TARGETS), *GPUS))
        raise CleaveError(f"unknown target '{text}'", notes=(f"known targets: {known}",))

    def __str__(self) -> str:
        return self.name


_KIB = 1024

TARGETS = (
    Target("sm_80", 80, 163 * _KIB, 164 * _KIB, 2048),
    Target("sm_86", 86, 99 * _KIB, 100 * _KIB, 1536),
    Target("sm_89", 89, 99 * _KIB, 100 * _KIB, 1536),
    Target("sm_90", 90, 227 * _KIB, 228 * _KIB, 2048),
    Target("sm_100", 100, 227 * _KIB, 228 * _KIB, 2048),
)
