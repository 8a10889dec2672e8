"""Accumulators kept at one set of centres, moved to another: Taylor's formula for polynomials, ratios for factors."""

from __future__ import annotations

from collections.abc import Mapping

from cleave.dialects.graph import Value
from cleave.schedule.derivatives import Order, State
from cleave.schedule.tile_program import Ref, TileBuilder, tile_type


class Moved:
    """The accumulators of a state, kept at centres ``old``, at ``new`` ones."""

    def __init__(self, state: State, builder: TileBuilder, old: Mapping[Value, Ref], new: Mapping[Value, Ref]) -> None:
        self.state, self.builder, self.old, self.new = state, builder, old, new
        self.zero: Order = tuple(0 for _ in state.shifts)

    def all(self, sums: Mapping[Value, Ref]) -> dict[Value, Ref]:
        """Every reduction of the state."""
        risen = self._derivatives(sums)
        found = {value: risen[order] for order, value in self.state.derivatives.items()}
        return {self.state.reduction: self._main(sums, risen), **found}

    def main(self, sums: Mapping[Value, Ref]) -> Ref:
        """The reduction itself."""
        return self._main(sums, self._derivatives(sums))

    def _main(self, sums: Mapping[Value, Ref], risen: Mapping[Order, Ref]) -> Ref:
        main, powers = sums[self.state.reduction], self.state.form.powers
        if self.zero in risen:
            rise = risen[self.zero]  # of the sum without its factors, as the derivatives are
            for a, power in powers.items():
                rise = self._raised(rise, self.old[a], power)
            main = self.builder.compute("add", main, rise, order=main.names)
        for a, power in powers.items():
            main = self._raised(main, self.builder.compute("div", self.new[a], self.old[a]), power)
        return main

    def _raised(self, tile: Ref, a: Ref, power: int) -> Ref:
        """tile·aᵏ."""
        for _ in range(abs(power)):
            tile = times(self.builder, tile, a, "mul" if power > 0 else "div")
        return tile

    def _derivatives(self, sums: Mapping[Value, Ref]) -> dict[Order, Ref]:
        """All orders by Taylor's formula, one centre after another; of order zero, what is to be added to the sum."""
        known = {order: sums[value] for order, value in self.state.derivatives.items()}
        for index, q in enumerate(self.state.shifts):
            by = self.builder.compute("sub", self.new[q], self.old[q])
            rises = {order: self._rise(order, index, by, known) for order in (self.zero, *known)}
            known |= {order: self._plus(known.get(order), rise) for order, rise in rises.items() if rise}
        return known

    def _rise(self, order: Order, index: int, by: Ref, known: Mapping[Order, Ref]) -> Ref | None:
        """Σ byⁱ/i! · Fⁱ over i ≥ 1, by Horner's rule (a power of ``by`` could overflow where Fⁱ is zero)."""
        degree, total = self.state.form.degrees[self.state.shifts[index]], None
        for i in range(degree - order[index], 0, -1):
            higher = known.get((*order[:index], order[index] + i, *order[index + 1 :]))
            total = self._plus(higher, total) if higher else total
            total = self._scaled(total, by, i) if total else None
        return total

    def _scaled(self, tile: Ref, by: Ref, i: int) -> Ref:
        tile, builder = times(self.builder, tile, by), self.builder
        return tile if i == 1 else times(builder, tile, builder.fill(float(i), tile_type([], tile.tile.dtype)), "div")

    def _plus(self, a: Ref | None, b: Ref | None) -> Ref:
        if a is None or b is None:
            found = a or b
            assert found is not None
            return found
        return self.builder.compute("add", a, b)


def times(builder: TileBuilder, tile: Ref, factor: Ref, op: str = "mul") -> Ref:
    """``tile`` times (or by) ``factor``, in the type and the order of ``tile``, other dims after its own."""
    factor = builder.cast(factor, tile.tile.dtype)
    order = (*tile.names, *(name for name in factor.names if name not in tile.names))
    return builder.compute(op, tile, factor, order=order)
