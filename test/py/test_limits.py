"""What bounds a search: counts, whatever the clock says; each is named where it is reached."""

from __future__ import annotations

import time
from itertools import count

import pytest
from search_programs import PROGRAMS

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.search import SearchOptions, limits, superoptimise


def square_layers(number: int) -> Graph:
    """x·W·W'·…, all of one symbol, each product rounded: sums nested as deep as there are layers."""
    b = GraphBuilder("chain")
    x = b.input("m k", "f16")
    for _ in range(number):
        x = b.contract(x, b.input("k n=k", "f16"), over=["k"], dtype="f16")
        x = b.rename(x, **{"from": "n", "to": "k"})
    return b.build(x)


def matmul_chain(number: int) -> Graph:
    b = GraphBuilder("chain")
    x = b.input("a0 a1", "f16")
    for i in range(1, number + 1):
        x = b.contract(x, b.input(f"a{i} a{i + 1}", "f16"), over=[f"a{i}"], dtype="f16")
    return b.build(x)


def sums_of_sums(number: int) -> Graph:
    b = GraphBuilder("sums")
    x: Value = b.input("m k", "f32")
    for _ in range(number):
        x = b.mul(b.add(x, b.input("m k", "f32")), b.reduce(x, kind="sum", over=["k"]))
    return b.build(x)


def work_of(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> int:
    """Products of the algebra, all together."""
    counted: list[int] = []
    space = limits.Limits.space
    monkeypatch.setattr(limits.Limits, "space", lambda self, n, work: counted.append(work) or space(self, n, work))
    assert superoptimise(graph, SearchOptions()).statistics.complete
    return max(counted)


def test_nested_sums_take_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is replaced inside a nest of sums is replaced once at each level."""
    work = [work_of(square_layers(number), monkeypatch) for number in (8, 16)]
    assert work[1] < 3 * work[0] < 1000


def test_a_chain_of_matmuls_ends() -> None:
    result = superoptimise(matmul_chain(16), SearchOptions(split=False))
    assert result.statistics.complete and len(result.alternatives) > 1
    assert result.statistics.candidates < 20


@pytest.mark.parametrize(
    ("bound", "value", "text"),
    [
        ("MAX_WORK", 100, "the algebra has taken 100 steps"),
        ("MAX_CHECKS", 1, "1 programs are checked"),
    ],
)
def test_counts_stop_it(monkeypatch: pytest.MonkeyPatch, bound: str, value: int, text: str) -> None:
    monkeypatch.setattr(limits, bound, value)
    results = [superoptimise(PROGRAMS["qk_norm"]()) for _ in range(2)]
    assert [r.statistics.stopped for r in results] == [[text]] * 2
    assert len(results[0].alternatives) == len(results[1].alternatives) >= 1
    assert all(a.certificate.floats for r in results for a in r.alternatives[1:])


def test_classes_stop_it() -> None:
    result = superoptimise(sums_of_sums(3), SearchOptions(max_classes=50))
    assert result.statistics.stopped == ["it has 50 classes (max-classes)"]


def test_the_clock_stops_it_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that passes while the spaces grow: what is known by then is checked still, until one passes."""
    seconds = count(time.monotonic())
    monkeypatch.setattr(limits.time, "monotonic", lambda: next(seconds))
    result = superoptimise(PROGRAMS["attention"](), SearchOptions(time_limit=20.0))
    (why,) = result.statistics.stopped
    assert why == "20 s are over (time-limit), another run may find more or less"
    assert len(result.alternatives) == 2
