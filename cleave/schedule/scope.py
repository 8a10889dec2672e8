"""Where tiles live while a kernel is built: the kernel's body and its loops, and the dims that each has in hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from cleave.dialects.graph import Value
from cleave.schedule.tile_program import Ref, TileBuilder


@dataclass(frozen=True)
class Span:
    """The part of a dim in hand: ``extent`` elements from ``offset``; at ``bound`` and past, none exist."""

    offset: Ref
    extent: int
    bound: Ref
    exact: bool


@dataclass
class Scope:
    """The kernel's body or a loop's: the dims it makes available and the tiles computed in it."""

    builder: TileBuilder
    parent: Scope | None
    spans: dict[str, Span]
    tiles: dict[Value, Ref] = field(default_factory=dict)
    running: frozenset[Value] = frozenset()
    guarded: set[Value] = field(default_factory=set)
    pads: dict[tuple[Value, str], float] = field(default_factory=dict)

    def pad(self, value: Value, name: str) -> float | None:
        """What fills the tile of ``value`` where it does not exist along a dim; NaN: unknown; None: no such tile."""
        scope: Scope | None = self
        while scope:
            if value in scope.tiles:
                return scope.pads.get((value, name))
            scope = scope.parent
        return None

    def span(self, name: str) -> Span | None:
        scope: Scope | None = self
        while scope:
            if name in scope.spans:
                return scope.spans[name]
            scope = scope.parent
        return None

    def required_span(self, name: str) -> Span:
        span = self.span(name)
        assert span is not None, f"dim {name} is not in scope"
        return span
