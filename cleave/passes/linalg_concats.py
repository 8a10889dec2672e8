"""Padding, and slices written into a tensor along one axis, as concatenations of what stands there in the end.

Exporters that know no ``tensor.concat`` write one as a chain of ``tensor.insert_slice`` into fresh memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def to_concats(func: ir.Operation) -> None:
    """Rewrite what has static extents and leaves nothing unwritten: pads by a constant, slices that cut one axis."""
    for view in list(func.regions[0].blocks[0].operations):
        op = view.operation
        rewrite = _RULES.get(op.name)
        new = rewrite(op) if rewrite else None
        if new is not None:
            op.results[0].replace_all_uses_with(new)


def _padded(op: ir.Operation) -> ir.Value | None:
    """One axis after the other between two constants."""
    value, filling = op.operands[0], list(op.regions[0].blocks[0].operations)[-1].operation.operands[0].owner
    low, high = (list(op.attributes[f"static_{side}"]) for side in ("low", "high"))  # pyright: ignore
    constant = not isinstance(filling, ir.Block) and filling.name == "arith.constant"
    if not constant or None in shape_of(value) or min((*low, *high, 0)) < 0:  # dynamic amounts are negative
        return None
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        sides = [_splat(op, filling.attributes["value"], _resized(value, axis, size)) for size in (before, after)]
        parts = [part for part in (sides[0], value, sides[1]) if shape_of(part)[axis]]
        value = _concat(op, axis, parts or [value])
    return value


def _resized(value: ir.Value, axis: int, size: int) -> ir.Type:
    """The type of a tensor with another extent on an axis."""
    shape = [size if number == axis else extent or 0 for number, extent in enumerate(shape_of(value))]
    return ir.RankedTensorType.get(shape, ir.RankedTensorType(value.type).element_type)


def _splat(op: ir.Operation, element: ir.Attribute, type_: ir.Type) -> ir.Value:
    attributes = {"value": ir.DenseElementsAttr.get_splat(type_, element)}
    point = ir.InsertionPoint(op)
    return ir.Operation.create("arith.constant", [type_], [], attributes, loc=op.location, ip=point).results[0]


def _written(op: ir.Operation) -> ir.Value | None:
    cut = _cut(op)
    pieces = _pieces(op.results[0], cut.axis) if cut else []
    if cut is None or any(piece.value is None for piece in pieces):
        return None
    parts = [_taken(piece, cut.axis, op) for piece in pieces if piece.size]
    return _concat(op, cut.axis, parts or [op.operands[1]])


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


def _concat(op: ir.Operation, axis: int, parts: Sequence[ir.Value]) -> ir.Value:
    """Tensors of static extents one after the other, before ``op``."""
    if len(parts) == 1:
        return parts[0]
    type_ = _resized(parts[0], axis, sum(shape_of(part)[axis] or 0 for part in parts))
    attributes = {"dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)}
    point = ir.InsertionPoint(op)
    return ir.Operation.create("tensor.concat", [type_], parts, attributes, loc=op.location, ip=point).results[0]


def _taken(piece: _Piece, axis: int, op: ir.Operation) -> ir.Value:
    """The piece as a tensor, before ``op``: all of one, or a slice of it."""
    assert piece.value is not None
    rank = len(shape_of(piece.value))
    if piece.size == shape_of(piece.value)[axis]:
        return piece.value
    type_ = ir.RankedTensorType(_resized(piece.value, axis, piece.size))
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get([piece.start if number == axis else 0 for number in range(rank)]),
        "static_sizes": ir.DenseI64ArrayAttr.get(type_.shape),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * rank),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
    }
    point, sources = ir.InsertionPoint(op), [piece.value]
    slice_ = ir.Operation.create("tensor.extract_slice", [type_], sources, attributes, loc=op.location, ip=point)
    return slice_.results[0]


_RULES: dict[str, Callable[[ir.Operation], ir.Value | None]] = {
    "tensor.pad": _padded,
    "tensor.insert_slice": _written,
}
