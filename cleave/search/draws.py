"""Inputs for the float checks that are meant to hurt: large, shifted, wide-ranged, masked, extreme, empty."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from cleave.dialects.dims import Answer, sym
from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import is_float
from cleave.search.check_sizes import reduced_symbols
from cleave.search.float_domain import round_to
from cleave.search.interpret import Unsupported

MAX_ELEMENTS = 1 << 21
FAR = 1e25  # its square leaves f32's range: what divides by a maximum before it squares does so for this
BOTH = 1e6  # two inputs at once: a product of both squared stays in range
MEANS = (1e2, 1e3, 1e4)  # relative to the spread
MAX_PAIRS = 3
_WIDE = ("f32", "bf16", "f64")


@dataclass(frozen=True)
class Draw:
    """A way to fill float inputs with normal numbers times ``scale`` plus ``mean``.

    ``scales`` and ``means``: for single inputs, the others being ordinary; ``spread``: decades over which magnitudes
    vary; ``masked`` puts -inf into inputs that are only added; ``empty`` is a symbol that is 0.
    """

    name: str
    scale: float = 1.0
    mean: float = 0.0
    spread: float = 0.0
    masked: bool = False
    scales: Mapping[int, float] = field(default_factory=dict[int, float])
    means: Mapping[int, float] = field(default_factory=dict[int, float])
    empty: str | None = None

    @property
    def is_exact(self) -> bool:
        """Whether programs must agree in f64: not where its own rounding shows."""
        return not (self.spread or self.mean or self.scales or self.means)

    def shrunk(self, factor: float) -> Draw:
        return Draw(
            self.name,
            self.scale * factor,
            self.mean * factor,
            self.spread,
            self.masked,
            {index: scale * factor for index, scale in self.scales.items()},
            self.means,
            self.empty,
        )


ORDINARY = Draw("ordinary")
DRAWS = (
    ORDINARY,
    Draw("large logits", scale=40.0),
    Draw("large mean", scale=1.0, mean=100.0),
    Draw("f16 range", scale=1.0, spread=4.0),
    Draw("masked", masked=True),
)


def draws(source: Graph) -> Iterator[Draw]:
    """All draws for a source."""
    yield from (draw for draw in DRAWS if not draw.masked or mask_inputs(source))
    yield from _extremes([value.attrs["index"] for value in source.inputs if value.dtype in _WIDE])
    for index in centred_inputs(source):
        yield from (Draw(f"input {index} mean {mean:g}", means={index: mean}) for mean in MEANS)
    for symbol in possibly_empty(source):
        yield Draw(f"{symbol} = 0", empty=symbol)
        yield Draw(f"{symbol} = 0, large", scale=100.0, empty=symbol)
        yield Draw(f"{symbol} = 0, all zero", scale=0.0, empty=symbol)


def _extremes(wide: list[int]) -> Iterator[Draw]:
    """Each input of wide range very large and very small, then two at once: one each way, and both the same way."""
    words = {FAR: "large", 1 / FAR: "small"}
    for index in wide:
        yield from (Draw(f"input {index} {word}", scales={index: scale}) for scale, word in words.items())
    for a, b in list(combinations(wide, 2))[:MAX_PAIRS]:
        for first, second in ((FAR, 1 / FAR), (1 / FAR, FAR), (BOTH, BOTH), (1 / BOTH, 1 / BOTH)):
            yield Draw(f"inputs {a} and {b} by {first:.0e} and {second:.0e}", scales={a: first, b: second})


def mask_inputs(graph: Graph) -> list[int]:
    """Float inputs that are only ever added to something: what -inf goes into."""
    users = graph.users()
    return [
        value.attrs["index"]
        for value in graph.inputs
        if users[value]
        and is_float(value.dtype)
        and value.dims
        and all(
            user.op == "add" or (user.op == "cast" and all(u.op == "add" for u in users[user])) for user in users[value]
        )
    ]


def centred_inputs(graph: Graph) -> dict[int, str]:
    """Float inputs from which something made of their own sum along a dim is subtracted, and the dim."""
    inputs: dict[Value, frozenset[int]] = {}
    sums: dict[Value, frozenset[tuple[int, str]]] = {}
    found: set[tuple[int, str]] = set()
    for value in graph.topological():
        inputs[value] = frozenset().union(*(inputs[operand] for operand in value.operands))
        sums[value] = frozenset().union(*(sums[operand] for operand in value.operands))
        if value.op == "input" and is_float(value.dtype):
            inputs[value] = frozenset((value.attrs["index"],))
        if value.op == "contract" or (value.op == "reduce" and value.attrs["kind"] == "sum"):
            sums[value] |= {(i, n) for i in inputs[value] for n in value.attrs["over"] if n in graph.inputs[i].names}
        if value.op == "sub":
            a, b = value.operands
            found |= {(index, dim) for index, dim in sums[b] - sums[a] if index in inputs[a]}
    return dict(sorted(found, reverse=True))


def possibly_empty(graph: Graph) -> list[str]:
    """Symbols of reduced dims that may be 0, by the facts and by what the program requires."""
    facts = graph.requirements()
    symbols = {s for symbol in reduced_symbols(graph) for s in facts.simplify(sym(symbol)).symbols}
    return [s for s in sorted(symbols - graph.extents.keys()) if facts.less_equal(1, sym(s)) is not Answer.YES]


def draw_inputs(graph: Graph, sizes: Mapping[str, int], draw: Draw, seed: int) -> list[Any]:
    """Arrays for the inputs, representable in their types. Integers are small and valid as positions."""
    import numpy as np

    masked = set(mask_inputs(graph)) if draw.masked else set[int]()
    arrays: list[Any] = []
    for number, value in enumerate(graph.inputs):
        random = np.random.default_rng([seed, number, zlib.crc32(draw.name.encode())])
        shape = tuple(dim.size.evaluate(sizes) for dim in value.dims)
        if int(np.prod(shape)) > MAX_ELEMENTS:
            raise Unsupported("an input is too large to check")
        if not is_float(value.dtype):
            array = random.integers(0, 2, size=shape)
            arrays.append(array.astype(bool) if value.dtype == "i1" else array)
            continue
        array = random.standard_normal(shape) * draw.scales.get(number, draw.scale) + draw.means.get(number, draw.mean)
        if draw.spread:
            array = array * 10.0 ** random.uniform(-draw.spread, draw.spread / 2, size=shape)
        if number in masked:
            array = np.where(random.random(shape) < 0.4, -np.inf, array)
        arrays.append(round_to(array, value.dtype))
    return arrays
