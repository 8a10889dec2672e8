"""On the GPU: every schedule checked against PyTorch in float64, then timed with a cold L2 cache."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from children import Json, append_row, rows_of, run_in_children, skipped
from gpu_runs import errors, launch, normal_inputs, poisoned, program_of, stream, unpoisoned

from cleave.errors import CleaveError
from cleave.tools.exit_code import exit_code
from cleave.tuner.timing import Timer

Tensor = torch.Tensor

TOLERANCE = 2e-3
"""Of the error in the 2-norm relative to float64: f16 results of values rounded to f16 once on the way."""


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    logits = torch.einsum("agmd,and->agmn", q, k) * 0.125
    return torch.einsum("agmn,ane->agme", torch.softmax(logits, -1), v)


def _split_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def _swiglu(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.silu(x @ w) * (x @ v)


def _rms_factor(x: Tensor) -> Tensor:
    return torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def _rmsnorm_swiglu(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    a = (x @ w) * _rms_factor(x)
    return torch.nn.functional.silu(a) * ((x @ v) * _rms_factor(x))


REFERENCES: dict[str, Callable[..., Tensor]] = {
    "matmul": torch.matmul,
    "matmul_matmul": lambda q, k, v: (q @ k.transpose(-1, -2)) @ v,
    "matmul_rowsum": lambda x, w: (x @ w).sum(-1),
    "swiglu": _swiglu,
    "rmsnorm_matmul": lambda x, w: (x * _rms_factor(x)) @ w,
    "attention": _attention,
    "rmsnorm_swiglu": _rmsnorm_swiglu,
    "log_sum_exp": lambda x, w: torch.logsumexp(x @ w, -1),
    "split_attention": _split_attention,
}  # fmt: skip


def run_cases(cases: Path, out: Path, seconds: float) -> int:
    """Write ``rows.jsonl``: in child processes, again without the pair at which one died or hung."""
    out.mkdir(parents=True, exist_ok=True)
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    run_in_children(__file__, (cases, out), out, seconds)
    rows = rows_of(out / "rows.jsonl")
    wrong = [row for row in rows if not row["ok"]]
    for row in wrong:
        print(f"WRONG {row['key']} rows {row['rows']}: error {row['error']:.2e} {row['refusal']} {row['tilings']}")
    print(f"{len(rows)} pairs, {len(wrong)} wrong")
    return 0


def _child(cases: Path, out: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    programs = json.loads((cases / "cases.json").read_text())["programs"]
    archive = zipfile.ZipFile(cases / "cubins.zip")
    done = {f"{row['key']} {row['rows']}" for row in rows_of(out / "rows.jsonl")} | skipped(out)
    timer = Timer()
    groups: dict[tuple[str, int], list[tuple[Json, Json]]] = {}
    for program in programs:
        for pair in program["pairs"]:
            groups.setdefault((program["subgraph"], pair["rows"]), []).append((program, pair))
    for (subgraph, rows), entries in groups.items():
        if time.monotonic() > deadline:
            print(f"no time for {subgraph} {rows}", flush=True)
            continue
        left = [entry for entry in entries if f"{entry[0]['key']} {rows}" not in done]
        if left:
            _measure(left, archive, out, timer)


def _measure(entries: list[tuple[Json, Json]], archive: zipfile.ZipFile, out: Path, timer: Timer) -> None:
    """All schedules of a subgraph at one size: the same inputs and the same reference."""
    inputs = normal_inputs(entries[0][1]["shapes"])
    expected = REFERENCES[entries[0][0]["reference"]](*(x.double() for x in inputs))
    for program, pair in entries:
        (out / "now").write_text(f"{program['key']} {pair['rows']}")
        row = {
            "key": program["key"], "subgraph": program["subgraph"], "rows": pair["rows"], "sizes": pair["sizes"],
            "tilings": program["tilings"],
            "kernels": [
                {name: kernel[name] for name in ("num_warps", "registers", "shared", "spills", "wgmma", "seconds")}
                for kernel in program["kernels"]
            ],
            **_checked_and_timed(program, pair, archive, inputs, expected, timer),
        }  # fmt: skip
        append_row(out / "rows.jsonl", row)
    torch.cuda.empty_cache()


def _checked_and_timed(
    program: Json, pair: Json, archive: zipfile.ZipFile, inputs: list[Tensor], expected: Tensor, timer: Timer
) -> Json:
    found: Json = {"ok": False, "error": math.inf, "us": None, "refusal": ""}
    try:
        compiled = program_of(archive, program)
        outputs = compiled(inputs, poisoned, stream(), pair["given"])
        torch.cuda.synchronize()
        found["error"] = errors(outputs[0], expected)[0]
        found["ok"] = found["error"] <= TOLERANCE
        call = compiled.prepare(inputs, unpoisoned, pair["given"])
        found["us"] = timer.microseconds(partial(launch, call))
    except CleaveError as error:
        found["refusal"] = str(error)
    return found


if __name__ == "__main__":
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    sys.exit(exit_code("cost_measure.py", lambda: _child(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))))
