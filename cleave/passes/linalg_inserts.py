"""Slices written into a tensor along one axis: a concatenation of what was written and of what is left.

Exporters that know no ``tensor.concat`` write one as a chain of ``tensor.insert_slice`` into fresh memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cleave.bindings import ir
from cleave.passes.linalg_body import Unraisable
from cleave.passes.linalg_connect import kept_axes, shape_of
from cleave.passes.linalg_raise import is_unwritten


class _Piece(NamedTuple):
    """``size`` elements of a tensor along the axis, from ``start`` on; None: memory that nothing has written."""

    value: ir.Value | None
    start: int
    size: int

    def part(self, start: int, end: int) -> _Piece:
        return _Piece(self.value, self.start + start, end - start)


class _Cut(NamedTuple):
    """Where an insert_slice writes."""

    axis: int
    offset: int
    size: int


def inserts_to_concats(func: ir.Operation) -> None:
    """Rewrite each insert_slice of static extents that leaves nothing unwritten and cuts one axis."""
    for view in list(func.regions[0].blocks[0].operations):
        op = view.operation
        cut = _cut(op) if op.name == "tensor.insert_slice" else None
        pieces = _pieces(op.results[0], cut.axis) if cut else []
        if cut and all(piece.value is not None for piece in pieces):
            op.results[0].replace_all_uses_with(_joined(op, cut.axis, pieces))


def _cut(op: ir.Operation) -> _Cut | None:
    """None where an extent, offset or size is dynamic, a stride is not 1, or several axes are cut."""
    try:
        _, whole = shape_of(op.operands[0]), shape_of(op.operands[1])
    except Unraisable:
        return None
    offsets, sizes, strides = (list(op.attributes[f"static_{what}"]) for what in ("offsets", "sizes", "strides"))  # pyright: ignore
    dynamic = ir.ShapedType.get_dynamic_size()
    if dynamic in (*sizes, *offsets) or None in whole or set(strides) != {1}:
        return None
    cut = [axis for axis, (part, extent) in enumerate(zip(sizes, whole, strict=True)) if part != extent] or [0]
    return _Cut(cut[0], offsets[cut[0]], sizes[cut[0]]) if len(cut) == 1 else None


def _pieces(value: ir.Value, axis: int) -> list[_Piece]:
    """What stands in a tensor along an axis, in order."""
    owner, extent = value.owner, shape_of(value)[axis] or 0
    if is_unwritten(value):
        return [_Piece(None, 0, extent)]
    cut = _cut(owner.operation) if not isinstance(owner, ir.Block) and owner.name == "tensor.insert_slice" else None
    if cut is None or cut.axis != axis:
        return [_Piece(value, 0, extent)]
    below = _pieces(owner.operands[1], axis)
    return [
        *_between(below, 0, cut.offset),
        _Piece(_with_all_axes(owner.operation), 0, cut.size),
        *_between(below, cut.offset + cut.size, extent),
    ]


def _between(pieces: Sequence[_Piece], start: int, end: int) -> Iterator[_Piece]:
    """Of pieces one after the other what is from ``start`` to ``end``."""
    first = 0
    for piece in pieces:
        low, high = max(start - first, 0), min(end - first, piece.size)
        if low < high:
            yield piece.part(low, high)
        first += piece.size


def _with_all_axes(op: ir.Operation) -> ir.Value:
    """What an insert_slice writes, with the axes that it lacks because their extent is 1."""
    source = op.operands[0]
    sizes: list[int] = list(op.attributes["static_sizes"])  # pyright: ignore
    if len(shape_of(source)) == len(sizes):
        return source
    ends = [*kept_axes(op, source)[1:], len(sizes)] if shape_of(source) else []
    groups = [list(range(start, end)) for start, end in zip([0, *ends[:-1]], ends, strict=False)]
    number = ir.IntegerType.get_signless(64)
    attributes = {
        "reassociation": ir.ArrayAttr.get(
            [ir.ArrayAttr.get([ir.IntegerAttr.get(number, axis) for axis in group]) for group in groups]
        ),
        "static_output_shape": ir.DenseI64ArrayAttr.get(sizes),
    }
    type_ = ir.RankedTensorType.get(sizes, ir.RankedTensorType(source.type).element_type)
    return ir.Operation.create(
        "tensor.expand_shape", [type_], [source], attributes, loc=op.location, ip=ir.InsertionPoint(op)
    ).results[0]


def _joined(op: ir.Operation, axis: int, pieces: Sequence[_Piece]) -> ir.Value:
    point, location = ir.InsertionPoint(op), op.location
    parts = [_taken(piece, axis, point, location) for piece in pieces if piece.size]
    if len(parts) == 1:
        return parts[0]
    attributes = {"dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)}
    return ir.Operation.create(
        "tensor.concat", [op.results[0].type], parts, attributes, loc=location, ip=point
    ).results[0]


def _taken(piece: _Piece, axis: int, point: ir.InsertionPoint, location: ir.Location) -> ir.Value:
    """The piece as a tensor: all of one, or a slice of it."""
    assert piece.value is not None
    shape = [extent or 0 for extent in shape_of(piece.value)]
    if piece.size == shape[axis]:
        return piece.value
    sizes = [piece.size if number == axis else extent for number, extent in enumerate(shape)]
    offsets = [piece.start if number == axis else 0 for number in range(len(shape))]
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get(offsets),
        "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * len(shape)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
    }
    type_ = ir.RankedTensorType.get(sizes, ir.RankedTensorType(piece.value.type).element_type)
    return ir.Operation.create(
        "tensor.extract_slice", [type_], [piece.value], attributes, loc=location, ip=point
    ).results[0]
