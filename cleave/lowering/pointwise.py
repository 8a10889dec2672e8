"""Pointwise ops on tiles.

Arithmetic on floats narrower than f32 is done in f32 and rounded once. f32 division and square root are correctly
rounded, unless the result only goes on to be rounded to a narrower type; roots of all types with f32's exponents are.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.tensor_type import is_float
from cleave.errors import CleaveError
from cleave.lowering import tt
from cleave.lowering.tiles import Layout, Tile, aligned, full_width, narrow_bounds

LOG2E = math.log2(math.e)
_LARGEST_F32 = 2.0**128 - 2.0**104
_NARROW = ("f16", "bf16", "f8E4M3FN", "f8E5M2")
_FEW_DIGITS = (*_NARROW, "tf32")
_PROPORTIONAL = frozenset(f"cleave.{name}" for name in ("neg", "abs", "mul", "div", "max", "min", "select"))
"""The result has no relative error but the operands', which add up."""
_COARSE = ("f16", "f8E4M3FN", "f8E5M2")
"""Without numbers as small as the square roots of f32's subnormal ones, which the fast square root makes 0."""
_NATIVE = ("f16", "f32", "f64")  # compared and selected among as they are

# --- floats ---------------------------------------------------------------------------------------------------------

Rule = Callable[..., ir.Value]
Lookup = Callable[[ir.Value], Tile]


def _negative(x: ir.Value) -> ir.Value:
    return tt.same("arith.subf", tt.constant_like(x, -0.0), x)  # Triton 3.6 has no lowering of arith.negf


def _wide(name: str, otherwise: Rule) -> Rule:
    """The libdevice function for f64, a rule for f32."""
    return lambda *xs: tt.libdevice(name, *xs) if tt.element_name(xs[0]) == "f64" else otherwise(*xs)


def _exp(x: ir.Value) -> ir.Value:
    return tt.same("math.exp2", tt.same("arith.mulf", x, tt.constant_like(x, LOG2E)))


def _sigmoid(x: ir.Value, precise: bool) -> ir.Value:
    """e^−x overflows to +inf, of which the quotient makes the right 0."""
    one = tt.constant_like(x, 1.0)
    return _divide(one, tt.same("arith.addf", one, _wide("exp", _exp)(_negative(x))), precise)


def _divide(a: ir.Value, b: ir.Value, precise: bool) -> ir.Value:
    return tt.same("tt.precise_divf" if precise and tt.element_name(a) == "f32" else "arith.divf", a, b)


def _square_root(x: ir.Value, precise: bool) -> ir.Value:
    return tt.same("tt.precise_sqrt" if precise and tt.element_name(x) == "f32" else "math.sqrt", x)


def _plain(name: str) -> Rule:
    return lambda *xs: tt.same(name, *xs)


# Exact: done in the type itself.
_EXACT: Mapping[str, Rule] = {
    "neg": _negative,
    "abs": _plain("math.absf"),
    "max": _plain("arith.maximumf"),
    "min": _plain("arith.minimumf"),
}
_ROUNDED: Mapping[str, Rule] = {
    "add": _plain("arith.addf"),
    "sub": _plain("arith.subf"),
    "mul": _plain("arith.mulf"),
    "exp": _wide("exp", _exp),
    "exp2": _wide("exp2", _plain("math.exp2")),
    "log": _wide("log", _plain("math.log")),
    "rsqrt": _wide("rsqrt", _plain("math.rsqrt")),
    **{name: partial(tt.libdevice, name) for name in ("tanh", "erf", "sin", "cos")},
    "pow": lambda a, b: tt.libdevice("pow", a, b),
    "fma": _plain("math.fma"),
}
_PRECISE: Mapping[str, Rule] = {"div": _divide, "sqrt": _square_root, "sigmoid": _sigmoid}

# --- integers -------------------------------------------------------------------------------------------------------

_INTEGER: Mapping[str, Rule] = {
    "add": _plain("arith.addi"),
    "sub": _plain("arith.subi"),
    "mul": _plain("arith.muli"),
    "div": _plain("arith.divsi"),
    "max": _plain("arith.maxsi"),
    "min": _plain("arith.minsi"),
    "neg": lambda x: tt.same("arith.subi", tt.constant_like(x, 0), x),
    "abs": _plain("math.absi"),
}
_BOOLEAN: Mapping[str, Rule] = {
    "mul": _plain("arith.andi"),
    "min": _plain("arith.andi"),
    "max": _plain("arith.ori"),
}

Bounds = tuple[int, int]
_BOUNDS: Mapping[str, Callable[[Bounds, Bounds], Bounds]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: (min(x * y for x in a for y in b), max(x * y for x in a for y in b)),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
}

# --- ops ------------------------------------------------------------------------------------------------------------


def pointwise(op: ir.Operation, name: str, operands: Sequence[Tile], layout: Layout, lookup: Lookup) -> Tile:
    """The tile of a pointwise op; ``layout`` is its result's, ``lookup`` gives the tiles of values before it."""
    folded = _folded(op, name) if layout.element == "f32" else None
    if folded is not None:
        return _tile(tt.constant(folded, tt.scalar(layout.element), layout.shape), layout)
    if name == "cmp":
        return _compare(str(cleave.plain("string", op.attributes["predicate"])), operands, layout)
    if name == "select":
        return _select(operands, layout)
    if not is_float(layout.dtype):
        return _integers(name, operands, layout)
    if name == "exp" and layout.dtype == "f32":
        return _tile(tt.same("math.exp2", _scaled(op.operands[0], layout, lookup)), layout)
    if name == "pow" and _constant(op.operands[1]) == 2.0:
        name, operands = "mul", (operands[0], operands[0])
    values = _at_layout(operands, layout)
    if name in _EXACT:
        return _tile(_in(layout, _NATIVE, _EXACT[name], values), layout)
    factor = _exact_reciprocal(op.operands[1]) if name == "div" else None
    if factor is not None:
        return _tile(_in(layout, ("f32", "f64"), lambda a, _: _times(a, factor), values), layout)
    if name in _PRECISE:
        types, through = (_COARSE, ()) if name == "sqrt" else (_FEW_DIGITS, _PROPORTIONAL)
        precise = layout.dtype not in types and not only_narrowed(op.results[0], types, through)
        return _tile(_in(layout, ("f32", "f64"), lambda *xs: _PRECISE[name](*xs, precise), values), layout)
    if name not in _ROUNDED:
        raise CleaveError(f"there is no rule for it on {layout.dtype}")
    return _tile(_in(layout, ("f32", "f64"), _ROUNDED[name], values), layout)


def _times(x: ir.Value, factor: float) -> ir.Value:
    return tt.same("arith.mulf", x, tt.constant_like(x, factor))


def _exact_reciprocal(value: ir.Value) -> float | None:
    """Of a constant that is a power of two: to multiply by it is to divide by the constant, to the bit."""
    constant = _constant(value)
    if constant is None or abs(math.frexp(constant)[0]) != 0.5:
        return None
    return 1 / constant if 2.0**-100 < abs(constant) < 2.0**100 else None


_FOLDED: Mapping[str, Callable[..., float]] = {"div": operator.truediv, "log": math.log}


def _folded(op: ir.Operation, name: str) -> float | None:
    """The number that an op of positive numbers is, rounded once; None of any other op."""
    if name not in _FOLDED:
        return None
    numbers = [_constant(operand) for operand in op.operands]
    known = [number for number in numbers if number is not None and 0 < number < math.inf]
    return _FOLDED[name](*known) if len(known) == len(numbers) else None


def _tile(value: ir.Value, layout: Layout) -> Tile:
    return Tile(value, layout.names, layout.shape, layout.dtype)


def _at_layout(operands: Sequence[Tile], layout: Layout) -> list[ir.Value]:
    return [aligned(operand, layout.names, layout.shape).value for operand in operands]


def _in(layout: Layout, native: Sequence[str], rule: Rule, values: Sequence[ir.Value]) -> ir.Value:
    """``rule`` in the layout's own type if it is among ``native``, otherwise in f32 and rounded."""
    if layout.element in native:
        return rule(*values)
    return tt.cast(rule(*(tt.cast(value, "f32") for value in values)), layout.element)


def only_narrowed(value: ir.Value, types: Container[str], through: Container[str]) -> bool:
    """Whether all that follows from a value is rounded to one of these types, so that its last bits do not matter,
    before anything could make a larger part of the result of them, as a difference does. ``through``: what cannot."""
    pending, seen = [value], set[ir.Value]()
    while pending:
        for user in (use.owner.operation for use in pending.pop().uses):
            narrowed = user.name == "cleave.cast" and cleave.decode(user.results[0].type)[0].dtype in types
            if not (narrowed or user.name in through):
                return False
            if not narrowed and user.results[0] not in seen:
                seen.add(user.results[0])
                pending.append(user.results[0])
    return True


def _scaled(x: ir.Value, layout: Layout, lookup: Lookup) -> ir.Value:
    """x·log2(e), aligned; a constant that x was multiplied by, for this use only, is folded into the factor.

    A difference is taken first: scaling its sides instead would leave the rounding of two large numbers.
    """
    tile, factor = lookup(x), LOG2E
    product = _constant_product(x)
    if product and len(list(x.uses)) == 1 and abs(LOG2E * product[1]) < _LARGEST_F32:
        tile, factor = lookup(product[0]), LOG2E * product[1]
    value = tt.same("arith.mulf", tile.value, tt.constant_like(tile.value, factor))
    return aligned(replace(tile, value=value), layout.names, layout.shape).value


def _constant_product(x: ir.Value) -> tuple[ir.Value, float] | None:
    """What ``x`` is a product of, if one of the two is a constant."""
    owner = x.owner
    if isinstance(owner, ir.Block) or owner.name != "cleave.mul":
        return None
    for operand, other in zip(owner.operands, reversed(list(owner.operands)), strict=True):
        constant = _constant(operand)
        if constant is not None:
            return other, constant
    return None


def _constant(x: ir.Value) -> float | None:
    owner = x.owner
    if isinstance(owner, ir.Block):
        return None
    if owner.name != "cleave.constant":
        return _folded(owner.operation, owner.name.removeprefix("cleave."))
    return float(cleave.plain("number", owner.attributes["value"]))


def _integers(name: str, operands: Sequence[Tile], layout: Layout) -> Tile:
    rules = _BOOLEAN if layout.dtype == "i1" else _INTEGER
    if name not in rules:
        raise CleaveError(f"there is no rule for it on {layout.dtype}")
    bounds = _result_bounds(name, operands)
    if narrow_bounds(bounds) and all(operand.element == "i32" for operand in operands):
        value = rules[name](*_at_layout(operands, layout))
        return Tile(value, layout.names, layout.shape, layout.dtype, bounds)
    return _tile(rules[name](*_at_layout([full_width(operand) for operand in operands], layout)), layout)


def _result_bounds(name: str, operands: Sequence[Tile]) -> Bounds | None:
    if name not in _BOUNDS:
        return None
    a, b = (operand.bounds for operand in operands)
    return _BOUNDS[name](a, b) if a is not None and b is not None else None


def _compare(predicate: str, operands: Sequence[Tile], layout: Layout) -> Tile:
    a, b = operands
    if not is_float(a.dtype):
        if a.element != b.element:
            a, b = full_width(a), full_width(b)
        return _tile(tt.compare(predicate, *_at_layout((a, b), layout)), layout)
    values = [value if a.element in _NATIVE else tt.cast(value, "f32") for value in _at_layout(operands, layout)]
    return _tile(tt.compare(predicate, *values), layout)


def _select(operands: Sequence[Tile], layout: Layout) -> Tile:
    condition, a, b = operands
    if a.element != b.element:
        a, b = full_width(a), full_width(b)
    bounds = None
    if a.bounds is not None and b.bounds is not None:
        bounds = (min(a.bounds[0], b.bounds[0]), max(a.bounds[1], b.bounds[1]))
    value = tt.select(*_at_layout((condition, a, b), layout))
    return Tile(value, layout.names, layout.shape, layout.dtype, bounds)


def cast(operand: Tile, layout: Layout) -> Tile:
    """``cleave.cast``."""
    tile = aligned(operand, layout.names, layout.shape)
    if operand.bounds is not None and not is_float(layout.dtype) and layout.dtype in ("i32", "i64", "index"):
        return Tile(tile.value, layout.names, layout.shape, layout.dtype, operand.bounds)
    if layout.dtype == "tf32":
        exact = operand.dtype in _NARROW or operand.dtype == "tf32"
        value = tt.cast(tile.value, "f32")
        return _tile(value if exact else tt.round_to_tf32(value), layout)
    return _tile(tt.cast(tile.value, layout.element), layout)
