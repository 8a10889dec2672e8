"""A scheduled kernel as TTIR: one rule for each op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cleave.bindings import ir
from cleave.dialects import cleave, ops
from cleave.dialects.dims import Answer, Facts, Size, const, parse, sym
from cleave.errors import CleaveError
from cleave.lowering import contract, pointwise, tt
from cleave.lowering.access import Access, MemoryRef
from cleave.lowering.descriptors import Descriptors
from cleave.lowering.memory import MemoryBuilder, memory_element
from cleave.lowering.packing import packing_of
from cleave.lowering.scalars import UNKNOWN, Scalar, Scalars, fits
from cleave.lowering.tiles import Layout, Tile, aligned, full_width, layout_of
from cleave.lowering.ttir_race import hold_back_register_operands, separate_racing_loads
from cleave.lowering.views import View
from cleave.passes.diagnostics import position_of
from cleave.runtime.layout import LARGEST_EXTENT
from cleave.runtime.ttir_assembly import GROUP_BARRIER, TRIGGER, WAIT

KERNEL_MODULE = "cleave.kernel_module"
ARGUMENTS = "cleave.arguments"
DESCRIPTORS = "cleave.descriptors"
_POINTER_ALIGNMENT = 16  # bytes, which launches check


@dataclass(frozen=True)
class Surroundings:
    """What is known of a kernel from the module around it."""

    facts: Facts
    extents: Mapping[str, int]  # static sizes of symbols
    grid: tuple[Size, ...]  # of its launch; empty if not known
    views: tuple[View | None, ...]  # of its tensor arguments; None: strides known at run time only
    tensors: tuple[int, ...] = ()  # for each argument the first one that is a view of the same tensor


def lower_kernel(func: ir.Operation, around: Surroundings) -> ir.Operation:
    """Build, at the current insertion point, the module with the TTIR of the kernel ``func``.

    CleaveError at the op that cannot be lowered.
    """
    return _Kernel(func, around).build()


@dataclass(frozen=True)
class _Pending:
    """A contraction that waits for the addition into which it is accumulated."""

    a: Tile
    b: Tile
    over: Sequence[str]


@dataclass
class _Arguments:
    """The parameters of the Triton function, appended as they turn out to be needed."""

    block: ir.Block
    texts: list[str] = field(default_factory=list[str])
    hints: list[ir.Attribute] = field(default_factory=list[ir.Attribute])

    def add(self, text: str, type_: ir.Type, divisibility: int = 1) -> ir.Value:
        self.texts.append(text)
        hint = {"tt.divisibility": tt.i32_attr(divisibility)} if divisibility > 1 else {}
        self.hints.append(ir.DictAttr.get(hint))
        return self.block.add_argument(type_, ir.Location.current)  # type: ignore[arg-type]  # one is entered


Bound = Tile | Scalar | MemoryRef | _Pending


class _Kernel:
    def __init__(self, func: ir.Operation, around: Surroundings) -> None:
        self.func, self.around = func, around
        self.source: ir.Block = func.regions[0].blocks[0]
        self.values: dict[ir.Value, Bound] = {}
        self.packing = packing_of(func)
        self.name = str(cleave.plain("string", func.attributes["sym_name"]))

    # --- the function ---

    def build(self) -> ir.Operation:
        with self.func.location:
            module = tt.create("builtin.module", [], [], {KERNEL_MODULE: ir.StringAttr.get(self.name)}, regions=1)
            with ir.InsertionPoint(ir.Block.create_at_start(module.regions[0], [])):
                function = tt.create("tt.func", [], [], self._function_attributes(), regions=1)
            block = ir.Block.create_at_start(function.regions[0], [])
            self.arguments = _Arguments(block)
            self._body(block)
            self._finish(module, function)
        return module

    def _function_attributes(self) -> dict[str, ir.Attribute]:
        return {"sym_name": ir.StringAttr.get(self.name), "sym_visibility": ir.StringAttr.get("public")}

    def _body(self, block: ir.Block) -> None:
        self.scalars = Scalars(self._facts(), self.around.extents, self._size_argument)
        descriptors = Descriptors(self.scalars, self.arguments.add) if DESCRIPTORS in self.func.attributes else None
        self.memory = MemoryBuilder(self.scalars, self.packing, descriptors)
        with ir.InsertionPoint(block):
            # What is built once is inserted before this op.
            anchor = tt.create("arith.constant", [tt.scalar("i32")], [], {"value": tt.i32_attr(0)})
            self.scalars.entry = ir.InsertionPoint(anchor)
            self._tensor_arguments()
            self.block(self.source)
        anchor.erase()
        _erase_unused(block)

    def _finish(self, module: ir.Operation, function: ir.Operation) -> None:
        types = [argument.type for argument in function.regions[0].blocks[0].arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(self.arguments.hints)
        module.attributes[ARGUMENTS] = cleave.attribute("strings", self.arguments.texts)
        for name in ("cleave.num_warps", "cleave.num_stages"):
            if name in self.func.attributes:
                module.attributes[name] = self.func.attributes[name]
        separate_racing_loads(module, number_attribute(module, "cleave.num_stages"))
        hold_back_register_operands(module, number_attribute(module, "cleave.num_stages"))

    def _facts(self) -> Facts:
        """The facts, with a bound for every symbol that the launches check."""
        symbols = {name for text in self._size_texts() for name in parse(text).symbols} - self.around.extents.keys()
        bounds = [f"{name} <= {LARGEST_EXTENT}" for name in sorted(symbols)]
        return Facts.parse([*self.around.facts.texts, *bounds])

    def _size_texts(self) -> set[str]:
        texts = {str(size) for size in self.around.grid}
        texts |= {str(size) for view in self.around.views if view for size in (*view.strides.values(), view.offset)}
        for argument in self.source.arguments:
            texts |= {str(dim.size) for dim in cleave.tensor_type_of(argument).dims}

        def visit(op: ir.Operation) -> ir.WalkResult:
            if op.name == "cleave.extent":
                texts.add(str(cleave.plain("string", op.attributes["size"])))
            return ir.WalkResult.ADVANCE

        self.func.walk(visit, ir.WalkOrder.PRE_ORDER)
        return texts

    # --- arguments ---

    def _size_argument(self, symbol: str) -> ir.Value:
        facts = self.scalars.facts
        divisor = next((d for d in (16, 8, 4, 2) if facts.divides(const(d), sym(symbol)) is Answer.YES), 1)
        return self.arguments.add(f"size:{symbol}", tt.scalar("i32"), divisor)

    def _tensor_arguments(self) -> None:
        pointers: list[tuple[ir.Value, int]] = []
        for number, (argument, view) in enumerate(zip(self.source.arguments, self.around.views, strict=True)):
            first = self._first_pointer(number)
            if first < number:
                pointers.append(pointers[first])
                continue
            element = memory_element(cleave.tensor_type_of(argument).dtype)
            alignment = self._alignment(view, element)
            pointers.append((self.arguments.add(f"in:{number}", tt.pointer(element), alignment), alignment))
        for number, (argument, (pointer, alignment)) in enumerate(zip(self.source.arguments, pointers, strict=True)):
            type_, view = cleave.tensor_type_of(argument), self.around.views[number]
            strides = self._stride_arguments(number, type_) if view is None else self._strides(view, type_)
            self.values[argument] = MemoryRef(
                pointer, type_, tuple(strides), number, alignment, number in written_arguments(self.func)
            )

    def _first_pointer(self, number: int) -> int:
        """The first argument that points to the same element, so that Triton sees equal loads as one."""
        views, tensors = self.around.views, self.around.tensors
        view, first = views[number], tensors[number] if tensors else number
        other = views[first]
        return first if view and other and view.offset is other.offset else number

    def _alignment(self, view: View | None, element: str) -> int:
        """What the address of element 0 is a multiple of, in bytes, if that of the tensor it belongs to is of 16."""
        if view is None:
            return 1
        offset = self.scalars.known(view.offset)
        bits = 8 if element.startswith("f8") else int(element.lstrip("bfi"))
        sizes = (n for n in (_POINTER_ALIGNMENT, 8, 4, 2) if n * 8 >= bits)
        facts = self.scalars.facts
        return next((n for n in sizes if facts.divides(const(n * 8 // bits), offset) is Answer.YES), 1)

    def _stride_arguments(self, number: int, type_: ops.TensorType) -> list[Scalar]:
        texts = [f"stride:{number}:{axis}" for axis in range(len(type_.dims))]
        return [Scalar(self.arguments.add(text, tt.scalar("i64")), -UNKNOWN, UNKNOWN) for text in texts]

    def _strides(self, view: View, type_: ops.TensorType) -> list[Scalar]:
        return [self.scalars.of_size(view.strides[name]) for name in type_.names]

    # --- values ---

    def tile(self, value: ir.Value) -> Tile:
        found = self.values[value]
        if not isinstance(found, Tile):
            raise CleaveError("an operand is no tile")
        return found

    def layout(self, type_: ir.Type) -> Layout:
        return self.packing.layout(type_)

    def scalar(self, value: ir.Value) -> Scalar:
        found = self.values[value]
        if not isinstance(found, Scalar):
            raise CleaveError("an operand is no index")
        return found

    def memory_ref(self, value: ir.Value) -> MemoryRef:
        found = self.values[value]
        if not isinstance(found, MemoryRef):
            raise CleaveError("an operand is no argument of the kernel", notes=("kernels read and write memory only",))
        return found

    # --- ops ---

    def block(self, block: ir.Block) -> None:
        for op in block.operations:
            self._op(op.operation)

    def _op(self, op: ir.Operation) -> None:
        with op.location:
            try:
                if op.name not in RULES:
                    notes = (f"ops that do: {', '.join(sorted(RULES))}",)
                    raise CleaveError("does not occur in kernels", notes=notes)
                RULES[op.name](self, op)
            except CleaveError as error:
                if error.location:
                    raise
                text = f"'{op.name}' cannot be lowered to Triton: {error.message}"
                raise CleaveError(text, position_of(op.location), error.notes) from None

    def bind(self, op: ir.Operation, *values: Bound) -> None:
        self.values.update(zip(op.results, values, strict=True))


# --- rules ------------------------------------------------------------------------------------------------------------


def _pointwise(kernel: _Kernel, op: ir.Operation) -> None:
    name = op.name.removeprefix("cleave.")
    layout = kernel.layout(op.results[0].type)
    if name == "add" and _accumulate(kernel, op, layout):
        return
    operands = [kernel.tile(operand) for operand in op.operands]
    kernel.bind(op, pointwise.pointwise(op, name, operands, layout, kernel.tile))


def _cast(kernel: _Kernel, op: ir.Operation) -> None:
    kernel.bind(op, pointwise.cast(kernel.tile(op.operands[0]), kernel.layout(op.results[0].type)))


def _constant(kernel: _Kernel, op: ir.Operation) -> None:
    layout = kernel.layout(op.results[0].type)
    number = cleave.plain("number", op.attributes["value"])
    small = layout.dtype in ("i32", "i64", "index") and fits(int(number), int(number))
    element = "i32" if small else layout.element
    bounds = (int(number), int(number)) if small else None
    if ops.is_float(layout.dtype) and layout.element.startswith("f8"):
        value = tt.cast(tt.constant(number, tt.scalar("f32"), layout.shape), layout.element)
    else:
        value = tt.constant(number, tt.scalar(element), layout.shape)
    kernel.bind(op, Tile(value, layout.names, layout.shape, layout.dtype, bounds))


def _index(kernel: _Kernel, op: ir.Operation) -> None:
    layout = layout_of(op.results[0].type)
    place = kernel.packing.place(layout.names[0], layout.shape[0])
    line = Tile(kernel.memory.range(place), (place.axis,), (place.extent,), "i64", (0, place.size - 1))
    kernel.bind(op, pointwise.cast(line, kernel.layout(op.results[0].type)))


def _splat(kernel: _Kernel, op: ir.Operation) -> None:
    x = kernel.scalar(op.operands[0])
    bounds = (x.low, x.high) if x.narrow else None
    kernel.bind(op, Tile(x.value, (), (), "i64", bounds))


def _program_id(kernel: _Kernel, op: ir.Operation) -> None:
    axis = int(cleave.plain("integer", op.attributes["axis"]))
    if not 0 <= axis <= 2:
        raise CleaveError(f"the grid has axes 0 to 2, not {axis}")
    value = tt.value("tt.get_program_id", tt.scalar("i32"), axis=tt.i32_attr(axis))
    limit = kernel.around.grid[axis] if axis < len(kernel.around.grid) else None
    highest = (2**31 - 1 if axis == 0 else 65535) - 1
    if limit is not None:
        highest = max(0, min(highest, kernel.scalars.bounds(limit)[1] - 1))
    kernel.bind(op, Scalar(value, 0, highest, None, limit))


def _extent(kernel: _Kernel, op: ir.Operation) -> None:
    kernel.bind(op, kernel.scalars.of_size(parse(str(cleave.plain("string", op.attributes["size"])))))


def _index_constant(kernel: _Kernel, op: ir.Operation) -> None:
    kernel.bind(op, kernel.scalars.constant(ir.IntegerAttr(op.attributes["value"]).value))


def _index_arithmetic(kernel: _Kernel, op: ir.Operation) -> None:
    a, b = (kernel.scalar(operand) for operand in op.operands)
    kernel.bind(op, kernel.scalars.arith(op.name.removeprefix("arith."), a, b))


def _index_comparison(kernel: _Kernel, op: ir.Operation) -> None:
    """Indices are not negative: signed or not is the same."""
    a, b = (kernel.scalar(operand) for operand in op.operands)
    predicate = _PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
    x, y = (a.value, b.value) if a.narrow and b.narrow else map(kernel.scalars.widened, (a, b))
    kernel.bind(op, Tile(tt.compare(predicate, x, y), (), (), "i1"))


def _if(kernel: _Kernel, op: ir.Operation) -> None:
    if len(op.results):
        raise CleaveError("branches with results do not occur in kernels")
    branches = tt.create("scf.if", [], [kernel.tile(op.operands[0]).value], regions=2)
    for source, target in zip(op.regions, branches.regions, strict=True):
        for block in source.blocks:
            with ir.InsertionPoint(ir.Block.create_at_start(target, [])):
                kernel.block(block)


def _access(kernel: _Kernel, op: ir.Operation, memory: ir.Value) -> Access:
    view: Any = op.opview
    in_bounds: frozenset[str] = frozenset(cleave.plain_attrs(op, ops.OPS[view.spec.name]).get("in_bounds", ()))
    offsets = [kernel.scalar(value) for value in view.offsets]
    bounds = [kernel.scalar(value) for value in view.bounds]
    dims = cleave.plain("strings", op.attributes["dims"]) if "dims" in op.attributes else ()
    tiles = [kernel.tile(value) for value in view.indices] if dims else []
    return Access(kernel.memory_ref(memory), offsets, bounds, in_bounds, dict(zip(dims, tiles, strict=True)))


def _load(kernel: _Kernel, op: ir.Operation) -> None:
    fill = cleave.plain("number", op.attributes["fill"])
    access = _access(kernel, op, op.operands[0])
    kernel.bind(op, kernel.memory.load(access, kernel.layout(op.results[0].type), fill))


def _store(kernel: _Kernel, op: ir.Operation) -> None:
    kernel.memory.store(_access(kernel, op, op.operands[1]), kernel.tile(op.operands[0]))


def _trigger(kernel: _Kernel, op: ir.Operation) -> None:
    tt.assembly(TRIGGER)


def _wait(kernel: _Kernel, op: ir.Operation) -> None:
    tt.assembly(WAIT)


def _group_barrier(kernel: _Kernel, op: ir.Operation) -> None:
    counters, group, count = kernel.memory_ref(op.operands[0]), kernel.scalar(op.operands[1]), op.operands[2]
    counter = tt.addptr(counters.pointer, kernel.scalars.widened(group))
    members = kernel.scalars.arith("minui", kernel.scalar(count), kernel.scalars.constant(2**30))
    tt.assembly(GROUP_BARRIER, counter, kernel.scalars.narrowed_value(members))


def _reduce(kernel: _Kernel, op: ir.Operation) -> None:
    kind, over = cleave.plain("string", op.attributes["kind"]), cleave.plain("strings", op.attributes["over"])
    operand = kernel.tile(op.operands[0])
    kernel.bind(op, contract.reduction(operand, kind, over, kernel.layout(op.results[0].type)))


def _contract(kernel: _Kernel, op: ir.Operation) -> None:
    a, b = (kernel.tile(operand) for operand in op.operands)
    over = cleave.plain("strings", op.attributes["over"])
    if _accumulated_later(kernel, op, a, b, over):
        kernel.bind(op, _Pending(a, b, over))
    else:
        kernel.bind(op, contract.contraction(a, b, over, kernel.layout(op.results[0].type)))


def _accumulated_later(kernel: _Kernel, op: ir.Operation, a: Tile, b: Tile, over: Sequence[str]) -> bool:
    """Whether the contraction is only added to something, in its own block, so that ``tt.dot`` can do the addition."""
    uses = list(op.results[0].uses)
    if len(uses) != 1:
        return False
    add = uses[0].owner.operation
    if add.name != "cleave.add" or add.block != op.block or add.operands[0] == add.operands[1]:
        return False
    other = add.operands[1 - uses[0].operand_number]
    if isinstance(kernel.values.get(other), _Pending):
        return False
    layout = kernel.layout(add.results[0].type)
    same_type = layout.dtype == kernel.layout(op.results[0].type).dtype
    return same_type and contract.accumulates(a, b, over, layout)


def _accumulate(kernel: _Kernel, op: ir.Operation, layout: Layout) -> bool:
    for operand, other in (tuple(op.operands), tuple(reversed(list(op.operands)))):
        pending = kernel.values[operand]
        if isinstance(pending, _Pending):
            accumulator = kernel.tile(other)
            kernel.bind(op, contract.contraction_into(accumulator, pending.a, pending.b, pending.over, layout))
            return True
    return False


def _for(kernel: _Kernel, op: ir.Operation) -> None:
    low, high, step = (kernel.scalar(operand) for operand in list(op.operands)[:3])
    narrow = low.narrow and high.narrow and step.narrow and fits(low.low, high.high + step.high)
    bounds = [x.value if narrow else kernel.scalars.widened(x) for x in (low, high, step)]
    source = op.regions[0].blocks[0]
    starts = [_carried(kernel, operand) for operand in list(op.operands)[3:]]
    stages = number_attribute(op, "cleave.num_stages")
    hints = {"tt.num_stages": tt.i32_attr(stages)} if stages else {}
    loop = tt.create("scf.for", [start.type for start in starts], [*bounds, *starts], hints, regions=1)
    block = ir.Block.create_at_start(loop.regions[0], [bounds[0].type, *(start.type for start in starts)])
    index, *carried = block.arguments
    limit = high.size if high.size is not None else high.limit - 1 if high.limit is not None else None
    kernel.values[source.arguments[0]] = Scalar(index, low.low, max(low.low, high.high - 1), None, limit)
    for argument, value in zip(list(source.arguments)[1:], carried, strict=True):
        kernel.values[argument] = _received(kernel, argument.type, value)
    with ir.InsertionPoint(block):
        kernel.block(source)
    kernel.bind(
        op, *(_received(kernel, result.type, value) for result, value in zip(op.results, loop.results, strict=True))
    )


def _carried(kernel: _Kernel, value: ir.Value) -> ir.Value:
    """What a loop carries has the full width of its dtype."""
    found = kernel.values[value]
    if isinstance(found, Scalar):
        return kernel.scalars.widened(found)
    layout = kernel.layout(value.type)
    return aligned(full_width(kernel.tile(value)), layout.names, layout.shape).value


def _received(kernel: _Kernel, type_: ir.Type, value: ir.Value) -> Bound:
    if isinstance(type_, ir.IndexType):
        return Scalar(value, -UNKNOWN, UNKNOWN)
    layout = kernel.layout(type_)
    return Tile(value, layout.names, layout.shape, layout.dtype)


def _yield(kernel: _Kernel, op: ir.Operation) -> None:
    tt.create("scf.yield", [], [_carried(kernel, operand) for operand in op.operands])


def _return(kernel: _Kernel, op: ir.Operation) -> None:
    tt.create("tt.return", [], [])


_PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge", "lt", "le", "gt", "ge")
"""Of ``arith.cmpi``, by their numbers."""
_INDEX_OPS = ["addi", "subi", "muli", "divui", "remui", "minui", "maxui", "minsi", "maxsi"]

RULES: Mapping[str, Callable[[_Kernel, ir.Operation], None]] = {
    **{f"cleave.{name}": _pointwise for name in ops.POINTWISE},
    **{f"arith.{name}": _index_arithmetic for name in _INDEX_OPS},
    "cleave.cast": _cast,
    "cleave.constant": _constant,
    "cleave.index": _index,
    "cleave.splat": _splat,
    "cleave.program_id": _program_id,
    "cleave.extent": _extent,
    "cleave.load": _load,
    "cleave.gather_load": _load,
    "cleave.store": _store,
    "cleave.trigger": _trigger,
    "cleave.wait": _wait,
    "cleave.group_barrier": _group_barrier,
    "cleave.reduce": _reduce,
    "cleave.contract": _contract,
    "arith.constant": _index_constant,
    "arith.cmpi": _index_comparison,
    "scf.for": _for,
    "scf.if": _if,
    "scf.yield": _yield,
    "func.return": _return,
}


# --- attributes, clean-up ---------------------------------------------------------------------------------------------


def number_attribute(op: ir.Operation, name: str) -> int | None:
    """An integer attribute's value; None if there is none."""
    return ir.IntegerAttr(op.attributes[name]).value if name in op.attributes else None


def written_arguments(func: ir.Operation) -> list[int]:
    """The positions of a kernel's arguments that are marked as outputs."""
    if "arg_attrs" not in func.attributes:
        return []
    marks = [ir.DictAttr(entry) for entry in ir.ArrayAttr(func.attributes["arg_attrs"])]
    return [index for index, attributes in enumerate(marks) if "cleave.out" in attributes]


_EFFECTS = ("tt.store", "tt.return", "scf.yield", "tt.reduce.return", "tt.elementwise_inline_asm")


def _erase_unused(block: ir.Block) -> None:
    """Erase ops without uses, last first; all but those with effects are pure."""
    for op in reversed(list(block.operations)):
        for region in op.operation.regions:
            for inner in region.blocks:
                _erase_unused(inner)
        used = any(True for result in op.operation.results for _ in result.uses)
        if not used and op.operation.name not in _EFFECTS and not _stores(op.operation):
            op.operation.erase()


def _stores(op: ir.Operation) -> bool:
    found: list[str] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if inner.name == "tt.store":
            found.append(inner.name)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return bool(found)
