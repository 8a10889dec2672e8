"""How a launch's operand lies in memory: strides through renames, splits, merges and slices of row-major tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Answer, Dim, Facts, Size, const, parse
from cleave.errors import CleaveError
from cleave.passes.diagnostics import position_of


@dataclass(frozen=True)
class View:
    """Strides by dimension name, and where element 0 lies, in elements."""

    strides: Mapping[str, Size]
    offset: Size


def row_major(value: ir.Value) -> View:
    """A tensor's own memory, dense, the last dimension fastest."""
    type_, extents = cleave.decode(value.type)
    strides: dict[str, Size] = {}
    stride = const(1)
    for dim, extent in zip(reversed(type_.dims), reversed(extents), strict=True):
        strides[dim.name] = stride
        stride = stride * (dim.size if extent is None else const(extent))
    return View(strides, const(0))


def view_of(value: ir.Value, facts: Facts) -> View | None:
    """How ``value`` lies in memory; None if its strides are known at run time only.

    CleaveError where dimensions are merged that do not lie one after the other.
    """
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None if _dynamic(value) else row_major(value)
    if owner.name not in _RULES:
        return row_major(value)
    source = view_of(owner.operands[0], facts)
    return None if source is None else _RULES[owner.name](owner.operation, source, facts)


def tensor_of(value: ir.Value) -> ir.Value:
    """The tensor of which ``value`` is a view."""
    while not isinstance(value.owner, ir.Block) and value.owner.name in _RULES:
        value = value.owner.operands[0]
    return value


def _dynamic(argument: ir.Value) -> bool:
    argument = ir.BlockArgument(argument)
    block: Any = argument.owner
    func = block.owner
    if "arg_attrs" not in func.attributes:
        return False
    return "cleave.strides" in ir.DictAttr(ir.ArrayAttr(func.attributes["arg_attrs"])[argument.arg_number])


def _text(op: ir.Operation, name: str) -> str:
    return str(cleave.plain("string", op.attributes[name]))


def _rename(op: ir.Operation, source: View, facts: Facts) -> View:
    old, new = _text(op, "from"), Dim.parse(_text(op, "to")).name
    return View({new if name == old else name: stride for name, stride in source.strides.items()}, source.offset)


def _split(op: ir.Operation, source: View, facts: Facts) -> View:
    outer, inner = (Dim.parse(text) for text in cleave.plain("strings", op.attributes["into"]))
    stride = source.strides[_text(op, "dim")]
    parts = {outer.name: stride * inner.size, inner.name: stride}
    return View({**_without(source, [_text(op, "dim")]), **parts}, source.offset)


def _merge(op: ir.Operation, source: View, facts: Facts) -> View:
    names = list(cleave.plain("strings", op.attributes["dims"]))
    type_, extents = cleave.decode(op.operands[0].type)
    sizes = {dim.name: dim.size if n is None else const(n) for dim, n in zip(type_.dims, extents, strict=True)}
    for outer, inner in pairwise(names):
        dense = source.strides[inner] * sizes[inner]
        if facts.equal(source.strides[outer], dense) is not Answer.YES:
            message = f"dimensions '{outer}' and '{inner}' do not lie one after the other in memory"
            notes = (f"the stride of '{outer}' is {source.strides[outer]}, not {dense}",)
            raise CleaveError(f"cannot view as one: {message}", position_of(op.location), notes)
    into = Dim.parse(_text(op, "into")).name
    return View({**_without(source, names), into: source.strides[names[-1]]}, source.offset)


def _slice(op: ir.Operation, source: View, facts: Facts) -> View:
    stride = source.strides[_text(op, "dim")]
    strides = {**_without(source, [_text(op, "dim")]), Dim.parse(_text(op, "into")).name: stride}
    return View(strides, source.offset + parse(_text(op, "offset")) * stride)


def _without(source: View, names: list[str]) -> dict[str, Size]:
    return {name: stride for name, stride in source.strides.items() if name not in names}


_RULES: Mapping[str, Callable[[ir.Operation, View, Facts], View]] = {
    "cleave.rename": _rename,
    "cleave.split": _split,
    "cleave.merge": _merge,
    "cleave.slice": _slice,
}
