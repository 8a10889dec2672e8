"""Integer and NaN-ignoring ops of MLIR's ``arith`` that are several of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleave.bindings import ir
from cleave.passes.emitter import Emitter


class Unraisable(Exception):
    """Why an op of the source cannot become ops of ours."""


Row = Callable[[Emitter, ir.Operation, Sequence[ir.Value]], ir.Value]
_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}


def _width(emitter: Emitter, op: ir.Operation, value: ir.Value) -> int:
    dtype = emitter.dtype(value)
    if dtype not in _BITS:
        raise Unraisable(f"{op.name} on {dtype}")
    return _BITS[dtype]


# --- signed -----------------------------------------------------------------------------------------------------------


def _quotient(emitter: Emitter, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Quotient, rounded toward zero, and remainder."""
    quotient = emitter.emit("div", a, b)
    return quotient, emitter.emit("sub", a, emitter.emit("mul", quotient, b))


def remainder(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    _width(emitter, op, operands[0])
    return _quotient(emitter, *operands)[1]


def _rounded(*, up: bool) -> Row:
    """Division that rounds down or up: one off where the exact quotient is negative, or where it is positive."""

    def row(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
        _width(emitter, op, operands[0])
        dtype = emitter.dtype(operands[0])
        zero, one = emitter.constant(0, dtype), emitter.constant(1, dtype)
        quotient, rest = _quotient(emitter, *operands)
        signs = [emitter.emit("cmp", x, zero, predicate="lt") for x in (rest, operands[1])]
        wrong_way = emitter.emit("cmp", *signs, predicate="eq" if up else "ne")
        off = emitter.emit("mul", emitter.emit("cmp", rest, zero, predicate="ne"), wrong_way)
        return emitter.emit("select", off, emitter.emit("add" if up else "sub", quotient, one), quotient)

    return row


# --- unsigned ---------------------------------------------------------------------------------------------------------


def _shifted(emitter: Emitter, op: ir.Operation, value: ir.Value) -> ir.Value:
    """In an order as signed integers that is theirs as unsigned ones: x − 2^(bits−1), wrapping."""
    lowest = emitter.constant(-(1 << _width(emitter, op, value) - 1), emitter.dtype(value))
    return emitter.emit("add", value, lowest)


def compare_unsigned(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value], predicate: str) -> ir.Value:
    return emitter.emit("cmp", *(_shifted(emitter, op, x) for x in operands), predicate=predicate)


def _extreme(name: str) -> Row:
    def row(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
        return _shifted(emitter, op, emitter.emit(name, *(_shifted(emitter, op, x) for x in operands)))

    return row


def zero_extended(emitter: Emitter, op: ir.Operation, value: ir.Value, dtype: str) -> ir.Value:
    """The value as an unsigned integer, in a wider type."""
    bits = _width(emitter, op, value)
    if bits == 64:
        raise Unraisable(f"{op.name} on {emitter.dtype(value)}: unsigned integers of 64 bits have no wider type")
    wide = emitter.cast(value, dtype)
    negative = emitter.emit("cmp", wide, emitter.constant(0, dtype), predicate="lt")
    return emitter.emit("select", negative, emitter.emit("add", wide, emitter.constant(1 << bits, dtype)), wide)


def _unsigned_division(*, rest: bool) -> Row:
    def row(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
        wide = [zero_extended(emitter, op, x, "i64") for x in operands]
        return emitter.cast(_quotient(emitter, *wide)[rest], emitter.dtype(operands[0]))

    return row


# --- NaN --------------------------------------------------------------------------------------------------------------


def _ignoring_nan(name: str) -> Row:
    """The other operand where one is NaN."""

    def row(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
        a, b = operands
        nan = [emitter.emit("cmp", x, x, predicate="ne") for x in operands]
        return emitter.emit("select", nan[0], b, emitter.emit("select", nan[1], a, emitter.emit(name, a, b)))

    return row


COMPOSED_OPS: dict[str, Row] = {
    "arith.remsi": remainder,
    "arith.floordivsi": _rounded(up=False),
    "arith.ceildivsi": _rounded(up=True),
    "arith.divui": _unsigned_division(rest=False),
    "arith.remui": _unsigned_division(rest=True),
    "arith.maxui": _extreme("max"),
    "arith.minui": _extreme("min"),
    "arith.maxnumf": _ignoring_nan("max"),
    "arith.minnumf": _ignoring_nan("min"),
}
