"""Reading inputs and writing outputs of the command-line tools."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from cleave.errors import CleaveError, Position

STDIN = "<stdin>"
BYTECODE = b"ML\xefR"


@dataclass(frozen=True)
class Source:
    """An input: the name that diagnostics use, its bytes, and as text unless it is MLIR bytecode.

    ``regular``: a file that can be read once more.
    """

    name: str
    read: Callable[[], bytes]
    regular: bool

    @cached_property
    def data(self) -> bytes:
        """CleaveError if unreadable or empty."""
        try:
            data = self.read()
        except OSError as error:
            raise CleaveError(f"cannot read: {error.strerror}", self.name) from None
        if not data.strip():
            raise CleaveError("the input is empty", Position(self.name, 1, 1))
        return data

    @cached_property
    def text(self) -> str | None:
        """CleaveError if unreadable, empty, or neither text nor bytecode."""
        return None if self.data.startswith(BYTECODE) else _decode(self.data, self.name)


def read_source(path: str, tool: str) -> Source:
    """The file; or, for ``-``, standard input, which is read when it is first asked for: options are checked before.

    CleaveError for a file that ``Source.text`` does not take.
    """
    if path == "-":
        return Source(STDIN, partial(_read_stdin, tool), False)
    source = Source(path, Path(path).read_bytes, os.path.isfile(path))
    _ = source.text
    return source


def _read_stdin(tool: str) -> bytes:
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]: closed by the caller
        raise CleaveError("cannot read: it is closed", STDIN)
    if sys.stdin.isatty():
        print(f"{tool}: reading standard input; end it with ctrl-d", file=sys.stderr)
    return sys.stdin.buffer.read()


def stdout_is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()  # pyright: ignore[reportUnnecessaryComparison]


def _decode(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise CleaveError(
            f"byte 0x{byte:02x} is not UTF-8; the input is neither MLIR text nor bytecode",
            _position(data, error.start, name),
        ) from None
    if "\0" in text:
        raise CleaveError(
            "a NUL character; the input is neither MLIR text nor bytecode", _position(data, data.index(b"\0"), name)
        )
    return text


def _position(data: bytes, offset: int, name: str) -> Position:
    line_start = data.rfind(b"\n", 0, offset) + 1
    return Position(name, data.count(b"\n", 0, offset) + 1, offset - line_start + 1)


def temporary_name(path: str) -> str:
    """A name for ``write_output`` to keep the data under until it is complete: this process's own, beside ``path``."""
    real = os.path.realpath(path)
    return os.path.join(os.path.dirname(real), f".{os.path.basename(real)}.{os.getpid()}.tmp")


def write_output(path: str, data: bytes, temporary: str) -> None:
    """Write ``data`` to ``path`` (``-``: standard output), all or nothing.

    The data goes to ``temporary`` first, in the same folder, and then takes the name of the file that ``path`` is or
    links to, with its mode. What is no regular file (a device, a pipe) is written directly.
    CleaveError if that fails; BrokenPipeError if nobody reads standard output any more.
    """
    if path == "-":
        _write_stdout(data)
        return
    try:
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "wb") as file:
                file.write(data)
            return
        _replace(os.path.realpath(path), data, temporary)
    except OSError as error:
        raise CleaveError(f"cannot write: {error.strerror}", path) from None


def _replace(real: str, data: bytes, temporary: str) -> None:
    mode = stat.S_IMODE(os.stat(real).st_mode) if os.path.exists(real) else None
    if mode is not None and not os.access(real, os.W_OK):
        raise PermissionError(13, "Permission denied")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, real)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _write_stdout(data: bytes) -> None:
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]: 1 may be another file's number by now
        raise CleaveError("cannot write: it is closed", "<stdout>")
    try:
        with open(1, "wb", closefd=False) as stream:
            stream.write(data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CleaveError(f"cannot write: {error.strerror}", "<stdout>") from None
