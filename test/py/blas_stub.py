"""A cuBLAS of our own that computes on the host as the documentation says (``stub_cublas.c``), beside a driver that
records what it is told (``stub_cuda.c``)."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from cleave.runtime.cublas import Cublas
from cleave.runtime.cuda import Kernel, Program
from cleave.runtime.cuda_driver import Driver
from cleave.runtime.descriptors import DESCRIPTOR, Box
from cleave.runtime.launch_plan import Launch, LaunchPlan

HERE = Path(__file__).parent
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
TORCH = {"f16": "torch.float16", "bf16": "torch.bfloat16", "f32": "torch.float32", "f64": "torch.float64"}
ARENA = 1 << 21


@dataclass
class Tensor:
    """A tensor in the memory of the stub, as PyTorch's are."""

    array: Any
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def data_ptr(self) -> int:
        return self.array.__array_interface__["data"][0] if self.array.size else 0

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.array.itemsize for stride in self.array.strides)


class Stub:
    """Both libraries, and memory that both take for a GPU's, which is NaN where nothing was put."""

    def __init__(self, driver: Path, blas: Path) -> None:
        self.cuda, self.blas = ctypes.CDLL(str(driver)), ctypes.CDLL(str(blas))
        self.cuda.stub_log.restype = self.blas.blas_log.restype = ctypes.c_char_p
        self.blas.blas_memory.restype = ctypes.c_void_p
        self.blas.blas_memory.argtypes = [ctypes.c_size_t]
        self.blas.blas_reset.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t]
        self.path = blas
        self.base = self.blas.blas_memory(ARENA)
        assert self.base
        self.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * ARENA).from_address(self.base))
        self.driver, self.used = Driver(str(driver)), ARENA
        self.reset()

    def reset(self, failing: str = "", status: int = 0, workspace: int = 0) -> None:
        self.cuda.stub_reset(b"", 0)
        self.blas.blas_reset(failing.encode(), status, workspace)
        self.library = Cublas(str(self.path))
        self.bytes[: self.used] = 0xFF
        self.used, self.given = 0, list[tuple[tuple[int, ...], str]]()

    @property
    def log(self) -> list[str]:
        return self.blas.blas_log().decode().splitlines()

    @property
    def launches(self) -> list[str]:
        return [line.partition(" grid")[0] for line in self.cuda.stub_log().decode().splitlines() if "launch" in line]

    def array(self, shape: Sequence[int], dtype: str, pitch: Sequence[int] | None = None, offset: int = 0) -> Any:
        """NaN in new memory; ``pitch``: the shape of what lies around it, ``offset`` elements from its beginning."""
        around, kind = tuple(pitch or shape), np.dtype(DTYPES.get(dtype, np.int8))
        size = -(-(int(np.prod(around)) + offset) * kind.itemsize // 256) * 256
        flat = self.bytes[self.used : self.used + size].view(kind)[offset : offset + int(np.prod(around))]
        self.used += size
        return flat.reshape(around)[(*(slice(extent) for extent in shape), ...)]

    def allocate(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        self.given.append((shape, dtype))
        return Tensor(self.array(shape, dtype), {**TORCH, "i8": "torch.int8"}[dtype])

    def program(self, plan: LaunchPlan, library: Any = None) -> Program:
        kernels = {launch.kernel: kernel(launch) for launch in plan.possible_launches}
        return Program(plan, kernels, self.driver, self.library if library is None else library)


def kernel(launch: Launch) -> Kernel:
    """One that takes the launch's arguments."""
    sizes = ",".join("8" for _ in (*launch.arguments, "scratch", "profiler"))
    boxes = (Box((1,), 0),) * sum(text.startswith(DESCRIPTOR) for text in launch.arguments)
    return Kernel(launch.kernel, f"{launch.kernel}:{sizes}".encode(), 0, 4, boxes=boxes)


def built(folder: Path) -> Stub:
    """Both libraries, compiled."""
    paths = list[Path]()
    for name in ("stub_cuda", "stub_cublas"):
        paths.append(folder / f"lib{name}.so")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", paths[-1], HERE / f"{name}.c"], check=True)
    return Stub(*paths)


def filled(stub: Stub, shape: Sequence[int], dtype: str, **lying: Any) -> Tensor:
    """A tensor of random numbers."""
    array = stub.array(shape, dtype, **lying)
    array[...] = np.random.default_rng(stub.used).standard_normal(shape).astype(DTYPES[dtype])
    return Tensor(array, TORCH[dtype])
