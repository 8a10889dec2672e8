"""Named pipelines of our passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleave.passes.registry import Pass, create

if TYPE_CHECKING:
    from cleave.bindings import ir


def default() -> tuple[Pass, ...]:
    """From linalg to Triton IR."""
    return (
        create("cleave-import-linalg"),  # names for dimensions: all that follows aligns by name
        create("cleave-superopt"),  # algebra on symbols, before any size is chosen
        create("cleave-schedule"),  # kernels over tiles, on sizes
        create("cleave-lower-to-triton"),  # each kernel in tt, scf, arith and math
    )


def scheduled() -> tuple[Pass, ...]:
    """From linalg to scheduled kernels: ``default`` without its last step."""
    return default()[:-1]


def run(passes: Sequence[Pass], module: ir.Module, *, verify: bool = True) -> None:
    """Apply the passes in order; with ``verify``, check the module before them and after each.

    CleaveError, located, for what the user can mend; MLIR's own verifier reports through the context's handlers, and a
    module it rejects after one of our passes is an error of ours (RuntimeError).
    """
    from cleave.passes.registry import name_of

    ctx = module.context
    checker = create("cleave-verify")
    if verify:
        checker.apply(ctx, module)
    for pass_ in passes:
        pass_.apply(ctx, module)
        if verify and not module.operation.verify():
            raise RuntimeError(f"{name_of(pass_)} left a module that does not verify")
        if verify:
            checker.apply(ctx, module)
