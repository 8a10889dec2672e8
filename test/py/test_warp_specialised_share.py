"""A split in one launch as warp-specialised TTGIR: consumers meet other blocks, the producer does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import graphs
import numpy as np
import pytest
from compiled import lowered_by, reference
from test_overlap import arrays

from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.lowering import rings
from cleave.lowering.emit import KernelModule
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.targets import TTGIR_TARGET
from cleave.runtime import execute as run_plan
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import LaunchPlan
from cleave.runtime.ttir_assembly import COUNT_BLOCK, NOTHING
from cleave.schedule.arrange import arranged
from cleave.schedule.scheduler import ScheduleOptions, schedule, with_candidates

Lowered = tuple[LaunchPlan, dict[str, KernelModule]]
SIZES = {"h": 32, "n": 4096, "k": 4096, "s": 4}


@cache
def lowered(graph: Graph, rows: int) -> Lowered:
    """With tiles of so many rows: of 64 one consumer has all, of 128 each of two has a half."""
    sizes = {**SIZES, "h": SIZES["h"] // graph.extents.get("g", 1), "m": rows}
    options = ScheduleOptions(sizes=sizes, combine="share", warp_specialise=True)
    scheduled = schedule(graph.deduplicated(), options)
    parts, combine = scheduled.candidates
    alike = (c for c in parts if c.warp_specialised and c.num_warps * 16 == rows == c.tiling.tiles["m"])
    chosen = next(alike)
    scheduled = replace(
        scheduled,
        program=with_candidates(scheduled.program, [chosen, combine[0]]),
        candidates=((chosen,), combine),
    )
    with patch.object(rings, "MOST_STAGES", 2):
        return lowered_by(LowerToTtgir(chosen=True), arranged(scheduled, options))


def error(graph: Graph, rows: int, sizes: dict[str, int], count: int, texts: dict[str, str], seed: int = 0) -> float:
    """The largest, relative to the largest number."""
    inputs = arrays(graph, sizes)
    (expected,) = reference(graph, inputs, "f64", {"s": count})
    (found,) = execute(lowered(graph, rows)[0], texts, inputs, {"s": count}, seed=seed)
    difference = np.abs(found.astype(float) - expected).max(initial=0.0)
    return float(difference / np.abs(expected).max(initial=1e-30))


def texts_of(graph: Graph, rows: int) -> dict[str, str]:
    return {name: kernel.text for name, kernel in lowered(graph, rows)[1].items()}


GRAPHS: Sequence[Graph] = [graphs.split_attention(), graphs.split_attention(group=4)]
SIZES_OF_RUN = {"h": 1, "m": 70, "n": 150}


CASES = [
    (GRAPHS[0], 64, [(SIZES_OF_RUN, 3), ({"h": 1, "m": 1, "n": 1}, 2), ({"h": 1, "m": 0, "n": 5}, 2)]),
    (GRAPHS[0], 128, [(SIZES_OF_RUN, count) for count in (1, 2, 7)]),
    (GRAPHS[1], 128, [({"h": 1, "m": 5, "n": 9}, 12)]),
]


@pytest.mark.parametrize(("graph", "rows", "runs"), CASES, ids=["one-consumer", "two", "groups"])
def test_numbers(graph: Graph, rows: int, runs: Sequence[tuple[dict[str, int], int]]) -> None:
    plan, kernels = lowered(graph, rows)
    shared = plan.launches[0]
    assert shared.cooperative and not shared.persistent and TTGIR_TARGET in kernels[shared.kernel].text
    for sizes, count in runs:
        assert error(graph, rows, sizes, count, texts_of(graph, rows), seed=count) < 2e-3


def test_a_unit_of_one_row() -> None:
    """Whose maximum over the parts is a number and no tile."""
    graph = graphs.split_attention(group=32, head=128)
    options = ScheduleOptions(sizes={"h": 1, "m": 16, "n": 4096, "s": 32}, combine="share", warp_specialise=True)
    scheduled = schedule(graph.deduplicated(), options)
    parts, combine = scheduled.candidates
    chosen = next(c for c in parts if c.warp_specialised and c.num_warps == 8)
    program = with_candidates(scheduled.program, [chosen, combine[0]])
    scheduled = replace(scheduled, program=program, candidates=((chosen,), combine))
    plan, kernels = lowered_by(LowerToTtgir(chosen=True), arranged(scheduled, options))
    text = kernels[plan.launches[0].kernel].text
    assert TTGIR_TARGET in text and re.search(r"\(tensor<\d+xf32, [^()]*\) -> f32", text)
    inputs = arrays(graph, {"h": 1, "m": 3, "n": 70})
    for count in (1, 3):
        (expected,) = reference(graph, inputs, "f64", {"s": count})
        (found,) = execute(
            plan, {name: kernel.text for name, kernel in kernels.items()}, inputs, {"s": count}, seed=count
        )
        assert np.abs(found.astype(float) - expected).max() < 2e-3


def test_counters_are_zero_again() -> None:
    made: list[np.ndarray] = []
    allocate = run_plan._allocate

    def noted(*arguments: object) -> np.ndarray:
        made.append(allocate(*arguments))  # type: ignore[arg-type]
        return made[-1]

    with patch.object(run_plan, "_allocate", noted):
        assert error(GRAPHS[0], 128, SIZES_OF_RUN, 3, texts_of(GRAPHS[0], 128)) < 2e-3
    counters = [array for array in made if array.dtype == np.int32]
    assert counters and not any(array.any() for array in counters)


# --- broken kernels ---------------------------------------------------------------------------------------------------

COUNT = COUNT_BLOCK.replace("\n", "\\0A")
MEET = "bar.sync 12, 256; mov.b32 $0, 0;"


def broken(old: str, new: str, which: int | None = None) -> dict[str, str]:
    """With one text of assembly in place of another: everywhere, or the one of this number."""
    texts = texts_of(GRAPHS[0], 128)
    name = lowered(GRAPHS[0], 128)[0].launches[0].kernel
    pieces = texts[name].split(old)
    assert len(pieces) > 1
    places = range(1, len(pieces)) if which is None else [which]
    text = "".join((new if place in places else old) * bool(place) + piece for place, piece in enumerate(pieces))
    return {**texts, name: text}


def outcomes(texts: dict[str, str], seeds: int = 3) -> list[str]:
    """The errors in as many orders; "wrong" where numbers are."""
    found: list[str] = []
    for seed in range(seeds):
        try:
            if not error(GRAPHS[0], 128, SIZES_OF_RUN, 3, texts, seed) < 2e-3:
                found.append("wrong")
        except CleaveError as problem:
            found.append(problem.message)
    return found


def outcome(texts: dict[str, str]) -> str:
    return next(iter(outcomes(texts)), "")


def test_consumers_that_do_not_meet_are_found() -> None:
    late = "partitions [2] wrote is known of"
    assert any(late in each for each in outcomes(broken(MEET, NOTHING)))
    # two meetings of each: the first of both, then the second of both
    first = broken(MEET, NOTHING, 1)
    name = lowered(GRAPHS[0], 128)[0].launches[0].kernel
    both = {**first, name: NOTHING.join(first[name].rsplit(MEET, 1))}
    assert any(late in each for each in outcomes(both))
    assert outcome(broken(MEET, NOTHING, 1))  # the other one waits in vain


def test_consumers_that_do_not_wait_for_other_blocks_are_found() -> None:
    assert outcome(broken(COUNT, NOTHING)) == "wrong"
    second = texts_of(GRAPHS[0], 128)
    name = lowered(GRAPHS[0], 128)[0].launches[0].kernel
    head, *rest = second[name].split(MEET)
    assert len(rest) == 4
    # the first consumer has the first two, the other one the last two; without the second ones
    text = MEET.join([head, rest[0]]) + NOTHING + rest[1] + MEET + rest[2] + NOTHING + rest[3]
    assert outcome({**second, name: text})


def test_a_count_without_release_is_refused() -> None:
    relaxed = COUNT.replace("red.release", "red.relaxed", 1)
    assert "not known to the interpreter" in outcome(broken(COUNT, relaxed))
