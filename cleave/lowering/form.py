"""The choices that a warp-specialised kernel leaves open, each a switch, so that what it is worth can be measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Form:
    """``persistent``: no more blocks than run at once; each goes through several tiles, and its copies run ahead.

    ``in_registers``: left operands that stay the same in a loop are there in registers, where these suffice.
    ``stored_by_copies``: results go through shared memory, from where copies take them while the next tile begins.
    ``in_turn``: two consumers take turns at the tensor cores in loops that compute much between their products.
    """

    persistent: bool = True
    in_registers: bool = True
    in_turn: bool = True
    stored_by_copies: bool = True

    @property
    def label(self) -> str:
        """What is switched off of the usual form; "" for that."""
        off = [field.name.replace("_", " ") for field in fields(self) if not getattr(self, field.name)]
        return "".join(f", not {name}" for name in off)


def ablations() -> Iterator[Form]:
    """The usual form, then this without each of its parts."""
    usual = Form()
    yield usual
    for field in fields(usual):
        yield replace(usual, **{field.name: False})
