"""What a thread block occupies: bytes of tiles in shared memory and in registers."""

from __future__ import annotations

from collections.abc import Mapping

from cleave.schedule.tile_program import LOADS, Block, Instruction, Kernel, Ref
from cleave.schedule.tile_sizes import bytes_of, contraction_shape, is_tensor_core


def _is_matrix_product(instruction: Instruction) -> bool:
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
    fed = {operand for i in kernel.body.walk() if _is_matrix_product(i) for operand in i.operands}
    return _staged(kernel.body, fed, kernel), _streamed(kernel.body, fed, kernel)


def _staged(block: Block, fed: set[Ref], kernel: Kernel, *, every: bool = False) -> int:
    """Bytes of the loads of a block, without its loops, that feed contractions, or of all of them."""
    repeated = repeated_loads(block, kernel.roles)
    loads = [i for i in block.instructions if i.op in LOADS and i not in repeated]
    return sum(bytes_of(load.result) for load in loads if every or load.result in fed)


def _streamed(block: Block, fed: set[Ref], kernel: Kernel) -> int:
    """Bytes of the loop of a block that needs most; loops after one another use the same memory."""
    bodies = [instruction.body for instruction in block.instructions if instruction.body]
    every = [any(_is_matrix_product(i) for i in body.instructions) for body in bodies]
    needs = (
        _staged(body, fed, kernel, every=whole) + _streamed(body, fed, kernel)
        for body, whole in zip(bodies, every, strict=True)
    )
    return max(needs, default=0)


def live_bytes(kernel: Kernel) -> tuple[int, int]:
    """Bytes of the most tiles that are in registers at once, and of those the ones that a loop does not carry."""
    fed = {operand for i in kernel.body.walk() if i.op == "contract" for operand in i.operands}
    loops = (_live_inside(i.body, 0) for i in kernel.body.walk() if i.body)
    return max([(_peak(kernel.body, fed), 0), *loops])


def _live_inside(loop: Block, around: int) -> tuple[int, int]:
    """The accumulators of a loop, and the largest other tile of its register code or what its inner loops take."""
    carried = around + sum(bytes_of(ref) for ref in loop.arguments[1:])
    used = {ref for i in loop.walk() for ref in (*i.operands, *(i.body.yields if i.body else ()))} | set(loop.yields)
    in_place = _updates(loop)
    largest, inner = 0, (0, 0)
    for instruction in loop.instructions:
        if instruction.body:
            inner = max(inner, _live_inside(instruction.body, carried))
        if instruction.op in (*LOADS, "constant", "index") or not instruction.results or instruction.body:
            continue
        if instruction.op == "contract" and not is_tensor_core(instruction):
            largest = max(largest, sum(map(bytes_of, (*instruction.operands, instruction.result))))
        if instruction.result.type and instruction.result in used - in_place:
            largest = max(largest, bytes_of(instruction.result))
    return max((carried + largest, largest), inner)


def _peak(block: Block, fed: set[Ref]) -> int:
    """Of the code outside loops: an op puts its result in the place of operands that nothing else needs.

    ``fed``: operands of contractions, which stay in shared memory.
    """
    last = {ref: number for number, i in enumerate(block.instructions) for ref in i.operands}
    live: set[Ref] = set()
    peak = 0
    for number, instruction in enumerate(block.instructions):
        live = {ref for ref in live if last.get(ref, -1) > number}
        if instruction.op not in ("constant", "index"):
            live |= {ref for ref in instruction.results if ref.type and ref not in fed}
        peak = max(peak, sum(map(bytes_of, live)))
    return peak


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
