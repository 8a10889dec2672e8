"""A tool's ``main`` in a child of the test process, which has imported everything already: a second less each time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any


def run(
    main: Callable[[Sequence[str]], int],
    arguments: Sequence[str],
    text: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run`` of the tool would; its standard input is ``text``, or empty."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        given.write((text or "").encode())
        given.seek(0)
        child = os.fork()
        if child == 0:
            _become(main, arguments, (given, out, errors), environment or {})
        _, status = os.waitpid(child, 0)
        outcome = [stream.seek(0) or stream.read().decode() for stream in (out, errors)]
        return subprocess.CompletedProcess(list(arguments), os.waitstatus_to_exitcode(status), *outcome)


def _become(
    main: Callable[[Sequence[str]], int],
    arguments: Sequence[str],
    streams: Sequence[IO[bytes]],
    environment: Mapping[str, str],
) -> None:
    """Be the tool, and end."""
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream.fileno(), number)
        sys.stdin, sys.stdout, sys.stderr = (_stream(number, mode) for number, mode in enumerate("rww"))
        os.environ.update(environment)
        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _stream(number: int, mode: str) -> Any:
    return open(number, mode, closefd=False)
