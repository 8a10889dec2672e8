"""What tuning found to be the fastest of a function's programs on the GPU in hand."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from cleave.compilation import Compilation, Sizes

if TYPE_CHECKING:
    from cleave.runtime.cuda_driver import Driver
    from cleave.runtime.package import Variant


class Tuned:
    """Results in the file at ``path``, if one is named, each read once; usable from several threads."""

    def __init__(self, path: str | os.PathLike[str] | None, compilation: Compilation) -> None:
        self.path, self._compilation = path, compilation
        self._best: dict[tuple[tuple[str, int], ...], Variant | None] = {}
        self._lock = threading.RLock()

    def best(self, sizes: Sizes) -> Variant | None:
        """The program found for these sizes on this GPU; None if there is none."""
        from cleave.tuner.store import Store, has_results

        if not self.path or not has_results(self.path, self._compilation.name):
            return None
        found = tuple(sorted(sizes.items()))
        with self._lock:
            if found not in self._best:
                from cleave.runtime.package import Package

                data = Store(self.path).best(self.key(sizes))
                self._best[found] = Package.from_bytes(data).variants[0] if data else None
            return self._best[found]

    def key(self, sizes: Sizes) -> str:
        """Under which results for these sizes on this GPU are kept."""
        return self._compilation.key(sizes, current_driver().device_name())

    def forget(self) -> None:
        """What was read, so that calls take what has been found since."""
        with self._lock:
            self._best = {}


def current_driver() -> Driver:
    """The driver, in a context."""
    from cleave.runtime.cuda_driver import shared_driver

    driver = shared_driver()
    driver.context()
    return driver
