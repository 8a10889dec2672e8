"""``cleave.empty_rows = "zero"``: in which ops of a function −∞ − (−∞) is −∞, and where a zero divides as a one."""

from __future__ import annotations

import numpy as np

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.errors import CleaveError
from cleave.reference.machine import Step, location_of
from cleave.reference.numerics import Array

_MOVES = ("cleave.cast", "cleave.rename", "cleave.split", "cleave.merge", "cleave.slice")
_EXPONENTIALS = ("cleave.exp", "cleave.exp2")
_THROUGH = ("cleave.mul", "cleave.div", "cleave.add", "cleave.sub", "cleave.neg", *_MOVES)


def applies(op: ir.Operation) -> bool:
    """Whether the op stands in a function with the attribute."""
    func = op
    while func.name != "func.func" and func.parent is not None:
        func = func.parent
    return "cleave.empty_rows" in func.attributes


def check(func: ir.Operation) -> None:
    """CleaveError, located, where a function with the attribute has ops that it says nothing of."""
    if not applies(func):
        return
    for view in func.regions[0].blocks[0].operations:
        op = view.operation
        if op.name.startswith("linalg."):
            text = f"cleave.empty_rows says nothing of '{op.name}'"
            raise CleaveError(text, location_of(op), ("run cleave-import-linalg first",))


def difference(op: ir.Operation, step: Step) -> Step:
    """A subtraction; of what reaches an exponential, −∞ − (−∞) is −∞."""
    if not _reaches_exponential(op):
        return step

    def kept(a: Array, b: Array) -> Array:
        found = np.asarray(step(a, b))
        return np.where((a == -np.inf) & (b == -np.inf), np.asarray(-np.inf, found.dtype), found)

    return kept


def quotient(op: ir.Operation, step: Step) -> Step:
    """A division; by a sum of exponentials, a zero divides as a one."""
    if _made_of(op.operands[1]) != {"exponential", "sum"}:
        return step
    return lambda a, b: step(a, np.where(b == 0, np.asarray(1, b.dtype), b))


def _reaches_exponential(op: ir.Operation) -> bool:
    users = [use.owner.operation for result in op.results for use in result.uses]
    return any(user.name in _EXPONENTIALS or (user.name in _THROUGH and _reaches_exponential(user)) for user in users)


def _made_of(value: ir.Value) -> set[str]:
    if isinstance(value.owner, ir.Block):
        return {"other"}
    op = value.owner.operation
    if op.name in _EXPONENTIALS:
        return {"exponential"}
    if op.name == "cleave.constant" and float(cleave.plain("number", op.attributes["value"])) >= 0:
        return set()
    sums = op.name == "cleave.contract" or (op.name == "cleave.reduce" and '"sum"' in str(op.attributes["kind"]))
    if not sums and op.name not in ("cleave.mul", "cleave.div", "cleave.add", "cleave.select", *_MOVES):
        return {"other"}
    operands = list(op.operands)[op.name == "cleave.select" :]
    return set[str]().union({"sum"} if sums else (), *map(_made_of, operands))
