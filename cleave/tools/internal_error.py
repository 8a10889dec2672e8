"""What a user sees of a fault of ours."""

from __future__ import annotations

from cleave import knobs
from cleave.errors import Position
from cleave.passes.diagnostics import Diagnostic

REPORT = "no input should do this; please report it to the project with the input and the output of --version"


def describe_exception(error: BaseException, where: str, position: Position | None) -> Diagnostic:
    """An exception that nobody foresaw as a diagnostic; with CLEAVE_TRACEBACK=1 its traceback is a note."""
    if isinstance(error, MemoryError):
        return Diagnostic("error", position, f"{where}: out of memory")
    text = " ".join(str(error).split())
    message = f"internal error in {where}: {type(error).__name__}: {text[:300]}"
    if knobs.TRACEBACK:
        import traceback  # three milliseconds of every start otherwise

        hint = "".join(traceback.format_exception(error)).rstrip()
    else:
        hint = f"set {knobs.TRACEBACK.variable}=1 to see where it happened"
    return Diagnostic(
        "error", position, message, (Diagnostic("note", position, REPORT), Diagnostic("note", position, hint))
    )
