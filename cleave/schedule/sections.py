"""A long function in sections: where least has to stay in memory for later, a kernel may as well end.

Sections are runs of the ops in topological order, as short as such places are near one another: those of a network
begin and end on its residual stream. The kernels of each are chosen by themselves, so that it takes time with their
number and not with the number of ways to cut the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby
from typing import Literal

from cleave.dialects.graph import Graph, Value
from cleave.dialects.ops import REDUCTIONS, VIEWS
from cleave.schedule.rename import viewed
from cleave.schedule.structure import structure_of

Kernels = tuple[tuple[Value, ...], ...]
"""What each kernel of a program writes."""
Effort = Literal["fused", "quick", "careful"]
"""How kernels are looked for: one for all, several with few tilings, and with more."""
Choose = Callable[[Graph, Effort], Sequence[tuple[float, Kernels]]]
"""The best kernels for a graph, best first, each with the time that they take, which adds up."""

WIDTH = 20
"""Values in several sections that are weighed as one graph."""
PATIENCE = 2
"""Runs of sections that are no better than a shorter one, after which no longer ones are weighed."""


class Sections:
    """The shortest sections of a graph, by number.

    What follows from no reduction is not kept in memory: each section computes it for itself.
    """

    def __init__(self, graph: Graph, bytes_of: Callable[[Value], int]) -> None:
        self.graph, self.order = graph, graph.topological()
        self._position = {value: index for index, value in enumerate(self.order)}
        self._outputs = {viewed(value) for value in graph.outputs} - set(graph.inputs)
        self._kept = _kept(self.order)
        unstored = [(self._position[v], last) for v, last in self._kept.items() if v.dtype == "tf32"]
        ends = (n for n in _minima(self._loads(bytes_of)) if not any(made < n <= last for made, last in unstored))
        self._bounds = [0, *ends, len(self.order)]

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def graph_of(self, first: int, last: int) -> Graph:
        """The sections from ``first`` to ``last``, without that one, as a graph; its inputs are what earlier ones keep
        for it."""
        start, end = self._bounds[first], self._bounds[last]
        used = {value: uses for value, uses in self._kept.items() if uses >= start}
        inputs = tuple(value for value in used if self._position[value] < start)
        outputs = (v for v in self.order[start:end] if v in self._outputs or used.get(v, 0) >= end)
        return replace(self.graph, inputs=inputs, outputs=tuple(outputs))

    def length(self, first: int, last: int) -> int:
        """How many values these have."""
        return self._bounds[last] - self._bounds[first]

    def _loads(self, bytes_of: Callable[[Value], int]) -> list[int]:
        """The bytes that are kept behind each op for later ones."""
        changes = [0] * len(self.order)
        for value, last in self._kept.items():
            changes[self._position[value]] += bytes_of(value)
            changes[last] -= bytes_of(value)
        return list(accumulate(changes))


@dataclass(frozen=True)
class _Run:
    """Sections ``first`` to ``last``, without that one; the best kernels that were found with this effort."""

    first: int
    last: int
    effort: Effort
    seconds: float
    best: Sequence[Kernels]


def finalists_in_sections(sections: Sections, choose: Choose, progress: Callable[[str], None]) -> list[Kernels]:
    """The best kernels of all sections, and all the second best; none if there is only one section, or one that has no
    kernels by itself.

    Runs of sections are taken as one graph: those of the shortest path through all, and two of them in one kernel as
    long as that is faster. ``choose`` is asked once for each structure.
    """
    if len(sections) == 1:
        return []
    choices = _Choices(sections, choose, progress)
    runs, before = _shortest_path(choices), 0
    while len(runs) != before:
        before, runs = len(runs), list(_in_pairs(runs, choices))
    if not all(run.best for run in runs):
        return []
    careful = [choices.of(run.first, run.last, "careful") if run.effort == "quick" else run for run in runs]
    first, second = (tuple(chain.from_iterable(run.best[:n][-1] for run in careful)) for n in (1, 2))
    return list(dict.fromkeys((first, second)))


def _shortest_path(choices: _Choices) -> list[_Run]:
    seconds, steps = [0.0], list[_Run]()
    for last in range(1, len(choices.sections) + 1):
        found: list[tuple[float, _Run]] = []
        for first in range(last - 1, -1, -1):
            run = choices.of(first, last, "quick")
            found.append((seconds[first] + run.seconds, run))
            best = min(found, key=lambda pair: pair[0])
            wide = choices.sections.length(first - 1, last) > WIDTH
            if best[0] < math.inf and (wide or len(found) - found.index(best) > PATIENCE):
                break
        best = min(found, key=lambda pair: pair[0])
        seconds.append(best[0])
        steps.append(best[1])
    runs = [steps[-1]]
    while runs[-1].first:
        runs.append(steps[runs[-1].first - 1])
    return runs[::-1]


def _in_pairs(runs: Sequence[_Run], choices: _Choices) -> Iterator[_Run]:
    """The runs, one and the next in one kernel where that is faster."""
    index = 0
    while index < len(runs):
        run, index = runs[index], index + 1
        if index < len(runs):
            both = choices.of(run.first, runs[index].last, "fused")
            if both.seconds < run.seconds + runs[index].seconds:
                run, index = both, index + 1
        yield run


class _Choices:
    """The kernels of runs of sections, found once for those of the same structure."""

    def __init__(self, sections: Sections, choose: Choose, progress: Callable[[str], None]) -> None:
        self.sections, self._choose, self._progress = sections, choose, progress
        self._known: dict[tuple[Hashable, Effort], tuple[float, list[list[list[int]]]]] = {}

    def of(self, first: int, last: int, effort: Effort) -> _Run:
        graph = self.sections.graph_of(first, last)
        structure, values = structure_of(graph.outputs, frozenset(graph.inputs))
        if (structure, effort) not in self._known:
            which = f"section {last}" if last == first + 1 else f"sections {first + 1} to {last}"
            self._progress(f"{which} of {len(self.sections)}")
            number = {value: index for index, value in enumerate(values)}
            found = self._choose(graph, effort)
            numbers = [[[number[value] for value in written] for written in kernels] for _, kernels in found]
            self._known[structure, effort] = min((seconds for seconds, _ in found), default=math.inf), numbers
        seconds, numbers = self._known[structure, effort]
        best = [tuple(tuple(values[number] for number in written) for written in kernels) for kernels in numbers]
        return _Run(first, last, effort, seconds, best)


def _kept(order: Sequence[Value]) -> Mapping[Value, int]:
    """Where values are used for the last time that follow from a reduction: directly, or by what is a view of them."""
    last: dict[Value, int] = {}
    for index, value in reversed(list(enumerate(order))):
        use = last.get(value, -1) if value.op in VIEWS else index
        for operand in value.operands:
            last[operand] = max(last.get(operand, -1), use)
    follows: set[Value] = set()
    for value in order:
        if value.op in REDUCTIONS or not follows.isdisjoint(value.operands):
            follows.add(value)
    return {v: last[v] for v in order if v in follows and v.op not in VIEWS and last.get(v, -1) >= 0}


def _minima(loads: Sequence[int]) -> Iterator[int]:
    """How many come before the end of each run of equal numbers that is lower than those beside it."""
    runs = [(load, len(list(run))) for load, run in groupby(loads)]
    ends = accumulate(length for _, length in runs)
    for before, (here, _), behind, end in zip(runs, runs[1:], runs[2:], list(ends)[1:], strict=False):
        if before[0] > here < behind[0]:
            yield end
