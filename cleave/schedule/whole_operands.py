"""Tiles of the parts of a split, loaded from the whole tensor: so descriptors can describe it.

Along a split dim what lies behind a part is the next one's, and behind the last nothing that is the tensor's. Where
tiles divide parts evenly none reaches over a part's end but the last part's, which is the tensor's own: element j of
part i is i·length + j of the whole, and at its end tiles are filled as descriptors do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.dialects.dims import Dim, Size, const
from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import TensorType
from cleave.schedule.tile_program import Block, Instruction, Kernel, Launch, Ref


def with_whole_operands(launch: Launch, extents: Mapping[str, int]) -> Launch:
    """The launch with whole tensors in place of parts, where its kernel is to load through descriptors."""
    kernel = launch.kernel
    if kernel.beside or not (kernel.descriptors or kernel.warp_specialised):
        return launch
    found = [_whole(kernel, *pair, extents) for pair in zip(kernel.arguments, launch.operands, strict=True)]
    wholes = {each.part: each for each in found if each}
    if not wholes:
        return launch
    arguments = tuple(wholes[ref].whole if ref in wholes else ref for ref in kernel.arguments)
    operands = tuple(each.value if each else value for each, value in zip(found, launch.operands, strict=True))
    body = _Rewriting(wholes, extents).kernel(kernel.body)
    return replace(launch, kernel=replace(kernel, arguments=arguments, body=body), operands=operands)


def even_loads(kernel: Kernel, operands: Sequence[Value]) -> frozenset[Ref]:
    """Tiles of parts that will be tiles of whole tensors, as extents say, wherever loops begin: what a kernel of these
    graph values is weighed by."""
    found: set[Ref] = set()
    for part, value in zip(kernel.arguments, operands, strict=True):
        dims = _dims_of_part(kernel, part, value)
        loads = [i for i in kernel.body.walk() if part in i.operands] if dims else []
        if dims and all(_has_even_tiles(load, *dims) for load in loads):
            found |= {load.result for load in loads}
    return frozenset(found)


@dataclass(frozen=True, eq=False)
class _Whole:
    """The argument for ``part``: ``value``, the tensor with its split dim called as the parts' inner one is."""

    part: Ref
    whole: Ref
    value: Value
    outer: str
    inner: str
    length: Size


def _whole(kernel: Kernel, part: Ref, value: Value, extents: Mapping[str, int]) -> _Whole | None:
    """None where some load must be one of the parts."""
    dims = _dims_of_part(kernel, part, value)
    if dims is None:
        return None
    outer, inner = dims
    uses = [i for i in kernel.body.walk() if part in i.operands]
    starts = dict(_starts(kernel.body))
    if not uses or not all(_is_even(load, outer, inner, starts) for load in uses):
        return None
    whole = _unsplit(value, inner.name)
    return _Whole(part, Ref(whole.type), whole, outer.name, inner.name, inner.size)


def _dims_of_part(kernel: Kernel, part: Ref, value: Value) -> tuple[Dim, Dim] | None:
    """The outer and the inner dim of an argument that is a split, and nothing that the kernel writes."""
    split = _split_of(value)
    if split is None or part in kernel.outputs or part in {*kernel.roles, *kernel.roles.values()}:
        return None
    outer, inner = (Dim.parse(text) for text in split.attrs["into"])
    return outer, inner


def _split_of(value: Value) -> Value | None:
    """The split that a value is, but for names of other dims."""
    if value.op == "rename":
        split = _split_of(value.operands[0])
        kept = split and value.attrs["from"] not in (Dim.parse(text).name for text in split.attrs["into"])
        return split if kept else None
    return value if value.op == "split" else None


def _unsplit(value: Value, inner: str) -> Value:
    """The whole tensor with the same names, the split dim called ``inner``."""
    (source,), attrs = value.operands, value.attrs
    if value.op == "rename":
        source = _unsplit(source, inner)
        old, new = attrs["from"], Dim.parse(attrs["to"])
    else:
        old, new = attrs["dim"], Dim(inner, source.size(attrs["dim"]))
    dims = tuple(new if each.name == old else each for each in source.dims)
    return Value("rename", (source,), TensorType(dims, value.dtype), {"from": old, "to": str(new)})


def _has_even_tiles(load: Instruction, outer: Dim, inner: Dim) -> bool:
    """Whether it loads tiles of one part that divide it."""
    if load.op != "load" or outer.name in load.result.names or inner.name not in load.result.names:
        return False
    if outer.name not in load.attrs.get("in_bounds", ()) or load.attrs["fill"] != 0:
        return False
    extent = load.result.tile.size(inner.name).value or 0
    return bool(extent) and all(coefficient % extent == 0 for _, coefficient in inner.size.terms)


def _is_even(load: Instruction, outer: Dim, inner: Dim, starts: Mapping[Ref, tuple[int, int]]) -> bool:
    """Whether these tiles come one after the other from the part's beginning, too."""
    if not _has_even_tiles(load, outer, inner):
        return False
    extent = load.result.tile.size(inner.name).value or 0
    low, step = starts.get(load.operands[1 + load.operands[0].names.index(inner.name)], (1, 1))
    return low % extent == 0 and step % extent == 0


def _starts(block: Block) -> Iterator[tuple[Ref, tuple[int, int]]]:
    """Of loops' indices, numbers that where they begin and their steps are known to be multiples of."""
    everything = list(block.walk())
    constants = {i.result: i.attrs["value"] for i in everything if i.op == "arith.constant"}
    for i in everything:
        if i.op == "arith.muli":
            factors = [constants[ref] for ref in i.operands if ref in constants]
            constants |= {i.result: factors[0]} if factors else {}
    for loop in everything:
        if loop.op == "scf.for" and loop.body and all(ref in constants for ref in (loop.operands[0], loop.operands[2])):
            yield loop.body.arguments[0], (constants[loop.operands[0]], constants[loop.operands[2]])


class _Rewriting:
    def __init__(self, wholes: Mapping[Ref, _Whole], extents: Mapping[str, int]) -> None:
        self.wholes, self.extents = wholes, extents
        self.sizes: dict[Size, Ref] = {}
        self.made: list[Instruction] = []

    def kernel(self, body: Block) -> Block:
        found = self._block(body)
        return Block(found.arguments, [*self.made, *found.instructions], found.yields)

    def _block(self, block: Block) -> Block:
        instructions: list[Instruction] = []
        for each in block.instructions:
            whole = self.wholes.get(each.operands[0]) if each.op == "load" else None
            if whole:
                instructions += self._loaded(each, whole)
            else:
                inner = {name: self._block(body) for name in ("body", "otherwise") if (body := getattr(each, name))}
                instructions.append(replace(each, **inner) if inner else each)
        return Block(block.arguments, instructions, block.yields)

    def _loaded(self, load: Instruction, whole: _Whole) -> list[Instruction]:
        """The load, and where it begins: within the tensor, as there is such a tile, whatever loops' bounds say."""
        names = whole.part.names
        offsets = dict(zip(names, load.operands[1 : 1 + len(names)], strict=True))
        bounds = dict(zip(names, load.operands[1 + len(names) :], strict=True))
        ahead, begin, first, last = Ref(), Ref(), Ref(), Ref()
        size = whole.whole.tile.size(whole.inner)
        steps = [
            Instruction("arith.muli", (offsets[whole.outer], self._size(whole.length)), (ahead,)),
            Instruction("arith.addi", (ahead, offsets[whole.inner]), (begin,)),
            Instruction("arith.maxsi", (begin, self._size(const(0))), (first,)),
            Instruction("arith.minsi", (first, self._size(size - 1)), (last,)),
        ]
        offsets[whole.inner], bounds[whole.inner] = last, self._size(size)
        kept = whole.whole.names
        operands = (whole.whole, *(offsets[name] for name in kept), *(bounds[name] for name in kept))
        inside = tuple(name for name in load.attrs["in_bounds"] if name != whole.outer)
        attrs = {**load.attrs, "segments": (1, len(kept), len(kept)), "in_bounds": inside}
        return [*steps, replace(load, operands=operands, attrs=attrs)]

    def _size(self, size: Size) -> Ref:
        if size not in self.sizes:
            known = size.evaluate(self.extents) if size.symbols <= self.extents.keys() else None
            op, attrs = ("extent", {"size": str(size)}) if known is None else ("arith.constant", {"value": known})
            self.sizes[size] = Ref()
            self.made.append(Instruction(op, (), (self.sizes[size],), attrs))
        return self.sizes[size]
