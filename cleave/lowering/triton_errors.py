"""Triton's and ptxas's diagnostics as ``CleaveError``: the lines that matter, at the places they name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cleave.errors import CleaveError
from cleave.lowering.triton_worker import STAGE_MARK

_DIAGNOSTIC = re.compile(r"^(?P<place>loc\(.*\)|\S*?:\d+:\d+): error: (?P<text>.*)$")
_POSITION = re.compile(r'"?([^"():\s]+)"?:(\d+):(\d+)')
_CRASH = re.compile(r"Assertion `.*|LLVM ERROR: .*|UNREACHABLE.*")
_PTXAS = re.compile(r"^ptxas.*?(?:error|fatal)\s*:\s*(.*)$", re.IGNORECASE)
_OUR_FILE = re.compile(r"/proc/self/fd/\d+")
_MOST_NOTES = 4


def triton_error(failure: str, log: str, text: str, target: str) -> CleaveError:
    """The error for a compilation of ``text`` that ended with ``failure`` (a reason in words) and wrote ``log``."""
    stage = _last_stage(log)
    where = f"while Triton compiled kernel '{kernel_name(text)}' for {target} (stage {stage})"
    found = list(dict.fromkeys(_diagnostics(log)))
    if found:
        (place, message), *rest = found
        notes = [f"{at}: {more}" if at else more for at, more in rest[:_MOST_NOTES]]
        return CleaveError(message, place or kernel_location(text), (*notes, where))
    details = [*_CRASH.findall(log), *_ptxas_lines(failure)]
    reason = failure.splitlines()[0] if failure else "failed"
    message = f"Triton {reason}" if not details else f"Triton failed: {_OUR_FILE.sub('<ttir>', details[0])}"
    notes = [*details[1:_MOST_NOTES], where] + ([reason] if details else [])
    return CleaveError(message, kernel_location(text), tuple(notes))


def _diagnostics(log: str) -> Iterator[tuple[str | None, str]]:
    for line in log.splitlines():
        match = _DIAGNOSTIC.match(line)
        if match and not match["text"].startswith("Failures have been detected"):
            yield _position(match["place"]), match["text"]


def _position(place: str) -> str | None:
    match = _POSITION.search(_OUR_FILE.sub("<ttir>", place))
    return ":".join(match.groups()) if match else None


def _ptxas_lines(failure: str) -> list[str]:
    found = [match[1] for line in failure.splitlines() if (match := _PTXAS.match(line))]
    return [f"ptxas: {line}" for line in dict.fromkeys(found) if "aborted due to errors" not in line]


def _last_stage(log: str) -> str:
    stages = re.findall(f"^{STAGE_MARK}(.*)$", log, re.MULTILINE)
    return stages[-1] if stages else "start"


def kernel_name(text: str) -> str:
    """The name of the first function in TTIR text, generic or custom form."""
    match = re.search(r'sym_name = "([^"]*)"', text) or re.search(r"tt\.func [^@\n]*@\"?([^\s\"(]+)", text)
    return match[1] if match else "?"


def kernel_location(text: str) -> str | None:
    """``file:line:col`` of the function in TTIR text printed with debug info; None if it has none."""
    closing = re.findall(r"^(?!#loc).*\bloc\((.+)\)\s*$", text, re.MULTILINE)  # the module's is last
    if not closing:
        return None
    function = closing[-2] if len(closing) > 1 else closing[-1]
    aliases = dict(re.findall(r"^(#loc\d*) = loc\((.+)\)$", text, re.MULTILINE))
    for _ in range(8):  # names and call sites nest
        match = re.search(r'"([^"]*)":(\d+):(\d+)', function)
        if match:
            return ":".join(match.groups())
        function = re.sub(r"#loc\d*", lambda alias: aliases.get(alias[0], ""), function)
    return None
