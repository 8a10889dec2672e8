"""Diagnostics of our passes and of MLIR in one format: ``file:line:col: severity: text``, the source line, a caret.

MLIR's bindings can emit errors only, so remarks and warnings of ours go through here: ``diagnostics.remark(op.location,
"...")``. They reach the innermost ``collecting`` handler, or stderr if there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from cleave.errors import CleaveError, CleaveErrors, Position

if TYPE_CHECKING:
    from cleave.bindings import ir

Severity = Literal["error", "warning", "remark", "note"]


@dataclass(frozen=True)
class Diagnostic:
    """One message; ``position`` is None where the place is not known; ``notes`` have their own positions."""

    severity: Severity
    position: Position | None
    message: str
    notes: tuple[Diagnostic, ...] = ()


Handler = Callable[[Diagnostic], None]
_handlers: list[Handler] = []


def remark(location: object, text: str, notes: tuple[str, ...] = ()) -> None:
    """Tell the user something that is neither wrong nor doubtful, such as what could not be raised and why."""
    _report("remark", location, text, notes)


def warning(location: object, text: str, notes: tuple[str, ...] = ()) -> None:
    """Tell the user of something that is probably a mistake."""
    _report("warning", location, text, notes)


def report(diagnostic: Diagnostic) -> None:
    """Hand a diagnostic to the innermost handler."""
    if _handlers:
        _handlers[-1](diagnostic)
    else:
        print(render(diagnostic), file=sys.stderr)


def from_error(error: CleaveError) -> list[Diagnostic]:
    """An error, or each of several found at once, as diagnostics."""
    errors = error.errors if isinstance(error, CleaveErrors) else (error,)
    return [_diagnostic("error", each.location, each.message, each.notes) for each in errors]


def _report(severity: Severity, location: object, text: str, notes: tuple[str, ...]) -> None:
    report(_diagnostic(severity, location, text, notes))


def _diagnostic(severity: Severity, location: object, text: str, notes: tuple[str, ...]) -> Diagnostic:
    position = position_of(location)
    return Diagnostic(severity, position, text, tuple(Diagnostic("note", position, note) for note in notes))


@contextmanager
def collecting(handler: Handler) -> Generator[None]:
    """Send every diagnostic reported inside the ``with`` to ``handler``."""
    _handlers.append(handler)
    try:
        yield
    finally:
        _handlers.pop()


def progress(text: str) -> None:
    """One line on a terminal, which the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


# --- places ----------------------------------------------------------------------------------------------------------


def position_of(location: object) -> Position | None:
    """The first file position in ``location``: a position, MLIR's location, or the text of one."""
    if location is None or isinstance(location, Position):
        return location
    if isinstance(location, str):
        return Position.read(location)
    return _position_in_mlir(cast("ir.Location", location))


def _position_in_mlir(location: ir.Location) -> Position | None:
    if location.is_a_file():
        return Position(location.filename, location.start_line, location.start_col)
    if location.is_a_name():
        return position_of(location.child_loc)
    if location.is_a_callsite():
        return position_of(location.callee)
    if location.is_a_fused():
        return next(filter(None, map(position_of, location.locations)), None)
    return None


def from_mlir(info: ir.Diagnostic | ir.DiagnosticInfo) -> Diagnostic:
    """A diagnostic that MLIR hands to a handler."""
    severity: Severity = _SEVERITIES[str(info.severity).rpartition(".")[2].lower()]
    return Diagnostic(severity, position_of(info.location), info.message, tuple(map(from_mlir, info.notes)))


_SEVERITIES: dict[str, Severity] = {"error": "error", "warning": "warning", "remark": "remark", "note": "note"}

# --- text ------------------------------------------------------------------------------------------------------------


def render(diagnostic: Diagnostic, sources: Mapping[str, str] | None = None, fallback: str = "<unknown>") -> str:
    """The diagnostic and its notes as lines of text, with source lines of the files in ``sources``.

    ``fallback`` stands for the file where no position is known. A note that stands where its diagnostic does gets no
    second source line.
    """
    lines = _lines(diagnostic, sources or {}, fallback)
    for note in diagnostic.notes:
        text = {} if note.position == diagnostic.position else sources or {}
        lines += _lines(note, text, fallback)
    return "\n".join(lines)


def _lines(diagnostic: Diagnostic, sources: Mapping[str, str], fallback: str) -> list[str]:
    position = diagnostic.position
    lines = [f"{position or fallback}: {diagnostic.severity}: {diagnostic.message}"]
    if position is not None and position.file in sources:
        lines += _excerpt(sources[position.file], position)
    return lines


_EXCERPT_WIDTH = 200


def _excerpt(source: str, position: Position) -> list[str]:
    """The source line and a caret under the column; of a very long line, the part around the column."""
    lines = source.split("\n", position.line)
    if not 1 <= position.line <= len(lines):
        return []
    line = lines[position.line - 1].rstrip("\r")
    column = min(position.column, len(line) + 1) - 1
    start = max(0, column - _EXCERPT_WIDTH // 2) if len(line) > _EXCERPT_WIDTH else 0
    shown = line[start : start + _EXCERPT_WIDTH]
    indent = "".join("\t" if char == "\t" else " " for char in shown[: column - start])
    return [shown, f"{indent}^"]
