"""What launches require of kernels: waits where launches overlap, and room for blocks that wait for one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cleave.bindings import ir
from cleave.dialects.library_product import MAX_ALGORITHM, product_problem
from cleave.dialects.ops import VIEWS
from cleave.errors import CleaveError
from cleave.passes.functions import name_of, ops_inside
from cleave.passes.verify_products import kernel_problems

_VIEWS = frozenset(f"cleave.{op}" for op in VIEWS)
_ORDERED = frozenset(("cleave.store", "cleave.group_barrier"))


def launch_problems(module: ir.Module) -> Iterator[CleaveError]:
    """Hazards between launches, each at the launch or at the op that is in the wrong place."""
    functions = {name_of(op.operation): op.operation for op in module.body.operations if _is_function(op.operation)}
    for func in functions.values():
        launches = [op.operation for op in _body(func) if op.operation.name == "func.call"]
        launches = [op for op in launches if "cleave.grid" in op.attributes and _callee(op) in functions]
        written = {root for launch in launches for root in _written(launch, functions)}
        for index, launch in enumerate(launches):
            yield from _problems(launch, launches[:index], functions[_callee(launch)], written)


def _problems(
    launch: ir.Operation, earlier: list[ir.Operation], kernel: ir.Operation, written: set[ir.Value]
) -> Iterator[CleaveError]:
    if "cleave.unless" in launch.attributes:
        wanted = ir.FlatSymbolRefAttr(launch.attributes["cleave.unless"]).value
        if not any(_callee(other) == wanted and "cleave.cooperative" in other.attributes for other in earlier):
            yield CleaveError(
                f"'cleave.unless' names '{wanted}', which no cooperative launch before runs", launch.location
            )
    name = _callee(launch)
    if "cleave.product" in launch.attributes:
        yield from _product_problems(launch, kernel)
    if not list(kernel.regions[0].blocks):
        return
    meets = [op for op in ops_inside(kernel) if op.name == "cleave.group_barrier"]
    if meets and "cleave.cooperative" not in launch.attributes:
        notes = ("mark the launch cleave.cooperative: blocks that are not running cannot arrive",)
        yield CleaveError(f"the blocks of '{name}' wait for one another", launch.location, notes)
    for op in meets:
        if op.parent != kernel:
            yield CleaveError("'cleave.group_barrier' stands outside all loops", op.location)
    if "cleave.overlaps" in launch.attributes:
        if not earlier:
            yield CleaveError("the first launch has none to overlap with", launch.location)
        yield from _wait_problems(launch, kernel, written)


def _product_problems(launch: ir.Operation, kernel: ir.Operation) -> Iterator[CleaveError]:
    rank = launch.attributes["cleave.product"]
    if not isinstance(rank, ir.IntegerAttr) or not 1 <= rank.value <= MAX_ALGORITHM:
        text = f"'cleave.product' is the number of a library's algorithm, from 1 to {MAX_ALGORITHM}, not {rank}"
        yield CleaveError(text, launch.location)
    dtypes = [_element_type(operand) for operand in launch.operands]
    problem = product_problem(dtypes, _output_numbers(launch, kernel))
    if problem:
        yield CleaveError(f"'{_callee(launch)}' is said to be a product, which {problem}", launch.location)
    elif list(kernel.regions[0].blocks):
        yield from kernel_problems(kernel)


def _wait_problems(launch: ir.Operation, kernel: ir.Operation, written: set[ir.Value]) -> Iterator[CleaveError]:
    waits = [op for op in ops_inside(kernel) if op.name == "cleave.wait"]
    if len(waits) != 1 or waits[0].parent != kernel:
        text = f"'{_callee(launch)}' overlaps with the launch before it, so it needs one cleave.wait, outside all loops"
        yield CleaveError(text, launch.location)
        return
    arguments = list(kernel.regions[0].blocks[0].arguments)
    roots = dict(zip(arguments, map(_root, launch.operands), strict=True))
    for op in ops_inside(kernel):
        if op == waits[0]:
            return
        if op.name in _ORDERED:
            yield CleaveError(f"'{op.name}' before the wait: earlier launches may still use that memory", op.location)
        if op.name in ("cleave.load", "cleave.gather_load") and roots[op.operands[0]] in written:
            yield CleaveError(f"'{op.name}' before the wait of what a launch writes", op.location)


def _element_type(value: ir.Value) -> str:
    type_ = value.type
    return str(type_.element_type if isinstance(type_, ir.RankedTensorType) else type_)


def _is_function(op: ir.Operation) -> bool:
    return op.name == "func.func"


def _body(func: ir.Operation) -> Iterator[ir.OpView]:
    for block in func.regions[0].blocks:
        yield from block.operations


def _callee(launch: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(launch.attributes["callee"]).value


def _written(launch: ir.Operation, functions: Mapping[str, ir.Operation]) -> Iterator[ir.Value]:
    return map(_root, _outputs(launch, functions[_callee(launch)]))


def _outputs(launch: ir.Operation, kernel: ir.Operation) -> Iterator[ir.Value]:
    return (launch.operands[number] for number in _output_numbers(launch, kernel))


def _output_numbers(launch: ir.Operation, kernel: ir.Operation) -> list[int]:
    marks = ir.ArrayAttr(kernel.attributes["arg_attrs"]) if "arg_attrs" in kernel.attributes else ()
    marked = zip(range(len(launch.operands)), marks, strict=False)
    return [number for number, mark in marked if "cleave.out" in ir.DictAttr(mark)]


def _root(value: ir.Value) -> ir.Value:
    """The memory that a view looks at."""
    while not isinstance(value.owner, ir.Block) and value.owner.name in _VIEWS:
        value = value.owner.operands[0]
    return value
