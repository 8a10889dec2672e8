"""Independent kernels side by side: one launch whose grid is theirs one after the other.

    if pid < count₀:  body₀(pid)
    if count₀ <= pid < count₀ + count₁:  body₁(pid − count₀)
    …

The branches stand in a row, not one in another's else: there Triton gives two of them shared memory side by side.

It saves launches, fills multiprocessors that the last blocks of each kernel would leave idle, and what several kernels
read comes from memory once. A block has the shared memory and the registers of the largest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cleave.dialects.dims import Size, ceildiv, const, maximum
from cleave.dialects.graph import Value
from cleave.schedule.rename import viewed
from cleave.schedule.tile_program import Block, Instruction, Kernel, Launch, Ref, TileBuilder


def levels(kernels: Sequence[tuple[Sequence[Value], Sequence[Value]]]) -> list[list[int]]:
    """The indices of kernels that (read, write) these values, by how many must run before one after another: those of
    one level are independent."""
    level_of: dict[Value, int] = {}
    found: list[list[int]] = []
    for index, (read, written) in enumerate(kernels):
        before = [level_of[viewed(value)] for value in read if viewed(value) in level_of]
        level = max(before, default=-1) + 1
        level_of |= dict.fromkeys(written, level)
        if level == len(found):
            found.append([])
        found[level].append(index)
    return found


def outputs_of(launch: Launch) -> list[Value]:
    """The values that a launch writes."""
    pairs = zip(launch.kernel.arguments, launch.operands, strict=True)
    return [value for argument, value in pairs if argument in launch.kernel.outputs]


def arguments_of(launches: Sequence[Launch]) -> dict[Value, Ref]:
    """Those of one launch in place of these: what several read is one argument; what they write comes last."""
    written = [value for launch in launches for value in outputs_of(launch)]
    read = [value for launch in launches for value in launch.operands if value not in written]
    return {value: Ref(value.type) for value in (*dict.fromkeys(read), *written)}


def parts_of(launches: Sequence[Launch]) -> tuple[Kernel, ...]:
    """Their kernels as they are side by side: with descriptors if all are."""
    descriptors = all(launch.kernel.descriptors for launch in launches)
    return tuple(replace(launch.kernel, descriptors=descriptors) for launch in launches)


def side_by_side(name: str, launches: Sequence[Launch], extents: Mapping[str, int]) -> Launch:
    """One launch in place of independent ones whose kernels have the same numbers of warps and stages."""
    parts, arguments = parts_of(launches), arguments_of(launches)
    body = _Branches(launches, arguments, extents).body()
    grid = sum((part.grid[0] for part in parts[1:]), parts[0].grid[0])
    kernel = Kernel(
        name,
        tuple(arguments.values()),
        tuple(arguments[value] for launch in launches for value in outputs_of(launch)),
        (grid,),
        body,
        parts[0].num_warps,
        parts[0].num_stages,
        descriptors=parts[0].descriptors,
        beside=parts,
    )
    return Launch(kernel, tuple(arguments))


class _Branches:
    def __init__(self, launches: Sequence[Launch], arguments: Mapping[Value, Ref], extents: Mapping[str, int]) -> None:
        self.launches, self.arguments, self.extents = launches, arguments, extents
        self.root = TileBuilder(Block())
        self.block_index = self.root.add("program_id", (), None, axis=0)

    def body(self) -> Block:
        start = const(0)
        for launch in self.launches:
            end = start + launch.kernel.grid[0]
            inside = self._branch("ult", end, self.root)
            self._append_body(launch, start, launch.kernel.grid[0], self._branch("uge", start, inside))
            start = end
        return self.root.block

    def _branch(self, predicate: str, than: Size, builder: TileBuilder) -> TileBuilder:
        """Code for the blocks whose index is so much less or greater."""
        limit = builder.extent(than, self.extents)
        condition = builder.add("arith.cmpi", (self.block_index, limit), None, predicate=predicate)
        then = Block()
        builder.block.instructions.append(Instruction("scf.if", (condition,), (), {}, then, None, Block()))
        return TileBuilder(then, self.root)

    def _append_body(self, launch: Launch, start: Size, count: Size, builder: TileBuilder) -> None:
        refs = dict(zip(launch.kernel.arguments, (self.arguments[v] for v in launch.operands), strict=True))
        own = self._own_index(start, count, builder)
        builder.block.instructions += _copied(launch.kernel.body, refs, own).instructions

    def _own_index(self, start: Size, count: Size, builder: TileBuilder) -> Ref:
        """The block's index among those of its kernel: index − start, as a remainder, whose bounds are known.

        No block has one where ``count`` is 0.
        """
        some = maximum(count, const(1))
        offset = builder.extent(some * ceildiv(start, some) - start, self.extents)
        moved = builder.arith("addi", self.block_index, offset)
        return builder.arith("remui", moved, builder.extent(count, self.extents))


def _copied(block: Block, refs: dict[Ref, Ref], block_index: Ref) -> Block:
    """The block with other tensors and another block index; ``refs`` collects what stands for what."""
    instructions: list[Instruction] = []
    for instruction in block.instructions:
        if instruction.op == "program_id":
            refs[instruction.result] = block_index
            continue
        operands = tuple(refs.get(operand, operand) for operand in instruction.operands)
        body = _copied(instruction.body, refs, block_index) if instruction.body else None
        instructions.append(replace(instruction, operands=operands, body=body))
    return Block(block.arguments, instructions, tuple(refs.get(ref, ref) for ref in block.yields))
