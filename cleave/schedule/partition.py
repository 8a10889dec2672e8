"""Which values are written to memory: the cuts between kernels, chosen by predicted time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import REDUCTIONS
from cleave.schedule.rename import VIEWS, is_memory_view

MAX_CUTS = 6


def cuts(graph: Graph) -> Iterator[frozenset[Value]]:
    """The sets of values to materialise beside the outputs, small sets first; the empty one is full fusion."""
    candidates = _candidates(graph)
    for count in range(len(candidates) + 1):
        for chosen in itertools.combinations(candidates, count):
            yield frozenset(chosen)


def _candidates(graph: Graph) -> list[Value]:
    """Values that depend on a reduction and are an operand of another one, or a reduction's result used elsewhere.

    At most ``MAX_CUTS``: those whose recomputation would repeat the most reductions.
    """
    depth: dict[Value, int] = {}
    for value in graph.topological():
        depth[value] = max((depth[operand] for operand in value.operands), default=0) + (value.op in REDUCTIONS)
    found: dict[Value, None] = {}
    for value in graph.topological():
        for operand in value.operands:
            interesting = value.op in REDUCTIONS or operand.op in REDUCTIONS or value.op in VIEWS
            if depth[operand] and interesting and operand not in graph.outputs:
                found[operand] = None
    ranked = sorted(found, key=lambda value: -depth[value])
    return ranked[:MAX_CUTS]


def kernels_of(graph: Graph, cut: frozenset[Value]) -> list[tuple[Value, ...]]:
    """What each kernel writes, in an order in which every kernel comes after those that it reads from.

    Outputs of the same dims that share something and do not need one another go into one kernel.
    """
    stored = [value for value in graph.topological() if (value in cut or value in graph.outputs) and value.op != "input"]
    stored = [value for value in stored if not is_memory_view(value)]
    upstream = _upstream(graph)
    groups: list[list[Value]] = []
    for value in stored:
        group = next((g for g in groups if _together(value, g, groups, upstream)), None)
        if group:
            group.append(value)
        else:
            groups.append([value])
    return [tuple(group) for group in groups]


def _upstream(graph: Graph) -> dict[Value, frozenset[Value]]:
    found: dict[Value, frozenset[Value]] = {}
    for value in graph.topological():
        found[value] = frozenset(value.operands).union(*(found[operand] for operand in value.operands))
    return found


def _together(value: Value, group: list[Value], groups: list[list[Value]], upstream: dict[Value, frozenset[Value]]) -> bool:
    """Whether ``value`` may join ``group``: it must not need anything stored by the group or after it.

    It has the group's dims, or some of them and no reductions that the group does not do anyway.
    """
    later = [member for g in groups[groups.index(group) :] for member in g]
    if upstream[value] & set(later) or not any(upstream[value] & upstream[member] for member in group):
        return False
    sizes = {dim.name: dim.size for member in group for dim in member.dims}
    if any(sizes.get(dim.name) is not dim.size for dim in value.dims):
        return False
    done = frozenset(group).union(*(upstream[member] for member in group))
    return set(value.names) == set(group[0].names) or all(
        other in done for other in (value, *upstream[value]) if other.op in REDUCTIONS
    )
