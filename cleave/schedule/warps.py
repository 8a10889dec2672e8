"""What a block's warps have to do with one another: what they exchange, and what they copy for ``wgmma`` together."""

from __future__ import annotations

from cleave.schedule.tile_program import Block, Instruction, Ref
from cleave.schedule.tile_sizes import bytes_of, contraction_shape, is_tensor_core

WGMMA_ROWS = 64
"""Rows of a tile from which on ``wgmma`` computes it."""
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


def is_between_warps(reduction: Instruction) -> bool:
    """Whether a row of a tile in registers is more than one warp has, of the dim that varies fastest and is reduced."""
    tile = reduction.operands[0].tile
    fastest = tile.dims[-1] if tile.dims else None
    return fastest is not None and fastest.name in reduction.attrs["over"] and (fastest.size.value or 1) > WARP_ROW


def narrowest_copy(block: Block) -> float:
    """Bytes of the smallest tile that a block loads for ``wgmma``; infinite without one."""
    products = [i for i in block.instructions if _is_product(i) and contraction_shape(i)[0] >= WGMMA_ROWS]
    fed = {operand for product in products for operand in product.operands}
    loads = (i for i in block.instructions if i.op == "load" and i.result in fed)
    return min((float(bytes_of(load.result)) for load in loads), default=float("inf"))


def _is_product(instruction: Instruction) -> bool:
    return instruction.op == "contract" and is_tensor_core(instruction)
