"""Tools whose output nobody reads, or has no room: a message or none, an exit code, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cleave.errors import CleaveError
from cleave.tools.exit_code import exit_code

ROOT = Path(__file__).parents[2]
MODULE = (ROOT / "examples" / "attention.mlir").read_text()
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
ENVIRONMENT.pop("PYTHONUNBUFFERED", None)  # argparse would not notice that its help is not written

SCRIPTS = [path for path in sorted((ROOT / "bench").glob("*.py")) if "__main__" in path.read_text()]
TOOLS = {
    **{path.name: [str(path), "--help"] for path in SCRIPTS if "\nimport torch\n" not in path.read_text()},
    "check-certificate": ["-m", "cleave.tools.check_certificate", "--help"],
    "cleave-bench": ["-m", "cleave.tools.cleave_bench", "--help"],
    "cleave-tune": ["-m", "cleave.tools.cleave_tune", "--help"],
    "count_results.py": ["tools/count_results.py", "nowhere"],
    "dialect-reference": ["tools/dialect-reference", "--check"],
    "embed.py": ["examples/embed.py"],
    "outline.py": ["tools/outline.py"],
}


def ended(words: Sequence[str], stdout: int) -> tuple[int, str]:
    command = [sys.executable, *words]
    result = subprocess.run(
        command, input=MODULE, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=ENVIRONMENT
    )
    return result.returncode, result.stderr


@pytest.mark.parametrize("tool", TOOLS)
def test_nobody_reads(tool: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        assert ended(TOOLS[tool], write) == (141, "")
    finally:
        os.close(write)


@pytest.mark.parametrize("tool", TOOLS)
def test_no_room(tool: str) -> None:
    with open("/dev/full", "w") as full:
        expected = f"{tool}: error: <stdout>: No space left on device\n"
        assert ended(TOOLS[tool], full.fileno()) == (1, expected)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_end_as_tools_do(script: Path) -> None:
    """Those that need PyTorch, too, which run as children of others."""
    assert f'sys.exit(exit_code("{script.name}", ' in script.read_text()


def raises(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


def test_what_work_raises(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("tool", lambda: None) == 0
    assert exit_code("tool", lambda: 3) == 3
    assert exit_code("tool", raises(CleaveError("wrong", notes=("right",)))) == 1
    assert exit_code("tool", raises(FileNotFoundError(2, "No such file", "name"))) == 1
    assert exit_code("tool", raises(KeyboardInterrupt()), stopped="stopped") == 130
    assert capsys.readouterr().err == "tool: error: wrong\nnote: right\ntool: error: name: No such file\nstopped\n"
    with pytest.raises(SystemExit):
        exit_code("tool", raises(SystemExit(2)))


CLOSED = {
    "cleave_opt": ["-m", "cleave.tools.cleave_opt"],
    "cleave_run": ["-m", "cleave.tools.cleave_run"],
}


def closing(redirection: str, words: Sequence[str]) -> tuple[int, str, str]:
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, *words]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize("words", [*CLOSED.values(), ["tools/outline.py"]])
def test_closed_standard_input(words: list[str]) -> None:
    code, out, message = closing("<&-", words)
    assert (code, out) == (1, "") and message.endswith("<stdin>: error: cannot read: it is closed\n")
    assert message.count("\n") == 1


@pytest.mark.parametrize("words", CLOSED.values())
def test_closed_standard_output(words: list[str]) -> None:
    options = ["--sizes=m=3,n=4", "--stage=reference"] if "cleave_run" in words[-1] else []
    expected = (1, "", "<stdout>: error: cannot write: it is closed\n")
    assert closing(">&-", [*words, *options, "examples/attention.mlir"]) == expected


@pytest.mark.parametrize("words", [*CLOSED.values(), ["-m", "cleave.tools.check_certificate"]])
def test_closed_standard_error(words: list[str]) -> None:
    assert closing("2>&-", [*words, "missing.mlir"]) == (1, "", "")


def test_a_file_is_written_without_standard_streams(tmp_path: Path) -> None:
    words = [*CLOSED["cleave_opt"], "examples/attention.mlir", "-o", str(tmp_path / "out.mlir")]
    assert closing("<&- >&- 2>&-", words) == (0, "", "")
    assert (tmp_path / "out.mlir").read_text().startswith("module {")


@pytest.mark.parametrize(
    ("flag", "told"),
    [("--list-pases", "did you mean --list-passes?"), ("--schedule{size=m=4}", "has no option 'size'")],
)
def test_options_are_checked_before_standard_input_is_read(flag: str, told: str) -> None:
    """The writing end stays open: a tool that reads would wait for it."""
    read, write = os.pipe()
    command = [sys.executable, *CLOSED["cleave_opt"], flag]
    try:
        result = subprocess.run(
            command, stdin=read, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT, timeout=60
        )
    finally:
        os.close(read)
        os.close(write)
    assert (result.returncode, result.stdout) == (1, "") and told in result.stderr
