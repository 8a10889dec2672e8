"""The table of ops: what each takes, and the type that follows.

From this one table come the IRDL text, the verifier, the builders, graphs and the reference page. A row's ``infer``
receives the operands' types and the attributes in plain Python form and returns the result's type, or raises
``CleaveError`` saying what disagrees. Where the order of the result's dims or its dtype is free, ``infer`` gives the
default; ``check_result`` compares what is written with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from cleave.dialects.dims import Answer, Dim, Facts, Size, parse
from cleave.errors import CleaveError

FLOATS = ("f16", "bf16", "f32", "f64", "tf32", "f8E4M3FN", "f8E5M2")
INTEGERS = ("i1", "i8", "i16", "i32", "i64", "index")
DTYPES = FLOATS + INTEGERS
CMP_PREDICATES = ("lt", "le", "eq", "ne", "gt", "ge")
REDUCE_KINDS = ("sum", "max", "min", "prod")
NO_FACTS = Facts.parse(())


class TensorType(NamedTuple):
    """A tensor's named dims, in the order of memory, and its element type."""

    dims: tuple[Dim, ...]
    dtype: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dim.name for dim in self.dims)

    def size(self, name: str) -> Size:
        """The size of the dim ``name``; CleaveError if there is none."""
        for dim in self.dims:
            if dim.name == name:
                return dim.size
        raise CleaveError(f"no dimension '{name}' in {self}")

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.dims))}] {self.dtype}"


Attrs = Mapping[str, Any]
Infer = Callable[[Sequence[TensorType], Attrs, Facts], TensorType]
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


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def accumulator(dtype: str) -> str:
    """The type in which sums of ``dtype`` are accumulated."""
    return dtype if dtype == "f64" or not is_float(dtype) else "f32"


def same_size(a: Size, b: Size, facts: Facts) -> Answer:
    return facts.equal(a, b)


def union(types: Sequence[TensorType], facts: Facts) -> tuple[Dim, ...]:
    """The dims of all operands, aligned by name, in the order in which they first occur."""
    found: dict[str, Dim] = {}
    for index, type_ in enumerate(types):
        for dim in type_.dims:
            known = found.setdefault(dim.name, dim)
            if known.size is not dim.size:
                require_same_size(dim.name, known.size, dim.size, f"operand {index}", facts)
    return tuple(found.values())


def require_same_size(name: str, one: Size, other: Size, where: str, facts: Facts) -> None:
    answer = same_size(one, other, facts)
    if answer is Answer.NO:
        raise CleaveError(f"dimension '{name}' has size {one} and, in {where}, size {other}")
    if answer is Answer.UNKNOWN:
        raise CleaveError(
            f"cannot prove that dimension '{name}' has one size: {one} and, in {where}, {other}",
            notes=(f'state the fact "{one} = {other}" (cleave.facts, facts= of jit), or rename one of the two',),
        )


def require_one_dtype(types: Sequence[TensorType]) -> str:
    dtypes = {t.dtype for t in types}
    if len(dtypes) != 1:
        raise CleaveError(
            f"operands have different element types: {', '.join(t.dtype for t in types)}", notes=("insert cleave.cast",)
        )
    return types[0].dtype


def parse_dim(text: str) -> Dim:
    return Dim.parse(text)


def _require_new(name: str, dims: Sequence[Dim], removed: Sequence[str]) -> None:
    if any(dim.name == name for dim in dims if dim.name not in removed):
        raise CleaveError(f"the result would have two dimensions named '{name}'")


# --- inference rules -------------------------------------------------------------------------------------------------


def infer_float_unary(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    if not is_float(types[0].dtype):
        raise CleaveError(f"needs a floating-point operand, not {types[0].dtype}", notes=("insert cleave.cast",))
    return types[0]


def infer_unary(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    if types[0].dtype == "i1":
        raise CleaveError("needs a numeric operand, not i1")
    return types[0]


def infer_binary(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    return TensorType(union(types, facts), require_one_dtype(types))


def infer_arithmetic(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    result = infer_binary(types, attrs, facts)
    if result.dtype == "i1":
        raise CleaveError("not defined on i1", notes=("mul and min are 'and', max is 'or'",))
    return result


def infer_pow(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    result = infer_binary(types, attrs, facts)
    return infer_float_unary([result], attrs, facts)


def infer_cmp(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    _one_of("predicate", attrs["predicate"], CMP_PREDICATES)
    require_one_dtype(types)
    return TensorType(union(types, facts), "i1")


def infer_select(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    if types[0].dtype != "i1":
        raise CleaveError(f"the condition must be i1, not {types[0].dtype}")
    return TensorType(union(types, facts), require_one_dtype(types[1:]))


def infer_cast(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    return types[0]


def infer_index(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    return TensorType((parse_dim(attrs["dim"]),), "i64")


def infer_contract(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    dims = union(types, facts)
    over = _over(attrs["over"], dims)
    for type_ in types:
        if type_.dtype == "i1":
            raise CleaveError("not defined on i1")
    if is_float(types[0].dtype) != is_float(types[1].dtype):
        raise CleaveError(f"operands have different element types: {types[0].dtype}, {types[1].dtype}")
    if not is_float(types[0].dtype):
        require_one_dtype(types)
    dtype = (
        "f64" if "f64" in (types[0].dtype, types[1].dtype) else "f32" if is_float(types[0].dtype) else types[0].dtype
    )
    return TensorType(tuple(d for d in dims if d.name not in over), dtype)


def infer_reduce(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    _one_of("kind", attrs["kind"], REDUCE_KINDS)
    if types[0].dtype == "i1" and attrs["kind"] == "sum":
        raise CleaveError("sum is not defined on i1", notes=("min is 'all', max is 'any'; cast to count",))
    over = _over(attrs["over"], types[0].dims)
    for dim in types[0].dims:
        if dim.name in over and attrs["kind"] in ("max", "min") and dim.size.value == 0:
            raise CleaveError(f"{attrs['kind']} over the empty dimension '{dim.name}' has no value")
    return TensorType(tuple(d for d in types[0].dims if d.name not in over), types[0].dtype)


def infer_split(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    name, into = attrs["dim"], [parse_dim(text) for text in attrs["into"]]
    if len(into) != 2:
        raise CleaveError(f"'into' must name two dimensions, not {len(into)}")
    whole = types[0].size(name)
    if into[0].name == into[1].name:
        raise CleaveError(f"'into' names '{into[0].name}' twice")
    for dim in into:
        _require_new(dim.name, types[0].dims, [name])
    if facts.less_equal(whole, into[0].size * into[1].size) is Answer.NO:
        raise CleaveError(f"{into[0].size} parts of {into[1].size} do not cover dimension '{name}' of size {whole}")
    return TensorType(_replace(types[0].dims, name, into), types[0].dtype)


def infer_merge(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    names = list(attrs["dims"])
    if len(names) < 2 or len(set(names)) != len(names):
        raise CleaveError("'dims' must name at least two different dimensions")
    product = parse("1")
    for name in names:
        product = product * types[0].size(name)
    into = parse_dim(attrs["into"])
    whole = product if into.size is parse(into.name) and "=" not in attrs["into"] else into.size
    if facts.less(product, whole) is Answer.YES:
        raise CleaveError(
            f"'{into.name}' of size {whole} is larger than the product {product} of the merged dimensions"
        )
    _require_new(into.name, types[0].dims, names)
    first = next(dim.name for dim in types[0].dims if dim.name in names)
    kept = [dim for dim in types[0].dims if dim.name == first or dim.name not in names]
    return TensorType(_replace(tuple(kept), first, [Dim(into.name, whole)]), types[0].dtype)


def infer_rename(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    old, to = attrs["from"], parse_dim(attrs["to"])
    size = types[0].size(old)
    _require_new(to.name, types[0].dims, [old])
    if "=" in attrs["to"]:
        require_same_size(to.name, size, to.size, "'to'", facts)
    return TensorType(_replace(types[0].dims, old, [Dim(to.name, size)]), types[0].dtype)


def infer_slice(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    name, into, offset = attrs["dim"], parse_dim(attrs["into"]), parse(attrs["offset"])
    whole = types[0].size(name)
    _require_new(into.name, types[0].dims, [name])
    if facts.less(whole, offset + into.size) is Answer.YES:
        raise CleaveError(
            f"the slice [{offset}, {offset + into.size}) leaves dimension '{name}' of size {facts.simplify(whole)}"
        )
    return TensorType(_replace(types[0].dims, name, [into]), types[0].dtype)


def infer_concat(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    names, into = list(attrs["dims"]), parse_dim(attrs["into"])
    if len(names) != 2:
        raise CleaveError(f"'dims' must name one dimension of each operand, not {len(names)}")
    dtype = require_one_dtype(types)
    rests = [{d.name: d.size for d in t.dims if d.name != n} for t, n in zip(types, names, strict=True)]
    if set(rests[0]) != set(rests[1]):
        raise CleaveError(f"beside the joined dimensions the operands have {sorted(rests[0])} and {sorted(rests[1])}")
    for name, size in rests[0].items():
        require_same_size(name, size, rests[1][name], "operand 1", facts)
    total = types[0].size(names[0]) + types[1].size(names[1])
    if "=" in attrs["into"]:
        require_same_size(into.name, total, into.size, "'into'", facts)
    _require_new(into.name, types[0].dims, [names[0]])
    return TensorType(_replace(types[0].dims, names[0], [Dim(into.name, total)]), dtype)


def infer_gather(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    types[0].size(attrs["dim"])
    if is_float(types[1].dtype) or types[1].dtype == "i1":
        raise CleaveError(f"indices must be integers, not {types[1].dtype}")
    if attrs["dim"] in types[1].names:
        raise CleaveError(f"the indices have the gathered dimension '{attrs['dim']}' themselves", notes=("rename it",))
    source = TensorType(tuple(d for d in types[0].dims if d.name != attrs["dim"]), types[0].dtype)
    return TensorType(union([source, types[1]], facts), types[0].dtype)


def _one_of(what: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise CleaveError(f"{what} '{value}' is not one of {', '.join(allowed)}")


def _over(over: Sequence[str], dims: Sequence[Dim]) -> frozenset[str]:
    names = [dim.name for dim in dims]
    if not over:
        raise CleaveError("'over' names no dimension")
    for name in over:
        if name not in names:
            raise CleaveError(f"'over' names '{name}', which no operand has (they have {', '.join(names) or 'none'})")
    if len(set(over)) != len(over):
        raise CleaveError("'over' names a dimension twice")
    return frozenset(over)


def _replace(dims: tuple[Dim, ...], name: str, by: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(new for dim in dims for new in (by if dim.name == name else (dim,)))


# --- the table -------------------------------------------------------------------------------------------------------


def _unary(name: str, doc: str, infer: Infer = infer_float_unary) -> OpSpec:
    return OpSpec(name, 1, doc, infer, free_order=True, operand_names=("x",))


def _binary(name: str, doc: str, infer: Infer = infer_arithmetic) -> OpSpec:
    return OpSpec(name, 2, doc, infer, free_order=True, operand_names=("a", "b"))


def _kernel(name: str, arity: int, doc: str, **kwargs: Any) -> OpSpec:
    return OpSpec(name, arity, doc, None, stage="kernel", **kwargs)


VARIADIC = -1
_PLACE: Mapping[str, Literal["tensor", "index"]] = {"offsets": "index", "bounds": "index"}

_TABLE = (
    _unary("neg", "−x.", infer_unary),
    _unary("exp", "e to the x."),
    _unary("exp2", "2 to the x."),
    _unary("log", "Natural logarithm; NaN below 0, −inf at 0."),
    _unary("sqrt", "Square root; NaN below 0."),
    _unary("rsqrt", "1/√x; +inf at 0."),
    _unary("tanh", "Hyperbolic tangent."),
    _unary("erf", "Error function."),
    _unary("sigmoid", "1/(1+e^−x)."),
    _unary("abs", "Absolute value.", infer_unary),
    _binary("add", "a + b; integers wrap."),
    _binary("sub", "a − b; integers wrap."),
    _binary("mul", "a · b; on i1, and.", infer_binary),
    _binary("div", "a / b; integers round toward zero."),
    _binary("max", "The larger; NaN if either is NaN; on i1, or.", infer_binary),
    _binary("min", "The smaller; NaN if either is NaN; on i1, and.", infer_binary),
    _binary("pow", "a to the b.", infer_pow),
    OpSpec(
        "cmp",
        2,
        "Comparison to i1; false with NaN, except ne.",
        infer_cmp,
        {"predicate": "string"},
        free_order=True,
        operand_names=("a", "b"),
    ),
    OpSpec(
        "select",
        3,
        "a where the condition holds, b elsewhere; the other is not looked at.",
        infer_select,
        free_order=True,
        operand_names=("condition", "a", "b"),
    ),
    OpSpec(
        "cast",
        1,
        "Conversion to the result's element type: to nearest even; float to integer toward zero.",
        infer_cast,
        free_order=True,
        free_dtype=True,
        operand_names=("x",),
    ),
    OpSpec("constant", 0, "One value everywhere.", None, {"value": "number"}, free_order=True, free_dtype=True),
    OpSpec("index", 0, "0, 1, 2, … along a dimension.", infer_index, {"dim": "string"}, free_dtype=True),
    OpSpec(
        "contract",
        2,
        "Sum of products over dimensions, accumulated in f32 (f64 for f64) and rounded once.",
        infer_contract,
        {"over": "strings"},
        free_order=True,
        free_dtype=True,
        operand_names=("a", "b"),
    ),
    OpSpec(
        "reduce",
        1,
        "Sum, max, min or product over dimensions; on i1 min is all and max is any.",
        infer_reduce,
        {"kind": "string", "over": "strings"},
        free_order=True,
        operand_names=("x",),
    ),
    OpSpec(
        "split",
        1,
        "Cut a dimension into parts: element (i, j) is i·size(second)+j; past the end nothing exists.",
        infer_split,
        {"dim": "string", "into": "strings"},
        stage="graph",
        operand_names=("x",),
    ),
    OpSpec(
        "merge",
        1,
        "Make one dimension of several, row-major in the order written; the inverse of split.",
        infer_merge,
        {"dims": "strings", "into": "string"},
        stage="graph",
        operand_names=("x",),
    ),
    OpSpec(
        "rename",
        1,
        "Give a dimension another name, so that one tensor can play two roles.",
        infer_rename,
        {"from": "string", "to": "string"},
        stage="graph",
        operand_names=("x",),
    ),
    OpSpec(
        "slice",
        1,
        "A range of a dimension.",
        infer_slice,
        {"dim": "string", "into": "string", "offset": "string"},
        stage="graph",
        operand_names=("x",),
    ),
    OpSpec(
        "concat",
        2,
        "Join two tensors along a dimension.",
        infer_concat,
        {"dims": "strings", "into": "string"},
        stage="graph",
        operand_names=("a", "b"),
    ),
    OpSpec(
        "gather",
        2,
        "Elements of x at integer positions along a dimension.",
        infer_gather,
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
UNARY = tuple(s.name for s in _TABLE if s.arity == 1 and s.infer in (infer_float_unary, infer_unary))
BINARY = tuple(s.name for s in _TABLE if s.arity == 2 and s.infer in (infer_arithmetic, infer_binary, infer_pow))
POINTWISE = frozenset((*UNARY, *BINARY, "cmp", "select", "cast"))
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
        raise CleaveError(f"the result must be an integer type, not {result.dtype}")
    if result.dtype == "tf32" and spec.name != "cast":
        raise CleaveError("tf32 exists only as the result of cleave.cast, to feed contractions")
