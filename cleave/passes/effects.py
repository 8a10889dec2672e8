"""Which ops may be removed when unused, and which of two equal ones may stand for both.

MLIR's own ``cse`` and ``canonicalize`` leave ops of IRDL dialects alone, since IRDL cannot say that an op is pure.
"""

from __future__ import annotations

from cleave.bindings import ir
from cleave.dialects.ops import OPS

_PURE_DIALECTS = ("cleave", "arith", "math")
# Among these are loads. Two equal ones are not merged even where nothing is written between them: the scheduler loads
# twice on purpose where one copy feeds tensor cores and the other registers.
_IMPURE = frozenset(f"cleave.{spec.name}" for spec in OPS.values() if not spec.pure)
_REMOVABLE_MEMORY_OPS = frozenset(("cleave.alloc", "cleave.load", "cleave.gather_load"))
_STRUCTURED_OPS = frozenset(("scf.for", "scf.if"))
_REGION_ENDS = frozenset(("scf.yield",))


def is_pure(op: ir.Operation) -> bool:
    """The results depend on the operands and attributes alone, and nothing else happens."""
    return op.name.partition(".")[0] in _PURE_DIALECTS and op.name not in _IMPURE and not len(op.regions)


def is_removable(op: ir.Operation) -> bool:
    """Nothing but the results of the op, or of what it encloses, can be observed."""
    if op.name in _STRUCTURED_OPS:
        return all(is_removable(inner) or inner.name in _REGION_ENDS for inner in _inner(op))
    return is_pure(op) or op.name in _REMOVABLE_MEMORY_OPS


def _inner(op: ir.Operation) -> list[ir.Operation]:
    return [inner.operation for region in op.regions for block in region for inner in block.operations]
