"""What float programs are tried on: draws of inputs, with what the source makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import is_float
from cleave.errors import CleaveError
from cleave.search.check_sizes import completed, reduced_symbols, symbols_of, work
from cleave.search.draws import ORDINARY, Draw, draw_inputs, draws
from cleave.search.float_domain import FloatDomain
from cleave.search.interpret import Interpreter, Memo, Unsupported
from cleave.search.unseen import filled, roomy_sizes, unseen

SMALL = (5, 3, 7, 4, 6, 9, 2, 8, 11, 10, 13, 12)
MAX_EXTENT = 512  # reduced dims are tried at their own size up to this
MAX_WORK = 1 << 22  # elements computed, up to which there is a trial at all of the function's own sizes
LONG = (128, 64, 32)  # extents that show how errors add up: the first that is little work
LONG_WORK = 1 << 20  # elements computed where one dim is long
ENOUGH = 96  # elements of each output, from which errors are judged by more than chance
_SCALES, _SCALED = (1 / 64, 64.0), 4  # of single inputs, and of how many
_TELLING = 0.25  # of all elements
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
        import numpy as np

        with np.errstate(all="ignore"):  # draws have infinities and NaN on purpose
            return Interpreter(domain, self.sizes, self.memos[domain.declared]).run(graph, self.inputs)


class Trials:
    """All trials of one source, made once. ``fixed`` has the symbols whose static extent the normal form relies on."""

    def __init__(self, source: Graph, seed: int, fixed: Mapping[str, int]) -> None:
        self.source, self.seed, self.fixed = source, seed, fixed
        self.sizes = check_sizes(source, fixed)
        self._all: list[Trial] | None = None
        self._long: list[list[Trial]] | None = None

    def all(self) -> list[Trial]:
        """All draws on which the source can be evaluated; those at other sizes than the first are left out if not."""
        if self._all is None:
            made = [self._trial(draw) for draw in draws(self.source) if draw.empty is None]
            for draw in draws(self.source):
                if draw.empty is not None:
                    made.extend(self._optional(draw))
            self._all = [*made, *self._at_own_sizes(), *self._unseen()]
        return self._all

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
        trial, declared = Trial(draw, sizes, inputs, [], []), FloatDomain(declared=True)
        exact = trial.evaluate(self.source, FloatDomain(declared=False))
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
        if not any(value.op == "select" and is_float(value.dtype) for value in self.source.topological()):
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

    def long(self) -> list[list[Trial]]:
        """For each reduced dim that is not at its own size anyway: ordinary inputs where it is long, as many as make
        enough elements of each output.

        How errors add up shows only there, and errors of few elements differ by chance.
        """
        if self._long is None:
            symbols = [s for s in sorted(reduced_symbols(self.source)) if s in self.sizes and not self._is_real(s)]
            self._long = [trials for symbol in symbols if (trials := self._long_in(symbol))]
        return self._long

    def _is_real(self, symbol: str) -> bool:
        return symbol in self.fixed or self.sizes[symbol] == self.source.extents.get(symbol)

    def _long_in(self, symbol: str) -> list[Trial]:
        """None where it is much work at every extent."""
        for extent in LONG:
            sizes = completed(self.source, {**self.sizes, symbol: extent}, 4, self.fixed)
            fewest = min(_elements(output, sizes) for output in self.source.outputs)
            count = -(-ENOUGH // max(1, fewest))
            if count * work(self.source, sizes) <= LONG_WORK:
                return self._telling([f"long {symbol}, {number}" for number in range(count)], sizes)
        return []

    def _telling(self, names: Sequence[str], sizes: Mapping[str, int]) -> list[Trial]:
        """Normal inputs of scales at which roundings reach the outputs, if some of those tried do: where a comparison
        hides what was computed, say because a sum of squares is always larger, all programs would seem to be right."""
        wide = [value.attrs["index"] for value in self.source.inputs if is_float(value.dtype)][:_SCALED]
        ways = [{}, *({index: scale} for scale in _SCALES for index in wide)]
        tried = (self._ordinary(names, sizes, scales) for scales in ways)
        first = next(tried)
        return first if _tells(first) else next(filter(_tells, tried), first)

    def _ordinary(self, names: Sequence[str], sizes: Mapping[str, int], scales: Mapping[int, float]) -> list[Trial]:
        draws = [Draw(name, scales=scales) for name in names]
        return [self._evaluated(draw, sizes, draw_inputs(self.source, sizes, draw, self.seed)) for draw in draws]


def check_sizes(graph: Graph, fixed: Mapping[str, int]) -> dict[str, int]:
    """Small sizes; reduced dims have their real extent where it is not too large. Of four parts the last are empty."""
    reduced = reduced_symbols(graph)
    sizes: dict[str, int] = {}
    for number, symbol in enumerate(symbols_of(graph)):
        extent = graph.extents.get(symbol)
        real = extent is not None and symbol in reduced and extent <= MAX_EXTENT
        sizes[symbol] = extent if real and extent is not None else SMALL[number % len(SMALL)]
    return completed(graph, sizes, 4, fixed)


def _tells(trials: Sequence[Trial]) -> bool:
    """Whether a good part of the source's elements are rounded ones."""
    import numpy as np

    pairs = [pair for trial in trials for pair in zip(trial.own, trial.exact, strict=True)]
    rounded = sum(int(np.sum(own != exact)) for own, exact in pairs)
    return rounded >= _TELLING * sum(own.size for own, _ in pairs)


def _elements(value: Value, sizes: Mapping[str, int]) -> int:
    return math.prod(dim.size.evaluate(sizes) for dim in value.dims)
