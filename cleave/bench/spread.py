"""Measuring on several GPUs at once: a process for each, whose rows become one file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cleave.bench.run import read_rows, write_rows

VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOOK = 0.1


def spread(
    devices: Sequence[str], output: Path, command: Callable[[int, Path], Sequence[str]], *, resume: bool
) -> bool:
    """Run ``command(number, part)`` with each GPU alone in sight; it adds rows to ``part``, which has all known ones.

    What all of them measured is in ``output`` when the last one ends, or when this process is told to stop; false if
    that is nothing. Without ``resume`` no row is known, and an output that is there stays until there is a new row.
    """
    parts = [output.with_name(f"{output.name}.{number}") for number in range(len(devices))]
    if resume:
        merge([output], _left(output), output)
    else:
        for part in _left(output):
            part.unlink()
    if resume and output.exists():
        for part in parts:
            part.write_bytes(output.read_bytes())
    processes: list[subprocess.Popen[bytes]] = []
    before = signal.signal(signal.SIGTERM, _exit)  # so that the children end, too
    try:
        for number, (device, part) in enumerate(zip(devices, parts, strict=True)):
            environment = {**os.environ, VISIBLE: visible(device)}
            processes.append(subprocess.Popen(command(number, part), env=environment))
        while any(process.poll() is None for process in processes):
            if not resume and any(part.exists() for part in parts):
                output.unlink(missing_ok=True)  # so that no later run resumes from the rows of an older one
            time.sleep(_LOOK)
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        measured = merge([output] if resume else [], parts, output)
    return measured


def _exit(number: int, frame: object) -> None:
    sys.exit(128 + number)


def visible(device: str) -> str:
    """What names a GPU to a process of its own: one of those that this process sees."""
    seen = [name for name in os.environ.get(VISIBLE, "").split(",") if name]
    return seen[int(device)] if device.isdigit() and int(device) < len(seen) else device


def _left(output: Path) -> list[Path]:
    """The parts that a run which was killed has left, of any number of GPUs."""
    name = re.compile(re.escape(output.name) + r"\.\d+")
    return sorted(path for path in output.absolute().parent.glob("*") if name.fullmatch(path.name))


def merge(known: Sequence[Path], parts: Sequence[Path], output: Path) -> bool:
    """Put the rows of the known files and the parts into the output, each once, and remove the parts; whether any."""
    parts = [path for path in parts if path.exists()]
    if not parts:
        return False
    found = [read_rows(path) for path in (*known, *parts) if path.exists()]
    rows = {row.key: row for _, each in found for row in each}
    write_rows(output, list(rows.values()), found[-1][0])
    for part in parts:
        part.unlink()
    return True
