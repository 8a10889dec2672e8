"""Cleave: a superoptimising tensor compiler for NVIDIA GPUs."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_FUNCTIONS = (
    "exp exp2 log sqrt rsqrt tanh erf sin cos sigmoid absolute maximum minimum where contract index size concat "
    "softmax logsumexp mean variance rms_norm layer_norm relu silu gelu"
).split()
_DTYPES = "f16 bf16 f32 f64 tf32 f8E4M3FN f8E5M2 i1 i8 i16 i32 i64".split()
_HOMES = {
    **dict.fromkeys(("jit", "compile"), "cleave.frontend"),
    "Function": "cleave.function",
    **dict.fromkeys(_FUNCTIONS, "cleave.language.functions"),
    **dict.fromkeys(_DTYPES, "cleave.language.annotations"),
    "Package": "cleave.runtime.package",
    "CleaveError": "cleave.errors",
}

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


class _NoAttribute(AttributeError):
    """Its text is made when it is shown: importing a module of ours asks for an attribute first."""

    def __str__(self) -> str:
        from cleave.language.refusals import other_name

        return f"module 'cleave' has no attribute '{self.args[0]}'{other_name(self.args[0])}"


def __getattr__(name: str) -> Any:
    """The public names, each imported when it is first used: the tools start without them."""
    if name not in _HOMES:
        raise _NoAttribute(name)
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
