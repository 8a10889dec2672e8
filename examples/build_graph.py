"""Build a tensor function in Python, compile it and run it on the CPU, at sizes that nothing divides.

The function is RMSNorm and a matrix product; Cleave finds that the scale can follow the product, and makes one kernel
with one loop of it.

    python examples/build_graph.py
"""

from __future__ import annotations

import sys

import numpy as np

from cleave import bindings, passes, reference
from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.lowering.emit import kernel_modules
from cleave.lowering.plan import plan_of
from cleave.passes import pipelines
from cleave.passes.graph_io import from_graph
from cleave.runtime.execute import execute
from cleave.tools.exit_code import exit_code


def rmsnorm_linear() -> Graph:
    """x · rsqrt(mean(x²) + ε) @ w, for any m and n and a hidden size of 256."""
    b = GraphBuilder("rmsnorm_linear")
    x, w = b.input("m k=256", "f16"), b.input("k n", "f16")
    wide = b.cast(x, dtype="f32")
    mean = b.div(b.reduce(b.mul(wide, wide), kind="sum", over=["k"]), b.constant(256.0, "f32"))
    scale = b.rsqrt(b.add(mean, b.constant(1e-6, "f32")))
    normed = b.cast(b.mul(wide, scale), dtype="f16")
    return b.build(b.contract(normed, w, over=["k"], dtype="f16"))


def main() -> None:
    with bindings.context(), ir.Location.unknown():
        module = ir.Module.create()
        from_graph(rmsnorm_linear(), module)
        rng = np.random.default_rng(0)
        inputs = [rng.standard_normal(shape).astype(np.float16) for shape in ((37, 256), (256, 91))]
        (exact,) = reference.run(module, None, inputs, precision="f64")  # before the passes: they rewrite the module

        names = ("cleave-superopt", "cleave-schedule", "cleave-lower-to-triton")
        pipelines.run([passes.create(name) for name in names], module)
        kernels = {kernel.name: kernel.text for kernel in kernel_modules(module)}
        (out,) = execute(plan_of(module, "rmsnorm_linear"), kernels, inputs)

    error = np.linalg.norm(out - exact) / np.linalg.norm(exact)
    loops = sum(text.count('"scf.for"') for text in kernels.values())
    print(f"kernels: {', '.join(kernels)}; loops: {loops}")
    print(f"out: {out.dtype}{list(out.shape)}, ‖out − ref‖/‖ref‖ = {error:.1e}")


if __name__ == "__main__":
    sys.exit(exit_code("build_graph.py", main))
