"""Static sizes of annotations are facts: views whose sizes they make equal to a dim of that name are that dim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import CTX, compile_graph, reference

import cleave
from cleave import f32
from cleave.bindings import ir
from cleave.dialects.dims import sym
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.language.trace import trace
from cleave.passes.graph_io import from_graph, to_graph
from cleave.passes.verify import verify
from cleave.search import superoptimise


def _slice(x: f32["m e=32"], y: f32["m d=64"]) -> f32["m e"]:
    return x + y.slice("d", "e=32", 16)


def _bare_slice(x: f32["m e=32"], y: f32["m d=64"]) -> f32["m e"]:
    return x + y.slice("d", "e", "d - e")


def _concat(x: f32["m a=24"], y: f32["m b=8"], z: f32["m e=32"]) -> f32["m e"]:
    return cleave.concat(x, y, "a b", "e") * z


def _split(x: f32["m d=64"], y: f32["m h=4 e=16"]) -> f32["m h e"]:
    return x.split("d", "h=4 e=16") + y


def _merge(x: f32["m h=4 e=16"], y: f32["m d=64"]) -> f32["m d"]:
    return x.merge("h e", "d") + y


def _merge_of_a_size(x: f32["m h=4 e=16"], y: f32["m d=64"]) -> f32["m d"]:
    return x.merge("h e", "d=64") + y


def _rename(x: f32["m h=16"], y: f32["m d=16"]) -> f32["m d"]:
    return x.rename(h="d") + y


def _sums(x: f32["m h=4 e=16"], y: f32["m d=64"], w: f32["d n"]) -> f32["m n"]:
    z = x.merge("h e", "d") + y
    return cleave.contract(z / z.sum("d"), w, "d")


NUMPY: dict[Callable[..., Any], Callable[..., Any]] = {
    _slice: lambda x, y: x + y[:, 16:48],
    _bare_slice: lambda x, y: x + y[:, 32:],
    _concat: lambda x, y, z: np.concatenate([x, y], 1) * z,
    _split: lambda x, y: x.reshape(-1, 4, 16) + y,
    _merge: lambda x, y: x.reshape(-1, 64) + y,
    _merge_of_a_size: lambda x, y: x.reshape(-1, 64) + y,
    _rename: lambda x, y: x + y,
    _sums: lambda x, y, w: ((z := x.reshape(-1, 64) + y) / z.sum(1, keepdims=True)) @ w,
}


@pytest.mark.parametrize("function", NUMPY, ids=lambda function: function.__name__)
def test_traced_searched_and_compiled(function: Callable[..., Any]) -> None:
    graph = trace(function)
    names = {dim.name for value in graph.inputs for dim in value.dims}
    assert all(dim.size is sym(dim.name) for value in graph.topological() for dim in value.dims if dim.name in names)
    rng, sizes = np.random.default_rng(0), {"m": 5, "n": 7, **graph.extents}
    inputs = [rng.uniform(1, 2, [sizes[name] for name in value.names]).astype(np.float32) for value in graph.inputs]
    wanted = NUMPY[function](*(array.astype(np.float64) for array in inputs))
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        again = to_graph(from_graph(graph, module))
    assert str(again) == str(graph) and not verify(module)
    result = superoptimise(graph)
    assert result.statistics.complete and all(a.certificate.floats for a in result.alternatives[1:])
    for alternative in result.alternatives:
        (found,) = reference(alternative.graph, inputs, "f64", {"s": 3})
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    (found,) = compile_graph(graph)(inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_what_does_not_fit_is_an_error_where_it_stands() -> None:
    def long(x: f32["m d=64"]) -> Any:
        return x.slice("d", "e=32", 40)

    def other(x: f32["m e=16"], y: f32["m d=64"]) -> Any:
        return x + y.slice("d", "e=32")

    with pytest.raises(CleaveError, match=r"test_static_sizes.py:\d+.*\[40, 72\) leaves dimension 'd' of size 64"):
        trace(long)
    with pytest.raises(CleaveError, match=r"test_static_sizes.py:\d+.*dimension 'e' has size e and.*size 32"):
        trace(other)


def test_a_fact_does_the_same() -> None:
    """What the error about two sizes suggests is searched."""
    b = GraphBuilder("sliced", ["e = 32", "d = 2*e"])
    x, y = b.input("m e", "f32"), b.input("m d", "f32")
    part = b.slice(y, dim="d", into="e=32", offset="0")
    graph = b.build(b.reduce(b.mul(b.add(x, part), x), kind="sum", over=["e"]))
    assert superoptimise(graph).statistics.complete


def test_module_with_both_spellings(module_text: str) -> None:
    ctx = CTX
    with ctx, ir.Location.unknown():
        module = ir.Module.parse(module_text)
        assert not verify(module)
        graph: Graph = to_graph(module.body.operations[0].operation)
    assert {str(dim) for value in graph.topological() for dim in value.dims} == {"m", "d", "e"}


@pytest.fixture
def module_text() -> str:
    x, y = 'tensor<?x32xf32, #cleave.dims<["m", "e"]>>', 'tensor<?x64xf32, #cleave.dims<["m", "d"]>>'
    part = 'tensor<?x32xf32, #cleave.dims<["m", "e=32"]>>'
    return f"""func.func @f(%x: {x}, %y: {y}) -> {x} {{
      %0 = "cleave.slice"(%y) {{dim = "d", into = "e=32", offset = "0"}} : ({y}) -> {part}
      %1 = "cleave.add"(%x, %0) : ({x}, {part}) -> {x}
      return %1 : {x}
    }}"""
