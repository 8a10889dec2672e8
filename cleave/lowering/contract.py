"""Contractions and reductions of tiles: ``tt.dot`` where tensor cores do it, products and ``tt.reduce`` elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.bindings import ir
from cleave.dialects.tensor_type import is_float
from cleave.errors import CleaveError
from cleave.lowering import exchange, tt
from cleave.lowering.tiles import Layout, Tile, aligned, common, full_width, of_dtype, permuted

_FP8 = ("f8E4M3FN", "f8E5M2")
_SMALLEST_M, _SMALLEST_N = 16, 8
_SMALLEST_K = {"f16": 16, "bf16": 16, "f32": 16, "f64": 16, "f8E4M3FN": 32, "f8E5M2": 32}

# --- reductions -------------------------------------------------------------------------------------------------------

Combine = Callable[[ir.Value, ir.Value], ir.Value]


def _pair(name: str) -> Combine:
    return lambda a, b: tt.same(name, a, b)


_FLOAT: Mapping[str, Combine] = {
    "sum": _pair("arith.addf"),
    "prod": _pair("arith.mulf"),
    "max": _pair("arith.maximumf"),
    "min": _pair("arith.minimumf"),
}
_INTEGER: Mapping[str, Combine] = {
    "sum": _pair("arith.addi"),
    "prod": _pair("arith.muli"),
    "max": _pair("arith.maxsi"),
    "min": _pair("arith.minsi"),
}
_BOOLEAN: Mapping[str, Combine] = {"prod": _pair("arith.andi"), "min": _pair("arith.andi"), "max": _pair("arith.ori")}


def reduction(operand: Tile, kind: str, over: Sequence[str], layout: Layout, *, across: bool = False) -> Tile:
    """``cleave.reduce``: sums and products of narrow floats in f32, rounded once. ``across``: of all consumers'."""
    tile = full_width(operand)
    floats = is_float(tile.dtype)
    if floats and tile.element not in ("f32", "f64"):
        tile = replace(tile, value=tt.cast(tile.value, "f32"))
    reduced = _reduced(tile, over, combination(kind, tile.dtype))
    if across:
        reduced = replace(reduced, value=exchange.combined(reduced.value, kind, tile.dtype))
    return _finished(reduced, layout)


def combination(kind: str, dtype: str) -> Combine:
    """Of two elements, in a reduction of this kind."""
    return (_FLOAT if is_float(dtype) else _BOOLEAN if dtype == "i1" else _INTEGER)[kind]


def _reduced(tile: Tile, over: Sequence[str], combine: Combine) -> Tile:
    for name in over:
        axis = tile.names.index(name)
        names = tuple(n for n in tile.names if n != name)
        shape = tuple(n for i, n in enumerate(tile.shape) if i != axis)
        tile = replace(tile, value=tt.reduce(tile.value, axis, combine), names=names, shape=shape)
    return tile


def _finished(tile: Tile, layout: Layout) -> Tile:
    """Rounded to the dtype of the result, in the order of its dimensions."""
    value = tt.cast(tile.value, layout.element)
    return aligned(replace(tile, value=value, dtype=layout.dtype), layout.names, layout.shape)


# --- contractions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """The dimensions of a contraction: of ``a`` only, of ``b`` only, summed over in both; and whether that is all."""

    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    rest: bool


def roles(a: Tile, b: Tile, over: Sequence[str]) -> Roles:
    m = tuple(name for name in a.names if name not in b.names and name not in over)
    n = tuple(name for name in b.names if name not in a.names and name not in over)
    k = tuple(name for name in over if name in a.names and name in b.names)
    rest = len(k) < len(over) or any(name in b.names and name not in over for name in a.names)
    return Roles(m, n, k, rest)


def contraction(a: Tile, b: Tile, over: Sequence[str], layout: Layout) -> Tile:
    """``cleave.contract``: accumulated in f32 (f64 for f64, integers in the wider type), rounded once."""
    if uses_dot(a, b, over):
        return _finished(_dot(a, b, over, _order(a, b, over, layout), None), layout)
    return _finished(_multiplied(a, b, over, layout), layout)


def accumulates(a: Tile, b: Tile, over: Sequence[str], layout: Layout) -> bool:
    """Whether the contraction can add into an accumulator of this layout within ``tt.dot``."""
    return uses_dot(a, b, over) and layout.dtype in ("f32", "f64") and _order(a, b, over, layout) is not None


def contraction_into(accumulator: Tile, a: Tile, b: Tile, over: Sequence[str], layout: Layout) -> Tile:
    """accumulator + contract(a, b); ``accumulates`` must hold."""
    accumulator = aligned(accumulator, layout.names, layout.shape)
    return _finished(_dot(a, b, over, _order(a, b, over, layout), accumulator), layout)


def uses_dot(a: Tile, b: Tile, over: Sequence[str]) -> bool:
    """Whether ``tt.dot`` does it: matrices, floats, and at least one instruction's worth of each dimension."""
    r = roles(a, b, over)
    if r.rest or not (is_float(a.dtype) and is_float(b.dtype)):
        return False
    element, _ = _operand_type(a.dtype, b.dtype)
    m, n, k = _size(a, r.m), _size(b, r.n), _size(a, r.k)
    smallest = (min(m, n) >= _SMALLEST_N, max(m, n) >= _SMALLEST_M, k >= _SMALLEST_K[element])
    return all(smallest)


def _size(tile: Tile, names: Sequence[str]) -> int:
    size = 1
    for name in names:
        size *= tile.extent(name)
    return size


def _operand_type(a: str, b: str) -> tuple[str, int | None]:
    """The operands' common type, in which both are exact, and the precision for ``tt.dot``."""
    if a == b or (a in _FP8 and b in _FP8):
        return {"tf32": ("f32", tt.TF32), "f32": ("f32", tt.IEEE)}.get(a, (a, None))
    if "f64" in (a, b):
        return "f64", None
    if "f32" in (a, b):
        return "f32", tt.IEEE
    if a in _FP8 or b in _FP8:
        other = b if a in _FP8 else a
        if other == "f16":
            return "f16", None
    return "f32", tt.TF32  # f16, bf16, fp8 and tf32 are all exact in tf32


@dataclass(frozen=True)
class Order:
    """How a contraction's result lies: ``rows`` are dimensions of one operand, ``columns`` of the other."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    swapped: bool  # the rows are those of ``b``


def _order(a: Tile, b: Tile, over: Sequence[str], layout: Layout) -> Order | None:
    """The order that gives ``layout`` without transposition; None if there is none that tensor cores can do."""
    r = roles(a, b, over)
    names = layout.names
    if set(names) != {*r.m, *r.n}:
        return None
    for rows, tile, swapped in ((r.m, a, False), (r.n, b, True)):
        if set(names[: len(rows)]) == set(rows) and _size(tile, rows) >= _SMALLEST_M:
            return Order(names[: len(rows)], names[len(rows) :], swapped)
    return None


def _dot(a: Tile, b: Tile, over: Sequence[str], order: Order | None, accumulator: Tile | None) -> Tile:
    r = roles(a, b, over)
    if order is None:
        swapped = _size(a, r.m) < _SMALLEST_M
        order = Order(r.n, r.m, True) if swapped else Order(r.m, r.n, False)
    element, precision = _operand_type(a.dtype, b.dtype)
    if order.swapped:
        a, b = b, a
    rows, columns, depth = _size(a, order.rows), _size(b, order.columns), _size(a, r.k)
    left = tt.reshape(_operand(permuted(a, (*order.rows, *r.k)), element), (rows, depth))
    right = tt.reshape(_operand(permuted(b, (*r.k, *order.columns)), element), (depth, columns))
    total = "f64" if element == "f64" else "f32"
    start = tt.reshape(accumulator.value, (rows, columns)) if accumulator else None
    into = start if start is not None else tt.constant(0.0, tt.scalar(total), (rows, columns))
    result = tt.dot(left, right, into, precision)
    shape = (*(a.extent(name) for name in order.rows), *(b.extent(name) for name in order.columns))
    return Tile(tt.reshape(result, shape), (*order.rows, *order.columns), shape, total)


def _operand(tile: Tile, element: str) -> ir.Value:
    both_fp8 = element in _FP8 and tile.dtype in _FP8
    return of_dtype(tile) if both_fp8 else tt.cast(of_dtype(tile), element)


def _multiplied(a: Tile, b: Tile, over: Sequence[str], layout: Layout) -> Tile:
    element = _sum_type(a, b, layout)
    # What only one of the two is summed over is summed first.
    a, b = (_summed(tile, other, over, element) for tile, other in ((a, b), (b, a)))
    names, shape = common((a, b))
    try:
        tt.check_tile(shape, "the product of its operands")
    except CleaveError as error:
        notes = (*error.notes, "a dimension below 16, or a batch, keeps this contraction from the tensor cores")
        raise CleaveError(error.message, None, notes) from None
    x, y = (aligned(tile, names, shape).value for tile in (a, b))
    floats = element in ("f32", "f64")
    product = Tile(tt.same("arith.mulf" if floats else "arith.muli", x, y), names, shape, element)
    return _reduced(product, [name for name in over if name in names], (_FLOAT if floats else _INTEGER)["sum"])


def _sum_type(a: Tile, b: Tile, layout: Layout) -> str:
    if is_float(a.dtype):
        return "f64" if "f64" in (a.dtype, b.dtype, layout.dtype) else "f32"
    widths = [int(tt.element_name(a.value)[1:]), int({"index": "i64"}.get(a.dtype, a.dtype)[1:])]
    return f"i{max(*widths, int(layout.element[1:]))}"


def _summed(tile: Tile, other: Tile, over: Sequence[str], element: str) -> Tile:
    tile = replace(full_width(tile), value=tt.cast(of_dtype(tile), element))
    alone = [name for name in over if name in tile.names and name not in other.names]
    return _reduced(tile, alone, (_FLOAT if element in ("f32", "f64") else _INTEGER)["sum"])
