"""Tile programs lowered and compiled without a GPU, and what is written of them for the machine that has one."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from cleave.bindings import context, ir
from cleave.lowering.compile_ttir import Compiled
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.plan import plan_of
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.launch_plan import LaunchPlan
from cleave.schedule.tile_program import TileProgram

ARCH = "sm_90"
_PARAM = re.compile(r"\.param \.(\w+)")


def lower(program: TileProgram, lowering: LowerToTriton | None = None) -> tuple[LaunchPlan, list[KernelModule]]:
    ctx = context(allow_unregistered=True)
    with ctx, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(program, module)
        (lowering or LowerToTriton()).apply(ctx, module)
        return plan_of(module, program.graph.name), kernel_modules(module)


def unfit(kernel: Compiled, module: KernelModule) -> str:
    """What is wrong with a compiled kernel; empty if nothing is."""
    if not kernel.fits:
        return f"needs {kernel.shared} bytes of shared memory"
    head = kernel.ptx[kernel.ptx.index(".visible .entry") :]
    types = _PARAM.findall(head[: head.index(")")])
    widths = {"in": "u64", "size": "u32", "stride": "u64", "desc": "align"}
    wanted = [widths[text.partition(":")[0]] for text in module.arguments] + ["u64", "u64"]
    return "" if types == wanted else f"PTX parameters {types}, the plan gives {wanted}"


def metadata(kernel: Compiled, path: str) -> dict[str, Any]:
    return {
        "name": kernel.name, "path": path, "shared": kernel.shared, "num_warps": kernel.num_warps,
        "registers": kernel.registers, "spills": kernel.spills, "scratch": kernel.global_scratch_size,
        "boxes": [(box.extents, box.swizzle) for box in kernel.boxes],
        "seconds": sum(kernel.seconds.values()), "notes": kernel.notes, "wgmma": kernel.ptx.count("wgmma.mma_async"),
    }  # fmt: skip


def exit_status(programs: Sequence[Any], problems: Sequence[str] = ()) -> int:
    """Of a preparation, whose ``problems`` are printed: 1 if there are any, or if it prepared nothing."""
    for problem in problems:
        print(f"PROBLEM {problem}", file=sys.stderr)
    if not programs:
        print("PROBLEM no program was prepared: there is nothing to run", file=sys.stderr)
    return 0 if programs and not problems else 1
