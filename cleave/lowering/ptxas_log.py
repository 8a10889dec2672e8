"""What ptxas -v says of a kernel."""

from __future__ import annotations

import re

_ROUTINE = ("bytes gmem", "Compiling entry", "Function properties", "Used ", "Compile time", "bytes stack frame")


def registers(log: str) -> int:
    """Of a thread; -1 if it does not say."""
    return _number(r"Used (\d+) registers", log)


def spills(log: str) -> int:
    """Bytes of stores and loads together; -1 if it does not say."""
    stores, loads = (_number(rf"(\d+) bytes spill {kind}", log) for kind in ("stores", "loads"))
    return stores + loads if stores >= 0 else -1


def notes(log: str) -> tuple[str, ...]:
    """The lines that are not its routine report."""
    lines = [line.strip() for line in log.splitlines() if line.startswith("ptxas")]
    return tuple(line.split(":", 1)[1].strip() for line in lines if not any(text in line for text in _ROUTINE))


def _number(pattern: str, log: str) -> int:
    match = re.search(pattern, log)
    return int(match[1]) if match else -1
