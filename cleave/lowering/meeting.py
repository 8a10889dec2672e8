"""Consumers at a barrier of blocks, of which the producer knows nothing.

What they have stored is seen by other blocks: they meet, then one thread counts the block, which releases all writes
that it knows of, and waits; they meet again, so that all know what it has acquired. Their stores are therefore such as
threads carry out themselves; copies from shared memory to memory would need to be complete, and a fence.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleave.bindings import ir
from cleave.lowering import tt
from cleave.runtime.ttir_assembly import COUNT_BLOCK, GROUP_BARRIER, meet_at

_BARRIER = 12
"""A named one, behind those of turns and exchanges."""
_THREADS = 128


def is_barrier(op: ir.Operation) -> bool:
    """Whether all threads of blocks meet there, as the source has it."""
    return op.name == "tt.elementwise_inline_asm" and ir.StringAttr(op.attributes["asm_string"]).value == GROUP_BARRIER


def multiplies_behind(ops: Sequence[ir.Operation]) -> bool:
    """Whether there are products among what blocks do when they have met; ``ops``: all of a function, in order."""
    met = next((place for place, op in enumerate(ops) if is_barrier(op)), len(ops))
    return any(op.name == "tt.dot" for op in ops[met:])


def meet_blocks(consumers: int, operands: Sequence[ir.Value]) -> None:
    """``operands``: the counter's address, and how many blocks meet there."""
    text = meet_at(_BARRIER, consumers * _THREADS)
    tt.assembly(text)
    tt.assembly(COUNT_BLOCK, *operands)
    tt.assembly(text)
