"""Where a graph is cut into sections, and which runs of them become kernels, against definitions by enumeration."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise

import pytest
from test_sections import layers

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.dialects.ops import REDUCTIONS, VIEWS
from cleave.schedule.region import Region
from cleave.schedule.rename import Part, viewed
from cleave.schedule.sections import PATIENCE, WIDTH, Effort, Kernels, Sections, finalists_in_sections
from cleave.schedule.structure import structure_of, structure_of_region

# --- cuts -------------------------------------------------------------------------------------------------------------


def unlike(count: int, width: int = 0) -> Graph:
    """So many sections, all of different structure: rows times their sums, another function, ``width`` more ops."""
    b = GraphBuilder("unlike")
    x = b.input("m k=64", "f32")
    for _, name in zip(range(count + 1), ("tanh", "exp", "sin", "cos", "erf", "abs", "neg", "exp2"), strict=False):
        x = getattr(b, name)(b.mul(x, b.reduce(x, kind="sum", over=["k"])))
        for _ in range(width):
            x = b.tanh(x)
    return b.build(x).deduplicated()


def narrowed() -> Graph:
    """Rows of which one in tf32 is all that is left at times."""
    b = GraphBuilder("narrowed")
    x, w = b.input("m k=64", "f32"), b.input("k=64 n=64", "f32")
    for _ in range(3):
        y = b.cast(b.mul(x, b.reduce(x, kind="sum", over=["k"])), dtype="tf32")
        h = b.contract(y, b.cast(b.tanh(w), dtype="tf32"), over=["k"], dtype="f32")
        x = b.tanh(b.rename(h, **{"from": "n", "to": "k=64"}))
    return b.build(x).deduplicated()


def entangled() -> Graph:
    """With views of what is kept, numbers in tf32, which memory has none of, and outputs before the end."""
    b = GraphBuilder("entangled")
    x, w = b.input("m k=64", "f32"), b.input("k=64 n=64", "f32")
    narrow, outputs = b.cast(w, dtype="tf32"), list[Value]()
    for _ in range(3):
        total = b.reduce(b.mul(x, x), kind="sum", over=["k"])
        y = b.cast(b.mul(x, b.rsqrt(total)), dtype="tf32")
        h, u = b.contract(y, narrow, over=["k"], dtype="f32"), b.reduce(b.cast(y, dtype="f32"), kind="max", over=["k"])
        turned = b.rename(h, **{"from": "n", "to": "k=64"})
        x = b.tanh(b.add(b.mul(turned, u), turned))
        outputs.append(turned)
    return b.build(x, outputs[0], b.rename(b.input("m k=64", "f32"), **{"from": "k", "to": "j=64"})).deduplicated()


GRAPHS = {"layers": layers(3), "unlike": unlike(4), "entangled": entangled(), "narrowed": narrowed()}


def weights(graph: Graph, seed: int) -> Callable[[Value], int]:
    """Bytes that make other places the best ones; of values in tf32, every other time, least of all."""
    rng = random.Random(seed)
    found = {value: rng.choice((1, 2, 3, 5, 8)) for value in graph.topological()}
    return lambda value: 1 if value.dtype == "tf32" and seed % 2 else 2 * found[value]


def crossing(graph: Graph, place: int) -> list[Value]:
    """What ops from ``place`` on need of those before, but what follows from no reduction."""
    order = graph.topological()
    computed = [value for value in order if value.op not in VIEWS]
    after = [value for value in order[place:] if value.op not in VIEWS]
    needed = {viewed(operand) for value in after for operand in value.operands}
    reduced = {value for value in order if _follows_from_reduction(value)}
    return [value for value in computed if value in needed & reduced and order.index(value) < place]


def _follows_from_reduction(value: Value) -> bool:
    return value.op in REDUCTIONS or any(map(_follows_from_reduction, value.operands))


def bounds(sections: Sections) -> list[int]:
    return [sections.length(0, last) for last in range(len(sections) + 1)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_cuts(graph: Graph, seed: int) -> None:
    """Each is the end of a stretch of equal loads that is lower than what is beside it, with nothing in tf32."""
    bytes_of, size = weights(graph, seed), len(graph.topological())
    kept = [crossing(graph, place) for place in range(size + 1)]
    loads = [sum(map(bytes_of, values)) for values in kept]
    expected = [0]
    for place in range(1, size):
        lower = next(
            (loads[before] > loads[place] for before in range(place, 0, -1) if loads[before] != loads[place]), 0
        )
        if lower and loads[place + 1] > loads[place] and not any(value.dtype == "tf32" for value in kept[place]):
            expected.append(place)
    assert bounds(Sections(graph, bytes_of)) == [*expected, size]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_sections_compute_all_of_it_once(graph: Graph, seed: int) -> None:
    """From what earlier ones store: all outputs but those that are given, and each reduction in one section only."""
    sections = Sections(graph, weights(graph, seed))
    stored, reductions = list[Value](), list[Value]()
    for number in range(len(sections)):
        part = sections.graph_of(number, number + 1)
        assert set(part.inputs) <= set(stored) and not set(part.outputs) & {*stored, *graph.inputs}
        stored += part.outputs
        reductions += [value for value in part.topological() if value.op in REDUCTIONS and value not in part.inputs]
    assert {viewed(output) for output in graph.outputs} <= {*stored, *graph.inputs}
    assert len(set(reductions)) == len(reductions) == sum(value.op in REDUCTIONS for value in graph.topological())
    last = len(sections)
    needed = {value for place in bounds(sections)[1:-1] for value in crossing(graph, place)}
    assert set(stored) == needed | {viewed(output) for output in graph.outputs} - set(graph.inputs)
    assert set(sections.graph_of(0, last).outputs) == {viewed(output) for output in graph.outputs} - set(graph.inputs)


# --- runs -------------------------------------------------------------------------------------------------------------

Cost = Callable[[int, int], float]


class Chosen:
    """Costs of runs of sections, by their numbers, in place of kernels; what was asked for."""

    def __init__(self, graph: Graph, quick: Cost, fused: Cost = lambda first, last: math.inf) -> None:
        self.sections = Sections(graph, lambda value: 4 * len(value.dims))
        self.costs: Mapping[Effort, Cost] = {"quick": quick, "careful": quick, "fused": fused}
        self.asked: list[tuple[Effort, int, int]] = []
        self.progress: list[str] = []
        count = len(self.sections)
        self.runs = {self._outputs(pair): pair for pair in combinations(range(count + 1), 2)}

    def _outputs(self, pair: tuple[int, int]) -> tuple[tuple[Value, ...], ...]:
        graph = self.sections.graph_of(*pair)
        return graph.inputs, graph.outputs

    def __call__(self, graph: Graph, effort: Effort) -> Sequence[tuple[float, Kernels]]:
        """The best kernel has the time that was said, the second one writes the outputs in two kernels."""
        first, last = self.runs[graph.inputs, graph.outputs]
        self.asked.append((effort, first, last))
        seconds = self.costs[effort](first, last)
        if seconds == math.inf:
            return []
        middle = graph.outputs[0].operands[-1]
        return [(seconds, (graph.outputs,)), (seconds + 1, ((middle,), graph.outputs))]

    def finalists(self) -> list[Kernels]:
        return finalists_in_sections(self.sections, self, self.progress.append)

    def ends(self, runs: Sequence[tuple[int, int]]) -> Kernels:
        return tuple(self.sections.graph_of(*run).outputs for run in runs)


def partitions(count: int) -> Iterator[list[tuple[int, int]]]:
    for cuts in range(count):
        for places in combinations(range(1, count), cuts):
            ends = [0, *places, count]
            yield list(pairwise(ends))


def best(count: int, cost: Cost) -> list[tuple[int, int]]:
    return min(partitions(count), key=lambda runs: sum(cost(*run) for run in runs))


@pytest.mark.parametrize("seed", range(8))
def test_the_shortest_path(seed: int) -> None:
    """Of runs that are all weighed, as they are short; and all second best kernels."""
    rng, graph, table = random.Random(seed), unlike(7), dict[tuple[int, int], float]()
    sections = Chosen(graph, lambda first, last: math.inf).sections
    for first, last in combinations(range(8), 2):
        short = last == first + 1 or (last - first <= PATIENCE + 1 and sections.length(first, last) <= WIDTH)
        table[first, last] = rng.uniform(1, 2) * (last - first) ** 0.6 if short else 50.0
    chosen = Chosen(graph, lambda first, last: table[first, last])
    runs = best(7, lambda first, last: table[first, last])
    first, second = chosen.finalists()
    assert first == chosen.ends(runs) and second[1::2] == first and len(second) == 2 * len(first)


@pytest.mark.parametrize("width", [0, 6])
def test_what_is_weighed(width: int) -> None:
    """So many runs behind the best one for each end, of no more than so many values unless it is one section."""
    graph = unlike(7, width)
    for longest in (1, 2):  # sections in the best runs

        def cost(first: int, last: int, longest: int = longest) -> float:
            return 1.0 if last - first <= longest else 100.0

        chosen = Chosen(graph, cost)
        chosen.finalists()
        expected = list[tuple[int, int]]()
        for last in range(1, 8):
            totals = list[float]()
            for first in range(last - 1, -1, -1):
                wide = totals and chosen.sections.length(first, last) > WIDTH
                if wide or (totals and totals.index(min(totals)) < len(totals) - PATIENCE):
                    break
                before = best(first, cost) if first else []
                totals.append(sum(cost(*run) for run in before) + cost(first, last))
                expected.append((first, last))
        asked = [run for effort, *run in chosen.asked if effort == "quick"]
        assert sorted(map(tuple, asked)) == sorted(expected)


def test_two_runs_in_one_kernel() -> None:
    """As long as that is faster than both, again and again; what was found so is not weighed again."""
    chosen = Chosen(unlike(7), lambda first, last: float(last - first) ** 2, lambda first, last: (last - first) ** 0.9)
    first, _ = chosen.finalists()
    assert first == chosen.ends([(0, 7)])
    fused = [(first, last) for effort, first, last in chosen.asked if effort == "fused"]
    assert fused == [(0, 2), (2, 4), (4, 6), (0, 4), (4, 7), (0, 7)]
    assert "careful" not in [effort for effort, *_ in chosen.asked]


@pytest.mark.parametrize("factor", [0.99, 1.0])
def test_two_runs_that_are_no_faster_stay_two(factor: float) -> None:
    cost: Cost = lambda first, last: float(last - first) ** 2  # noqa: E731
    chosen = Chosen(unlike(2), cost, lambda first, last: 2.0 * factor)
    first, second = chosen.finalists()
    assert first == chosen.ends([(0, 2)] if factor < 1 else [(0, 1), (1, 2)]) and second != first
    careful = [run for effort, *run in chosen.asked if effort == "careful"]
    assert careful == ([] if factor < 1 else [[0, 1], [1, 2]])


def test_sections_without_kernels_of_their_own() -> None:
    """They are taken with others, however wide that is; without any, nothing is found."""
    graph = unlike(4, 20)
    chosen = Chosen(graph, lambda first, last: 1.0 if (first, last) in ((0, 1), (1, 4)) else math.inf)
    assert chosen.sections.length(2, 4) > WIDTH
    first, _ = chosen.finalists()
    assert first == chosen.ends([(0, 1), (1, 4)])
    assert Chosen(graph, lambda first, last: math.inf).finalists() == []


def test_one_section_is_none() -> None:
    chosen = Chosen(unlike(1), lambda first, last: 1.0)
    assert len(chosen.sections) == 1 and chosen.finalists() == [] and not chosen.asked


def test_one_choice_is_one() -> None:
    """Where there is no second best."""
    chosen = Chosen(unlike(2), lambda first, last: float(last - first) ** 2)
    only = finalists_in_sections(chosen.sections, lambda graph, effort: chosen(graph, effort)[:1], lambda text: None)
    assert only == [chosen.ends([(0, 1), (1, 2)])]


# --- structure --------------------------------------------------------------------------------------------------------


def computed(
    scale: float = 2.0,
    op: str = "mul",
    dtype: str = "f32",
    *,
    to: str = "f32",
    swapped: bool = False,
    other: int = 0,
    two: bool = False,
) -> tuple[tuple[Value, ...], frozenset[Value]]:
    b = GraphBuilder("computed")
    inputs = [b.input("m k=64", dtype) for _ in range(other + 2)]
    x, y = inputs[other:]
    kept = b.exp(x)
    left, right = (y, kept) if swapped else (kept, y)
    result = getattr(b, op)(left, b.div(right, b.constant(scale, dtype)))
    result = b.cast(result, dtype=to)
    return ((result, kept) if two else (result,)), frozenset((kept,))


def test_what_has_the_same_structure() -> None:
    """Whichever inputs, and whatever the values in memory were computed of; corresponding values in one order."""
    (one, order), (same, others) = structure_of(*computed()), structure_of(*computed(other=3))
    assert one == same and [value.op for value in order] == [value.op for value in others]
    b = GraphBuilder("other")
    x, y = b.input("m k=64", "f32"), b.input("m k=64", "f32")
    kept = b.tanh(b.neg(x))
    result = b.cast(b.mul(kept, b.div(y, b.constant(2.0, "f32"))), dtype="f32")
    assert structure_of((result,), frozenset((kept,)))[0] == one
    two, _ = structure_of(*computed(two=True))
    assert two != one and structure_of(*computed(two=True, other=1))[0] == two


def test_what_has_another_structure() -> None:
    different = [
        computed(),
        computed(scale=3.0),
        computed(op="add"),
        computed(dtype="f16"),
        computed(to="f16"),
        computed(to="bf16"),
        computed(swapped=True),
        computed(two=True),
        (computed(two=True)[0][::-1], frozenset[Value]()),
        (computed(two=True)[0], frozenset[Value]()),
    ]
    found = [structure_of(*each)[0] for each in different]
    assert len(set(found)) == len(found)


def test_what_is_in_memory_and_nothing_else() -> None:
    (_, kept), memory = computed(two=True)
    assert structure_of((kept,), memory)[1] == [kept]


def test_regions_whose_kernels_differ() -> None:
    """In the order of what they read, in what they write, in the parts that dims have."""
    b = GraphBuilder("regions")
    x, y = b.input("m k=64", "f32"), b.input("m k=64", "f32")
    z = b.sub(x, y)
    renamed = b.rename(z, **{"from": "k", "to": "j=64"})
    part = Part("m", z.dims[1].size)
    regions = [
        Region((z,), (z,), (x, y), {}, {}),
        Region((z,), (z,), (y, x), {}, {}),
        Region((renamed,), (z,), (x, y), {}, {}),
        Region((z,), (z,), (x, y), {}, {"k": part}),
    ]
    assert len({structure_of_region(region) for region in regions}) == len(regions)
    assert structure_of_region(regions[0]) == structure_of_region(Region((z,), (z,), (x, y), {}, {}))
