"""A process that dies, hangs or loses the GPU at one of several attempts is followed by one that does the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cleave.tuner.attempts import supervised

WORK = """
import os, signal, sys, time
from cleave.runtime.cuda_driver import GpuLost
from cleave.tuner.attempts import attempt, lost, restarted, started

def ordinary(): pass
def dies(): os.kill(os.getpid(), signal.SIGSEGV)
def hangs(): time.sleep(60)
def ends(): os._exit(3)
def loses(): raise GpuLost("cannot launch: illegal address (CUDA error 700)")
def asserts(): raise RuntimeError("CUDA error: device-side assert triggered\\nmore")
def fails(): raise RuntimeError("of its own")

assert started() <= time.monotonic()
print("again" if restarted() else "first", flush=True)
for name in sys.argv[1:]:
    if why := lost(name):
        print(name, "lost:", why, flush=True)
        continue
    try:
        with attempt(name, 0.5):
            globals()[name]()
    except GpuLost:
        sys.exit(1)
    print(name, "done", flush=True)
"""


def _run(folder: Path, *names: str, check: int = 0) -> list[str]:
    (folder / "work.py").write_text(WORK)
    script = f"import sys\nfrom cleave.tuner.attempts import supervised\nsys.exit(supervised('work', {list(names)}))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parents[2])])}
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == check, ended.stderr
    return ended.stdout.splitlines()


def test_without_an_end_of_that_kind_there_is_one_process(tmp_path: Path) -> None:
    assert _run(tmp_path, "ordinary") == ["first", "ordinary done"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("dies", "the process that ran it died (SIGSEGV)"),
        ("hangs", "the process that ran it did not finish in time"),
        ("ends", "the process that ran it ended with exit status 3"),
        ("loses", "cannot launch: illegal address (CUDA error 700)"),
        ("asserts", "CUDA error: device-side assert triggered"),
    ],
)
def test_what_is_lost_is_left_out_by_the_next(tmp_path: Path, name: str, why: str) -> None:
    assert _run(tmp_path, name, "ordinary") == ["first", "again", f"{name} lost: {why}", "ordinary done"]


def test_several_are_lost_one_after_the_other(tmp_path: Path) -> None:
    lines = _run(tmp_path, "dies", "loses", "ordinary")
    assert [line.split()[0] for line in lines] == ["first", "again", "dies", "again", "dies", "loses", "ordinary"]


def test_other_errors_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "unused").touch()
    assert _run(tmp_path, "fails", "ordinary", check=1)[0] == "first"


def test_an_interrupt_ends_both(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK.replace("attempt(name, 0.5)", "attempt(name, 60)"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}
    script = "from cleave.tuner.attempts import supervised\nsupervised('work', ['hangs'])"
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout and process.stdout.readline() == "first\n"
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(10) != 0
    assert "hangs done" not in process.stdout.read()


def test_the_status_of_an_unknown_module() -> None:
    assert supervised("cleave.no_such_module", []) == 1
