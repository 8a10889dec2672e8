"""One reduction over the tiles in hand: masks where elements do not exist, then the reduction itself."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import TensorType
from cleave.errors import CleaveError
from cleave.schedule.monoid import accumulator_of, neutral_element
from cleave.schedule.padding import outside
from cleave.schedule.scope import Scope, Tiles, home_of, masked, tile_type_of
from cleave.schedule.tile_program import Ref


class PartialReductions:
    """Reductions of the values of one kernel."""

    def __init__(self, tiles: Tiles) -> None:
        self.tiles = tiles

    def partial(self, value: Value, scope: Scope) -> Ref:
        """The reduction over what is in hand, in the accumulator's type."""
        over = value.attrs["over"]
        operands = [self._padded(operand, value, scope) for operand in value.operands]
        present = [name for name in over if any(name in operand.names for operand in operands)]
        missing = [name for name in over if name not in present and scope.required_span(name).extent > 1]
        dtype = accumulator_of(value)
        if value.op == "contract" and present:
            tile = scope.builder.compute(
                "contract",
                *operands,
                over=tuple(present),
                dtype=dtype,
                order=self._order(value, operands, present, scope),
                location=value.location,
            )
        elif value.op == "contract":
            tile = scope.builder.compute("mul", *(scope.builder.cast(operand, dtype) for operand in operands))
        else:
            tile = scope.builder.cast(operands[0], dtype)
            if present:
                tile = scope.builder.compute(
                    "reduce",
                    tile,
                    kind=value.attrs["kind"],
                    over=tuple(present),
                    order=self._order(value, operands, present, scope),
                    location=value.location,
                )
        return self._repeated(tile, value, missing, scope)

    def elements(self, value: Value, scope: Scope) -> Ref:
        """The elements of a sum that are in hand, in the accumulator's type: 0 where there are none."""
        (operand,) = value.operands
        return scope.builder.cast(self._padded(operand, value, scope), accumulator_of(value))

    def _order(self, value: Value, operands: Sequence[Ref], over: Sequence[str], scope: Scope) -> list[str]:
        names = {name for operand in operands for name in operand.names} - set(over)
        return [name for name in tile_type_of(value, scope).names if name in names]

    def _repeated(self, tile: Ref, value: Value, missing: Sequence[str], scope: Scope) -> Ref:
        """A sum over a dim that the summand does not have is a product with the number of elements in hand."""
        kind = value.attrs.get("kind", "sum")
        for name in missing:
            if kind in ("max", "min"):
                continue
            if kind == "prod":
                raise CleaveError(
                    f"a product over '{name}', which the operand does not have, cannot be scheduled yet", value.location
                )
            tile = scope.builder.compute("mul", tile, scope.builder.cast(self._count(name, scope), tile.tile.dtype))
        return tile

    def _count(self, name: str, scope: Scope) -> Ref:
        span, builder = scope.required_span(name), scope.builder
        rest = builder.arith("subi", span.bound, span.offset)
        return builder.add("splat", [builder.arith("minui", rest, builder.index(span.extent))], TensorType((), "i64"))

    def _padded(self, operand: Value, reduction: Value, scope: Scope) -> Ref:
        """The operand's tile, with the neutral element where it does not exist along the reduced dims."""
        if operand.dtype == "tf32":  # a type that only contractions have: pad what is cast to it
            (source,) = operand.operands
            tile = self._padded(source, reduction, scope)
            return home_of(source, scope, self.tiles.region).builder.cast(tile, "tf32")  # once, where the tile is
        tile = self.tiles.value(operand, scope)
        kind = reduction.attrs.get("kind", "sum")
        neutral = neutral_element(kind, operand.dtype)
        for name in reduction.attrs["over"]:
            span = scope.required_span(name)
            if span.exact or name not in tile.names or outside(operand, name, self.tiles.region, scope.pad) == neutral:
                continue
            home = home_of(operand, scope, self.tiles.region)
            tile = masked(tile, name, neutral, home)  # where the tile is: other loops in there use it too
            home.tiles[operand] = tile
            home.pads[operand, name] = neutral
        return tile
