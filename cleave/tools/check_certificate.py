"""``check-certificate``: check again, without the search, what ``cleave-opt --superopt{certificate=FILE}`` wrote."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.tools.certificate_checks import (
    Verdict,
    check_fields,
    check_floats,
    check_record,
    check_signature,
    pinned_extents,
    read_program,
)
from cleave.tools.exit_code import exit_code

USAGE = """usage: check-certificate [--smt OUTPUT.smt2] [--seed N] FILE

Checks every alternative in FILE, as cleave-opt --superopt{certificate=FILE} writes it, against its source: inputs and
outputs, random points of a chain of prime fields, and f64 by the reference executor, at sizes of its own. The normal
forms are compared as texts; they are not derived again. --smt writes the scalar laws behind the normal forms of the
programs as one SMT-LIB script, which an SMT solver must find unsatisfiable throughout. Exits 1 if a check fails."""
VERSION = 1


@dataclass(frozen=True)
class Row:
    """What was found about one alternative."""

    function: str
    program: str
    checks: dict[str, Verdict]

    @property
    def passed(self) -> bool:
        """No check fails, and one of the tests could judge."""
        judged = [self.checks[name].passed for name in ("fields", "f64") if name in self.checks]
        return all(v.passed is not False for v in self.checks.values()) and any(judged)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with the arguments (None: of the process); the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return exit_code("check-certificate", lambda: _main(words))


def _main(words: list[str]) -> int:
    if "--help" in words or not words:
        print(USAGE)
        return 0 if words else 2
    smt, seed = _option(words, "--smt"), _option(words, "--seed") or "1"
    if len(words) != 1 or words[0].startswith("-") or not seed.isdecimal():
        raise CleaveError(USAGE.partition("\n")[0])
    functions = read(words[0])
    rows = [row for name, programs in functions.items() for row in check_function(name, programs, int(seed))]
    print(table(rows))
    if smt is not None:
        from cleave.tools.scalar_laws import script

        graphs = [read_program(program["program"]) for programs in functions.values() for program in programs]
        _write(smt, script(graphs))
    return 0 if all(row.passed for row in rows) else 1


def _option(words: list[str], name: str) -> str | None:
    """The value after the option, both taken out of the words."""
    if name not in words:
        return None
    at = words.index(name)
    if at + 1 == len(words):
        raise CleaveError(f"{name} needs a value")
    value = words[at + 1]
    del words[at : at + 2]
    return value


def read(path: str) -> dict[str, list[dict[str, Any]]]:
    """The programs of each function, the source first. CleaveError for what is no certificate."""
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        raise CleaveError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise CleaveError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("functions"), dict):
        raise CleaveError(f"{path} is no certificate of version {VERSION}")
    functions: dict[str, list[dict[str, Any]]] = data["functions"]
    for name, programs in functions.items():
        if not programs or not all(isinstance(p.get("program"), str) for p in programs):
            raise CleaveError(f"{path}: '{name}' has no programs")
    return functions


def check_function(name: str, programs: Sequence[dict[str, Any]], seed: int) -> Iterator[Row]:
    """A row for each alternative, or one that says why the source cannot be read."""
    try:
        source = read_program(programs[0]["program"])
    except CleaveError as error:
        yield Row(name, "source", {"program": Verdict(False, error.message)})
        return
    for number, data in enumerate(programs[1:], 1):
        try:
            checks = _check(source, programs[0], data, seed)
        except CleaveError as error:
            checks = {"program": Verdict(False, error.message)}
        yield Row(name, f"alternative {number}", checks)


def _check(source: Graph, original: dict[str, Any], data: dict[str, Any], seed: int) -> dict[str, Verdict]:
    other = read_program(data["program"])
    signature = check_signature(source, other)
    if not signature.passed:
        return {"signature": signature}
    forms = data.get("normal_form")
    same = bool(forms) and forms == original.get("normal_form")
    facts = tuple(dict.fromkeys((*source.facts.texts, *other.facts.texts)))
    pinned = pinned_extents(source, tuple(data.get("facts", ())))
    return {
        "signature": signature,
        "normal form": Verdict(same, "the same text" if same else "differs from the source's"),
        "record": check_record(data),
        "fields": check_fields(source, other, facts, pinned, seed),
        "f64": check_floats(source, other, facts, pinned, seed),
    }


def table(rows: Sequence[Row]) -> str:
    """One block for each alternative, and the count."""
    lines: list[str] = []
    for row in rows:
        lines.append(f"{row.function}, {row.program}: {'equal' if row.passed else 'NOT EQUAL'}")
        words = {True: "ok", False: "FAILS", None: "-"}
        lines += [f"    {name:<12}{words[check.passed]:<6}{check.text}" for name, check in row.checks.items()]
    failed = sum(not row.passed for row in rows)
    return "\n".join([*lines, f"{len(rows) - failed} equal, {failed} not"])


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise CleaveError(f"cannot write {path}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
