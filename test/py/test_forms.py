"""Kernels that are weighed with the code of another tiling cost what their own code costs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import cascades
import graphs
import pytest

from cleave.dialects.dims import NO_FACTS
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.schedule import candidates, cost, outline
from cleave.schedule.emit import Emitted, emit_kernel
from cleave.schedule.explore import spread
from cleave.schedule.forms import Form, form_of
from cleave.schedule.region import Region, region_of
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.tiling import Fusion, Tiling
from cleave.schedule.tilings import space_of
from cleave.schedule.workload import Workload, workload

SIZES = (1000, 64)


def causal(extent: int | None = None) -> Graph:
    """Causal attention over keys of static size, or of dynamic: loops without masks, and what is left of them."""
    b = GraphBuilder("causal", NO_FACTS)
    q, k, v = b.input("h m d=64", "f16"), b.input("h n d=64", "f16"), b.input("h n e=64", "f16")
    s = b.contract(q, k, over=["d"], dtype="f32")
    seen = b.cmp(b.op("index", dim="n", dtype="i64"), b.op("index", dim="m", dtype="i64"), predicate="le")
    s = b.select(seen, s, b.constant(-math.inf, "f32"))
    p = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    o = b.contract(b.op("cast", p, dtype="bf16"), b.op("cast", v, dtype="bf16"), over=["n"], dtype="f32")
    graph = b.build(b.div(o, b.reduce(p, kind="sum", over=["n"])))
    return replace(graph, name=f"causal{extent}", extents={"d": 64, "e": 64, **({"n": extent} if extent else {})})


def matmul(k: int, n: int) -> Graph:
    return replace(graphs.matmul(), extents={"k": k, "n": n})


CASES = [
    causal(),
    causal(1056),
    graphs.attention(),
    matmul(100, 48),
    cascades.layernorm_contraction(),
    cascades.moment(2),
]


def kernel_of(region: Region, tiling: Tiling) -> Emitted:
    return emit_kernel("kernel", region, tiling, region.extents, Fusion())


def numbers(work: Workload) -> dict[str, object]:
    """``gathered`` is by arguments, which are each kernel's own."""
    found = {each.name: getattr(work, each.name) for each in fields(work)}
    return {**found, "gathered": sorted(work.gathered.values())}


@pytest.mark.parametrize("graph", CASES, ids=lambda graph: graph.name)
@pytest.mark.parametrize("size", SIZES)
def test_workloads_are_those_of_own_code(graph: Graph, size: int) -> None:
    graph = graph.deduplicated()
    region = region_of(graph.outputs, frozenset(), graph.extents)
    symbols = {symbol for dims in region.sizes.values() for symbol in dims.symbols}
    sizes = {symbol: graph.extents.get(symbol, size) for symbol in symbols}
    space = space_of(region, {name: dims.evaluate(sizes) for name, dims in region.sizes.items()})
    forms: dict[object, list[Form]] = {}
    shared = 0
    for point in spread(space.points, 16):
        tiling = space.tiling(point)
        assert tiling is not None
        own, known = kernel_of(region, tiling), forms.setdefault(form_of(region, tiling), [])
        alike = next((form for form in known if form.has(tiling)), None)
        shared += alike is not None
        if alike is None:
            known.append(alike := Form(region, tiling, own))
        for descriptors in (False, True):
            expected = workload(replace(own.kernel, descriptors=descriptors), sizes, graph.extents)
            found = alike.workload(tiling, sizes, graph.extents, descriptors=descriptors)
            assert numbers(found) == numbers(expected), tiling
    assert shared, "no two tilings of a form"


def test_kernels_are_built_for_forms_not_for_tilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much is done once, in counts: what each tiling or each of its resources asked for would take seconds."""
    done: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            done[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    count(candidates, "emit_kernel")
    count(outline, "occupied")
    count(candidates.Candidates, "_variants")
    count(cost.Costs, "of")
    count(cost.Costs, "_alone")
    schedule(graphs.attention(), ScheduleOptions(sizes={"h": 32, "m": 1024, "n": 4096, "d": 64}))
    assert 0 < done["_variants"] <= 500
    assert 0 < done["emit_kernel"] <= done["_variants"] / 5
    assert 0 < done["occupied"] <= done["_variants"] / 3
    assert 0 < done["_alone"] <= done["of"] <= 24 * done["_variants"]
