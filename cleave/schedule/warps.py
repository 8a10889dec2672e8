"""What a block's warps have to do with one another: what they exchange, and what they copy for ``wgmma`` together."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from cleave.schedule.tile_program import LOADS, Block, Instruction, Ref
from cleave.schedule.tile_sizes import Amount, Shapes, contraction_shape, is_tensor_core

WGMMA_ROWS = 64
"""Rows of a tile from which on ``wgmma`` computes it."""
CONFLICT = 16
"""Accesses to shared memory that a warp's threads make one after the other where their addresses are in few banks."""
LANES, USUAL_THREADS = 32, 256
"""Threads of a warp; of most blocks."""
WARP_ROW = 256
"""Elements of two bytes that a warp loads at once."""


def exchanges(block: Block) -> int:
    """How often warps need what others have computed, through shared memory, since they have different rows: in
    reductions along the rows of a contraction's result, and for columns of a contraction that are computed."""
    computed: set[Ref] = set()
    found = 0
    for instruction in block.instructions:
        fed = [operand for operand in instruction.operands if operand in computed]
        product = _is_product(instruction)
        if product:
            found += any(instruction.result.names[0] not in operand.names for operand in fed)
        elif instruction.op == "reduce" and fed and len(fed[0].names) > 1:
            found += fed[0].names[0] in instruction.attrs["over"]
        if (fed or product) and not instruction.body:
            computed.update(instruction.results)
    return found


def is_between_warps(operand: Ref, over: Collection[str], extents: Mapping[str, int]) -> bool:
    """Whether a row of a tile in registers is more than one warp has, of the dim that varies fastest and is reduced."""
    if not operand.names or operand.names[-1] not in over:
        return False
    elements = math.prod([extents[name] for name in operand.names])
    each = max(1, min(WARP_ROW // LANES, elements // USUAL_THREADS))
    return extents[operand.names[-1]] > LANES * each


def staged(block: Block, shapes: Shapes) -> tuple[Amount, int]:
    """What register code of a block writes to shared memory for products, its own and those of loops in it: bytes, and
    how many operands. Not what follows from another product: its rows stay where they are.

    Of tf32 tensor cores want the summed dim without gaps: where it is not what varies fastest in memory, all threads of
    a warp write to a few banks, which counts as so many more bytes.
    """
    products = [i for i in block.walk() if _is_product(i)]
    near = {i.result: i for i in block.instructions if i.results}
    found: dict[Ref, Amount] = {}
    for product in products:
        for operand in product.operands:
            sources = _sources(operand, near)
            if operand in near and near[operand].op not in LOADS and not any(_is_product(near[ref]) for ref in sources):
                turned = operand.tile.dtype == "tf32" and _is_turned(operand, product)
                found[operand] = shapes.bytes([operand], CONFLICT if turned else 1)
    return sum(found.values(), Amount()), len(found)


def _sources(operand: Ref, near: Mapping[Ref, Instruction]) -> set[Ref]:
    """All that it is computed from in the block, itself included."""
    found, pending = set[Ref](), [operand]
    while pending:
        ref = pending.pop()
        if ref in near and ref not in found:
            found.add(ref)
            pending += near[ref].operands
    return found


def _is_turned(operand: Ref, product: Instruction) -> bool:
    """Whether it is the side whose dim is the result's last, and that dim varies fastest in it."""
    last = product.result.names[-1] if product.result.names else ""
    return bool(operand.names) and operand.names[-1] == last and last not in product.attrs["over"]


def copies(block: Block, shapes: Shapes) -> tuple[Amount, ...]:
    """Bytes of the tiles that a block loads for ``wgmma``."""
    products = [i for i in block.instructions if _is_product(i) and contraction_shape(i)[0] >= WGMMA_ROWS]
    fed = {operand for product in products for operand in product.operands}
    loads = (i for i in block.instructions if i.op == "load" and i.result in fed)
    return tuple(dict.fromkeys(shapes.bytes([load.result]) for load in loads))


def _is_product(instruction: Instruction) -> bool:
    return instruction.op == "contract" and is_tensor_core(instruction)
