"""What each consumer has of the tiles that are loaded: rows of its own, or a part of what all have.

Where a tensor is an operand in two roles, as a latent cache is keys and values, and one of them is divided among the
consumers, each needs all of the tile as keys and its columns of it as values: a view of the same buffer in place of a
copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.bindings import ir
from cleave.lowering import tt
from cleave.lowering.exchange import PART
from cleave.lowering.producer import Row
from cleave.runtime.descriptors import DescriptorSpec

Specs = Mapping[ir.Value, DescriptorSpec]
"""By descriptor."""


def row_of(load: ir.Operation, first: ir.Value, spec: DescriptorSpec) -> Row | None:
    """For a load of which each part has its own: ``first``, where that begins, is in an offset."""
    offsets = list(load.operands)[1:]
    axis = next((axis for axis, offset in enumerate(offsets) if _follows(offset, first)), None)
    return None if axis is None else Row(axis, spec.extents[axis])


def _follows(value: ir.Value, source: ir.Value) -> bool:
    if value == source:
        return True
    owner = value.owner
    return not isinstance(owner, ir.Block) and any(_follows(operand, source) for operand in owner.operation.operands)


def without_parts(
    loads: Sequence[ir.Operation], specs: Specs, rows: Mapping[ir.Value, Row], first: ir.Value
) -> list[ir.Operation]:
    """The loads but for those of parts of others, in whose place come views. ``rows``: by what is loaded."""
    kept: list[ir.Operation] = []
    for load in loads:
        row = rows.get(load.results[0])
        before = [each for each in kept if each.block == load.block and each.results[0] not in rows]
        whole = row and next((each for each in before if _has_part(each, load, specs, row.axis, first)), None)
        if row and whole:
            _replace(load, whole, row)
        else:
            kept.append(load)
    return kept


def _has_part(whole: ir.Operation, load: ir.Operation, specs: Specs, axis: int, first: ir.Value) -> bool:
    """Whether ``load`` has what begins at ``first``, along the axis, of what ``whole`` has."""
    spec, full = (specs[op.operands[0]] for op in (load, whole))
    if (spec.operand, spec.axes) != (full.operand, full.axes) or full.extents[axis] % spec.extents[axis]:
        return False
    own, others = (list(op.operands)[1:] for op in (load, whole))
    further = _is_sum(own.pop(axis), others.pop(axis), first)
    return further and own == others and _without(spec.extents, axis) == _without(full.extents, axis)


def _is_sum(value: ir.Value, *terms: ir.Value) -> bool:
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.name == "arith.addi" and [*owner.operation.operands] == [*terms]


def _without(extents: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*extents[:axis], *extents[axis + 1 :])


def _replace(load: ir.Operation, whole: ir.Operation, row: Row) -> None:
    rank = len(list(load.operands)) - 1
    axis = row.axis - (rank - len(tt.shape_of(load.results[0])))
    with load.location, ir.InsertionPoint(load):
        part = tt.value(PART, load.results[0].type, whole.results[0], axis=tt.i32_attr(axis))
    load.results[0].replace_all_uses_with(part)
    load.erase()
