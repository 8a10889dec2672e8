"""Textual pipelines, ``builtin.module(func.func(canonicalize),cleave-superopt{keep=2})``, as lists of passes.

MLIR's own parser knows no passes written in Python, so the text is taken apart here and handed on pass by pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cleave.errors import CleaveError, Position

Place = Callable[[int], Position | None]
ROOT = "builtin.module"


@dataclass(frozen=True)
class Element:
    """One pass: its name, its options without the braces, and the ops inside which it runs (outermost first)."""

    name: str
    options: str
    nest: tuple[str, ...]
    position: Position | None
    options_position: Position | None

    def __str__(self) -> str:
        return self.nested((*self.nest,))

    def nested(self, nest: tuple[str, ...]) -> str:
        """The text of the pass inside ``nest``, as a pass manager on ``builtin.module`` takes it."""
        options = f"{{{self.options}}}" if self.options else ""
        return "".join(f"{op}(" for op in nest) + self.name + options + ")" * len(nest)

    def place(self, offset: int) -> Position | None:
        """The position of an offset in the options."""
        start = self.options_position
        return start and Position(start.file, start.line, start.column + offset)


def parse_pipeline(text: str, file: str = "pipeline") -> list[Element]:
    """The passes of a pipeline in order; positions of errors are columns of line 1 of ``file``.

    CleaveError, located, where brackets do not match, a name is missing, or the pipeline is not one on builtin.module.
    """
    return list(_Reader(text, lambda offset: Position(file, 1, offset + 1)).pipeline())


def parse_flag(text: str, file: str) -> Element:
    """A pass as flags have it: ``superopt``, ``superopt{keep=4}``, ``superopt=keep=4``; columns are of ``--text``."""
    name = re.match(r"[\w.-]*", text)[0]  # type: ignore[index]  # matches at least nothing
    rest, start = text[len(name) :], len(name) + 1
    if rest.startswith("{") and rest.endswith("}"):
        rest = rest[:-1]
    elif rest and not rest.startswith("="):
        raise CleaveError(f"write the options as '{name}{{a=1}}' or '{name}=a=1'", Position(file, 1, start + 2))
    return Element(name, rest[1:], (), Position(file, 1, 1), Position(file, 1, start + 3))


class _Reader:
    def __init__(self, text: str, place: Place) -> None:
        self.text, self.place, self.at = text, place, 0

    def pipeline(self) -> Iterator[Element]:
        self._blanks()
        start = self.at
        if self._name() != ROOT or not self._take("("):
            raise CleaveError(f"a pipeline starts with '{ROOT}('", self.place(start), (f"write {ROOT}({self.text})",))
        yield from self._elements((), start + len(ROOT))
        self._blanks()
        if self.at < len(self.text):
            raise CleaveError("text after the end of the pipeline", self.place(self.at))

    def _elements(self, nest: tuple[str, ...], opened: int) -> Iterator[Element]:
        """What stands between the bracket at ``opened`` and its partner, which is read too."""
        self._blanks()
        if self._take(")"):
            return
        while True:
            yield from self._element(nest)
            self._blanks()
            if self._take(")"):
                return
            if self.at >= len(self.text):
                raise CleaveError("this '(' is never closed", self.place(opened))
            if not self._take(","):
                raise CleaveError(f"expected ',' or ')', not '{self.text[self.at]}'", self.place(self.at))

    def _element(self, nest: tuple[str, ...]) -> Iterator[Element]:
        self._blanks()
        start = self.at
        name = self._name()
        if not name:
            raise CleaveError("expected the name of a pass or of an op", self.place(start))
        opened = self.at
        if self._take("("):
            yield from self._elements((*nest, name), opened)
            return
        options = self._braces() if self._take("{") else ""
        yield Element(name, options, nest, self.place(start), self.place(opened + 1))

    def _name(self) -> str:
        found = re.compile(r"[\w.-]*").match(self.text, self.at)
        assert found is not None  # the expression matches the empty text
        self.at = found.end()
        return found[0]

    def _braces(self) -> str:
        """The text up to the partner of the brace just read."""
        start, depth, quote = self.at, 1, ""
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if quote:
                quote = "" if char == quote else quote
            elif char in "\"'":
                quote = char
            else:
                depth += (char == "{") - (char == "}")
            if depth == 0:
                return self.text[start : self.at - 1]
        raise CleaveError("this '{' is never closed", self.place(start - 1))

    def _take(self, char: str) -> bool:
        found = self.text.startswith(char, self.at)
        self.at += found
        return found

    def _blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
