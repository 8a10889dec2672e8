"""The programs of variants on the GPUs of the process, each made once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from cleave.runtime.cuda import Program
from cleave.runtime.cuda_driver import shared_driver

if TYPE_CHECKING:
    from cleave.runtime.package import Variant


class Programs:
    """Usable from several threads. ``compiled``: the variant with binaries for an architecture."""

    def __init__(self, compiled: Callable[[Variant, str], Variant]) -> None:
        self._compiled = compiled
        self._made: dict[tuple[int, str], tuple[Variant, Program]] = {}  # the variant is kept: its id is the key
        self._lock = threading.RLock()

    @property
    def kept(self) -> dict[str, str]:
        """Of all programs that were made."""
        with self._lock:
            return {name: why for _, program in self._made.values() for name, why in program.kept.items()}

    def __call__(self, variant: Variant) -> Program:
        """The program for the current GPU."""
        driver = shared_driver()
        driver.context()
        key = (id(variant), driver.architecture())
        with self._lock:
            if key not in self._made:
                made = self._compiled(variant, key[1])
                self._made[key] = variant, Program(made.plan, made.binaries[key[1]], driver)
            return self._made[key][1]
