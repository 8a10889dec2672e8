"""Measurements in processes of their own, which outlive what crashes or hangs a GPU."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
RESTARTS = 8
PATIENCE = 60.0
"""Seconds that one thing may take."""
TO_DIE = 20.0
"""Seconds that a killed process may take, whose kernel the driver must end."""
_BETWEEN_LOOKS = 0.1


def run_in_children(
    script: str, arguments: Sequence[str | Path], out: Path, seconds: float, patience: float = PATIENCE
) -> bool:
    """Run the script with the arguments and the seconds left; where it dies or hangs, again, as often as there is time.

    It writes what it is at to ``out / "now"``, anew for each thing; at which it died, or was for longer than
    ``patience`` seconds, stands in ``out / "skipped"`` from then on. Whether it came to its end.
    """
    deadline = time.monotonic() + seconds
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, script, *map(str, arguments)]
    for _ in range(RESTARTS):
        left = deadline - time.monotonic()
        if left < 5:
            print("no time is left", flush=True)
            return False
        (out / "now").unlink(missing_ok=True)
        process = subprocess.Popen([*command, f"{left - 3:.0f}"], env=environment)
        ended = _watched(process, out / "now", deadline, patience)
        if process.returncode == 0:
            return True
        current = (out / "now").read_text() if (out / "now").exists() else ""
        print(f"CRASH {current or 'before the first'}: {ended}", flush=True)
        if not current or time.monotonic() > deadline:
            return False
        with (out / "skipped").open("a") as file:
            file.write(current + "\n")
    return False


def _watched(process: subprocess.Popen[bytes], now: Path, deadline: float, patience: float) -> str:
    """Wait for the process, and end it when it is late; how it ended."""
    while process.poll() is None:
        time.sleep(_BETWEEN_LOOKS)
        late = time.monotonic() > deadline
        if late or (now.exists() and time.time() - now.stat().st_mtime > patience):
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TO_DIE)
            return "no time is left" if late else f"it took more than {patience:g} s"
    return f"exit status {process.returncode}"


def skipped(out: Path) -> set[str]:
    """What earlier children died at."""
    path = out / "skipped"
    return set(path.read_text().splitlines()) if path.exists() else set()


def rows_of(path: Path) -> list[Json]:
    """The rows of a JSONL file, none if it is not there; without one that was half written when its process ended."""
    found: list[Json] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def append_row(path: Path, row: Json) -> None:
    """On a line of its own, whatever was written before."""
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write("\n" * torn + json.dumps(row) + "\n")
