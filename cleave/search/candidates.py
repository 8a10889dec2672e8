"""Which programs leave a search: the best by cost that pass the checks, which only those undergo that may be taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.search.certificate import Certificate
from cleave.search.check import Checker
from cleave.search.cost import Cost, cost_of
from cleave.search.limits import Limits
from cleave.search.result import Alternative, Rejected, SearchOptions
from cleave.search.terms import OutOfFuel

Sizes = Mapping[str, int]
TWICE = 1  # programs of those with two dims in parts that are kept


@dataclass(eq=False)
class Candidate:
    """One plan: ``graph`` is its first version that has not failed, ``versions`` are the more careful ones.

    ``label`` names the space that it comes from, ``split`` the dimensions that it cuts, if it does, of which there are
    ``cuts``; ``failures`` counts the versions that have failed.
    """

    label: str
    split: str | None
    cuts: int
    versions: Iterator[Graph]
    graph: Graph
    cost: Cost
    failures: int = 0
    certificate: Certificate | None = None

    @property
    def kind(self) -> tuple[str | None, Cost]:
        return self.split, self.cost


class Candidates:
    """All plans for one source."""

    def __init__(self, source: Graph, options: SearchOptions, checker: Checker) -> None:
        self.options, self.checker = options, checker
        self.rejected: list[Rejected] = []
        self._source = lines_of(source)
        self._live: list[Candidate] = []
        self._passed_over: list[Rejected] = []
        self._checked: dict[str, Certificate | None] = {}

    def add(self, label: str, cuts: Sequence[str], versions: Iterator[Graph]) -> None:
        """A plan as its versions, each more careful than the one before; ``cuts``: the dims in parts."""
        graph = self._next(label, versions)
        if graph is not None:
            self._live.append(Candidate(label, ", ".join(cuts) or None, len(cuts), versions, graph, cost_of(graph)))

    def favourite(self, split: str, sizes: Sizes) -> Graph | None:
        """The best by cost, checked or not, of those that cut this dim alone."""
        found = [c for c in self._live if c.split == split]
        return min(found, key=lambda c: c.cost.rank(sizes)).graph if found else None

    def _next(self, label: str, versions: Iterator[Graph]) -> Graph | None:
        """The next version that has not failed; None if there is none, or it is the source itself."""
        try:
            for graph in versions:
                text = lines_of(graph)
                if text == self._source:
                    return None
                if text not in self._checked or self._checked[text] is not None:
                    return graph
        except (CleaveError, OutOfFuel, ArithmeticError, RecursionError) as error:
            self.rejected.append(Rejected(label, f"no program: {error}"))
        return None

    def best(self, source: Alternative, profiles: Sequence[Sizes], limits: Limits) -> list[Alternative]:
        """The best that pass, those without a split first; where a limit is reached, those of them that are known."""
        front = self._front(source, profiles)
        while unknown := next((c for c in front if c.certificate is None), None):
            if limits.checks(len(self._checked)) or (limits.time() and any(c.certificate for c in front)):
                break
            if not self._passes(unknown):
                self._advance(unknown)
                front = self._front(source, profiles)
        self.rejected.extend(self._passed_over)
        return [Alternative(c.graph, c.cost, c.certificate, c.split) for c in front if c.certificate is not None]

    def _advance(self, failed: Candidate) -> None:
        graph = self._next(failed.label, failed.versions)
        if graph is None:
            self._live.remove(failed)
        else:
            failed.graph, failed.cost, failed.failures = graph, cost_of(graph), failed.failures + 1

    def _passes(self, candidate: Candidate) -> bool:
        text = lines_of(candidate.graph)
        if text not in self._checked:
            self._checked[text], why = self.checker.check(candidate.graph)
            if why:
                self.rejected.append(Rejected(f"{candidate.label}: {candidate.cost}", why, candidate.graph))
        candidate.certificate = self._checked[text]
        return candidate.certificate is not None

    def _front(self, source: Alternative, profiles: Sequence[Sizes]) -> list[Candidate]:
        """Those that no other one of the same kind dominates, the best of each size profile in turn."""
        self._passed_over = []
        # Where two cost the same: one that has passed, the less careful one, for wide operands are slow, the first.
        kinds: dict[tuple[str | None, Cost], Candidate] = {}
        for candidate in sorted(self._live, key=lambda c: (c.certificate is None, c.failures)):
            if candidate.kind in kinds or candidate.kind == (None, source.cost):
                self._pass_over(candidate, "another program has the same cost")
            else:
                kinds[candidate.kind] = candidate
        undominated = [c for c in self._live if kinds.get(c.kind) is c and not self._dominated(c, source)]
        return [c for cuts in range(3) for c in self._kept([c for c in undominated if c.cuts == cuts], profiles)]

    def _dominated(self, candidate: Candidate, source: Alternative) -> bool:
        rivals = [c.cost for c in self._live if c.split == candidate.split]
        # A source that is to be made stable is no rival, though it does less.
        rivals += [] if self.options.stabilise or candidate.split is not None else [source.cost]
        better = next((cost for cost in rivals if cost.dominates(candidate.cost)), None)
        if better is not None:
            self._pass_over(candidate, f"dominated by {better}")
        return better is not None

    def _kept(self, candidates: list[Candidate], profiles: Sequence[Sizes]) -> list[Candidate]:
        """As many as are to be kept: each profile's favourite, each profile's second, and so on."""
        rankings = [sorted(candidates, key=lambda c: c.cost.rank(sizes)) for sizes in profiles]
        kept: dict[Candidate, None] = {}
        most = min(self.options.keep, TWICE if candidates and candidates[0].cuts == 2 else self.options.keep)
        for place in range(len(candidates)):
            for ranking in rankings:
                if len(kept) < most:
                    kept[ranking[place]] = None
        for left in candidates:
            if left not in kept:
                self._pass_over(left, f"more than {most} of its kind")
        return list(kept)

    def _pass_over(self, candidate: Candidate, why: str) -> None:
        what = f"{candidate.label}: {candidate.cost}"
        self._passed_over.append(Rejected(what, why, candidate.graph, passed_over=True))


def lines_of(graph: Graph) -> str:
    """The ops of a graph, as text that is equal for equal programs."""
    return str(graph.deduplicated()).partition("\n")[2]
