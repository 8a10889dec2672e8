"""Sizes of tensor dimensions: symbolic integers, what is known about them, and named dimensions.

The parts: `size` (the polynomial), `size_rules` (floordiv, mod, ceildiv, min, max in normal form), `size_text` (parse
and print), `size_bounds` (intervals), `facts` (definitions, bounds, three-valued answers). Import them from here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from cleave.dialects.facts import Answer, Facts
from cleave.dialects.size import Size, SizeLike, as_size, const, sym
from cleave.dialects.size_rules import ceildiv, floordiv, maximum, minimum, mod
from cleave.dialects.size_text import parse, syntax_error

NO_FACTS = Facts()
_DIM = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=(?!=)\s*)?")


class Dim(NamedTuple):
    """A named dimension: the name identifies it, the size measures it."""

    name: str
    size: Size

    @staticmethod
    def parse(text: str) -> Dim:
        """A dim from ``name`` (its size is the symbol of that name) or ``name=size``. CleaveError with a caret."""
        return _parse_dim(text)

    def __str__(self) -> str:
        size = str(self.size)
        return self.name if size == self.name else f"{self.name}={size}"


@lru_cache(maxsize=1 << 12)
def _parse_dim(text: str) -> Dim:
    match = _DIM.match(text)
    if match is None:
        raise syntax_error(
            text, len(text) - len(text.lstrip()), "expected the name of a dimension (A-Z, a-z, _, then digits too)"
        )
    name, equals = match.groups()
    if equals:
        # Padding keeps the columns of errors right: they count in the whole text.
        return Dim(name, parse(" " * match.end() + text[match.end() :]))
    if match.end() != len(text):
        raise syntax_error(text, match.end(), f"expected '=' and a size, or nothing, after the name {name!r}")
    return Dim(name, sym(name))


__all__ = [
    "NO_FACTS",
    "Answer",
    "Dim",
    "Facts",
    "Size",
    "SizeLike",
    "as_size",
    "ceildiv",
    "const",
    "floordiv",
    "maximum",
    "minimum",
    "mod",
    "parse",
    "sym",
    "syntax_error",
]
