"""The tilings worth trying for a region."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cleave.dialects.graph import Value
from cleave.schedule.coarsening import COUNTS, coarsenable
from cleave.schedule.region import Region
from cleave.schedule.tiling import Tiling
from cleave.schedule.warps import WGMMA_ROWS

MINIMUM = 16
"""Smallest tile of a dim that a contraction sums over or keeps; what a tile does not fill is masked."""
MAX_RESIDENT = 512
MAX_TILE = 32768
"""Elements of the largest tile a block holds in registers: 64 by 512; of the largest in shared memory."""
MANY, WIDE = 1024, 256
"""Elements of an output dim from which its tiles may be so wide."""
ELEMENT_TILES = (256, 1024, 4096)
"""Elements of a tile where nothing is summed."""
REDUCED_ROW_TILES = (256, 64, 16, 4, 1)
ROWS_TOGETHER = (2048, 1024, 512)
"""Elements of several rows that are summed with weights."""
ROW_CHUNK = 1024
"""Elements of a longer row that a block goes through at a time: of fewer the loads in flight are too few."""
LONGEST_ROW = 16384
"""Elements of a row that a block holds in registers, to reduce it and then to write it."""
ROWS = (128, 64, 32, 16)
"""Extents of one side of a contraction, of all its dims together."""
FEW = 128
"""Rows up to which the other side of a contraction may take their place."""

Point = tuple[int, ...]
"""One choice on each axis of a space."""


@dataclass(frozen=True)
class Space:
    """Tilings by coordinates: neighbours differ by one step along one axis.

    ``sides`` and ``reduced`` have the choices of extents for some of the output dims and for each reduced dim;
    ``columns``, ``deferred`` and ``coarsened`` are as in ``Tiling``. ``rows``: output dims that are not on the grid,
    each with the reduced dims that are the same one, and have the same tiles: ``reduced`` has the first of these.
    ``held``: what must be resident where a dim is coarsened.
    """

    region: Region
    sides: tuple[tuple[Mapping[str, int], ...], ...]
    reduced: Mapping[str, tuple[tuple[int, bool], ...]]
    columns: tuple[frozenset[str], ...]
    deferred: tuple[bool, ...]
    rows: Mapping[str, tuple[str, ...]]
    coarsened: tuple[Mapping[str, int], ...] = ({},)
    held: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    @property
    def lengths(self) -> tuple[int, ...]:
        forms = self.columns, self.deferred, self.coarsened
        return tuple(len(axis) for axis in (*self.sides, *self.reduced.values(), *forms))

    @cached_property
    def points(self) -> Sequence[Point]:
        """The coordinates of all tilings that fit, best guesses first."""
        # The last three change a tile's form, not its size: all sizes of the first form come first.
        *sizes, columns, deferred, coarsened = (range(length) for length in self.lengths)
        small = [point for point in itertools.product(*sizes) if _small_enough(self.region, self._tiles(point))]
        forms = itertools.product(columns, deferred, coarsened)
        return [(*point, c, d, m) for c, d, m in forms for point in small if self._is_possible(point, c, m)]

    def _is_possible(self, sizes: Sequence[int], columns: int, coarsened: int) -> bool:
        few, whole = self.columns[columns], self._whole(sizes)
        held = all(self.held[name] <= whole for name in self.coarsened[coarsened])
        return held and (not few or _takes_their_place(few, self._tiles(sizes), self.region))

    def _whole(self, sizes: Sequence[int]) -> set[str]:
        """The dims that a block has at once."""
        chosen = zip(self.reduced.items(), sizes[len(self.sides) :], strict=True)
        whole = {name for (name, axis), choice in chosen if axis[choice][1]}
        for name, same in self.rows.items():
            whole |= {name, *same} if same[0] in whole else set()
        return whole

    def _tiles(self, sizes: Sequence[int]) -> dict[str, int]:
        """The extents of all dims."""
        tiles: dict[str, int] = {}
        for axis, choice in zip(self.sides, sizes, strict=False):
            tiles |= axis[choice]
        for (name, axis), choice in zip(self.reduced.items(), sizes[len(self.sides) :], strict=True):
            tiles[name] = axis[choice][0]
        for name, same in self.rows.items():
            tiles |= dict.fromkeys((name, *same), tiles[same[0]])
        return tiles

    def neighbours(self, point: Point) -> Iterator[Point]:
        for axis, length in enumerate(self.lengths):
            for step in (-1, 1):
                moved = point[axis] + step
                if 0 <= moved < length:
                    yield (*point[:axis], moved, *point[axis + 1 :])

    def tiling(self, point: Point) -> Tiling | None:
        """None where tiles are too large for a thread block."""
        *sizes, columns, deferred, coarsened = point
        tiles, whole = self._tiles(sizes), self._whole(sizes)
        if not _small_enough(self.region, tiles) or not self._is_possible(sizes, columns, coarsened):
            return None
        grid = {name: tiles[name] for name in self.region.parallel}
        reduced = {name: tiles[name] for name in tiles if name not in grid}
        walked = frozenset(self.rows) - whole
        form = self.columns[columns], self.deferred[deferred]
        return Tiling(grid, reduced, frozenset(whole), *form, walked=walked, coarsened=self.coarsened[coarsened])


def next_power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def space_of(region: Region, sizes: Mapping[str, int]) -> Space:
    """Tilings by the extents of ``sizes`` (of dim names); never none."""
    reduced = tuple(dict.fromkeys(name for value in region.reductions for name in value.attrs["over"]))
    rows = _rows(region)
    first, others = {same[0] for same in rows.values()}, {name for same in rows.values() for name in same[1:]}
    free = [name for name in reduced if name not in others]
    choices = {name: tuple(_reduced_choices(region, name, sizes, row=name in first)) for name in free}
    held = coarsenable(region, sizes)
    for name in frozenset[str]().union(*held.values()):
        choices[name] = tuple(dict.fromkeys((*choices[name], (max(MINIMUM, next_power(sizes[name])), True))))
    coarsened = ({}, *({name: count} for name in held for count in COUNTS))
    groups = _sides(region, sizes)
    sides = [tuple(_side_choices(group, sizes, single=len(groups) > 2)) for group in groups]
    if len(groups) == 1 and not any(_has_two_sides(value) for value in region.reductions):
        sides = [_with_rows(groups[0], sides[0], region, sizes)]
    sides += [] if groups else _row_sides(region, sizes, rows)
    tiled = {*rows, *(name for side in sides for name in side[0])}
    sides += [({name: 1},) for name in region.parallel if name not in tiled]
    few = [frozenset(group) for group in groups if math.prod(sizes[name] for name in group) <= FEW]
    moved = [columns for columns in few if any(comes_first(columns, value) for value in region.reductions)]
    deferred = (False, True) if any(_may_defer(value, region) for value in region.reductions) else (False,)
    space = Space(region, tuple(sides), choices, (frozenset(), *moved), deferred, rows, coarsened, held)
    if space.points:
        return space
    ones = [(*axis, dict.fromkeys(axis[0], 1)) for axis in sides]
    reduced_ones = {name: (*axis, (1, False)) for name, axis in choices.items()}
    return Space(region, tuple(ones), reduced_ones, space.columns, deferred, rows)


def _rows(region: Region) -> dict[str, tuple[str, ...]]:
    """Output dims that the region also reduces as a whole, under another name: softmax's, or a norm's.

    A block for each tile of such a dim would reduce all of it again. Not where there are contractions, whose operands
    are too large to go through twice.
    """
    if any(value.op != "reduce" for value in region.reductions):
        return {}
    sizes = {dim.name: dim.size for value in region.upstream for dim in value.dims}
    over = dict.fromkeys(name for value in region.reductions for name in value.attrs["over"])
    reduced = [name for name in over if name not in region.parts]
    found: dict[str, tuple[str, ...]] = {}
    for name in region.parallel:
        same = tuple(other for other in reduced if sizes[other] is sizes.get(name))
        taken = any(other in others for others in found.values() for other in same)
        if (
            same
            and not taken
            and name not in (*region.parts, *_outer_parts(region))
            and any(name not in value.names for value in region.reductions)
        ):
            found[name] = same
    return found


def _sides(region: Region, sizes: Mapping[str, int]) -> list[tuple[str, ...]]:
    """The output dims that only one operand of a contraction has, for each operand: the largest first."""
    found: list[set[str]] = []
    for value in region.reductions:
        if value.op == "contract":
            left, right = (set(operand.names) for operand in value.operands)
            for side in (left - right, right - left):
                names = side & set(region.parallel) - _outer_parts(region)
                together = [other for other in found if other & names]
                found = [other for other in found if not other & names]
                found += [names.union(*together)] if names else []
    in_order = {name: index for index, name in enumerate(region.parallel)}
    sides = (tuple(sorted(side, key=lambda name: (-sizes[name], -in_order[name]))) for side in found)
    return sorted(sides, key=lambda side: min(in_order[name] for name in side))


def _has_two_sides(value: Value) -> bool:
    """Whether it is a product of matrices, and not a weighted sum for each of the elements that both operands have."""
    if value.op != "contract":
        return False
    left, right = (set(operand.names) for operand in value.operands)
    return bool(left - right) and bool(right - left)


def _with_rows(
    group: Sequence[str], alone: Sequence[Mapping[str, int]], region: Region, sizes: Mapping[str, int]
) -> tuple[Mapping[str, int], ...]:
    """Those of one row, and several rows together: what starts a block takes as long as a weighted sum of some rows."""
    around = [name for name in reversed(region.parallel) if name not in (*group, *_outer_parts(region))]
    packed = (_packed([*group, *around], sizes, limit) for limit in ROWS_TOGETHER)
    return _distinct([*packed, *({**tiles, **dict.fromkeys(around, 1)} for tiles in alone)])


def _side_choices(group: Sequence[str], sizes: Mapping[str, int], *, single: bool) -> Iterator[Mapping[str, int]]:
    """The largest dim alone in tiles, then together with others until the rows are filled."""
    largest = group[0]
    powers = _powers(sizes[largest], 128)
    plain = [{largest: extent} for extent in powers]
    packed = [_filled(group, sizes, rows) for rows in ROWS]
    found: dict[tuple[int, ...], Mapping[str, int]] = {}
    for tiles in (*packed, *plain, *([{}] if single else [])):
        extents = {name: tiles.get(name, 1) for name in group}
        found.setdefault(tuple(extents.values()), extents)
    yield from sorted(found.values(), key=lambda tiles: -math.prod(tiles.values()))


def _filled(group: Sequence[str], sizes: Mapping[str, int], rows: int) -> dict[str, int]:
    """One side of a contraction, of ``rows`` elements at most."""
    tiles = _packed(group, sizes, rows)
    return tiles if math.prod(tiles.values()) >= MINIMUM else {group[0]: MINIMUM}


def _powers(extent: int, largest: int) -> list[int]:
    top = max(MINIMUM, next_power(extent))
    powers = [power for power in (128, 64, 32, 16) if power <= min(top, largest)]
    if extent >= MANY:
        return [WIDE, *powers]
    return [top, *powers] if largest < top <= MAX_RESIDENT else powers


def _outer_parts(region: Region) -> set[str]:
    """The outer dims of splits whose parts are in this region: a block or an iteration takes one part."""
    names = {name for value in region.upstream for name in value.names}
    return {part.outer for inner, part in region.parts.items() if inner in names}


def _row_sides(region: Region, sizes: Mapping[str, int], rows: Collection[str]) -> list[tuple[Mapping[str, int], ...]]:
    """Without contractions: tile the dim that varies fastest in memory, or rows where that one is reduced."""
    fastest = {value.names[-1] for value in (*region.reads, *region.outputs) if value.names}
    inner = [name for name in region.parallel if name not in _outer_parts(region) and name not in rows]
    tiled = [name for name in inner if name in fastest] or inner[-1:]
    if len(tiled) == 1 and not region.reductions:
        around = [name for name in reversed(inner) if name not in tiled]
        return [_distinct(_packed([*tiled, *around], sizes, limit) for limit in ELEMENT_TILES)]
    limits = REDUCED_ROW_TILES if region.reductions else (64, 16)
    limits = limits[::-1] if rows else limits
    return [_distinct({name: min(limit, next_power(sizes[name]))} for limit in limits) for name in tiled[:2]]


def _distinct(choices: Iterable[Mapping[str, int]]) -> tuple[Mapping[str, int], ...]:
    return tuple({tuple(tiles.values()): tiles for tiles in choices}.values())


def _packed(names: Sequence[str], sizes: Mapping[str, int], elements: int) -> dict[str, int]:
    """Tiles of so many elements at most: all of the first dims, then some of the next one."""
    tiles: dict[str, int] = {}
    for name in names:
        tiles[name] = min(next_power(sizes[name]), elements)
        elements //= tiles[name]
    return tiles


def _reduced_choices(region: Region, name: str, sizes: Mapping[str, int], *, row: bool) -> list[tuple[int, bool]]:
    """(tile extent, resident) for a reduced dim; ``row``: it is an output's dim too."""
    if name in _outer_parts(region):
        return [(1, False)]
    if any(name == part.outer for part in region.parts.values()):
        return [(extent, False) for extent in dict.fromkeys((next_power(sizes[name]), 1))]
    whole = max(MINIMUM, next_power(sizes[name]))
    inside = any(name in value.attrs["over"] and _is_nested(value, region) for value in region.reductions)
    static = name in region.static_dims and name not in region.parts
    if static and whole <= (MAX_RESIDENT if inside else 2 * MINIMUM):
        return [(whole, True)]
    held = [(whole, True)] if row and static and whole <= LONGEST_ROW else []
    together = any(name in value.attrs["over"] and len(value.attrs["over"]) > 1 for value in region.reductions)
    one = [(1, False)] if together else []
    if inside:
        return [(64, False), (32, False), *one]
    widest = 1024 if all(value.op == "reduce" for value in region.reductions) else 128
    narrowest = min(whole, ROW_CHUNK) if row else 0
    chunks = [(chunk, False) for chunk in (32, 64, 128, 1024) if narrowest <= chunk <= min(max(whole, 32), widest)]
    return [*held, *reversed(chunks)] if row else [*chunks, *one]


def _is_nested(value: Value, region: Region) -> bool:
    """Whether the reduction keeps a dim that is not an output's, so that it happens inside another one's loop."""
    return not set(value.names) <= set(region.parallel)


def _small_enough(region: Region, tiles: Mapping[str, int]) -> bool:
    return all(math.prod(tiles.get(name, 1) for name in names) <= MAX_TILE for names in region.widest)


def _takes_their_place(columns: frozenset[str], tiles: Mapping[str, int], region: Region) -> bool:
    """Whether a contraction has too few of these for the rows of ``wgmma``, and enough of its other side."""
    few = math.prod(tiles.get(name, 1) for name in columns)
    for value in (value for value in region.reductions if value.op == "contract"):
        one, other = ({*operand.names} & {*value.names} for operand in value.operands)
        rows = math.prod(tiles.get(name, 1) for name in (one ^ other) - columns)
        if columns & (one ^ other) and few < WGMMA_ROWS <= rows:
            return True
    return False


def comes_first(columns: frozenset[str], value: Value) -> bool:
    """Whether another dim follows one of these in the value."""
    return sorted(value.names, key=columns.__contains__) != list(value.names)


def _may_defer(value: Value, region: Region) -> bool:
    """Whether a loop may keep the elements of a sum apart: of computed values, over one dim."""
    summed = value.op == "reduce" and value.attrs["kind"] == "sum" and len(value.attrs["over"]) == 1
    return summed and value.operands[0].op != "constant"
