"""Programs in floating point: in f64, and in their declared types, on draws that are meant to hurt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cleave.dialects import ops
from cleave.dialects.dims import Answer, sym
from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.search.certificate import FloatCheck
from cleave.search.check_sizes import completed, reduced_symbols, sizes_of, symbols_of, work
from cleave.search.draws import ORDINARY, Draw, draw_inputs, draws
from cleave.search.float_domain import FloatDomain
from cleave.search.interpret import Interpreter, Memo, Unsupported
from cleave.search.unseen import filled, roomy_sizes, unseen

SMALL = (5, 3, 7, 4, 6, 9, 2, 8, 11, 10, 13, 12)
MAX_EXTENT = 512  # reduced dims are checked at their own size up to this
MAX_WORK = 1 << 22  # elements computed, up to which there is a check at all of the function's own sizes
BUDGET = 2.0
RIGHT = 0.01  # the largest relative error of what counts as right
# What an error may exceed the budget by, for on few elements errors vary by chance: part of a rounding to the output.
_CHANCE = {"f16": 2.0**-13, "bf16": 2.0**-10, "f32": 2.0**-22, "f64": 2.0**-50}
_SHRINK = (1.0, 0.25, 1 / 16, 1 / 64, 1 / 512)


@dataclass(frozen=True)
class Trial:
    """A draw with what the source makes of it: over the reals, and in its own types, where a step may overflow.

    ``memos``: of evaluations over the reals and in declared types.
    """

    draw: Draw
    sizes: Mapping[str, int]
    inputs: list[Any]
    exact: list[Any]
    own: list[Any]
    overflowed: bool = False
    memos: tuple[Memo, Memo] = field(default_factory=lambda: (Memo(), Memo()))

    def evaluate(self, graph: Graph, domain: FloatDomain) -> list[Any]:
        return Interpreter(domain, self.sizes, self.memos[domain.declared]).run(graph, self.inputs)


class FloatChecker:
    """Compares alternatives with one source; the source is evaluated once for each draw."""

    def __init__(self, source: Graph, seed: int, fixed: Mapping[str, int]) -> None:
        """``fixed`` has the symbols whose static extent the normal form relies on."""
        self.source, self.seed, self.fixed = source, seed, fixed
        self.sizes = check_sizes(source, fixed)
        self._trials: list[Trial] | None = None

    def check(self, graph: Graph) -> tuple[FloatCheck | None, str]:
        """The result, or None and what is worse than the source's."""
        import numpy as np

        differences, source_error, error, names = 0.0, 0.0, 0.0, list[str]()
        required = graph.requirements()  # a maximum that was asked for makes a dim one that may not be empty
        with np.errstate(all="ignore"):
            for trial in self.trials():
                if trial.draw.empty and required.less_equal(1, sym(trial.draw.empty)) is Answer.YES:
                    continue
                if trial.draw.is_exact:
                    mine = trial.evaluate(graph, FloatDomain(declared=False))
                    differences = max(differences, *(distance(a, b) for a, b in zip(mine, trial.exact, strict=True)))
                    if differences > 1e-7:
                        return None, f"differs by {differences:.1e} in f64 on the draw '{trial.draw.name}'"
                theirs, ours, why = self._errors(graph, trial)
                if why:
                    return None, f"{why} on the draw '{trial.draw.name}'"
                source_error, error = max(source_error, theirs), max(error, ours)
                names.append(trial.draw.name)
        return FloatCheck(sizes_of(self.sizes, self.source, graph), tuple(names), differences, source_error, error), ""

    def _errors(self, graph: Graph, trial: Trial) -> tuple[float, float, str]:
        """The source's largest error and the program's, and why that is too large."""
        import numpy as np

        worst, mine = 0.0, 0.0
        outputs = trial.evaluate(graph, FloatDomain(declared=True))
        for a, b, reference, output in zip(outputs, trial.own, trial.exact, graph.outputs, strict=True):
            finite = np.isfinite(b) & np.isfinite(reference)
            theirs, ours = relative(b, reference, finite), relative(a, reference, finite)
            if trial.draw.scales and (trial.overflowed or theirs > RIGHT or np.any(np.isfinite(reference) & ~finite)):
                continue  # out there, only what the source gets right counts
            if np.any(np.isfinite(b) & ~np.isfinite(a)):
                return worst, mine, "not finite where the source is"
            if trial.draw.empty is None and ours > BUDGET * theirs + _CHANCE.get(output.dtype, 2.0**-22):
                return worst, mine, f"error {ours:.1e} against the source's {theirs:.1e}"
            worst, mine = max(worst, theirs), max(mine, ours)
        return worst, mine, ""

    def trials(self) -> list[Trial]:
        """All draws on which the source can be evaluated; those at other sizes than the first are left out if not."""
        if self._trials is None:
            made = [self._trial(draw) for draw in draws(self.source) if draw.empty is None]
            for draw in draws(self.source):
                if draw.empty is not None:
                    made.extend(self._optional(draw))
            self._trials = [*made, *self._at_own_sizes(), *self._unseen()]
        return self._trials

    def _optional(self, draw: Draw) -> list[Trial]:
        try:
            return [self._trial(draw)]
        except (Unsupported, CleaveError, IndexError, ValueError):
            return []

    def _trial(self, draw: Draw) -> Trial:
        """A draw on which the source itself overflows shows nothing about accuracy, so it is taken smaller."""
        import numpy as np

        sizes = self.sizes if draw.empty is None else self._sizes_without(draw.empty)
        found: Trial | None = None
        for factor in _SHRINK:
            found = self._evaluated(draw, sizes, draw_inputs(self.source, sizes, draw.shrunk(factor), self.seed))
            if all(np.all(np.isfinite(a) | ~np.isfinite(b)) for a, b in zip(found.own, found.exact, strict=True)):
                break
        assert found is not None
        return found

    def _evaluated(self, draw: Draw, sizes: Mapping[str, int], inputs: list[Any]) -> Trial:
        import numpy as np

        trial = Trial(draw, sizes, inputs, [], [])
        with np.errstate(all="ignore"):
            exact = trial.evaluate(self.source, FloatDomain(declared=False))
            declared = FloatDomain(declared=True)
            own = trial.evaluate(self.source, declared)
        return replace(trial, exact=exact, own=own, overflowed=declared.overflowed)

    def _sizes_without(self, symbol: str) -> dict[str, int]:
        small = {name: min(size, 3) for name, size in self.sizes.items() if name not in self.source.extents}
        return completed(self.source, {**self.sizes, **small, symbol: 0}, 2, self.fixed)

    def _at_own_sizes(self) -> list[Trial]:
        """Where all static sizes are as they are, if that is little work."""
        sizes = {**self.sizes, **self.source.extents}
        if sizes == self.sizes or work(self.source, sizes) > MAX_WORK:
            return []
        draw = Draw("at the function's own sizes")
        return [self._evaluated(draw, sizes, draw_inputs(self.source, sizes, draw, self.seed))]

    def _unseen(self) -> list[Trial]:
        """NaN and infinities where the source does not look."""
        if not any(value.op == "select" and ops.is_float(value.dtype) for value in self.source.topological()):
            return []
        sizes = completed(self.source, roomy_sizes(self.source, self.sizes), 4, self.fixed)
        inputs = draw_inputs(self.source, sizes, ORDINARY, self.seed)
        blank = Trial(Draw("NaN and infinity where the source does not look"), sizes, inputs, [], [])

        def run(tried: Sequence[Any]) -> list[Any]:
            return replace(blank, inputs=list(tried)).evaluate(self.source, FloatDomain(declared=False))

        hidden = unseen(self.source, inputs, run)
        if hidden is None:
            return []
        return [self._evaluated(blank.draw, sizes, filled(inputs, hidden, self.seed))]


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


def check_sizes(graph: Graph, fixed: Mapping[str, int]) -> dict[str, int]:
    """Small sizes; reduced dims have their real extent where it is not too large. Of four parts the last are empty."""
    reduced = reduced_symbols(graph)
    sizes: dict[str, int] = {}
    for number, symbol in enumerate(symbols_of(graph)):
        extent = graph.extents.get(symbol)
        real = extent is not None and symbol in reduced and extent <= MAX_EXTENT
        sizes[symbol] = extent if real and extent is not None else SMALL[number % len(SMALL)]
    return completed(graph, sizes, 4, fixed)
