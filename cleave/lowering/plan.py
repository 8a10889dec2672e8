"""The launch plan of a function, read off its module after ``cleave-lower-to-triton``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.errors import CleaveError
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.kernel_builder import number_attribute, written_arguments
from cleave.passes.diagnostics import position_of
from cleave.passes.tile_io import ALIGNED
from cleave.runtime.launch_plan import Alloc, Launch, LaunchPlan, Step, TensorSpec, View

_CHOICES = "cleave.choices"


def plan_of(module: ir.Module, function: str, kernels: Mapping[str, KernelModule] | None = None) -> LaunchPlan:
    """What the host function does, step by step. Arguments are called in0, in1, …, what it makes t0, t1, ….

    ``kernels``: those of the module by name, where they are known already.
    CleaveError, located, where there is no such function, it launches a kernel that is not lowered, or it has an op
    that is none of a host function.
    """
    if kernels is None:
        kernels = {kernel.name: kernel for kernel in kernel_modules(module)}
    functions = {
        ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    if function not in functions:
        known = ", ".join(functions) or "none"
        raise CleaveError(f"there is no function '{function}'", notes=(f"functions: {known}",))
    return _Reader(functions, kernels, function).plan()


class _Reader:
    def __init__(
        self, functions: Mapping[str, ir.Operation], kernels: Mapping[str, KernelModule], function: str
    ) -> None:
        self.functions, self.kernels, self.function = functions, kernels, function
        self.func = functions[function]
        self.names: dict[ir.Value, str] = {}
        self.extents: dict[str, int] = {}
        self.made = 0

    def plan(self) -> LaunchPlan:
        if len(self.func.regions[0].blocks) != 1:
            raise CleaveError(f"'{self.function}' is no host function of one block", position_of(self.func.location))
        block = self.func.regions[0].blocks[0]
        arguments = tuple(self._spec(argument, f"in{index}") for index, argument in enumerate(block.arguments))
        steps: list[Step] = []
        results: tuple[str, ...] = ()
        for view in block.operations:
            if view.operation.name == "func.return":
                results = tuple(self.names[operand] for operand in view.operation.operands)
            else:
                steps.append(self._step(view.operation))
        facts, attributes = cleave.facts_of(self.func).texts, self.func.attributes
        choices = cleave.plain("strings", attributes[_CHOICES]) if _CHOICES in attributes else ()
        position = position_of(self.func.location)
        location = str(position) if position else None
        plan = LaunchPlan(self.function, arguments, tuple(steps), results, facts, self.extents, location, choices)
        return replace(plan, aligned=self._aligned())

    def _aligned(self) -> LaunchPlan | None:
        if ALIGNED not in self.func.attributes:
            return None
        name = ir.FlatSymbolRefAttr(self.func.attributes[ALIGNED]).value
        if name not in self.functions or ALIGNED in self.functions[name].attributes:
            text = f"'{name}' is no aligned form of '{self.function}'"
            raise CleaveError(text, position_of(self.func.location))
        return _Reader(self.functions, self.kernels, name).plan()

    def _step(self, op: ir.Operation) -> Step:
        if op.name == "func.call":
            return self._launch(op)
        if op.name == "cleave.alloc":
            return Alloc(self._made(op), zeroed="contents" in op.attributes)
        if op.name in _VIEWS:
            names, into, offset = _VIEWS[op.name](op)
            return View(self.names[op.operands[0]], names, into, self._made(op), offset)
        raise CleaveError(f"'{op.name}' is no op of a host function", position_of(op.location))

    def _made(self, op: ir.Operation) -> TensorSpec:
        self.made += 1
        return self._spec(op.results[0], f"t{self.made - 1}")

    def _spec(self, value: ir.Value, name: str) -> TensorSpec:
        """Also learns which symbols have static sizes."""
        try:
            type_, extents = cleave.decode(value.type)
        except CleaveError as error:
            raise CleaveError(f"{name} {error.message}", position_of(self.func.location), error.notes) from None
        for dim, extent in zip(type_.dims, extents, strict=True):
            if extent is not None and str(dim.size) in dim.size.symbols:
                self.extents[str(dim.size)] = extent
        self.names[value] = name
        return TensorSpec(name, type_.dtype, tuple(map(str, type_.dims)), extents)

    def _launch(self, op: ir.Operation) -> Launch:
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        kernel = self.kernels.get(name)
        if kernel is None:
            note = "run cleave-lower-to-triton on the module"
            raise CleaveError(f"'{name}' is no lowered kernel", position_of(op.location), (note,))
        if "cleave.grid" not in op.attributes:
            raise CleaveError("a launch needs the attribute cleave.grid", position_of(op.location))
        grid = tuple(cleave.plain("strings", op.attributes["cleave.grid"]))
        operands = tuple(self.names[operand] for operand in op.operands)
        outputs = tuple(operands[index] for index in written_arguments(self.functions[name]))
        unless = "cleave.unless"
        return Launch(
            name,
            grid,
            operands,
            outputs,
            kernel.arguments,
            kernel.num_warps,
            kernel.num_stages,
            overlaps="cleave.overlaps" in op.attributes,
            cooperative="cleave.cooperative" in op.attributes,
            unless=ir.FlatSymbolRefAttr(op.attributes[unless]).value if unless in op.attributes else "",
            persistent=kernel.persistent,
            product=number_attribute(op, "cleave.product") or 0,
        )


# --- views: (dims of the source, what they become, offset) -----------------------------------------------------------

_Change = tuple[tuple[str, ...], tuple[str, ...], str]


def _text(op: ir.Operation, name: str) -> str:
    return cleave.plain("string", op.attributes[name])


def _rename(op: ir.Operation) -> _Change:
    return (_text(op, "from"),), (_text(op, "to"),), "0"


def _split(op: ir.Operation) -> _Change:
    return (_text(op, "dim"),), tuple(cleave.plain("strings", op.attributes["into"])), "0"


def _merge(op: ir.Operation) -> _Change:
    return tuple(cleave.plain("strings", op.attributes["dims"])), (_text(op, "into"),), "0"


def _slice(op: ir.Operation) -> _Change:
    return (_text(op, "dim"),), (_text(op, "into"),), _text(op, "offset")


_VIEWS = {"cleave.rename": _rename, "cleave.split": _split, "cleave.merge": _merge, "cleave.slice": _slice}
