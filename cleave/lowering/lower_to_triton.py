"""``cleave-lower-to-triton``: scheduled kernels as TTIR, each in a module of its own beside the host function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Facts, Size, parse
from cleave.dialects.ops import VIEWS
from cleave.errors import CleaveError, CleaveErrors
from cleave.lowering.kernel_builder import Surroundings, number_attribute
from cleave.lowering.to_triton import lower_kernel
from cleave.lowering.verify_ttir import verify_kernel
from cleave.lowering.views import View, tensor_of, view_of
from cleave.passes.diagnostics import position_of, remark
from cleave.passes.functions import name_of, tensor_functions


@dataclass(frozen=True)
class LowerToTriton:
    """Lower every scheduled kernel to Triton's IR; the host function and its launches stay.

    Of a kernel remain a declaration, which the launches name, and a module with the attributes ``cleave.kernel_module``
    (the kernel's name), ``cleave.num_warps``, ``cleave.num_stages`` and ``cleave.arguments``: what each argument of its
    one ``tt.func`` is, in order: "in:<i>" (a pointer to the first element of the launch's operand i), "size:<symbol>"
    (i32), "stride:<i>:<axis>" (i64, in elements). A function that is not scheduled is left as it is, with a remark.
    """

    unregistered_ops: ClassVar[bool] = True

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        if not ctx.allow_unregistered_dialects:  # Triton's own ops; MLIR aborts where a pass manager runs on ``ctx``
            ctx.allow_unregistered_dialects = True
        _remark_unscheduled(module)
        problems: list[CleaveError] = []
        for func in kernels_of(module):
            with ctx, ir.InsertionPoint(func):
                lowered = self.lowered(func, module)
            problems += verify_kernel(lowered, num_stages=number_attribute(lowered, "cleave.num_stages"))
            _declare(func)
        if problems:
            raise CleaveErrors(problems)

    def lowered(self, func: ir.Operation, module: ir.Module) -> ir.Operation:
        """The module of one kernel, made at the current insertion point."""
        return lower_kernel(func, surroundings(func, module))


def _remark_unscheduled(module: ir.Module) -> None:
    for function, *_ in tensor_functions(module):
        *ops, _return = function.regions[0].blocks[0].operations
        if all(
            op.operation.name.removeprefix("cleave.") in VIEWS for op in ops
        ):  # the host makes views, no kernel does
            continue
        note = "cleave-schedule makes kernels of it, before this pass"
        remark(function.location, f"'{name_of(function)}' is left as it is: it is not scheduled", (note,))


def _functions(module: ir.Module) -> list[ir.Operation]:
    return [op.operation for op in module.body.operations if op.operation.name == "func.func"]


def kernels_of(module: ir.Module) -> list[ir.Operation]:
    return [f for f in _functions(module) if "cleave.kernel" in f.attributes and list(f.regions[0].blocks)]


def _declare(func: ir.Operation) -> None:
    """Replace a kernel by its declaration."""
    attributes = {name: func.attributes[name] for name in func.attributes}
    with func.location, ir.InsertionPoint(func):
        ir.Operation.create("func.func", attributes=attributes, regions=1)
    func.erase()


# --- what the module says of a kernel ---------------------------------------------------------------------------------


def surroundings(func: ir.Operation, module: ir.Module) -> Surroundings:
    """What the module around a kernel says of its tensors and sizes."""
    launches = _launches(func, module)
    hosts = [_enclosing_function(launch) for launch in launches]
    facts = Facts.parse(dict.fromkeys(text for f in (func, *hosts) for text in cleave.facts_of(f).texts))
    grids = {_grid(launch) for launch in launches}
    extents = cleave.static_extents(type_ for f in (func, *hosts) for type_ in _argument_types(f))
    views = _views(func, launches, facts)
    return Surroundings(facts, extents, grids.pop() if len(grids) == 1 else (), views, _tensors(launches))


def _views(func: ir.Operation, launches: list[ir.Operation], facts: Facts) -> tuple[View | None, ...]:
    """How each tensor argument lies in memory; None where that is known at run time only, or launches differ."""
    arguments = list(func.regions[0].blocks[0].arguments)
    if not launches:
        return tuple(view_of(argument, facts) for argument in arguments)
    columns = zip(*([view_of(operand, facts) for operand in launch.operands] for launch in launches), strict=True)
    own = [view_of(argument, facts) is not None for argument in arguments]
    pairs = zip(columns, own, strict=True)
    return tuple(column[0] if dense and all(v == column[0] for v in column) else None for column, dense in pairs)


def _tensors(launches: list[ir.Operation]) -> tuple[int, ...]:
    """For each operand of the launches the first one that is a view of the same tensor in all of them."""
    found: dict[tuple[ir.Value, ...], int] = {}
    columns = zip(*(map(tensor_of, launch.operands) for launch in launches), strict=True)
    return tuple(found.setdefault(column, number) for number, column in enumerate(columns))


def _launches(func: ir.Operation, module: ir.Module) -> list[ir.Operation]:
    name = ir.StringAttr(func.attributes["sym_name"]).value
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value == name:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _enclosing_function(op: ir.Operation) -> ir.Operation:
    parent = op.parent
    while parent is not None and parent.operation.name != "func.func":
        parent = parent.operation.parent
    if parent is None:
        raise CleaveError("a kernel is launched outside a function", position_of(op.location))
    return parent.operation


def _grid(launch: ir.Operation) -> tuple[Size, ...]:
    if "cleave.grid" not in launch.attributes:
        raise CleaveError("a launch needs the attribute cleave.grid", position_of(launch.location))
    return tuple(parse(text) for text in cleave.plain("strings", launch.attributes["cleave.grid"]))


def _argument_types(func: ir.Operation) -> list[ir.Type]:
    return [argument.type for block in func.regions[0].blocks for argument in block.arguments]
