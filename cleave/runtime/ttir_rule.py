"""What a rule for an operation is, and what many rules need."""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttir_ir import Operation, TensorType
from cleave.runtime.ttir_numbers import BOOL, Array, DType, dtype_of, unsigned

Evaluate = Callable[..., Any]
Rule = Callable[[Operation], Evaluate]


def attribute(op: Operation, name: str, default: Any = None) -> Any:
    """An attribute's value; without a default a missing one is an error."""
    value = op.attributes.get(name, default)
    if value is None:
        raise CleaveError(f"the attribute '{name}' is missing")
    return value


def shape_of(op: Operation) -> tuple[int, ...]:
    type_ = op.results[0].type
    return type_.shape if isinstance(type_, TensorType) else ()


# Ways to make a rule from a NumPy function


def plain(function: Evaluate) -> Rule:
    return lambda op: function


def integer(function: Evaluate) -> Rule:
    """On signed integers; ``i1`` is computed as 0 and -1 in i8."""

    def bits(*operands: Array) -> Array:
        return (np.asarray(function(*(-(x.astype(np.int8)) for x in operands))) & 1).astype(BOOL)[()]

    return lambda op: bits if dtype_of(op.operands[-1].type) == BOOL else function


def as_unsigned(function: Evaluate) -> Rule:
    """On the operands' bits as unsigned numbers."""

    def on_views(*operands: Array) -> Array:
        signed = operands[0].dtype
        result = function(*(x.view(unsigned(signed)) for x in operands))
        return result if result.dtype == BOOL else result.view(signed)

    return integer(on_views)


def converting(function: Callable[[Array, DType], Array]) -> Rule:
    def rule(op: Operation) -> Evaluate:
        dtype = dtype_of(op.results[0].type)
        return lambda x: function(x, dtype)

    return rule
