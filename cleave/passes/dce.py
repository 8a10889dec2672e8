"""``cleave-dce``: remove what nobody uses."""

from __future__ import annotations

from dataclasses import dataclass

from cleave.bindings import ir
from cleave.passes.effects import is_removable


@dataclass(frozen=True)
class Dce:
    """Remove cleave, arith and math ops, loads, allocations and loops whose results nobody uses."""

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        dce(module.operation)


def dce(op: ir.Operation) -> int:
    """Remove unused ops inside ``op``, users before what they use; returns how many."""
    count = 0
    for region in op.regions:
        for block in region:
            for inner in reversed(list(block.operations)):
                count += _remove_or_enter(inner.operation)
    return count


def _remove_or_enter(op: ir.Operation) -> int:
    if is_removable(op) and all(next(iter(result.uses), None) is None for result in op.results):
        op.erase()
        return 1
    return dce(op)
