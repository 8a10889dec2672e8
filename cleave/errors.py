"""The one exception for everything that a user can cause."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SPOKEN_WITH_A_VOWEL = re.compile("[aeio]|nd", re.IGNORECASE)  # an ndarray
_FILE_POSITION = re.compile(r'(?:loc\()?"?(?P<file>[^"]*?)"?:(?P<line>\d+):(?P<column>\d+)')


def a_kind_of(value: object) -> str:
    """The type of a value, as messages have it: "an int"; with the library's name where that is another's tensor."""
    kind = type(value)
    name = f"{kind.__module__.partition('.')[0]}.Tensor" if kind.__name__ == "Tensor" else kind.__name__
    return f"a{'n' * bool(_SPOKEN_WITH_A_VOWEL.match(name))} {name}"


@dataclass(frozen=True)
class Position:
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @staticmethod
    def read(text: str) -> Position | None:
        """The first position in a text such as ``file:line:column`` or ``loc("file":line:column)``."""
        found = _FILE_POSITION.search(text)
        return Position(found["file"], int(found["line"]), int(found["column"])) if found else None


class CleaveError(Exception):
    """A user's mistake: what is wrong, where, and (in the notes) what to do.

    ``location`` is a ``Position``, MLIR's location of an op, a text such as ``file:line:col``, or None when it is not
    known; ``cleave.passes.diagnostics.position_of`` reads it.
    """

    def __init__(self, message: str, location: object | None = None, notes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.notes = notes

    def at(self, location: object) -> CleaveError:
        """The same error with a place, unless it already has one."""
        return self if self.location else CleaveError(self.message, location, self.notes)

    def __str__(self) -> str:
        place = str(self.location) if self.location else ""
        if place.startswith("loc("):  # as MLIR writes it
            place = str(Position.read(place) or "")
        head = f"{place}: " if place else ""
        return f"{head}error: {self.message}" + "".join(f"\nnote: {note}" for note in self.notes)


class CleaveErrors(CleaveError):
    """Several mistakes found at once, each with its own place."""

    def __init__(self, errors: list[CleaveError]) -> None:
        super().__init__(errors[0].message, errors[0].location, errors[0].notes)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))
