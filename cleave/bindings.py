"""The one door to MLIR's Python bindings: ``from cleave.bindings import ir, passmanager``.

The PyPI package behind it is ``xtc-mlir-python-bindings`` (import name ``mlir``); nothing else of ours names it, except
the module of our dialect, which MLIR itself imports.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def _without_numpy() -> Generator[None]:
    """Keep ``mlir.ir`` from importing NumPy, which would double the start-up time.

    All that is lost are the attribute builders ``F64ElementsAttr`` and ``I32/I64ElementsAttr`` of ``mlir.ir``, which
    convert Python lists through NumPy. NumPy imported before is left in place, and it imports normally afterwards.
    """
    if "numpy" in sys.modules:
        yield
        return
    sys.modules["numpy"] = None  # type: ignore[assignment]  # the documented way to make an import fail
    try:
        yield
    finally:
        del sys.modules["numpy"]


with _without_numpy():
    from mlir import ir, passmanager
    from mlir._mlir_libs import _mlir

# MLIR imports cleave.dialects.cleave when it meets an op of the dialect; without this every access to such an op would
# pay for a failed import.
_mlir.globals.append_dialect_search_prefix("cleave.dialects")

__all__ = ["MLIRError", "context", "ir", "passmanager", "register"]

MLIRError: type[Exception] = ir.MLIRError  # pyright: ignore[reportAttributeAccessIssue]  # made when mlir is imported


def context(*, allow_unregistered: bool = False, multithreading: bool = False) -> ir.Context:
    """A new context with the cleave dialect loaded; nothing is entered, and the caller enters it only in a ``with``.

    Errors go to diagnostic handlers (``ctx.attach_diagnostic_handler``) and, without one, to stderr, not into the text
    of ``MLIRError``; the bindings abort the process on some errors that they would otherwise hold back.
    One thread is the default: diagnostics come in order, and the process may fork.
    """
    ctx = ir.Context()
    ctx.emit_error_diagnostics = True
    ctx.allow_unregistered_dialects = allow_unregistered
    ctx.enable_multithreading(multithreading)
    register(ctx)
    return ctx


def register(ctx: ir.Context) -> None:
    """Load the cleave dialect into ``ctx`` if it is not there; not while a pass manager runs on it."""
    from cleave.dialects import cleave

    cleave.register(ctx)
