"""``cleave-verify``: everything about our ops that IRDL cannot check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Facts, parse, sym
from cleave.dialects.ops import OPS, OpSpec, check_result
from cleave.dialects.tensor_type import TensorType, is_float
from cleave.errors import CleaveError, CleaveErrors
from cleave.passes.functions import ops_inside
from cleave.passes.verify_launches import launch_problems

FUNCTION_ATTRS = frozenset(
    "cleave.facts cleave.empty_rows cleave.alternative_of cleave.alternative cleave.cost cleave.certificate "
    "cleave.choices cleave.aligned cleave.kernel cleave.num_warps cleave.num_stages cleave.descriptors "
    "cleave.warp_specialised".split()
)
ARGUMENT_ATTRS = frozenset(("cleave.out", "cleave.strides"))
CALL_ATTRS = frozenset(("cleave.grid", "cleave.overlaps", "cleave.cooperative", "cleave.unless", "cleave.product"))
_SEGMENTS = "operandSegmentSizes"


@dataclass(frozen=True)
class Verify:
    """Check names, sizes, element types and attributes of all cleave ops."""

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        problems = verify(module)
        if problems:
            raise CleaveErrors(problems)


def verify(module: ir.Module) -> list[CleaveError]:
    """All disagreements in ``module``, each with the location of its op; none: the module is well formed."""
    problems: list[CleaveError] = []
    for func in module.body.operations:
        if func.operation.name == "func.func":
            problems += [error.at(func.operation.location) for error in _function_problems(func.operation)]
            problems += _body_problems(func.operation)
    return problems or list(launch_problems(module))


def _body_problems(func: ir.Operation) -> list[CleaveError]:
    try:
        facts = cleave.facts_of(func)
        cleave.choices_of(func)
    except CleaveError as error:
        return [error.at(func.location)]
    problems: list[CleaveError] = []
    shapes: dict[str, tuple[int, ir.Operation]] = {}
    static = cache(lambda: facts.given(_static_extents(func)))

    def visit(op: ir.Operation) -> ir.WalkResult:
        try:
            _check_op(op, facts, static)
            _check_extents(op, shapes)
        except CleaveError as error:
            text = f"'{op.name}' {error.message}" if op.name.startswith("cleave.") else error.message
            problems.append(CleaveError(text, error.location or op.location, error.notes))
        return ir.WalkResult.ADVANCE

    func.walk(visit, ir.WalkOrder.PRE_ORDER)
    return problems


def _function_problems(func: ir.Operation) -> Iterator[CleaveError]:
    yield from _unknown_attrs(func, FUNCTION_ATTRS)
    if "cleave.empty_rows" in func.attributes and str(func.attributes["cleave.empty_rows"]) != '"zero"':
        yield CleaveError('cleave.empty_rows must be "zero"')
    arguments = ir.ArrayAttr(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else ()
    for name in (named.name for entry in arguments for named in ir.DictAttr(entry)):
        if name.startswith("cleave.") and name not in ARGUMENT_ATTRS:
            yield CleaveError(f"unknown argument attribute '{name}'", notes=(_known(ARGUMENT_ATTRS),))


def _unknown_attrs(op: ir.Operation, known: frozenset[str]) -> Iterator[CleaveError]:
    for name in op.attributes:
        if name.startswith("cleave.") and name not in known:
            yield CleaveError(f"unknown attribute '{name}'", notes=(_known(known),))


def _known(names: frozenset[str] | dict[str, str] | set[str]) -> str:
    return f"known here: {', '.join(sorted(names)) or 'none'}"


def _static_extents(func: ir.Operation) -> dict[str, int]:
    """The symbols whose value the types of the function fix."""
    return cleave.static_extents(type_ for op in (func, *ops_inside(func)) for type_ in _named_types(op))


def _named_types(op: ir.Operation) -> Iterator[ir.Type]:
    """The types with named dims of the op's results and of the arguments of its blocks."""
    values = [*op.results, *(argument for region in op.regions for block in region for argument in block.arguments)]
    types = (value.type for value in values)
    return (type_ for type_ in types if isinstance(type_, ir.RankedTensorType) and "#cleave.dims" in str(type_))


def _check_op(op: ir.Operation, facts: Facts, static: Callable[[], Facts]) -> None:
    """``static``: the facts with the static extents, which are rarely needed."""
    if op.name == "func.call":
        for error in _unknown_attrs(op, CALL_ATTRS):
            raise error
    if not op.name.startswith("cleave."):
        return
    spec = OPS[op.name.removeprefix("cleave.")]
    _check_attributes(op, spec)
    if spec.stage == "kernel":
        _check_kernel_op(op, spec)
        return
    types = [cleave.tensor_type_of(operand) for operand in op.operands]
    attrs, result = cleave.plain_attrs(op, spec), cleave.tensor_type_of(op.results[0])
    try:
        check_result(spec.name, types, attrs, result, facts)
    except CleaveError:
        check_result(spec.name, types, attrs, result, static())
    if spec.name == "constant":
        _check_number(op, "value", str(ir.RankedTensorType(op.results[0].type).element_type))


def _check_attributes(op: ir.Operation, spec: OpSpec) -> None:
    known = {*spec.all_attrs, *((_SEGMENTS,) if spec.arity < 0 else ())}
    for name in op.attributes:
        if name not in known:
            raise CleaveError(f"has an unknown attribute '{name}'", notes=(_known(known),))
    for name, kind in spec.all_attrs.items():
        if name in op.attributes:
            try:
                cleave.plain(kind, op.attributes[name])
            except CleaveError as error:
                raise CleaveError(f"attribute '{name}' {error.message}") from None


def _check_number(op: ir.Operation, name: str, wanted: str) -> None:
    attr = op.attributes[name]
    written = "i1" if isinstance(attr, ir.BoolAttr) else str(attr.type)
    if written != wanted:
        raise CleaveError(f"attribute '{name}' is {written}, the element type is {wanted}")


def _check_kernel_op(op: ir.Operation, spec: OpSpec) -> None:
    if spec.name == "extent":
        parse(cleave.plain("string", op.attributes["size"]))
    if spec.name == "program_id" and cleave.plain("integer", op.attributes["axis"]) not in range(3):
        raise CleaveError(f"attribute 'axis' is {op.attributes['axis']}, a grid has the axes 0, 1 and 2")
    if spec.name == "splat":
        result = cleave.tensor_type_of(op.results[0])
        if result.dims or result.dtype != "i64":
            raise CleaveError(f"the result must be a rank-0 tensor of i64, not {result}")
    if spec.name == "scalar":
        operand = cleave.tensor_type_of(op.operands[0])
        if operand.dims or operand.dtype not in ("i32", "i64"):
            raise CleaveError(f"the operand must be a rank-0 tensor of i32 or i64, not {operand}")
    if spec.name == "alloc":
        cleave.tensor_type_of(op.results[0])
        if cleave.plain_attrs(op, spec).get("contents", "zero") != "zero":
            raise CleaveError("attribute 'contents' must be \"zero\"")
    if spec.name == "group_barrier":
        counters = cleave.tensor_type_of(op.operands[0])
        if len(counters.dims) != 1 or counters.dtype != "i32":
            raise CleaveError(f"the counters must be a rank-1 tensor of i32, not {counters}")
    if spec.name in ("load", "store", "gather_load"):
        _check_access(op, spec)


def _gathered(op: ir.Operation, memory: TensorType) -> list[str]:
    """The dims that the tile of a ``gather_load`` has beside those of the tensor's that it is not indexed along."""
    view: Any = op.opview
    dims = list(cleave.plain("strings", op.attributes["dims"]))
    if len(view.indices) != len(dims) or not dims or len(set(dims)) != len(dims):
        raise CleaveError(f"needs one tile of indices for each of 'dims', not {len(view.indices)} for {dims}")
    strange = next((name for name in dims if name not in memory.names), None)
    if strange is not None:
        raise CleaveError(f"'dims' names '{strange}', which the tensor {memory} has not")
    types = [cleave.tensor_type_of(value) for value in view.indices]
    wrong = next((type_.dtype for type_ in types if is_float(type_.dtype) or type_.dtype == "i1"), None)
    if wrong is not None:
        raise CleaveError(f"indices must be integers, not {wrong}")
    names = [name for type_ in types for name in type_.names]
    both = next((name for name in names if name in dims), None)
    if both is not None:
        raise CleaveError(f"the indices have the gathered dimension '{both}' themselves", notes=("rename it",))
    return names


def _check_access(op: ir.Operation, spec: OpSpec) -> None:
    store = spec.name == "store"
    tile_value = op.operands[0] if store else op.results[0]
    memory = cleave.tensor_type_of(op.operands[1 if store else 0])
    tile, extents = cleave.decode(tile_value.type)
    view: Any = op.opview
    if len(view.offsets) != len(memory.dims) or len(view.bounds) != len(memory.dims):
        raise CleaveError(
            f"needs {len(memory.dims)} offsets and as many bounds, one for each dimension of the tensor, "
            f"not {len(view.offsets)} and {len(view.bounds)}"
        )
    if None in extents:
        raise CleaveError(f"the tile {tile} must have static extents")
    gathered = cleave.plain("strings", op.attributes["dims"]) if spec.name == "gather_load" else ()
    indexed = _gathered(op, memory) if spec.name == "gather_load" else []
    if not set(indexed) <= set(tile.names):
        raise CleaveError(f"the tile {tile} lacks a dimension of the indices: {', '.join(indexed)}")
    unknown = set(tile.names) - ({*memory.names, *indexed} - set(gathered))
    if unknown:
        raise CleaveError(f"the tile has dimensions {sorted(unknown)} that the tensor {memory} has not")
    if tile.dtype != memory.dtype:
        raise CleaveError(f"the tile is {tile.dtype}, the tensor {memory.dtype}", notes=("insert cleave.cast",))
    if not store:
        _check_number(op, "fill", tile.dtype)
    for name in cleave.plain_attrs(op, spec).get("in_bounds", ()):
        if name not in memory.names:
            raise CleaveError(f"'in_bounds' names '{name}', which the tensor {memory} has not")


def _check_extents(op: ir.Operation, shapes: dict[str, tuple[int, ir.Operation]]) -> None:
    """Every symbol has one extent in a function; a size with a known value agrees with the extent on the type."""
    for type_, extents in map(cleave.decode, _named_types(op)):
        known = [(dim, extent) for dim, extent in zip(type_.dims, extents, strict=True) if extent is not None]
        for dim, extent in known:
            if dim.size.value is not None and dim.size.value != extent:
                raise CleaveError(f"dimension '{dim}' has extent {extent}")
            before, _ = shapes.setdefault(dim.name, (extent, op)) if dim.size is sym(dim.name) else (extent, op)
            if before != extent:
                raise CleaveError(
                    f"dimension '{dim.name}' has extent {extent} here and {before} before",
                    notes=("names identify: give one of the two another name",),
                )
