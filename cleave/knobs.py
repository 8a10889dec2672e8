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


TRACEBACK = Flag("CLEAVE_TRACEBACK", "print the Python traceback of an internal error")

KNOBS = (TRACEBACK,)
