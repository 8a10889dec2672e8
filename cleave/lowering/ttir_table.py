"""Triton's ops as the verifier knows them: the attributes each takes, and what has no lowering.

Triton ignores attributes it does not know, so a misspelt one would silently do nothing (Triton 3.6 and 3.7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cleave.bindings import ir


def _integer(width: int) -> Callable[[ir.Attribute], bool]:
    def check(attr: ir.Attribute) -> bool:
        return isinstance(attr, ir.IntegerAttr) and str(attr.type) == f"i{width}"

    return check


def _i32_or_dense(attr: ir.Attribute) -> bool:
    return _integer(32)(attr) or (isinstance(attr, ir.DenseIntElementsAttr) and str(attr.type).endswith("xi32>"))


KINDS: Mapping[str, Callable[[ir.Attribute], bool]] = {
    "i32": _integer(32),
    "i1": lambda attr: isinstance(attr, ir.BoolAttr),
    "i32 or dense i32": _i32_or_dense,
    "array<i32>": lambda attr: isinstance(attr, ir.DenseI32ArrayAttr),
    "string": lambda attr: isinstance(attr, ir.StringAttr),
    "unit": lambda attr: isinstance(attr, ir.UnitAttr),
    "function type": lambda attr: isinstance(attr, ir.TypeAttr) and isinstance(attr.value, ir.FunctionType),
    "array of dictionaries": lambda attr: (
        isinstance(attr, ir.ArrayAttr) and all(isinstance(entry, ir.DictAttr) for entry in attr)
    ),
}


@dataclass(frozen=True)
class OpRow:
    """One op: its mandatory and optional attributes with their kinds (keys of ``KINDS``)."""

    required: Mapping[str, str] = field(default_factory=dict[str, str])
    optional: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def attributes(self) -> dict[str, str]:
        return {**self.required, **self.optional}


_MEMORY = {"cache": "i32", "evict": "i32"}
_SEGMENTS = {"operandSegmentSizes": "array<i32>"}
_NONE = OpRow()
_ATOMIC = {"sem": "i32", "scope": "i32"}

OPS: Mapping[str, OpRow] = {
    "tt.func": OpRow(
        {"function_type": "function type", "sym_name": "string"},
        {
            "sym_visibility": "string",
            "arg_attrs": "array of dictionaries",
            "res_attrs": "array of dictionaries",
            "noinline": "i1",
        },
    ),
    "tt.return": _NONE,
    "tt.get_program_id": OpRow({"axis": "i32"}),
    "tt.get_num_programs": OpRow({"axis": "i32"}),
    "tt.make_range": OpRow({"start": "i32", "end": "i32"}),
    "tt.splat": _NONE,
    "tt.unsplat": _NONE,
    "tt.expand_dims": OpRow({"axis": "i32"}),
    "tt.broadcast": _NONE,
    "tt.reshape": OpRow(optional={"allow_reorder": "unit", "efficient_layout": "unit"}),
    "tt.trans": OpRow({"order": "array<i32>"}),
    "tt.join": _NONE,
    "tt.split": _NONE,
    "tt.cat": _NONE,
    "tt.addptr": _NONE,
    "tt.bitcast": _NONE,
    "tt.int_to_ptr": _NONE,
    "tt.ptr_to_int": _NONE,
    "tt.fp_to_fp": OpRow(optional={"rounding": "i32"}),
    "tt.mulhiui": _NONE,
    "tt.clampf": OpRow({"propagateNan": "i32"}),
    "tt.precise_sqrt": _NONE,
    "tt.precise_divf": _NONE,
    "tt.load": OpRow(_SEGMENTS, {**_MEMORY, "isVolatile": "i1"}),
    "tt.store": OpRow(optional=_MEMORY),
    "tt.dot": OpRow(optional={"inputPrecision": "i32", "maxNumImpreciseAcc": "i32"}),
    "tt.reduce": OpRow({"axis": "i32"}),
    "tt.reduce.return": _NONE,
    "tt.scan": OpRow({"axis": "i32", "reverse": "i1"}),
    "tt.scan.return": _NONE,
    "tt.atomic_rmw": OpRow({"atomic_rmw_op": "i32", **_ATOMIC}),
    "tt.atomic_cas": OpRow(_ATOMIC),
    "tt.extern_elementwise": OpRow({"libname": "string", "libpath": "string", "symbol": "string", "pure": "i1"}),
    "tt.elementwise_inline_asm": OpRow(
        {"asm_string": "string", "constraints": "string", "pure": "i1", "packed_element": "i32"}
    ),
    "tt.make_tensor_descriptor": OpRow(optional={"padding": "i32"}),
    "tt.descriptor_load": OpRow(optional=_MEMORY),
    "tt.descriptor_store": _NONE,
    "tt.descriptor_reduce": OpRow({"kind": "i32"}),
    "tt.gather": OpRow({"axis": "i32"}, {"efficient_layout": "unit"}),
    "tt.histogram": _NONE,
    "tt.assert": OpRow({"message": "string"}),
}

HINTS: Mapping[str, str] = dict.fromkeys(("tt.divisibility", "tt.contiguity", "tt.constancy"), "i32 or dense i32")
ARGUMENT_HINTS: Mapping[str, str] = {"tt.divisibility": "i32", "tt.contiguity": "i32", "tt.constancy": "i32"}
LOOP_HINTS: Mapping[str, str] = {
    "tt.num_stages": "i32",
    "tt.loop_unroll_factor": "i32",
    "tt.flatten": "unit",
    "tt.warp_specialize": "unit",
    "tt.disallow_acc_multi_buffer": "unit",
}

# Pure ops of upstream dialects for which Triton has no lowering on tensors, and what to write instead.
_UNLOWERED_MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt clampf copysign cosh ctlz ctpop cttz erfc expm1 fpowi ipowi log10 "
    "log1p powf round roundeven sincos sinh tan tanh trunc"
)
_LIBDEVICE = "use tt.extern_elementwise with a libdevice symbol such as __nv_tanhf"
NO_LOWERING: Mapping[str, str] = {
    **dict.fromkeys((f"math.{name}" for name in _UNLOWERED_MATH.split()), _LIBDEVICE),
    "arith.negf": "subtract from -0.0",
    "arith.bitcast": "use tt.bitcast",
    "arith.mulsi_extended": "use tt.mulhiui",
}

ATOMIC_ON_INTEGERS = {1: "and", 2: "or", 3: "xor", 4: "add", 6: "max", 7: "min", 8: "umax", 9: "umin"}
ATOMIC_FADD = 5
LARGEST_TENSOR = 2**20  # elements
