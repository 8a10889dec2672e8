"""The GPU architectures that kernels are compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from cleave.schedule.target import ARCHITECTURES, Architecture, target_named

TTGIR_TARGET = "ttg.target"
"""The attribute that a module of TTGIR has, and one of TTIR has not."""


@dataclass(frozen=True)
class Target:
    """What the compiler must know of one GPU architecture; ``arch`` as Triton counts it: 90 for ``sm_90``."""

    architecture: Architecture

    @property
    def name(self) -> str:
        return self.architecture.name

    @property
    def arch(self) -> int:
        return self.architecture.number

    @property
    def shared_per_block(self) -> int:
        """Bytes of dynamic shared memory that one thread block may ask for."""
        return self.architecture.shared_per_block

    @property
    def registers_per_thread(self) -> int:
        return self.architecture.registers_per_thread

    @staticmethod
    def parse(text: str) -> Target:
        """The target called ``text``, an architecture or a GPU; CleaveError listing the known ones otherwise."""
        return Target(ARCHITECTURES[target_named(text).arch])

    def __str__(self) -> str:
        return self.name


TARGETS = tuple(map(Target, ARCHITECTURES.values()))
