"""Times on a GPU: cold L2, medians, without what the host or a CUDA graph as such costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from cleave.errors import CleaveError

FLUSHED = 256 * 2**20
"""Bytes read before each run: several times the L2 cache. Written ones would have to leave the cache during the run."""
COPIED = 2 * 2**30
"""Bytes of a copy that measures the bandwidth: the GPU's copy engines, and short copies, are slower."""
SETTLE, PAUSE = 0.25, 0.5
"""Seconds for which the GPU is kept busy before the first time that is measured after so long a pause: its clocks fall
when it waits, and the log-sum-exp head took 12 to 15 % longer in the first 20 milliseconds."""
HEAD_START = 400_000
"""Cycles for which the GPU waits, so that the host can enqueue what is timed."""
COPIES = 5
"""Calls in a graph. On an H200 the medians of differences vary by some 0.2 µs so."""


def torch_on_gpu() -> Any:
    """The module torch; CleaveError where it is not installed or sees no GPU."""
    try:
        torch = import_module("torch")
    except ImportError:
        raise CleaveError("PyTorch is not installed", notes=("times are measured on a GPU, with PyTorch",)) from None
    if not torch.cuda.is_available():
        raise CleaveError("PyTorch finds no GPU", notes=("times are measured on a GPU",))
    return torch


class Timer:
    """Times functions on the current GPU, each with nothing of its own in the L2 cache.

    What can be captured is timed as what it adds to a CUDA graph: the time of a graph of ``COPIES`` calls, each behind
    a flush of the cache, less that of a graph of the flushes alone. So the calls' launches count, but neither the
    host's part nor what any graph costs: events around a graph of one small kernel are 3.3 µs apart on an H200, and the
    kernel adds 1.9. What cannot be captured is timed between events.
    """

    def __init__(self, runs: int = 15, warm_up: int = 2) -> None:
        self.torch, self.runs, self.warm_up = torch_on_gpu(), runs, warm_up
        self._flushed = self.torch.zeros(FLUSHED // 4, dtype=self.torch.float32, device="cuda")
        self._flushes: Callable[[], Any] | None = None
        self._ended = -PAUSE

    def microseconds(self, call: Callable[[], Any]) -> float:
        """The median."""
        (median,) = self._medians([call])
        return median

    def in_turn(self, calls: Sequence[Callable[[], Any]]) -> list[float]:
        """The medians of calls that take turns: each finds the GPU as warm as the others do. What is measured while it
        is still cool takes up to 7 % less, where products of some 10¹² operations meet the GPU's limit of power."""
        return self._medians(calls, settle=True)

    def _medians(self, calls: Sequence[Callable[[], Any]], *, settle: bool = False) -> list[float]:
        self._flushes = self._flushes or self._captured(self._flush)
        timed = [self._timed(call) for call in calls]
        if settle or time.monotonic() - self._ended >= PAUSE:
            self._settle()
        rounds = [[elapsed() for elapsed in timed] for _ in range(self.runs + self.warm_up)]
        self._ended = time.monotonic()
        return [statistics.median(times) for times in zip(*rounds[self.warm_up :], strict=True)]

    def _timed(self, call: Callable[[], Any]) -> Callable[[], float]:
        graph = self._captured(lambda: (self._flush(), call()))
        return partial(self._added, graph) if graph else partial(self._between_events, call)

    def _added(self, graph: Callable[[], Any]) -> float:
        assert self._flushes is not None, "flushes can be captured"
        return (self._elapsed(graph) - self._elapsed(self._flushes)) / COPIES

    def _between_events(self, call: Callable[[], Any]) -> float:
        self._flush()
        return self._elapsed(call)

    def _elapsed(self, call: Callable[[], Any]) -> float:
        torch = self.torch
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(HEAD_START)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return 1000 * start.elapsed_time(end)

    def _flush(self) -> None:
        self._flushed.sum()

    def _settle(self) -> None:
        end = time.monotonic() + SETTLE
        while time.monotonic() < end:
            self._flush()
            self.torch.cuda.synchronize()

    def _captured(self, call: Callable[[], Any]) -> Callable[[], Any] | None:
        """A graph of ``COPIES`` calls; None where a call cannot be captured."""
        torch = self.torch
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                call()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(COPIES):
                    call()
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        return graph.replay

    def copy_bandwidth(self) -> float:
        """Bytes per second of a large copy by a kernel, read and written ones together."""
        source = self.torch.zeros(COPIED // 8, dtype=self.torch.int64, device="cuda")
        target = self.torch.empty_like(source)
        seconds = 1e-6 * self.microseconds(lambda: self.torch.neg(source, out=target))
        return 2 * COPIED / seconds
