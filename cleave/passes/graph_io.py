"""``func.func`` of cleave ops to ``Graph`` and back: the border between MLIR and the search and scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Facts, sym
from cleave.dialects.empty_parts import without_empty_parts
from cleave.dialects.empty_rows import zero_empty_rows
from cleave.dialects.graph import Graph, Value, one_size_each
from cleave.dialects.ops import OPS
from cleave.dialects.tensor_type import TensorType
from cleave.errors import CleaveError

EMPTY_ROWS = "cleave.empty_rows"


def meant_graph(func: ir.Operation) -> Graph:
    """``to_graph`` with what ``cleave.empty_rows`` and parts without elements mean written out in ops."""
    graph = without_empty_parts(to_graph(func), finite="cleave.alternative_of" in func.attributes)
    return zero_empty_rows(graph) if EMPTY_ROWS in func.attributes else graph


def to_graph(func: ir.Operation) -> Graph:
    """The function as a graph.

    CleaveError, located, where an argument or result names no dims, or an op is none of a tensor graph.
    """
    block = func.regions[0].blocks[0]
    values: dict[ir.Value, Value] = {}
    extents: dict[str, int] = {}
    for index, argument in enumerate(block.arguments):
        type_ = _decode(argument, func, extents)
        values[argument] = Value("input", (), type_, {"index": index}, str(argument.location))
    for op in block.operations:
        if op.operation.name == "func.return":
            outputs = tuple(values[operand] for operand in op.operation.operands)
            name = ir.StringAttr(func.attributes["sym_name"]).value
            inputs = tuple(values[argument] for argument in block.arguments)
            facts = _with_own_extents(cleave.facts_of(func), inputs, extents, func)
            return _one_size_each(Graph(name, inputs, outputs, facts, extents), func)
        _add(op.operation, values, extents)
    raise CleaveError("the function does not return", func.location)


def _with_own_extents(facts: Facts, inputs: Sequence[Value], extents: Mapping[str, int], func: ir.Operation) -> Facts:
    """With the extents of symbols that no argument has: in memory only arguments say what a symbol is."""
    bound = {dim.name for value in inputs for dim in value.dims if dim.size is sym(dim.name)} | facts.definitions.keys()
    try:
        return facts.given({name: extent for name, extent in extents.items() if name not in bound})
    except CleaveError as error:
        raise error.at(func.location) from None


def _one_size_each(graph: Graph, func: ir.Operation) -> Graph:
    try:
        return one_size_each(graph)
    except CleaveError as error:
        raise error.at(func.location) from None


def _add(op: ir.Operation, values: dict[ir.Value, Value], extents: dict[str, int]) -> None:
    kind = op.name.removeprefix("cleave.")
    if not op.name.startswith("cleave.") or OPS[kind].stage == "kernel":
        raise CleaveError(f"'{op.name}' is no op of a tensor graph", op.location)
    operands = tuple(values[operand] for operand in op.operands)
    attrs = cleave.plain_attrs(op, OPS[kind])
    values[op.results[0]] = Value(kind, operands, _decode(op.results[0], op, extents), attrs, str(op.location))


def _decode(value: ir.Value, op: ir.Operation, extents: dict[str, int]) -> TensorType:
    try:
        type_, static = cleave.decode(value.type)
    except CleaveError as error:
        raise error.at(op.location) from None
    for dim, extent in zip(type_.dims, static, strict=True):
        if extent is not None and dim.size is sym(dim.name):
            extents[dim.name] = extent
    return type_


def from_graph(graph: Graph, module: ir.Module, attributes: Mapping[str, ir.Attribute] | None = None) -> ir.Operation:
    """Append the graph to ``module`` as a function; returns its ``func.func``."""
    nowhere = ir.Location.unknown(module.context)
    with ir.InsertionPoint(module.body), nowhere:
        types = [cleave.tensor_type(value.type, graph.extents) for value in graph.inputs]
        places = [cleave.location(value.location) for value in graph.inputs]
        results = [cleave.tensor_type(value.type, graph.extents) for value in graph.outputs]
        with places[0] if places else nowhere:
            func = _create_func(graph.name, ir.FunctionType.get(types, results), dict(attributes or {}))
        if graph.facts.texts:
            func.attributes["cleave.facts"] = cleave.attribute("strings", graph.facts.texts)
        block = ir.Block.create_at_start(func.regions[0], types, places)
        _fill(graph, block)
    return func


def _create_func(name: str, type_: ir.FunctionType, attributes: dict[str, ir.Attribute]) -> ir.Operation:
    attributes |= {"sym_name": ir.StringAttr.get(name), "function_type": ir.TypeAttr.get(type_)}
    return ir.Operation.create("func.func", attributes=attributes, regions=1)


def _fill(graph: Graph, block: ir.Block) -> None:
    values = dict(zip(graph.inputs, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for value in graph.topological():
            if value not in values:
                values[value] = _build(value, values, graph.extents)
        ir.Operation.create("func.return", operands=[values[value] for value in graph.outputs])


def _build(value: Value, values: Mapping[Value, ir.Value], extents: Mapping[str, int]) -> ir.Value:
    operands = [values[operand] for operand in value.operands]
    return cleave.build(
        value.op, operands, value.attrs, result=value.type, extents=extents, loc=cleave.location(value.location)
    )
