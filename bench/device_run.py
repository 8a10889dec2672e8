"""Run the prepared cases on the GPU: three times in shuffled orders, outputs poisoned, against float64; then time."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import random
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import device_reference
import numpy as np
import torch
from children import Json, append_row, rows_of, run_in_children
from device_report import dead, label_of, report
from gpu_runs import TORCH, errors, launch, poisoned, program_of, stream, unpoisoned

from cleave.errors import CleaveError
from cleave.runtime.cuda import Program
from cleave.tools.exit_code import exit_code
from cleave.tuner.timing import Timer

PASSES = 3
PATIENCE = 10.0
"""Seconds that one case may take."""


def run_cases(cases: Path, out: Path, seconds: float, timing_seconds: float) -> int:
    """Check in a child process, again without the program at which it died or hung, then time in others; print tables.

    ``seconds`` are for the checks altogether; passes that would begin after two thirds of it are left out.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in ("runs.jsonl", "times.jsonl", "skipped"):
        (out / name).unlink(missing_ok=True)
    environment = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "python": platform.python_version(),
        "driver": _driver_version(), "command": " ".join(sys.argv),
    }  # fmt: skip
    run_in_children(__file__, ("check", cases, out), out, seconds, PATIENCE)
    run_in_children(__file__, ("time", cases, out), out, timing_seconds, PATIENCE)
    return report(json.loads((cases / "cases.json").read_text()), out, environment)


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


@dataclass(frozen=True)
class Check:
    """One program on one set of inputs."""

    program: Json
    compiled: Program
    data: Data

    @property
    def label(self) -> str:
        return label_of(self.program["key"], self.data.entry["sizes"])

    def run(self) -> Json:
        """Once: the errors, and a digest of the bits, of which all runs must agree."""
        row: Json = {"label": self.label, "error": 0.0, "largest": 0.0, "digest": "", "refusal": ""}
        try:
            outputs = self.compiled(self.data.inputs, poisoned, stream(), self.data.entry["given"])
            torch.cuda.synchronize()
        except CleaveError as error:
            torch.cuda.synchronize()  # ends the process where the GPU is lost
            return {**row, "refusal": str(error)}
        for actual, expected in zip(outputs, self.data.expected, strict=True):
            error, largest = errors(actual, expected)
            row |= {"error": max(row["error"], error), "largest": max(row["largest"], largest)}
        return {**row, "digest": _digest(outputs)}


def _digest(outputs: Sequence[torch.Tensor]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for output in outputs:
        found.update(output.reshape(-1).view(torch.uint8).cpu().numpy())
    return found.hexdigest()


def _all_checks(folder: Path, out: Path, wanted: Callable[[Json], bool]) -> list[Check]:
    """Those of programs at none of whose cases a process died."""
    cases, crashed = json.loads((folder / "cases.json").read_text()), dead(out)
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


def check(folder: Path, out: Path, seconds: float) -> None:
    """Each case as often as it has not been run yet."""
    started = time.monotonic()
    checks = _all_checks(folder, out, lambda entry: True)
    print(f"{len(checks)} cases loaded in {time.monotonic() - started:.0f} s", flush=True)
    done = Counter(row["label"] for row in rows_of(out / "runs.jsonl"))
    order = random.Random(0)
    for number in range(PASSES):
        if number and time.monotonic() - started > seconds * 2 / 3:
            break
        order.shuffle(checks)
        for entry in checks:
            if time.monotonic() - started > seconds:
                return
            if done[entry.label] <= number:
                (out / "now").write_text(entry.label)
                append_row(out / "runs.jsonl", entry.run())
        print(f"pass {number + 1} done after {time.monotonic() - started:.0f} s", flush=True)


# --- times -----------------------------------------------------------------------------------------------------------


def measure(folder: Path, out: Path, seconds: float) -> None:
    """For information: median microseconds with a cold L2 cache, beside what PyTorch takes for the same."""
    started = time.monotonic()
    timer = Timer()
    torch_times: dict[int, float] = {}
    done = {label_of(row["key"], row["sizes"]) for row in rows_of(out / "times.jsonl")}
    for entry in _all_checks(folder, out, lambda entry: entry["timed"]):
        if entry.label in done:
            continue
        if time.monotonic() - started > seconds:
            break
        (out / "now").write_text(entry.label)
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
        append_row(out / "times.jsonl", row)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    step = {"check": check, "time": measure}[sys.argv[1]]
    sys.exit(exit_code("device_run.py", lambda: step(Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))))
