"""Gather, concat, slice and merge in kernels: what the reference executor says, at sizes that nothing divides."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from compiled import CTX, Compiled, compile_graph, reference, static
from indexed_programs import PROGRAMS

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.passes.tile_io import from_tile_program
from cleave.passes.verify import verify
from cleave.reference import run
from cleave.schedule.scheduler import ScheduleOptions, schedule

BASE = {"m": 5, "n": 37, "k": 21, "v": 50, "t": 11, "d": 13, "b": 3, "g": 2, "page": 9, "j": 5, "h": 2, "p": 19}
BASE |= {"q": 24, "x": 4, "i": 3, "r": 6, "u": 4, "w": 3}
SIZES = {
    "odd": BASE,
    "ones": {**dict.fromkeys(BASE, 1), "n": 8},
    "empty": {**BASE, "m": 0, "p": 0, "b": 0, "t": 0},
    "no second": {**BASE, "q": 0, "m": 70, "t": 70, "j": 40, "page": 41},
}
NUMPY = {"f16": np.float16, "f32": np.float32, "i32": np.int32, "i64": np.int64}


def inputs_for(graph: Graph, sizes: Mapping[str, int]) -> list[np.ndarray]:
    """Random; integers are indices into any dim that is gathered from, or lengths from 1."""
    rng = np.random.default_rng(0)
    known = {**sizes, **graph.extents}
    if graph.name == "merged_products":
        known["h"] = known["i"] * known["j"] + 3
    picked = [v for v in graph.topological() if v.op == "gather"]
    smallest = min([v.operands[0].size(v.attrs["dim"]).evaluate(known) for v in picked], default=1)
    found: list[np.ndarray] = []
    for value in graph.inputs:
        shape = [dim.size.evaluate(known) for dim in value.dims]
        if value.dtype[0] == "i":
            found.append(rng.integers(0, max(smallest, 1), shape).astype(NUMPY[value.dtype]))
        else:
            found.append(rng.standard_normal(shape).astype(NUMPY[value.dtype]))
    if "page" in sizes and graph.name.startswith("paged"):
        found[-1] = rng.integers(1, known["j"] * known["slot"] + 1, found[-1].shape).astype(np.int32)
    return found


def assert_right(compiled: Compiled, source: Graph, inputs: list[np.ndarray]) -> None:
    expected = reference(source, inputs, "f64")
    actual = compiled(inputs)
    for one, other in zip(expected, actual, strict=True):
        tolerance = 4e-3 if any(value.dtype == "f16" for value in source.inputs) else 1e-5
        scale = np.nanmax(np.abs(one), initial=1e-30)
        np.testing.assert_allclose(other.astype(np.float64), one, rtol=0, atol=tolerance * scale)


ONE_KERNEL = {
    "embedding_and_norm", "paged_attention", "paged_attention_over_one_dim", "rows_of_experts", "expert_of_each_row",
    "rope_alone", "rope_and_attention", "attention_with_appended_keys", "gather_of_a_gather", "one_of_each_row",
    "merged_products", "shifted_twice",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    """One compilation for all sizes."""
    graph = PROGRAMS[name]()
    compiled = compile_graph(graph, BASE)
    if name in ONE_KERNEL:
        assert len(compiled.kernels) == 1
    for sizes in SIZES.values():
        assert_right(compiled, graph, inputs_for(graph, sizes))


@pytest.mark.parametrize("name", ["embedding_and_norm", "paged_attention_over_one_dim", "three_joined_under_one_name"])
def test_tile_program(name: str) -> None:
    """The scheduled module by the reference executor, in f64: what differs is the program, not its rounding."""
    graph = PROGRAMS[name]()
    options = ScheduleOptions(sizes=BASE, max_tilings=4)
    inputs, program = inputs_for(graph, BASE), schedule(graph.deduplicated(), options).program
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(program, module)
        assert not verify(module)
        outputs = run(module, graph.name, inputs, precision="f64")
    for one, other in zip(reference(graph, inputs, "f64"), outputs, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-11)


@pytest.mark.parametrize("name", ["rope_alone", "paged_attention_over_one_dim", "three_joined_under_one_name"])
def test_static_sizes(name: str) -> None:
    graph = PROGRAMS[name]()
    inputs = inputs_for(graph, BASE)
    assert_right(compile_graph(static(graph, inputs)), graph, inputs)


def test_an_index_outside_reads_nothing() -> None:
    """Undefined, and still no read outside of the tensor: the interpreter checks addresses."""
    b = GraphBuilder("outside")
    x, i = b.input("p d", "f32"), b.input("m", "i64")
    compiled = compile_graph(b.build(b.gather(x, i, dim="p")))
    indices = np.array([1, -1, 2, 3, 2**40, -(2**63), 0])
    (out,) = compiled([np.arange(6, dtype=np.float32).reshape(3, 2) + 1, indices])
    np.testing.assert_array_equal(out[0], [3, 0, 5, 0, 0, 0, 1])


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_indices_of_any_integer_type(dtype: str) -> None:
    b = GraphBuilder("integers")
    x, i = b.input("p", "i1"), b.input("m", dtype)
    values, indices = np.arange(40) % 3 == 0, np.arange(39, -1, -1)
    (out,) = compile_graph(b.build(b.gather(x, i, dim="p")))([values, indices.astype(f"int{dtype[1:]}")])
    np.testing.assert_array_equal(out, values[::-1])


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 60])
def test_splits_of_joined_and_of_gathered_dims(parts: int) -> None:
    """Past the end of a part lies the next one: it is in memory, and in no sum of this part."""
    b = GraphBuilder("split_after")
    x, y, i = b.input("p", "f32"), b.input("q", "f32"), b.input("n", "i32")
    joined = b.concat(x, y, dims=["p", "q"], into="n=p+q")
    picked = b.gather(b.rename(y, from_="q", to="r=q"), i, dim="r")
    found = [b.split(v, dim="n", into=["s", "t=ceildiv(n,s)"]) for v in (joined, picked)]
    sums = [b.reduce(v, kind="sum", over=["t"]) for v in found]
    graph = b.build(*(b.reduce(v, kind="sum", over=["s"]) for v in sums))
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(n).astype(np.float32) for n in (19, 24))
    indices = rng.integers(0, 24, 43).astype(np.int32)
    out = compile_graph(graph)([x, y, indices], {"s": parts})
    expected = [x.sum() + y.sum(), y[indices].sum()]
    np.testing.assert_allclose(out, expected, rtol=1e-5)
