"""Builders for the ops of TTIR: Triton's own, unregistered here, and those of arith, math and scf that go with them.

They build at the current insertion point and location. A tensor of rank 0 does not exist in Triton: where a shape is
empty, the scalar type is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering.ttir_types import ttir_type

Shape = tuple[int, ...]

CMP_INTEGER = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5}  # signed
CMP_FLOAT = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13}  # false with NaN, except ne
TF32, IEEE = 0, 2  # tt.dot inputPrecision
ROUND_TO_NEAREST = 1
CACHE_ALL = 2  # cache modifier .ca


def scalar(name: str) -> ir.Type:
    """The scalar type ``name``, as ``i32`` or ``f8E4M3FN``; ``tf32`` lives in f32 and ``index`` in i64."""
    return ir.Type.parse({"tf32": "f32", "index": "i64"}.get(name, name))


def pointer(element: str) -> ir.Type:
    return ir.Type.parse(f"!tt.ptr<{element}>")


def descriptor(block: Shape, element: str) -> ir.Type:
    """Of a tensor that is read in such blocks, as Triton 3.6 and 3.7 spell it."""
    return ir.Type.parse(f"!tt.tensordesc<tensor<{'x'.join(map(str, block))}x{element}>>")


def tensor(shape: Shape, element: ir.Type) -> ir.Type:
    return ir.RankedTensorType.get(list(shape), element) if shape else element


def shape_of(value: ir.Value) -> Shape:
    return ttir_type(value).shape or ()


def element_of(value: ir.Value) -> ir.Type:
    return value.type.element_type if isinstance(value.type, ir.RankedTensorType) else value.type


def element_name(value: ir.Value) -> str:
    return str(element_of(value))


def create(
    name: str,
    results: Sequence[ir.Type],
    operands: Sequence[ir.Value],
    attributes: Mapping[str, ir.Attribute] | None = None,
    regions: int = 0,
) -> ir.Operation:
    return ir.Operation.create(name, list(results), list(operands), dict(attributes or {}), regions=regions)


def value(name: str, result: ir.Type, *operands: ir.Value, **attributes: ir.Attribute) -> ir.Value:
    """An op with one result."""
    return create(name, [result], operands, attributes).results[0]


def same(name: str, *operands: ir.Value) -> ir.Value:
    """An op whose result has the type of its first operand, as most of arith and math."""
    return value(name, operands[0].type, *operands)


def parent(op: ir.Operation | ir.OpView) -> ir.Operation:
    """The op in whose region ``op`` stands."""
    outer = op.operation.parent
    assert outer is not None
    return outer.operation


def i32_attr(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), number)


def _text(text: str) -> ir.Attribute:
    return ir.StringAttr.get(text)


# --- constants and shapes ---------------------------------------------------------------------------------------------


def number(type_: ir.Type, constant: float | int) -> ir.Attribute:
    if isinstance(type_, ir.IntegerType):
        width = type_.width
        wrapped = int(constant) & ((1 << width) - 1)  # two's complement, which the bindings want signed
        signed = wrapped - (1 << width) if width > 1 and wrapped >> (width - 1) else wrapped
        return ir.BoolAttr.get(bool(wrapped)) if width == 1 else ir.IntegerAttr.get(type_, signed)
    return ir.FloatAttr.get(type_, float(constant))


def constant(number_: float | int, element: ir.Type, shape: Shape = ()) -> ir.Value:
    attr = number(element, number_)
    type_ = tensor(shape, element)
    return value("arith.constant", type_, value=ir.DenseElementsAttr.get_splat(type_, attr) if shape else attr)


def constant_like(other: ir.Value, number_: float | int) -> ir.Value:
    return constant(number_, element_of(other), shape_of(other))


def is_zero(value: ir.Value) -> bool:
    """Whether all elements are known to be 0."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return False
    attr = owner.operation.attributes["value"]
    if isinstance(attr, ir.IntegerAttr):
        return attr.value == 0
    return isinstance(attr, ir.DenseElementsAttr) and attr.is_splat and _number_of(attr.get_splat_value()) == 0


def _number_of(attr: ir.Attribute) -> float | int:
    return ir.FloatAttr(attr).value if isinstance(attr, ir.FloatAttr) else ir.IntegerAttr(attr).value


def splat(x: ir.Value, shape: Shape) -> ir.Value:
    return value("tt.splat", tensor(shape, x.type), x) if shape else x


def make_range(extent: int) -> ir.Value:
    """0 … extent-1, i32."""
    result = tensor((extent,), scalar("i32"))
    return value("tt.make_range", result, start=i32_attr(0), end=i32_attr(extent))


def expand_dims(x: ir.Value, axis: int) -> ir.Value:
    shape = shape_of(x)
    result = tensor((*shape[:axis], 1, *shape[axis:]), element_of(x))
    return value("tt.expand_dims", result, x, axis=i32_attr(axis))


def broadcast(x: ir.Value, shape: Shape) -> ir.Value:
    return x if shape_of(x) == shape else value("tt.broadcast", tensor(shape, element_of(x)), x)


def trans(x: ir.Value, order: Sequence[int]) -> ir.Value:
    """Dimension i of the result is dimension order[i] of ``x``."""
    if list(order) == list(range(len(order))):
        return x
    if not isinstance(x.owner, ir.Block) and x.owner.operation.name == "tt.trans":
        before = list(ir.DenseI32ArrayAttr(x.owner.operation.attributes["order"]))
        return trans(x.owner.operation.operands[0], [before[axis] for axis in order])
    shape = shape_of(x)
    result = tensor(tuple(shape[i] for i in order), element_of(x))
    return value("tt.trans", result, x, order=ir.DenseI32ArrayAttr.get(list(order)))


def reshape(x: ir.Value, shape: Shape) -> ir.Value:
    return x if shape_of(x) == shape else value("tt.reshape", tensor(shape, element_of(x)), x)


# --- memory -----------------------------------------------------------------------------------------------------------


def addptr(x: ir.Value, offset: ir.Value) -> ir.Value:
    return value("tt.addptr", x.type, x, offset)


def load(pointers: ir.Value, mask: ir.Value | None, other: ir.Value | None) -> ir.Value:
    """Elements where ``mask`` holds, ``other`` elsewhere."""
    pointee = ir.Type.parse(str(ttir_type(pointers).pointee))
    operands = [pointers, *([mask] if mask else []), *([other] if other else [])]
    segments = ir.DenseI32ArrayAttr.get([1, int(mask is not None), int(other is not None)])
    return value("tt.load", tensor(shape_of(pointers), pointee), *operands, operandSegmentSizes=segments)


def descriptor_load(described: ir.Value, offsets: Sequence[ir.Value], shape: Shape) -> ir.Value:
    """The block at these i32 offsets, without its leading extents of 1; zero past the end of the tensor."""
    element = scalar(ttir_type(described).element)
    return value("tt.descriptor_load", tensor(shape, element), described, *offsets)


def store(pointers: ir.Value, x: ir.Value, mask: ir.Value | None) -> None:
    create("tt.store", [], [pointers, x, *([mask] if mask else [])])


def descriptor_store(described: ir.Value, offsets: Sequence[ir.Value], x: ir.Value) -> None:
    """Write a block at these i32 offsets; nothing past the end of the tensor."""
    create("tt.descriptor_store", [], [described, x, *offsets])


def assembly(text: str, *operands: ir.Value) -> None:
    """Inline assembly for its effect on memory or on other blocks: nothing that touches memory is moved across it."""
    kinds = ["=r", *("r" if isinstance(operand.type, ir.IntegerType) else "l" for operand in operands), "~{memory}"]
    _assembly(text, scalar("i32"), operands, kinds, pure=False)


def computed(text: str, result: ir.Type, x: ir.Value, together: int) -> ir.Operation:
    """Inline assembly that makes f32 of f32, ``together`` elements of a thread at a time."""
    return _assembly(text, result, [x], ["=f"] * together + ["f"] * together, pure=True, together=together)


def _assembly(
    text: str, result: ir.Type, operands: Sequence[ir.Value], kinds: Sequence[str], *, pure: bool, together: int = 1
) -> ir.Operation:
    """``kinds``: of registers, and what else it writes."""
    attributes = {
        "asm_string": _text(text),
        "constraints": _text(",".join(kinds)),
        "pure": ir.BoolAttr.get(pure),
        "packed_element": i32_attr(together),
    }
    return create("tt.elementwise_inline_asm", [result], operands, attributes)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def compare(predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
    integers = isinstance(element_of(a), ir.IntegerType)
    code = (CMP_INTEGER if integers else CMP_FLOAT)[predicate]
    attr = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), code)
    result = tensor(shape_of(a), scalar("i1"))
    return value("arith.cmpi" if integers else "arith.cmpf", result, a, b, predicate=attr)


def is_nan(x: ir.Value) -> ir.Value:
    return compare("ne", x, x)


def select(condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return value("arith.select", a.type, condition, a, b)


def bitcast(x: ir.Value, element: str) -> ir.Value:
    return value("tt.bitcast", tensor(shape_of(x), scalar(element)), x)


def converted(name: str, x: ir.Value, element: str) -> ir.Value:
    """One of arith's casts."""
    return value(name, tensor(shape_of(x), scalar(element)), x)


def fp_to_fp(x: ir.Value, element: str, *, narrowing: bool) -> ir.Value:
    rounding = {"rounding": i32_attr(ROUND_TO_NEAREST)} if narrowing else {}
    return value("tt.fp_to_fp", tensor(shape_of(x), scalar(element)), x, **rounding)


def libdevice(name: str, *operands: ir.Value) -> ir.Value:
    """``__nv_<name>``, in the variant for f32 or f64."""
    symbol = f"__nv_{name}" + ("f" if element_name(operands[0]) == "f32" else "")
    attrs = {"libname": _text(""), "libpath": _text(""), "symbol": _text(symbol), "pure": ir.BoolAttr.get(True)}
    return value("tt.extern_elementwise", operands[0].type, *operands, **attrs)


def dot(a: ir.Value, b: ir.Value, accumulator: ir.Value, precision: int | None) -> ir.Value:
    """a·b + accumulator, with the accumulator's type."""
    attrs = {} if precision is None else {"inputPrecision": i32_attr(precision)}
    return value("tt.dot", accumulator.type, a, b, accumulator, **attrs)


def reduce(x: ir.Value, axis: int, combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """``x`` combined along ``axis`` in any order; a scalar if it has no other."""
    shape, element = shape_of(x), element_of(x)
    result = tensor((*shape[:axis], *shape[axis + 1 :]), element)
    op = create("tt.reduce", [result], [x], {"axis": i32_attr(axis)}, regions=1)
    block = ir.Block.create_at_start(op.regions[0], [element, element])
    with ir.InsertionPoint(block):
        create("tt.reduce.return", [], [combine(*block.arguments)])
    return op.results[0]


# --- casts ------------------------------------------------------------------------------------------------------------

_BITS = {"f8E4M3FN": 8, "f8E5M2": 8, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def cast(x: ir.Value, element: str) -> ir.Value:
    """Conversion to the register type ``element``: floats to nearest even, floats to integers toward zero."""
    source = element_name(x)
    if source == element:
        return x
    if source in _BITS:
        return _from_float(x, source, element)
    return _from_integer(x, source, element)


def _from_float(x: ir.Value, source: str, element: str) -> ir.Value:
    if element == "i1":
        x = cast(x, "f32") if _BITS[source] == 8 else x
        return compare("ne", x, constant_like(x, 0.0))
    if element not in _BITS:
        return converted("arith.fptosi", cast(x, "f32") if _BITS[source] < 32 else x, element)
    if _BITS[source] == 8:  # the fp8 formats are within f16
        return cast(fp_to_fp(x, "f16", narrowing=False), element)
    if _BITS[element] == 8:
        return _to_fp8(cast(x, "f32"), element)
    if _BITS[source] == _BITS[element]:  # f16 and bf16
        return cast(cast(x, "f32"), element)
    return converted("arith.extf" if _BITS[source] < _BITS[element] else "arith.truncf", x, element)


def _to_fp8(x: ir.Value, element: str) -> ir.Value:
    """From f32. The hardware saturates; beyond the largest number come NaN in f8E4M3FN, ±inf in f8E5M2."""
    size = same("math.absf", x)
    if element == "f8E4M3FN":
        x = select(compare("gt", size, constant_like(x, 464.0)), constant_like(x, float("nan")), x)
        return fp_to_fp(x, element, narrowing=True)
    bits = bitcast(fp_to_fp(x, element, narrowing=True), "i8")
    infinity = same("arith.ori", same("arith.andi", bits, constant_like(bits, 0x80)), constant_like(bits, 0x7C))
    return bitcast(select(compare("ge", size, constant_like(x, 61440.0)), infinity, bits), element)


def _from_integer(x: ir.Value, source: str, element: str) -> ir.Value:
    if element == "i1":
        return compare("ne", x, constant_like(x, 0))
    if element in _BITS:
        wide = "f64" if element == "f64" else "f32"
        return cast(converted("arith.uitofp" if source == "i1" else "arith.sitofp", x, wide), element)
    if int(source[1:]) > int(element[1:]):
        return converted("arith.trunci", x, element)
    return converted("arith.extui" if source == "i1" else "arith.extsi", x, element)


def round_to_tf32(x: ir.Value) -> ir.Value:
    """f32 rounded to nearest even at 10 fraction bits; the tensor cores themselves would cut them off."""
    bits = bitcast(x, "i32")
    odd = same("arith.andi", same("arith.shrui", bits, constant_like(bits, 13)), constant_like(bits, 1))
    raised = same("arith.addi", same("arith.addi", bits, constant_like(bits, 0xFFF)), odd)
    rounded = bitcast(same("arith.andi", raised, constant_like(bits, 0xFFFFE000)), "f32")
    return select(is_nan(x), x, rounded)


def power_of_two(extent: int) -> bool:
    return extent > 0 and extent & (extent - 1) == 0


def check_tile(shape: Shape, what: str) -> None:
    """CleaveError unless Triton has tensors of this shape."""
    size = 1
    for extent in shape:
        size *= extent
        if not power_of_two(extent):
            notes = ("choose tiles of 1, 2, 4, … elements and mask the rest",)
            raise CleaveError(f"{what} has extent {extent}; Triton's tiles are powers of two", notes=notes)
    if size > 2**20:
        raise CleaveError(
            f"{what} has {size} elements; Triton's tiles have at most 2^20", notes=("choose smaller tiles",)
        )
