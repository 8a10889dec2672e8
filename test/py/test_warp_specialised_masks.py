"""Masks of warp-specialised attention: from positions and from memory, in loops with and without them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from compiled import CTX, reference
from test_warp_specialised import lowered, run

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import compile_many
from cleave.lowering.emit import kernel_modules
from cleave.lowering.form import Form
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.lowering.targets import TTGIR_TARGET, Target
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.execute import execute
from cleave.schedule.scheduler import ScheduleOptions, schedule, with_candidates

Mask = Callable[[GraphBuilder, Value], Value]
WIDTH = 70


def inside(b: GraphBuilder) -> Value:
    """The last ``WIDTH`` keys up to a query's own."""
    i, j = (b.cast(b.index(dim=name), dtype="i32") for name in "mn")
    far = b.add(j, b.constant(WIDTH, "i32"))
    return b.mul(b.cmp(j, i, predicate="le"), b.cmp(far, i, predicate="gt"))


def window(b: GraphBuilder, z: Value) -> Value:
    return b.select(inside(b), z, b.constant(float("-inf"), "f32"))


def additive(b: GraphBuilder, z: Value) -> Value:
    """Rows of a length that no descriptor can have."""
    return b.add(z, b.input("m n", "f32"))


def of_keys(b: GraphBuilder, z: Value) -> Value:
    return b.add(z, b.input("n", "f32"))


def causal(b: GraphBuilder, z: Value) -> Value:
    return b.select(b.cmp(b.index(dim="n"), b.index(dim="m"), predicate="le"), z, b.constant(float("-inf"), "f32"))


def attention(name: str, mask: Mask, head: int = 32) -> Graph:
    b = GraphBuilder(name)
    q, k, v = b.input(f"h m d={head}", "f16"), b.input("h n d", "f16"), b.input(f"h n e={head}", "f16")
    z = mask(b, b.mul(b.contract(q, k, over=["d"]), b.constant(0.2, "f32")))
    p = b.exp(b.sub(z, b.reduce(z, kind="max", over=["n"])))
    total = b.reduce(p, kind="sum", over=["n"])
    return b.build(b.cast(b.div(b.contract(b.cast(p, dtype="f16"), v, over=["n"]), total), dtype="f16"))


def sums_of_a_window() -> Graph:
    """Without a maximum: there may be no keys."""
    b = GraphBuilder("sums_of_a_window")
    q, k, v = b.input("h m d=32", "f16"), b.input("h n d", "f16"), b.input("h n e=32", "f16")
    z = b.select(inside(b), b.contract(q, k, over=["d"]), b.constant(0.0, "f32"))
    return b.build(b.contract(b.cast(z, dtype="f16"), v, over=["n"], dtype="f16"))


WINDOW, ADDITIVE, OF_KEYS = (attention(mask.__name__, mask) for mask in (window, additive, of_keys))
SUMS = sums_of_a_window()
CASES = [
    (WINDOW, {"h": 1, "m": 300, "n": 300}),
    (WINDOW, {"h": 1, "m": 5, "n": 1}),
    (WINDOW, {"h": 1, "m": 0, "n": 3}),
    (SUMS, {"h": 1, "m": 130, "n": 200}),
    (SUMS, {"h": 1, "m": 130, "n": 0}),
    (ADDITIVE, {"h": 1, "m": 70, "n": 150}),
    (ADDITIVE, {"h": 2, "m": 1, "n": 1}),
    (OF_KEYS, {"h": 1, "m": 70, "n": 150}),
]


@pytest.mark.parametrize(("graph", "sizes"), CASES, ids=lambda value: getattr(value, "name", None))
def test_numbers(graph: Graph, sizes: dict[str, int]) -> None:
    _, kernels, remarks = lowered(graph)
    assert all(TTGIR_TARGET in kernel.text for kernel in kernels), remarks
    assert run(graph, {kernel.name: kernel.text for kernel in kernels}, sizes, 1) < 1e-2


def lengths(dim: str, *, prefix: bool = False) -> Graph:
    """Keys below a length of each head or query; ``prefix``: and those up to the query's own."""
    b = GraphBuilder("lengths")
    q, k, v = b.input("h m d=32", "f16"), b.input("h n d", "f16"), b.input("h n e=32", "f16")
    key = b.index(dim="n", dtype="i32")
    seen = b.cmp(key, b.input(dim, "i32"), predicate="lt")
    seen = b.max(seen, b.cmp(key, b.index(dim="m", dtype="i32"), predicate="le")) if prefix else seen
    z = b.select(seen, b.contract(q, k, over=["d"]), b.constant(float("-inf"), "f32"))
    p = b.exp(b.sub(z, b.reduce(z, kind="max", over=["n"])))
    total = b.reduce(p, kind="sum", over=["n"])
    return b.build(b.cast(b.div(b.contract(b.cast(p, dtype="f16"), v, over=["n"]), total), dtype="f16"))


@pytest.mark.parametrize("prefix", [False, True])
def test_lengths(prefix: bool) -> None:
    """Of each head: the warp that copies has the length as those that multiply have it."""
    graph = lengths("h", prefix=prefix)
    plan, kernels, remarks = lowered(graph)
    assert all(TTGIR_TARGET in kernel.text for kernel in kernels), remarks
    rng, sizes = np.random.default_rng(0), {"h": 3, "m": 130, "n": 200}
    shapes = [[dim.size.evaluate({**graph.extents, **sizes}) for dim in value.dims] for value in graph.inputs[:3]]
    inputs = [*(rng.standard_normal(shape).astype(np.float16) for shape in shapes), np.array([65, 300, 0], np.int32)]
    (expected,) = reference(graph, inputs, "f64", sizes)
    texts = {kernel.name: kernel.text for kernel in kernels}
    (found,) = execute(plan, texts, inputs, choose_free(plan, sizes), seed=1)
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_lengths_of_each_row_have_no_such_form() -> None:
    _, kernels, remarks = lowered(lengths("m"))
    assert not any(TTGIR_TARGET in kernel.text for kernel in kernels)
    assert any("elements of a tile" in str(remark) for remark in remarks)


def test_masked_iterations_are_not_rotated_where_registers_are_scarce() -> None:
    """Three consumers have 160 registers for each thread, in which a rotated loop with masks spills: 736 bytes with
    Triton 3.6 and 2004 with 3.9, whose ptxas keeps 492 bytes of addresses in memory anyway."""
    graph = attention("causal", causal, head=64)
    options = ScheduleOptions(sizes={"m": 4096, "n": 4096, "h": 32}, max_tilings=24, warp_specialise=True)
    found = schedule(graph.deduplicated(), options)
    tiles = {"m": 192, "n": 128, "d": 64, "e": 64}
    chosen = next(each for each in found.candidates[0] if tiles.items() <= each.tiling.tiles.items())
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(with_candidates(found.program, [chosen]), module)
        LowerToTtgir().apply(CTX, module)
        (kernel,) = kernel_modules(module)
        plan = plan_of(module, graph.name, {kernel.name: kernel})
    rng = np.random.default_rng(0)
    for h, m, n in ((1, 400, 500), (2, 1, 1)):
        inputs = [rng.standard_normal((h, size, 64)).astype(np.float16) for size in (m, n, n)]
        (expected,) = reference(graph, inputs, "f64", {**graph.extents, "h": h, "m": m, "n": n})
        (result,) = execute(plan, {kernel.name: kernel.text}, inputs, choose_free(plan, {}))
        assert np.abs(result - expected).max() < 1e-2 * np.abs(expected).max()
    (compiled,) = compile_many([kernel.request(Target.parse("sm_90"))])
    assert not isinstance(compiled, CleaveError)
    assert compiled.spills <= 500 and not compiled.notes


@pytest.mark.parametrize("sizes", [{"h": 1, "m": 150, "n": 300}, {"h": 1, "m": 1, "n": 1}], ids=str)
def test_rest_in_order(sizes: dict[str, int]) -> None:
    """The loop without masks is rotated, so that products stand in front of it and behind it, too; the other is not."""
    graph, form = attention("causal", causal), Form(rest_in_order=False)
    (kernel,), (rotated,) = (lowered(graph, form=each)[1] for each in (Form(), form))
    assert kernel.text.count('warp_group_dot"') * 4 == rotated.text.count('warp_group_dot"') * 3
    for each, text in ((Form(), kernel.text), (form, rotated.text)):
        assert run(graph, {kernel.name: text}, sizes, 1, form=each) < 1e-2


@pytest.mark.parametrize("n", [1, 127, 128, 129, 256, 300])
def test_masks_first(n: int) -> None:
    """The tile with masks is the first iteration, full or not, and none has code of its own behind the loop."""
    graph, form = attention("plain", lambda b, z: z), Form(masks_first=False)
    (usual,), (kernel,) = (lowered(graph, form=each)[1] for each in (Form(), form))
    assert kernel.text.count('warp_group_dot"') * 4 == usual.text.count('warp_group_dot"') * 6
    for each, made in ((Form(), usual), (form, kernel)):
        assert run(graph, {kernel.name: made.text}, {"h": 2, "m": 130, "n": n}, n, form=each) < 1e-2
