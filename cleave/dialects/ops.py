"""The table of ops: what each takes, and the type that follows.

From this one table come the IRDL text, the verifier, the builders, graphs and the reference page. A row's ``infer`` is
a rule of ``result_types``; ``check_result`` compares what is written with what it gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cleave.dialects import result_types as rules
from cleave.dialects.dims import NO_FACTS, Facts
from cleave.dialects.result_types import Attrs, Infer
from cleave.dialects.tensor_type import TensorType, is_float, require_same_size
from cleave.errors import CleaveError

AttrKind = Literal["string", "strings", "number", "integer"]


@dataclass(frozen=True)
class OpSpec:
    """One op of the dialect.

    ``attrs`` are mandatory, ``optional_attrs`` may be left out. ``free_order``: the result's dims may be written in any
    order. ``free_dtype``: the result's dtype is the writer's choice among ``dtypes``. ``groups``: the operands of a
    ``VARIADIC`` op after ``operand_names``, any number of each name and of its kind.
    """

    name: str
    arity: int
    doc: str
    infer: Infer | None
    attrs: Mapping[str, AttrKind] = field(default_factory=dict)
    optional_attrs: Mapping[str, AttrKind] = field(default_factory=dict)
    free_order: bool = False
    free_dtype: bool = False
    stage: Literal["graph", "both", "kernel"] = "both"
    pure: bool = True
    operand_names: tuple[str, ...] = ()
    groups: Mapping[str, Literal["tensor", "index"]] = field(default_factory=dict)

    @property
    def all_attrs(self) -> dict[str, AttrKind]:
        return {**self.attrs, **self.optional_attrs}


def _unary(name: str, doc: str, infer: Infer = rules.infer_float_unary) -> OpSpec:
    return OpSpec(name, 1, doc, infer, free_order=True, operand_names=("x",))


def _binary(name: str, doc: str, infer: Infer = rules.infer_arithmetic) -> OpSpec:
    return OpSpec(name, 2, doc, infer, free_order=True, operand_names=("a", "b"))


def _kernel(name: str, arity: int, doc: str, **kwargs: Any) -> OpSpec:
    return OpSpec(name, arity, doc, None, stage="kernel", **kwargs)


VARIADIC = -1
_PLACE: Mapping[str, Literal["tensor", "index"]] = {"offsets": "index", "bounds": "index"}

_TABLE = (
    _unary("neg", "−x.", rules.infer_unary),
    _unary("exp", "e to the x."),
    _unary("exp2", "2 to the x."),
    _unary("log", "Natural logarithm; NaN below 0, −inf at 0."),
    _unary("sqrt", "Square root; NaN below 0."),
    _unary("rsqrt", "1/√x; +inf at 0."),
    _unary("tanh", "Hyperbolic tangent."),
    _unary("erf", "Error function."),
    _unary("sin", "Sine of radians."),
    _unary("cos", "Cosine of radians."),
    _unary("sigmoid", "1/(1+e^−x)."),
    _unary("abs", "Absolute value.", rules.infer_unary),
    _binary("add", "a + b; integers wrap."),
    _binary("sub", "a − b; integers wrap."),
    _binary("mul", "a · b; on i1, and.", rules.infer_binary),
    _binary("div", "a / b; integers round toward zero."),
    _binary("max", "The larger; NaN if either is NaN; on i1, or.", rules.infer_binary),
    _binary("min", "The smaller; NaN if either is NaN; on i1, and.", rules.infer_binary),
    _binary("pow", "a to the b.", rules.infer_pow),
    OpSpec(
        "cmp",
        2,
        "Comparison to i1; false with NaN, except ne.",
        rules.infer_cmp,
        {"predicate": "string"},
        free_order=True,
        operand_names=("a", "b"),
    ),
    OpSpec(
        "select",
        3,
        "a where the condition holds, b elsewhere; the other is not looked at.",
        rules.infer_select,
        free_order=True,
        operand_names=("condition", "a", "b"),
    ),
    OpSpec(
        "cast",
        1,
        "Conversion to the result's element type: to nearest even; float to integer toward zero.",
        rules.infer_cast,
        free_order=True,
        free_dtype=True,
        operand_names=("x",),
    ),
    OpSpec("constant", 0, "One value everywhere.", None, {"value": "number"}, free_order=True, free_dtype=True),
    OpSpec("index", 0, "0, 1, 2, … along a dimension.", rules.infer_index, {"dim": "string"}, free_dtype=True),
    OpSpec(
        "contract",
        2,
        "Sum of products over dimensions, accumulated in f32 (f64 for f64) and rounded once.",
        rules.infer_contract,
        {"over": "strings"},
        free_order=True,
        free_dtype=True,
        operand_names=("a", "b"),
    ),
    OpSpec(
        "reduce",
        1,
        "Sum, max, min or product over dimensions; on i1 min is all and max is any.",
        rules.infer_reduce,
        {"kind": "string", "over": "strings"},
        free_order=True,
        operand_names=("x",),
    ),
    OpSpec(
        "split",
        1,
        "Cut a dimension into parts: element (i, j) is i·size(second)+j; past the end nothing exists.",
        rules.infer_split,
        {"dim": "string", "into": "strings"},
        stage="graph",
        operand_names=("x",),
    ),
    OpSpec(
        "merge",
        1,
        "Make one dimension of several, row-major in the order written; the inverse of split.",
        rules.infer_merge,
        {"dims": "strings", "into": "string"},
        stage="graph",
        operand_names=("x",),
    ),
    OpSpec(
        "rename",
        1,
        "Give a dimension another name, so that one tensor can play two roles.",
        rules.infer_rename,
        {"from": "string", "to": "string"},
        stage="graph",
        operand_names=("x",),
    ),
    OpSpec(
        "slice",
        1,
        "A range of a dimension.",
        rules.infer_slice,
        {"dim": "string", "into": "string", "offset": "string"},
        stage="graph",
        operand_names=("x",),
    ),
    OpSpec(
        "concat",
        2,
        "Join two tensors along a dimension.",
        rules.infer_concat,
        {"dims": "strings", "into": "string"},
        stage="graph",
        operand_names=("a", "b"),
    ),
    OpSpec(
        "gather",
        2,
        "Elements of x at integer positions along a dimension.",
        rules.infer_gather,
        {"dim": "string"},
        free_order=True,
        stage="graph",
        operand_names=("x", "indices"),
    ),
    _kernel(
        "alloc",
        0,
        'Host: memory for a tensor, not initialised; with contents = "zero", zeros, which its users leave there.',
        optional_attrs={"contents": "string"},
        pure=False,
    ),
    _kernel("program_id", 0, "The thread block's coordinate on a grid axis.", attrs={"axis": "integer"}),
    _kernel("extent", 0, "A size expression's value at run time.", attrs={"size": "string"}),
    _kernel(
        "splat", 1, "An index as a rank-0 i64 tensor, so that it meets tiles by broadcasting.", operand_names=("value",)
    ),
    OpSpec(
        "fma",
        3,
        "a · b + c, rounded once.",
        rules.infer_fma,
        free_order=True,
        stage="kernel",
        operand_names=("a", "b", "c"),
    ),
    _kernel("scalar", 1, "A rank-0 tensor of i32 or i64 as an index.", operand_names=("value",)),
    _kernel(
        "load",
        VARIADIC,
        "A static tile of a tensor in memory at offsets; at or past a bound it is the fill value.",
        attrs={"fill": "number"},
        optional_attrs={"in_bounds": "strings"},
        operand_names=("source",),
        groups=_PLACE,
        pure=False,
    ),
    _kernel(
        "gather_load",
        VARIADIC,
        "A load with positions along some dims from tiles of indices, all of one type; where one is below 0 or not "
        "below its bound, the element is the fill value and nothing is read.",
        attrs={"dims": "strings", "fill": "number"},
        optional_attrs={"in_bounds": "strings"},
        operand_names=("source",),
        groups={"indices": "tensor", **_PLACE},
        pure=False,
    ),
    _kernel(
        "store",
        VARIADIC,
        "Write a tile at offsets; nothing is written at or past a bound.",
        optional_attrs={"in_bounds": "strings"},
        operand_names=("tile", "destination"),
        groups=_PLACE,
        pure=False,
    ),
    _kernel("trigger", 0, "The next launch may start; its blocks run up to their wait.", pure=False),
    _kernel("wait", 0, "Go on when all launches before this one are complete and their writes are seen.", pure=False),
    _kernel(
        "group_barrier",
        3,
        "Count this block's arrival at element `group` of `counters`, and go on when `count` blocks have arrived: what "
        "they wrote before is seen. The counter is 0 before the first arrives and after the last has gone on.",
        operand_names=("counters", "group", "count"),
        pure=False,
    ),
)

OPS: dict[str, OpSpec] = {spec.name: spec for spec in _TABLE}
UNARY = tuple(s.name for s in _TABLE if s.arity == 1 and s.infer in (rules.infer_float_unary, rules.infer_unary))
BINARY = tuple(
    s.name for s in _TABLE if s.arity == 2 and s.infer in (rules.infer_arithmetic, rules.infer_binary, rules.infer_pow)
)
POINTWISE = frozenset((*UNARY, *BINARY, "cmp", "select", "cast", "fma"))
REDUCTIONS = frozenset(("contract", "reduce"))
VIEWS = frozenset(("rename", "split", "merge", "slice"))
"""Elements of one tensor under other indices: views where it is in memory."""


def infer(name: str, types: Sequence[TensorType], attrs: Attrs, facts: Facts = NO_FACTS) -> TensorType:
    """The default result type of a graph op; CleaveError where operands or attributes disagree."""
    spec = OPS[name]
    if spec.infer is None:
        raise CleaveError(f"the result type of cleave.{name} cannot be inferred")
    return spec.infer(types, attrs, facts)


def check_result(name: str, types: Sequence[TensorType], attrs: Attrs, result: TensorType, facts: Facts) -> None:
    """CleaveError unless ``result`` is a type that the op may have."""
    spec = OPS[name]
    if spec.infer is None:
        return
    expected = infer(name, types, attrs, facts)
    if set(result.names) != set(expected.names) or (not spec.free_order and result.names != expected.names):
        order = "" if spec.free_order else " in this order"
        raise CleaveError(
            f"the result has dimensions [{', '.join(result.names)}], the operands give "
            f"[{', '.join(expected.names)}]{order}"
        )
    for dim in expected.dims:
        require_same_size(dim.name, dim.size, result.size(dim.name), "the result", facts)
    _check_result_dtype(spec, types, result, expected)


def _check_result_dtype(spec: OpSpec, types: Sequence[TensorType], result: TensorType, expected: TensorType) -> None:
    if not spec.free_dtype and result.dtype != expected.dtype:
        raise CleaveError(f"the result is {result.dtype}, the operands give {expected.dtype}")
    if spec.name == "contract" and is_float(result.dtype) != is_float(expected.dtype):
        raise CleaveError(f"the result is {result.dtype}, the operands give {expected.dtype}")
    if spec.name == "index" and (is_float(result.dtype) or result.dtype == "i1"):
        raise CleaveError(f"positions are of an integer type, not {result.dtype}", notes=("cast them",))
    if result.dtype == "tf32" and spec.name != "cast":
        raise CleaveError("tf32 exists only as the result of cleave.cast, to feed contractions")
