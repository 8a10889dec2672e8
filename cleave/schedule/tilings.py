"""The tilings worth trying for a region."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from cleave.dialects.graph import Value
from cleave.schedule.region import Region
from cleave.schedule.tiling import Tiling

MINIMUM = 16
"""Smallest tile of a dim that a contraction sums over or keeps; what a tile does not fill is masked."""
MAX_RESIDENT = 256
MAX_TILE = 16384
"""Elements of the largest tile a block holds in registers: 128 by 128."""
ROW_TILES = (256, 1024)


def next_power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def tilings(region: Region, sizes: Mapping[str, int]) -> Iterator[Tiling]:
    """Tilings by the extents of ``sizes`` (of dim names), best guesses first; never none."""
    grid_choices = _grid_choices(region, sizes)
    reduced = tuple(dict.fromkeys(name for value in region.reductions for name in value.attrs["over"]))
    reduced_choices = [_reduced_choices(region, name, sizes) for name in reduced]
    found = list(_fitting(region, grid_choices, reduced, reduced_choices))
    if not found:
        looped = [[*choices, (1, False)] for choices in reduced_choices]
        found = list(_fitting(region, {name: [*tiles, 1] for name, tiles in grid_choices.items()}, reduced, looped))
    yield from found


def _fitting(
    region: Region,
    grid_choices: Mapping[str, Sequence[int]],
    reduced: Sequence[str],
    reduced_choices: Sequence[Sequence[tuple[int, bool]]],
) -> Iterator[Tiling]:
    for tiles in itertools.product(*grid_choices.values()):
        grid = dict(zip(grid_choices, tiles, strict=True))
        for chunks in itertools.product(*reduced_choices):
            extents = {name: extent for name, (extent, _) in zip(reduced, chunks, strict=True)}
            resident = frozenset(name for name, (_, whole) in zip(reduced, chunks, strict=True) if whole)
            if not _small_enough(region, {**grid, **extents}):
                continue
            yield Tiling(grid, extents, resident)


def _grid_choices(region: Region, sizes: Mapping[str, int]) -> dict[str, Sequence[int]]:
    tiled = _contracted_dims(region, sizes)
    if not tiled:
        return _row_choices(region, sizes)
    one = [1] if len(tiled) > 2 else []
    return {name: [*_powers(sizes[name], 128), *one] if name in tiled else (1,) for name in region.parallel}


def _powers(extent: int, largest: int) -> list[int]:
    top = max(MINIMUM, next_power(extent))
    powers = [power for power in (128, 64, 32, 16) if power <= min(top, largest)]
    return [top, *powers] if largest < top <= MAX_RESIDENT else powers


def _contracted_dims(region: Region, sizes: Mapping[str, int]) -> set[str]:
    """The output dims to tile: of each contraction the largest one that only its left or only its right operand has."""
    found: set[str] = set()
    for value in region.reductions:
        if value.op == "contract":
            left, right = (set(operand.names) for operand in value.operands)
            for side in (left - right, right - left):
                candidates = [name for name in region.parallel if name in side - _outer_parts(region)]
                found |= {max(candidates, key=lambda name: sizes[name])} if candidates else set()
    return found


def _outer_parts(region: Region) -> set[str]:
    """The outer dims of splits: a block or an iteration takes one part."""
    return {outer for outer, _ in region.parts.values()}


def _row_choices(region: Region, sizes: Mapping[str, int]) -> dict[str, Sequence[int]]:
    """Without contractions: tile the dim that varies fastest in memory, or rows where that one is reduced."""
    fastest = {value.names[-1] for value in (*region.reads, *region.outputs) if value.names}
    inner = [name for name in region.parallel if name not in _outer_parts(region)]
    tiled = [name for name in inner if name in fastest] or inner[-1:]
    choices: dict[str, Sequence[int]] = dict.fromkeys(region.parallel, (1,))
    for name in tiled[:2]:
        limits = ROW_TILES if len(tiled) == 1 and not region.reductions else (64, 16)
        choices[name] = tuple(dict.fromkeys(min(limit, next_power(sizes[name])) for limit in limits))
    return choices


def _reduced_choices(region: Region, name: str, sizes: Mapping[str, int]) -> list[tuple[int, bool]]:
    """(tile extent, resident) for a reduced dim."""
    if name in _outer_parts(region):
        return [(1, False)]
    whole = max(MINIMUM, next_power(sizes[name]))
    inside = any(name in value.attrs["over"] and _is_nested(value, region) for value in region.reductions)
    static = name in region.static_dims and name not in region.parts
    if static and whole <= (MAX_RESIDENT if inside else 2 * MINIMUM):
        return [(whole, True)]
    together = any(name in value.attrs["over"] and len(value.attrs["over"]) > 1 for value in region.reductions)
    one = [(1, False)] if together else []
    if inside:
        return [(64, False), (32, False), *one]
    widest = 1024 if all(value.op == "reduce" for value in region.reductions) else 128
    return [*((chunk, False) for chunk in (32, 64, 128, 1024) if chunk <= min(max(whole, 32), widest)), *one]


def _is_nested(value: Value, region: Region) -> bool:
    """Whether the reduction keeps a dim that is not an output's, so that it happens inside another one's loop."""
    return not set(value.names) <= set(region.parallel)


def _small_enough(region: Region, tiles: Mapping[str, int]) -> bool:
    def elements(names: Sequence[str]) -> int:
        count = 1
        for name in names:
            count *= tiles.get(name, 1)
        return count

    computed = (value.names for value in region.values if value not in region.memory)
    return all(elements(names) <= MAX_TILE for names in computed) and all(
        elements(value.names) <= 2 * MAX_TILE for value in region.memory
    )
