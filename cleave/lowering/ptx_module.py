"""Modules of PTX with a kernel each, as one module that ptxas and the driver take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cleave.errors import CleaveError

_HEADER = (".version", ".target", ".address_size")
_FILE = re.compile(r'\.file\s+(\d+)\s+"(.*)"')
_LOCATION = re.compile(r"(\.loc\s+)(\d+)")
_INLINED = re.compile(r",\s*function_name [^/]*")  # it refers to a section
_DECLARED = re.compile(r"\.(?:global|const|shared|func)\b[^;{=]*?([\w$]+)\s*(?:[\[({=;]|$)", re.S)


@dataclass
class _Merged:
    header: dict[str, None] = field(default_factory=dict[str, None])
    files: dict[str, int] = field(default_factory=dict[str, int])
    shared: dict[str, str] = field(default_factory=dict[str, str])
    """What several modules may declare, by name."""
    kernels: list[str] = field(default_factory=list[str])


def one_module(modules: Mapping[str, str]) -> str:
    """One module of the kernels in these, by name. What they declare alike is declared once.

    Files are numbered anew; line numbers stay, debug sections go. CleaveError for modules of different targets, and
    for two things of one name.
    """
    merged = _Merged()
    for name, text in modules.items():
        _add(merged, name, text)
    if len(merged.header) > len(_HEADER):
        raise CleaveError(f"the kernels are for different targets: {', '.join(merged.header)}")
    files = [f'.file {number} "{path}"' for path, number in merged.files.items()]
    return "\n".join([*merged.header, "", *files, *merged.shared.values(), "", *merged.kernels])


def _add(merged: _Merged, kernel: str, text: str) -> None:
    pieces = list(_pieces(text))
    numbers: dict[str, int] = {}
    for number, path in (match.groups() for piece in pieces if (match := _FILE.match(piece))):
        numbers[number] = merged.files.setdefault(path, len(merged.files) + 1)
    for piece in pieces:
        if piece.startswith(_HEADER):
            merged.header[piece] = None
        elif ".entry" in piece.partition("(")[0]:
            merged.kernels.append(f"// kernel: {kernel}\n{_located(piece, numbers)}\n")
        elif not piece.startswith((".file", ".section")):
            _declare(merged, kernel, _located(piece, numbers))


def _declare(merged: _Merged, kernel: str, piece: str) -> None:
    match = _DECLARED.search(piece)
    name = match[1] if match else piece
    if merged.shared.setdefault(name, piece) != piece:
        notes = ("--kernel chooses one kernel",)
        raise CleaveError(f"kernel '{kernel}' has another '{name}' than those before it", notes=notes)


def _located(piece: str, numbers: Mapping[str, int]) -> str:
    text = _INLINED.sub(" ", piece)
    return _LOCATION.sub(lambda match: f"{match[1]}{numbers.get(match[2], match[2])}", text)


def _pieces(text: str) -> Iterator[str]:
    """The directives outside of functions, and functions whole."""
    lines: Sequence[str] = text.splitlines()
    held: list[str] = []
    depth = 0
    for line in lines:
        code = line.strip() if line.lstrip().startswith(".file") else line.partition("//")[0].rstrip()
        if not held and not code.strip():
            continue
        held.append(line)
        depth += sum(code.count(left) - code.count(right) for left, right in ("{}", "()"))
        alone = code.strip().startswith((".file", *_HEADER))
        if depth == 0 and (alone or code.endswith((";", "}"))):
            yield "\n".join(held).strip()
            held = []
