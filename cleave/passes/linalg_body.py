"""Scalar ops, as they stand in bodies, as graph ops on tensors: one row each."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.bindings import ir
from cleave.dialects.tensor_type import is_float
from cleave.passes.emitter import Emitter
from cleave.passes.linalg_integers import COMPOSED_OPS, Row, Unraisable, compare_unsigned, zero_extended

__all__ = ["SCALAR_OPS", "Unraisable"]


def _dtype(op: ir.Operation) -> str:
    return str(op.results[0].type)


def _same(name: str, *, booleans: bool = False) -> Row:
    """The graph op ``name``, one to one."""

    def row(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
        if _dtype(op) == "i1" and not booleans:
            raise Unraisable(f"{op.name} on i1")
        return emitter.emit(name, *operands)

    return row


def _on_booleans(name: str) -> Row:
    def row(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
        if _dtype(op) != "i1":
            raise Unraisable(f"{op.name} on {_dtype(op)}: bitwise ops are raised on i1 only")
        return emitter.emit(name, *operands)

    return row


def _exclusive_or(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    if _dtype(op) != "i1":
        raise Unraisable(f"{op.name} on {_dtype(op)}: bitwise ops are raised on i1 only")
    return emitter.emit("cmp", *operands, predicate="ne")


def _cast(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    return emitter.cast(operands[0], _dtype(op))


def _from_signed(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    if emitter.dtype(operands[0]) == "i1":
        raise Unraisable(f"{op.name} from i1, which counts as −1")
    return emitter.cast(operands[0], _dtype(op))


def _from_unsigned(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    (value,) = operands
    narrowing = op.name == "arith.index_castui" and emitter.dtype(value) == "index"
    if emitter.dtype(value) != "i1" and not narrowing:
        value = zero_extended(emitter, op, value, "i64")
    return emitter.cast(value, _dtype(op))


def _truncate(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    if _dtype(op) == "i1":
        raise Unraisable("arith.trunci to i1 keeps the lowest bit")
    return emitter.cast(operands[0], _dtype(op))


def _compare_floats(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    predicate = _FLOAT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
    a, b = _unwidened(emitter, *operands)

    def compare(name: str, x: ir.Value = a, y: ir.Value = b) -> ir.Value:
        return emitter.emit("cmp", x, y, predicate=name)

    if predicate in ("false", "true"):
        return emitter.constant(predicate == "true", "i1")
    if predicate == "ord":
        return emitter.emit("mul", compare("eq", a, a), compare("eq", b, b))
    if predicate == "uno":
        return emitter.emit("max", compare("ne", a, a), compare("ne", b, b))
    if predicate in ("one", "ueq"):
        either = emitter.emit("max", compare("lt"), compare("gt"))
        return either if predicate == "one" else _negated(emitter, either)
    if predicate == "une" or predicate[0] == "o":
        return compare(predicate[1:])
    return _negated(emitter, compare(_OPPOSITE[predicate[1:]]))


def _unwidened(emitter: Emitter, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
    """A widened value and a literal that the narrower type has too: compare in that type."""
    owner, literal = a.owner, emitter.literal(b)
    if literal is None or isinstance(owner, ir.Block) or owner.name != "cleave.cast":
        return a, b
    source = owner.operands[0]
    narrow, wide = emitter.dtype(source), emitter.dtype(a)
    if not is_float(narrow) or _WIDTHS.get(narrow, 64) >= _WIDTHS.get(wide, 0):
        return a, b
    narrowed = emitter.constant(literal, narrow)
    return (source, narrowed) if emitter.literal(narrowed) == literal else (a, b)


_FLOAT_PREDICATES = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
                     "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")  # fmt: skip
_WIDTHS = {"f8E4M3FN": 8, "f8E5M2": 8, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def _negated(emitter: Emitter, condition: ir.Value) -> ir.Value:
    return emitter.emit("cmp", condition, emitter.constant(False, "i1"), predicate="eq")


def _compare_integers(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    if predicate >= len(_SIGNED_PREDICATES):
        return compare_unsigned(emitter, op, operands, _UNSIGNED_PREDICATES[predicate - len(_SIGNED_PREDICATES)])
    if _SIGNED_PREDICATES[predicate] not in ("eq", "ne") and emitter.dtype(operands[0]) == "i1":
        raise Unraisable("arith.cmpi of signed i1")
    return emitter.emit("cmp", *operands, predicate=_SIGNED_PREDICATES[predicate])


_SIGNED_PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")
_UNSIGNED_PREDICATES = ("lt", "le", "gt", "ge")


def _select(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    condition, a, b = operands
    owner = condition.owner
    if not isinstance(owner, ir.Block) and owner.name == "cleave.cmp" and _is_negation(emitter, owner.operation):
        condition, a, b = owner.operands[0], b, a
    return emitter.emit("select", condition, a, b)


def _is_negation(emitter: Emitter, comparison: ir.Operation) -> bool:
    a, b = comparison.operands
    return (
        emitter.dtype(a) == "i1" and emitter.literal(b) is False and '"eq"' in str(comparison.attributes["predicate"])
    )


def _integer_power(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    exponent = emitter.literal(operands[1])
    if exponent is None or abs(exponent) > 16:
        raise Unraisable("math.fpowi with an exponent that is no small literal")
    one = emitter.constant(1.0, _dtype(op))
    power = _power(emitter, operands[0], abs(int(exponent))) if exponent else one
    return power if exponent >= 0 else emitter.emit("div", one, power)


def _power(emitter: Emitter, base: ir.Value, exponent: int) -> ir.Value:
    if exponent == 1:
        return base
    half = _power(emitter, base, exponent // 2)
    square = emitter.emit("mul", half, half)
    return emitter.emit("mul", square, base) if exponent % 2 else square


def _fused_multiply_add(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    a, b, c = operands
    return emitter.emit("add", emitter.emit("mul", a, b), c)


def _constant(emitter: Emitter, op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Value:
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            raise Unraisable("a constant whose elements differ")
        attribute = attribute.get_splat_value()  # pyright: ignore
    dtype = str(op.results[0].type.element_type) if isinstance(op.results[0].type, ir.ShapedType) else _dtype(op)
    value = attribute.value  # pyright: ignore[reportAttributeAccessIssue]
    return emitter.constant(float(value) if is_float(dtype) else bool(value) if dtype == "i1" else value, dtype)


SCALAR_OPS: dict[str, Row] = {
    **{f"arith.{name}f": _same(name) for name in ("add", "sub", "mul", "div", "neg")},
    **{f"arith.{name}i": _same(name) for name in ("add", "sub")},
    "arith.muli": _same("mul", booleans=True),
    "arith.divsi": _same("div"),
    "arith.maximumf": _same("max"),
    "arith.minimumf": _same("min"),
    "arith.maxsi": _same("max"),
    "arith.minsi": _same("min"),
    "arith.andi": _on_booleans("mul"),
    "arith.ori": _on_booleans("max"),
    "arith.xori": _exclusive_or,
    **dict.fromkeys(("arith.extf", "arith.truncf"), _cast),
    "arith.fptosi": _truncate,
    "arith.trunci": _truncate,
    **dict.fromkeys(("arith.sitofp", "arith.extsi", "arith.index_cast"), _from_signed),
    **dict.fromkeys(("arith.uitofp", "arith.extui", "arith.index_castui"), _from_unsigned),
    **COMPOSED_OPS,
    "arith.cmpf": _compare_floats,
    "arith.cmpi": _compare_integers,
    "arith.select": _select,
    "arith.constant": _constant,
    **{f"math.{name}": _same(name) for name in ("exp", "exp2", "log", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos")},
    "math.absf": _same("abs"),
    "math.absi": _same("abs"),
    "math.powf": _same("pow"),
    "math.fpowi": _integer_power,
    "math.fma": _fused_multiply_add,
}
