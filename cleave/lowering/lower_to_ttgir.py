"""``cleave-lower-to-ttgir``: kernels with contractions as warp-specialised TTGIR, the others as TTIR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering.form import Form
from cleave.lowering.lower_to_triton import LowerToTriton, surroundings
from cleave.lowering.to_triton import lower_kernel
from cleave.lowering.to_ttgir import lower_warp_specialised
from cleave.passes.diagnostics import remark
from cleave.passes.tile_io import WARP_SPECIALISED


@dataclass(frozen=True)
class LowerToTtgir(Form, LowerToTriton):
    """Lower scheduled kernels for sm_90 to TTGIR with partitions: a warp that copies, warpgroups that multiply.

    What has no such form goes to Triton's IR as ``cleave-lower-to-triton`` does it, with a remark that says why.
    Options are those of ``Form``, and ``chosen``: only kernels for which the schedule chose this form.
    """

    chosen: bool = False

    unregistered_ops: ClassVar[bool] = True

    def lowered(self, func: ir.Operation, module: ir.Module) -> ir.Operation:
        around = surroundings(func, module)
        if self.chosen and WARP_SPECIALISED not in func.attributes:
            return lower_kernel(func, around)
        try:
            return lower_warp_specialised(func, around, self)
        except CleaveError as error:
            name = ir.StringAttr(func.attributes["sym_name"]).value
            remark(func.location, f"'{name}' is lowered to TTIR: {error.message}", error.notes)
            return lower_kernel(func, around)
