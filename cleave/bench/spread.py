"""Measuring on several GPUs at once: a process for each, whose rows become one file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cleave.bench.run import read_rows, write_rows

VISIBLE = "CUDA_VISIBLE_DEVICES"


def spread(devices: Sequence[str], output: Path, command: Callable[[int, Path], Sequence[str]]) -> None:
    """Run ``command(number, part)`` with each GPU alone in sight; it adds rows to ``part``, which has all known ones.

    What all of them measured is in ``output`` when the last one ends, or when this process is told to stop.
    """
    parts = [output.with_name(f"{output.name}.{number}") for number in range(len(devices))]
    merge(output, parts)
    if output.exists():
        for part in parts:
            part.write_bytes(output.read_bytes())
    processes: list[subprocess.Popen[bytes]] = []
    before = signal.signal(signal.SIGTERM, _exit)  # so that the children end, too
    try:
        for number, (device, part) in enumerate(zip(devices, parts, strict=True)):
            environment = {**os.environ, VISIBLE: visible(device)}
            processes.append(subprocess.Popen(command(number, part), env=environment))
        for process in processes:
            process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        merge(output, parts)


def _exit(number: int, frame: object) -> None:
    sys.exit(128 + number)


def visible(device: str) -> str:
    """What names a GPU to a process of its own: one of those that this process sees."""
    seen = [name for name in os.environ.get(VISIBLE, "").split(",") if name]
    return seen[int(device)] if device.isdigit() and int(device) < len(seen) else device


def merge(output: Path, parts: Sequence[Path]) -> None:
    """Put the rows of the parts into the output, each once, and remove the parts."""
    files = [path for path in (output, *parts) if path.exists()]
    if not [path for path in files if path != output]:
        return
    found = [read_rows(path) for path in files]
    rows = {row.key: row for _, each in found for row in each}
    write_rows(output, list(rows.values()), found[-1][0])
    for part in parts:
        part.unlink(missing_ok=True)
