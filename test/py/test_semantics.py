"""Right answers from practice: each case on the reference executor, compiled as written, and for every alternative."""

from __future__ import annotations

import random
from collections.abc import Iterator

import graphs
import numpy as np
import pytest
import random_programs
from compiled import alternatives, compile_graph, drawn_schedules, reference, static
from known_gaps import gap
from semantics_cases import CASES, Case

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.reference.accuracy import compare
from cleave.runtime.launch_plan import Alloc, Launch

PARTS = 5
"""Of what the search splits: given, so that no time goes into which number is fastest. Some are shorter or empty."""
_EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}


def assert_right(case: Case, outputs: list[np.ndarray], what: str) -> None:
    for value, expected, out in zip(case.graph.outputs, case.expected, outputs, strict=True):
        expected, wide = np.asarray(expected, np.float64), out.astype(np.float64)
        assert wide.shape == expected.shape, what
        np.testing.assert_array_equal(np.isfinite(wide), np.isfinite(expected), what)
        tolerance = case.ulps * _EPSILON[value.dtype]
        np.testing.assert_allclose(wide, expected, rtol=tolerance, atol=0, err_msg=what)


def programs(case: Case, sizes: str, path: str) -> Iterator[Graph]:
    """What the path makes of the case's graph, for symbolic sizes, static ones, or both."""
    for graph in [case.graph] if path == "compiled" else alternatives(case.graph):
        if sizes != "static":
            yield graph
        if sizes != "symbolic":
            yield static(graph, case.inputs)


PATHS = [(sizes, path) for sizes in ("symbolic", "static") for path in ("reference", "compiled")]
PATHS.append(("both", "alternatives"))  # in one test, since the search is the same
# A case of a second and more is run once with each of the two kinds of sizes.
LARGE = {"tile_count_is_no_multiple_of_a_grouping": [("static", "compiled"), ("symbolic", "alternatives")]}
RUNS = [(name, sizes, path) for name in CASES for sizes, path in LARGE.get(name, PATHS)]


@pytest.mark.parametrize(("name", "sizes", "path"), RUNS)
def test_case(name: str, sizes: str, path: str, request: pytest.FixtureRequest) -> None:
    reason = gap(name, sizes, path)
    if reason is not None:
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    case = CASES[name]()
    before = [array.copy() for array in case.inputs]
    if path == "reference":
        graph = case.graph if sizes == "symbolic" else static(case.graph, case.inputs)
        assert_right(case, reference(graph, case.inputs), "the graph as written")
    else:
        for program in programs(case, sizes, path):
            parts = {"s": PARTS} if path == "alternatives" else {}
            compiled = compile_graph(program, parts, tilings=2 if parts else 4)
            for free in case.sizes:
                assert_right(case, compiled(case.inputs, {**parts, **free}), f"{program} {free}")
    for array, copy in zip(case.inputs, before, strict=True):
        np.testing.assert_array_equal(array, copy, "an input was changed")


# --- cases that are not of the form inputs, right answer -------------------------------------------------------------


def _top_of_rows(dims: str = "m n") -> Graph:
    b = GraphBuilder("top")
    x = b.input(dims, "f32")
    return b.build(b.reduce(x, kind="max", over=["n"]))


def test_maximum_over_an_empty_axis_at_run_time() -> None:
    with pytest.raises(CleaveError, match=r"dimension 'n' is empty in in0, and the function requires 1 <= n"):
        compile_graph(_top_of_rows())([np.zeros((3, 0), np.float32)])
    with pytest.raises(CleaveError, match="'n'"):
        reference(_top_of_rows(), [np.zeros((3, 0), np.float32)])


def test_maximum_over_an_empty_axis_when_compiling() -> None:
    with pytest.raises(CleaveError, match="'n'"):
        compile_graph(_top_of_rows("m n=0"))


def test_maximum_over_no_rows_is_fine() -> None:
    (out,) = compile_graph(_top_of_rows())([np.zeros((0, 5), np.float32)])
    assert out.shape == (0,)


def test_an_output_without_the_empty_dim_of_another() -> None:
    """One kernel with both: its grid is over the product's tiles, of which there are none."""
    compiled = compile_graph(graphs.matmul_and_rowsum(), {"m": 65536, "k": 4096, "n": 64})
    rows = np.arange(21, dtype=np.float16).reshape(7, 3)
    product, sums = compiled([rows, np.zeros((3, 0), np.float16)])
    assert sum(isinstance(step, Launch) for step in compiled.plan.steps) == 1
    assert product.shape == (7, 0)
    np.testing.assert_array_equal(sums, rows.sum(1))


def test_sizes_that_disagree() -> None:
    b = GraphBuilder("two_operands")
    graph = b.build(b.add(b.input("m n", "f32"), b.input("n", "f32")))
    inputs = [np.zeros((3, 5), np.float32), np.zeros(6, np.float32)]
    with pytest.raises(CleaveError, match=r"dimension 'n' is 5 in in0 and 6 in in1"):
        compile_graph(graph)(inputs)
    with pytest.raises(CleaveError, match=r"'n'.*5.*6"):
        reference(graph, inputs)


def test_more_elements_than_an_extent_may_have() -> None:
    """Refused before anything of that size is made."""
    b = GraphBuilder("huge")
    graph = b.build(b.neg(b.input("n", "f16")))
    huge = np.broadcast_to(np.float16(1), (2**31,))
    with pytest.raises(CleaveError, match="dimension 'n' of in0 is 2147483648"):
        compile_graph(graph)([huge])


def test_more_tiles_than_a_y_axis_has() -> None:
    """65 537 tiles in one row of the grid; a y axis has 65 535."""
    b = GraphBuilder("long")
    x = b.input("m n=2", "f16")
    compiled = compile_graph(b.build(b.reduce(b.cast(x, dtype="f32"), kind="sum", over=["n"])), {"m": 16})
    rows = (np.arange(65_537 * 2).reshape(-1, 2) % 64).astype(np.float16)
    np.testing.assert_array_equal(compiled([rows])[0], rows.astype(np.float32).sum(1))


def _strided(kind: str, array: np.ndarray) -> np.ndarray:
    """The same numbers with other strides, except for "broadcast", which is one row again and again."""
    m, n = array.shape
    if kind == "packed slice":
        wide = np.full((m, 3 * n), np.nan, array.dtype)
        wide[:, n : 2 * n] = array
        return wide[:, n : 2 * n]
    if kind == "transposed":
        return np.ascontiguousarray(array.T).T
    if kind == "flipped":
        return np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1]
    if kind == "every other":
        wide = np.full((2 * m, 2 * n), np.nan, array.dtype)
        wide[::2, ::2] = array
        return wide[::2, ::2]
    return np.broadcast_to(array[0], array.shape)


@pytest.mark.parametrize("kind", ["packed slice", "transposed", "flipped", "every other", "broadcast"])
def test_strides(kind: str) -> None:
    b = GraphBuilder("strides")
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    compiled = compile_graph(b.build(b.contract(x, w, over=["k"], dtype="f32")))
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-4, 5, shape).astype(np.float16) for shape in ((37, 45), (45, 20))]
    views = [_strided(kind, array) for array in inputs]
    assert not any(view.flags.c_contiguous for view in views)
    expected = views[0].astype(np.float64) @ views[1].astype(np.float64)
    np.testing.assert_array_equal(compiled(views)[0], expected)


def test_programs_that_differ_in_one_thing() -> None:
    """Nothing that is kept between runs may mix them up: a constant, a dtype, a name, a flag."""

    def build(constant: float = 2.0, dtype: str = "f32", dim: str = "n", kind: str = "sum") -> Graph:
        b = GraphBuilder("one_name")
        x = b.input(f"m {dim}", "f32")
        scaled = b.mul(x, b.constant(constant, "f32"))
        return b.build(b.cast(b.reduce(scaled, kind=kind, over=[dim]), dtype=dtype))

    inputs = [np.array([[1.0, 2.0, 1024.5]], np.float32)]
    programs = [build(), build(constant=3.0), build(dtype="f16"), build(dim="k"), build(kind="max"), build()]
    outputs = [compile_graph(program)(inputs)[0] for program in programs]
    assert [(str(out.dtype), float(out[0])) for out in outputs] == [
        ("float32", 2055.0), ("float32", 3082.5), ("float16", 2056.0), ("float32", 2055.0), ("float32", 2049.0),
        ("float32", 2055.0),
    ]  # fmt: skip


def test_split_partials_are_no_narrower_than_f32() -> None:
    """Everything that a split of an f16 contraction leaves in memory on the way."""
    case = CASES["split_partials_are_wide"]()
    splits = [program for program in alternatives(case.graph) if any(v.op == "split" for v in program.topological())]
    assert splits
    for program in splits:
        plan = compile_graph(program).plan
        allocs = [step for step in plan.steps if isinstance(step, Alloc) and step.tensor.name not in plan.results]
        partials = [step.tensor for step in allocs if not step.zeroed]  # the zeroed ones are counters
        assert partials and all(tensor.dtype == "f32" for tensor in partials), plan


def test_the_last_part_of_a_split_that_is_kept_and_summed() -> None:
    """Two parts of three rows: what would be the fourth row is in no sum and not written."""
    b = GraphBuilder("parts")
    x = b.split(b.input("a c", "f32"), dim="a", into=["s", "t=ceildiv(a,s)"])
    compiled = compile_graph(b.build(b.reduce(x, kind="max", over=["c"]), b.reduce(x, kind="sum", over=["c", "t"])))
    top, total = compiled([np.arange(6, dtype=np.float32).reshape(3, 2)], {"s": 2})
    np.testing.assert_array_equal(top, [[1, 3], [5, np.nan]])
    np.testing.assert_array_equal(total, [6, 9])


# --- random programs -------------------------------------------------------------------------------------------------


def test_errors_of_few_elements_are_those_of_several_inputs() -> None:
    """On one of these inputs the alternative's error is 2.4 times the source's, on another half of it."""
    graph = graphs.random_graph(11098)
    sizes, errors = {"a": 3, "b": 3, "c": 33}, list[list[float]]()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        inputs = [
            rng.standard_normal([sizes[d.name] for d in v.dims]).astype(np.float16 if v.dtype == "f16" else np.float32)
            for v in graph.inputs
        ]
        exact, own = (reference(graph, inputs, kind)[0] for kind in ("f64", "declared"))
        errors.append([])
        for program in alternatives(graph):
            found = compare(exact, own, reference(program, inputs)[0], "f32")
            errors[-1] += [found.optimised, found.unoptimised]
    optimised, unoptimised = np.sqrt(np.mean(np.square(errors), axis=0)).reshape(-1, 2).T
    assert len(optimised) and (optimised <= 1.2 * unoptimised).all()


@pytest.mark.parametrize("draw", [2, 4])
def test_a_masked_tile_that_inner_loops_share(draw: int) -> None:
    """Of weights over c, which are summed by themselves, and with exponentials over b and c."""
    b = GraphBuilder("shared")
    x, y = (b.split(b.input(dims, "f32"), dim="a", into=["s", "t=ceildiv(a, s)"]) for dims in ("a b c", "a c"))
    large = b.cmp(y, b.reduce(x, kind="max", over=["c", "b"]), predicate="ge")
    weights = b.select(large, y, b.constant(0.5, "f32"))
    e = b.exp(b.sub(x, b.reduce(x, kind="max", over=["c"])))
    squares = b.reduce(b.mul(weights, weights), kind="sum", over=["c", "t"])
    graph, sizes = b.build(b.contract(e, weights, over=["c", "t", "b"]), squares), {"a": 5, "b": 2, "c": 17, "s": 2}
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((5, 2, 17), (5, 17))]
    with drawn_schedules(random.Random(draw)):  # of which these two mask the tile in an inner loop
        compiled = compile_graph(graph, sizes, tilings=1)
    for out, exact in zip(compiled(inputs, {"s": 2}), reference(graph, inputs, "f64", {"s": 2}), strict=True):
        np.testing.assert_allclose(out, exact, rtol=1e-5)


@pytest.mark.parametrize("seed", range(1, 9))
def test_random_programs(seed: int) -> None:
    """As written, static, and every alternative, by the accuracy contract."""
    assert not list(random_programs.problems(seed))
