"""What a thread block occupies: bytes of tiles in shared memory and in registers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cleave.dialects.ops import POINTWISE
from cleave.schedule.tile_program import LOADS, Block, Instruction, Kernel, Ref
from cleave.schedule.tile_sizes import Amount, Shapes, is_matrix_product, is_tensor_core, left_operand

FREE = ("constant", "index", "splat", "extent", "program_id")
"""Instructions whose results are made where they are needed."""


@dataclass(frozen=True)
class Occupied:
    """What a block occupies as a function of tile extents: shared memory outside loops, and of its paths into loops;
    register code outside loops at its peaks; for each loop what it carries, and the peaks of the rest."""

    resident: Amount
    streamed: tuple[Amount, ...]
    outside: tuple[Amount, ...]
    inside: tuple[tuple[Amount, tuple[Amount, ...]], ...]

    def shared(self, elements: Sequence[int]) -> tuple[int, int]:
        """Bytes of tiles in shared memory, outside and inside loops: loops after one another use the same memory."""
        return self.resident.of(elements), _most(self.streamed, elements)

    def live(self, elements: Sequence[int]) -> tuple[int, int]:
        """Bytes of the most tiles that are in registers at once, and of those the ones that a loop does not carry."""
        found = (_most(self.outside, elements), 0)
        for carried, others in self.inside:
            largest = _most(others, elements)
            found = max(found, (carried.of(elements) + largest, largest))
        return found


def _most(amounts: Iterable[Amount], elements: Sequence[int]) -> int:
    return max([amount.of(elements) for amount in amounts], default=0)


def occupied(kernel: Kernel, shapes: Shapes) -> Occupied:
    """Shared memory has outside loops what feeds contractions; every load of a loop with a contraction.

    So measured: Triton 3.6 gives a mask that no contraction reads as many buffers as the keys, and Triton 3.7 none to
    the loads of loops without contractions.
    """
    multiplied = {operand for i in kernel.body.walk() if is_matrix_product(i) for operand in i.operands}
    fed = {operand for i in kernel.body.walk() if i.op == "contract" for operand in i.operands}
    loads = _Loads(multiplied, kernel.roles, shapes)
    code = _RegisterCode(fed, kernel.roles, shapes)
    loops = [each for i in kernel.body.walk() if i.body for each in code.inside(i.body, Amount())]
    return Occupied(
        loads.staged(kernel.body),
        tuple(dict.fromkeys(loads.streamed(kernel.body))),
        tuple(dict.fromkeys(code.peaks(kernel.body))),
        tuple(dict.fromkeys(loops)),
    )


@dataclass(frozen=True)
class _Loads:
    """``fed``: operands of matrix products."""

    fed: set[Ref]
    roles: Mapping[Ref, Ref]
    shapes: Shapes

    def staged(self, block: Block, *, every: bool = False) -> Amount:
        """The loads of a block, without its loops, that feed contractions, or all of them."""
        repeated = repeated_loads(block, self.roles)
        loads = (i.result for i in block.instructions if i.op in LOADS and i not in repeated)
        return self.shapes.bytes(load for load in loads if every or load in self.fed)

    def streamed(self, block: Block) -> Iterator[Amount]:
        """Of the loops of a block, one inside the other."""
        for body in [instruction.body for instruction in block.instructions if instruction.body]:
            own = self.staged(body, every=any(is_matrix_product(i) for i in body.instructions))
            inner = list(self.streamed(body))
            yield from [own + each for each in inner] or [own]


@dataclass(frozen=True)
class _RegisterCode:
    """``fed``: operands of contractions, which stay in shared memory."""

    fed: set[Ref]
    roles: Mapping[Ref, Ref]
    shapes: Shapes

    def inside(self, loop: Block, around: Amount) -> Iterator[tuple[Amount, tuple[Amount, ...]]]:
        """The accumulators of a loop and those ``around`` it, and the other tiles of its register code of which the
        largest counts, or a product beside its rows, if these are computed; without contractions, its tiles that are
        needed at once. Then those of the loops in it."""
        carried = around + self.shapes.bytes(loop.arguments[1:])
        used = {ref for i in loop.walk() for ref in (*i.operands, *(i.body.yields if i.body else ()))}
        kept = (used | set(loop.yields)) - _updates(loop)
        code = [i for i in loop.instructions if i.results and not i.body and i.op not in (*LOADS, "constant", "index")]
        made = {i.result for i in code}
        others = self.shapes.each(i.result for i in code if i.result.type and i.result in kept)
        for instruction in code:
            if instruction.op == "contract" and not is_tensor_core(instruction):
                others.append(self.shapes.bytes((*instruction.operands, instruction.result)))
            elif is_matrix_product(instruction) and instruction.result in kept and left_operand(instruction) in made:
                others.append(self.shapes.bytes((left_operand(instruction), instruction.result)))
        if all(i.op != "contract" for i in loop.walk()):
            others += self.peaks(loop)
        yield carried, tuple(dict.fromkeys(others))
        for instruction in loop.instructions:
            if instruction.body:
                yield from self.inside(instruction.body, carried)

    def peaks(self, block: Block) -> Iterator[Amount]:
        """What is there before a reduction and needed after it, each product beside its rows if these are computed, and
        each tile.

        Between reductions each thread goes through its elements one after the other, so that only the first tiles of
        what they compute are whole; what is cast is there as what it was cast from.
        """
        origin = _origins(block, self.roles)
        made = {ref: number for number, i in enumerate(block.instructions) for ref in i.results if ref.type}
        last = {origin.get(ref, ref): number for number, i in enumerate(block.instructions) for ref in i.operands}
        counted = [ref for ref in made if ref not in origin and ref not in self.fed]
        tiles = [ref for ref in counted if block.instructions[made[ref]].op not in FREE]
        for number in [number for number, i in enumerate(block.instructions) if i.op == "reduce"]:
            yield self.shapes.bytes(ref for ref in tiles if made[ref] < number <= last.get(ref, -1))
        computed = {ref for ref in made if block.instructions[made[ref]].op not in (*LOADS, *FREE)}
        for product in [i for i in block.instructions if is_matrix_product(i) and left_operand(i) in computed]:
            yield self.shapes.bytes((left_operand(product), product.result))
        yield from self.shapes.each(tiles)


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
