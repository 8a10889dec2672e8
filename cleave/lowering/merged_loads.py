"""Equal loads through descriptors made one: a tensor in two roles, such as keys that are values, too, is read once.

Triton merges equal loads, but only after it has decided how many buffers each takes.
"""

from __future__ import annotations

from cleave.bindings import ir
from cleave.lowering.descriptors import LOAD


def merge_loads(block: ir.Block) -> None:
    """In a block and the blocks in it. The kernel does not write what descriptors load: order does not matter."""
    first: dict[tuple[ir.Value, ...], ir.Operation] = {}
    for view in list(block.operations):
        op = view.operation
        for region in op.regions:
            for inner in region.blocks:
                merge_loads(inner)
        if op.name == LOAD:
            same = first.setdefault(tuple(op.operands), op)
            if same != op:
                op.results[0].replace_all_uses_with(same.results[0])
                op.erase()
