"""The function of a module that is compiled and run, and what else of the module that needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Facts
from cleave.errors import CleaveError
from cleave.passes.diagnostics import position_of
from cleave.passes.functions import callees, is_private, name_of
from cleave.passes.graph_io import to_graph
from cleave.runtime.launch_plan import TensorSpec

_ALTERNATIVE = "cleave.alternative_of"


def entry(module: ir.Module, name: str | None, *, option: str = "--function") -> ir.Operation:
    """The function of that name, or the only one that is no kernel, alternative or private. ``option``: gives names.

    CleaveError if there is none or, without a name, more than one; or if it has no body.
    """
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    candidates = [func for func in functions if _is_entry(func)]
    if name is not None:
        candidates = [func for func in functions if name_of(func) == name]
    names = ", ".join(name_of(func) for func in functions if _is_entry(func)) or "none"
    if not candidates:
        what = f"there is no function '{name}'" if name is not None else "there is no function to run"
        raise CleaveError(what, notes=(f"functions: {names}",))
    if len(candidates) > 1:
        raise CleaveError(f"there are several functions: choose one with {option}", notes=(f"functions: {names}",))
    if not candidates[0].regions[0].blocks:
        raise CleaveError(f"function '{name_of(candidates[0])}' has no body", position_of(candidates[0].location))
    return candidates[0]


def _is_entry(func: ir.Operation) -> bool:
    return not is_private(func) and "cleave.kernel" not in func.attributes and _ALTERNATIVE not in func.attributes


def keep_only(module: ir.Module, name: str, *, alternatives: bool) -> None:
    """Erase the functions that ``name`` neither is nor calls; its ``alternatives`` stay where wanted."""
    functions = {
        name_of(op.operation): op.operation for op in module.body.operations if op.operation.name == "func.func"
    }
    kept, new = {name}, [name]
    while new:
        called = {callee for each in new for callee in callees(functions[each]) if callee in functions}
        new = sorted(called - kept)
        kept |= called
    for each, func in functions.items():
        if each not in kept and not (alternatives and _alternative_of(func) == name):
            func.erase()


def alternatives_of(module: ir.Module, name: str) -> list[str]:
    """The names of the alternatives that stand beside the function."""
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    return [name_of(func) for func in functions if _alternative_of(func) == name]


def keep_alternative(module: ir.Module, name: str, number: int) -> None:
    """Erase all programs of the function but one, which gets its name: 0 is the source.

    CleaveError where there is no such alternative.
    """
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    programs = [func for func in functions if name_of(func) == name]
    programs += [func for func in functions if _alternative_of(func) == name]
    if number >= len(programs):
        notes = ("0 is the program as it is written",)
        raise CleaveError(f"there is no alternative {number}: the search keeps {len(programs) - 1}", notes=notes)
    kept = programs[number]
    for func in programs:
        if func != kept:
            func.erase()
    kept.attributes["sym_name"] = ir.StringAttr.get(name)
    if _ALTERNATIVE in kept.attributes:
        del kept.attributes[_ALTERNATIVE]


def _alternative_of(func: ir.Operation) -> str | None:
    return ir.FlatSymbolRefAttr(func.attributes[_ALTERNATIVE]).value if _ALTERNATIVE in func.attributes else None


def check_compilable(func: ir.Operation, written: Mapping[str, str], notes: tuple[str, ...] = ()) -> None:
    """CleaveError, located, at an op that is none of a tensor graph or of the host function that becomes of it.

    ``written``: what the ops of the source are called, by place.
    """
    foreign = [view.operation for view in func.regions[0].blocks[0].operations if _is_foreign(view.operation)]
    if foreign:  # constants and the like only stay with an op that needs them
        op = next((op for op in foreign if not _is_supporting(op)), foreign[0])
        name = written.get(str(op.location), op.name)
        text = f"'{name_of(func)}' cannot be compiled as a whole: '{name}' is no op of a tensor graph"
        raise CleaveError(text, position_of(op.location), notes)


_SUPPORTING = ("arith.constant", "tensor.empty", "tensor.dim", "linalg.fill", "builtin.unrealized_conversion_cast")


def _is_supporting(op: ir.Operation) -> bool:
    """One that computes nothing: of a generic op, one that fills or copies."""
    computes_nothing = op.name == "linalg.generic" and len(op.regions[0].blocks[0].operations) == 1
    return computes_nothing or op.name.startswith(_SUPPORTING)


def _is_launch(op: ir.Operation) -> bool:
    return op.name == "func.call" and "cleave.grid" in op.attributes


def stage_of(module: ir.Module, func: ir.Operation) -> Literal["graph", "scheduled", "lowered"]:
    """Whether the function launches kernels, and those are in Triton's IR, of which it sees no bodies."""
    ops = [view.operation for view in func.regions[0].blocks[0].operations]
    kernels = {ir.FlatSymbolRefAttr(op.attributes["callee"]).value for op in ops if _is_launch(op)}
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    if any(name_of(each) in kernels and each.regions[0].blocks for each in functions):
        return "scheduled"
    return "lowered" if kernels else "graph"


def _is_foreign(op: ir.Operation) -> bool:
    return not (_is_launch(op) or op.name.startswith("cleave.") or op.name == "func.return")


def known_facts(func: ir.Operation) -> Facts:
    """The facts of a function; of a tensor graph also the extents of symbols that no argument has."""
    try:
        return to_graph(func).facts
    except CleaveError:
        return cleave.facts_of(func)


def symbols(func: ir.Operation) -> set[str]:
    """The size symbols of the types of its arguments and ops, in terms of those that its facts leave undefined."""
    facts, found = known_facts(func), set[str]()

    def add(values: Iterable[ir.Value]) -> None:
        for value in values:
            if "#cleave.dims" in str(value.type):
                type_, extents = cleave.decode(value.type)
                pairs = zip(type_.dims, extents, strict=True)
                found.update(s for dim, extent in pairs if extent is None for s in facts.simplify(dim.size).symbols)

    def visit(op: ir.Operation) -> ir.WalkResult:
        add(op.results)
        return ir.WalkResult.ADVANCE

    add(func.regions[0].blocks[0].arguments)
    func.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def symbols_of_programs(module: ir.Module, names: Sequence[str]) -> dict[str, set[str]]:
    """The size symbols of those of these functions that are there."""
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    return {name_of(func): symbols(func) for func in functions if name_of(func) in names}


def signature(func: ir.Operation) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Arguments in0, in1, … and results out0, out1, …; a dim without a name is called by its place, as in "in0_1".

    CleaveError, located, where one is no ranked tensor of an element type that Cleave has.
    """
    type_ = ir.FunctionType(ir.TypeAttr(func.attributes["function_type"]).value)
    try:
        return _specs("in", list(type_.inputs)), _specs("out", list(type_.results))
    except CleaveError as error:
        raise error.at(position_of(func.location) or "") from None


def _specs(prefix: str, types: list[ir.Type]) -> list[TensorSpec]:
    return [_spec(f"{prefix}{index}", type_) for index, type_ in enumerate(types)]


def _spec(name: str, type_: ir.Type) -> TensorSpec:
    if not isinstance(type_, ir.RankedTensorType):
        raise CleaveError(f"{name} is of type {type_}; only ranked tensors are taken and returned")
    if type_.encoding is not None and "#cleave.dims" in str(type_.encoding):
        decoded, extents = cleave.decode(type_)
        return TensorSpec(name, decoded.dtype, tuple(map(str, decoded.dims)), extents)
    extents = tuple(None if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank))
    dims = tuple(f"{name}_{axis}" if n is None else f"{name}_{axis}={n}" for axis, n in enumerate(extents))
    return TensorSpec(name, cleave.dtype_of(type_.element_type), dims, extents)
