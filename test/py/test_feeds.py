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
    """Whatever the order of its results: each operand of the wide product is fed in f16 elsewhere."""
    b = GraphBuilder("two_types")
    q, k, v = b.input("m d=16", "f16"), b.input("n d=16", "f16"), b.input("n e=8", "f16")
    u = b.input("n f=8", "f32")
    scores = b.contract(q, k, over=["d"], dtype="f32")
    one = b.contract(b.cast(scores, dtype="f16"), v, over=["n"], dtype="f32")
    two = b.contract(b.cast(b.sigmoid(scores), dtype="f16"), b.cast(u, dtype="f16"), over=["n"], dtype="f32")
    wide = b.mul(b.contract(scores, u, over=["n"], dtype="f32"), b.constant(2.0**-13, "f32"))
    narrow = [b.cast(value, dtype="f16") for value in (one, two)]
    results = [b.cast(wide, dtype="f16"), *narrow] if wide_first else [*narrow, b.cast(wide, dtype="f16")]
    for each in superoptimise(b.build(*results), SearchOptions(split=True)).alternatives[1:]:
        products = [value for value in _contracted(each.graph) if "f" in value.names and "s" not in value.attrs["over"]]
        sums = [value for value in products if not any(v.op == "sigmoid" for v in _upstream(value))]
        assert sums and not any(operand.dtype == "f16" for value in sums for operand in value.operands)


def _upstream(value: Value) -> set[Value]:
    return {value}.union(*(_upstream(operand) for operand in value.operands))


def _contracted(graph: Graph) -> list[Value]:
    return [value for value in graph.topological() if value.op == "contract"]
