"""``cleave-cse``: compute equal values once."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass
from typing import Any

from cleave.bindings import ir
from cleave.passes.effects import is_pure

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Cse:
    """Merge equal cleave, arith and math ops where one dominates the other; loads and allocations stay apart."""

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        cse(module.operation)


def cse(op: ir.Operation) -> int:
    """Merge equal pure ops inside ``op``; returns how many are gone."""
    return _merge_in_regions(op, ChainMap())


def _merge_in_regions(op: ir.Operation, known: ChainMap[Key, ir.Operation]) -> int:
    """``known`` holds the ops that dominate ``op``; a block sees them and its own, and no other block's."""
    visible = ChainMap[Key, ir.Operation]() if _is_isolated(op) else known
    return sum(_merge_in_block(block, visible.new_child()) for region in op.regions for block in region)


def _is_isolated(op: ir.Operation) -> bool:
    return op.name in ("builtin.module", "func.func", "gpu.module", "gpu.func")


def _merge_in_block(block: ir.Block, known: ChainMap[Key, ir.Operation]) -> int:
    count = 0
    for view in list(block.operations):
        op = view.operation
        if not is_pure(op):
            count += _merge_in_regions(op, known)
            continue
        first = known.setdefault(_key(op), op)
        if first is not op:
            for mine, other in zip(op.results, first.results, strict=True):
                mine.replace_all_uses_with(other)
            op.erase()
            count += 1
    return count


def _key(op: ir.Operation) -> Key:
    attributes = tuple(op.attributes.items())
    return op.name, tuple(op.operands), tuple(result.type for result in op.results), attributes
