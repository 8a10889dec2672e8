"""One graph searched as a whole: its spaces, uncut and for each split, and the programs that pass the checks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.dialects.dims import Dim, Facts, Size, ceildiv, sym
from cleave.dialects.graph import Graph, Value
from cleave.search.binders import Algebra
from cleave.search.candidates import Candidates
from cleave.search.certificate import Certificate
from cleave.search.check import Checker
from cleave.search.check_sizes import COUNTS, UNITS, numbered
from cleave.search.cost import cost_of
from cleave.search.draws import centred_inputs
from cleave.search.emit import Emission, Emitter
from cleave.search.enumerate import nodes_of
from cleave.search.extract import Extractor, Plan
from cleave.search.feeds import Feeds
from cleave.search.lift import Lifter, Unliftable
from cleave.search.limits import Limits
from cleave.search.recentre import recentred
from cleave.search.reduced_dims import splittable_sizes
from cleave.search.result import Alternative, Rejected, SearchOptions, SearchResult, Statistics
from cleave.search.seeds import cut_items, make_space
from cleave.search.space import Cut, Space
from cleave.search.terms import Item, OutOfFuel, Poly, show

MAX_PROFILES = 3
PARTS = numbered("t")
"""Names for the dim along one part."""


@dataclass(frozen=True)
class _Start:
    """A program that is searched from, and its normal forms."""

    graph: Graph
    forms: Mapping[Value, Poly]


class WholeSearch:
    """``taken``: names that the whole function has beyond this graph's; those that a split invents are added to it."""

    def __init__(self, graph: Graph, options: SearchOptions, taken: set[str]) -> None:
        self.source, self.options, self.taken = graph, options, taken
        self.limits = Limits(options.max_classes, options.time_limit)
        self.algebra = Algebra()
        self.algebra.extents.update(graph.extents)
        self.lifter = Lifter(self.algebra)
        self.statistics = Statistics()
        self.rejected: list[Rejected] = []
        self.counts: list[str] = []  # the symbols that count parts
        self.units: list[str] = []  # those that the parts' lengths are multiples of
        self.candidates: Candidates | None = None
        self.means = centred_inputs(graph)

    def alone(self, why: str) -> SearchResult:
        """The source and nothing else."""
        self.candidates = None
        self.rejected.append(Rejected(self.source.name, f"not searched: {why}"))
        self.limits.reached[f"not searched: {why}"] = None
        return self._result(Certificate((), notes=(f"the source itself; not searched: {why}",)))

    def run(self) -> SearchResult:
        """The programs found; a source that algebra refuses comes back alone, the reason in ``rejected``."""
        try:
            return self._run()
        except RecursionError:
            return self.alone("its terms are nested too deep")

    def _run(self) -> SearchResult:
        try:
            forms = self.lifter.lift(self.source)
        except (Unliftable, OutOfFuel, ArithmeticError) as error:
            return self.alone(str(error))
        goals = [forms[output] for output in self.source.outputs]
        certificate = Certificate(tuple(map(show, goals)), self.source.facts.texts, notes=("the source itself",))
        if not goals:
            return self._result(certificate)
        self.feeds = Feeds(self.source, forms)
        self.checker = Checker(self.source, self.lifter, goals, self.options.seed)
        self.candidates = Candidates(self.source, self.options, self.checker)
        cuts = self._cuts(goals)
        for cut in (None, *cuts):
            self._try(_Start(self.source, forms), goals, (cut,) if cut else ())
        for pair in itertools.combinations(cuts, 2) if self.options.cuts > 1 else ():
            start = self._in_parts(pair[0])
            if start is not None:
                self._try(start, goals, pair)
        return self._result(certificate)

    def _try(self, start: _Start, goals: list[Poly], cuts: tuple[Cut, ...]) -> None:
        if self.limits.time():
            return
        label = f"{' and '.join(str(cut.size) for cut in cuts)} cut" if cuts else "whole"
        try:
            self._search(start, goals, cuts, label)
        except (OutOfFuel, ArithmeticError, RecursionError) as error:
            self.rejected.append(Rejected(label, f"given up: {error}"))
            self.limits.reached[f"{label}: {error}"] = None

    def _in_parts(self, cut: Cut) -> _Start | None:
        """The best program that cuts one dim, from where another is cut, too."""
        assert self.candidates is not None
        graph = self.candidates.favourite(str(cut.size), self._nominal())
        try:
            return None if graph is None else _Start(graph, self.lifter.lift(graph))
        except (Unliftable, OutOfFuel, ArithmeticError):
            return None

    def _cuts(self, goals: list[Poly]) -> list[Cut]:
        cuts: list[Cut] = []
        if not self.options.split:
            return cuts
        outputs = {dim.size for value in self.source.outputs for dim in value.dims}
        for size in splittable_sizes(goals):
            if size not in outputs:
                cuts.append(self._cut(size))
        return cuts

    def _cut(self, size: Size) -> Cut:
        taken = {
            *self.taken,
            *self.algebra.sizes,
            *(s for value in self.source.topological() for d in value.dims for s in d.size.symbols),
        }
        count, part, unit = (next(name for name in names if name not in taken) for names in (COUNTS, PARTS, UNITS))
        self.taken.update((count, part, unit))
        self.counts.append(count)
        self.units.append(unit)
        length = sym(unit) * ceildiv(size, sym(count) * sym(unit))
        return Cut(size, self.lifter.pair(Dim(count, sym(count)), Dim(part, length), size), unit)

    def _search(self, start: _Start, goals: list[Poly], cuts: tuple[Cut, ...], label: str) -> None:
        """The space of the last of ``cuts``, from a program in which those before it are made."""
        assert self.candidates is not None
        cut = cuts[-1] if cuts else None
        space = make_space(start.graph, start.forms, self.lifter, cut, self.options.stabilise)
        space.grow(goals, nodes_of, self.limits)
        self.statistics.classes += len(space.nodes)
        self.statistics.nodes += sum(map(len, space.nodes.values()))
        self.statistics.spaces.append(f"{label}: {len(space.nodes)} classes")
        self.rejected.extend(Rejected(label, f"{why} ({count}×)") for why, count in space.rejected.items())
        positive = [f"1 <= {name}" for cut in cuts for name in (cut.pair.outer, cut.unit)]
        facts = Facts.parse((*self.source.facts.texts, *positive))
        emission = Emission(space, self._feeds(cuts), facts, cuts)
        sizes = [str(cut.size) for cut in cuts]
        for plan in self._plans(space, goals):
            self.statistics.candidates += 1
            versions = (graph for graph in self._versions(plan, goals, emission) if _has(graph, cuts))
            self.candidates.add(label, sizes, versions)

    def _feeds(self, cuts: tuple[Cut, ...]) -> Feeds:
        """Also of parts of what the source feeds; not of what the algebra cannot take in parts."""
        feeds = self.feeds
        for cut in cuts:
            items = cut_items(self.lifter, cut)

            def part(poly: Poly, items: Mapping[str, Item] = items) -> Poly:
                try:
                    return self.algebra.substitute(poly, items)
                except OutOfFuel:
                    return poly

            feeds = feeds.in_parts(part)
        return feeds

    def _versions(self, plan: Plan, goals: list[Poly], emission: Emission) -> Iterator[Graph]:
        """The plan's programs, each more careful than the one before: in tf32, in f32, these with inputs less an
        offset; each with what an empty dim makes infinite left out, if it fails for that."""
        for graph in self._less_careful(plan, goals, emission):
            yield graph
            guarded = self.checker.guarded(graph)
            if guarded is not None:
                yield guarded

    def _less_careful(self, plan: Plan, goals: list[Poly], emission: Emission) -> Iterator[Graph]:
        graphs: list[Graph] = []
        for precise in (False, True):
            graphs.append(Emitter(self.source, self.lifter, emission, precise).graph(plan, goals))
            yield graphs[-1]
        if self.means:
            yield from (recentred(graph, self.means) for graph in graphs)

    def _plans(self, space: Space, goals: list[Poly]) -> list[Plan]:
        """The best plans at several size profiles: all dims alike, and each of the outputs' dims short."""
        found: dict[object, Plan] = {}
        for sizes in self._profiles():
            for plan in Extractor(space, sizes, beam=max(2, self.options.keep)).run(goals):
                found.setdefault(plan.key(), plan)
        return list(found.values())

    def _profiles(self) -> list[dict[str, int]]:
        nominal = self._nominal()
        symbols = [str(d.size) for value in self.source.outputs for d in value.dims if str(d.size) in nominal]
        short = [symbol for symbol in dict.fromkeys(symbols) if symbol not in self.source.extents][:MAX_PROFILES]
        return [nominal, *({**nominal, symbol: 8} for symbol in short)]

    def _nominal(self) -> dict[str, int]:
        symbols = {s for size in self.algebra.sizes.values() for s in size.symbols}
        return nominal_sizes(symbols, self.counts, self.units, self.source.extents)

    def _result(self, certificate: Certificate) -> SearchResult:
        source = Alternative(self.source, cost_of(self.source), certificate)
        kept: list[Alternative] = []
        if self.candidates is not None:
            kept = self.candidates.best(source, self._profiles(), self.limits)
            self.rejected += self.candidates.rejected
        self.statistics.seconds = self.limits.seconds
        self.statistics.stopped = list(self.limits.reached)
        return SearchResult((source, *kept), replace(self.statistics), tuple(self.rejected))


def nominal_sizes(
    symbols: Iterable[str], counts: Iterable[str], units: Iterable[str], extents: Mapping[str, int]
) -> dict[str, int]:
    """Sizes that rank programs: static ones as they are, others of ordinary magnitude; ``counts`` number parts."""
    ordinary = {name: 512 + 16 * i for i, name in enumerate(sorted(symbols))}
    return {**ordinary, **dict.fromkeys(counts, 16), **dict.fromkeys(units, 1), **extents}


def _has(graph: Graph, cuts: Sequence[Cut]) -> bool:
    """Whether all the dims are in parts; in a space with one cut they are."""
    names = {dim.name for value in graph.topological() for dim in value.dims} if len(cuts) > 1 else set[str]()
    return len(cuts) < 2 or all(cut.pair.outer in names for cut in cuts)
