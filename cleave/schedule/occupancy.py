"""What a thread block occupies: bytes of tiles in shared memory and in registers."""

from __future__ import annotations

from collections.abc import Mapping

from cleave.dialects.ops import POINTWISE
from cleave.schedule.tile_program import LOADS, Block, Instruction, Kernel, Ref
from cleave.schedule.tile_sizes import bytes_of, contraction_shape, is_tensor_core

FREE = ("constant", "index", "splat", "extent", "program_id")
"""Instructions whose results are made where they are needed."""


def is_matrix_product(instruction: Instruction) -> bool:
    """Whether it becomes ``tt.dot``, and not a product of registers that is summed."""
    if instruction.op != "contract":
        return False
    rows, columns, depth = contraction_shape(instruction)
    return min(rows, columns) >= 8 and max(rows, columns) >= 16 and depth >= 16


def shared_bytes(kernel: Kernel) -> tuple[int, int]:
    """Bytes of tiles in shared memory: outside loops what feeds contractions; every load of a loop with a contraction.

    So measured: Triton 3.6 gives a mask that no contraction reads as many buffers as the keys, and Triton 3.7 none to
    the loads of loops without contractions.
    """
    fed = {operand for i in kernel.body.walk() if is_matrix_product(i) for operand in i.operands}
    return _staged(kernel.body, fed, kernel), _streamed(kernel.body, fed, kernel)


def _staged(block: Block, fed: set[Ref], kernel: Kernel, *, every: bool = False) -> int:
    """Bytes of the loads of a block, without its loops, that feed contractions, or of all of them."""
    repeated = repeated_loads(block, kernel.roles)
    loads = [i for i in block.instructions if i.op in LOADS and i not in repeated]
    return sum(bytes_of(load.result) for load in loads if every or load.result in fed)


def _streamed(block: Block, fed: set[Ref], kernel: Kernel) -> int:
    """Bytes of the loop of a block that needs most; loops after one another use the same memory."""
    bodies = [instruction.body for instruction in block.instructions if instruction.body]
    every = [any(is_matrix_product(i) for i in body.instructions) for body in bodies]
    needs = (
        _staged(body, fed, kernel, every=whole) + _streamed(body, fed, kernel)
        for body, whole in zip(bodies, every, strict=True)
    )
    return max(needs, default=0)


def live_bytes(kernel: Kernel) -> tuple[int, int]:
    """Bytes of the most tiles that are in registers at once, and of those the ones that a loop does not carry."""
    fed = {operand for i in kernel.body.walk() if i.op == "contract" for operand in i.operands}
    loops = (_live_inside(i.body, 0, fed, kernel.roles) for i in kernel.body.walk() if i.body)
    return max([(_peak(kernel.body, fed, kernel.roles), 0), *loops])


def _live_inside(loop: Block, around: int, fed: set[Ref], roles: Mapping[Ref, Ref]) -> tuple[int, int]:
    """The accumulators of a loop, and the largest other tile of its register code or what its inner loops take; without
    contractions, its tiles that are needed at once."""
    carried = around + sum(bytes_of(ref) for ref in loop.arguments[1:])
    used = {ref for i in loop.walk() for ref in (*i.operands, *(i.body.yields if i.body else ()))} | set(loop.yields)
    in_place = _updates(loop)
    largest, inner = 0, (0, 0)
    for instruction in loop.instructions:
        if instruction.body:
            inner = max(inner, _live_inside(instruction.body, carried, fed, roles))
        if instruction.op in (*LOADS, "constant", "index") or not instruction.results or instruction.body:
            continue
        if instruction.op == "contract" and not is_tensor_core(instruction):
            largest = max(largest, sum(map(bytes_of, (*instruction.operands, instruction.result))))
        if instruction.result.type and instruction.result in used - in_place:
            largest = max(largest, bytes_of(instruction.result))
    if all(i.op != "contract" for i in loop.walk()):
        largest = max(largest, _peak(loop, fed, roles))
    return max((carried + largest, largest), inner)


def _peak(block: Block, fed: set[Ref], roles: Mapping[Ref, Ref]) -> int:
    """Of register code: what is there before a reduction and needed after it, or the largest tile.

    Between reductions each thread goes through its elements one after the other, so that only the first tiles of what
    they compute are whole; what is cast is there as what it was cast from. ``fed``: operands of contractions, which
    stay in shared memory.
    """
    origin = _origins(block, roles)
    made = {ref: number for number, i in enumerate(block.instructions) for ref in i.results if ref.type}
    last = {origin.get(ref, ref): number for number, i in enumerate(block.instructions) for ref in i.operands}
    tiles = [
        ref for ref in made if ref not in origin and ref not in fed and block.instructions[made[ref]].op not in FREE
    ]
    at = [number for number, i in enumerate(block.instructions) if i.op == "reduce"]
    live = (sum(bytes_of(ref) for ref in tiles if made[ref] < number <= last.get(ref, -1)) for number in at)
    return max([*live, *(bytes_of(ref) for ref in tiles)], default=0)


def _origins(block: Block, roles: Mapping[Ref, Ref]) -> dict[Ref, Ref]:
    """What tiles are made from that are casts, or loaded or computed a second time, under other names perhaps."""
    origin: dict[Ref, Ref] = {}
    seen: dict[object, Ref] = {}
    for i in block.instructions:
        operands = tuple(origin.get(operand, roles.get(operand, operand)) for operand in i.operands)
        if i.op == "cast":
            origin[i.result] = operands[0]
        elif i.op == "load" or i.op in POINTWISE:
            tile = i.result.tile
            key = (i.op, operands, tile.dtype, tuple(dim.size for dim in tile.dims))
            first = seen.setdefault(key, i.result)
            if first is not i.result:
                origin[i.result] = first
    return origin


def _updates(block: Block) -> set[Ref]:
    """The results that only update an accumulator in place: what is yielded, and what is added to make it."""
    found = set(block.yields)
    for instruction in block.instructions:
        if instruction.results and instruction.result in found and instruction.op in ("add", "cast"):
            found |= set(instruction.operands)
    return found


def repeated_loads(block: Block, roles: Mapping[Ref, Ref]) -> set[Instruction]:
    """Loads of what another load of the block has loaded, under other names perhaps: Triton makes them one."""
    seen: set[object] = set()
    found: set[Instruction] = set()
    for instruction in block.instructions:
        if instruction.op == "load":
            extents = tuple(dim.size for dim in instruction.result.tile.dims)
            source, *place = instruction.operands
            key = (roles.get(source, source), *place, extents)
            found |= {instruction} if key in seen else set()
            seen.add(key)
    return found
