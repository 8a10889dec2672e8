"""What bounds a search: counts, which are the same in every run and on every machine; the clock is the last resort."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

MAX_WORK = 100_000  # products of the algebra: a function of the largest table of discoveries takes 2,000
MAX_CHECKS = 200  # programs that are checked


@dataclass
class Limits:
    """Whether a bound is reached; ``reached`` says in words which ones were. ``max_seconds`` count from now."""

    max_classes: int
    max_seconds: float
    started: float = field(default_factory=time.monotonic)
    reached: dict[str, None] = field(default_factory=dict[str, None])

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started

    def space(self, classes: int, work: int) -> bool:
        """Of a space of so many classes, after so many products of the algebra."""
        if classes >= self.max_classes:
            return self._reach(f"it has {self.max_classes} classes (max-classes)")
        if work >= MAX_WORK:
            return self._reach(f"the algebra has taken {MAX_WORK} steps")
        return self.time()

    def checks(self, count: int) -> bool:
        """Of so many programs that were checked."""
        return count >= MAX_CHECKS and self._reach(f"{MAX_CHECKS} programs are checked")

    def time(self) -> bool:
        if self.seconds <= self.max_seconds:
            return False
        return self._reach(f"{self.max_seconds:.3g} s are over (time-limit), another run may find more or less")

    def _reach(self, what: str) -> bool:
        self.reached[what] = None
        return True
