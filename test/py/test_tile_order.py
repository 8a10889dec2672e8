"""The order of dims in computed tiles."""

from __future__ import annotations

import itertools

import graphs
import pytest

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.schedule.emit import emit_kernel
from cleave.schedule.region import region_of
from cleave.schedule.tile_order import TileOrder, tile_order
from cleave.schedule.tiling import Fusion, Tiling


def reductions(graph: Graph) -> list[Value]:
    return [value for value in graph.topological() if value.op in ("contract", "reduce")]


def order_of(graph: Graph, *last: str) -> list[str]:
    return tile_order(reductions(graph), frozenset(last)).of(("e", "n", "m", "d"))


@pytest.mark.parametrize("last", [(), ("m",)])
def test_attention(last: tuple[str, ...]) -> None:
    """Rows, what is summed, columns: of both products at once, be the rows the queries' or the keys'."""
    order = order_of(graphs.causal_attention(), *last)
    expected = [("m", "d"), ("d", "n"), ("m", "n"), ("n", "e"), ("m", "e")]
    if last:
        expected = [("n", "d"), ("d", "m"), ("n", "m"), ("e", "n"), ("e", "m")]
    assert all(order.index(one) < order.index(other) for one, other in expected)


def test_orders_that_contradict_one_another() -> None:
    """The first one holds; every set of dims has one order, whatever order it is given in."""
    b = GraphBuilder("both")
    x, y, z = b.input("m k", "f16"), b.input("k n", "f16"), b.input("n j", "f16")
    w = b.input("m j", "f16")
    first = b.contract(x, y, over=["k"])
    second = b.contract(b.cast(b.contract(z, w, over=["j"]), dtype="f32"), first, over=["n"])
    order = tile_order(reductions(b.build(first, second)), frozenset())
    for names in itertools.permutations("mnkj"):
        assert order.of(names) == order.of("mnkj")
    assert order.of("nm") == ["m", "n"]


def weighted_sum() -> Graph:
    """What combines the parts of a split: none of its operands has dims that another one has not."""
    b = GraphBuilder("combine")
    x, w = b.input("s m e", "f32"), b.input("s m", "f32")
    top = b.reduce(w, kind="max", over=["s"])
    return b.build(b.contract(x, b.exp(b.sub(w, top)), over=["s"]))


def test_without_products_what_is_summed_lies_within_threads() -> None:
    """Of [s, m, e] and of [m, s, e] Triton gives the first dim to warps; loads have the same order."""
    graph = weighted_sum()
    order = tile_order(reductions(graph), frozenset())
    assert order.loads and order.of("sme") == ["m", "s", "e"] and order.of("sm") == ["m", "s"]
    region = region_of(graph.outputs, frozenset(), {})
    kernel = emit_kernel("combine", region, Tiling({"m": 8, "e": 128}, {"s": 4}), {}, Fusion()).kernel
    assert {i.result.names for i in kernel.body.walk() if i.op == "load"} == {("m", "s", "e"), ("m", "s")}


def test_neighbours_that_are_summed_stay_last() -> None:
    b = GraphBuilder("sums")
    x = b.input("k b n", "f32")
    order = tile_order([b.reduce(x, kind="sum", over=["k", "n"])], frozenset())
    assert order.of("kbn") == ["b", "k", "n"]


def test_dims_of_no_contraction_keep_their_places() -> None:
    order = TileOrder({"m": 0, "n": 1}, frozenset("c"))
    assert order.of(("n", "x", "m")) == ["m", "x", "n"]
    assert order.of(("c", "n", "m", "y")) == ["m", "n", "y", "c"]
    assert TileOrder().of(("b", "a")) == ["b", "a"]
