"""What a call costs on the host, without a GPU: ``python bench/launch_overhead.py``.

The CUDA driver and cuBLAS are the tests' stubs, which return at once. Where PyTorch is installed its CPU tensors stand
for those on a GPU, otherwise stand-ins do. What is left is Cleave's own share in CPU time, and PyTorch's: attributes of
tensors and an allocation. A real driver adds 2 to 3 µs a launch.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

try:
    import torch as REAL
except ImportError:
    REAL = None

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test" / "py")]
from torch_stub import Torch, TorchTensor  # noqa: E402

from cleave.tools.exit_code import exit_code  # noqa: E402

CALLS = 5000
Options = dict[str, Any]
ADDRESSES = itertools.count(2**32, 2**20)


def stand_in() -> Any:
    """A module ``torch`` with tensors of no library, and the functions that the code of PyTorch's compiler calls."""
    module = Torch()
    guards = SimpleNamespace(_empty_strided_cuda=lambda shape, strides, dtype: tensor(shape, dtype))
    module._C = SimpleNamespace(
        _cuda_getCurrentRawStream=lambda index: 7,
        _cuda_getDevice=lambda: 0,
        _cuda_isCurrentStreamCapturing=lambda: False,
        _dynamo=SimpleNamespace(guards=guards),
    )
    return module


def tensor(shape: tuple[int, ...], dtype: str = "torch.float16") -> TorchTensor:
    return TorchTensor(next(ADDRESSES), shape, dtype)


def with_torch() -> tuple[Any, Callable[..., Any]]:
    """The same with PyTorch's tensors where it is installed; and what makes one of some shape."""
    module = stand_in()
    if REAL is None:
        return module, tensor
    real = REAL
    real.set_num_threads(1)
    module._C._cuda_getDevice = lambda: -1
    guards = real._C._dynamo.guards
    module._C._dynamo.guards = SimpleNamespace(
        _empty_strided_cuda=guards._empty_strided_cpu, TensorGuards=guards.TensorGuards
    )
    for name in ("float16", "float32", "int32", "int8"):
        setattr(module, name, getattr(real, name))
    return module, partial(real.zeros, dtype=real.float16)


def stubs(folder: Path) -> tuple[Any, Any]:
    """The tests' driver and cuBLAS, without logs and numbers."""
    from cleave.runtime.cublas import Cublas
    from cleave.runtime.cuda_driver import Driver

    for name in ("stub_cuda", "stub_cublas"):
        source = ROOT / "test" / "py" / f"{name}.c"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-DQUIET", "-o", folder / name, source], check=True)
    ctypes.CDLL(str(folder / "stub_cuda")).stub_reset(b"", 0)
    return Driver(str(folder / "stub_cuda")), Cublas(str(folder / "stub_cublas"))


def microseconds(call: Any) -> float:
    """CPU time of one call, the best of several series."""
    call()
    series: list[float] = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(CALLS):
            call()
        series.append(1e6 * (time.process_time() - start) / CALLS)
    return min(series)


def packaged(function: Any, static: dict[str, int], sizes: dict[str, int], options: Options) -> tuple[Any, Any]:
    """The function and a package of it whose kernels are the stub's."""
    import cleave
    from cleave.runtime.cuda import Kernel
    from cleave.runtime.cuda_bind import PARAMETER_BYTES, SCRATCH_POINTERS
    from cleave.runtime.descriptors import DESCRIPTOR, Box, DescriptorSpec
    from cleave.runtime.package import Package

    special = cleave.jit(function, **options).specialised(**static)
    variant = special.variant(**sizes)
    kernels = {}
    for launch in variant.plan.possible_launches:
        widths = [PARAMETER_BYTES[text.partition(":")[0]] for text in launch.arguments] + [8] * SCRATCH_POINTERS
        cubin = f"{launch.kernel}:{','.join(map(str, widths))}".encode()
        described = [DescriptorSpec.parse(text) for text in launch.arguments if text.startswith(DESCRIPTOR)]
        boxes = tuple(Box(spec.extents, 0) for spec in described)
        kernels[launch.kernel] = Kernel(launch.kernel, cubin, 1024, launch.num_warps, boxes=boxes)
    variant = replace(variant, binaries={"sm_90": kernels})
    special._variants = dict.fromkeys(special._variants, variant)
    return special, Package(special.name, (variant,))


MATMUL = ("matmul", {"k": 512, "n": 512}, {"m": 64}, lambda m: [(m, 512), (512, 512)], range(17, 65))
DECODE = (
    "mha_d64", {"a": 2, "g": 1, "d": 64, "e": 64}, {"m": 16, "n": 16384},
    lambda n: [(2, 1, 16, 64), (2, n, 64), (2, n, 64)], range(16200, 16385),
)  # fmt: skip
CASES = {
    "matmul": MATMUL,
    "matmul by cuBLAS": MATMUL,
    "attention": (
        "mha_d64", {"a": 2, "g": 1, "d": 64, "e": 64}, {"m": 64, "n": 256},
        lambda n: [(2, 1, 64, 64), (2, n, 64), (2, n, 64)], range(100, 257),
    ),
    "decode": DECODE,
    "decode in one launch": DECODE,
}  # fmt: skip
"""The subgraph, static sizes, those it is scheduled for, the shapes of tensors at one size, and such sizes."""
OPTIONS: dict[str, Options] = {
    "matmul by cuBLAS": {"library": True},
    "decode": {"schedule": {"combine": "pdl"}},
    "decode in one launch": {"schedule": {"combine": "share"}},
}


def measured(name: str) -> tuple[int, list[float]]:
    """How many launches a case has, and microseconds: a function, a package, new shapes each time, a prepared call."""
    from cleave.bench.subgraphs import subgraphs
    from cleave.runtime.cuda_tensors import TORCH_DTYPES

    subgraph, static, sizes, shapes, others = CASES[name]
    special, packed = packaged(subgraphs()[subgraph].function, static, sizes, OPTIONS.get(name, {}))
    program = packed._programs(packed.variants[0])
    stand_ins = [tensor(shape) for shape in shapes(others[-1])]
    call = program.prepare(stand_ins, lambda shape, dtype: tensor(shape, f"torch.{TORCH_DTYPES[dtype]}"))
    sys.modules["torch"] = stand_in()
    new = new_shapes(special, [[tensor(shape) for shape in shapes(size)] for size in others])
    sys.modules["torch"], make = with_torch()
    tensors = [make(shape) for shape in shapes(others[-1])]
    for each in (special, packed):  # a first call would find that they are on no GPU
        each._remembered.keep(tensors, None, program, program.ready(stand_ins, {}))
    times = [microseconds(partial(each, *tensors)) for each in (special, packed)]
    return len(call._slot._launchers), [*times, new, microseconds(call.launch)]


def new_shapes(function: Any, calls: Sequence[Sequence[TorchTensor]]) -> float:
    """CPU time of a call with shapes that were not met before, the median, in microseconds."""
    series: list[float] = []
    for tensors in calls:
        start = time.process_time()
        function(*tensors)
        series.append(1e6 * (time.process_time() - start))
    return median(series)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    from cleave.runtime import cuda, cuda_driver, programs

    with tempfile.TemporaryDirectory() as folder:
        driver, cublas = stubs(Path(folder))
        cuda.shared_cublas = lambda: cublas
        for module in (cuda, cuda_driver, programs):
            module.shared_driver = lambda: driver
        print("| program | launches | function | package | new shapes | prepared |\n|---|---:|---:|---:|---:|---:|")
        for name in CASES:
            launches, times = measured(name)
            print(f"| {name} | {launches} | " + " | ".join(f"{us:.1f}" for us in times) + " |")


if __name__ == "__main__":
    sys.exit(exit_code("launch_overhead.py", main))
