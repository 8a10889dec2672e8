"""Contractions over dims that no tile covers exactly: in which parts they are done, and what comes of it."""

from __future__ import annotations

import pytest
from test_divided_columns import latent_attention
from test_warp_specialised import lowered, run

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.lowering.targets import TTGIR_TARGET
from cleave.schedule.depth_parts import in_whole_tiles


def attention(head: int, dtype: str = "f32") -> Graph:
    """Scores of this type."""
    b = GraphBuilder("attention")
    q, k, v = b.input(f"h m d={head}", "f16"), b.input(f"h n d={head}", "f16"), b.input("h n e=64", "f16")
    scores = b.mul(b.contract(q, k, over=["d"], dtype=dtype), b.constant(0.07, dtype))
    scores = b.cast(scores, dtype="f32") if dtype != "f32" else scores
    e = b.exp(b.sub(scores, b.reduce(scores, kind="max", over=["n"])))
    product = b.contract(b.cast(e, dtype="f16"), v, over=["n"])
    return b.build(b.cast(b.div(product, b.reduce(e, kind="sum", over=["n"])), dtype="f16"))


def parts(graph: Graph) -> list[tuple[str, ...]]:
    """What the contractions of the graph sum over."""
    values = in_whole_tiles(graph).topological()
    return [tuple(value.attrs["over"]) for value in values if value.op == "contract"]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (192, ["d_0", "d_128"]),
        (112, ["d_0", "d_64", "d_96"]),
        (128, ["d"]),  # a tile
        (120, ["d"]),  # no whole tiles
        (240, ["d"]),  # many parts
        (1040, ["d"]),  # a loop
    ],
)
def test_which_are_cut(head: int, expected: list[str]) -> None:
    graph = in_whole_tiles(attention(head))
    assert parts(attention(head)) == parts(graph) == [*((name,) for name in expected), ("n",)]
    offsets = [value.attrs["offset"] for value in graph.topological() if value.op == "slice"]
    assert len(offsets) == (2 * len(expected) if len(expected) > 1 else 0)


def test_what_is_summed_in_a_loop_of_its_own_is_not_cut() -> None:
    b = GraphBuilder("matmul")
    graph = b.build(b.contract(b.input("m k=192", "f16"), b.input("k=192 n", "f16"), over=["k"], dtype="f16"))
    assert parts(graph) == [("k",)]


def test_a_cache_that_is_keys_and_values_is_not_cut() -> None:
    assert parts(latent_attention(width=384)) == [("d",), ("n",)]


def test_parts_are_added_before_the_sum_is_rounded() -> None:
    values = in_whole_tiles(attention(192, "f16")).topological()
    cast, add = (next(value for value in values if value.op == op) for op in ("cast", "add"))
    assert cast.operands == (add,) and (cast.dtype, add.dtype) == ("f16", "f32")
    assert {operand.dtype for operand in add.operands} == {"f32"}


@pytest.mark.parametrize("head", [192, 80])
def test_numbers_where_one_warp_copies(head: int) -> None:
    graph = attention(head)
    _, kernels, _ = lowered(graph)
    assert all(TTGIR_TARGET in kernel.text for kernel in kernels)
    texts = {kernel.name: kernel.text for kernel in kernels}
    for seed, sizes in enumerate(({"h": 1, "m": 70, "n": 150}, {"h": 2, "m": 1, "n": 1}, {"h": 1, "m": 0, "n": 3})):
        assert run(graph, texts, sizes, seed) < 1e-2
