"""Where tiles live while a kernel is built: the kernel's body and its loops, and the dims that each has in hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import TensorType
from cleave.schedule.anchors import Anchored
from cleave.schedule.region import Region
from cleave.schedule.tile_order import TileOrder
from cleave.schedule.tile_program import Ref, TileBuilder, tile_type


@dataclass(frozen=True)
class Span:
    """The part of a dim in hand: ``extent`` elements from ``offset``; at ``bound`` and past, none exist."""

    offset: Ref
    extent: int
    bound: Ref
    exact: bool


@dataclass(eq=False)
class Scope:
    """The kernel's body or a loop's: the dims it makes available and the tiles computed in it.

    ``order``, of the kernel's body: that of the dims of every tile.
    ``notes``: tiles that are no graph value's, by what they are.
    ``outcomes``: comparisons that come out alike throughout the tiles of this scope.
    ``anchored``: exponentials that are taken from anchors, of the body of a loop.
    """

    builder: TileBuilder
    parent: Scope | None
    spans: dict[str, Span]
    tiles: dict[Value, Ref] = field(default_factory=dict)
    running: frozenset[Value] = frozenset()
    guarded: set[Value] = field(default_factory=set)
    pads: dict[tuple[Value, str], float] = field(default_factory=dict)
    order: TileOrder = field(default_factory=TileOrder)
    notes: dict[tuple[object, ...], Ref] = field(default_factory=dict[tuple[object, ...], Ref])
    outcomes: Mapping[Value, bool] = field(default_factory=dict[Value, bool])
    anchored: Mapping[Value, Anchored] = field(default_factory=dict[Value, Anchored])

    @property
    def root(self) -> Scope:
        return self.parent.root if self.parent else self

    def outward(self) -> Iterator[Scope]:
        """This one and those around it, the kernel's body last."""
        scope: Scope | None = self
        while scope:
            yield scope
            scope = scope.parent

    def outcome(self, value: Value) -> bool | None:
        """What a value of type i1 is throughout the tile in hand, if that is known."""
        for scope in self.outward():
            if value in scope.outcomes:
                return scope.outcomes[value]
        if value.dtype != "i1" or value.op not in ("mul", "min", "max"):
            return None
        found, strong = {self.outcome(operand) for operand in value.operands}, value.op == "max"
        return strong if strong in found else None if None in found else not strong

    def pad(self, value: Value, name: str) -> float | None:
        """What fills the tile of ``value`` where it does not exist along a dim; NaN: unknown; None: no such tile."""
        for scope in self.outward():
            if value in scope.tiles:
                return scope.pads.get((value, name))
        return None

    def span(self, name: str) -> Span | None:
        for scope in self.outward():
            if name in scope.spans:
                return scope.spans[name]
        return None

    def required_span(self, name: str) -> Span:
        span = self.span(name)
        assert span is not None, f"dim {name} is not in scope"
        return span


class Tiles(Protocol):
    """Who computes the tiles of a kernel, on demand."""

    @property
    def region(self) -> Region: ...

    def value(self, value: Value, scope: Scope) -> Ref:
        """The tile of ``value``, computed in its home scope if it has not been."""
        ...


def home_of(value: Value, scope: Scope, region: Region) -> Scope:
    """The outermost scope that has all dims of ``value``, and all running values that it depends on."""
    while scope.parent and not _needs(value, scope, region):
        scope = scope.parent
    return scope


def _needs(value: Value, scope: Scope, region: Region) -> bool:
    return (
        value in scope.tiles
        or any(n in scope.spans for n in value.names)
        or (bool(scope.running) and region.depends(value, scope.running))
    )


def tile_type_of(value: Value, scope: Scope, dtype: str | None = None) -> TensorType:
    """The type of the value's tile: dims of which one element is in hand are left out."""
    names = scope.root.order.of(value.names)
    spans = [(name, scope.required_span(name).extent) for name in names]
    return tile_type([(name, extent) for name, extent in spans if extent > 1], dtype or value.dtype)


def position(name: str, scope: Scope) -> Ref:
    """The global index along a dim, i64."""
    span, builder = scope.required_span(name), scope.builder
    offset = builder.add("splat", [span.offset], TensorType((), "i64"))
    if span.extent == 1:
        return offset
    within = builder.add("index", (), tile_type([(name, span.extent)], "i64"), dim=f"{name}={span.extent}")
    return within if builder.constant_of(span.offset) == 0 else builder.compute("add", within, offset)


def masked(tile: Ref, name: str, fill: float, scope: Scope) -> Ref:
    """The tile with ``fill`` where it does not exist along a dim."""
    builder = scope.builder
    bound = builder.add("splat", [scope.required_span(name).bound], TensorType((), "i64"))
    inside = builder.compute("cmp", position(name, scope), bound, predicate="lt")
    outside = builder.fill(fill, tile_type([], tile.tile.dtype))
    return builder.compute("select", inside, tile, outside, order=tile.names)
