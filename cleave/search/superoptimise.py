"""The superoptimiser's entry: a graph in, equal graphs out; a large one in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cleave.dialects.graph import Graph, Value
from cleave.search.binders import Algebra
from cleave.search.candidates import lines_of
from cleave.search.check import Checker
from cleave.search.check_sizes import UNITS
from cleave.search.cost import cost_of
from cleave.search.lift import Lifter
from cleave.search.limits import Limits
from cleave.search.partition import Part, counted_ops, partition
from cleave.search.result import Alternative, Rejected, SearchOptions, SearchResult, Statistics
from cleave.search.stitch import Choice, Stitcher
from cleave.search.whole import WholeSearch, nominal_sizes

FEWEST_OPS = 8  # a graph of no more ops that algebra refuses is not cut again
TRIES = 3  # stitched programs for each one that is to be kept

Progress = Callable[[str], None]


def superoptimise(graph: Graph, options: SearchOptions | None = None, progress: Progress | None = None) -> SearchResult:
    """Programs equal to ``graph`` for all sizes, the source first, then by length of the chain of reductions.

    A graph of more than ``max_ops`` ops, or one that cannot be brought into terms as a whole, is searched in parts.
    What cannot be brought into terms at all is returned alone, with the reason in ``rejected``. ``progress`` is told
    which part is searched.
    """
    symbols = {s for v in graph.topological() for d in v.dims for s in (d.name, *d.size.symbols)}
    return _search(graph, options or SearchOptions(), symbols, progress or (lambda _: None))


def _search(graph: Graph, options: SearchOptions, taken: set[str], progress: Progress) -> SearchResult:
    count = len(counted_ops(graph))
    if count > options.max_ops:
        return _InParts(graph, options, taken, progress).run()
    result = WholeSearch(graph, options, taken).run()
    refused = not result.alternatives[0].certificate.normal_form and bool(graph.outputs)
    if not refused or count <= FEWEST_OPS:
        return result
    return _InParts(graph, replace(options, max_ops=(count + 1) // 2), taken, progress).run()


class _InParts:
    """The search of a graph that is cut."""

    def __init__(self, graph: Graph, options: SearchOptions, taken: set[str], progress: Progress) -> None:
        self.source, self.options, self.taken, self.progress = graph, options, taken, progress
        self.limits = Limits(options.max_classes, options.time_limit)
        self.parts = partition(graph, options.max_ops)
        self.statistics = Statistics()
        self.rejected: list[Rejected] = []
        self.cuts: dict[Value, None] = {}

    def run(self) -> SearchResult:
        groups, results = self._search_parts()
        symbols = {s for value in self.source.topological() for dim in value.dims for s in dim.size.symbols}
        invented = self.taken - symbols
        sizes = nominal_sizes(symbols, invented, invented.intersection(UNITS), self.source.extents)
        stitcher = Stitcher(self.source, self.parts, groups, results, sizes)
        self.progress(f"the whole of {len(self.parts)} parts")
        alternatives = self._alternatives(stitcher)
        self.statistics.seconds = self.limits.seconds
        self.statistics.stopped.extend(self.limits.reached)
        return SearchResult(tuple(alternatives), self.statistics, tuple(self.rejected), tuple(self.cuts))

    # --- the parts ---------------------------------------------------------------------------------------------------

    def _search_parts(self) -> tuple[list[int], list[SearchResult]]:
        """The number of each part's result, and the results: one for all parts that are the same program."""
        numbers: dict[str, int] = {}
        groups = [numbers.setdefault(lines_of(part.graph), len(numbers)) for part in self.parts]
        results: list[SearchResult] = []
        left = [1 + len(counted_ops(self.parts[groups.index(group)].graph)) for group in range(len(numbers))]
        for number, (part, group) in enumerate(zip(self.parts, groups, strict=True)):
            label = f"part {number + 1} of {len(self.parts)}"
            self.cuts |= dict.fromkeys(value for value in part.inputs if value.op != "input")
            if group == len(results):
                self.progress(label)
                results.append(self._search_part(part, left[group] / sum(left[group:])))
                self.statistics.include(results[group].statistics, label)
                self.rejected.extend(replace(r, what=f"{label}, {r.what}") for r in results[group].rejected)
            self._add_cuts(part, self.parts[groups.index(group)], results[group])
        return groups, results

    def _search_part(self, part: Part, share: float) -> SearchResult:
        """The part's programs, in its share of the time that is left."""
        limit = max(0.0, self.options.time_limit - self.limits.seconds) * share
        return _search(part.graph, replace(self.options, time_limit=limit), self.taken, self.progress)

    def _add_cuts(self, part: Part, first: Part, result: SearchResult) -> None:
        """Values at which the part was cut again; its values correspond to those of the one that was searched."""
        values = dict(zip(first.graph.topological(), part.values, strict=True))
        self.cuts |= dict.fromkeys(values[value] for value in result.cuts)

    # --- the whole ---------------------------------------------------------------------------------------------------

    def _alternatives(self, stitcher: Stitcher) -> list[Alternative]:
        nothing = (0,) * len(stitcher.results)
        certificate = stitcher.proof(nothing)
        certificate = replace(certificate, notes=("the source itself", *certificate.notes))
        found = [Alternative(self.source, cost_of(self.source), certificate)]
        lifter = Lifter(Algebra())
        facts = {fact for result in stitcher.results for a in result.alternatives for fact in a.certificate.facts}
        extents = self.source.extents.items()
        lifter.algebra.fixed.update((name, size) for name, size in extents if f"{name} = {size}" in facts)
        checker = Checker(self.source, lifter, [], self.options.seed)
        seen = {lines_of(self.source)}
        for split in (False, True) if self.options.split else (False,):
            found += self._kept(stitcher, checker, seen, split)
        return found

    def _kept(self, stitcher: Stitcher, checker: Checker, seen: set[str], split: bool) -> list[Alternative]:
        """The first few stitched programs that are new and pass the checks of the whole."""
        kept: list[Alternative] = []
        for number, choice in enumerate(stitcher.choices(split)):
            if len(kept) == self.options.keep or number >= TRIES * self.options.keep:
                break
            if kept and self.limits.time():
                break
            alternative = self._stitched(stitcher, checker, seen, choice)
            if alternative is not None:
                kept.append(alternative)
        return kept

    def _stitched(self, stitcher: Stitcher, checker: Checker, seen: set[str], choice: Choice) -> Alternative | None:
        graph = stitcher.graph(choice)
        text = lines_of(graph)
        if text in seen:
            return None
        seen.add(text)
        self.statistics.candidates += 1
        proof = stitcher.proof(choice)
        facts = tuple(dict.fromkeys((*graph.facts.texts, *proof.facts)))
        certificate, why = checker.tested(graph, proof.normal_form, facts, proof.notes)
        cost = cost_of(graph)
        if certificate is None:
            self.rejected.append(Rejected(f"whole of parts: {cost}", why, graph))
            return None
        return Alternative(graph, cost, certificate, stitcher.split_of(choice))
