"""The type that follows from an op's operands and attributes, or a CleaveError that says what disagrees.

A rule receives the operands' types and the attributes in plain Python form. Where the order of the result's dims or its
element type is free, it gives the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cleave.dialects.dims import Answer, Dim, Facts, parse
from cleave.dialects.tensor_type import INSERT_CAST, TensorType, is_float, require_one_dtype, require_same_size, union
from cleave.errors import CleaveError

CMP_PREDICATES = ("lt", "le", "eq", "ne", "gt", "ge")
REDUCE_KINDS = ("sum", "max", "min", "prod")

Attrs = Mapping[str, Any]
Infer = Callable[[Sequence[TensorType], Attrs, Facts], TensorType]


def infer_float_unary(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    if not is_float(types[0].dtype):
        raise CleaveError(f"needs a floating-point operand, not {types[0].dtype}", notes=(INSERT_CAST,))
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


def infer_fma(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    return infer_float_unary([TensorType(union(types, facts), require_one_dtype(types))], attrs, facts)


def infer_index(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    return TensorType((Dim.parse(attrs["dim"]),), "i64")


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
    name, into = attrs["dim"], [Dim.parse(text) for text in attrs["into"]]
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
    into = Dim.parse(attrs["into"])
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
    old, to = attrs["from"], Dim.parse(attrs["to"])
    size = types[0].size(old)
    _require_new(to.name, types[0].dims, [old])
    if "=" in attrs["to"]:
        require_same_size(to.name, size, to.size, "'to'", facts)
    return TensorType(_replace(types[0].dims, old, [Dim(to.name, size)]), types[0].dtype)


def infer_slice(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    name, into, offset = attrs["dim"], Dim.parse(attrs["into"]), parse(attrs["offset"])
    whole = types[0].size(name)
    _require_new(into.name, types[0].dims, [name])
    if facts.less(offset, 0) is Answer.YES:
        raise CleaveError(f"the slice of dimension '{name}' starts at {offset}, below 0")
    if facts.less(whole, offset + into.size) is Answer.YES:
        raise CleaveError(
            f"the slice [{offset}, {offset + into.size}) leaves dimension '{name}' of size {facts.simplify(whole)}"
        )
    return TensorType(_replace(types[0].dims, name, [into]), types[0].dtype)


def infer_concat(types: Sequence[TensorType], attrs: Attrs, facts: Facts) -> TensorType:
    names, into = list(attrs["dims"]), Dim.parse(attrs["into"])
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


def _require_new(name: str, dims: Sequence[Dim], removed: Sequence[str]) -> None:
    if any(dim.name == name for dim in dims if dim.name not in removed):
        raise CleaveError(f"the result would have two dimensions named '{name}'")
