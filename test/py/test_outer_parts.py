"""Reductions over the parts of a split, and parts under other names, against the reference executor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from compiled import compile_graph, reference

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.schedule.region import region_of
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.tilings import space_of


def assert_right(graph: Graph, shapes: Sequence[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    (out,), (wanted,) = compile_graph(graph, {"m": 16, "n": 64})(inputs), reference(graph, inputs, "f64")
    assert out.shape == wanted.shape
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("into", ["h=3 q=16", "h=1 q=48", "h=48 q=1"])
@pytest.mark.parametrize("over", ["h", "h m", "q h"])
def test_all_parts_are_as_long(into: str, over: str) -> None:
    """The elements inside parts may be in hand before the part is."""
    b = GraphBuilder("f")
    s = b.split(b.input("m n=48", "f32"), dim="n", into=into.split())
    graph = b.build(b.reduce(b.exp(s), kind="sum", over=over.split()))
    for rows in (1, 5, 33):
        assert_right(graph, [(rows, 48)])


def test_of_all_parts_the_largest_is_subtracted() -> None:
    b = GraphBuilder("f")
    s = b.split(b.input("n=60 m", "f32"), dim="n", into=["h=4", "q=15"])
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["h"])))
    assert_right(b.build(b.reduce(e, kind="sum", over=["h"])), [(60, 7)])


@pytest.mark.parametrize("inner", ["q=ceildiv(n,3)", "q=5"])
@pytest.mark.parametrize("old", ["h", "q"])
def test_uneven_parts_under_another_name_end_where_they_do(old: str, inner: str) -> None:
    """Nothing is read past the end, which the interpreter would refuse."""
    b = GraphBuilder("f")
    outer = "h=3" if "3" in inner else "h=ceildiv(n,5)"
    s = b.split(b.input("m n", "f32"), dim="n", into=[outer, inner])
    renamed = b.op("rename", s, from_=old, to=f"z={s.size(old)}")
    name = "z" if old == "q" else "q"
    graph = b.build(b.reduce(b.exp(renamed), kind="sum", over=[name]))
    for size in (1, 7, 13, 15):
        assert_right(graph, [(3, size)])


def test_a_block_goes_through_one_part_at_a_time() -> None:
    """Of an output over parts that the kernel also reduces: rows that are gone through in tiles are no parts."""
    b = GraphBuilder("f")
    s = b.split(b.input("m n", "f32"), dim="n", into=["h=3", "q=ceildiv(n,3)"])
    top = b.reduce(b.reduce(s, kind="max", over=["q"]), kind="max", over=["h"])
    graph = b.build(b.div(b.exp(s), b.add(b.abs(top), b.constant(1.5, "f32"))))
    region = region_of(graph.outputs, frozenset(), {})
    assert not space_of(region, dict.fromkeys(region.sizes, 16)).rows
    sums = b.build(b.reduce(b.reduce(graph.outputs[0], kind="sum", over=["q"]), kind="sum", over=["h"]))
    for size in (1, 7, 13, 15):
        assert_right(sums, [(3, size)])


def test_uneven_parts_of_which_several_are_met_are_refused() -> None:
    b = GraphBuilder("f")
    s = b.split(b.input("m n", "f32"), dim="n", into=["h=3", "q=ceildiv(n,3)"])
    both = b.mul(s, b.op("rename", s, from_="h", to="g=3"))
    with pytest.raises(CleaveError, match="'q' inside the parts 'h' and 'g' cannot be scheduled yet"):
        schedule(b.build(b.reduce(both, kind="sum", over=["q"])).deduplicated(), ScheduleOptions())
    graph = b.build(b.reduce(s, kind="sum", over=["h"]))
    with pytest.raises(CleaveError, match=r"reducing 'h' before 'q'.*\nnote: unless all parts have as many: n = h\*q"):
        schedule(graph.deduplicated(), ScheduleOptions())


def test_a_dim_held_whole_is_summed_behind_a_maximum_that_has_it() -> None:
    """Such a sum is not corrected while the maximum grows: it has a loop of its own."""
    b = GraphBuilder("f")
    v = b.mul(b.input("h q m", "f32"), b.input("g=4 q m", "f32"))
    less = b.sub(v, b.reduce(v, kind="max", over=["h"]))
    for over in (["h", "g"], ["g", "h"]):
        assert_right(b.build(b.reduce(less, kind="sum", over=over)), [(9, 3, 5), (4, 3, 5)])
