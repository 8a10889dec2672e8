"""On the GPU: compile, check against PyTorch in float64, and time in CUDA graphs with a cold L2 cache."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from children import Json, append_row, rows_of, run_in_children, skipped
from cost_measure import REFERENCES, TOLERANCE
from gpu_runs import errors, launch, normal_inputs, poisoned, stream, unpoisoned
from torch.nn import functional

from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled as Binary
from cleave.lowering.compile_ttir import Options, Request, compile_many
from cleave.lowering.targets import Target
from cleave.lowering.workers import Workers
from cleave.runtime.cuda import Kernel, Program
from cleave.runtime.launch_plan import LaunchPlan
from cleave.tools.exit_code import exit_code
from cleave.tuner.timing import Timer

Tensor = torch.Tensor

FASTEST = 3
"""Of a program's numbers of parts all are timed for the first so many programs of a workload, else the first."""


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum(
        "agmn,ane->agme", torch.softmax(torch.einsum("agmd,and->agmn", q, k) * q.shape[-1] ** -0.5, -1), v
    )


def _latent(q: Tensor, c: Tensor, qp: Tensor, kp: Tensor) -> Tensor:
    logits = (q @ c.transpose(-1, -2) + qp @ kp.transpose(-1, -2)) * 192**-0.5
    return torch.softmax(logits, -1) @ c


def _flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads, group, rows, size = q.shape
    grouped = q.reshape(1, heads * group, rows, size)
    return functional.scaled_dot_product_attention(grouped, k[None], v[None], enable_gqa=group > 1)


def _norm(x: Tensor, w: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), eps=1e-6) @ w


EXPECTED: dict[str, Callable[..., Tensor]] = {**REFERENCES, "attention": _attention, "mla": _latent}
BASELINES: dict[str, Callable[..., Tensor]] = {
    **REFERENCES, "attention": _flash, "mla": _latent, "rmsnorm_matmul": _norm,
}  # fmt: skip


def run_cases(cases: Path, out: Path, seconds: float) -> int:
    """Write ``rows.jsonl`` and ``baselines.jsonl``, in child processes that go on after a crash."""
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with zipfile.ZipFile(cases / "cases.zip") as archive:
        programs = json.loads(archive.read("cases.json"))
        texts = {kernel["path"]: archive.read(kernel["path"]).decode() for p in programs for kernel in p["kernels"]}
    binaries = _compile(programs, texts)
    compiled = out.parent / "compiled.pickle"
    compiled.write_bytes(pickle.dumps((programs, binaries)))
    print(f"{len(binaries)} kernels compiled, {time.monotonic() - started:.0f} s", flush=True)
    run_in_children(__file__, (compiled, out), out, seconds - (time.monotonic() - started))
    print(f"{time.monotonic() - started:.0f} s")
    return 0


def _compile(programs: list[Json], texts: dict[str, str]) -> dict[str, Binary | str]:
    target = Target.parse("sm_90")
    kernels = {kernel["path"]: kernel for program in programs for kernel in program["kernels"]}
    requests = {
        path: Request(texts[path], target, Options(num_warps=kernel["warps"], num_stages=kernel["stages"]))
        for path, kernel in kernels.items()
    }
    with Workers(os.cpu_count() or 1) as pool:
        outcomes = compile_many(list(requests.values()), pool)
    found: dict[str, Binary | str] = {}
    for path, outcome in zip(requests, outcomes, strict=True):
        if isinstance(outcome, CleaveError):
            print(f"REFUSED {path}: {str(outcome).splitlines()[0][:200]}")
        found[path] = str(outcome).splitlines()[0] if isinstance(outcome, CleaveError) else outcome
    return found


def _child(compiled: Path, out: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    programs, binaries = pickle.loads(compiled.read_bytes())
    rows = out / "rows.jsonl"
    done = {row["key"] for row in rows_of(rows)} | skipped(out)
    timer = Timer()
    one = torch.zeros(1, device="cuda")
    if not done:
        _add_baseline(out, "one element", 0, timer.microseconds(partial(one.add_, 1.0)))
    groups: dict[tuple[str, int], list[Json]] = {}
    for program in programs:
        groups.setdefault((program["workload"], program["rows"]), []).append(program)
    for (workload, count), group in groups.items():
        left = [program for program in group if program["key"] not in done]
        if not left or time.monotonic() > deadline:
            continue
        inputs = normal_inputs(left[0]["shapes"])
        expected = EXPECTED[left[0]["reference"]](*(x.double() for x in inputs))
        for program in left:
            (out / "now").write_text(program["key"])
            _measure(program, group.index(program) < FASTEST, binaries, inputs, expected, timer, rows)
        us = timer.microseconds(partial(BASELINES[left[0]["reference"]], *inputs))
        _add_baseline(out, workload, count, us)
        torch.cuda.empty_cache()


def _add_baseline(out: Path, workload: str, rows: int, us: float) -> None:
    append_row(out / "baselines.jsonl", {"workload": workload, "rows": rows, "torch": us})


def _measure(
    program: Json, thorough: bool, binaries: dict[str, Binary | str], inputs: list[Tensor], expected: Tensor,
    timer: Timer, rows: Path,
) -> None:  # fmt: skip
    found = [binaries[kernel["path"]] for kernel in program["kernels"]]
    described = [_described(each) for each in found if isinstance(each, Binary)]
    for given in program["given"] if thorough else program["given"][:1]:
        row = {name: program[name] for name in ("key", "workload", "rows", "tilings")}
        row |= {"given": given, "kernels": described, "ok": False, "error": None, "us": None, "refusal": ""}
        try:
            kernels = {each.name: _kernel(each) for each in found if isinstance(each, Binary)}
            if len(kernels) < len(found):
                raise CleaveError("not compiled")
            compiled = Program(LaunchPlan.from_json(program["plan"]), kernels)
            (actual,) = compiled(inputs, poisoned, stream(), given)
            torch.cuda.synchronize()
            row["error"] = errors(actual.reshape(expected.shape), expected)[0]
            row["ok"] = row["error"] <= TOLERANCE
            call = compiled.prepare(inputs, unpoisoned, given)
            row["us"] = timer.microseconds(partial(launch, call))
        except CleaveError as error:
            row["refusal"] = str(error)
        append_row(rows, row)


def _described(binary: Binary) -> Json:
    return {
        "warps": binary.num_warps, "registers": binary.registers, "spills": binary.spills, "shared": binary.shared,
        "wgmma": binary.ptx.count("wgmma.mma_async"),
    }  # fmt: skip


def _kernel(binary: Binary) -> Kernel:
    cubin = binary.cubin or b""
    return Kernel(binary.name, cubin, binary.shared, binary.num_warps, 1, binary.global_scratch_size, binary.boxes)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    sys.exit(exit_code("decode_measure.py", lambda: _child(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))))
