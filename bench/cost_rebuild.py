"""Tile programs from the descriptions of their tilings in results, so that a later cost model can predict them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from cleave.dialects.graph import Graph, Value
from cleave.errors import CleaveError
from cleave.schedule.emit import emit_kernel
from cleave.schedule.partition import cuts, kernels_of, one_kernel_each
from cleave.schedule.region import Region, region_of
from cleave.schedule.rename import in_memory_order
from cleave.schedule.tile_program import Launch, TileProgram
from cleave.schedule.tiling import Fusion, Tiling

_TILE = re.compile(r"(\w+)=(\d+)(\*?)")
_OPTIONS = re.compile(r"/ (\d+) warps, (\d+) stages")
_COLUMNS = re.compile(r" columns ([\w+]+)")

Kernels = tuple[tuple[Value, ...], ...]


@cache
def rebuilt(graph: Graph, tilings: tuple[str, ...]) -> TileProgram:
    """The program of ``graph`` whose kernels have these tilings; CleaveError if no partition has such dims."""
    graph = in_memory_order(graph)
    for kernels in _partitions(graph):
        regions = _regions(graph, kernels)
        if [_dims(region) for region in regions] == [_names(text) for text in tilings]:
            launches = [
                _launch(graph, region, text, i) for i, (region, text) in enumerate(zip(regions, tilings, strict=True))
            ]
            return TileProgram(graph, tuple(value for outputs in kernels for value in outputs), tuple(launches))
    raise CleaveError(f"no partition of {graph.name} has the tilings {tilings}")


@cache
def _partitions(graph: Graph) -> list[Kernels]:
    both = [tuple(kernels_of(graph, cut, wide=wide)) for cut in cuts(graph) for wide in (True, False)]
    return list(dict.fromkeys([*both, one_kernel_each(graph)]))


@cache
def _regions(graph: Graph, kernels: Kernels) -> list[Region]:
    boundary = frozenset(value for outputs in kernels for value in outputs)
    return [region_of(outputs, boundary, graph.extents) for outputs in kernels]


def _dims(region: Region) -> list[str]:
    reduced = (name for value in region.reductions for name in value.attrs["over"])
    return list(dict.fromkeys((*region.parallel, *reduced)))


def _names(text: str) -> list[str]:
    return [name for name, _, _ in _TILE.findall(text)]


def _launch(graph: Graph, region: Region, text: str, number: int) -> Launch:
    tiles = {name: int(extent) for name, extent, _ in _TILE.findall(text)}
    resident = frozenset(name for name, _, star in _TILE.findall(text) if star)
    columns = _COLUMNS.search(text)
    tiling = Tiling(
        {name: tiles[name] for name in region.parallel},
        {name: extent for name, extent in tiles.items() if name not in region.parallel},
        resident,
        frozenset(columns[1].split("+")) if columns else frozenset(),
        " deferred" in text,
    )
    emitted = emit_kernel(f"{graph.name}__k{number}", region, tiling, graph.extents, Fusion())
    options = _OPTIONS.search(text)
    assert options is not None
    kernel = replace(emitted.kernel, num_warps=int(options[1]), num_stages=int(options[2]))
    return Launch(kernel, emitted.operands)
