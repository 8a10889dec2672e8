"""Our passes on MLIR's own pass managers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cleave.errors import CleaveError, CleaveErrors
from cleave.passes import registry

if TYPE_CHECKING:
    from cleave.bindings import ir

PassCallable = Callable[[Any, Any], None]


def make(name: str, **values: Any) -> tuple[PassCallable, str, str, str]:
    """Arguments of ``PassManager.add`` for the pass: ``pm.add(*make("cleave-superopt", keep=2))``.

    The pass manager must be anchored on ``builtin.module``, and the context must have the cleave dialect
    (``cleave.bindings.register(ctx)``) before it runs; for ``cleave-lower-to-triton`` it must also allow unregistered
    dialects. The module is checked as by ``cleave-verify`` first.
    CleaveError for an unknown pass or option. A CleaveError while it runs becomes a diagnostic at its location and
    fails the pipeline as any pass's failure does.
    """
    pass_ = registry.create(name, **values)

    def run(op: ir.Operation, external: Any) -> None:
        _run(pass_, name, op, external)

    return run, name, name, registry.summary(name)


def _run(pass_: registry.Pass, name: str, op: ir.Operation, external: Any) -> None:
    problem = _unfit(pass_, name, op)
    if problem is not None:
        op.location.emit_error(problem)
        external.signal_pass_failure()  # MLIR aborts the process if only one of emit_error and this is done
        return
    try:
        module: Any = op.opview
        _verify(module)
        pass_.apply(op.context, module)
    except CleaveError as error:
        for each in error.errors if isinstance(error, CleaveErrors) else (error,):
            _emit(each, op)
        external.signal_pass_failure()


def _verify(module: ir.Module) -> None:
    """What our passes rely on and MLIR's verifier does not check; CleaveErrors where it does not hold."""
    from cleave.passes.verify import Verify

    Verify().apply(module.context, module)


def _unfit(pass_: registry.Pass, name: str, op: ir.Operation) -> str | None:
    if op.name != "builtin.module":
        return f"{name} runs on builtin.module, not on {op.name}"
    if not op.context.is_registered_operation("cleave.contract"):
        return f"{name} needs the cleave dialect; call cleave.bindings.register(context) before the pass manager runs"
    if getattr(pass_, "unregistered_ops", False) and not op.context.allow_unregistered_dialects:
        return f"{name} makes ops of Triton's dialect; set context.allow_unregistered_dialects = True before it runs"
    return None


def _emit(error: CleaveError, op: ir.Operation) -> None:
    from cleave.bindings import ir
    from cleave.passes.diagnostics import position_of

    position = position_of(error.location)
    location = op.location
    if position is not None:
        location = ir.Location.file(position.file, position.line, position.column, op.context)
    location.emit_error("\n".join([error.message, *(f"note: {note}" for note in error.notes)]))
