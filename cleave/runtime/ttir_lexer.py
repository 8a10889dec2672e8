"""Tokens of MLIR's textual form, one at a time."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NoReturn, cast

from cleave.errors import CleaveError, Position

_TOKEN = re.compile(
    r"""(?:\s++|//[^\n]*+)*+(?:
        (?P<value>%[\w$.\-]+(?:\#\d+)?)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<word>[A-Za-z_][\w$.]*)
      | (?P<mark>->|::|[<>(){}\[\],:=*?])
      | (?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*(?:[eE][+-]?\d+)?)?))
      | (?P<block>\^[\w$.\-]+)
      | (?P<hash>\#[A-Za-z_0-9][\w$.]*)
      | (?P<bang>![A-Za-z_][\w$.]*)
      | (?P<symbol>@(?:[\w$.\-]+|"(?:[^"\\\n]|\\.)*"))
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*"|->|[<>(){}\[\]]')


class Lexer:
    """One token of lookahead: ``kind`` and ``token`` are the next one, not yet taken."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.start = self.end = 0
        self.kind = self.token = ""
        self.advance()

    def advance(self) -> str:
        """Take the next token and look at the one after it."""
        taken = self.token
        match = _TOKEN.match(self.text, self.end)
        if match is None:
            self.start = len(self.text) - len(self.text[self.end :].lstrip())
            self.fail(f"unexpected character {self.text[self.start]!r}")
        self.kind = cast(str, match.lastgroup)
        self.start, self.end = match.span(self.kind)
        self.token = match[self.kind]
        return taken

    def position(self, offset: int | None = None) -> Position:
        offset = self.start if offset is None else offset
        line = bisect_right(self.line_starts, offset)
        return Position(self.file, line, offset - self.line_starts[line - 1] + 1)

    def fail(self, message: str, offset: int | None = None, notes: tuple[str, ...] = ()) -> NoReturn:
        raise CleaveError(message, self.position(offset), notes)

    def accept(self, token: str) -> bool:
        if self.token == token and self.kind != "string":
            self.advance()
            return True
        return False

    def expect(self, token: str, where: str) -> None:
        if not self.accept(token):
            self.fail(f"expected '{token}' {where}, got {self.found()}")

    def expect_kind(self, kind: str, what: str) -> str:
        if self.kind != kind:
            self.fail(f"expected {what}, got {self.found()}")
        return self.advance()

    def found(self) -> str:
        return "the end of the text" if self.kind == "end" else f"'{self.token}'"

    def skip_balanced(self) -> str:
        """Skip from the bracket that is the next token to its partner; return the text between, both included."""
        start, depth = self.start, 0
        for match in _BRACKET.finditer(self.text, start):
            bracket = match[0]
            depth += 1 if bracket in "<({[" else -1 if bracket in ">)}]" else 0
            if depth == 0:
                self.end = match.end()
                break
        else:
            self.fail(f"'{self.token}' is never closed")
        end = self.end
        self.advance()
        return self.text[start:end]

    def skip_location(self) -> None:
        if self.kind == "word" and self.token == "loc":
            self.advance()
            self.skip_balanced()
