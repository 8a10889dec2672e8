"""Programs for a whole graph from those that were found for its parts.

The first takes each part's best, the next ones another program for one part at a time, where most is gained first.
Parts that are the same program under other inputs are searched once and vary together, as the layers of a network do.
The proof is composed: each part equals the source's for all inputs, so for the values that the others hand it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.dialects.dims import Facts
from cleave.dialects.graph import Graph, Value
from cleave.search.certificate import Certificate
from cleave.search.partition import Part, inlined
from cleave.search.result import Alternative, SearchResult

Choice = tuple[int, ...]  # for each group of equal parts, the number of its alternative


@dataclass(frozen=True)
class Stitcher:
    """Puts alternatives of parts together. ``groups`` gives for each part the number of its result.

    ``sizes`` rank the alternatives.
    """

    source: Graph
    parts: Sequence[Part]
    groups: Sequence[int]
    results: Sequence[SearchResult]
    sizes: Mapping[str, int]

    def choices(self, split: bool) -> Iterator[Choice]:
        """Which alternatives to take, best first: of those without a split, or with one in one or all groups."""
        whole = [self._ranked(group, split=False) for group in range(len(self.results))]
        best = tuple(ranked[0] for ranked in whole)
        if not split:
            yield best
            yield from self._variations(best, [ranked[1:] for ranked in whole])
            return
        cut = [self._ranked(group, split=True) for group in range(len(self.results))]
        yield tuple(ranked[0] if ranked else whole for ranked, whole in zip(cut, best, strict=True))
        yield from self._variations(best, cut)

    def _ranked(self, group: int, split: bool) -> list[int]:
        alternatives = self.results[group].alternatives
        numbers = [n for n, a in enumerate(alternatives) if (a.split is not None) is split]
        return sorted(numbers, key=lambda n: alternatives[n].cost.rank(self.sizes))

    def _variations(self, best: Choice, others: Sequence[Sequence[int]]) -> Iterator[Choice]:
        """Another program for one group: each group's next one, then each group's second."""
        order = sorted(range(len(best)), key=self._weight, reverse=True)
        for place in range(max(map(len, others), default=0)):
            for group in order:
                if place < len(others[group]):
                    yield tuple(others[group][place] if g == group else b for g, b in enumerate(best))

    def _weight(self, group: int) -> tuple[float, int]:
        """What the group's parts cost in the source together."""
        _, work = self.results[group].alternatives[0].cost.rank(self.sizes)
        return work * self.groups.count(group), -group

    def graph(self, choice: Choice) -> Graph:
        """The whole program."""
        made: dict[Value, Value] = {}
        facts: dict[str, None] = dict.fromkeys(self.source.facts.texts)
        for part, group in zip(self.parts, self.groups, strict=True):
            program = self.results[group].alternatives[choice[group]].graph
            facts |= dict.fromkeys(program.facts.texts)
            made |= zip(part.outputs, inlined(program, [made.get(v, v) for v in part.inputs]), strict=True)
        outputs = tuple(made.get(output, output) for output in self.source.outputs)
        whole = replace(self.source, outputs=outputs, facts=Facts.parse(tuple(facts)))
        return whole.deduplicated()

    def split_of(self, choice: Choice) -> str | None:
        """The dimensions that the program cuts."""
        names = [a.split for a in self._chosen(choice) if a.split is not None]
        return ", ".join(dict.fromkeys(names)) or None

    def _chosen(self, choice: Choice) -> list[Alternative]:
        return [result.alternatives[n] for result, n in zip(self.results, choice, strict=True)]

    def proof(self, choice: Choice) -> Certificate:
        """What the parts' certificates say together; nothing is tested of the whole yet."""
        forms: list[str] = []
        facts: dict[str, None] = {}
        notes = [f"proved in {len(self.parts)} parts, each for all values of what it takes from the others"]
        for number, group in enumerate(self.groups):
            first, label = self.groups.index(group), f"part {number + 1}"
            if first != number:
                forms.append(f"{label}: as part {first + 1}")
                continue
            certificate = self.results[group].alternatives[choice[group]].certificate
            forms.extend(f"{label}: {form}" for form in certificate.normal_form or ("the source's ops as they are",))
            facts |= dict.fromkeys(certificate.facts)
            notes.extend(f"{label}: {note}" for note in certificate.notes if choice[group])
        return Certificate(tuple(forms), tuple(facts), notes=tuple(notes))
