"""No malformed input ends in a traceback, an abort or silence: each gives a located error and exit 1."""

from __future__ import annotations

import re
from pathlib import Path

import malformed
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from malformed import Case

from cleave.tools import session  # noqa: F401 - imported here, every forked run has it
from cleave.tools.cleave_opt import main


def run(
    text: str | bytes, flags: tuple[str, ...], folder: Path, capfd: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of cleave-opt on a file ``bad.mlir`` with the text."""
    path = folder / "bad.mlir"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    capfd.readouterr()
    code = main([*flags, str(path)])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def assert_no_accident(err: str) -> None:
    assert "Traceback" not in err
    assert "internal error" not in err
    assert "crashed" not in err


def test_the_table_is_long_enough() -> None:
    assert len(malformed.CASES) >= 60


def test_the_good_module_is_good(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(malformed.GOOD, (), tmp_path, capfd)
    assert (code, err) == (0, "")
    assert '"cleave.contract"' in out


@pytest.mark.parametrize("name", malformed.CASES)
def test_malformed(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    case: Case = malformed.CASES[name]
    code, out, err = run(case.text, case.flags, tmp_path, capfd)
    assert code == 1
    assert out == ""
    assert_no_accident(err)
    first = re.match(r"(?P<file>.*):(?P<line>\d+):(?P<column>\d+): error: (?P<message>.*)", err)
    assert first, err
    assert first["file"] == str(tmp_path / "bad.mlir")
    assert int(first["line"]) == case.line, err
    assert int(first["column"]) >= 1
    assert re.search(case.message, first[0]), err


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(end=st.integers(0, len(malformed.GOOD) - 1))
def test_truncated_anywhere(end: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(malformed.GOOD[:end], (), tmp_path, capfd)
    assert_no_accident(err)
    whole = malformed.GOOD[:end].rstrip() == malformed.GOOD.rstrip()
    assert code == (0 if whole else 1)
    assert whole or re.match(r".*bad\.mlir:\d+:\d+: error: ", err)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, len(malformed.GOOD) - 1), char=st.sampled_from('{}()<>[]"%#!@,:=-x0?\n\t é'))
def test_one_character_changed(at: int, char: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(malformed.GOOD[:at] + char + malformed.GOOD[at + 1 :], (), tmp_path, capfd)
    assert_no_accident(err)
    assert (code == 0) == (err == "")
    assert code == 0 or re.match(r".*bad\.mlir:\d+:\d+: error: ", err)
    assert bool(out) == (code == 0)
