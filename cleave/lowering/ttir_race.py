"""Loops that Triton would pipeline wrongly.

If one load in a pipelined loop feeds both a tensor-core instruction (straight from shared memory) and code on
registers, Triton 3.6 gives the ring of buffers one too few while a wgmma is in flight: the next copy overwrites what it
still reads. Two loads of the same elements are one, too, unless they differ in an attribute: Triton merges equal ones.

The left operand of a wgmma may come from registers. Nothing then waits for the instruction before the next iteration
writes those registers, unless the loop uses the result of some product (attention's scores). On an H200 with Triton 3.6
the results of such loops varied from run to run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering import tt

_LOADS = ("tt.load", "tt.descriptor_load")
# Through these a tile stays in shared memory; anything else, a cast too, takes it to registers.
_VIEWS = ("tt.trans", "tt.reshape")
_RACE = "one load feeds tt.dot and other code in a pipelined loop: Triton's copies would overwrite what wgmma reads"
_OVERWRITTEN = "a pipelined loop feeds tt.dot from registers, which the next iteration would overwrite under the wgmma"
_HOLD = "set tt.num_stages = 1 on the loop, or feed the product what was loaded"
_NOTE = "load it twice, with different cache hints, one for tt.dot alone; or compute the other use outside the loop"


def races(module: ir.Operation, num_stages: int | None = None) -> list[tuple[ir.Operation, CleaveError]]:
    """Loads of pipelined loops with both kinds of use, loops that feed wgmma from registers; each with its error."""
    both = [(loads[0], CleaveError(_RACE, notes=(_NOTE,))) for loads in _racing(module, num_stages)]
    held = [(loop, CleaveError(_OVERWRITTEN, notes=(_HOLD,))) for loop in _with_register_operands(module, num_stages)]
    return [*both, *held]


def separate_racing_loads(module: ir.Operation, num_stages: int | None = None) -> None:
    """Give what uses racing loads on registers a load of its own, kept apart from the first by its cache modifier."""
    for loads in _racing(module, num_stages):
        for load in loads:
            with ir.InsertionPoint(load):
                copy = load.clone()
            copy.attributes["cache"] = tt.i32_attr(tt.CACHE_ALL)
            _move_register_uses(load.results[0], copy.results[0])
            if not list(copy.results[0].uses):
                copy.erase()


_WGMMA_ROWS = 64
_UNPIPELINED = {"tt.num_stages": 1}


def hold_back_register_operands(module: ir.Operation, num_stages: int | None = None) -> None:
    """Loops whose products read registers that the next iteration writes are not pipelined."""
    for loop in _with_register_operands(module, num_stages):
        for name, value in _UNPIPELINED.items():
            loop.attributes[name] = tt.i32_attr(value)


def _with_register_operands(module: ir.Operation, num_stages: int | None) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "scf.for" and _pipelined(op, num_stages):
            dots = [inner.operation for inner in op.regions[0].blocks[0] if inner.operation.name == "tt.dot"]
            if any(map(_reads_registers, dots)) and not any(map(_is_waited_for, dots)):
                found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _reads_registers(dot: ir.Operation) -> bool:
    """Whether the left operand of a wgmma is computed, in the dot's own loop, by more than a load."""
    shape = ir.RankedTensorType(dot.results[0].type).shape
    value = dot.operands[0]
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name in _VIEWS:
        value = value.owner.operation.operands[0]
    owner = value.owner
    if isinstance(owner, ir.Block) or shape[-2] < _WGMMA_ROWS:
        return False
    return owner.operation.name not in _LOADS and owner.operation.parent == dot.parent


def _is_waited_for(dot: ir.Operation) -> bool:
    """Whether the dot's loop uses its result, but for carrying it on or adding to it."""
    users = [(use.owner.operation.name, use.operand_number) for use in dot.results[0].uses]
    return any(name != "scf.yield" and (name, number) != ("tt.dot", 2) for name, number in users)


def _move_register_uses(old: ir.Value, new: ir.Value) -> None:
    for use in list(old.uses):
        user = use.owner.operation
        if user.name in _VIEWS:
            kinds = set(_uses(user.results[0]))
            if kinds == {"dot", "registers"}:
                with ir.InsertionPoint(user):
                    copy = user.clone()
                copy.operands[0] = new
                _move_register_uses(user.results[0], copy.results[0])
            elif kinds == {"registers"}:
                user.operands[use.operand_number] = new
        elif user.name != "tt.dot" or use.operand_number == 2:
            user.operands[use.operand_number] = new


def _racing(module: ir.Operation, num_stages: int | None) -> list[list[ir.Operation]]:
    """Groups of equal loads in pipelined loops with both kinds of use."""
    loads = _pipelined_loads(module, num_stages)
    uses = [set(_uses(load.results[0])) for load in loads]
    if set().union(*uses) != {"dot", "registers"}:
        return []
    groups: dict[object, list[int]] = defaultdict(list)  # what is equal to Triton's common subexpression elimination
    numbering = _Numbering()
    for index, load in enumerate(loads):
        groups[(load.parent, numbering.key(load))].append(index)
    racing = [group for group in groups.values() if len(set().union(*(uses[index] for index in group))) > 1]
    return [[loads[index] for index in group] for group in racing]


def _pipelined_loads(module: ir.Operation, num_stages: int | None) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        loop = _loop(op) if op.name in _LOADS else None
        if loop is not None and _pipelined(loop, num_stages):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


class _Numbering:
    """Value numbers: equal for values computed by equal ops from equal values."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._known: dict[ir.Value, int] = {}

    def key(self, op: ir.Operation | ir.OpView) -> object:
        operands = tuple(self.of(operand) for operand in op.operands)
        attributes = tuple(sorted((name, str(op.attributes[name])) for name in op.attributes))
        return (op.operation.name, operands, attributes)

    def of(self, value: ir.Value) -> int:
        """Iterative, since chains of ops are as deep as the kernel is long."""
        pending = [value]
        while pending:
            current = pending[-1]
            if current in self._known:
                pending.pop()
                continue
            owner = current.owner
            opaque = isinstance(owner, ir.Block) or len(owner.regions) > 0
            missing = [] if opaque else [operand for operand in owner.operands if operand not in self._known]
            if missing:
                pending += missing
                continue
            key = current if opaque else (self.key(owner), ir.OpResult(current).result_number, str(current.type))
            self._known[current] = self._numbers.setdefault(key, len(self._numbers))
        return self._known[value]


def _loop(op: ir.Operation) -> ir.Operation | None:
    parent = op.parent
    while parent is not None and parent.operation.name != "scf.for":
        parent = parent.operation.parent
    return parent.operation if parent is not None else None


def _pipelined(loop: ir.Operation, num_stages: int | None) -> bool:
    hint = loop.attributes["tt.num_stages"] if "tt.num_stages" in loop.attributes else None  # noqa: SIM401 (no mapping)
    stages = ir.IntegerAttr(hint).value if isinstance(hint, ir.IntegerAttr) else num_stages
    return stages is None or stages > 1


def _uses(value: ir.Value) -> Iterator[str]:
    """ "dot" or "registers" for each use of a loaded tile, seen through views."""
    for use in value.uses:
        user = use.owner.operation
        if user.name in _VIEWS:
            yield from _uses(user.results[0])
        elif user.name == "tt.dot" and use.operand_number < 2:
            yield "dot"
        else:
            yield "registers"
