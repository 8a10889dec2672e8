"""Kernels of dynamic sizes against those of static ones and PyTorch, on an H200.

python bench/dynamic_dims.py prepare FOLDER     # where the compiler is: packages for sm_90
python bench/dynamic_dims.py run FOLDER         # on the GPU: numbers first, then times, as a table
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave.tools.exit_code import exit_code

HEADS = 32
SCALE = 0.1
LARGEST_ERROR = 2e-3
RUNS = 25
COMPILED = 6
"""Candidates of each kernel that are compiled before one is chosen."""
PRODUCTS = [(4096, 4096, 4096), (4096, 4104, 4096), (4095, 4097, 4093), (4096, 4096, 4097)]
LENGTHS = (1023, 4096, 4097, 8192)


# --- prepare ----------------------------------------------------------------------------------------------------------


def product() -> Any:
    from cleave.dialects.graph import GraphBuilder

    b = GraphBuilder("product")
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    return b.build(b.contract(x, w, over=["k"], dtype="f16"))


def attention(head: int, *, causal: bool) -> Any:
    """The division last, as the superoptimiser has it."""
    from cleave.dialects.graph import GraphBuilder

    b = GraphBuilder(f"{'causal' if causal else 'attention'}{head}")
    q, k, v = b.input(f"h m d={head}", "f16"), b.input("h n d", "f16"), b.input(f"h n e={head}", "f16")
    s = b.mul(b.contract(q, k, over=["d"]), b.constant(SCALE, "f32"))
    if causal:
        seen = b.cmp(b.index(dim="n"), b.index(dim="m"), predicate="le")
        s = b.select(seen, s, b.constant(float("-inf"), "f32"))
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    out = b.contract(b.cast(e, dtype="f16"), v, over=["n"])
    return b.build(b.cast(b.div(out, b.reduce(e, kind="sum", over=["n"])), dtype="f16"))


def prepare(folder: Path) -> None:
    typical = {"h": HEADS, "m": 4096, "k": 4096, "n": 4096}
    graphs = [product(), *(attention(head, causal=causal) for head in (64, 128) for causal in (False, True))]
    for graph in graphs:
        symbols = {s for value in graph.topological() for dim in value.dims for s in dim.size.symbols}
        sizes = {name: size for name, size in typical.items() if name in symbols - graph.extents.keys()}
        save(folder, graph, sizes)
        save(folder, replace(graph, extents={**graph.extents, **sizes}).named(f"{graph.name}_static"), {})


def save(folder: Path, graph: Any, sizes: dict[str, int]) -> None:
    from cleave.bindings import context, ir
    from cleave.lowering.compile_candidates import Schedule
    from cleave.lowering.lower_to_triton import LowerToTriton
    from cleave.lowering.package import package_of
    from cleave.passes.graph_io import from_graph

    ctx = context(allow_unregistered=True)
    text = ",".join(f"{name}={size}" for name, size in sizes.items())
    with ctx, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module)
        Schedule(sizes=text, aligned=True, compile=COMPILED).apply(ctx, module)
        LowerToTriton().apply(ctx, module)
        package_of(module, "sm_90").save(folder / f"{graph.name}.cleave")


# --- run --------------------------------------------------------------------------------------------------------------


def run(folder: Path) -> None:
    import torch

    print("| function | sizes | cleave µs | torch µs | error | kernels |\n|---|---|---|---|---|---|")
    torch.manual_seed(0)
    for m, k, n in PRODUCTS:
        x, w = (torch.randn(*shape, device="cuda").half() for shape in ((m, k), (k, n)))
        names = ["product", *(["product_static"] if (m, k, n) == PRODUCTS[0] else [])]
        for name in names:
            report(folder, name, f"{m}×{k}×{n}", [x, w], x.float() @ w.float(), lambda x=x, w=w: x @ w)
    for head in (64, 128):
        for length in LENGTHS:
            run_attention(folder, head, length)


def run_attention(folder: Path, head: int, length: int) -> None:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    operands = [torch.randn(HEADS, length, head, device="cuda").half() for _ in range(3)]
    for causal in (False, True):

        def baseline(causal: bool = causal) -> Any:
            batch = [operand[None] for operand in operands]
            return torch.nn.functional.scaled_dot_product_attention(*batch, is_causal=causal, scale=SCALE)[0]

        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            expected = baseline().float()
        name = f"{'causal' if causal else 'attention'}{head}"
        for form in [name, *([f"{name}_static"] if length == 4096 else [])]:
            report(folder, form, f"h={HEADS} n={length}", operands, expected, baseline)


def report(
    folder: Path, name: str, sizes: str, operands: list[Any], expected: Any, baseline: Callable[[], Any]
) -> None:
    import torch

    from cleave.runtime.package import Package

    package = Package.load(folder / f"{name}.cleave")

    def allocate(shape: tuple[int, ...], dtype: str) -> Any:
        return torch.empty(shape, dtype={"f16": torch.float16, "f32": torch.float32}[dtype], device="cuda")

    call = package.program(package.variants[0], "sm_90").prepare(operands, allocate)
    stream = torch.cuda.current_stream().cuda_stream
    call.launch(stream)
    got = call.results[0].float()
    got = got if got.shape == expected.shape else got.transpose(0, 1)
    error = float((got - expected).norm() / expected.norm())
    assert error < LARGEST_ERROR, (name, sizes, error)
    kernels = ", ".join(launch.kernel for launch, _ in call._launches)
    times = [microseconds(work) for work in (lambda: call.launch(stream), baseline)]
    print(f"| {name} | {sizes} | {times[0]:.1f} | {times[1]:.1f} | {error:.0e} | {kernels} |", flush=True)


def microseconds(work: Callable[[], Any]) -> float:
    """The median of several runs, each with nothing of its operands in the L2 cache."""
    import torch

    flush, found = torch.empty(256 << 20, dtype=torch.uint8, device="cuda"), []
    for _ in range(RUNS + 3):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1e3)
    return statistics.median(found[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    {"prepare": prepare, "run": run}[arguments.command](arguments.folder)


if __name__ == "__main__":
    sys.exit(exit_code("dynamic_dims.py", main))
