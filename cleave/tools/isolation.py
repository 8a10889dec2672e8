"""Run the compiler in a child process, so that an abort in C++ ends as an error message.

MLIR's wheel has assertions on, and some inputs and passes end the process. The child is forked before MLIR is imported,
which costs about a millisecond.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from types import FrameType

BROKEN_PIPE = 128 + signal.SIGPIPE  # what a shell shows for a filter whose reader has gone
INTERRUPTED = 128 + signal.SIGINT
_STAGE_BYTES = 4096


class Watch:
    """What the parent can see of the child: the stage it is at, and what C++ code has written to stderr."""

    def __init__(self) -> None:
        self._stage = mmap.mmap(-1, _STAGE_BYTES)
        self._captured = os.fdopen(os.memfd_create("stderr"), "w+b")
        self._stderr = -1
        self._forwarded = 0

    @property
    def stage(self) -> str:
        return self._stage[:].rstrip(b"\0").decode(errors="replace")

    @stage.setter
    def stage(self, text: str) -> None:
        """Say what happens next, for the message if the process ends in it."""
        self._stage[:] = text.encode()[: _STAGE_BYTES - 1].ljust(_STAGE_BYTES, b"\0")

    def capture(self) -> None:
        """In the child: from now on C++ code writes to a file and Python's stderr goes to the real one."""
        self._stderr = os.dup(2)
        os.dup2(self._captured.fileno(), 2)
        sys.stderr = open(self._stderr, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)

    def forward(self) -> None:
        """In the child: pass on what C++ code has written since the last call."""
        text = self._unseen()
        if text:
            sys.stderr.flush()
            os.write(self._stderr, text)
            self._forwarded += len(text)

    def last_words(self) -> str | None:
        """In the parent: the line in which C++ code says why it gave up."""
        lines = [line.strip() for line in self._unseen().decode(errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if "Assertion" in line or "LLVM ERROR" in line or "UNREACHABLE" in line]
        return (telling or lines or [None])[-1]

    def close(self) -> None:
        """In the parent, once the child has ended."""
        self._captured.close()
        self._stage.close()

    def _unseen(self) -> bytes:
        size = os.fstat(self._captured.fileno()).st_size
        return os.pread(self._captured.fileno(), size - self._forwarded, self._forwarded)


@dataclass(frozen=True)
class Crash:
    """The child ended by a signal."""

    stage: str
    signal: signal.Signals
    detail: str | None

    def __str__(self) -> str:
        return f"{self.stage or 'the compiler'} crashed (signal {self.signal.value}, {self.signal.name})"


def run_isolated(work: Callable[[Watch], int]) -> int | Crash:
    """The exit code of ``work`` in a child process, or how it crashed.

    An interrupt of the child counts as exit 130, a termination as 143; both are passed on to it. ``work`` gets the real
    standard streams, whatever Python objects stand for them in this process.
    """
    with closing(Watch()) as watch:
        return _watched(work, watch)


def _watched(work: Callable[[Watch], int], watch: Watch) -> int | Crash:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the caller
            stream.flush()
    pid = os.fork()
    if pid == 0:
        _child(work, watch)
    status = _wait(pid)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    killed = signal.Signals(os.WTERMSIG(status))
    if killed in (signal.SIGINT, signal.SIGTERM):
        return 128 + killed
    return Crash(watch.stage, killed, watch.last_words())


def _child(work: Callable[[Watch], int], watch: Watch) -> None:
    """Never returns. ``os._exit`` also spares the destructors of contexts, which abort on some mistakes."""
    code = 1
    try:
        if _main():
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # C++ code does not look at Python's handler
        watch.capture()
        code = work(watch)
        watch.forward()
        sys.stderr.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    finally:
        os._exit(code)


def _wait(pid: int) -> int:
    """Wait for the child; hand on the signals that ask to end."""

    def hand_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, number)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)} if _main() else {}
    try:
        return os.waitpid(pid, 0)[1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _main() -> bool:
    """Only the main thread may set signal handlers."""
    import threading

    return threading.current_thread() is threading.main_thread()


def ensure_stderr() -> None:
    """Where the caller has closed standard error, messages go nowhere; ``print`` would put them on standard output."""
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # which is what C++ code writes to
        sys.stderr = open(2, "w", closefd=False)


def nobody_reads() -> int:
    """The exit code where standard output was closed by its reader; Python, which ends with a flush, says nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return BROKEN_PIPE
