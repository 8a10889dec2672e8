"""The programs of one launch: each runs until it has to wait for others, and goes on when it need not any more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttgir_machine import ThreadBlock
from cleave.runtime.ttir_compile import CompiledFunction
from cleave.runtime.ttir_memory import Memory
from cleave.runtime.ttir_memory_rules import Machine
from cleave.runtime.ttir_pauses import Pause, Wait

Place = tuple[int, int, int]


class Programs:
    """The programs of a launch that are still to run, and those that have paused."""

    def __init__(
        self,
        code: CompiledFunction,
        memory: Memory,
        grid: Place,
        places: Iterator[Place],
        values: list[Any],
        seed: int = 0,
    ) -> None:
        self.code, self.memory, self.grid, self.values, self.seed = code, memory, grid, values, seed
        self._rest = places
        self._paused: list[tuple[Place, Iterator[Pause]]] = []

    def start(self, count: int) -> None:
        """Run the first ``count`` programs up to their wait for earlier launches."""
        for place in islice(self._rest, count):
            self._advance(place, self._begin(place), stop_at_wait=True)

    def finish(self) -> None:
        """Run all programs to their end, in order as far as they need not wait for one another."""
        started, self._paused = self._paused, []
        for place, run in started:
            self._advance(place, run)
        for place in self._rest:
            self._advance(place, self._begin(place))
        while self._paused:
            waiting, self._paused = self._paused, []
            moved = [self._advance(place, run) for place, run in waiting]
            if not any(moved):
                place = waiting[0][0]
                note = f"in program {place} of the grid {self.grid}"
                text = f"{len(waiting)} programs wait for others that do not come: their counters stay too small"
                raise CleaveError(text, notes=(note,))

    def _begin(self, place: Place) -> Iterator[Pause]:
        return self.code.start(Machine(self.memory, self.grid, place, ThreadBlock((self.seed, place))), self.values)

    def _advance(self, place: Place, run: Iterator[Pause], *, stop_at_wait: bool = False) -> bool:
        """Whether the program came any further."""
        moved = False
        try:
            with np.errstate(all="ignore"):
                while (pause := next(run, None)) is not None:
                    if stop_at_wait or not isinstance(pause, Wait):
                        self._paused.append((place, run))
                        return moved or pause.moved
                    moved = True
        except CleaveError as error:
            note = f"in program {place} of the grid {self.grid}"
            raise CleaveError(error.message, error.location, (*error.notes, note)) from error
        return True
