"""Programs in floating point: in f64, and in their declared types, on draws that are meant to hurt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleave.dialects.dims import Answer, sym
from cleave.dialects.graph import Graph
from cleave.search.certificate import FloatCheck
from cleave.search.check_sizes import sizes_of
from cleave.search.draws import Draw
from cleave.search.float_domain import FloatDomain
from cleave.search.trials import Trial, Trials

DIFFERENCE = 1e-7  # relative, in f64
BUDGET = 2.0
ON_AVERAGE = 1.5  # the budget where chance is averaged out: what is close to twice on one size is beyond it on others
RIGHT = 0.01  # the largest relative error of what counts as right
# What an error may exceed the budget by, for on few elements errors vary by chance: part of a rounding to the output.
_CHANCE = {"f16": 2.0**-13, "bf16": 2.0**-10, "f32": 2.0**-22, "f64": 2.0**-50}


@dataclass(frozen=True)
class Errors:
    """The difference in f64, and both programs' relative errors in their types; ``why``: what is too large."""

    difference: float = 0.0
    source: float = 0.0
    program: float = 0.0
    why: str = ""


class FloatChecker:
    """Compares alternatives with one source; the source is evaluated once for each draw."""

    def __init__(self, source: Graph, seed: int, fixed: Mapping[str, int]) -> None:
        """``fixed`` has the symbols whose static extent the normal form relies on."""
        self.source, self.trials = source, Trials(source, seed, fixed)
        self.wrong_where_empty: set[Graph] = set()  # what passed all before the draws on which a reduced dim is empty

    def check(self, graph: Graph) -> tuple[FloatCheck | None, str]:
        """The result, or None and what is worse than the source's."""
        import numpy as np

        found: dict[str, Errors] = {}
        with np.errstate(all="ignore"):
            for draw, errors in self._judged(graph):
                if errors.why:
                    self.wrong_where_empty.update([graph] if draw.empty else ())
                    return None, f"{errors.why} on the draw '{draw.name}'"
                found[draw.name] = errors
        worst = _worst(found.values())
        sizes = sizes_of(self.trials.sizes, self.source, graph)
        return FloatCheck(sizes, tuple(found), worst.difference, worst.source, worst.program), ""

    def _judged(self, graph: Graph) -> Iterator[tuple[Draw, Errors]]:
        """The draws and the errors on them."""
        required = graph.requirements()  # a maximum that was asked for makes a dim one that may not be empty
        for trial in self.trials.all():
            if not trial.draw.empty or required.less_equal(1, sym(trial.draw.empty)) is not Answer.YES:
                yield trial.draw, self._errors(graph, trial)
        for trials in self.trials.long():
            yield trials[0].draw, self._on_average(graph, trials)

    def _errors(self, graph: Graph, trial: Trial) -> Errors:
        difference = 0.0
        if trial.draw.is_exact:
            mine = trial.evaluate(graph, FloatDomain(declared=False))
            difference = max(distance(a, b) for a, b in zip(mine, trial.exact, strict=True))
            if difference > DIFFERENCE:
                return Errors(why=f"differs by {difference:.1e} in f64")
        outputs = trial.evaluate(graph, FloatDomain(declared=True))
        results = zip(outputs, trial.own, trial.exact, graph.outputs, strict=True)
        return _worst([Errors(difference), *(_compared(trial, a, b, exact, out.dtype) for a, b, exact, out in results)])

    def _on_average(self, graph: Graph, trials: Sequence[Trial]) -> Errors:
        """The root mean square over all elements of several trials."""
        outputs = [trial.evaluate(graph, FloatDomain(declared=True)) for trial in trials]
        found: list[Errors] = []
        for number, output in enumerate(graph.outputs):
            a, b = _joined(outputs, number), _joined([trial.own for trial in trials], number)
            errors = _errors_of(a, b, _joined([trial.exact for trial in trials], number))
            if not errors.program <= ON_AVERAGE * errors.source + _chance(output.dtype):
                errors = replace(errors, why=f"{_told(errors)}, on average")
            found.append(errors)
        return _worst(found)


def _worst(errors: Iterable[Errors]) -> Errors:
    """The largest of each, and the first reason."""
    found = list(errors)
    return Errors(
        max((e.difference for e in found), default=0.0),
        max((e.source for e in found), default=0.0),
        max((e.program for e in found), default=0.0),
        next((e.why for e in found if e.why), ""),
    )


def _compared(trial: Trial, a: Any, b: Any, reference: Any, dtype: str) -> Errors:
    """One output ``a`` of a program against the source's ``b``; no errors where the source itself is not right."""
    import numpy as np

    found = _errors_of(a, b, reference)
    lost = np.any(np.isfinite(reference) & ~np.isfinite(b))
    if trial.draw.scales and (trial.overflowed or found.source > RIGHT or lost):
        return Errors()  # out there, only what the source gets right counts
    if np.any(np.isfinite(b) & ~np.isfinite(a)):
        return replace(found, why="not finite where the source is")
    if trial.draw.empty is None and found.program > BUDGET * found.source + _chance(dtype):
        return replace(found, why=_told(found))
    return found


def _errors_of(a: Any, b: Any, reference: Any) -> Errors:
    import numpy as np

    finite = np.isfinite(b) & np.isfinite(reference)
    return Errors(0.0, relative(b, reference, finite), relative(a, reference, finite))


def _told(errors: Errors) -> str:
    return f"error {errors.program:.1e} against the source's {errors.source:.1e}"


def _chance(dtype: str) -> float:
    return _CHANCE.get(dtype, 2.0**-22)


def _joined(arrays: Sequence[Sequence[Any]], number: int) -> Any:
    """All elements of one output in several trials."""
    import numpy as np

    return np.concatenate([np.ravel(outputs[number]) for outputs in arrays])


def relative(a: Any, reference: Any, finite: Any) -> float:
    import numpy as np

    a, reference = np.where(finite, a, 0.0), np.where(finite, reference, 0.0)
    scale = float(np.linalg.norm(reference))
    return float(np.linalg.norm(a - reference)) / scale if scale else float(np.max(np.abs(a), initial=0.0))


def distance(a: Any, b: Any) -> float:
    """Relative difference where both are finite; infinite if they disagree on where that is and b is finite."""
    import numpy as np

    if np.any(np.isfinite(b) & ~np.isfinite(a)):
        return float("inf")
    return relative(a, b, np.isfinite(a) & np.isfinite(b))
