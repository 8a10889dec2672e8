"""The functions of a module: which are tensor functions, with their alternatives, and what is in them."""

from __future__ import annotations

from collections import Counter

from cleave.bindings import ir
from cleave.passes import diagnostics


def name_of(func: ir.Operation) -> str:
    return ir.StringAttr(func.attributes["sym_name"]).value


def is_private(func: ir.Operation) -> bool:
    attributes = func.attributes
    return "sym_visibility" in attributes and ir.StringAttr(attributes["sym_visibility"]).value == "private"


def callees(op: ir.Operation) -> set[str]:
    """The names of the functions that calls inside ``op`` refer to, and of its own aligned form."""
    names: set[str] = set()
    if "cleave.aligned" in op.attributes:
        names.add(ir.FlatSymbolRefAttr(op.attributes["cleave.aligned"]).value)

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if inner.name == "func.call":
            names.add(ir.FlatSymbolRefAttr(inner.attributes["callee"]).value)
        return ir.WalkResult.ADVANCE

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return names


def tensor_functions(module: ir.Module) -> list[list[ir.Operation]]:
    """The functions that are tensor graphs as a whole, each followed by its ``cleave.alternative_of``.

    A function that holds other ops is left out, with a remark at the first of them; what was scheduled, in silence.
    """
    groups: dict[str, list[ir.Operation]] = {}
    for op in module.body.operations:
        func = op.operation
        if func.name != "func.func" or not func.regions[0].blocks or "cleave.kernel" in func.attributes:
            continue
        if "cleave.alloc" in _op_names(func):
            continue
        found = _no_graph(func)
        if found is None:
            groups.setdefault(_source_of(func), []).append(func)
        else:
            at, reason = found
            diagnostics.remark(at.location, f"'{name_of(func)}' is left as it is: {reason}")
    return list(groups.values())


def _source_of(func: ir.Operation) -> str:
    """The name of the function that this one is an alternative of, or its own."""
    if "cleave.alternative_of" not in func.attributes:
        return name_of(func)
    return ir.FlatSymbolRefAttr(func.attributes["cleave.alternative_of"]).value


def _no_graph(func: ir.Operation) -> tuple[ir.Operation, str] | None:
    """Why the function is no tensor graph, and where it is none; None if it is one."""
    block, names = func.regions[0].blocks[0], _op_names(func)
    foreign = [index for index, name in enumerate(names) if not name.startswith("cleave.") and name != "func.return"]
    if any(name.startswith("linalg.") for name in names):
        return func, "its linalg ops have no named dimensions, which cleave-import-linalg gives to what it can raise"
    if foreign:
        return block.operations[foreign[0]].operation, f"'{names[foreign[0]]}' is no op of a tensor graph"
    tensors = [*block.arguments, *block.operations[len(names) - 1].operands]
    if tensors and all("#cleave.dims" in str(tensor.type) for tensor in tensors):
        return None
    return func, "its arguments and results are not all tensors with named dimensions"


def _op_names(func: ir.Operation) -> list[str]:
    return [op.operation.name for op in func.regions[0].blocks[0].operations]


def names_by_place(func: ir.Operation) -> dict[str, str]:
    """What the ops of a function are called, as passes that make others of them keep their places only.

    By the text of the place; without places that several have.
    """
    ops = [view.operation for view in func.regions[0].blocks[0].operations]
    count = Counter(str(op.location) for op in ops)
    return {place: op.name for op in ops if count[place := str(op.location)] == 1}


def is_within(op: ir.Operation, outer: ir.Operation) -> bool:
    """Whether it is in a region of the other op, at any depth."""
    parent = op.parent
    while parent is not None and parent.operation != outer:
        parent = parent.operation.parent
    return parent is not None


def ops_inside(op: ir.Operation) -> list[ir.Operation]:
    """All ops of a kernel or another op's regions, in the order of its text."""
    found: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if inner != op:
            found.append(inner)
        return ir.WalkResult.ADVANCE

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found
