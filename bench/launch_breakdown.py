"""What a call costs the host on a machine with a GPU, and its parts: ``python bench/launch_breakdown.py FOLDER``.

It needs PyTorch, and in the folder packages that ``--prepare`` writes on a machine with Triton; no compiler. Figures
are microseconds by the clock, the least of several series, for other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave.tools.exit_code import exit_code

CALLS, SERIES = 200, 30
SHAPES = {"product": [(16, 64), (64, 16)], "attention": [(8, 1, 16, 64), (8, 4096, 64), (8, 4096, 64)]}
"""The packages, and the tensors of a call: of one launch, and of two of which the second overlaps with the first."""


def prepare(folder: Path) -> None:
    import cleave
    from cleave.bench.subgraphs import subgraphs

    folder.mkdir(parents=True, exist_ok=True)
    for name, subgraph, static, sizes in (
        ("product", "matmul", {"k": 64, "n": 16}, {"m": 16}),
        ("attention", "mha_d64", {"a": 8, "g": 1, "d": 64, "e": 64}, {"m": 16, "n": 4096}),
    ):
        function = cleave.jit(subgraphs()[subgraph].function).specialised(**static)
        function.package("sm_90", sizes=[sizes]).save(folder / f"{name}.cleave")


def microseconds(call: Callable[[], Any]) -> float:
    import torch

    call()
    series: list[float] = []
    for _ in range(SERIES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        series.append(1e6 * (time.perf_counter() - start) / CALLS)
    torch.cuda.synchronize()
    return min(series)


def of_package(path: Path, shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[str, Callable[[], Any]]]:
    import torch

    from cleave.function import Function
    from cleave.runtime.cuda_tensors import TORCH_DTYPES
    from cleave.runtime.package import Package

    def allocate(shape: tuple[int, ...], dtype: str) -> Any:
        return torch.empty(shape, dtype=getattr(torch, TORCH_DTYPES[dtype]), device="cuda")

    package = Package.load(path)
    tensors = [torch.randn(shape, device="cuda").half() for shape in shapes]
    package(*tensors)
    prepared = package._programs(package.variants[0]).prepare(tensors, allocate)
    stream = torch.cuda.current_stream().cuda_stream
    for number, launcher in enumerate(prepared._slot._launchers):
        yield f"{path.stem}: the driver's launch {number}", launcher.start
    yield f"{path.stem}: prepared", lambda: prepared.launch(stream)
    known = next(iter(package._remembered._known.values()))
    yield f"{path.stem}: are the tensors alike", lambda: known.alike(*tensors)
    yield f"{path.stem}: a known call", lambda: known.launch(tensors, None)
    yield f"{path.stem}: a package", lambda: package(*tensors)
    function = Function("", name=path.stem)  # of which nothing is compiled, for the call is known
    function._remembered = package._remembered
    yield f"{path.stem}: a function", lambda: function(*tensors)


def of_pytorch() -> Iterator[tuple[str, Callable[[], Any]]]:
    import torch

    x, w, q, k, v = (torch.randn(shape, device="cuda").half() for shapes in SHAPES.values() for shape in shapes)
    attention = torch.nn.functional.scaled_dot_product_attention
    yield "torch.empty", lambda: torch.empty((16, 16), dtype=torch.float16, device="cuda")
    yield "torch.add", lambda: torch.add(x, x)
    yield "torch.matmul", lambda: torch.matmul(x, w)
    yield "torch's attention", lambda: attention(q, k[:, None], v[:, None])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prepare", action="store_true", help="write the packages")
    options = parser.parse_args()
    if options.prepare:
        prepare(options.folder)
        return
    print("| | µs |\n|---|---:|")
    for name, call in of_pytorch():
        print(f"| {name} | {microseconds(call):.2f} |", flush=True)
    for case, shapes in SHAPES.items():
        for name, call in of_package(options.folder / f"{case}.cleave", shapes):
            print(f"| {name} | {microseconds(call):.2f} |", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code("launch_breakdown.py", main))
