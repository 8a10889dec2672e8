"""The file of tuning results: what is kept, who may use it at once, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cleave.errors import CleaveError
from cleave.tuner.store import Measured, Store, key_of

WRITER = """
import sys
from cleave.tuner.store import Measured, Store
store = Store(sys.argv[1])
for number in range(int(sys.argv[3])):
    store.record("k", f"{sys.argv[2]}.{number}", Measured(float(number)))
    store.keep("k", sys.argv[2], 1000.0 - number, str(1000 - number).encode())
    print(number, flush=True)
"""


def _writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_what_was_recorded_comes_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "tuned.sqlite")
    store.record("k", "a", Measured(3.0))
    store.record("k", "b", Measured(None, "spills"))
    store.record("other", "a", Measured(9.0))
    store.record("k", "a", Measured(2.0))
    assert Store(store.path).measured("k") == {"a": Measured(2.0), "b": Measured(None, "spills")}
    assert store.measured("none") == {}


def test_the_fastest_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "tuned.sqlite")
    assert store.best("k") is None
    for microseconds, package in ((3.0, b"three"), (5.0, b"five"), (2.0, b"two")):
        store.keep("k", "matmul", microseconds, package)
    assert store.best("k") == b"two" and store.rows() == [("matmul", 2.0)]


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tuned.sqlite"
    writers = [_writer(path, name, 15) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    for writer in writers:
        assert writer.stdout
        writer.stdout.close()
    store = Store(path)
    assert len(store.measured("k")) == 45 and store.best("k") == b"986"


def test_a_kill_leaves_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "tuned.sqlite"
    writer = _writer(path, "a", 100_000)
    assert writer.stdout
    while int(writer.stdout.readline()) < 20:
        pass
    time.sleep(0.01)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    said = [int(line) for line in writer.stdout.read().split() if line.isdigit()]
    writer.stdout.close()
    store = Store(path)
    last = max([20, *said])
    assert {f"a.{number}" for number in range(last + 1)} <= store.measured("k").keys()
    store.record("k", "b", Measured(1.0))
    assert store.measured("k")["b"] == Measured(1.0)


def test_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, and long enough to be looked at " * 50)
    with pytest.raises(CleaveError, match="is no file of tuning results"):
        Store(tmp_path / "text")


def test_a_key_changes_with_everything(tmp_path: Path) -> None:
    base = ("source", {"m": 1}, {"split": True}, "H200", {"triton": "3.6"})
    changed = [
        ("other", *base[1:]),
        (base[0], {"m": 2}, *base[2:]),
        (*base[:2], {"split": False}, *base[3:]),
        (*base[:3], "H100", base[4]),
        (*base[:4], {"triton": "3.7"}),
    ]
    assert len({key_of(*each) for each in (base, *changed)}) == 6


def test_times_taken_in_another_way_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ("source", {"m": 1}, {"split": True}, "H200", {"triton": "3.6"})
    store = Store(tmp_path / "tuned.sqlite")
    store.record(key_of(*said), "a", Measured(3.0))
    monkeypatch.setattr("cleave.tuner.store.TIMES", "between events")
    assert store.measured(key_of(*said)) == {}
