"""``run``: check the inputs, bind the symbols, walk the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cleave.bindings import ir, passmanager
from cleave.dialects import cleave
from cleave.errors import CleaveError
from cleave.reference import (
    control_rules,
    empty_rows,
    graph_rules,
    kernel_rules,
    linalg_rules,
    scalar_rules,
    tensor_rules,
)
from cleave.reference.control_rules import bind_arguments
from cleave.reference.machine import Machine, Rule, element_dtype, location_of
from cleave.reference.numerics import Array, Numerics, Precision, storage

RULES: dict[str, Rule] = {
    **scalar_rules.RULES,
    **tensor_rules.RULES,
    **linalg_rules.RULES,
    **control_rules.RULES,
    **graph_rules.RULES,
    **kernel_rules.RULES,
}


def run(
    module: ir.Module,
    function: str | None,
    inputs: Sequence[Array],
    *,
    precision: Precision,
    sizes: Mapping[str, int] | None = None,
) -> list[Array]:
    """Execute ``function`` (None: the module's one entry) of a module at any stage; the inputs are not changed.

    "f64" computes in f64 and takes casts between float types as the identity; its inputs are in their declared types or
    in f64, its float results f64. "declared" computes in the declared types, with ml_dtypes for the narrow ones.
    ``sizes`` gives symbols that no input binds, such as a split count, their values; ``cleave.choices`` has defaults.
    CleaveError, located, where inputs do not fit the signature or each other, or an op has no rule.
    """
    with module.context, ir.Location.unknown(), np.errstate(all="ignore"):
        machine = Machine(_generalised(module), RULES, Numerics(precision))
        func = _entry(machine.functions, function)
        empty_rows.check(func)
        arguments = _arguments(func, inputs, machine.numerics)
        try:
            symbols = bind_arguments(func, arguments, {**cleave.choices_of(func), **(sizes or {})})
        except CleaveError as error:
            raise error.at(location_of(func)) from None
        results = machine.call(func, arguments, symbols)
        return [np.array(graph_rules.parts(result)[0]) for result in results]


def _generalised(module: ir.Module) -> ir.Operation:
    """A copy in which every structured op is a ``linalg.generic``."""
    copy = module.operation.clone()
    passmanager.PassManager.parse("builtin.module(func.func(linalg-generalize-named-ops))").run(copy)
    return copy


def _entry(functions: Mapping[str, ir.Operation], name: str | None) -> ir.Operation:
    if name is not None:
        if name not in functions:
            raise CleaveError(f"there is no function '{name}'", notes=(f"there are: {', '.join(functions) or 'none'}",))
        return functions[name]
    inner = ("cleave.kernel", "cleave.alternative_of")
    entries = [f for f in functions.values() if not any(a in f.attributes for a in inner) and not _is_private(f)]
    if len(entries) != 1:
        names = ", ".join(ir.StringAttr(f.attributes["sym_name"]).value for f in entries) or "none"
        raise CleaveError("the module has no single entry: name the function", notes=(f"candidates: {names}",))
    return entries[0]


def _is_private(func: ir.Operation) -> bool:
    return "sym_visibility" in func.attributes and "private" in str(func.attributes["sym_visibility"])


def _arguments(func: ir.Operation, inputs: Sequence[Array], numerics: Numerics) -> list[Array]:
    parameters = list(func.regions[0].blocks[0].arguments) if func.regions[0].blocks else []
    if len(parameters) != len(inputs):
        raise CleaveError(f"the function takes {len(parameters)} inputs, not {len(inputs)}", location_of(func))
    try:
        return [
            _argument(i, p.type, np.asarray(x), numerics)
            for i, (p, x) in enumerate(zip(parameters, inputs, strict=True))
        ]
    except CleaveError as error:
        raise error.at(location_of(func)) from None


def _argument(index: int, type_: ir.Type, array: Array, numerics: Numerics) -> Array:
    """A copy of one input in its storage type."""
    dtype = element_dtype(type_)
    allowed = {storage(dtype), numerics.storage(dtype)}
    if array.dtype not in allowed:
        names = " or ".join(sorted(str(kind) for kind in allowed))
        raise CleaveError(f"input {index} has element type {array.dtype}, the function takes {names}")
    shape = _static_shape(type_)
    if array.ndim != len(shape):
        raise CleaveError(f"input {index} has rank {array.ndim}, the function takes {type_}")
    for axis, (static, extent) in enumerate(zip(shape, array.shape, strict=True)):
        if static is not None and static != extent:
            raise CleaveError(f"input {index} has extent {extent} on axis {axis}, the function takes {type_}")
    return array.astype(numerics.storage(dtype))


def _static_shape(type_: ir.Type) -> list[int | None]:
    if not isinstance(type_, ir.ShapedType):
        return []
    if not isinstance(type_, ir.RankedTensorType):
        raise CleaveError(f"inputs of type {type_} are not supported")
    return [None if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]
