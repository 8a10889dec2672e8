"""Loads by pointers that the producer copies to shared memory: operands of products that no descriptor describes.

Rows picked by an index, parts of rows, tensors whose rows are no multiple of 16 bytes. Each thread copies vectors of 4
to 16 bytes (``cp.async``), with zeros where the mask is false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import tt
from cleave.lowering.contiguity import NARROWEST, Contiguity, element_bytes
from cleave.lowering.encodings import Blocked
from cleave.lowering.register_layouts import views_of
from cleave.schedule.copying_threads import PRODUCER_THREADS, lanes_of_row

LOAD = "tt.load"
THREADS, WARPS = PRODUCER_THREADS, PRODUCER_THREADS // 32
"""Of a producer that has such loads, so that many copies are on their way and their addresses fit in registers."""


def copied_loads(loads: Sequence[ir.Operation], hints: Mapping[ir.Value, int]) -> dict[ir.Value, int]:
    """Of these loads by pointers those that are copied: by what is loaded, the elements of one thread's copy.

    ``hints``: as of ``Contiguity``. CleaveError for an operand of a product that neither can be copied nor is loaded
    by the consumers outside all loops.
    """
    contiguity = Contiguity(hints)
    found: dict[ir.Value, int] = {}
    for load in loads:
        left, right = _multiplied(load.results[0])
        if not right and not (left and tt.parent(load).name == "scf.for"):
            continue
        vector = contiguity.vector(load)
        size = vector * element_bytes(load.results[0])
        if size < NARROWEST:
            raise CleaveError(f"an operand of a product is loaded by pointers to {size} bytes, too few for a copy")
        if len(list(load.operands)) > 2 and not tt.is_zero(load.operands[2]):
            raise CleaveError("an operand of a product is loaded by pointers, and is not 0 past its end")
        found[load.results[0]] = vector
    return found


def _multiplied(value: ir.Value) -> tuple[bool, bool]:
    """Whether it is the left operand of a product as it is, and the right one."""
    uses = [(use.owner.operation.name, use.operand_number) for view in views_of(value) for use in view.uses]
    return ("tt.dot", 0) in uses, ("tt.dot", 1) in uses


def layout_of_copy(load: ir.Operation, vector: int) -> Blocked:
    """In which the producer has the addresses."""
    size = element_bytes(load.results[0])
    lanes = lanes_of_row(tt.shape_of(load.results[0])[1] * size, vector * size)
    return Blocked((1, vector), (32 // lanes, lanes), (WARPS, 1))


def is_indexed(load: ir.Operation) -> bool:
    """Whether elements of another tensor say where it reads."""
    pending, seen = [load.operands[0]], set[ir.Value]()
    while pending:
        value = pending.pop()
        if value in seen or isinstance(value.owner, ir.Block):
            continue
        seen.add(value)
        if value.owner.operation.name == LOAD:
            return True
        pending += value.owner.operation.operands
    return False
