"""``import-linalg``: functions of linalg ops on tensors become functions of named-dimension ops."""

from __future__ import annotations

from dataclasses import dataclass

from cleave.bindings import ir, passmanager
from cleave.passes.diagnostics import remark
from cleave.passes.linalg_raise import Raiser

#: Upstream's passes after which nearly everything is a generic with projected-permutation maps.
NORMALISER = (
    "func.func(convert-elementwise-to-linalg,linalg-generalize-named-ops,linalg-fold-unit-extent-dims,"
    "linalg-fuse-elementwise-ops,canonicalize,cse)"
)


@dataclass(frozen=True)
class ImportLinalg:
    """Raise linalg on tensors to named-dimension ops; what cannot be raised stays, with a remark saying why."""

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        with ctx, ir.Location.unknown():
            called = _called(module)
            for view in list(module.body.operations):
                func = view.operation
                if func.name == "func.func" and _is_source(func):
                    import_function(func, keep_signature=ir.StringAttr(func.attributes["sym_name"]).value in called)


def import_function(func: ir.Operation, *, keep_signature: bool = False) -> None:
    """Replace ``func`` by its raised form. The types of its signature stay plain where ops stay that are not ours.

    Values cross the border between raised ops and others through ``builtin.unrealized_conversion_cast`` between
    ``tensor<…>`` and ``tensor<…, #cleave.dims<…>>``. A function of which nothing can be raised is left alone.
    """
    point = ir.InsertionPoint(func)
    normalised = func.clone(ip=point).operation
    passmanager.PassManager.parse(NORMALISER).run(normalised)
    refused: dict[int, str] = {}
    while True:
        raiser = Raiser(normalised.clone(ip=point).operation, refused)
        raiser.attempt()
        if raiser.refused == refused:
            break
        refused = raiser.refused
        raiser.func.erase()
    ops = [view.operation for view in normalised.regions[0].blocks[0].operations]
    for number, reason in sorted(refused.items()):
        remark(ops[number].location, f"'{ops[number].name}' is not raised: {reason}")
    normalised.erase()
    whole = raiser.replace()
    if not raiser.has_raised():
        raiser.func.erase()
        return
    if whole and not keep_signature:
        raiser.encode_signature()
    func.erase()


def _is_source(func: ir.Operation) -> bool:
    """A function with a body of one block that names no dims yet."""
    blocks = func.regions[0].blocks
    return len(blocks) == 1 and "cleave.kernel" not in func.attributes and "#cleave.dims" not in str(func)


def _called(module: ir.Module) -> set[str]:
    """The names of functions that something in the module refers to: their signatures are not ours to change."""
    names: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "func.call":
            names.add(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return names
