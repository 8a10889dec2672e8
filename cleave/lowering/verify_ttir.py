"""What Triton would accept silently, or abort on, found before it sees the module; each problem at its op's place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from cleave.bindings import ir
from cleave.errors import CleaveError, CleaveErrors
from cleave.lowering import ttir_table as table
from cleave.lowering.targets import TTGIR_TARGET
from cleave.lowering.ttir_race import races
from cleave.lowering.ttir_types import TtirType, ttir_type
from cleave.passes.diagnostics import position_of
from cleave.runtime.descriptors import LARGEST_RANK

"""The attribute of modules that have layouts."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_kernel(module: ir.Operation, *, num_stages: int | None = None) -> None:
    """Raise CleaveErrors if ``verify_kernel`` finds anything."""
    problems = verify_kernel(module, num_stages=num_stages)
    if problems:
        raise CleaveErrors(problems)


def verify_kernel(module: ir.Operation, *, num_stages: int | None = None) -> list[CleaveError]:
    """All problems of one kernel's module; TTGIR is Triton's own verifier's to judge, and is run in the tests."""
    return [] if TTGIR_TARGET in module.attributes else verify_ttir(module, num_stages=num_stages)


def verify_ttir(module: ir.Operation, *, num_stages: int | None = None) -> list[CleaveError]:
    """All problems of one kernel's module (upstream bindings, ``tt`` unregistered), in the order of the text.

    ``num_stages`` is what Triton will be told; with 1 nothing is pipelined unless a loop says so.
    """
    problems = [_placed(error, module) for error in _functions(module)]

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op != module:
            problems.extend(_placed(error, op) for error in _op_problems(op))
        return ir.WalkResult.ADVANCE

    module.walk(visit, ir.WalkOrder.PRE_ORDER)
    return problems + [_placed(error, load) for load, error in races(module, num_stages)]


def _placed(error: CleaveError, op: ir.Operation) -> CleaveError:
    position = position_of(op.location)
    return error.at(position) if position else error


# --- the module -------------------------------------------------------------------------------------------------------


def _functions(module: ir.Operation) -> Iterator[CleaveError]:
    functions = [op.operation for op in module.regions[0].blocks[0].operations if op.operation.name == "tt.func"]
    public = [op for op in functions if _text(op, "sym_visibility") in (None, "public")]
    if len(public) != 1:
        names = ", ".join(f"@{_text(op, 'sym_name')}" for op in public) or "none"
        yield CleaveError(f"a kernel's module needs exactly one public tt.func, not {len(public)} ({names})")
    for function in functions:
        name = _text(function, "sym_name")
        if name is not None and not _NAME.fullmatch(name):
            position = position_of(function.location)
            notes = ("use letters, digits and _ only, a letter first: ptxas and the launch find it by this name",)
            yield CleaveError(f"'{name}' is no name for a kernel", position, notes)


def _text(op: ir.Operation, name: str) -> str | None:
    if name not in op.attributes:
        return None
    attr = op.attributes[name]
    return attr.value if isinstance(attr, ir.StringAttr) else None


# --- every op ---------------------------------------------------------------------------------------------------------


def _op_problems(op: ir.Operation) -> Iterator[CleaveError]:
    if op.name.startswith("tt."):
        if op.name not in table.OPS:
            yield CleaveError(f"'{op.name}' is no op of Triton's that Cleave emits")
            return
        found = list(_attribute_problems(op, table.OPS[op.name]))
        yield from found
        if not found and op.name in _RULES:
            yield from _RULES[op.name](op)
    else:
        yield from _hint_problems(op)
        yield from _lowering_problems(op)
    yield from _shape_problems(op)


def _attribute_problems(op: ir.Operation, row: table.OpRow) -> Iterator[CleaveError]:
    known = row.attributes
    for name in dict.fromkeys((*op.attributes, *_property_names(op))):
        if name in known:
            yield from _kind_problems(f"'{op.name}' attribute", name, op.attributes[name], known[name])
        elif name in table.HINTS:
            yield from _kind_problems(f"'{op.name}' attribute", name, op.attributes[name], table.HINTS[name])
        elif not name.startswith("cleave."):
            names = ", ".join(sorted(known)) or "none"
            yield CleaveError(
                f"'{op.name}' has no attribute '{name}'; Triton would ignore it", notes=(f"known: {names}",)
            )
    for name in row.required:
        if name not in op.attributes:
            yield CleaveError(f"'{op.name}' needs the attribute '{name}'")


def _property_names(op: ir.Operation) -> list[str]:
    """Names in ``<{…}>``: the bindings find these attributes by name but do not list them."""
    text = str(op.get_asm(print_generic_op_form=True, use_local_scope=True, skip_regions=True))
    match = re.search(r"\) <(\{.*\})> ?[({:]", text)
    return [named.name for named in ir.DictAttr(ir.Attribute.parse(match[1]))] if match else []


def _kind_problems(what: str, name: str, attr: ir.Attribute, kind: str) -> Iterator[CleaveError]:
    if not table.KINDS[kind](attr):
        yield CleaveError(f"{what} '{name}' must be {kind}, not {attr}; Triton would ignore it")


def _hint_problems(op: ir.Operation) -> Iterator[CleaveError]:
    known: Mapping[str, str] = {**table.HINTS, **(table.LOOP_HINTS if op.name == "scf.for" else {})}
    for name in op.attributes:
        if not name.startswith("tt."):
            continue
        if name not in known:
            notes = (f"known: {', '.join(known)}",)
            yield CleaveError(f"'{op.name}' has no hint '{name}'; Triton would ignore it", notes=notes)
        else:
            yield from _kind_problems(f"'{op.name}' hint", name, op.attributes[name], known[name])


def _lowering_problems(op: ir.Operation) -> Iterator[CleaveError]:
    on_tensors = any(ttir_type(value).shape is not None for value in [*op.operands, *op.results])
    if on_tensors and op.name in table.NO_LOWERING:
        notes = (table.NO_LOWERING[op.name],)
        yield CleaveError(f"Triton has no lowering of '{op.name}' on tensors", notes=notes)
    if op.name in ("arith.extf", "arith.truncf"):
        narrow = ttir_type(op.operands[0] if op.name == "arith.extf" else op.results[0])
        if narrow.is_fp8:
            yield CleaveError(f"Triton has no lowering of '{op.name}' with fp8", notes=("use tt.fp_to_fp",))
    if "isExact" in op.attributes:
        yield CleaveError(f"Triton does not read 'isExact' of '{op.name}'", notes=("remove it",))
    if op.name == "arith.constant":
        value = op.attributes["value"]
        if isinstance(value, ir.DenseElementsAttr) and not value.is_splat:
            yield CleaveError(
                "Triton has no lowering of a constant with different elements", notes=("use tt.make_range",)
            )


def _shape_problems(op: ir.Operation) -> Iterator[CleaveError]:
    arguments = (argument for region in op.regions for block in region for argument in block.arguments)
    for value in [*op.results, *arguments]:
        shape = ttir_type(value).shape
        if shape is None:
            continue
        if not shape:
            yield CleaveError(f"'{op.name}' has a tensor of rank 0", notes=("use the scalar type",))
        elif any(n <= 0 or n & (n - 1) for n in shape):
            yield CleaveError(f"'{op.name}': the extents of {value.type} must be powers of two")
        elif _product(shape) > table.LARGEST_TENSOR:
            yield CleaveError(f"'{op.name}': {value.type} has more than {table.LARGEST_TENSOR} elements")


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


# --- rules per op -----------------------------------------------------------------------------------------------------


def _int(op: ir.Operation, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value


def _ints(op: ir.Operation, name: str) -> list[int]:
    return list(ir.DenseI32ArrayAttr(op.attributes[name]))


def _types(op: ir.Operation) -> tuple[list[TtirType], list[TtirType]]:
    return [ttir_type(value) for value in op.operands], [ttir_type(value) for value in op.results]


def _function(op: ir.Operation) -> Iterator[CleaveError]:
    if "arg_attrs" not in op.attributes:
        return
    for number, entry in enumerate(ir.ArrayAttr(op.attributes["arg_attrs"])):
        for named in ir.DictAttr(entry):
            if named.name in table.ARGUMENT_HINTS:
                what = f"argument {number}: hint"
                yield from _kind_problems(what, named.name, named.attr, table.ARGUMENT_HINTS[named.name])
            elif named.name.startswith("tt."):
                notes = (f"known: {', '.join(table.ARGUMENT_HINTS)}",)
                yield CleaveError(f"argument {number} has no hint '{named.name}'; Triton would ignore it", notes=notes)


def _grid_axis(op: ir.Operation) -> Iterator[CleaveError]:
    if not 0 <= _int(op, "axis") <= 2:
        yield CleaveError(f"'{op.name}' axis must be 0, 1 or 2, not {_int(op, 'axis')}")


def _make_range(op: ir.Operation) -> Iterator[CleaveError]:
    start, end = _int(op, "start"), _int(op, "end")
    shape = ttir_type(op.results[0]).shape
    if shape != (end - start,):
        yield CleaveError(f"'tt.make_range' from {start} to {end} does not fill {op.results[0].type}")


def _expand_dims(op: ir.Operation) -> Iterator[CleaveError]:
    (operand,), (result,) = _types(op)
    axis, shape = _int(op, "axis"), operand.shape or ()
    if not 0 <= axis <= len(shape):
        yield CleaveError(f"'tt.expand_dims' axis {axis} is out of range for rank {len(shape)}")
    elif result.shape != (*shape[:axis], 1, *shape[axis:]):
        yield CleaveError(f"'tt.expand_dims' at axis {axis} of {op.operands[0].type} is not {op.results[0].type}")


def _reduced_axis(op: ir.Operation) -> Iterator[CleaveError]:
    rank = len(ttir_type(op.operands[0]).shape or ())
    if not 0 <= _int(op, "axis") < rank:
        yield CleaveError(f"'{op.name}' axis {_int(op, 'axis')} is out of range for rank {rank}")


def _trans(op: ir.Operation) -> Iterator[CleaveError]:
    (operand,), (result,) = _types(op)
    order, shape = _ints(op, "order"), operand.shape or ()
    if sorted(order) != list(range(len(shape))):
        yield CleaveError(f"'tt.trans' order {order} is no permutation of {len(shape)} dimensions")
    elif result.shape != tuple(shape[i] for i in order):
        yield CleaveError(f"'tt.trans' in the order {order} of {op.operands[0].type} is not {op.results[0].type}")


def _broadcast(op: ir.Operation) -> Iterator[CleaveError]:
    (operand,), (result,) = _types(op)
    one, other = operand.shape or (), result.shape or ()
    if len(one) != len(other) or any(a not in (1, b) for a, b in zip(one, other, strict=True)):
        yield CleaveError(f"'tt.broadcast' cannot make {op.results[0].type} of {op.operands[0].type}")


def _memory(op: ir.Operation) -> Iterator[CleaveError]:
    pointer = ttir_type(op.operands[0])
    if pointer.pointee is None:
        yield CleaveError(f"'{op.name}' needs a pointer, not {op.operands[0].type}")
    elif pointer.pointee == "i1":
        yield CleaveError(f"'{op.name}' through a pointer to i1 makes Triton abort", notes=("use i8 in memory",))
    hints = [name for name in ("cache", "evict") if name in op.attributes and _int(op, name) > 1]
    if len(hints) == 2:
        yield CleaveError(f"'{op.name}': ptxas takes a cache modifier or an eviction priority, not both")


_ACCUMULATORS = {"f16": ("f32", "f16"), "bf16": ("f32",), "f32": ("f32",), "f64": ("f64",), "i8": ("i32",)}


def _dot(op: ir.Operation) -> Iterator[CleaveError]:
    (a, b, c), (result,) = _types(op)
    if not (a.is_fp8 and b.is_fp8) and a.element != b.element:
        yield CleaveError(f"'tt.dot' operands are {a.element} and {b.element}", notes=("cast one of them",))
        return
    wanted = ("f32", "f16") if a.is_fp8 else _ACCUMULATORS.get(a.element, ())
    if c.element not in wanted:
        allowed = " or ".join(wanted) or "none"
        yield CleaveError(f"'tt.dot' of {a.element} cannot accumulate in {c.element}", notes=(f"allowed: {allowed}",))
    shapes: list[tuple[int, ...]] = [type_.shape or () for type_ in (a, b, c)]
    left, right, accumulator = shapes
    if any(len(shape) not in (2, 3) for shape in (left, right, accumulator)):
        yield CleaveError("'tt.dot' needs matrices, or batches of them")
    elif left[-1] != right[-2] or accumulator[-2:] != (left[-2], right[-1]) or result.shape != c.shape:
        types = ", ".join(str(value.type) for value in op.operands)
        yield CleaveError(f"'tt.dot' shapes do not match: {types}")
    if "inputPrecision" in op.attributes and not 0 <= _int(op, "inputPrecision") <= 4:
        yield CleaveError("'tt.dot' inputPrecision must be 0 to 4")


def _atomic(op: ir.Operation) -> Iterator[CleaveError]:
    code, value = _int(op, "atomic_rmw_op"), ttir_type(op.operands[1])
    if value.is_float and code in table.ATOMIC_ON_INTEGERS:
        name = table.ATOMIC_ON_INTEGERS[code]
        notes = ("use 5 (fadd)",) if name == "add" else ()
        yield CleaveError(f"'tt.atomic_rmw' {name} works on integers, not {value.element}", notes=notes)
    if not value.is_float and code == table.ATOMIC_FADD:
        yield CleaveError(f"'tt.atomic_rmw' fadd works on floats, not {value.element}", notes=("use 4 (add)",))


def _make_descriptor(op: ir.Operation) -> Iterator[CleaveError]:
    block = ttir_type(op.results[0])
    rank = len(block.block or ())
    if block.block is None or len(op.operands) != 1 + 2 * rank:
        yield CleaveError(
            f"'tt.make_tensor_descriptor' of {op.results[0].type} needs a base, {rank} sizes and {rank} strides"
        )
        return
    if _constant(op.operands[2 * rank]) != 1:
        yield CleaveError("the last stride of a tensor descriptor must be the constant 1")
    yield from _inner_block(op, block)


def _inner_block(op: ir.Operation, descriptor: TtirType) -> Iterator[CleaveError]:
    if descriptor.block and len(descriptor.block) > LARGEST_RANK:
        yield CleaveError(f"'{op.name}': a tensor descriptor has at most {LARGEST_RANK} dimensions")
    if descriptor.block and descriptor.block[-1] * descriptor.bits < 16 * 8:
        yield CleaveError(f"'{op.name}': the innermost extent of a descriptor's block must cover at least 16 bytes")


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    attr = owner.attributes["value"]
    return attr.value if isinstance(attr, ir.IntegerAttr) else None


def _descriptor_access(op: ir.Operation) -> Iterator[CleaveError]:
    loads = op.name == "tt.descriptor_load"
    descriptor = ttir_type(op.operands[0])
    if descriptor.block is None:
        yield CleaveError(f"'{op.name}' needs a tensor descriptor, not {op.operands[0].type}")
        return
    indices = len(op.operands) - (1 if loads else 2)
    if indices != len(descriptor.block):
        yield CleaveError(f"'{op.name}' needs {len(descriptor.block)} indices, not {indices}")
    if any(str(index.type) != "i32" for index in list(op.operands)[1 if loads else 2 :]):
        yield CleaveError(f"'{op.name}' needs indices of i32")
    value = ttir_type(op.results[0] if loads else op.operands[1])
    if value.element != descriptor.element or not _is_block(value.shape or (), descriptor.block):
        yield CleaveError(f"'{op.name}': the tile does not fit {op.operands[0].type}")
    yield from _inner_block(op, descriptor)


def _is_block(shape: tuple[int, ...], block: tuple[int, ...]) -> bool:
    """A tile may lack leading extents of 1 that the block has."""
    missing = len(block) - len(shape)
    return missing >= 0 and block[missing:] == shape and all(extent == 1 for extent in block[:missing])


def _inline_assembly(op: ir.Operation) -> Iterator[CleaveError]:
    written = [part for part in _text_of(op, "constraints").split(",") if part and not part.strip().startswith("~")]
    packed = _int(op, "packed_element")
    if packed == 1 and len(written) != len(op.operands) + len(op.results):
        what = f"inline assembly with {len(op.results)} results and {len(op.operands)} operands"
        yield CleaveError(f"{what} has {len(written)} constraints")


def _text_of(op: ir.Operation, name: str) -> str:
    return ir.StringAttr(op.attributes[name]).value


_RULES: Mapping[str, Callable[[ir.Operation], Iterator[CleaveError]]] = {
    "tt.func": _function,
    "tt.get_program_id": _grid_axis,
    "tt.get_num_programs": _grid_axis,
    "tt.make_range": _make_range,
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _broadcast,
    "tt.trans": _trans,
    "tt.reduce": _reduced_axis,
    "tt.scan": _reduced_axis,
    "tt.gather": _reduced_axis,
    "tt.load": _memory,
    "tt.store": _memory,
    "tt.dot": _dot,
    "tt.atomic_rmw": _atomic,
    "tt.make_tensor_descriptor": _make_descriptor,
    "tt.descriptor_load": _descriptor_access,
    "tt.descriptor_store": _descriptor_access,
    "tt.descriptor_reduce": _descriptor_access,
    "tt.elementwise_inline_asm": _inline_assembly,
}
