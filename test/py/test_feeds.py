"""What the source feeds to tensor cores in a narrow type is fed so again, whatever is summed in its exponent."""

from __future__ import annotations

from collections.abc import Callable

import graphs
import pytest

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.search import SearchOptions, superoptimise


def _attention(name: str, logits: Callable[[GraphBuilder, Value], Value]) -> Graph:
    b = GraphBuilder(name)
    q, k, v = b.input("h m d=64", "f16"), b.input("h n d", "f16"), b.input("h n e=64", "f16")
    z = logits(b, b.mul(b.contract(q, k, over=["d"], dtype="f32"), b.constant(0.125, "f32")))
    e = b.exp(b.sub(z, b.reduce(z, kind="max", over=["n"])))
    p = b.cast(b.div(e, b.reduce(e, kind="sum", over=["n"])), dtype="f16")
    return b.build(b.cast(b.contract(p, v, over=["n"]), dtype="f16"))


def _plain(b: GraphBuilder, z: Value) -> Value:
    return z


def _with_a_mask(b: GraphBuilder, z: Value) -> Value:
    return b.add(z, b.input("m n", "f32"))


def _with_rotary_parts(b: GraphBuilder, z: Value) -> Value:
    return b.add(z, b.contract(b.input("h m r=32", "f16"), b.input("h n r", "f16"), over=["r"], dtype="f32"))


@pytest.mark.parametrize("logits", [_plain, _with_a_mask, _with_rotary_parts])
@pytest.mark.parametrize("split", [False, True])
def test_unnormalised_weights_are_fed_as_the_source_feeds_them(
    logits: Callable[[GraphBuilder, Value], Value], split: bool
) -> None:
    found = superoptimise(_attention(logits.__name__.strip("_"), logits), SearchOptions(split=split))
    divided_last = [each.graph for each in found.alternatives[1:] if bool(each.split) == split]
    assert divided_last
    for graph in divided_last:
        last = [v for v in graph.topological() if v.op == "contract" and "e" in v.names and "s" not in v.attrs["over"]]
        assert last and all(operand.dtype == "f16" for value in last for operand in value.operands)


def test_parts_of_what_the_source_feeds_in_a_narrow_type_are_fed_in_it() -> None:
    """Scores rounded to f16 are so in each part, element by element; the other order of products has new operands."""
    found = superoptimise(graphs.matmul_matmul(), SearchOptions(split=True))
    programs = [each.graph for each in found.alternatives if each.split == "n"]
    fed = [{operand.dtype for value in _contracted(graph) for operand in value.operands} for graph in programs]
    assert {"f16"} in fed
    assert {"f16", "tf32"} in fed


@pytest.mark.parametrize("wide_first", [False, True])
def test_what_the_source_feeds_in_two_types_is_fed_in_the_wider_one(wide_first: bool) -> None:
    """Whatever the order of its results: what fits f32 alone is not fed in f16 in any program."""
    b = GraphBuilder("two_types")
    q, k, v = b.input("h m d=64", "f16"), b.input("h n d=64", "f16"), b.input("h n e=64", "f32")
    scores = b.contract(q, k, over=["d"], dtype="f32")
    narrow = b.contract(b.cast(scores, dtype="f16"), b.cast(v, dtype="f16"), over=["n"], dtype="f32")
    wide = b.contract(scores, v, over=["n"], dtype="f32")
    graph = b.build(*((wide, narrow) if wide_first else (narrow, wide)))
    found = superoptimise(graph, SearchOptions(split=True))
    fed = [
        [o.dtype for p in _contracted(e.graph) if "e" in p.names for o in p.operands] for e in found.alternatives[1:]
    ]
    assert fed and not any("f16" in kinds for kinds in fed)


def _contracted(graph: Graph) -> list[Value]:
    return [value for value in graph.topological() if value.op == "contract"]
