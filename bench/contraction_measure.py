"""On the GPU: the schedules of ``contractions.py`` checked against PyTorch in float64, then timed with a cold cache."""

from __future__ import annotations

import json
import math
import statistics
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from children import Json
from cost_measure import REFERENCES
from gpu_runs import errors, launch, normal_inputs, poisoned, program_of, stream, unpoisoned

from cleave.errors import CleaveError
from cleave.runtime.cuda import Call
from cleave.tuner.timing import Timer

Tensor = torch.Tensor
TOLERANCE = 2e-3
ROUNDS = 2
SCALE = 0.125
USUAL: dict[str, Callable[..., Tensor]] = {
    **REFERENCES, "attention": partial(torch.nn.functional.scaled_dot_product_attention, scale=SCALE),
}  # fmt: skip


def run(folder: Path, out: Path) -> int:
    """Write ``rows.jsonl`` and print a table for each subject, fastest first."""
    data = json.loads((folder / "cases.json").read_text())
    archive = zipfile.ZipFile(folder / "cubins.zip")
    out.mkdir(parents=True, exist_ok=True)
    timer = Timer()
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    for name, subject in data["subjects"].items():
        cases = [case for case in data["cases"] if case["case"]["subject"] == name]
        if cases:
            rows = _measured(subject, cases, archive, timer)
            with (out / "rows.jsonl").open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            _print(name, rows)
            torch.cuda.empty_cache()
    return 0


def _measured(subject: Json, cases: Sequence[Json], archive: zipfile.ZipFile, timer: Timer) -> list[Json]:
    inputs = normal_inputs(subject["shapes"])
    expected = _exact(subject["reference"], inputs)
    rows = [_checked(case, archive, inputs, expected) for case in cases]
    calls = {index: partial(launch, call) for index, (_, call) in enumerate(rows) if call}
    times: dict[int, list[float]] = {-1: [], **{index: [] for index in calls}}
    for _ in range(ROUNDS):
        for index, call in {-1: partial(USUAL[subject["reference"]], *inputs), **calls}.items():
            times[index].append(timer.microseconds(call))
    found: list[Json] = []
    for index, row in enumerate(({"case": {"subject": "torch"}}, *(row for row, _ in rows))):
        us = statistics.median(times[index - 1]) if times.get(index - 1) else None
        found.append({**row, "us": us, "tflops": subject["flops"] / us / 1e6 if us else 0.0})
    return found


def _checked(case: Json, archive: zipfile.ZipFile, inputs: list[Tensor], expected: Tensor) -> tuple[Json, Call | None]:
    """The case with its error, and the call to time if it is right."""
    keys = ("registers", "spills", "shared")
    row: Json = {"case": case["case"], **{key: [kernel[key] for kernel in case["kernels"]] for key in keys}}
    try:
        program = program_of(archive, case)
        outputs = program(inputs, poisoned, stream(), {})
        torch.cuda.synchronize()
        row["error"] = errors(outputs[0], expected)[0]
        return row, program.prepare(inputs, unpoisoned, {}) if row["error"] <= TOLERANCE else None
    except CleaveError as error:
        return {**row, "refusal": str(error)}, None


def _exact(name: str, inputs: list[Tensor]) -> Tensor:
    if name != "attention":
        return REFERENCES[name](*(x.double() for x in inputs))
    heads = zip(*(x.double() for x in inputs), strict=True)
    return torch.stack([torch.softmax(q @ k.T * SCALE, -1) @ v for q, k, v in heads])


def _print(name: str, rows: Sequence[Json]) -> None:
    print(f"\n{name}")
    for row in sorted(rows, key=lambda row: row["us"] or math.inf):
        case = row["case"]
        head = f"{row['us'] or 0:8.1f} us {row['tflops']:6.0f}  "
        if case["subject"] == "torch":
            print(f"{head} torch")
            continue
        tiles = " ".join(f"{n}={e}" for n, e in case["tiles"].items()) or "scheduled"
        how = f"w{case['warps']} s{case['stages']} g{case['group']} {'desc' if case['descriptors'] else 'ptr'}"
        numbers = f"r{row['registers']} sp{row['spills']} err {row.get('error', math.nan):.1e}"
        print(f"{head} {tiles} {how} {numbers} {row.get('refusal', '')[:90]}", flush=True)
