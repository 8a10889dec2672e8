"""Graphs beyond the bound: where they are cut, that the parts are the whole, and what is found in them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from discovery_programs import LARGE, PROGRAMS, layers
from search_programs import evaluate, inputs_of, norm, sizes_of, softmax_times

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.search import Alternative, SearchOptions, SearchResult, superoptimise
from cleave.search.candidates import lines_of
from cleave.search.check_sizes import UNITS
from cleave.search.partition import counted_ops, partition
from cleave.search.result import Statistics
from cleave.search.stitch import Stitcher


@cache
def decoder() -> SearchResult:
    return superoptimise(LARGE["layers"]().deduplicated(), SearchOptions(keep=3, time_limit=600.0))


def unchanged(graph: Graph, max_ops: int) -> Graph:
    """The graph cut and put together again from the parts as they are."""
    parts = partition(graph, max_ops)
    results = [
        SearchResult((Alternative(part.graph, None, None),), Statistics(), ())  # type: ignore[arg-type]
        for part in parts
    ]
    return Stitcher(graph, parts, range(len(parts)), results, {}).graph((0,) * len(parts))


def assert_equal(source: Graph, alternatives: tuple[Alternative, ...]) -> None:
    sizes = {**sizes_of(source), **{f"s{i}": 3 for i in range(1, 9)}, **dict.fromkeys(UNITS, 1)}
    inputs = inputs_of(source, sizes)
    expected = evaluate(source, inputs, sizes)
    for alternative in alternatives:
        for got, want in zip(evaluate(alternative.graph, inputs, sizes), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("max_ops", [1, 3, 8])
def test_parts_are_the_whole(max_ops: int) -> None:
    for name, program in PROGRAMS.items():
        source = program().deduplicated()
        parts = partition(source, max_ops)
        assert all(len(counted_ops(part.graph)) <= max_ops for part in parts), name
        whole = unchanged(source, max_ops)
        assert lines_of(whole) == lines_of(source), name


def test_cuts_fall_on_the_residual_stream() -> None:
    source = layers(3).deduplicated()
    users = source.users()
    cuts = [value for part in partition(source, 64) for value in part.inputs if value.op != "input"]
    assert len(cuts) == 5
    for value in cuts:
        assert (value.op, value.dtype, value.names) == ("cast", "f16", ("m", "c"))
        assert value.operands[0].op == "add" and len(users[value]) >= 1


def test_equal_layers_are_one_program() -> None:
    texts = [lines_of(part.graph) for part in partition(layers(4).deduplicated(), 64)]
    assert len(texts) == 8 and len(set(texts)) == 2


def test_what_is_found_in_the_parts_of_a_decoder() -> None:
    """Scales after the projections and inside silu, and the softmax's division last, in every layer at once."""
    source, best, *_ = decoder().alternatives
    assert len(counted_ops(source.graph)) > 200 and decoder().statistics.complete
    assert set(decoder().cuts) <= set(source.graph.topological())
    assert best.cost.depth <= source.cost.depth - 3 * 4
    divisions = [v for v in best.graph.topological() if v.op == "div" and {"m", "n"} <= set(v.names)]
    assert not divisions
    assert any(a.split == "c, f" or a.split == "f" for a in decoder().alternatives)


def test_alternatives_of_a_decoder_are_equal_and_certified() -> None:
    source, *others = decoder().alternatives
    assert others
    for alternative in others:
        certificate = alternative.certificate
        assert certificate.normal_form == source.certificate.normal_form
        assert certificate.fingerprint is not None and certificate.floats is not None
        assert any("in 6 parts" in note for note in certificate.notes)
    assert_equal(source.graph, decoder().alternatives)


def test_a_split_has_names_of_its_own_in_each_part() -> None:
    both = next(a for a in decoder().alternatives if a.split == "c, f")
    sizes: dict[str, object] = {}
    for value in both.graph.topological():
        for dim in value.dims:
            assert sizes.setdefault(dim.name, dim.size) is dim.size


def test_what_algebra_refuses_as_a_whole_is_searched_in_parts() -> None:
    """Heads merged and cut again in another way: no normal form, but around it there is one."""
    b = GraphBuilder("refused")
    q, k, v = b.input("h m d", "f16"), b.input("h n d", "f16"), b.input("h n e", "f16")
    z = b.contract(q, k, over=["d"], dtype="f32")
    out = b.merge(b.cast(softmax_times(b, z, v), dtype="f16"), dims=["h", "e"], into="c=h*e")
    out = b.split(out, dim="c", into=["a=e", "f=h"])
    graph = b.build(b.contract(norm(b, out, "f", b.input("f=h", "f16"), 64.0), b.input("f=h o", "f16"), over=["f"]))
    result = superoptimise(graph)
    assert result.cuts and len(result.alternatives) > 1
    assert set(result.cuts) <= set(graph.topological())
    assert min(a.cost.depth for a in result.alternatives) <= result.alternatives[0].cost.depth - 2
    assert_equal(graph, result.alternatives)


def test_opaque_ops_are_where_cuts_cost_least() -> None:
    source = PROGRAMS["opaque_middle"]()
    first, *_ = partition(source, 8)
    assert [value.op for value in first.outputs] == ["gather"]


def test_limits_are_said() -> None:
    result = superoptimise(layers(1).deduplicated(), SearchOptions(time_limit=0.0))
    assert not result.statistics.complete and len(result.alternatives) >= 1


@pytest.mark.parametrize("max_ops", [2, 5])
def test_small_programs_in_parts(max_ops: int) -> None:
    for name in ("attention", "rmsnorm_swiglu", "lora_shared", "cross_entropy", "attention_lse"):
        source = PROGRAMS[name]()
        result = superoptimise(source, SearchOptions(max_ops=max_ops))
        types = [output.type for output in source.outputs]
        assert result.cuts and all([o.type for o in a.graph.outputs] == types for a in result.alternatives)
        assert_equal(source, result.alternatives)
