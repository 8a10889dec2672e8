"""The MLIR dialect ``cleave``: IRDL generated from the table of ops, typed OpViews, and the dims encoding.

The namespace's module: MLIR's bindings import it when they meet an op of the dialect. What IRDL cannot check (dims,
element types, encodings, optional attributes) the pass ``cleave-verify`` checks by the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import _ods_common

from cleave.dialects import ops
from cleave.dialects.dims import NO_FACTS, Dim, Facts
from cleave.dialects.ops import OPS, VARIADIC, OpSpec
from cleave.dialects.tensor_type import DTYPES, TensorType, is_float
from cleave.errors import CleaveError

_cext = _ods_common._cext  # pyright: ignore[reportPrivateUsage]

# --- attributes and types --------------------------------------------------------------------------------------------


class DimsAttr(ir.Attribute):
    """``#cleave.dims<["h", "m=64"]>``: a tensor's named dims."""

    @property
    def entries(self) -> tuple[str, ...]:
        text = str(ir.Attribute(self))
        array = ir.ArrayAttr(ir.Attribute.parse(text[len("#cleave.dims<") : -1], context=self.context))
        strange = next((entry for entry in array if not isinstance(entry, ir.StringAttr)), None)
        if strange is not None:
            raise CleaveError(f"{text} names dimensions by texts, not by {strange}")
        return tuple(ir.StringAttr(entry).value for entry in array)


def dims_attr(dims: Sequence[Dim]) -> ir.Attribute:
    """The encoding for ``dims``."""
    entries = ", ".join(f'"{dim}"' for dim in dims)
    return ir.Attribute.parse(f"#cleave.dims<[{entries}]>")


def tensor_type(type_: TensorType, extents: Mapping[str, int] | None = None) -> ir.Type:
    """``type_`` as a ranked tensor; sizes that are constants, or become so under ``extents``, are static."""
    shape = [_static(dim, extents or {}) for dim in type_.dims]
    dynamic = ir.ShapedType.get_dynamic_size()
    encoding = dims_attr(type_.dims)
    return ir.RankedTensorType.get([dynamic if n is None else n for n in shape], element_type(type_.dtype), encoding)


def _static(dim: Dim, extents: Mapping[str, int]) -> int | None:
    if dim.size.value is None and not dim.size.symbols <= extents.keys():
        return None
    size = dim.size.evaluate(extents)
    if size < 0:
        raise CleaveError(f"the size of '{dim.name}' is {size}; sizes are at least 0")
    return size


def element_type(dtype: str) -> ir.Type:
    return ir.Type.parse(dtype)


def dtype_of(type_: ir.Type) -> str:
    """The dtype's name; CleaveError if the dialect has no such element type."""
    name = str(type_)
    if name not in DTYPES:
        raise CleaveError(f"element type {name} is not supported", notes=(f"supported: {', '.join(DTYPES)}",))
    return name


_decoded: dict[str, tuple[TensorType, tuple[int | None, ...]]] = {}


def decode(type_: ir.Type) -> tuple[TensorType, tuple[int | None, ...]]:
    """A tensor type's dims, dtype and static extents (None: dynamic). CleaveError if it is no encoded ranked tensor."""
    text = str(type_)
    if text not in _decoded:
        _decoded[text] = _decode(type_, text)
    return _decoded[text]


def _decode(type_: ir.Type, text: str) -> tuple[TensorType, tuple[int | None, ...]]:
    if not isinstance(type_, ir.RankedTensorType):
        raise CleaveError(f"needs a ranked tensor, not {text}")
    ranked = ir.RankedTensorType(type_)
    encoding = ranked.encoding
    if encoding is None or not str(encoding).startswith("#cleave.dims<"):
        raise CleaveError(
            f"the tensor type {text} names no dimensions", notes=('write tensor<…, #cleave.dims<["m", "k"]>>',)
        )
    entries = DimsAttr(encoding).entries
    if len(entries) != ranked.rank:
        raise CleaveError(f"{text} has rank {ranked.rank} but names {len(entries)} dimensions")
    dims = tuple(Dim.parse(entry) for entry in entries)
    names = [dim.name for dim in dims]
    if len(set(names)) != len(names):
        raise CleaveError(f"{text} names a dimension twice")
    extents = tuple(None if ranked.is_dynamic_dim(i) else ranked.get_dim_size(i) for i in range(ranked.rank))
    return TensorType(dims, dtype_of(ranked.element_type)), extents


def tensor_type_of(value: ir.Value) -> TensorType:
    """The dims and dtype of an SSA value of encoded tensor type."""
    return decode(value.type)[0]


def location(text: str | None) -> ir.Location:
    """``str(op.location)`` read back; the current location if there is none."""
    return ir.Location.from_attr(ir.Attribute.parse(text)) if text else ir.Location.current or ir.Location.unknown()


# --- attributes of ops in plain Python form --------------------------------------------------------------------------


def attribute(kind: str, value: Any, dtype: str | None = None) -> ir.Attribute:
    """A plain value as the MLIR attribute of the kind that the table names."""
    if kind == "string":
        return ir.StringAttr.get(str(value))
    if kind == "strings":
        return ir.ArrayAttr.get([ir.StringAttr.get(str(text)) for text in value])
    if kind == "integer":
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), int(value))
    return number_attribute(value, dtype or "f64")


def number_attribute(value: float | int | bool, dtype: str) -> ir.Attribute:
    if is_float(dtype):
        return ir.FloatAttr.get(element_type(dtype), float(value))
    if dtype == "i1":
        return ir.BoolAttr.get(bool(value))
    return ir.IntegerAttr.get(element_type(dtype), int(value))


def plain(kind: str, attr: ir.Attribute) -> Any:
    """The attribute as a plain value; CleaveError if it is not of the kind."""
    try:
        if kind == "string":
            return ir.StringAttr(attr).value
        if kind == "strings":
            return tuple(ir.StringAttr(entry).value for entry in ir.ArrayAttr(attr))
        if kind == "integer":
            return ir.IntegerAttr(attr).value
        return _plain_number(attr)
    except ValueError as error:
        wanted = {"string": "a string", "strings": "an array of strings", "integer": "an integer"}.get(kind, "a number")
        raise CleaveError(f"must be {wanted}, not {attr}") from error


def _plain_number(attr: ir.Attribute) -> float | int | bool:
    if isinstance(attr, ir.FloatAttr):
        return ir.FloatAttr(attr).value
    if isinstance(attr, ir.BoolAttr):
        return ir.BoolAttr(attr).value
    return ir.IntegerAttr(attr).value


def plain_attrs(op: ir.Operation, spec: OpSpec) -> dict[str, Any]:
    """The op's attributes that the table knows, in plain form."""
    attrs = op.attributes
    return {name: plain(kind, attrs[name]) for name, kind in spec.all_attrs.items() if name in attrs}


def facts_of(op: ir.Operation) -> Facts:
    """The ``cleave.facts`` of a function; none if it has none."""
    if "cleave.facts" not in op.attributes:
        return NO_FACTS
    try:
        return Facts.parse(plain("strings", op.attributes["cleave.facts"]))
    except CleaveError as error:
        raise CleaveError(f"cleave.facts: {error.message}", notes=error.notes) from error


def choices_of(op: ir.Operation) -> dict[str, int]:
    """The ``cleave.choices`` of a host function: what symbols are that no argument binds, if the launch is silent."""
    if "cleave.choices" not in op.attributes:
        return {}
    found: dict[str, int] = {}
    for text in plain("strings", op.attributes["cleave.choices"]):
        name, _, value = text.partition("=")
        if not name.strip().isidentifier() or not value.strip().isdecimal():
            raise CleaveError(f"cleave.choices: '{text}' is not of the form \"s = 8\"")
        found[name.strip()] = int(value)
    return found


# --- ops -------------------------------------------------------------------------------------------------------------


class CleaveOp(ir.OpView):
    """An op of the dialect; ``spec`` is its row in the table."""

    _ODS_REGIONS = (0, True)
    spec: ClassVar[OpSpec]

    @property
    def type(self) -> TensorType:
        """The result's dims and dtype."""
        return tensor_type_of(self.operation.results[0])

    @property
    def attrs(self) -> dict[str, Any]:
        return plain_attrs(self.operation, self.spec)


def build(
    name: str,
    operands: Sequence[ir.Value],
    attrs: Mapping[str, Any] | None = None,
    *,
    result: TensorType | ir.Type | None = None,
    dtype: str | None = None,
    extents: Mapping[str, int] | None = None,
    facts: Facts = NO_FACTS,
    loc: ir.Location | None = None,
    ip: ir.InsertionPoint | None = None,
) -> ir.Value:
    """Create ``cleave.<name>`` and return its result; the result type is inferred unless given.

    ``dtype`` overrides the element type where the table leaves it free; ``extents`` makes symbols static.
    """
    spec, attrs = OPS[name], attrs or {}
    if result is None:
        inferred = ops.infer(name, [tensor_type_of(operand) for operand in operands], attrs, facts)
        result = TensorType(inferred.dims, dtype or inferred.dtype)
        extents = extents if extents is not None else static_extents(operand.type for operand in operands)
    ir_type = tensor_type(result, extents) if isinstance(result, TensorType) else result
    attributes = _attributes(spec, attrs, ir_type)
    op = ir.Operation.create(f"cleave.{name}", [ir_type], list(operands), attributes, loc=loc, ip=ip)
    return op.results[0]


def _attributes(spec: OpSpec, attrs: Mapping[str, Any], type_: ir.Type) -> dict[str, ir.Attribute]:
    def dtype(kind: str) -> str | None:
        return str(ir.RankedTensorType(type_).element_type) if kind == "number" else None

    return {key: attribute(spec.all_attrs[key], value, dtype(spec.all_attrs[key])) for key, value in attrs.items()}


def static_extents(types: Iterable[ir.Type]) -> dict[str, int]:
    """The symbols whose values the types tell: a static extent of a dim whose size is a symbol."""
    found: dict[str, int] = {}
    for type_, extents in map(decode, types):
        known = zip(type_.dims, extents, strict=True)
        found.update((str(dim.size), n) for dim, n in known if n is not None and str(dim.size) in dim.size.symbols)
    return found


def _operand_property(index: int) -> property:
    return property(lambda self: self.operation.operands[index])


def _attribute_property(name: str) -> property:
    return property(lambda self: self.attrs.get(name))


def _segment_property(segment: int) -> property:
    def get(self: CleaveOp) -> list[ir.Value]:
        sizes = list(ir.DenseI32ArrayAttr(self.operation.attributes["operandSegmentSizes"]))
        start = sum(sizes[:segment])
        return list(self.operation.operands)[start : start + sizes[segment]]

    return property(get)


def _constructor(name: str) -> Callable[..., None]:
    def __init__(self: CleaveOp, *operands: ir.Value, loc: Any = None, ip: Any = None, **attrs: Any) -> None:
        options = {key: attrs.pop(key) for key in ("result", "dtype", "extents", "facts") if key in attrs}
        plain_names = {key.rstrip("_"): value for key, value in attrs.items()}
        value = build(name, operands, plain_names, loc=loc, ip=ip, **options)
        ir.OpView.__init__(self, value.owner)  # pyright: ignore[reportArgumentType]

    return __init__


def _op_class(spec: OpSpec) -> type[CleaveOp]:
    """The OpView of one row: ``ContractOp(a, b, over=["k"]).over``; ``from`` is spelt ``from_``."""
    members: dict[str, Any] = {"OPERATION_NAME": f"cleave.{spec.name}", "spec": spec, "__doc__": spec.doc}
    for index, operand in enumerate(spec.operand_names):
        members[operand] = _operand_property(index)
    for attr in spec.all_attrs:
        members["from_" if attr == "from" else attr] = _attribute_property(attr)
    if spec.arity == VARIADIC:
        members |= {name: _segment_property(i) for i, name in enumerate(spec.groups, len(spec.operand_names))}
    elif spec.infer is not None or spec.name == "constant":
        members["__init__"] = _constructor(spec.name)
    class_name = "".join(part.capitalize() for part in spec.name.split("_")) + "Op"
    return type(class_name, (CleaveOp,), members)


@_cext.register_dialect
class _Dialect(ir.Dialect):
    DIALECT_NAMESPACE = "cleave"


OP_CLASSES: dict[str, type[CleaveOp]] = {
    spec.name: _cext.register_operation(_Dialect)(_op_class(spec)) for spec in OPS.values()
}
globals().update({cls.__name__: cls for cls in OP_CLASSES.values()})

# --- IRDL ------------------------------------------------------------------------------------------------------------

_ATTRIBUTE_BASES = {"string": "string", "strings": "array", "integer": "integer"}
_INDEX_OPERANDS = {"splat": ("value",), "group_barrier": ("group", "count")}
_INDEX_RESULTS = ("program_id", "extent", "scalar")
_WITHOUT_RESULT = ("store", "trigger", "wait", "group_barrier")


def irdl_text() -> str:
    """The dialect's definition in IRDL, one operation for each row of the table."""
    body = "\n".join(_irdl_operation(spec) for spec in OPS.values())
    dims = 'irdl.attribute @dims { %0 = irdl.base "#builtin.array" irdl.parameters(names: %0) }'
    return f"irdl.dialect @cleave {{\n{dims}\n{body}\n}}"


def _irdl_operation(spec: OpSpec) -> str:
    lines: list[str] = []
    operands = [_irdl_operand(spec, name, lines) for name in spec.operand_names]
    for name, kind in spec.groups.items():
        lines.append(f'%{name} = irdl.base "!builtin.{kind}"')
        operands.append(f"{name}: variadic %{name}")
    if operands:
        lines.append(f"irdl.operands({', '.join(operands)})")
    if spec.name not in _WITHOUT_RESULT:
        lines.append(f'%result = irdl.base "!builtin.{"index" if spec.name in _INDEX_RESULTS else "tensor"}"')
        lines.append("irdl.results(result: %result)")
    lines += _irdl_attributes(spec)
    return f"irdl.operation @{spec.name} {{ {' '.join(lines)} }}"


def _irdl_operand(spec: OpSpec, name: str, lines: list[str]) -> str:
    base = "index" if name in _INDEX_OPERANDS.get(spec.name, ()) else "tensor"
    lines.append(f'%{name} = irdl.base "!builtin.{base}"')
    return f"{name}: %{name}"


def _irdl_attributes(spec: OpSpec) -> list[str]:
    lines: list[str] = []
    pairs: list[str] = []
    for name, kind in spec.attrs.items():
        base = _ATTRIBUTE_BASES.get(kind)
        lines.append(f"%a_{name} = " + (f'irdl.base "#builtin.{base}"' if base else "irdl.any"))
        pairs.append(f'"{name}" = %a_{name}')
    return [*lines, f"irdl.attributes {{ {', '.join(pairs)} }}"] if pairs else []


def register(context: ir.Context) -> None:
    """Load the dialect into ``context``; a second call does nothing (MLIR would abort the process)."""
    if context.is_registered_operation("cleave.contract"):
        return
    from mlir.dialects import irdl

    with context, ir.Location.unknown():
        load: Any = irdl.load_dialects  # pyright: ignore[reportAttributeAccessIssue]
        load(ir.Module.parse(irdl_text()))
        _cext.register_type_caster(ir.Attribute.parse("#cleave.dims<[]>").typeid, replace=True)(DimsAttr)
