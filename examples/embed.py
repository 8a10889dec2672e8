"""Cleave's passes between MLIR's own on one PassManager, as another compiler would embed them.

The file is ``examples/attention.linalg.mlir`` unless one is named:

    python examples/embed.py [FILE.mlir]
"""

from __future__ import annotations

import sys
from pathlib import Path

from cleave import bindings, passes
from cleave.bindings import ir, passmanager
from cleave.tools.exit_code import exit_code


def compile_module(module: ir.Module) -> None:
    """Upstream's clean-up, Cleave's way from linalg to kernels, and upstream's clean-up again."""
    manager = passmanager.PassManager("builtin.module")
    manager.add("func.func(canonicalize,cse)")
    manager.add(*passes.make("cleave-import-linalg"))
    manager.add(*passes.make("cleave-superopt", keep=2, split=False))
    manager.add(*passes.make("cleave-schedule", target="h200"))
    manager.add("func.func(canonicalize,cse)")
    manager.run(module.operation)


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("attention.linalg.mlir")
    context = ir.Context()  # any context will do,
    bindings.register(context)  # once it has the dialect (and, for cleave-lower-to-triton, allow_unregistered_dialects)
    with context:
        module = ir.Module.parseFile(str(path))
        compile_module(module)
    for op in module.body.operations:
        kind = "kernel" if "cleave.kernel" in op.attributes else "host function"
        print(f"{kind} {op.attributes['sym_name']}, type {op.attributes['function_type']}")


if __name__ == "__main__":
    sys.exit(exit_code("embed.py", main))
