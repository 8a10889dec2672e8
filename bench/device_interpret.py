"""Run prepared cases with the TTIR interpreter, on the CPU: a case that is right here and wrong there is Triton's."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import LaunchPlan

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def interpret_cases(folder: Path, only: str) -> int:
    """Every program and set of inputs with a carried reference whose key contains ``only``; prints the errors."""
    cases = json.loads((folder / "cases.json").read_text())
    wrong = 0
    for program in cases["programs"]:
        if only not in program["key"]:
            continue
        for entry in cases["data"]:
            if entry["subject"] == program["subject"] and entry["carried"]:
                wrong += _interpret(folder, program, entry)
    return 1 if wrong else 0


def _interpret(folder: Path, program: dict[str, Any], entry: dict[str, Any]) -> bool:
    plan = LaunchPlan.from_json(program["plan"])
    names = [kernel["name"] for kernel in program["kernels"]]
    with zipfile.ZipFile(folder.parent / "ttir.zip") as texts:
        kernels = {name: texts.read(f"{program['key']}.{name}").decode() for name in names}
    arrays = np.load(folder / entry["carried"])
    inputs = [arrays[f"in{i}"].view(DTYPES.get(dtype, np.float32)) for i, dtype in enumerate(entry["dtypes"])]
    label = f"{program['key']} {entry['sizes']}"
    try:
        outputs = execute(plan, kernels, inputs, entry["given"])
    except CleaveError as error:
        print(f"REFUSED {label}: {error}")
        return True
    found = max(_error(out, arrays[f"out{i}"]) for i, out in enumerate(outputs))
    right = found <= entry["tolerance"]
    print(f"{'ok' if right else 'WRONG'} {label}: {found:.2e}", flush=True)
    return not right


def _error(actual: np.ndarray, expected: np.ndarray) -> float:
    """The relative error in the 2-norm; infinite where NaN or infinities differ."""
    actual = actual.astype(np.float64)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    difference = np.where(same, 0.0, actual - expected)
    if not np.isfinite(difference).all():
        return np.inf
    finite = np.where(np.isfinite(expected), expected, 0.0)
    return float(np.linalg.norm(difference) / max(np.linalg.norm(finite), 1e-30))
