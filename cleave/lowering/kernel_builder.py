"""Building the TTIR of a kernel: its parameters, and what each value of the source has become.

How ops are lowered is said by rules, one for each op (``to_triton.RULES``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Answer, Facts, Size, const, parse, sym
from cleave.dialects.given_sizes import LARGEST_EXTENT
from cleave.dialects.tensor_type import TensorType
from cleave.errors import CleaveError
from cleave.lowering import tt
from cleave.lowering.access import MemoryRef
from cleave.lowering.descriptors import Descriptors
from cleave.lowering.memory import MemoryBuilder, memory_element
from cleave.lowering.merged_loads import merge_loads
from cleave.lowering.packing import packing_of
from cleave.lowering.scalars import UNKNOWN, Scalar, Scalars
from cleave.lowering.tiles import Layout, Tile
from cleave.lowering.ttir_race import hold_back_register_operands, separate_racing_loads
from cleave.lowering.views import View
from cleave.passes.diagnostics import position_of
from cleave.passes.functions import ops_inside

KERNEL_MODULE = "cleave.kernel_module"
ARGUMENTS = "cleave.arguments"
DESCRIPTORS = "cleave.descriptors"
STORED = "cleave.stored_by_descriptors"
COPIES = "cleave.copies"
PERSISTENT = "cleave.persistent"
_READING = ("cleave.load", "cleave.gather_load", "cleave.group_barrier")
_POINTER_ALIGNMENT = 16  # bytes, which launches check


@dataclass(frozen=True)
class Surroundings:
    """What is known of a kernel from the module around it."""

    facts: Facts
    extents: Mapping[str, int]  # static sizes of symbols
    grid: tuple[Size, ...]  # of its launch; empty if not known
    views: tuple[View | None, ...]  # of its tensor arguments; None: strides known at run time only
    tensors: tuple[int, ...] = ()  # for each argument the first one that is a view of the same tensor


@dataclass(frozen=True)
class Pending:
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


Bound = Tile | Scalar | MemoryRef | Pending
Rule = Callable[["KernelBuilder", ir.Operation], None]
"""Lowers one op."""


class KernelBuilder:
    """The module with the TTIR of one kernel, made at the current insertion point."""

    def __init__(self, func: ir.Operation, around: Surroundings, rules: Mapping[str, Rule]) -> None:
        self.func, self.around, self.rules = func, around, rules
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
            try:
                self._body(block)
                self._finish(module, function)
            except CleaveError:
                module.erase()
                raise
        return module

    def _function_attributes(self) -> dict[str, ir.Attribute]:
        return {"sym_name": ir.StringAttr.get(self.name), "sym_visibility": ir.StringAttr.get("public")}

    def _body(self, block: ir.Block) -> None:
        self.scalars = Scalars(self._facts(), self.around.extents, self._size_argument)
        descriptors = self._descriptors()
        self.memory = MemoryBuilder(self.scalars, self.packing, descriptors)
        with ir.InsertionPoint(block):
            # What is built once is inserted before this op.
            anchor = tt.create("arith.constant", [tt.scalar("i32")], [], {"value": tt.i32_attr(0)})
            self.scalars.entry = ir.InsertionPoint(anchor)
            self._tensor_arguments()
            self.block(self.source)
        anchor.erase()
        _erase_unused(block)
        merge_loads(block)

    def _descriptors(self) -> Descriptors | None:
        if DESCRIPTORS not in self.func.attributes:
            return None
        stored = set(written_arguments(self.func)) if STORED in self.func.attributes else set[int]()
        return Descriptors(self.scalars, self.arguments.add, stored - self._read_arguments())

    def _read_arguments(self) -> set[int]:
        """The arguments that are read, and others that are views of the same tensors."""
        arguments, tensors = list(self.source.arguments), self.around.tensors or range(len(self.source.arguments))
        reading = [op for op in ops_inside(self.func) if op.name in _READING]
        read = {tensors[arguments.index(op.operands[0])] for op in reading}
        return {number for number, tensor in enumerate(tensors) if tensor in read}

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
            written = number in written_arguments(self.func)
            self.values[argument] = MemoryRef(
                pointer, type_, tuple(strides), number, alignment, written, self._first_described(number)
            )

    def _first_pointer(self, number: int) -> int:
        """The first argument that points to the same element, so that Triton sees equal loads as one."""
        views, tensors = self.around.views, self.around.tensors
        view, first = views[number], tensors[number] if tensors else number
        other = views[first]
        return first if view and other and view.offset is other.offset else number

    def _first_described(self, number: int) -> int:
        """The first argument that lies in the same memory, axis by axis: they have descriptors in common."""
        first, views = self._first_pointer(number), self.around.views
        one, other = views[first], views[number]
        same = one and other and [*one.strides.values()] == [*other.strides.values()]
        return first if same else number

    def _alignment(self, view: View | None, element: str) -> int:
        """What the address of element 0 is a multiple of, in bytes, if that of the tensor it belongs to is of 16."""
        if view is None:
            return 1
        offset = self.scalars.known(view.offset)
        bits = 8 if element.startswith("f8") else int(element.lstrip("bfi"))
        sizes = (n for n in (_POINTER_ALIGNMENT, 8, 4, 2) if n * 8 >= bits)
        facts = self.scalars.facts
        return next((n for n in sizes if facts.divides(const(n * 8 // bits), offset) is Answer.YES), 1)

    def _stride_arguments(self, number: int, type_: TensorType) -> list[Scalar]:
        texts = [f"stride:{number}:{axis}" for axis in range(len(type_.dims))]
        return [Scalar(self.arguments.add(text, tt.scalar("i64")), -UNKNOWN, UNKNOWN) for text in texts]

    def _strides(self, view: View, type_: TensorType) -> list[Scalar]:
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
                if op.name not in self.rules:
                    notes = (f"ops that do: {', '.join(sorted(self.rules))}",)
                    raise CleaveError("does not occur in kernels", notes=notes)
                self.rules[op.name](self, op)
            except CleaveError as error:
                if error.location:
                    raise
                text = f"'{op.name}' cannot be lowered to Triton: {error.message}"
                raise CleaveError(text, position_of(op.location), error.notes) from None

    def bind(self, op: ir.Operation, *values: Bound) -> None:
        self.values.update(zip(op.results, values, strict=True))


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


_EFFECTS = (
    "tt.store",
    "tt.descriptor_store",
    "tt.return",
    "scf.yield",
    "tt.reduce.return",
    "tt.elementwise_inline_asm",
)


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
        if inner.name in ("tt.store", "tt.descriptor_store"):
            found.append(inner.name)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return bool(found)
