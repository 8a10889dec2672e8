"""``--layouts`` of ``cleave-opt``: how the arguments of a packed function may lie in memory beside row-major."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleave.errors import CleaveError, Position

if TYPE_CHECKING:
    from cleave.runtime.pitched import Layouts, Parts

Around = tuple[str, "Parts"]
"""A module for the row-major tensors around arguments, and these."""
_ENTRY = re.compile(r"\s*(?P<name>\w+)\s*:\s*(?P<dims>[^,:]*[^,:\s])\s*")
_NOTE = "arguments by name, their dims as they lie in memory behind them: 'in0: m k+, in1: n k'"


@dataclass(frozen=True)
class Lying:
    """One argument: its dims as they lie, the outermost first, with a ``+`` where more lies along one than it has."""

    name: str
    dims: str
    position: Position


def parse_layouts(text: str, file: str) -> tuple[Lying, ...]:
    """``in0: m k+, in1: n k``. CleaveError at the column of ``file`` where that is not what stands there."""
    found = tuple(_entries(text, file))
    for number, lying in enumerate(found):
        if lying.name in [other.name for other in found[:number]]:
            raise CleaveError(f"'{lying.name}' is given twice", lying.position, (_NOTE,))
    return found


def _entries(text: str, file: str) -> Iterator[Lying]:
    start = 0
    for part in text.split(","):
        position = Position(file, 1, start + len(part) - len(part.lstrip()) + 1)
        match = _ENTRY.fullmatch(part)
        if match is None:
            raise CleaveError(f"'{part.strip()}' is no layout of an argument", position, (_NOTE,))
        yield Lying(match["name"], match["dims"], position)
        start += len(part) + 1


def wider(source: str, function: str, lying: tuple[Lying, ...]) -> Around:
    """The module of the function for the row-major tensors around arguments that lie so, and these.

    ``source``: a module with the function on tensors. CleaveError, located, for arguments that it has not, dims that
    they have not, and where a result would have no memory.
    """
    from cleave.lowering.pitches import with_pitches
    from cleave.lowering.run_functions import entry, signature
    from cleave.lowering.source import parsed
    from cleave.passes import pipelines, registry
    from cleave.runtime.pitched import Parts, layouts_of

    ctx, module = parsed(source)
    with ctx:
        pipelines.run([registry.create("cleave-import-linalg")], module)
        arguments = tuple(signature(entry(module, function))[0])
    layouts: Layouts = ()
    for each in lying:
        try:
            layouts += layouts_of({each.name: each.dims}, arguments, function)
        except CleaveError as error:
            raise error.at(each.position) from None
    layouts = tuple(sorted(layouts))
    text = with_pitches(source, function, layouts)
    if text is None:
        names = ", ".join(each.name for each in lying)
        raise CleaveError(f"a result of {function} is one of {names}, which is row-major then", lying[0].position)
    return text, Parts(arguments, layouts)
