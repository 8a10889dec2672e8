"""What the scripts that measure on a GPU share: programs from files, inputs, errors, and runs that outlive a crash."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cleave.runtime.cuda import Call, Kernel, Program
from cleave.runtime.descriptors import Box
from cleave.runtime.launch_plan import LaunchPlan

Json = dict[str, Any]
TORCH = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "i1": torch.bool, "i32": torch.int32,
}  # fmt: skip
RESTARTS = 8


def poisoned(shape: Sequence[int], dtype: str) -> torch.Tensor:
    """New memory, every byte 255: NaN in the float types."""
    size = math.prod(shape) * TORCH[dtype].itemsize
    return torch.full((size,), 255, dtype=torch.uint8, device="cuda").view(TORCH[dtype]).reshape(shape)


def unpoisoned(shape: Sequence[int], dtype: str) -> torch.Tensor:
    return torch.empty(shape, dtype=TORCH[dtype], device="cuda")


def errors(actual: torch.Tensor, expected: torch.Tensor) -> tuple[float, float]:
    """The error in the 2-norm and in the maximum norm, relative to what is expected; inf where NaN differ."""
    if actual.shape != expected.shape:
        return math.inf, math.inf
    wide = actual.double()
    same = (wide == expected) | (wide.isnan() & expected.isnan())
    difference = torch.where(same, 0.0, wide - expected)
    if not torch.isfinite(difference).all():
        return math.inf, math.inf
    finite = torch.where(torch.isfinite(expected), expected, 0.0)
    if not difference.count_nonzero():
        return 0.0, 0.0
    scale = finite.norm().item(), finite.abs().max().item()
    found = difference.norm().item(), difference.abs().max().item()
    return found[0] / max(scale[0], 1e-30), found[1] / max(scale[1], 1e-30)


def stream() -> int:
    return torch.cuda.current_stream().cuda_stream


def launch(call: Call) -> None:
    """On the current stream, which may be capturing."""
    call.launch(stream())


def kernel_of(described: Json, cubin: bytes) -> Kernel:
    """A kernel from what ``prepare`` wrote of it."""
    boxes = tuple(Box(tuple(extents), swizzle) for extents, swizzle in described["boxes"])
    return Kernel(described["name"], cubin, described["shared"], described["num_warps"], 1, described["scratch"], boxes)


def program_of(archive: zipfile.ZipFile, described: Json) -> Program:
    """A program from what ``prepare`` wrote of it, its cubins from the archive."""
    kernels = {k["name"]: kernel_of(k, archive.read(k["path"])) for k in described["kernels"]}
    return Program(LaunchPlan.from_json(described["plan"]), kernels)


def normal_inputs(shapes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Normal numbers in f16; weights scaled so that products of long rows stay ordinary."""
    generator = torch.Generator("cuda").manual_seed(0)
    values = [torch.randn(*shape, generator=generator, device="cuda") for shape in shapes]
    scaled = [x / math.sqrt(x.shape[0]) if index and x.ndim == 2 else x for index, x in enumerate(values)]
    return [x.half() for x in scaled]


def run_in_children(script: str, arguments: Sequence[Path], out: Path, seconds: float) -> None:
    """Run the script with the arguments and the seconds left; where it dies or hangs, again, as often as there is time.

    It writes what it is at to ``out / "now"``; what it was at when it died stands in ``out / "skipped"`` from then on.
    """
    deadline = time.monotonic() + seconds
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, script, *map(str, arguments)]
    for _ in range(RESTARTS):
        left = deadline - time.monotonic()
        if left < 5:
            return
        try:
            seconds_left = f"{left - 3:.0f}"
            status = subprocess.run([*command, seconds_left], timeout=left, check=False, env=environment).returncode
        except subprocess.TimeoutExpired:
            status = 124
        if status == 0:
            return
        current = (out / "now").read_text()
        with (out / "skipped").open("a") as file:
            file.write(current + "\n")
        print(f"CRASH {current}: exit status {status}", flush=True)


def skipped(out: Path) -> set[str]:
    """What earlier children died at."""
    path = out / "skipped"
    return set(path.read_text().splitlines()) if path.exists() else set()


def rows_of(path: Path) -> list[Json]:
    """The rows of a JSONL file, none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_row(path: Path, row: Json) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
