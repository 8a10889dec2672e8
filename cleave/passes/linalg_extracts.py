"""Bodies that read a tensor at their own loop indices: the tensor becomes an operand with an indexing map.

PyTorch's exporter writes the broadcast of a dynamic dimension as ``tensor.extract %t[…, select(dim == 1, 0, i), …]``.
Where ``dim`` is the extent of that very axis and the loop runs over as many elements, this reads element ``i``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from cleave.bindings import ir
from cleave.passes.linalg_body import Unraisable
from cleave.passes.linalg_connect import Connector, extent_of, integer_literal

#: An axis of an argument of the function: their numbers.
ArgumentAxis = tuple[int, int]


@dataclass(frozen=True)
class Tie:
    """Two axes of arguments that are taken to have one size, by the op at ``location``."""

    one: ArgumentAxis
    other: ArgumentAxis
    location: ir.Location

    def __str__(self) -> str:
        return (
            f"axis {self.one[1]} of argument {self.one[0]}, which the program would broadcast if its extent were 1, "
            f"is taken to have the size of axis {self.other[1]} of argument {self.other[0]}"
        )


@dataclass(frozen=True)
class _Read:
    """An extract at loop indices: axis i is read at loop ``loops[i]``; ``ties``: only if these axes have one size."""

    op: ir.Operation
    loops: tuple[int, ...]
    ties: tuple[Tie, ...]


def extracts_to_operands(func: ir.Operation) -> list[Tie]:
    """Rewrite what can be; what that takes for granted."""
    ties: list[Tie] = []
    while True:
        block = func.regions[0].blocks[0]
        connector = _connected(block, ties)
        for view in block.operations:
            read = _first_read(view.operation, connector) if view.operation.name == "linalg.generic" else None
            if read is not None:
                ties.extend(read.ties)
                _add_operand(view.operation, read)
                break
        else:
            return ties


def tie(connector: Connector, block: ir.Block, ties: Sequence[Tie]) -> None:
    """Make the tied axes of arguments one dim each."""
    for each in ties:
        one, other = (connector.axes(block.arguments[n])[axis] for n, axis in (each.one, each.other))
        connector.classes.unite(one, other)


def _connected(block: ir.Block, ties: Sequence[Tie]) -> Connector:
    connector = Connector()
    tie(connector, block, ties)
    for number, view in enumerate(block.operations):
        try:
            connector.connect(number, view.operation)
        except Unraisable:
            continue
    return connector


def _first_read(op: ir.Operation, connector: Connector) -> _Read | None:
    for view in op.regions[0].blocks[0].operations:
        if view.operation.name == "tensor.extract":
            read = _read(op, view.operation, connector)
            if read is not None:
                return read
    return None


def _read(generic: ir.Operation, extract: ir.Operation, connector: Connector) -> _Read | None:
    source, *indices = extract.operands
    loops: list[int] = []
    ties: list[Tie] = []
    for axis, index in enumerate(indices):
        if _is_made_by(index, "arith.select"):
            needed = _ties(generic, index.owner.operation, connector.axes(source)[axis], axis, connector)
            if needed is None:
                return None
            ties += needed
            index = index.owner.operands[2]
        if not _is_made_by(index, "linalg.index"):
            return None
        loops.append(ir.IntegerAttr(index.owner.attributes["dim"]).value)
    return _Read(extract, tuple(loops), tuple(ties)) if len(set(loops)) == len(loops) else None


def _is_made_by(value: ir.Value, name: str) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == name


def _ties(
    generic: ir.Operation, select: ir.Operation, read: Hashable, axis: int, connector: Connector
) -> list[Tie] | None:
    """What must be tied so that an index of 0 for an axis of extent 1 is the loop's; None if it cannot be."""
    find = connector.classes.find
    tested, run = _broadcast_test(select), _run_of(generic, select.operands[2])
    if tested is None or run is None or find(tested) != find(read):
        return None
    if find(run) == find(tested):
        return []
    if not _are_arguments(tested, run):
        return None
    one, other = ((ir.BlockArgument(tensor).arg_number, axis) for tensor, axis in (tested, run))
    return [Tie(one, other, generic.location)]


def _broadcast_test(select: ir.Operation) -> tuple[ir.Value, int] | None:
    """For ``select(dim == 1, 0, …)`` the tensor and the axis whose extent ``dim`` is."""
    test, zero, _ = select.operands
    if not _is_made_by(test, "arith.cmpi") or integer_literal(zero) != 0:
        return None
    extent, one = test.owner.operands
    is_equality = ir.IntegerAttr(test.owner.attributes["predicate"]).value == 0
    return extent_of(extent) if is_equality and integer_literal(one) == 1 else None


def _are_arguments(*nodes: tuple[ir.Value, int]) -> bool:
    return all(isinstance(tensor.owner, ir.Block) for tensor, _ in nodes)


def _run_of(generic: ir.Operation, index: ir.Value) -> tuple[ir.Value, int] | None:
    """The tensor and axis whose extent is known to be that of a loop, given by its ``linalg.index``."""
    if not _is_made_by(index, "linalg.index"):
        return None
    loop = ir.IntegerAttr(index.owner.attributes["dim"]).value
    out = generic.operands[len(generic.operands) - len(generic.results)]
    maps = [ir.AffineMapAttr(attribute).value for attribute in ir.ArrayAttr(generic.attributes["indexing_maps"])]
    results = maps[-len(generic.results)].results
    axes = [i for i, e in enumerate(results) if isinstance(e, ir.AffineDimExpr) and e.position == loop]
    if not axes or not _is_made_by(out, "tensor.empty"):
        return None
    shape = ir.RankedTensorType(out.type)
    dynamic = [axis for axis in range(shape.rank) if shape.is_dynamic_dim(axis)]
    return extent_of(out.owner.operands[dynamic.index(axes[0])]) if axes[0] in dynamic else None


def _add_operand(op: ir.Operation, read: _Read) -> None:
    """Give ``op`` the tensor of ``read`` as its last input."""
    outputs = len(op.results)
    inputs = len(op.operands) - outputs
    operands = list(op.operands)
    operands.insert(inputs, read.op.operands[0])
    maps = list(ir.ArrayAttr(op.attributes["indexing_maps"]))
    rank = ir.AffineMapAttr(maps[0]).value.n_dims
    map_ = ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(loop) for loop in read.loops])
    maps.insert(inputs, ir.AffineMapAttr.get(map_))
    attributes = {
        "indexing_maps": ir.ArrayAttr.get(maps),
        "iterator_types": op.attributes["iterator_types"],
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([inputs + 1, outputs]),
    }
    types = [result.type for result in op.results]
    new = ir.Operation.create("linalg.generic", types, operands, attributes, regions=1, loc=op.location,
                              ip=ir.InsertionPoint(op))  # fmt: skip
    _copy_body(op.regions[0].blocks[0], new.regions[0], read.op, inputs)
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    op.erase()


def _copy_body(old: ir.Block, region: ir.Region, extract: ir.Operation, position: int) -> None:
    """The ops of ``old`` in a new block that has the extracted element as its argument ``position``."""
    types = [argument.type for argument in old.arguments]
    types.insert(position, extract.results[0].type)
    block = region.blocks.append(*types, arg_locs=[extract.location] * len(types))
    arguments = list(block.arguments)
    known: dict[ir.Value, ir.Value] = {extract.results[0]: arguments.pop(position)}
    known |= dict(zip(old.arguments, arguments, strict=True))
    for view in old.operations:
        if view.operation == extract:
            continue
        copy = view.operation.clone(ip=ir.InsertionPoint(block)).operation
        for index, operand in enumerate(copy.operands):
            if operand in known:
                copy.operands[index] = known[operand]
        known |= dict(zip(view.operation.results, copy.results, strict=True))
