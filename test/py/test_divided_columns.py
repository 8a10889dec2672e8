"""Warp-specialised kernels whose consumers have columns each, and exchange their parts of products that have none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version

import numpy as np
import pytest
from compiled import CTX, reference
from lowered import NUMPY

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled, compile_many
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.lowering.targets import TTGIR_TARGET, Target
from cleave.lowering.triton_spelling import parse_version
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import LaunchPlan
from cleave.schedule.candidates import Candidate
from cleave.schedule.scheduler import ScheduleOptions, schedule, with_candidates


def latent_attention(*, partial: bool = False, width: int = 512) -> Graph:
    """The cache is keys and values. ``partial``: not divided, with the maxima and sums of the rows."""
    b = GraphBuilder("latent")
    q, c = b.input(f"h m d={width}", "f16"), b.input(f"h n d={width}", "f16")
    s = b.mul(b.contract(q, c, over=["d"]), b.constant(0.05, "f32"))
    largest = b.reduce(s, kind="max", over=["n"])
    e = b.exp(b.sub(s, largest))
    values = b.rename(c, from_="d", to="e=d")
    product, total = b.contract(b.cast(e, dtype="f16"), values, over=["n"]), b.reduce(e, kind="sum", over=["n"])
    if partial:
        return b.build(product, largest, total)
    return b.build(b.cast(b.div(product, total), dtype="f16"))


def latent_chain() -> Graph:
    """Nothing is reduced between the products."""
    b = GraphBuilder("chain")
    q, c = b.input("h m d=512", "f16"), b.input("h n d=512", "f16")
    scores = b.contract(q, c, over=["d"], dtype="f16")
    return b.build(b.contract(scores, b.rename(c, from_="d", to="e=d"), over=["n"], dtype="f16"))


@cache
def lowered(graph: Graph, *, deferred: bool = False) -> tuple[Candidate, LaunchPlan, KernelModule]:
    """On the best tiling in which the consumers divide columns. ``deferred``: row sums are made behind the loops."""
    options = ScheduleOptions(sizes={"h": 128, "m": 128, "n": 1024}, warp_specialise=True)
    found = schedule(graph.deduplicated(), options)
    (candidates,) = found.candidates
    special = (each for each in candidates if each.warp_specialised and each.tiling.deferred == deferred)
    wanted = next(each for each in special if each.tiling.tiles.get("e") == 512)
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(with_candidates(found.program, [wanted]), module)
        LowerToTtgir(chosen=True).apply(CTX, module)
        assert module.operation.verify()
        (kernel,) = kernel_modules(module)
        return wanted, plan_of(module, graph.name, {kernel.name: kernel}), kernel


def errors(graph: Graph, sizes: Mapping[str, int], seed: int, text: str = "", **form: bool) -> list[float]:
    """Of each output, relative to its largest number; of a kernel with another ``text``."""
    _, plan, kernel = lowered(graph, **form)
    rng = np.random.default_rng(3)
    bound = {**graph.extents, **sizes}
    shapes = [[dim.size.evaluate(bound) for dim in value.dims] for value in graph.inputs]
    inputs = [rng.standard_normal(s).astype(NUMPY[v.dtype]) for s, v in zip(shapes, graph.inputs, strict=True)]
    found = execute(plan, {kernel.name: text or kernel.text}, inputs, choose_free(plan, dict(sizes)), seed=seed)
    pairs = zip(found, reference(graph, inputs, "f64", bound), strict=True)
    return [
        float(np.abs(f.astype(float) - e).max(initial=0.0) / np.abs(e).max(initial=1e-30, where=np.isfinite(e)))
        for f, e in pairs
    ]


@pytest.mark.parametrize(
    "sizes", [{"h": 1, "m": 70, "n": 150}, {"h": 2, "m": 1, "n": 1}, {"h": 1, "m": 0, "n": 3}], ids=str
)
def test_numbers(sizes: dict[str, int]) -> None:
    for seed in range(2):
        assert max(errors(latent_attention(), sizes, seed)) < 1e-2


def test_numbers_of_sums_behind_the_loops() -> None:
    """What is combined there meets before it is written, too: there may be no other exchange between two tiles."""
    for seed in range(2):
        assert max(errors(latent_attention(), {"h": 4, "m": 64, "n": 150}, seed, deferred=True)) < 1e-2


def test_numbers_of_a_chain() -> None:
    assert max(errors(latent_chain(), {"h": 1, "m": 70, "n": 150}, 0)) < 1e-2


def test_products_are_shared_out() -> None:
    """Each consumer has half of the keys, 32 of a tile of 64, and all of the probabilities."""
    _, _, kernel = lowered(latent_attention())
    products = re.findall(r'"ttng.warp_group_dot".*-> tensor<64x(\d+)xf32', kernel.text)
    assert sorted(set(products)) == ["256", "32"] and len(products) == 8
    for first in (0, 32):
        assert f"offsets = array<i32: {first}, 0>" in kernel.text
    assert kernel.text.count("bar.sync 11, 256") == 12


def two_products(dtype: str, *, factors: tuple[float, float] = (0.05, 0.05)) -> Graph:
    """Scores of two parts of the query, each with a factor."""
    b = GraphBuilder("two")
    q, c, r, k = (b.input(text, dtype) for text in ("h m d=512", "h n d=512", "h m r=64", "h n r=64"))
    pairs = zip((b.contract(q, c, over=["d"]), b.contract(r, k, over=["r"])), factors, strict=True)
    s = b.add(*(b.mul(product, b.constant(factor, "f32")) for product, factor in pairs))
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    product = b.contract(b.cast(e, dtype=dtype), b.rename(c, from_="d", to="e=d"), over=["n"])
    return b.build(b.cast(b.div(product, b.reduce(e, kind="sum", over=["n"])), dtype=dtype))


@pytest.mark.parametrize(
    ("graph", "added"),
    [(two_products("f16"), True), (two_products("f16", factors=(0.05, 0.1)), False), (two_products("bf16"), False)],
    ids=["f16", "two factors", "bf16"],
)
def test_factors_in_common_are_taken_out(graph: Graph, added: bool) -> None:
    """One product adds to the other, where sums of these cannot overflow."""
    _, _, kernel = lowered(graph)
    products = re.findall(r'(%\w+) = "ttng.warp_group_dot"\(%\w+, %\w+, (%\w+),.*-> tensor<64x\d+xf32', kernel.text)
    assert any(start in {result for result, _ in products} for _, start in products) == added
    if graph.inputs[0].dtype == "f16":
        assert max(errors(graph, {"h": 1, "m": 70, "n": 150}, 0)) < 1e-2


def without_meeting(number: int, of: int) -> Callable[[str], str]:
    """Each loop of each consumer without one of its meetings."""

    def without(text: str) -> str:
        pieces = re.split(r"(\n[^\n]*bar\.sync 11, 256[^\n]*)", text)
        meetings = len(pieces) // 2
        return (
            "".join(p for place, p in enumerate(pieces) if place % 2 == 0 or place // 2 % of != number)
            if meetings
            else ""
        )

    return without


def without_fence(text: str) -> str:
    return re.sub(r"\n[^\n]*fence_async_shared[^\n]*(\n[^\n]*bar\.sync 11, 256)", r"\1", text)


RACE = "may not have written|may still"
FAULTS: list[tuple[str, Graph, Callable[[str], str], str]] = [
    ("maxima before they are there", latent_attention(), without_meeting(0, 3), RACE),
    ("probabilities before they are there", latent_attention(), without_meeting(1, 3), RACE),
    ("sums before they are there", latent_attention(), without_meeting(2, 3), RACE),
    ("no fence", latent_attention(), without_fence, "without a fence"),
    ("written while others read", latent_chain(), without_meeting(0, 2), RACE),
    ("scores before they are there", latent_chain(), without_meeting(1, 2), RACE),
]


@pytest.mark.parametrize(("graph", "fault", "message"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_faults_are_found(graph: Graph, fault: Callable[[str], str], message: str) -> None:
    _, _, kernel = lowered(graph)
    text = fault(kernel.text)
    assert text != kernel.text
    with pytest.raises(CleaveError, match=message):
        errors(graph, {"h": 1, "m": 70, "n": 150}, 0, text)


def test_what_has_no_columns_is_stored_by_one_of_them() -> None:
    graph = latent_attention(partial=True)
    _, _, kernel = lowered(graph)
    rows = re.findall(r'"tt.store".*: \(tensor<64x!tt.ptr<f32>', kernel.text)
    assert len(rows) == 2 and '"scf.if"' not in kernel.text
    assert max(errors(graph, {"h": 1, "m": 70, "n": 150}, 0)) < 1e-2


def test_values_are_a_part_of_the_keys_buffer() -> None:
    """One ring for both, of which each consumer's values are the half that it begins at. Results go in four pieces."""
    candidate, _, kernel = lowered(latent_attention())
    assert TTGIR_TARGET in kernel.text and candidate.num_warps == 8
    *loaded, stored = [text for text in kernel.arguments if text.startswith("desc:")]
    assert len(loaded) == 2 and stored.endswith(":1x64x64")  # a fourth of the half
    assert kernel.text.count("x64x512xf16, #ttg.nvmma_shared") > 0 and "x64x256xf16, #ttg.nvmma" not in kernel.text
    for first in (0, 256):
        assert '"ttg.memdesc_subslice"' in kernel.text and f"offsets = array<i32: 0, {first}>" in kernel.text


def test_the_compiler_takes_it() -> None:
    """As predicted: two stages, 12 warps; the other half of the columns is 32 KiB further on. With the Triton of the
    machine that measures, 3.6, and with 3.7 nothing is spilled but shared numbers."""
    candidate, _, kernel = lowered(latent_attention())
    (found,) = compile_many([kernel.request(Target.parse("sm_90"))])
    assert isinstance(found, Compiled)
    assert found.num_warps == 12 and found.registers == 168 and not found.notes
    assert found.spills <= 192 or parse_version(version("triton")) > (3, 7)
    results = 2 * 64 * 64 * 2  # a piece of each consumer's, which the model leaves out
    assert found.shared <= candidate.cost.shared + results <= found.target.shared_per_block
    assert "32768;" in found.ptx


def test_columns_that_fit_are_not_divided() -> None:
    """Nothing is computed twice where the registers of one warpgroup hold the results."""
    found = schedule(
        latent_attention(width=64).deduplicated(),
        ScheduleOptions(sizes={"h": 128, "m": 128, "n": 1024}, warp_specialise=True),
    )
    special = [each for each in found.candidates[0] if each.warp_specialised]
    few = [each for each in special if (each.tiling.tiles["m"], each.tiling.tiles["n"]) == (64, 64)]
    assert few and all(each.num_warps == 4 for each in few)


@pytest.mark.parametrize("width", [320, 384])
def test_halves_of_columns_are_tiles_that_can_be_lowered(width: int) -> None:
    """Tiles of 192 are for three consumers alone; two halves of 96 columns are none of Triton's tiles."""
    options = ScheduleOptions(sizes={"h": 8, "m": 1024, "n": 1024}, max_tilings=48, warp_specialise=True)
    found = schedule(latent_attention(width=width).deduplicated(), options)
    special = [each for each in found.candidates[0] if each.warp_specialised]
    assert special and all(each.tiling.tiles["e"] != 192 for each in special)


def test_what_is_predicted_to_fit_is_lowered() -> None:
    """Barriers of the buffers count: with them two stages of 64 keys do not fit beside a query of 384."""
    options = ScheduleOptions(sizes={"h": 128, "m": 128, "n": 1024}, max_tilings=48, warp_specialise=True)
    found = schedule(latent_attention(width=384).deduplicated(), options)
    special = [each for each in found.candidates[0] if each.warp_specialised]
    for each in list({each.tiling.key: each for each in special}.values())[:6]:
        with CTX, ir.Location.unknown():
            module = ir.Module.create()
            from_tile_program(with_candidates(found.program, [each]), module)
            LowerToTtgir(chosen=True).apply(CTX, module)
            assert all(TTGIR_TARGET in kernel.text for kernel in kernel_modules(module)), each.tiling
