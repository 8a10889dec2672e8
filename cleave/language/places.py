"""Lines of the functions that are traced: where a call into Cleave was made."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path

from cleave.errors import CleaveError

_PACKAGE = Path(__file__).parents[1]
_INTERNAL = tuple(
    str(_PACKAGE / part) for part in ("language", "dialects", "runtime", "function.py", "frontend.py", "arguments.py")
)


def caller() -> str | None:
    """``file:line:1`` of the innermost call that is not Cleave's own."""
    frame = inspect.currentframe()
    while frame and frame.f_code.co_filename.startswith(_INTERNAL):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}:1" if frame else None


def place_of(error: CleaveError) -> str | None:
    """``file:line:1`` of the call into Cleave that led to an error raised inside."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    inside = [index for index, (file, _) in enumerate(frames) if file.startswith(_INTERNAL)]
    outside = [f"{file}:{line}:1" for file, line in frames[: max(inside)] if not file.startswith(_INTERNAL)]
    return outside[-1] if outside else None


def last_place(error: BaseException) -> str:
    """``file:line:1`` of the call that raised it."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}:{line}:1"


def mlir_location(place: str | None) -> str | None:
    """``file:line:column`` as MLIR writes it."""
    if place is None:
        return None
    file, line, column = place.rsplit(":", 2)
    quoted = file.replace("\\", "\\\\").replace('"', '\\"')
    return f'loc("{quoted}":{line}:{column})'
