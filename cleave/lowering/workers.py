"""A pool of processes that run Triton; a dead or hung one becomes a ``Crash`` and is replaced."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from cleave.lowering.triton_worker import OUT_OF_TIME, receive, send

T = TypeVar("T")
PATIENCE = 5
"""After how many times its CPU time a worker is given up that does nothing, or that waits for the processor."""
_ROOT = Path(__file__).resolve().parents[2]


class Crash(Exception):
    """The worker died (``reason`` says by which signal) or did not answer in time; ``log`` is its stderr."""

    def __init__(self, reason: str, log: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log


class Worker:
    """One process, started by the first request and again after a crash. Not thread-safe.

    ``python`` is the interpreter that has Triton.
    """

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()
        # The worker empties this file before each request: without append it would leave a hole at the front.
        fcntl.fcntl(self._log, fcntl.F_SETFL, fcntl.fcntl(self._log, fcntl.F_GETFL) | os.O_APPEND)

    def ask(self, request: dict[str, Any], timeout: float) -> tuple[dict[str, Any], str]:
        """The worker's answer and what it wrote to stderr. Raises Crash.

        ``timeout`` is in seconds of CPU time, of Triton and of ptxas each: how busy the machine is changes no result.
        """
        process = self._running()
        assert process.stdin and process.stdout
        try:
            send(process.stdin, {**request, "timeout": timeout})
            if not select.select([process.stdout], [], [], 1 + PATIENCE * timeout)[0]:
                raise self._crash(_late(timeout))
            return receive(process.stdout), self.log()
        except (EOFError, BrokenPipeError):
            raise self._crash(_late(timeout) if process.wait() == -OUT_OF_TIME else None) from None

    def log(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def kill(self) -> None:
        """End the process and its children (ptxas)."""
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._log.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.kill()
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [self._python, "-P", "-m", "cleave.lowering.triton_worker"],  # of this package, wherever the process is
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # a group of its own, so that killing it takes ptxas along
            bufsize=-1,
        )
        return self._process

    def _crash(self, reason: str | None = None) -> Crash:
        process = self._process
        if reason is None and process is not None:
            code = process.wait()
            reason = f"died ({signal.Signals(-code).name})" if code < 0 else f"ended (exit status {code})"
        self.kill()
        return Crash(reason or "is gone", self.log())


def _late(timeout: float) -> str:
    return f"did not finish within {timeout:g} s"


class Workers:
    """``count`` workers, each started when first needed; by default one for each CPU of the process, 8 at most.

    A context manager: leaving it waits for what was submitted; leaving it by an exception ends everything at once.
    Results do not depend on which worker computes them. ``python`` is the interpreter that has Triton.
    """

    def __init__(self, count: int | None = None, python: str = sys.executable) -> None:
        self.count = count or min(len(os.sched_getaffinity(0)), 8)
        self._threads = ThreadPoolExecutor(self.count, thread_name_prefix="cleave-triton")
        self._all = [Worker(python) for _ in range(self.count)]
        # Last in, first out: few requests start few processes.
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self._all:
            self._idle.put(worker)

    def run(self, job: Callable[[Worker], T]) -> Future[T]:
        """Call ``job`` with a worker that is its own for the time being."""
        return self._threads.submit(self._lend, job)

    def _lend(self, job: Callable[[Worker], T]) -> T:
        worker = self._idle.get()
        try:
            return job(worker)
        finally:
            self._idle.put(worker)

    def close(self, *, wait: bool = True) -> None:
        if not wait:
            self._threads.shutdown(wait=False, cancel_futures=True)
            for worker in self._all:
                worker.kill()
        self._threads.shutdown(wait=True)
        for worker in self._all:
            worker.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=kind is None)


_shared: dict[int, Workers] = {}
_lock = threading.Lock()


def shared_workers() -> Workers:
    """The pool of this process, for callers that bring none; it ends with the process."""
    import atexit

    with _lock:
        if os.getpid() not in _shared:  # a forked child must not use its parent's pipes
            _shared.clear()
            pool = _shared[os.getpid()] = Workers()
            atexit.register(pool.close, wait=False)
        return _shared[os.getpid()]
