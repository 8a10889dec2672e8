"""What a call costs on the host, without a GPU: ``python bench/launch_overhead.py``.

The CUDA driver is the tests' stub, which returns at once, and so are PyTorch's few functions; what is left is Cleave's
own share, in CPU time. A real driver adds 2 to 3 µs a launch and PyTorch about 1 µs an allocation.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CALLS = 5000


class Tensor:
    """As much of PyTorch's as a call looks at; attributes cost what slots do."""

    __slots__ = ("address", "device", "dtype", "is_cuda", "shape", "strides")
    numbers = itertools.count(2**32, 2**20)

    def __init__(self, shape: tuple[int, ...], dtype: str = "torch.float16") -> None:
        self.address, self.shape, self.dtype, self.is_cuda = next(self.numbers), shape, dtype, True
        self.device = SimpleNamespace(index=0)
        self.strides = tuple(itertools.accumulate((1, *reversed(shape[1:])), int.__mul__))[::-1]

    def data_ptr(self) -> int:
        return self.address

    def get_device(self) -> int:
        return 0

    def is_contiguous(self) -> bool:
        return True

    def stride(self) -> tuple[int, ...]:
        return self.strides


@contextmanager
def _device(device: Any) -> Any:
    yield


def fake_torch() -> Any:
    cuda = SimpleNamespace(
        device=_device, current_stream=lambda: SimpleNamespace(cuda_stream=7), current_device=lambda: 0
    )
    names = {name: f"torch.{name}" for name in ("float16", "float32", "int32", "uint8")}
    return SimpleNamespace(
        Tensor=Tensor,
        cuda=cuda,
        empty=lambda s, dtype, device: Tensor(s if isinstance(s, tuple) else (s,), dtype),
        **names,
    )


def stub_driver(folder: Path) -> Any:
    """The tests' driver, without its log."""
    from cleave.runtime.cuda_driver import Driver

    library = folder / "libcuda.so"
    source = ROOT / "test" / "py" / "stub_cuda.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-DQUIET", "-o", library, source], check=True)
    ctypes.CDLL(str(library)).stub_reset(b"", 0)
    return Driver(str(library))


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


def packaged(function: Any, static: dict[str, int], sizes: dict[str, int]) -> tuple[Any, Any]:
    """The function and a package of it whose kernels are the stub's."""
    import cleave
    from cleave.runtime.cuda import Kernel
    from cleave.runtime.cuda_bind import PARAMETER_BYTES, SCRATCH_POINTERS
    from cleave.runtime.descriptors import DESCRIPTOR, Box, DescriptorSpec
    from cleave.runtime.package import Package

    special = cleave.jit(function).specialised(**static)
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


def main() -> None:
    from cleave.bench.subgraphs import matmul, subgraphs
    from cleave.runtime import cuda, cuda_driver, programs
    from cleave.runtime.cuda_tensors import TORCH_DTYPES

    sys.modules["torch"] = fake_torch()
    attention = subgraphs()["mha_d64"].function
    heads = {"a": 2, "g": 1, "d": 64, "e": 64}
    cases = (
        ("matmul", matmul, {"k": 512, "n": 512}, {"m": 64}, [(64, 512), (512, 512)]),
        ("attention", attention, heads, {"m": 64, "n": 256}, [(2, 1, 64, 64), (2, 256, 64), (2, 256, 64)]),
    )
    with tempfile.TemporaryDirectory() as folder:
        driver = stub_driver(Path(folder))
        for module in (cuda, cuda_driver, programs):
            module.shared_driver = lambda: driver
        print("| program | launches | function | package | prepared launch |\n|---|---:|---:|---:|---:|")
        for name, function, static, sizes, shapes in cases:
            special, packed = packaged(function, static, sizes)
            tensors = [Tensor(shape) for shape in shapes]
            program = packed._programs(packed.variants[0])
            call = program.prepare(tensors, lambda shape, dtype: Tensor(shape, f"torch.{TORCH_DTYPES[dtype]}"))
            times = [microseconds(partial(each, *tensors)) for each in (special, packed)] + [microseconds(call.launch)]
            print(
                f"| {name} | {len(packed.variants[0].plan.launches)} | "
                + " | ".join(f"{us:.1f}" for us in times)
                + " |"
            )


if __name__ == "__main__":
    main()
