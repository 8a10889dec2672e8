"""A scheduled kernel as warp-specialised TTGIR for sm_90: one warp copies tiles, warpgroups multiply and compute.

It is divided among the consumers in each way that is possible (``division``), of which the best one is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import division
from cleave.lowering.divided_kernel import DividedKernel
from cleave.lowering.division import WHOLE, Division
from cleave.lowering.form import Form
from cleave.lowering.kernel_builder import Surroundings
from cleave.lowering.outgoing import PIECES

_STAGES = 3
"""With so many it is no loss to have no more."""


def lower_warp_specialised(func: ir.Operation, around: Surroundings, form: Form) -> ir.Operation:
    """Build, at the current insertion point, the module with the TTGIR of the kernel ``func``.

    CleaveError, with the reason, for what has no such form; nothing is left behind then.
    """
    found: list[DividedKernel] = []
    if division.barrier_of(func):  # all blocks run at once, and write what others read
        form = replace(form, persistent=False, stored_by_copies=False)
    try:
        reasons: list[CleaveError] = []
        for group in _alternatives(func):
            failures = _add_divided(found, func, around, group, form)
            if found:
                return min(found, key=DividedKernel.operand_traffic).build()
            reasons += failures
        raise reasons[-1]
    finally:
        for each in found:
            each.erase()


def _alternatives(func: ir.Operation) -> list[list[Division]]:
    """Divisions in the order in which they are tried: one consumer only where nothing can be divided, and products
    without the columns, in parts or repeated, only where one consumer cannot hold the tiles."""
    every = division.divisions(func)
    shared = [each for each in every if each is not WHOLE and not each.repeats]
    exchanging = [each for each in every if each.exchanged]
    return [shared, [WHOLE], exchanging, [each for each in every if each.repeats and not each.exchanged]]


def _add_divided(
    found: list[DividedKernel], func: ir.Operation, around: Surroundings, group: Sequence[Division], form: Form
) -> list[CleaveError]:
    """Add those that are possible; why others are not."""
    failures: list[CleaveError] = []
    for each in group:
        try:
            found.append(_divided(func, around, each, form))
        except CleaveError as error:
            failures.append(error)
    return failures


def _divided(func: ir.Operation, around: Surroundings, divided: Division, form: Form) -> DividedKernel:
    """Its results are not stored by copies where that would leave too little room for those to come."""
    if not form.stored_by_copies:
        return DividedKernel(func, around, divided, form)
    plain = DividedKernel(func, around, divided, replace(form, stored_by_copies=False))
    for pieces in PIECES:
        try:
            found = DividedKernel(func, around, divided, form, pieces)
        except CleaveError:
            continue
        if found.stages >= min(_STAGES, plain.stages):
            plain.erase()
            return found
        found.erase()
    return plain
