"""The CUDA driver's stub (``stub_cuda.c``), with plans and kernels for it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cleave.runtime.cuda import Kernel
from cleave.runtime.cuda_driver import Driver
from cleave.runtime.launch_plan import Alloc, Launch, LaunchPlan, TensorSpec, View
from cleave.runtime.package import Package, Variant

X, W = 2**32, 2**33


class Stub:
    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.stub_log.restype = ctypes.c_char_p
        self.reset()
        self.driver = Driver(str(path))

    def reset(self, failing: str = "", status: int = 0) -> None:
        self.library.stub_reset(failing.encode(), status)

    @property
    def log(self) -> list[str]:
        return self.library.stub_log().decode().splitlines()


def built(folder: Path) -> Path:
    path, source = folder / "libcuda.so", Path(__file__).parent / "stub_cuda.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", path, source], check=True)
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def stub(library: Path) -> Iterator[Stub]:
    stub = Stub(library)
    yield stub
    stub.reset()


def spec(name: str, dims: str, dtype: str = "f16", **extents: int) -> TensorSpec:
    names = tuple(dims.split())
    return TensorSpec(name, dtype, names, tuple(extents.get(dim) for dim in names))


PARTS = ("s", "t=ceildiv(k, s)")
ARGUMENTS = ("in:0", "in:1", "in:2", "size:m", "size:ceildiv(k, s)")
SPLIT_K = LaunchPlan(
    "f",
    (spec("x", "m k"), spec("w", "k n", n=64)),
    (
        View("w", ("k",), PARTS, TensorSpec("ws", "f16", (*PARTS, "n"), (None, None, 64))),
        Alloc(TensorSpec("part", "f32", ("m", "s", "n"), (None, None, 64))),
        Launch("parts", ("s*ceildiv(m, 16)", "1"), ("x", "ws", "part"), ("part",), ARGUMENTS, 8),
        Alloc(spec("out", "m n", n=64)),
        Launch("sum", ("m",), ("part", "out"), ("out",), ("in:0", "in:1", "size:s")),
    ),
    ("out",),
    ("1 <= s",),
    {"n": 64},
    "in.mlir:3:1",
)  # fmt: skip
KERNELS = {
    "parts": Kernel("parts", b"parts:8,8,8,4,4,8,8", 100_000, 8),
    "sum": Kernel("sum", b"sum:8,8,4,8,8", 1024, 4),
}
SHARED = replace(
    SPLIT_K,
    steps=(
        *(step for step in SPLIT_K.steps if not isinstance(step, Launch)),
        Alloc(TensorSpec("counters", "i32", ("g=ceildiv(m, 16)",), (None,)), zeroed=True),
        Launch("all", ("s*ceildiv(m, 16)",), ("x", "counters"), ("counters",), ("in:0", "in:1"), cooperative=True),
        *(replace(step, unless="all") for step in SPLIT_K.steps if isinstance(step, Launch)),
    ),
)


def package_of(stub: Stub, monkeypatch: pytest.MonkeyPatch, *plans: LaunchPlan) -> Package:
    for module in ("programs", "cuda", "package"):
        monkeypatch.setattr(f"cleave.runtime.{module}.shared_driver", lambda: stub.driver)
    binaries = {"sm_90": KERNELS}
    return Package("f", tuple(Variant(plan, {}, binaries, label=str(n)) for n, plan in enumerate(plans)))
