"""Which values are written to memory: the cuts between kernels, chosen by predicted time.

The inputs of a graph may be computed values here, which other kernels write: those of a section are (``sections``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from cleave.dialects.dims import Dim
from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import REDUCTIONS, VIEWS
from cleave.schedule.rename import is_in_memory, topological, viewed

MAX_CANDIDATES = 6
MAX_CHOSEN = 2


def cuts(graph: Graph) -> list[frozenset[Value]]:
    """The sets of values to materialise beside the outputs, small sets first; the empty one is full fusion.

    A graph with splits is always cut between its parts and their combination: parts that one thread block takes in turn
    are a loop in disguise.
    """
    parts, candidates = _partial_results(graph), _candidates(graph)
    found: dict[frozenset[Value], None] = {}
    for count in range(MAX_CHOSEN + 1):
        for chosen in itertools.combinations(candidates, count):
            found[parts | frozenset(chosen)] = None
    return list(found)


def _partial_results(graph: Graph) -> frozenset[Value]:
    """The results of reductions inside the parts of a split, to be combined; and combinations of which parts are
    computed again, as deviations from a mean are, for blocks of one part cannot combine all of them."""
    splits = [value.attrs["into"] for value in topological(graph.outputs, frozenset()) if value.op == "split"]
    counts, inner = ({Dim.parse(into[axis]).name for into in splits} for axis in (0, 1))
    reductions = [value for value in _computed(graph) if value.op in REDUCTIONS]
    parts = [value for value in reductions if inner & set(value.attrs["over"])]
    upstream = _upstream(graph)
    combined = (value for value in reductions if counts & set(value.attrs["over"]))
    again = (value for value in combined if any(value in upstream[part] for part in parts))
    return frozenset([*parts, *again])


def _candidates(graph: Graph) -> list[Value]:
    """Values that depend on a reduction and are an operand of another one, or a reduction's result used elsewhere.

    At most ``MAX_CANDIDATES``: those whose recomputation would repeat the longest chains of reductions.
    """
    memory, computed = frozenset(graph.inputs), _computed(graph)
    depth = dict.fromkeys(graph.inputs, 0)
    for value in computed:
        depth[value] = max((depth[operand] for operand in value.operands), default=0) + (value.op in REDUCTIONS)
    found: dict[Value, None] = {}
    for value in computed:
        for operand in value.operands:
            under_view = value.op in VIEWS and not is_in_memory(operand, memory)
            interesting = depth[operand] and (value.op in REDUCTIONS or operand.op in REDUCTIONS)
            if (under_view or interesting) and operand not in graph.outputs and operand.dtype != "tf32":
                found[operand] = None
    return sorted(found, key=lambda value: -depth[value])[:MAX_CANDIDATES]


def kernels_of(graph: Graph, cut: frozenset[Value], *, wide: bool = False) -> list[tuple[Value, ...]]:
    """What each kernel writes, in an order in which every kernel comes after those that it reads from.

    Values of the same dims that share something and do not need one another go into one kernel. ``wide``: values whose
    dims are some of another's do too. What no other kernel reads is not written.
    """
    upstream, stored = _upstream(graph), _stored(graph, cut)
    memory = {*stored, *graph.inputs}
    groups: list[list[Value]] = []
    for value in stored:
        group = next((g for g in groups if _together(value, g, groups, upstream, wide)), None)
        if group:
            group.append(value)
        else:
            groups.append([value])
    needed = {viewed(value) for value in graph.outputs}.union(*(_read(group, memory) for group in groups))
    written = (tuple(value for value in group if value in needed) for group in groups)
    return [group for group in written if group]


def _read(group: Sequence[Value], stored: set[Value]) -> set[Value]:
    """Of the values ``stored``, those that a kernel for ``group`` reads."""
    pending, seen = [operand for value in group for operand in value.operands], set[Value]()
    while pending:
        value = pending.pop()
        if value not in seen and value not in group:
            seen.add(value)
            pending += value.operands if value not in stored else ()
    return seen.intersection(stored)


def one_kernel_each(graph: Graph) -> tuple[tuple[Value, ...], ...]:
    """A kernel for each reduction and each output: no fusion of reductions."""
    reductions = frozenset(value for value in _computed(graph) if value.op in REDUCTIONS)
    return tuple((value,) for value in _stored(graph, reductions))


def _stored(graph: Graph, cut: frozenset[Value]) -> list[Value]:
    """What kernels write, operands first: the values of ``cut``, and the outputs or what they are views of."""
    wanted, memory = cut | {viewed(value) for value in graph.outputs}, frozenset(graph.inputs)
    return [value for value in graph.topological() if value in wanted and not is_in_memory(value, memory)]


def _computed(graph: Graph) -> list[Value]:
    """All but the graph's inputs, operands first."""
    return topological(graph.outputs, frozenset(graph.inputs))


def _upstream(graph: Graph) -> dict[Value, frozenset[Value]]:
    found: dict[Value, frozenset[Value]] = dict.fromkeys(graph.inputs, frozenset())
    for value in _computed(graph):
        found[value] = frozenset(value.operands).union(*(found[operand] for operand in value.operands))
    return found


def _together(
    value: Value, group: list[Value], groups: list[list[Value]], upstream: dict[Value, frozenset[Value]], wide: bool
) -> bool:
    """Whether ``value`` may join ``group``: it must not need anything stored after it, nor (if not wide) by it.

    Nor may it gather what other thread blocks write: reduce a dim of one of the group's values.
    """
    later = {member for g in groups[groups.index(group) + wide :] for member in g}
    shared = upstream[value] & frozenset[Value]().union(*(upstream[member] for member in group))
    sizes = {dim.name: dim.size for member in group for dim in member.dims}
    agree = all(sizes.get(dim.name, dim.size) is dim.size for dim in value.dims)
    gathers = any(member in upstream[value] and not set(member.names) <= set(value.names) for member in group)
    if upstream[value] & later or gathers or not shared or not agree:
        return False
    if set(value.names) == set(sizes):
        return True
    nested = set(value.names) <= set(sizes) or set(sizes) <= set(value.names)
    return wide and nested
