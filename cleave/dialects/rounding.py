"""Which roundings are the user's and which only choose the tensor cores' input type (docs/semantics.md, casts)."""

from __future__ import annotations

from collections.abc import Iterable

from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import is_float

SIGNIFICAND_BITS = {"f64": 53, "f32": 24, "tf32": 11, "f16": 11, "bf16": 8, "f8E4M3FN": 4, "f8E5M2": 3}
CHOOSABLE = frozenset(("f16", "bf16", "tf32"))


def widens(source: str, target: str) -> bool:
    """Whether a float cast keeps every value, but for range (tf32 has f32's)."""
    return is_float(source) and is_float(target) and SIGNIFICAND_BITS[source] <= SIGNIFICAND_BITS[target]


def rounds(value: Value) -> bool:
    """Whether the op's result is rounded to a narrower type than it was computed in."""
    if not is_float(value.dtype) or value.op in ("input", "constant", *_EXACT):
        return False
    if value.op == "cast":
        return is_float(value.operands[0].dtype) and not widens(value.operands[0].dtype, value.dtype)
    return value.dtype not in ("f32", "f64")


_EXACT = frozenset("neg abs max min select rename split merge slice concat gather".split())


def transparent(values: Iterable[Value], outputs: Iterable[Value]) -> frozenset[Value]:
    """The rounding values whose rounding is the identity over the reals.

    All uses are operands of contractions, or of a ``mul`` of the same narrow type that is transparent itself.
    ``values`` are in topological order.
    """
    found: set[Value] = set()
    barred = set(outputs)
    for value in reversed(list(values)):
        if rounds(value) and value.dtype in CHOOSABLE and value not in barred:
            found.add(value)
        for operand in value.operands:
            if not (value.op == "contract" or (value.op == "mul" and value in found and value.dtype == operand.dtype)):
                barred.add(operand)
    return frozenset(found)
