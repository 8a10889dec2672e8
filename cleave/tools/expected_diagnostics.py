"""``--verify-diagnostics``: compare what was reported with ``// expected-error @+1 {{text}}`` comments."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cleave.errors import Position
from cleave.passes.diagnostics import Diagnostic, Severity

_EXPECTED = re.compile(
    r"expected-(?P<severity>error|warning|remark|note)(?P<re>-re)?"
    r"\s*(?:@(?P<where>[+-]\d+|above|below|unknown))?\s*\{\{(?P<text>.*)\}\}\s*$"
)
_MALFORMED = re.compile(r"//.*\bexpected-(?:error|warning|remark|note)\b")


@dataclass(frozen=True)
class Expected:
    """One comment: ``line`` is of the diagnostic (None: at no known place), ``at`` of the comment."""

    severity: Severity
    pattern: re.Pattern[str]
    text: str
    line: int | None
    at: int

    def fits(self, diagnostic: Diagnostic) -> bool:
        line = diagnostic.position.line if diagnostic.position else None
        return (
            diagnostic.severity == self.severity and line == self.line and bool(self.pattern.search(diagnostic.message))
        )


def check(text: str, file: str, first_line: int, reported: list[Diagnostic]) -> list[Diagnostic]:
    """Where the comments in ``text``, which starts at ``first_line`` of ``file``, and what was ``reported`` disagree.

    Notes count as diagnostics of their own. Every comment stands for one diagnostic.
    """
    expected, problems = _expectations(text, file, first_line)
    for diagnostic in reported:
        for each in (diagnostic, *diagnostic.notes):
            fitting = next((one for one in expected if one.fits(each)), None)
            if fitting is not None:
                expected.remove(fitting)
            elif each.severity != "note":
                message = f"unexpected {each.severity}: {each.message}"
                problems.append(Diagnostic("error", each.position, message))
    for one in expected:
        message = f'expected {one.severity} "{one.text}" was not produced'
        problems.append(Diagnostic("error", Position(file, one.at, 1), message))
    return problems


def _expectations(text: str, file: str, first_line: int) -> tuple[list[Expected], list[Diagnostic]]:
    lines = text.split("\n")
    found = [_EXPECTED.search(line) for line in lines]
    expected: list[Expected] = []
    problems: list[Diagnostic] = []
    for index, (line, match) in enumerate(zip(lines, found, strict=True)):
        if match is None:
            if _MALFORMED.search(line):
                message = "malformed comment; write expected-error @+1 {{text}}"
                problems.append(Diagnostic("error", Position(file, first_line + index, 1), message))
            continue
        place = _target(index, match["where"], found)
        line_number = None if place is None else first_line + place
        severity: Severity = match["severity"]  # type: ignore[assignment]  # one of the four by the expression
        pattern = _pattern(match["text"], bool(match["re"]))
        expected.append(Expected(severity, pattern, match["text"], line_number, first_line + index))
    return expected, problems


def _target(index: int, where: str | None, comments: list[re.Match[str] | None]) -> int | None:
    """The index of the line meant; ``above`` and ``below`` skip lines that are such comments themselves."""
    if where is None:
        return index
    if where == "unknown":
        return None
    if where in ("above", "below"):
        step = 1 if where == "below" else -1
        index += step
        while 0 <= index < len(comments) and comments[index] is not None:
            index += step
        return index
    return index + int(where)


def _pattern(text: str, is_regex: bool) -> re.Pattern[str]:
    """Plain text, or with ``-re`` plain text with ``{{regular expressions}}`` in it."""
    parts = re.split(r"\{\{(.*?)\}\}", text) if is_regex else [text]
    pieces = [part if index % 2 else re.escape(part) for index, part in enumerate(parts)]
    return re.compile("".join(f"(?:{piece})" if index % 2 else piece for index, piece in enumerate(pieces)), re.DOTALL)
