"""Warpgroups that take turns at the tensor cores: one starts its products while the others compute.

Without that all wait for products at the same time, and compute at the same time. Each begins its products when the
one before it has started its own; the producer gives the first one its turn at the start. All go through the same
iterations, so a turn that is left over at the end of one loop is the first one's in the next.
"""

from __future__ import annotations

from cleave.bindings import ir
from cleave.lowering import tt, ttg
from cleave.lowering.loop_plan import LoopPlan, plan_of
from cleave.runtime.ttir_assembly import GIVEN, arrive_at, meet_at

_FIRST_BARRIER = 8
"""Named barriers below are Triton's."""
_THREADS = 256
_MUCH = 4
"""Ops on matrices in an iteration, from which on there is something to compute meanwhile."""


def wait_for_turn(number: ir.Value) -> None:
    """Of the consumer ``number``."""
    tt.assembly(meet_at(GIVEN, _THREADS), _barrier(number))


def give_turn(number: ir.Value) -> None:
    """To the consumer ``number``."""
    tt.assembly(arrive_at(GIVEN, _THREADS), _barrier(number))


def give_next_turn(number: ir.Value, consumers: int) -> None:
    """To the one behind the consumer ``number``, in a circle."""
    behind = tt.same("arith.addi", number, ttg.i32(1))
    give_turn(tt.select(tt.compare("eq", behind, ttg.i32(consumers)), ttg.i32(0), behind))


def _barrier(number: ir.Value) -> ir.Value:
    return tt.same("arith.addi", number, ttg.i32(_FIRST_BARRIER))


def computes_much(plan: LoopPlan) -> bool:
    """Whether an iteration has more to compute on whole tiles than products need for their operands."""
    ops = (*plan.first, *plan.prepare, *plan.finish)
    return sum(op.name.startswith(("arith.", "math.")) and _is_matrix(op) for op in ops) >= _MUCH


def takes_turns(loop: ir.Operation, resident: set[ir.Value]) -> bool:
    plan = plan_of(loop, resident)
    return plan is not None and computes_much(plan)


def _is_matrix(op: ir.Operation) -> bool:
    return len(op.results) == 1 and len(tt.shape_of(op.results[0])) == 2
