"""How a command-line tool ends: mistakes as messages, an interrupt and a reader that has gone as exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from cleave.errors import CleaveError
from cleave.tools.isolation import INTERRUPTED, ensure_stderr, nobody_reads


def exit_code(tool: str, work: Callable[[], int | None], stopped: str = "") -> int:
    """That of ``work`` once its output is written, 1 after the message of a CleaveError or OSError.

    ``stopped``: what an interrupted tool says. A SystemExit, as argparse raises, is passed on.
    """
    ensure_stderr()
    try:
        return _written(work)
    except CleaveError as error:
        print(f"{tool}: {error}", file=sys.stderr)
    except BrokenPipeError:
        return nobody_reads()
    except OSError as error:
        print(f"{tool}: error: {error.filename or '<stdout>'}: {error.strerror}", file=sys.stderr)
        if error.filename is None:
            nobody_reads()
    except KeyboardInterrupt:
        if stopped:
            print(stopped, file=sys.stderr)
        return INTERRUPTED
    return 1


def _written(work: Callable[[], int | None]) -> int:
    """What ``work`` returns; what it has printed is out by then, also where it ends with an exception."""
    try:
        return work() or 0
    finally:
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]: closed by the caller
            sys.stdout.flush()
