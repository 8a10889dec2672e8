"""Rules for ``arith`` and ``math``: on scalars, on tensors, and on arrays of scalars over an iteration space alike."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cleave.bindings import ir
from cleave.dialects.tensor_type import is_float
from cleave.errors import CleaveError
from cleave.reference.machine import Machine, Rule, Step, element_dtype
from cleave.reference.numerics import COMPARISONS, Array, storage

LITERALS = frozenset(("arith.constant", "cleave.constant"))


def is_literal(value: ir.Value) -> bool:
    """Whether the value is written in the program."""
    return not isinstance(value.owner, ir.Block) and value.owner.name in LITERALS


def computed(function: Callable[..., Any]) -> Rule:
    """A float function: computed in the compute type, rounded to the result's type."""

    def rule(machine: Machine, op: ir.Operation) -> Step:
        numerics, dtype = machine.numerics, element_dtype(op.results[0].type)
        compute = numerics.compute(dtype)

        def step(*operands: Array) -> Array:
            return numerics.round(function(*(np.asarray(x).astype(compute, copy=False) for x in operands)), dtype)

        return step

    return rule


def named(name: str) -> Rule:
    """A function that graphs have as well."""

    def rule(machine: Machine, op: ir.Operation) -> Step:
        dtype = element_dtype(op.results[0].type)
        return lambda *operands: machine.numerics.pointwise(name, operands, dtype)

    return rule


def exact(function: Callable[..., Any]) -> Rule:
    """An integer function: computed in the result's own type."""

    def rule(machine: Machine, op: ir.Operation) -> Step:
        dtype = storage(element_dtype(op.results[0].type))
        return lambda *operands: np.asarray(function(*map(np.asarray, operands))).astype(dtype, copy=False)

    return rule


def unsigned(x: Array) -> Array:
    """The same bits as unsigned integers."""
    return x if x.dtype == np.bool_ else x.view(np.dtype(f"u{x.dtype.itemsize}"))


def on_unsigned(function: Callable[..., Any]) -> Rule:
    return exact(lambda *operands: function(*map(unsigned, operands)))


def cast(machine: Machine, op: ir.Operation) -> Step:
    source, target = element_dtype(op.operands[0].type), element_dtype(op.results[0].type)
    if is_literal(op.operands[0]) and is_float(source) and is_float(target):
        return lambda x: machine.numerics.literal(x, target)
    return lambda x: machine.numerics.cast(x, source, target)


def extend_signed(machine: Machine, op: ir.Operation) -> Step:
    source, target = element_dtype(op.operands[0].type), storage(element_dtype(op.results[0].type))
    return lambda x: -np.asarray(x).astype(target) if source == "i1" else np.asarray(x).astype(target)


def signed_to_float(machine: Machine, op: ir.Operation) -> Step:
    source, target = element_dtype(op.operands[0].type), element_dtype(op.results[0].type)
    sign = -1 if source == "i1" else 1
    return lambda x: machine.numerics.round(sign * np.asarray(x).astype(np.float64), target)


def truncate_integer(machine: Machine, op: ir.Operation) -> Step:
    target = element_dtype(op.results[0].type)
    return lambda x: (x & 1) != 0 if target == "i1" else np.asarray(x).astype(storage(target))


def unsigned_to_float(machine: Machine, op: ir.Operation) -> Step:
    target = element_dtype(op.results[0].type)
    return lambda x: machine.numerics.round(unsigned(np.asarray(x)).astype(np.float64), target)


def float_to_unsigned(machine: Machine, op: ir.Operation) -> Step:
    target = storage(element_dtype(op.results[0].type))
    return lambda x: np.trunc(np.asarray(x).astype(np.float64)).astype(np.uint64).astype(target)


def bitcast(machine: Machine, op: ir.Operation) -> Step:
    source, target = (element_dtype(value.type) for value in (op.operands[0], op.results[0]))
    if machine.numerics.precision == "f64" and is_float(source) != is_float(target):
        raise CleaveError("the bits of a float have no meaning over the reals", notes=('use precision "declared"',))
    return lambda x: np.asarray(x).view(machine.numerics.storage(target))


def select(machine: Machine, op: ir.Operation) -> Step:
    return np.where


_FLOAT_PREDICATES = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
                     "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")  # fmt: skip
_INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def float_predicate(op: ir.Operation) -> str:
    """``oeq``, ``ugt`` and so on of an ``arith.cmpf``."""
    return _FLOAT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]


def integer_predicate(op: ir.Operation) -> str:
    """``eq``, ``slt`` and so on of an ``arith.cmpi``."""
    return _INTEGER_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]


def compare_floats(machine: Machine, op: ir.Operation) -> Step:
    predicate = float_predicate(op)

    def step(a: Array, b: Array) -> Array:
        unordered = np.isnan(a.astype(np.float64)) | np.isnan(b.astype(np.float64))
        if predicate in ("false", "true"):
            return np.full(unordered.shape, predicate == "true")
        if predicate in ("ord", "uno"):
            return unordered if predicate == "uno" else ~unordered
        holds = COMPARISONS[predicate[1:]](a, b)
        return holds | unordered if predicate[0] == "u" else holds & ~unordered

    return step


def compare_integers(machine: Machine, op: ir.Operation) -> Step:
    predicate = integer_predicate(op)
    if predicate in ("eq", "ne"):
        return COMPARISONS[predicate]
    compare = COMPARISONS[predicate[1:]]
    if predicate[0] == "u":
        return lambda a, b: compare(unsigned(np.asarray(a)), unsigned(np.asarray(b)))
    if element_dtype(op.operands[0].type) == "i1":  # signed i1: true is -1
        return lambda a, b: compare(b, a)
    return compare


def constant(machine: Machine, op: ir.Operation) -> Step:
    attribute, type_ = op.attributes["value"], op.results[0].type
    if isinstance(attribute, ir.DenseElementsAttr):
        literal = machine.numerics.literal(dense_values(attribute), element_dtype(type_))  # pyright: ignore
    else:
        literal = machine.numerics.literal(attribute.value, element_dtype(type_))  # pyright: ignore
    return lambda: literal


def dense_values(attribute: Any) -> Array:
    """The elements of a dense attribute in a NumPy type that holds them."""
    shape = tuple(ir.ShapedType(attribute.type).shape)
    dtype = element_dtype(attribute.type)
    if attribute.is_splat:
        return np.full(shape, attribute.get_splat_value().value, storage(dtype))
    try:
        return np.array(attribute)
    except TypeError:  # a float type that the buffer protocol has not
        return _parse_dense(str(attribute), dtype).reshape(shape)


def _parse_dense(text: str, dtype: str) -> Array:
    """The elements out of ``dense<[…]>``, where hexadecimal integers are bit patterns."""
    body = text[text.index("<") + 1 : text.rindex("> :")]
    kind = storage(dtype)
    bits = np.dtype(f"u{kind.itemsize}")
    if body.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(body[3:-1]), kind)
    flat = ast.literal_eval("[" + re.sub(r"[\[\]]", "", body) + "]")
    return np.array([np.array(x, bits).view(kind) if isinstance(x, int) else kind.type(x) for x in flat], kind)


def _shift_right(a: Array, b: Array) -> Array:
    return np.right_shift(a, b.astype(a.dtype))


def _round_half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


_EXACT: dict[str, Callable[..., Any]] = {
    "arith.addi": lambda a, b: a ^ b if a.dtype == np.bool_ else a + b,
    "arith.subi": lambda a, b: a ^ b if a.dtype == np.bool_ else a - b,
    "arith.muli": np.multiply,
    "arith.remsi": np.fmod,
    "arith.floordivsi": np.floor_divide,
    "arith.ceildivsi": lambda a, b: -((-a) // b),
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": lambda a, b: np.left_shift(a, b.astype(a.dtype)),
    "arith.shrsi": _shift_right,
    "math.absi": np.abs,
    "math.ipowi": np.power,
}
_EXACT_UNSIGNED: dict[str, Callable[..., Any]] = {
    "arith.divui": np.floor_divide, "arith.remui": np.remainder, "arith.maxui": np.maximum, "arith.minui": np.minimum,
    "arith.ceildivui": lambda a, b: -(-a.astype(object) // b.astype(object)), "arith.shrui": _shift_right,
    "arith.extui": lambda x: x, "arith.index_castui": lambda x: x,
}  # fmt: skip
_NAMED = {
    "arith.addf": "add", "arith.subf": "sub", "arith.mulf": "mul", "arith.divf": "div", "arith.negf": "neg",
    "arith.maximumf": "max", "arith.minimumf": "min", "arith.divsi": "div", "math.exp": "exp", "math.exp2": "exp2",
    "math.log": "log", "math.sqrt": "sqrt", "math.rsqrt": "rsqrt", "math.tanh": "tanh", "math.erf": "erf",
    "math.absf": "abs", "math.powf": "pow", "math.sin": "sin", "math.cos": "cos",
}  # fmt: skip
_COMPUTED: dict[str, Callable[..., Any]] = {
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "arith.remf": np.fmod, "math.log2": np.log2,
    "math.log10": np.log10, "math.log1p": np.log1p, "math.expm1": np.expm1,
    "math.tan": np.tan, "math.sinh": np.sinh, "math.cosh": np.cosh, "math.asin": np.arcsin, "math.acos": np.arccos,
    "math.atan": np.arctan, "math.atan2": np.arctan2, "math.floor": np.floor, "math.ceil": np.ceil,
    "math.trunc": np.trunc, "math.roundeven": np.rint, "math.round": _round_half_away, "math.cbrt": np.cbrt,
    "math.copysign": np.copysign, "math.fpowi": np.power,
    "math.fma": lambda a, b, c: a * b + c,
}  # fmt: skip

RULES: dict[str, Rule] = {
    **{name: exact(function) for name, function in _EXACT.items()},
    **{name: on_unsigned(function) for name, function in _EXACT_UNSIGNED.items()},
    **{name: named(function) for name, function in _NAMED.items()},
    **{name: computed(function) for name, function in _COMPUTED.items()},
    **dict.fromkeys(("arith.extf", "arith.truncf", "arith.fptosi"), cast),
    **dict.fromkeys(("arith.extsi", "arith.index_cast"), extend_signed),
    "arith.sitofp": signed_to_float,
    "arith.trunci": truncate_integer,
    "arith.uitofp": unsigned_to_float,
    "arith.fptoui": float_to_unsigned,
    "arith.bitcast": bitcast,
    "arith.select": select,
    "arith.cmpf": compare_floats,
    "arith.cmpi": compare_integers,
    "arith.constant": constant,
}
