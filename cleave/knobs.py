"""The environment variables that Cleave reads; no other module looks into the environment for settings."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """A variable that is on when set to anything but the empty text, 0, false, no or off."""

    variable: str
    doc: str

    def __bool__(self) -> bool:
        return os.environ.get(self.variable, "").strip().lower() not in ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Text:
    """A variable whose value is taken as it is; empty where it is not set."""

    variable: str
    doc: str

    @property
    def value(self) -> str:
        return os.environ.get(self.variable, "")


TRACEBACK = Flag("CLEAVE_TRACEBACK", "print the Python traceback of an internal error")
TUNED = Text("CLEAVE_TUNED", "a file of tuning results, made by cleave-tune, whose programs are taken")
CUBLAS = Text("CLEAVE_CUBLAS", "the libcublasLt to call, where it is not to be the one of the process or of CUDA")

KNOBS = (TRACEBACK, TUNED, CUBLAS)
