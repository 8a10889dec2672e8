"""Times on a GPU: cold L2, medians, CUDA graphs for what is short."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
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
    """Times functions on the current GPU, each with nothing of its own in the L2 cache."""

    def __init__(self, runs: int = 20, warm_up: int = 3) -> None:
        self.torch, self.runs, self.warm_up = torch_on_gpu(), runs, warm_up
        self.flush = self.torch.zeros(FLUSHED // 4, dtype=self.torch.float32, device="cuda")
        self._ended = -PAUSE

    def microseconds(self, call: Callable[[], Any]) -> float:
        """The median; as a CUDA graph where the call can be captured, so that the host's part does not count."""
        captured = self._captured(call) or call
        if time.monotonic() - self._ended >= PAUSE:
            self._settle()
        median = statistics.median(self._times(captured))
        self._ended = time.monotonic()
        return median

    def _settle(self) -> None:
        end = time.monotonic() + SETTLE
        while time.monotonic() < end:
            self.flush.sum()
            self.torch.cuda.synchronize()

    def _times(self, call: Callable[[], Any]) -> list[float]:
        torch, times = self.torch, []
        for index in range(self.runs + self.warm_up):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self.flush.sum()
            torch.cuda._sleep(HEAD_START)
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            if index >= self.warm_up:
                times.append(1000 * start.elapsed_time(end))
        return times

    def _captured(self, call: Callable[[], Any]) -> Callable[[], Any] | None:
        torch = self.torch
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                call()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
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
