"""Parts of splits loaded from whole tensors: numbers, and where there are no such loads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import graphs
import numpy as np
import pytest
from compiled import lowered_by, reference
from test_overlap import arrays

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.targets import TTGIR_TARGET
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import LaunchPlan
from cleave.schedule import whole_operands
from cleave.schedule.arrange import arranged
from cleave.schedule.scheduler import ScheduleOptions, schedule, with_candidates
from cleave.search.superoptimise import superoptimise


def product(unit: int) -> Graph:
    """Nothing but zeros past the end of a part keeps the next one out of its sums."""
    b = GraphBuilder("product", facts=["1 <= s"])
    x, w = b.input("m k=1000", "f16"), b.input("k=1000 n=64", "f16")
    into = ("s", f"t={unit}*ceildiv(k, {unit}*s)")
    x, w = (b.split(value, dim="k", into=into) for value in (x, w))
    return b.build(b.reduce(b.contract(x, w, over=["t"], dtype="f32"), kind="sum", over=["s"]))


def lowered(graph: Graph, sizes: Mapping[str, int]) -> tuple[LaunchPlan, dict[str, str]]:
    """As TTIR, the parts with descriptors and tiles along ``t``."""
    options = ScheduleOptions(sizes=sizes, combine="pdl")
    scheduled = schedule(graph.deduplicated(), options)
    parts, combine = scheduled.candidates
    chosen = replace(next(c for c in parts if c.tiling.tiles["t"] == 64), descriptors=True)
    found = replace(scheduled, program=with_candidates(scheduled.program, [chosen, combine[0]]))
    plan, kernels = lowered_by(LowerToTriton(), arranged(found, options))
    return plan, {name: kernel.text for name, kernel in kernels.items()}


def compare(graph: Graph, program: tuple[LaunchPlan, dict[str, str]], sizes: dict[str, int], **counts: int) -> None:
    inputs = arrays(graph, sizes)
    (expected,) = reference(graph, inputs, "f64", counts)
    (actual,) = execute(*program, inputs, {"s": counts["s"]})
    assert np.abs(actual - expected).max() <= 2e-3 * np.abs(expected).max()


def described(unit: int) -> list[str]:
    """The descriptors of the kernel of the parts; its numbers are compared."""
    program = lowered(product(unit), {"m": 512, "k": 1000, "s": 2})
    for count in (1, 2, 3, 7):
        compare(product(unit), program, {"m": 70}, s=count)
    return [text for text in program[0].launches[0].arguments if text.startswith("desc:")]


def test_tiles_that_divide_parts_are_described() -> None:
    assert [text.split(":")[2] for text in described(128)] == ["0,1", "0,1"]


def test_tiles_that_reach_over_parts_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert described(16) == []
    monkeypatch.setattr(whole_operands, "_is_even", lambda *_: True)
    with pytest.raises(AssertionError):
        described(16)


def test_attention_in_parts() -> None:
    """Keys, under other names, and values."""
    graph = next(a.graph for a in superoptimise(graphs.attention().deduplicated()).alternatives if a.split == "n")
    program = lowered(graph, {"h": 8, "m": 64, "n": 8192, "s": 4, "u": 128})
    launch = program[0].launches[0]
    assert sum(text.startswith("desc:") for text in launch.arguments) == 3
    assert "tt.load" not in program[1][launch.kernel], "the last tile of a part, too, is one of the whole tensor"
    for n, count in ((1, 3), (129, 2), (300, 2)):
        compare(graph, program, {"h": 1, "m": 3, "n": n}, s=count, u=128)


@pytest.mark.parametrize("rows", [64, 128])
def test_warp_specialised_attention_in_parts(rows: int) -> None:
    """No copies by threads, and as many stages as the model counts on."""
    graph = next(a.graph for a in superoptimise(graphs.attention().deduplicated()).alternatives if a.split == "n")
    options = ScheduleOptions(
        sizes={"h": 8, "m": 128, "n": 8192, "s": 4, "u": 128}, combine="pdl", warp_specialise=True
    )
    scheduled = schedule(graph.deduplicated(), options)
    parts, combine = scheduled.candidates
    special = (c for c in parts if c.warp_specialised and c.tiling.tiles["t"] == 64)
    chosen = next(c for c in special if c.tiling.tiles["m"] == rows)
    found = replace(scheduled, program=with_candidates(scheduled.program, [chosen, combine[0]]))
    plan, kernels = lowered_by(LowerToTtgir(chosen=True), arranged(found, options))
    text = kernels[plan.launches[0].kernel].text
    assert TTGIR_TARGET in text and "async_copy_global_to_local" not in text
    assert max(map(int, re.findall(r"memdesc<(\d+)x64x64xf16", text))) == chosen.num_stages
    texts = {name: kernel.text for name, kernel in kernels.items()}
    for n, count in ((1, 3), (129, 2), (300, 2)):
        compare(graph, (plan, texts), {"h": 1, "m": 3, "n": n}, s=count, u=128)
