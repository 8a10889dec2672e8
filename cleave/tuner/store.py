"""Tuning results in one SQLite file, which several processes may use at once and a kill at any moment leaves sound.

A key stands for everything that a time depends on; see ``key_of``. Each measurement is a transaction of its own, so a
stopped run goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cleave.errors import CleaveError

SCHEMA = 1
TIMES = "added to a CUDA graph"
"""How they are taken (``timing``); those of another way are not compared."""
_BUSY = 30.0
"""Seconds to wait for another process's transaction."""
_MAGIC = b"SQLite format 3\0"
"""With which SQLite's files begin; an empty one is a database, too."""
_TABLES = """
create table measured (
    key text not null, candidate text not null, microseconds real, refused text not null,
    primary key (key, candidate)) without rowid;
create table best (key text primary key, what text not null, microseconds real not null, package blob not null);
"""


@dataclass(frozen=True)
class Measured:
    """A candidate's median in microseconds, or None and why it has none."""

    microseconds: float | None
    refused: str = ""


def key_of(
    source: str, sizes: Mapping[str, int], options: Mapping[str, object], device: str, versions: Mapping[str, str]
) -> str:
    """A digest of the function's text, the sizes, the options, the GPU's name, versions and ``TIMES``."""
    parts = [source, sorted(sizes.items()), sorted(map(str, options.items())), device, sorted(versions.items()), TIMES]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def has_results(path: str | os.PathLike[str], function: str) -> bool:
    """Whether the file is there for calls of the function; a warning where it is not."""
    if os.path.exists(path):
        return True
    text = f"there are no tuning results at {path}: the cost model decides"
    warnings.warn(f"{text}; cleave-tune --store FILE or {function}.tune(...) makes them", stacklevel=6)
    return False


def check_kind(path: str | os.PathLike[str]) -> None:
    """CleaveError where the file, which is there, is no database, without a change to it."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as error:
        raise CleaveError(f"{path} is no file of tuning results: {error.strerror}") from None
    if start not in (b"", _MAGIC):
        raise CleaveError(f"{path} is no file of tuning results: file is not a database")


class Store:
    """The file at ``path``, made when it is not there. CleaveError where it is none of ours."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._connection() as connection:
                _write_ahead(connection)
                self._make(connection)
        except (sqlite3.Error, OSError) as error:
            raise CleaveError(f"{self.path} is no file of tuning results: {error}") from None

    def record(self, key: str, candidate: str, measured: Measured) -> None:
        """Keep one measurement; a later one of the same candidate takes its place."""
        row = (key, candidate, measured.microseconds, measured.refused)
        with self._connection() as connection:
            connection.execute("insert or replace into measured values (?, ?, ?, ?)", row)

    def measured(self, key: str) -> dict[str, Measured]:
        """All measurements under a key, by candidate."""
        with self._connection() as connection:
            rows = connection.execute("select candidate, microseconds, refused from measured where key = ?", (key,))
            return {candidate: Measured(microseconds, refused) for candidate, microseconds, refused in rows}

    def keep(self, key: str, what: str, microseconds: float, package: bytes) -> None:
        """The package of the fastest candidate; nothing where a faster one is kept already."""
        row = (key, what, microseconds, package)
        with self._connection() as connection:
            connection.execute(
                "insert into best values (?, ?, ?, ?) on conflict (key) do update set what = excluded.what, "
                "microseconds = excluded.microseconds, package = excluded.package "
                "where excluded.microseconds < best.microseconds",
                row,
            )

    def best(self, key: str) -> bytes | None:
        """The package that was kept; None if none was."""
        with self._connection() as connection:
            row = connection.execute("select package from best where key = ?", (key,)).fetchone()
            return None if row is None else bytes(row[0])

    def rows(self) -> list[tuple[str, float]]:
        """(what, microseconds) of all that is kept, by name."""
        with self._connection() as connection:
            return list(connection.execute("select what, microseconds from best order by what"))

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        """A connection for one transaction: threads and forked processes share none."""
        connection = sqlite3.connect(self.path, timeout=_BUSY)
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def _make(self, connection: sqlite3.Connection) -> None:
        (found,) = connection.execute("pragma user_version").fetchone()
        if found == SCHEMA:
            return
        if found:
            raise CleaveError(f"{self.path} has tuning results of format {found}; this Cleave reads {SCHEMA}")
        connection.execute("begin immediate")
        (found,) = connection.execute("pragma user_version").fetchone()
        if found == 0:
            for statement in filter(None, (text.strip() for text in _TABLES.split(";"))):
                connection.execute(statement)
            connection.execute(f"pragma user_version = {SCHEMA}")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """SQLite does not wait for others, as it does elsewhere, where several processes change the mode of a new file."""
    deadline = time.monotonic() + _BUSY
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
