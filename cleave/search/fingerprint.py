"""Equality tested at random points of a pair of prime fields, apart from the normal form and all of its laws."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import starmap
from typing import Any, NamedTuple

from cleave.dialects.graph import Graph
from cleave.dialects.tensor_type import is_float
from cleave.search.certificate import Fingerprint
from cleave.search.check_sizes import completed, reduced_symbols, sizes_of, symbols_of, work
from cleave.search.fields import UNDEFINED, Element, FieldDomain, P, Q, array_of
from cleave.search.interpret import Interpreter, Memo, Unsupported

SAMPLES = 2
MAX_TRIES = 6
DEGREE = 1 << 20  # programs of a higher degree do not occur at these sizes
SIZES = (2, 3, 4, 5, 6, 7)
MAX_WORK = 60_000
BITS = P.bit_length()  # P and Q are just below powers of two, so that many random bits are as good as uniform


class Point(NamedTuple):
    """Random inputs, the source's outputs there, and what has been evaluated there."""

    inputs: list[Any]
    outputs: list[Any]
    memo: Memo


class FingerprintChecker:
    """Compares alternatives with one source at the same points."""

    def __init__(self, source: Graph, seed: int, fixed: Mapping[str, int]) -> None:
        """``fixed`` has the symbols whose static extent the normal form relies on."""
        self.source, self.seed, self.fixed = source, seed, fixed
        self.sizes: dict[str, int] = {}
        self._points: list[Point] | None = None

    def _sizes(self) -> dict[str, int]:
        """Distinct sizes while the work allows it, else the smallest ones twice."""
        symbols = symbols_of(self.source)
        sizes: dict[str, int] = {}
        for largest in range(len(SIZES), 1, -1):
            sizes = self._completed({symbol: SIZES[i % largest] for i, symbol in enumerate(symbols)})
            if work(self.source, sizes) <= MAX_WORK:
                return sizes
        raise Unsupported("too much work for prime fields")

    def _completed(self, sizes: dict[str, int]) -> dict[str, int]:
        return completed(self.source, sizes, 2, self.fixed)

    def _smallest(self) -> dict[str, int]:
        """Reduced dims short, so that all elements of some reduction have the roots that are needed."""
        reduced = reduced_symbols(self.source)
        return self._completed({symbol: 2 if symbol in reduced else 3 for symbol in symbols_of(self.source)})

    def check(self, graph: Graph) -> tuple[Fingerprint | None, str]:
        """The fingerprint, or None and where the programs differ."""
        points = self.reference()
        compared = 0
        for inputs, expected, memo in points:
            outputs = Interpreter(FieldDomain(), self.sizes, memo).run(graph, inputs)
            for number, (output, reference) in enumerate(zip(outputs, expected, strict=True)):
                pairs = zip(output.ravel(), reference.ravel(), strict=True)
                defined = [pair for pair in pairs if UNDEFINED not in pair]
                if not all(starmap(same, defined)):
                    return None, f"output {number} differs at a random point of the prime fields"
                compared += len(defined)
        note = "" if compared else "no point where both are defined: nested exponentials or roots"
        samples = len(points) if compared else 0
        bound = (DEGREE / P) ** samples if samples else 1.0
        return Fingerprint(P, Q, self.seed, samples, sizes_of(self.sizes, self.source, graph), bound, note), ""

    def reference(self) -> list[Point]:
        """Points where something of the source is defined."""
        if self._points is None:
            self.sizes = self._sizes()
            self._points = self._draw_points(MAX_TRIES)
            if not self._points:
                self.sizes = self._smallest()
                self._points = self._draw_points(10 * MAX_TRIES)
        return self._points

    def _draw_points(self, tries: int) -> list[Point]:
        points: list[Point] = []
        for attempt in range(tries):
            inputs = draw(self.source, self.sizes, f"{self.seed}:{attempt}")
            memo = Memo()
            outputs = Interpreter(FieldDomain(), self.sizes, memo).run(self.source, inputs)
            if any(element is not UNDEFINED for output in outputs for element in output.ravel()):
                points.append(Point(inputs, outputs, memo))
            if len(points) == SAMPLES:
                break
        return points


def same(one: Any, other: Any) -> bool:
    """Equal in all that both sides know."""
    if isinstance(one, Element) and isinstance(other, Element):
        return one.a == other.a and (one.b is None or other.b is None or one.b == other.b)
    return one is other or one == other


def draw(graph: Graph, sizes: Mapping[str, int], seed: str) -> list[Any]:
    """Random elements for float inputs; small integers and booleans for the others."""
    rng = random.Random(seed)
    arrays: list[Any] = []
    for value in graph.inputs:
        shape = tuple(dim.size.evaluate(sizes) for dim in value.dims)
        count = 1
        for extent in shape:
            count *= extent
        if is_float(value.dtype):
            items: list[Any] = [random_element(rng, value.dtype) for _ in range(count)]
        elif value.dtype == "i1":
            items = [bool(rng.getrandbits(1)) for _ in range(count)]
        else:
            items = [rng.randrange(2) for _ in range(count)]
        arrays.append(array_of(items, shape))
    return arrays


def random_element(rng: random.Random, held: str = "") -> Element:
    """Any element; its real is positive where the first part is a square, as roots and absolute values take it."""
    root, b, real = rng.getrandbits(BITS) % P, rng.getrandbits(BITS - 1) % Q, rng.gauss(0.0, 1.0)
    square = root * root % P  # of a number and its opposite, one is a square: P is 3 mod 4
    return Element(square if real > 0 else -square % P, b, real, held)
