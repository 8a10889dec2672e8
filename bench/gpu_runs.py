"""What the scripts that measure on a GPU share: programs from files, inputs, errors."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence

import torch
from children import Json

from cleave.runtime.cuda import Call, Kernel, Program
from cleave.runtime.descriptors import Box
from cleave.runtime.launch_plan import LaunchPlan

TORCH = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "i1": torch.bool, "i32": torch.int32,
}  # fmt: skip


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
