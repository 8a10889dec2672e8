"""How calls are timed, on a GPU whose times are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from cleave.tuner import timing
from cleave.tuner.timing import COPIES, PAUSE, SETTLE, Timer

FLUSH, GRAPH, WARM = 70.0, 3.3, 0.5
"""Microseconds of a flush, what any graph costs, and those that a call takes less with its tensors in the L2 cache."""
TIMES = (90.0, 80.0, 5.0, 1.0, 3.0, 2.0, 100.0)
"""Of a call, one run after the other: the first two warm up, the median of the rest is 3."""
STEP = SETTLE / 10
"""Seconds for which the host waits for the GPU, whatever it does."""


class Gpu:
    """Work is done at once; ``now`` is the GPU's time in microseconds, ``seconds`` the host's."""

    def __init__(self) -> None:
        self.now, self.seconds, self.flushes, self.cold = 0.0, 0.0, 0, False
        self.capturing: list[Callable[[], None]] | None = None
        self.float32 = "f32"
        self.cuda = SimpleNamespace(
            Stream=lambda: SimpleNamespace(wait_stream=lambda stream: None),
            current_stream=lambda: SimpleNamespace(wait_stream=lambda stream: None),
            stream=lambda stream: nullcontext(),
            CUDAGraph=lambda: CudaGraph(self),
            graph=self.graph,
            Event=lambda enable_timing: Event(self),
            _sleep=self.run,
            synchronize=self.synchronize,
        )

    def zeros(self, elements: int, dtype: str, device: str) -> Any:
        return SimpleNamespace(sum=lambda: self.enqueue(self.flush))

    def run(self, microseconds: float) -> None:
        self.now += microseconds

    def flush(self) -> None:
        self.run(FLUSH)
        self.cold, self.flushes = True, self.flushes + 1

    def compute(self, cold: float) -> None:
        self.run(cold if self.cold else cold - WARM)
        self.cold = False

    def enqueue(self, work: Callable[[], None]) -> None:
        if self.capturing is None:
            work()
        else:
            self.capturing.append(work)

    def synchronize(self) -> None:
        self.seconds += STEP
        if self.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing")

    @contextmanager
    def graph(self, graph: CudaGraph) -> Iterator[None]:
        self.capturing = graph.work
        try:
            yield
        finally:
            self.capturing = None


class CudaGraph:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.work = gpu, list[Callable[[], None]]()

    def replay(self) -> None:
        self.gpu.run(GRAPH)
        for work in self.work:
            work()


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.at = gpu, 0.0

    def record(self) -> None:
        self.at = self.gpu.now

    def elapsed_time(self, end: Event) -> float:
        """In milliseconds."""
        return (end.at - self.at) / 1000


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setattr(timing, "torch_on_gpu", lambda: made)
    monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: made.seconds))
    return made


def call_of(gpu: Gpu, times: Sequence[float], each: int, *, waits: bool = False) -> Callable[[], None]:
    """A call that takes so long in its runs: the first before any capture, then ``each`` for each time. ``waits``: for
    the GPU, so that it cannot be captured."""
    run = iter([times[0], *(time for time in times for _ in range(each))])

    def call() -> None:
        gpu.enqueue(lambda: gpu.compute(next(run)))
        if waits:
            gpu.synchronize()

    return call


def test_what_a_call_adds_to_a_graph(gpu: Gpu) -> None:
    """Neither flushes nor the graph count, each call finds its tensors in memory, and the median is of what is warm."""
    timer = Timer(runs=5, warm_up=2)
    assert timer.microseconds(call_of(gpu, TIMES, COPIES)) == pytest.approx(3.0)
    assert timer.microseconds(call_of(gpu, TIMES, COPIES)) == pytest.approx(3.0)


def test_what_cannot_be_captured_is_timed_between_events(gpu: Gpu) -> None:
    timer = Timer(runs=5, warm_up=2)
    assert timer.microseconds(call_of(gpu, TIMES, 1, waits=True)) == pytest.approx(3.0)
    assert timer.microseconds(call_of(gpu, TIMES, COPIES)) == pytest.approx(3.0)


def test_the_gpu_is_kept_busy_ahead_of_times_behind_a_pause(gpu: Gpu) -> None:
    timer, flushes = Timer(runs=1, warm_up=0), list[int]()
    for pause in (0.0, 0.5 * PAUSE, 1.5 * PAUSE):
        gpu.seconds, before = gpu.seconds + pause, gpu.flushes
        timer.microseconds(call_of(gpu, (1.0,), COPIES))
        flushes.append(gpu.flushes - before)
    timed, settling = 1 + 2 * COPIES, SETTLE / STEP
    assert flushes == pytest.approx([1 + timed + settling, timed, timed + settling], abs=1.5)


def test_calls_that_take_turns_find_the_gpu_alike(gpu: Gpu) -> None:
    """While it warms, the one that is measured first would seem the faster one. It is kept busy ahead of them."""
    timer, runs = Timer(runs=7, warm_up=2), count()

    def warming(least: float) -> Callable[[], None]:
        return lambda: gpu.enqueue(lambda: gpu.compute(least + 0.1 * next(runs)))

    slow, fast = timer.in_turn([warming(10.0), warming(9.0)])
    assert 0.4 < slow - fast < 0.6  # five runs of one call between those of the other
    assert timer.microseconds(warming(10.0)) < timer.microseconds(warming(9.0))
    before = gpu.seconds
    timer.in_turn([warming(1.0)])
    assert gpu.seconds - before >= SETTLE + 9 * 2 * STEP, "though there was no pause"
