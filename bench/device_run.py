"""Run the prepared cases on the GPU: three times in shuffled orders, outputs poisoned, against float64; then time."""

from __future__ import annotations

import json
import math
import os
import platform
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import device_reference
import numpy as np
import torch
from gpu_runs import TORCH, Json, errors, launch, poisoned, program_of, rows_of, stream, unpoisoned

from cleave.errors import CleaveError
from cleave.runtime.cuda import Program
from cleave.tuner.timing import Timer

PASSES = 3
RESTARTS = 6
TIMING_SECONDS = 60


def run_cases(cases: Path, out: Path, seconds: float) -> int:
    """Check in a child process (again without the program at which it died), then time in another; print tables.

    ``seconds`` is for the checks altogether; passes that would begin after two thirds of it are left out.
    """
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    script = [sys.executable, str(Path(__file__)), str(cases), str(out)]
    crashed: list[str] = []
    for _ in range(RESTARTS):
        (out / "checks.jsonl").unlink(missing_ok=True)
        (out / "now").unlink(missing_ok=True)
        left = deadline - time.monotonic()
        status = _child([*script, "check", f"{left * 2 / 3:.0f}", *crashed], left)
        if status == 0:
            break
        key = (out / "now").read_text() if (out / "now").exists() else ""
        print(f"CRASH {key or 'before the first case'}: exit status {status}", flush=True)
        if status == 124 or not key:
            break
        crashed.append(key.split(" ")[0])
    timed = _child([*script, "time", f"{TIMING_SECONDS}", *crashed], 2 * TIMING_SECONDS)
    return _report(out, crashed) or timed


def _child(command: list[str], seconds: float) -> int:
    try:
        path = str(Path(__file__).parents[1])
        return subprocess.run(command, timeout=seconds, check=False, env={**os.environ, "PYTHONPATH": path}).returncode
    except subprocess.TimeoutExpired:
        return 124


def _report(out: Path, crashed: Sequence[str]) -> int:
    """The table of subjects, the wrong cases one by one, and the times; JSON for all of it."""
    checks = rows_of(out / "checks.jsonl")
    times = rows_of(out / "times.jsonl")
    environment = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "python": platform.python_version(),
        "driver": _driver_version(), "command": " ".join(sys.argv),
    }  # fmt: skip
    result = {"environment": environment, "crashed": list(crashed), "checks": checks, "times": times}
    (out / "results.json").write_text(json.dumps(result))
    lines = [json.dumps(environment), ""]
    subjects: dict[str, list[Json]] = {}
    for check in checks:
        subjects.setdefault(check["subject"], []).append(check)
    lines.append(f"{'subject':34} {'cases':>5} {'wrong':>5} {'largest error / tolerance':>26}")
    for name, entries in subjects.items():
        wrong = sum(not entry["ok"] for entry in entries)
        worst = max((entry["error"] / entry["tolerance"] for entry in entries if entry["error"] is not None), default=0)
        lines.append(f"{name:34} {len(entries):5} {wrong:5} {worst:26.3f}")
    bad = [entry for entry in checks if not entry["ok"]]
    lines += ["", *(f"WRONG {json.dumps(entry)}" for entry in bad), *(f"CRASHED {key}" for key in crashed), ""]
    lines += _time_lines(times)
    passes = min((check["runs"] for check in checks), default=0)
    lines.append(f"{len(checks)} cases, each run {passes} times, {len(bad)} wrong, {len(crashed)} crashed")
    (out / "table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if bad or crashed else 0


def _time_lines(times: Sequence[Json]) -> list[str]:
    """For each graph and sizes the schedule that was chosen (for the first hint) and the fastest that was tried."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for entry in times:
        sizes = " ".join(f"{name}={n}" for name, n in entry["sizes"].items())
        groups.setdefault((entry["key"].rpartition(".")[0], sizes), []).append(entry)
    lines = [f"{'microseconds, L2 cold':34} {'sizes':36} {'chosen':>9} {'fastest':>9} {'torch':>9}"]
    for (subject, sizes), entries in groups.items():
        chosen = next((f"{entry['us']:.1f}" for entry in entries if entry["key"].endswith(".1")), "-")
        best = min(entry["us"] for entry in entries)
        lines.append(f"{subject:34} {sizes:36} {chosen:>9} {best:9.1f} {entries[0]['torch_us']:9.1f}")
    return lines


def _driver_version() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


# --- data ------------------------------------------------------------------------------------------------------------


class Data:
    """Inputs on the GPU and the expected outputs in float64."""

    def __init__(self, folder: Path, entry: Json) -> None:
        self.entry = entry
        if entry["carried"]:
            arrays = np.load(folder / entry["carried"])
            self.inputs = [_tensor(arrays[f"in{i}"], dtype) for i, dtype in enumerate(entry["dtypes"])]
            self.expected = [torch.from_numpy(arrays[f"out{i}"]).cuda() for i in range(entry["outputs"])]
        else:
            self.inputs = self._random()
        if entry["reference"]:
            computed = self._reference()
            if entry["carried"]:  # Two independent references: they must agree.
                _compare_references(entry, self.expected, computed)
            else:
                self.expected = computed

    def _random(self) -> list[torch.Tensor]:
        generator = torch.Generator("cuda").manual_seed(self.entry["seed"])
        found: list[torch.Tensor] = []
        subject = self.entry["subject"]
        for index, (shape, dtype) in enumerate(zip(self.entry["shapes"], self.entry["dtypes"], strict=True)):
            values = torch.randn(shape, generator=generator, device="cuda")
            if subject.startswith("gated_mlp") and index:
                values /= math.sqrt(shape[0])
            if subject.startswith("attention") and index == 3:
                values[torch.rand(shape, generator=generator, device="cuda") < 0.2] = -math.inf
                values[shape[0] // 2 + 1] = -math.inf
            found.append(values.to(TORCH[dtype]))
        return found

    def _reference(self) -> list[torch.Tensor]:
        name = self.entry["reference"]
        wide = [x.double() for x in self.inputs]
        outputs = device_reference.REFERENCES[name](*wide)[: self.entry["outputs"]]
        return list(device_reference.masked_rows(name, outputs, wide))


def _tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    tensor = torch.from_numpy(array).cuda()
    return tensor.view(TORCH[dtype]) if dtype in ("f16", "bf16") else tensor


def _compare_references(entry: Json, carried: list[torch.Tensor], computed: list[torch.Tensor]) -> None:
    for one, other in zip(carried, computed, strict=True):
        if one.shape != other.shape or not torch.allclose(one, other, rtol=1e-6, atol=1e-6, equal_nan=True):
            print(f"REFERENCES DISAGREE {entry['subject']} {entry['sizes']}", flush=True)


# --- checks ----------------------------------------------------------------------------------------------------------


class Check:
    """One program on one set of inputs, over the passes."""

    def __init__(self, program: Json, compiled: Program, data: Data) -> None:
        self.program, self.compiled, self.data = program, compiled, data
        self.first: list[torch.Tensor] | None = None
        self.error, self.largest, self.moves, self.refusal, self.runs = 0.0, 0.0, False, "", 0

    @property
    def label(self) -> str:
        return f"{self.program['key']} {self.data.entry['sizes']}"

    def run(self) -> None:
        self.runs += 1
        try:
            outputs = self.compiled(self.data.inputs, poisoned, stream(), self.data.entry["given"])
            torch.cuda.synchronize()
        except CleaveError as error:
            self.refusal = str(error)
            torch.cuda.synchronize()  # ends the process where the GPU is lost
            return
        for actual, expected in zip(outputs, self.data.expected, strict=True):
            error, largest = errors(actual, expected)
            self.error, self.largest = max(self.error, error), max(self.largest, largest)
        if self.first is None:
            self.first = outputs
        elif not all(_same_bits(a, b) for a, b in zip(self.first, outputs, strict=True)):
            self.moves = True

    def result(self) -> Json:
        entry = self.data.entry
        tolerance = entry["tolerance"]
        right = self.error <= tolerance and self.largest <= 4 * tolerance and not self.moves and not self.refusal
        return {
            "subject": entry["subject"], "key": self.program["key"], "sizes": entry["sizes"], "ok": right,
            "error": self.error, "largest": self.largest, "tolerance": tolerance, "moves": self.moves,
            "runs": self.runs, "refusal": self.refusal, **({} if right else {"tilings": self.program["tilings"]}),
        }  # fmt: skip


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def _all_checks(folder: Path, crashed: Sequence[str], wanted: Callable[[Json], bool]) -> list[Check]:
    cases = json.loads((folder / "cases.json").read_text())
    data: dict[str, list[Data]] = {}
    for entry in filter(wanted, cases["data"]):
        data.setdefault(entry["subject"], []).append(Data(folder, entry))
    programs = [program for program in cases["programs"] if program["key"] not in crashed]
    archive = zipfile.ZipFile(folder / "cubins.zip")
    return [
        Check(program, compiled, entry)
        for program in programs
        if program["subject"] in data
        for compiled in [program_of(archive, program)]
        for entry in data[program["subject"]]
    ]


def check(folder: Path, out: Path, seconds: float, crashed: Sequence[str]) -> None:
    started = time.monotonic()
    checks = _all_checks(folder, crashed, lambda entry: True)
    print(f"{len(checks)} cases loaded in {time.monotonic() - started:.0f} s", flush=True)
    order = random.Random(0)
    for number in range(PASSES):
        if number and time.monotonic() - started > seconds:
            break
        order.shuffle(checks)
        for entry in checks:
            (out / "now").write_text(entry.label)
            entry.run()
        print(f"pass {number + 1} done after {time.monotonic() - started:.0f} s", flush=True)
    checks.sort(key=lambda entry: entry.label)
    (out / "checks.jsonl").write_text("".join(json.dumps(entry.result()) + "\n" for entry in checks))


# --- times -----------------------------------------------------------------------------------------------------------


def measure(folder: Path, out: Path, seconds: float, crashed: Sequence[str]) -> None:
    """For information: median microseconds with a cold L2 cache, beside what PyTorch takes for the same."""
    started = time.monotonic()
    timer = Timer()
    torch_times: dict[int, float] = {}
    with (out / "times.jsonl").open("w") as file:
        for entry in _all_checks(folder, crashed, lambda entry: entry["timed"]):
            if time.monotonic() - started > seconds:
                break
            data = entry.data
            try:
                call = entry.compiled.prepare(data.inputs, unpoisoned, data.entry["given"])
                us = timer.microseconds(partial(launch, call))
            except CleaveError as error:
                print(f"{entry.label} cannot be timed: {error}", flush=True)
                continue
            if id(data) not in torch_times:
                baseline = device_reference.BASELINES[data.entry["reference"]]
                torch_times[id(data)] = timer.microseconds(partial(baseline, *data.inputs))
            row = {
                "key": entry.program["key"], "sizes": data.entry["sizes"], "us": us, "torch_us": torch_times[id(data)],
                "tilings": entry.program["tilings"], "kernels": entry.program["kernels"],
            }  # fmt: skip
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    step = {"check": check, "time": measure}[sys.argv[3]]
    step(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[4]), sys.argv[5:])
