"""What is chosen for a kernel beside what it computes: tile extents, and which loops may be shared."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cleave.dialects.graph import Value


@dataclass(frozen=True)
class Tiling:
    """Tile extents: of the output dims (1: one element for each block), and of the reduced dims.

    ``resident`` dims are covered by one tile, without a loop. ``columns`` come last in every tile: where they are the
    few of two sides of a contraction, its rows, of which tensor cores want 64, are the other side. ``deferred``: loops
    keep a sum for each element of a tile, which are added up after the loop. ``group``: see ``Order``. ``walked``:
    output dims that each block goes through in a loop, tile by tile, once its reductions are complete. ``coarsened``:
    output dims of which each block goes through so many tiles in a loop. ``longest_first``: see ``balance.py``.
    """

    grid: Mapping[str, int]
    reduced: Mapping[str, int]
    resident: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()
    deferred: bool = False
    group: int = 1
    walked: frozenset[str] = frozenset()
    coarsened: Mapping[str, int] = field(default_factory=dict[str, int])
    longest_first: bool = False

    @property
    def form(self) -> str:
        """What is chosen beside extents, as tables show it: ``columns g+m deferred``, or nothing."""
        columns = [f"columns {'+'.join(sorted(self.columns))}"] if self.columns else []
        walked = [f"walks {' '.join(sorted(self.walked))}"] if self.walked else []
        coarsened = [f"{count} tiles of {name}" for name, count in self.coarsened.items()]
        return " ".join([*columns, *walked, *coarsened, *(["deferred"] if self.deferred else [])])

    @cached_property
    def tiles(self) -> Mapping[str, int]:
        """The extents of all dims."""
        return {**self.grid, **self.reduced}

    @cached_property
    def key(self) -> Hashable:
        """What tilings that are the same have in common."""
        grid, reduced = tuple(self.grid.items()), tuple(self.reduced.items())
        form = self.columns, self.deferred, self.group, self.walked, tuple(self.coarsened.items()), self.longest_first
        return grid, reduced, self.resident, *form

    def of_block(self, name: str) -> int:
        """The elements of a dim on the grid that a block has in all."""
        return self.grid[name] * self.coarsened.get(name, 1)

    def on_grid(self, parallel: Iterable[str]) -> tuple[str, ...]:
        """The output dims whose tiles are shared out among thread blocks."""
        return tuple(name for name in parallel if name not in self.walked and name not in self.resident)

    def looped(self, reduction: Value) -> tuple[str, ...]:
        """The dims that a reduction loops over, outermost first."""
        return tuple(name for name in reduction.attrs["over"] if name not in self.resident)


@dataclass(frozen=True)
class Fusion:
    """``horizontal`` puts reductions that share work into one loop (off: an ablation); ``estimates`` also those whose
    bodies are computed with estimates of others' results. ``anchors``: exponentials may be taken from anchors."""

    horizontal: bool = True
    estimates: bool = True
    anchors: bool = True
