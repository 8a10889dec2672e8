"""``bench/device_check.py`` without a GPU: what a preparation says, what becomes of runs, and what is ended."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"

CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, {bench!r})
from children import append_row, rows_of, skipped
out = Path(sys.argv[1])
done = skipped(out) | {{row["what"] for row in rows_of(out / "rows")}}
for what in sys.argv[2].split():
    if what not in done:
        (out / "now").write_text(what)
        if what == "hangs":
            time.sleep(60)
        if what == "dies":
            sys.exit(7)
        append_row(out / "rows", {{"what": what}})
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.mark.usefixtures("bench")
def test_a_row_that_was_half_written_is_left_out(tmp_path: Path) -> None:
    import children

    for text in ('{"what": 1}\n{"what": {"a": 2}', '{"what": 1}\n', ""):
        path = tmp_path / str(len(text))
        path.write_text(text)
        children.append_row(path, {"what": 3})
        children.append_row(path, {"what": 4})
        assert [row["what"] for row in children.rows_of(path)] == [1, 3, 4][not text :]


def _children(tmp_path: Path, things: str, seconds: float = 30) -> tuple[bool, list[str], float]:
    import children

    script = tmp_path / "script.py"
    script.write_text(CHILD.format(bench=str(BENCH)))
    started = time.monotonic()
    ended = children.run_in_children(str(script), (tmp_path, things), tmp_path, seconds, patience=1)
    took = time.monotonic() - started
    return ended, [row["what"] for row in children.rows_of(tmp_path / "rows")], took


@pytest.mark.usefixtures("bench")
def test_what_hangs_or_dies_is_skipped_and_the_others_run_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ended, done, took = _children(tmp_path, "one hangs two dies three")
    assert ended and done == ["one", "two", "three"] and took < 20
    assert (tmp_path / "skipped").read_text().split() == ["hangs", "dies"]
    out = capfd.readouterr().out
    assert "CRASH hangs: it took more than 1 s" in out and "CRASH dies: exit status 7" in out


@pytest.mark.usefixtures("bench")
def test_a_child_that_dies_before_its_first_thing_is_not_started_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import children

    (tmp_path / "now").write_text("of another run")
    (tmp_path / "script.py").write_text("raise SystemExit(3)")
    assert not children.run_in_children(str(tmp_path / "script.py"), (), tmp_path, 30)
    assert capfd.readouterr().out == "CRASH before the first: exit status 3\n" and not children.skipped(tmp_path)


CASES: dict[str, Any] = {
    "programs": [{"key": f"product.{n}", "subject": "product", "tilings": ["64"]} for n in (1, 2)],
    "data": [{"subject": "product", "sizes": {"m": m}, "tolerance": 1e-3} for m in (1, 70)],
}


def _run(key: int, rows: int, **found: Any) -> dict[str, Any]:
    label = f"product.{key} {{'m': {rows}}}"
    return {"label": label, "error": 1e-4, "largest": 2e-4, "digest": "a", "refusal": "", **found}


def _report(out: Path, runs: list[dict[str, Any]]) -> tuple[int, dict[str, Any], str]:
    import device_report

    (out / "runs.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    status = device_report.report(CASES, out, {})
    return status, json.loads((out / "results.json").read_text()), (out / "table.txt").read_text().splitlines()[-1]


EVERY = [_run(key, rows) for key in (1, 2) for rows in (1, 70)] * 3


@pytest.mark.usefixtures("bench")
def test_right_are_cases_of_which_all_runs_are_and_agree(tmp_path: Path) -> None:
    status, found, last = _report(tmp_path, EVERY)
    assert status == 0 and last == "4 cases, each run 3 times, 0 wrong, 0 programs crashed, 0 not run"
    for wrong in ({"error": 2e-3}, {"largest": math.inf}, {"digest": "b"}, {"refusal": "a tensor is missing"}):
        status, found, last = _report(tmp_path, [*EVERY, _run(2, 70, **wrong)])
        assert status == 1 and " 1 wrong" in last
        assert [check["key"] for check in found["checks"] if not check["ok"]] == ["product.2"]


@pytest.mark.usefixtures("bench")
def test_what_was_not_run_is_no_success(tmp_path: Path) -> None:
    assert _report(tmp_path, [])[0] == 1
    status, _, last = _report(tmp_path, EVERY[:3])
    assert status == 1 and last == "3 cases, each run 1 times, 0 wrong, 0 programs crashed, 1 not run"
    (tmp_path / "skipped").write_text("product.1 {'m': 70}\n")
    status, found, last = _report(tmp_path, [run for run in EVERY if run != EVERY[1]])
    assert status == 1 and last == "3 cases, each run 3 times, 0 wrong, 1 programs crashed, 0 not run"
    assert found["crashed"] == ["product.1"]


def _prepare(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "device_check.py"), "prepare", str(out / "cases"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_programs_are_prepared_with_their_inputs_alone(tmp_path: Path) -> None:
    found = _prepare(tmp_path, "--only", "matmul_aligned-f16", "--schedules", "1", "--warp-specialised")
    assert found.returncode == 0 and not found.stderr, found.stderr
    assert "split_matmul_aligned-f16: 0 schedules, 'split_matmul__k0' is lowered to TTIR: " in found.stdout
    cases = json.loads((tmp_path / "cases" / "cases.json").read_text())
    assert {program["subject"] for program in cases["programs"]} == {"matmul_aligned-f16"}
    assert {entry["subject"] for entry in cases["data"]} == {"matmul_aligned-f16"} and len(cases["data"]) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "random20", "--warp-specialised"], "PROBLEM no program was prepared"),
        (["--only", "softmax", "--seconds", "0"], "PROBLEM softmax: not begun, no time is left"),
    ],
)
def test_a_preparation_of_nothing_fails_with_a_message(tmp_path: Path, options: list[str], message: str) -> None:
    found = _prepare(tmp_path, *options)
    assert found.returncode == 1 and message in found.stderr
    assert "there is nothing to run" in found.stderr
