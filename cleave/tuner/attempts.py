"""Work that may take the process along: a kernel that never ends, or one after which the GPU answers no more.

``supervised`` runs a command in a child process and starts it again after such an end. A journal, one file of lines,
says what the child was at; the next child finds that in ``lost`` and leaves it out.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cleave.runtime.cuda_driver import GpuLost

VARIABLE = "CLEAVE_ATTEMPTS"
"""Of the environment: where the child's journal is."""
LIMIT = 60.0
"""Seconds for an attempt; a candidate takes less than one, a faulty one may take for ever."""
_LOOK = 0.1


@dataclass(frozen=True)
class Journal:
    """Lines of JSON: ["start", time], ["begin", what, deadline], ["end", what], ["lost", what, why].

    Times are of the monotonic clock, in seconds.
    """

    path: Path

    def add(self, *line: object) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def lines(self) -> list[list[object]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def lost(self) -> dict[str, str]:
        return {str(line[1]): str(line[2]) for line in self.lines() if line[0] == "lost"}

    def last(self) -> list[object]:
        return self.lines()[-1]

    def current(self) -> tuple[str, float] | None:
        """What was begun last and has not ended, and its deadline."""
        last = self.last()
        return (str(last[1]), float(str(last[2]))) if last[0] == "begin" else None


def _own() -> Journal | None:
    """The journal of this process, if it is a child of ``supervised``."""
    path = os.environ.get(VARIABLE, "")
    return Journal(Path(path)) if path and Path(path).exists() else None


@contextmanager
def attempt(what: str, seconds: float = LIMIT) -> Generator[None]:
    """The body may take the process along. GpuLost where it did, for the GPU's part: then the process is to end."""
    journal = _own()
    if journal:
        journal.add("begin", what, time.monotonic() + seconds)
    line: tuple[str, ...] = ("end", what)
    try:
        yield
    except (GpuLost, RuntimeError) as error:
        if not isinstance(error, GpuLost) and "CUDA error" not in str(error):  # so PyTorch calls it
            raise
        reason = getattr(error, "message", str(error)).partition("\n")[0]
        line = ("lost", what, reason)
        raise GpuLost(reason) from None
    finally:
        if journal:
            journal.add(*line)


def lost(what: str) -> str:
    """Why an earlier process did not get past this attempt; empty if none was lost at it."""
    journal = _own()
    return journal.lost().get(what, "") if journal else ""


def restarted() -> bool:
    """Whether an earlier child was lost, so that this one goes on from where it was."""
    journal = _own()
    return bool(journal and journal.lost())


def started() -> float:
    """When the first child was started, on the monotonic clock; now, in a process that is none."""
    journal = _own()
    return float(str(journal.lines()[0][1])) if journal else time.monotonic()


def is_child() -> bool:
    return _own() is not None


def supervised(module: str, arguments: Sequence[str], more: Mapping[str, str] | None = None) -> int:
    """The exit status of ``python -m module arguments``, started again as long as it is lost at some attempt.

    ``more`` is added to its environment.
    """
    with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
        journal = Journal(Path(folder) / "attempts")
        journal.add("start", time.monotonic())
        environment = {**os.environ, VARIABLE: str(journal.path), **(more or {})}
        while True:
            known = len(journal.lost())
            status, late = _watched([sys.executable, "-m", module, *arguments], environment, journal)
            if at := journal.current():
                journal.add("lost", at[0], _ending(status, late))
            if len(journal.lost()) == known or status in (-signal.SIGINT, -signal.SIGTERM):
                return status if status >= 0 else 128 - status
            print(f"{journal.last()[2]}; another process goes on", file=sys.stderr, flush=True)


def _ending(status: int, late: bool) -> str:
    if late:
        return "the process that ran it did not finish in time"
    how = f"died ({signal.Signals(-status).name})" if status < 0 else f"ended with exit status {status}"
    return f"the process that ran it {how}"


def _watched(command: Sequence[str], environment: dict[str, str], journal: Journal) -> tuple[int, bool]:
    """The status of a process, and whether it was killed because an attempt took too long."""
    process = subprocess.Popen(command, env=environment)
    before = signal.signal(signal.SIGTERM, _raise_exit)  # so that the child ends, too
    try:
        while True:
            try:
                return process.wait(_LOOK), False
            except subprocess.TimeoutExpired:
                at = journal.current()
            if at and time.monotonic() > at[1]:
                process.kill()
                return process.wait(), True
    except KeyboardInterrupt:  # the terminal sent it to the child as well
        process.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        process.kill()
        process.wait()


def _raise_exit(number: int, frame: object) -> None:
    sys.exit(128 + number)
