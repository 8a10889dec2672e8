"""The table of our passes, imported when first used."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from cleave.errors import CleaveError, Position
from cleave.passes import options

if TYPE_CHECKING:
    from cleave.bindings import ir


class Pass(Protocol):
    """A frozen dataclass whose fields are its options and whose docstring's first sentence says what it does."""

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        """Change ``module`` in place.

        ``module`` may also be the op view ``builtin.ModuleOp``: ``body``, ``operation`` and ``context`` are the same.
        CleaveError for what the user can mend.
        """
        ...


PASSES: Mapping[str, str] = {
    "cleave-import-linalg": "cleave.passes.import_linalg:ImportLinalg",
    "cleave-superopt": "cleave.passes.superopt:Superopt",
    "cleave-schedule": "cleave.lowering.compile_candidates:Schedule",
    "cleave-lower-to-triton": "cleave.lowering.lower_to_triton:LowerToTriton",
    "cleave-lower-to-ttgir": "cleave.lowering.lower_to_ttgir:LowerToTtgir",
    "cleave-verify": "cleave.passes.verify:Verify",
    "cleave-cse": "cleave.passes.cse:Cse",
    "cleave-dce": "cleave.passes.dce:Dce",
}

# Flags of cleave-opt that stand for a pass; the other passes have flags of their full names only, since MLIR has a
# cse and a dce of its own.
SHORT_NAMES: Mapping[str, str] = {
    name.removeprefix("cleave-"): name
    for name in (
        "cleave-import-linalg",
        "cleave-superopt",
        "cleave-schedule",
        "cleave-lower-to-triton",
        "cleave-lower-to-ttgir",
    )
}


def pass_class(name: str) -> type[Any]:
    """The class of the pass; CleaveError if there is none of that name."""
    if name not in PASSES:
        near = difflib.get_close_matches(name, PASSES, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise CleaveError(f"no pass '{name}'{hint}", notes=(f"the passes: {', '.join(PASSES)}",))
    module, _, attribute = PASSES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def create(name: str, **values: Any) -> Pass:
    """The pass with options as Python values; CleaveError for an unknown pass or option or a value of wrong type."""
    return options.from_values(pass_class(name), name, values)


def parse(name: str, text: str, place: Callable[[int], Position | None] = lambda offset: None) -> Pass:
    """The pass with options as text, without the outer braces; ``place`` locates an offset in the text for errors."""
    return options.from_text(pass_class(name), name, text, place)


def name_of(pass_: Pass) -> str:
    """The name under which the class of the pass stands in the table."""
    path = f"{type(pass_).__module__}:{type(pass_).__qualname__}"
    return next((name for name, entry in PASSES.items() if entry == path), type(pass_).__name__)


def summary(name: str) -> str:
    """The first sentence of the pass's docstring."""
    doc = " ".join((pass_class(name).__doc__ or "").split())
    return doc.partition(". ")[0].rstrip(".") + "."
