"""``tools/test`` hands on what it is given: the named files, or everything. Pytest and lit are scripts that say how
they were called."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = 'ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"; PYTHON=true; ensure_environment() { :; }\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("tools", "test/lit", "test/py", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools/test", tmp_path / "tools/test")
    (tmp_path / "tools/environment").write_text(ENVIRONMENT)
    for name in ("pytest", "lit"):
        tool = tmp_path / ".venv/bin" / name
        tool.write_text('#!/bin/sh\necho "called: $*"\n')
        tool.chmod(0o755)
    for file in ("test/py/test_a.py", "test/lit/a.mlir"):
        (tmp_path / file).touch()
    return tmp_path


def _calls(root: Path, *arguments: str) -> list[list[str]]:
    command = ["bash", str(root / "tools/test"), *arguments]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split()[1:] for line in printed.splitlines() if line.startswith("called:")]


@pytest.mark.parametrize("named", ["test/py/test_a.py", "test/py/test_a.py::test_b"])
def test_named_tests_run_alone(root: Path, named: str) -> None:
    for call in _calls(root, "py", "--", named):
        assert [word for word in call if word.startswith("test/")] == [named]


def test_a_named_file_of_lit_runs_alone(root: Path) -> None:
    (call,) = _calls(root, "lit", "--", "-v", "test/lit/a.mlir")
    assert [word for word in call if word.startswith("test/")] == ["test/lit/a.mlir"]


@pytest.mark.parametrize("arguments", [[], ["--", "--filter", "passes"]])
def test_without_a_file_lit_runs_all(root: Path, arguments: list[str]) -> None:
    (call,) = _calls(root, "lit", *arguments)
    assert "test/lit" in call
