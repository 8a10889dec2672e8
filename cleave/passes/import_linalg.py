"""``import-linalg``: functions of linalg ops on tensors become functions of named-dimension ops."""

from __future__ import annotations

from dataclasses import dataclass

from cleave.bindings import ir, passmanager
from cleave.errors import CleaveError
from cleave.passes.diagnostics import remark
from cleave.passes.functions import callees, names_by_place
from cleave.passes.linalg_concats import to_concats
from cleave.passes.linalg_extracts import extracts_to_operands
from cleave.passes.linalg_raise import Raiser

#: Upstream's passes after which nearly everything is a generic with projected-permutation maps.
GENERALISER = "int-range-optimizations,canonicalize,convert-elementwise-to-linalg,linalg-generalize-named-ops"
NORMALISERS = (
    f"func.func({GENERALISER},linalg-fold-unit-extent-dims,linalg-fuse-elementwise-ops,canonicalize,cse)",
    f"func.func({GENERALISER},linalg-fold-unit-extent-dims,canonicalize,cse)",
)


@dataclass(frozen=True)
class ImportLinalg:
    """Raise linalg on tensors to named-dimension ops; what cannot be raised stays, with a remark saying why."""

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        with ctx, ir.Location.unknown():
            called = callees(module.operation)
            for view in list(module.body.operations):
                func = view.operation
                if func.name != "func.func" or not _is_source(func):
                    continue
                encoded = _encoded_op(func)
                if encoded is not None:
                    remark(
                        encoded.location, f"the function is not raised: '{encoded.name}' has a tensor with an encoding"
                    )
                else:
                    import_function(func, keep_signature=ir.StringAttr(func.attributes["sym_name"]).value in called)


def import_function(func: ir.Operation, *, keep_signature: bool = False) -> None:
    """Replace ``func`` by its raised form. The types of its signature stay plain where ops stay that are not ours.

    Values cross the border between raised ops and others through ``builtin.unrealized_conversion_cast`` between
    ``tensor<…>`` and ``tensor<…, #cleave.dims<…>>``. A function of which nothing can be raised is left alone.
    """
    result = _raise(func, NORMALISERS[0], keep_signature)
    if result.remarks:
        # Fusion puts what can be raised and what cannot into one op: take what comes without it if less is left over.
        fused, result = result, _raise(func, NORMALISERS[1], keep_signature)
        if fused.left_over() <= result.left_over():
            fused, result = result, fused
        fused.func.erase()
    for location, text in result.remarks:
        remark(location, text)
    (func if result.raised else result.func).erase()


@dataclass(frozen=True)
class _Result:
    func: ir.Operation
    raised: bool
    remarks: list[tuple[ir.Location, str]]

    def left_over(self) -> int:
        """How many ops, those in bodies among them, are not ours."""
        count = 0

        def visit(op: ir.Operation) -> ir.WalkResult:
            nonlocal count
            count += not op.name.startswith(("cleave.", "builtin."))
            return ir.WalkResult.ADVANCE

        self.func.walk(visit, ir.WalkOrder.PRE_ORDER)
        return count


def _raise(func: ir.Operation, normaliser: str, keep_signature: bool) -> _Result:
    """The raised form of ``func``, as a new function before it."""
    point = ir.InsertionPoint(func)
    normalised = func.clone(ip=point).operation
    manager = passmanager.PassManager.parse(normaliser)
    _normalise(manager, normalised)
    before = str(normalised)
    to_concats(normalised)
    ties = extracts_to_operands(normalised)
    if str(normalised) != before:
        _normalise(manager, normalised)
    refused: dict[int, str] = {}
    while True:
        raiser = Raiser(normalised.clone(ip=point).operation, refused, ties)
        raiser.attempt()
        if raiser.refused == refused:
            break
        refused = raiser.refused
        raiser.func.erase()
    ops = [view.operation for view in normalised.regions[0].blocks[0].operations]
    written = names_by_place(func)
    remarks = [(tie.location, str(tie)) for tie in ties]
    for number, reason in sorted(refused.items()):
        name = written.get(str(ops[number].location), ops[number].name)
        reason = "no tensor op of ours does that" if f"'{name}'" in reason else reason
        remarks.append((ops[number].location, f"'{name}' is not raised: {reason}"))
    normalised.erase()
    whole = raiser.replace() and not keep_signature
    if whole:
        raiser.encode_signature()
    return _Result(raiser.func, whole or raiser.has_raised(), remarks)


def _normalise(manager: passmanager.PassManager, func: ir.Operation) -> None:
    try:
        manager.run(func)
    except ir.MLIRError as error:  # pyright: ignore[reportAttributeAccessIssue]
        raise CleaveError(f"upstream's passes fail on this function: {error}", str(func.location)) from None


def _is_source(func: ir.Operation) -> bool:
    """A function with a body of one block that names no dims yet."""
    blocks = func.regions[0].blocks
    return len(blocks) == 1 and "cleave.kernel" not in func.attributes and "#cleave.dims" not in str(func)


def _encoded_op(func: ir.Operation) -> ir.Operation | None:
    """An op with a tensor whose type has an encoding: not named dims, so somebody else's, on which upstream fails."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        types = [value.type for value in (*op.operands, *op.results)]
        if any(isinstance(type_, ir.RankedTensorType) and type_.encoding is not None for type_ in types):
            found.append(op)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    func.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found[0] if found else None
