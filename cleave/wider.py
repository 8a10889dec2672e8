"""A function for the row-major tensors around arguments, in each of a few ways in which arguments lie in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cleave.runtime.call import Operands
from cleave.runtime.pitched import Layouts, generality

if TYPE_CHECKING:
    from cleave.function import Function

MOST = 16
"""Ways for which a function is compiled; what lies otherwise is copied."""


class Wider:
    """Usable from several threads. ``make``: the function for some layouts; None where there is none.

    What a known function takes it is given. Beside one with the same order of dims, the next is made for the padding of
    both, so that there are as many of an order as it has dims, at most.
    """

    def __init__(self, make: Callable[[Layouts], Function | None]) -> None:
        self._make = make
        self._known: dict[Layouts, Function | None] = {}
        self._lock = threading.RLock()

    def __call__(self, operands: Operands) -> tuple[Function, Operands] | None:
        """The function that takes such operands, and these as it takes them; None where they are to be copied."""
        with self._lock:
            if function := self.of(operands.layouts, known=True):
                return function, operands
            for layouts, function in sorted(self.known.items(), key=lambda item: generality(item[0])):
                if fitting := operands.lying(layouts):
                    return function, fitting
            if operands.layouts in self._known or len(self._known) >= MOST:
                return None
            layouts = self._joined(operands.layouts)
            function, fitting = self.of(layouts), operands.lying(layouts)
            return (function, fitting) if function and fitting else None

    def of(self, layouts: Layouts, *, known: bool = False) -> Function | None:
        """The function for these layouts; ``known``: if it is there already."""
        with self._lock:
            if layouts not in self._known and not known:
                self._known[layouts] = self._make(layouts)
            return self._known.get(layouts)

    @property
    def known(self) -> Mapping[Layouts, Function]:
        """Those that were made."""
        with self._lock:
            return {layouts: function for layouts, function in self._known.items() if function}

    def _joined(self, layouts: Layouts) -> Layouts:
        """For these and for all that are known with the same orders."""
        for other in self.known:
            if _orders(other) == _orders(layouts):
                pairs = zip(layouts, other, strict=True)
                layouts = tuple((number, pitched.joined(more)) for (number, pitched), (_, more) in pairs)
        return layouts


def _orders(layouts: Layouts) -> list[tuple[int, tuple[int, ...]]]:
    return [(number, pitched.order) for number, pitched in layouts]
