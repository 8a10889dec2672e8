"""The checks that every program passes before it leaves the search: normal form, fingerprint, floats."""

from __future__ import annotations

from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.search.certificate import Certificate, Fingerprint, FloatCheck
from cleave.search.empty import guarded
from cleave.search.fingerprint import FingerprintChecker
from cleave.search.floats import FloatChecker
from cleave.search.interpret import Unsupported
from cleave.search.lift import Lifter, Unliftable
from cleave.search.terms import OutOfFuel, Poly, show


class Checker:
    """Checks candidates against one source. ``goals`` are the normal forms of the source's outputs."""

    def __init__(self, source: Graph, lifter: Lifter, goals: list[Poly], seed: int) -> None:
        self.source, self.lifter, self.goals = source, lifter, goals
        self.floats = FloatChecker(source, seed, lifter.algebra.fixed)
        self._obstacles: dict[str, str] = {}
        self.fingerprint = FingerprintChecker(source, seed, lifter.algebra.fixed)

    def check(self, graph: Graph) -> tuple[Certificate | None, str]:
        """The certificate, or None and what failed. The graph is lifted anew: nothing of the search is trusted."""
        try:
            forms = self.lifter.lift(graph)
        except (Unliftable, OutOfFuel, CleaveError) as error:
            return None, f"no normal form: {error}"
        for number, (output, goal) in enumerate(zip(graph.outputs, self.goals, strict=True)):
            if forms[output] is not goal:
                return None, f"output {number} has another normal form: {show(forms[output])}"
        facts = (*graph.facts.texts, *(f"{name} = {value}" for name, value in self.lifter.algebra.fixed.items()))
        return self.tested(graph, tuple(map(show, self.goals)), facts)

    def tested(
        self, graph: Graph, forms: tuple[str, ...], facts: tuple[str, ...], notes: tuple[str, ...] = ()
    ) -> tuple[Certificate | None, str]:
        """A certificate for what was proved otherwise, if fingerprint and floats agree; or None and what failed."""
        found = list(notes)
        fingerprint: Fingerprint | None = None
        floats: FloatCheck | None = None
        try:
            if self._can_evaluate("floats", found):  # first, for here most of what fails does
                floats, why = self.floats.check(graph)
                if floats is None:
                    return None, why
            if self._can_evaluate("prime fields", found):
                fingerprint, why = self.fingerprint.check(graph)
                if fingerprint is None:
                    return None, why
        except (Unsupported, CleaveError, IndexError, ValueError) as error:
            return None, f"cannot be evaluated, though the source can: {error}"
        return Certificate(forms, facts, fingerprint, floats, tuple(found)), ""

    def guarded(self, graph: Graph) -> Graph | None:
        """A program that failed where a dim is empty, with what is infinite there left out; None for all others."""
        if graph not in self.floats.wrong_where_empty:
            return None
        return guarded(graph, self.source, [trial for trial in self.floats.trials.all() if trial.draw.empty])

    def _can_evaluate(self, where: str, notes: list[str]) -> bool:
        """Whether the source itself can be evaluated there; if not, the certificate says so."""
        if where not in self._obstacles:
            self._obstacles[where] = ""
            try:
                if where == "floats":
                    self.floats.trials.all()
                else:
                    self.fingerprint.reference()
            except (Unsupported, CleaveError, IndexError, ValueError) as error:
                self._obstacles[where] = f"not evaluated in {where}: {error}"
        if self._obstacles[where]:
            notes.append(self._obstacles[where])
        return not self._obstacles[where]
