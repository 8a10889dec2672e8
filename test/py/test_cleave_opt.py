"""cleave-opt as a process: start-up, help, files, signals, crashes; what lit cannot see."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "cleave.tools.cleave_opt"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
MODULE = "func.func @f(%i: index) -> index {\n  return %i : index\n}\n"
BROKEN = "func.func @f() {\n  nonsense\n}\n"


def cleave_opt(*arguments: str | Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env={**ENVIRONMENT, **environment}, timeout=60
    )


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "in.mlir"
    path.write_text(MODULE)
    return path


def cpu_seconds(command: Sequence[str], **environment: str) -> float:
    """CPU time of a run and of the process that it forks."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**ENVIRONMENT, **environment})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


MLIR_ALONE = "import sys; sys.modules['numpy'] = None; from mlir import ir; ir.Context()"
"""The share of a start that is MLIR's own: 0.11 s of an idle core of the machine whose start must take 0.25 s."""


@pytest.mark.alone
def test_start_up_is_a_quarter_of_a_second(module: Path, tmp_path: Path) -> None:
    """The fastest of a few runs, for what else the machine does only adds; with byte code, as an installation has it.

    A machine at half the speed gets twice the time: loading MLIR, measured in between, says how fast this one is.
    """
    cached = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path / "cache")}
    ours, theirs = [], []
    for _ in range(9):
        ours.append(cpu_seconds([*COMMAND, str(module), "--canonicalize", "--cleave-cse"], **cached))
        theirs.append(cpu_seconds([sys.executable, "-c", MLIR_ALONE], **cached))
    assert min(ours) <= 0.25 * max(1, min(theirs) / 0.11)


def test_start_up_imports_nothing_heavy() -> None:
    code = (
        "import sys; from cleave.tools import session, cleave_opt; from cleave import bindings; bindings.context();"
        "print({'numpy', 'sympy', 'z3', 'triton'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert result.stdout.strip() == "set()"


def test_numpy_works_after_the_bindings_blocked_it() -> None:
    code = "from cleave.bindings import ir; import numpy; print(numpy.arange(3).sum())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert result.stdout.strip() == "3"


def test_help_fits_on_a_screen() -> None:
    lines = cleave_opt("--help").stdout.splitlines()
    assert 10 < len(lines) <= 40
    assert max(map(len, lines)) <= 100


def test_standard_input_and_output(module: Path) -> None:
    from_file, from_dash, from_nothing = cleave_opt(module), cleave_opt("-", stdin=MODULE), cleave_opt(stdin=MODULE)
    assert from_file.stdout == from_dash.stdout == from_nothing.stdout
    assert "func.func @f" in from_file.stdout
    assert not from_file.stderr


def test_output_is_read_back_unchanged(module: Path) -> None:
    once = cleave_opt(module).stdout
    assert cleave_opt(stdin=once).stdout == once


def test_locations_of_standard_input() -> None:
    result = cleave_opt(stdin=BROKEN)
    assert result.returncode == 1
    assert result.stderr.startswith("<stdin>:2:3: error: ")
    assert "  nonsense\n  ^\n" in result.stderr
    assert not result.stdout


# --- files -----------------------------------------------------------------------------------------------------------


def test_output_file_keeps_its_mode_and_link(module: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target.mlir", tmp_path / "link.mlir"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    result = cleave_opt(module, "-o", link)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert link.is_symlink()
    assert "func.func @f" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.mlir", "link.mlir", "target.mlir"]


def test_failure_leaves_the_output_file_alone(tmp_path: Path) -> None:
    target = tmp_path / "target.mlir"
    target.write_text("before")
    assert cleave_opt("-o", target, stdin=BROKEN).returncode == 1
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_input_may_be_the_output(module: Path) -> None:
    assert cleave_opt(module, "-o", module, "--mlir-print-op-generic").returncode == 0
    assert '"func.func"' in module.read_text()
    assert cleave_opt(module, "-o", module).returncode == 0
    assert "func.func @f" in module.read_text()


def test_devices_are_written_directly(module: Path) -> None:
    assert cleave_opt(module, "-o", "/dev/null").returncode == 0
    full = cleave_opt(module, "-o", "/dev/full")
    assert (full.returncode, full.stderr) == (1, "/dev/full: error: cannot write: No space left on device\n")


def test_full_standard_output(module: Path) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run([*COMMAND, module], stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert (result.returncode, result.stderr) == (1, "<stdout>: error: cannot write: No space left on device\n")


def test_unreadable_and_unwritable(module: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.mlir"
    assert cleave_opt(missing).stderr == f"{missing}: error: cannot read: No such file or directory\n"
    assert cleave_opt(tmp_path).stderr == f"{tmp_path}: error: cannot read: Is a directory\n"
    nowhere = tmp_path / "no" / "where.mlir"
    result = cleave_opt(module, "-o", nowhere)
    assert (result.returncode, result.stderr) == (1, f"{nowhere}: error: cannot write: No such file or directory\n")
    assert "Is a directory" in cleave_opt(module, "-o", tmp_path).stderr


def test_bytecode_is_read(tmp_path: Path) -> None:
    from cleave import bindings
    from cleave.bindings import ir

    path = tmp_path / "in.mlirbc"
    with path.open("wb") as file:
        ir.Module.parse(MODULE, bindings.context()).operation.write_bytecode(file)
    assert cleave_opt(path).stdout == cleave_opt(stdin=MODULE).stdout


# --- ends ------------------------------------------------------------------------------------------------------------


def test_closed_pipe_is_quiet(tmp_path: Path) -> None:
    module = tmp_path / "long.mlir"
    module.write_text("".join(f"func.func private @f{number}(index)\n" for number in range(20000)))
    process = subprocess.Popen(
        [*COMMAND, module], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True
    )
    assert process.stdout
    assert process.stderr
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 128 + signal.SIGPIPE


def wait_until_idle(pid: int) -> None:
    """Until a process has used no processor for half a second: it has started, and waits for something."""
    times: list[str] = []
    while len(times) < 6 or len(set(times[-6:])) > 1:
        times.append(" ".join(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("stage", "number", "code"),
    [
        ("reading", signal.SIGINT, 130),
        ("compiling", signal.SIGINT, 130),
        ("compiling", signal.SIGTERM, 143),
    ],
)
def test_interrupt_is_quiet_and_ends_the_child(stage: str, number: signal.Signals, code: int, tmp_path: Path) -> None:
    code_text = (
        "import sys, time; from cleave.passes import steps;"
        "steps.resolve = lambda *a, **k: time.sleep(60);"
        "from cleave.tools.cleave_opt import main; sys.exit(main())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code_text, "-o", tmp_path / "out.mlir", "--canonicalize"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
    )  # fmt: skip
    assert process.stdin
    assert process.stderr
    if stage == "compiling":
        process.stdin.write(MODULE)
        process.stdin.close()
    wait_until_idle(process.pid)
    process.send_signal(number)
    assert process.wait(timeout=10) == code
    assert process.stderr.read() == ""
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert not list(tmp_path.iterdir())


# The table of inputs and passes that abort the process, of what is known about the bindings.
ABORTS = {
    "a store to memref of i1": (
        "func.func @f(%m: memref<4xi1>, %v: i1, %i: index) {\n memref.store %v, %m[%i] : memref<4xi1>\n return\n}",
        ["--finalize-memref-to-llvm"],
    ),
    "nesting deeper than the stack": ("module attributes {a.b = " + "[" * 200000 + "]" * 200000 + "} {}", []),
    "a dialect of a namespace that exists": ("irdl.dialect @arith {}", []),
    "a dialect of our namespace": ("irdl.dialect @cleave {}", []),
}


@pytest.mark.parametrize("name", ABORTS)
def test_nothing_aborts(name: str) -> None:
    text, flags = ABORTS[name]
    result = cleave_opt(*flags, stdin=text)
    assert result.returncode in (0, 1)
    assert "Traceback" not in result.stderr
    assert (result.returncode == 1) == (": error: " in result.stderr)


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL])
def test_a_death_of_the_child_is_an_error(number: signal.Signals, module: Path) -> None:
    code = (
        "import os, sys; from cleave.passes import dce;"
        f"dce.dce = lambda op: os.write(2, b'Assertion `x` failed') and os.kill(os.getpid(), {int(number)});"
        "from cleave.tools.cleave_opt import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, str(module), "--cleave-dce"]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert result.returncode == 1
    assert f"{module}:1:1: error: pass cleave-dce crashed (signal {int(number)}, {number.name})" in result.stderr
    assert "note: Assertion `x` failed" in result.stderr


@pytest.mark.parametrize("traceback", ["", "1"])
def test_an_unforeseen_exception_is_an_internal_error(traceback: str, module: Path) -> None:
    code = (
        "import sys; from cleave.passes import dce\n"
        "def dce_(op): raise KeyError('oops')\n"
        "dce.dce = dce_\n"
        "from cleave.tools.cleave_opt import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, str(module), "--cleave-dce"]
    result = subprocess.run(command, capture_output=True, text=True, env={**ENVIRONMENT, "CLEAVE_TRACEBACK": traceback})
    assert result.returncode == 1
    assert not result.stdout
    assert f"{module}:1:1: error: internal error in pass cleave-dce: KeyError: 'oops'" in result.stderr
    assert "please report it" in result.stderr
    assert ("Traceback" in result.stderr) == bool(traceback)
    assert ("CLEAVE_TRACEBACK=1" in result.stderr) != bool(traceback)


def test_a_pass_that_breaks_the_module_is_found(module: Path) -> None:
    code = (
        "import sys; from cleave.passes import dce\n"
        "dce.dce = lambda op: op.regions[0].blocks[0].operations[0].regions[0].blocks[0].operations[0].erase()\n"
        "from cleave.tools.cleave_opt import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, str(module), "--cleave-dce"]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert result.returncode == 1
    assert f"{module}:1:1: error: " in result.stderr
    assert not result.stdout


def test_what_is_no_text_is_not_written_to_a_terminal() -> None:
    reader, terminal = os.openpty()
    command = [sys.executable, "-m", "cleave.tools.cleave_opt", "--emit=cubin"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.PIPE, text=True)
    os.close(terminal)
    os.close(reader)
    assert result.returncode == 1 and "--emit=cubin writes no text" in result.stderr
