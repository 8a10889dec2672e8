"""Measuring candidates on the GPU: numbers first, then times; each result is kept as soon as it is known."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleave.errors import CleaveError
from cleave.runtime.cuda_driver import GpuLost
from cleave.runtime.package import Package, Variant
from cleave.tuner.attempts import attempt, lost
from cleave.tuner.store import Measured, Store

Check = Callable[[Sequence[Any]], str]
"""What is wrong with results; empty if nothing is."""
NO_LIBRARY = "no product of a library"
"""With which it begins why a program was not measured whose launches a library was to make and did not."""
RUNS = 3
"""Runs whose results must agree to the bit."""


@dataclass(frozen=True)
class Progress:
    """After one candidate: how many are done of how many, what it took, and the seconds that are left."""

    done: int
    of: int
    label: str
    measured: Measured
    left: float

    def __str__(self) -> str:
        result = self.measured.refused or f"{self.measured.microseconds:.1f} µs"
        return f"{self.done}/{self.of}  {result}  {self.label}  ({self.left:.0f} s left)"


def tune(
    package: Package, tensors: Sequence[Any], check: Check, microseconds: Callable[[Callable[[], Any]], float],
    *, store: Store | None = None, key: str = "", what: str = "",
) -> Iterator[Progress]:  # fmt: skip
    """Measure the package's variants with these tensors; what ``store`` has under ``key`` is not measured again.

    The fastest is kept in the store as a package of its own.
    """
    known = store.measured(key) if store else {}
    started, measured_now = time.monotonic(), 0
    for number, variant in enumerate(package.variants):
        result = known.get(variant.label)
        if result is None:
            result = measure(package, variant, tensors, check, microseconds)
            measured_now += 1
            if store:
                store.record(key, variant.label, result)
        if store and result.microseconds is not None:
            single = replace(package, variants=(variant,))
            by = " by cuBLAS" * any(launch.product for launch in variant.plan.launches)
            store.keep(key, f"{what}{by}", result.microseconds, single.to_bytes())
        each = (time.monotonic() - started) / max(1, measured_now)
        unknown = sum(later.label not in known for later in package.variants[number + 1 :])
        yield Progress(number + 1, len(package.variants), variant.label, result, each * unknown)


def measure(
    package: Package,
    variant: Variant,
    tensors: Sequence[Any],
    check: Check,
    microseconds: Callable[[Callable[[], Any]], float],
) -> Measured:
    """One candidate: right, the same each time, and how fast. GpuLost where the process can measure no more."""
    single, what = replace(package, variants=(variant,)), _identity(variant, tensors)
    if why := lost(what):
        return Measured(None, why)
    with attempt(what):
        try:
            runs = [_listed(single(*tensors)) for _ in range(RUNS)]
        except GpuLost:
            raise
        except CleaveError as error:
            return Measured(None, error.message)
        if single.kept:
            return Measured(None, f"{NO_LIBRARY}: {'; '.join(dict.fromkeys(single.kept.values()))}")
        problem = check(runs[0])
        if not problem and not all(bool((a == b).all()) for run in runs[1:] for a, b in zip(runs[0], run, strict=True)):
            problem = "runs differ"
        return Measured(None, problem) if problem else Measured(microseconds(lambda: single(*tensors)))


def _identity(variant: Variant, tensors: Sequence[Any]) -> str:
    """Of a candidate at these shapes, the same in each process."""
    parts = [variant.label, sorted(variant.ttir.items()), [list(tensor.shape) for tensor in tensors]]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def fastest(results: Sequence[tuple[Variant, Measured]]) -> Variant | None:
    """The variant of least time; None if none was right."""
    timed = [(m.microseconds, number) for number, (_, m) in enumerate(results) if m.microseconds is not None]
    return results[min(timed)[1]][0] if timed else None


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]
