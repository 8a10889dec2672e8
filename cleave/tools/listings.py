"""What ``--list-passes`` and ``--show-dialects`` print."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from cleave.passes import options, registry


def passes() -> str:
    """Each pass of ours: name, what it does, its options."""
    lines: list[str] = []
    for name in registry.PASSES:
        lines.append(f"  --{name}\n      {registry.summary(name)}")
        lines += [f"        {line}" for line in options.option_lines(registry.pass_class(name))]
    short = ", ".join(f"--{name}" for name in registry.SHORT_NAMES)
    return "\n".join(["Passes of Cleave:", *lines, f"Short: {short}. MLIR's passes are taken by name.", ""])


def dialects() -> str:
    """The dialects that a module may use, one a line; MLIR tells them in a note about an op that does not exist."""
    from cleave import bindings
    from cleave.bindings import MLIRError, ir

    notes: list[str] = []

    def keep(info: ir.Diagnostic) -> bool:
        notes.extend(note.message for note in info.notes)
        return True

    ctx = bindings.context()
    handler: Any = ctx.attach_diagnostic_handler(keep)
    with contextlib.suppress(MLIRError):
        ir.Module.parse("no_such_dialect.op", ctx)
    handler.detach()
    found = re.search(r"[Aa]vailable dialects: ([^;]*?)(?: \(\* |;|$)", " ".join(notes))
    names = sorted(name.removesuffix(" (*)") for name in found[1].split(", ")) if found else ["cleave"]
    return "\n".join(["Available dialects:", *(f"  {name}" for name in names), ""])
