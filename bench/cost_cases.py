"""What the cost model is measured on: nine subgraphs of ``cleave-bench`` and four more, and which schedules."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "test" / "py"))

import graphs

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.schedule.cost import kernel_cost, known_of, launch_time
from cleave.schedule.scheduler import Candidate, Scheduled, ScheduleOptions, schedule
from cleave.schedule.target import target_named
from cleave.schedule.tile_program import TileProgram

Sizes = Mapping[str, int]

TARGET = target_named("h200")
HINTS = (1024, 16)
"""Rows that schedules are taken for; the same binaries are measured with ``ROWS``."""
ROWS = (16, 128, 1024)
RANKS = (0, 1, 2, 4, 7)
SHARES = (0.2, 0.4, 0.6, 0.9)
"""Which of a ranking's schedules are measured: the first, and some down to the bad ones."""


@dataclass(frozen=True)
class Subject:
    """A graph whose rows ``m`` are dynamic; ``sizes`` has its other dynamic sizes, ``reference`` its computation."""

    name: str
    graph: Graph
    reference: str
    sizes: Sizes

    def at(self, rows: int) -> dict[str, int]:
        return {**self.sizes, "m": rows}


def subjects() -> list[Subject]:
    keys = {"n": 4096}
    return [
        Subject("matmul", _static(graphs.matmul(), k=4096, n=4096), "matmul", {}),
        Subject("matmul_matmul", _static(graphs.matmul_matmul(), h=32), "matmul_matmul", keys),
        Subject("matmul_rowsum", _static(graphs.matmul_rowsum(), n=4096), "matmul_rowsum", {}),
        Subject("swiglu", graphs.swiglu_layer(), "swiglu", {}),
        Subject("rmsnorm_matmul", _static(graphs.rmsnorm_matmul(size=4096), n=6144), "rmsnorm_matmul", {}),
        Subject("mha", graphs.grouped_attention(32, 1, 128, 128), "attention", keys),
        Subject("gqa", graphs.grouped_attention(8, 4, 128, 128), "attention", keys),
        Subject("mqa", graphs.grouped_attention(1, 32, 128, 128), "attention", keys),
        Subject("mla", graphs.grouped_attention(128, 1, 192, 128), "attention", keys),
        Subject("rmsnorm_swiglu", graphs.swiglu_layer(norm=True), "rmsnorm_swiglu", {}),
        Subject("log_sum_exp", _log_sum_exp(2048, 32768), "log_sum_exp", {}),
        Subject("split_attention", _static(graphs.split_attention(head=128), h=32), "split_attention", keys),
        Subject("split_matmul", _static(graphs.split_matmul(), k=4096, n=4096), "matmul", {}),
    ]


def _static(graph: Graph, **extents: int) -> Graph:
    return replace(graph, extents={**graph.extents, **extents})


def _log_sum_exp(size: int, words: int) -> Graph:
    """The log of the sum of the exponentials of a language model's logits."""
    b = GraphBuilder("log_sum_exp")
    s = b.contract(b.input(f"m k={size}", "f16"), b.input(f"k n={words}", "f16"), over=["k"])
    top = b.reduce(s, kind="max", over=["n"])
    return b.build(b.add(top, b.log(b.reduce(b.exp(b.sub(s, top)), kind="sum", over=["n"]))))


@dataclass(frozen=True)
class Choice:
    """A schedule of a subject. ``choices``: split counts for each number of rows."""

    program: TileProgram
    tilings: Sequence[str]
    choices: Mapping[int, Sizes]


def chosen(subject: Subject) -> list[Choice]:
    """Different schedules for each of ``HINTS``, then some with a kernel for each reduction; most telling first."""
    found: dict[str, Choice] = {}
    counts = {rows: _schedule(subject, rows).program.choices for rows in ROWS}
    rankings = [(_schedule(subject, rows), len(RANKS) + len(SHARES)) for rows in HINTS]
    rankings.append((_schedule(subject, HINTS[0], fused=False), 2))
    for number in range(len(RANKS) + len(SHARES)):
        for scheduled, most in rankings:
            if number < most:
                program, tilings = _alternative(scheduled, number)
                found.setdefault(str(tilings), Choice(program, tilings, counts))
    return list(found.values())


def _schedule(subject: Subject, rows: int, *, fused: bool = True) -> Scheduled:
    options = ScheduleOptions(TARGET, subject.at(rows), iterative_tiling=fused)
    return schedule(subject.graph.deduplicated(), options)


def _alternative(scheduled: Scheduled, number: int) -> tuple[TileProgram, list[str]]:
    """The program with, for each launch, the ``number``-th of the ranks and shares of those that fit, best first."""
    launches, tilings = [], []
    for launch, ranked in zip(scheduled.program.launches, scheduled.candidates, strict=True):
        candidate = _at([candidate for candidate in ranked if candidate.cost.fits(TARGET)], number)
        kernel = replace(candidate.kernel, name=launch.kernel.name)
        launches.append(replace(launch, kernel=kernel, operands=candidate.operands))
        tiling = candidate.tiling
        tiles = [
            f"{name}={n}{'*' * (name in tiling.resident)}" for name, n in {**tiling.grid, **tiling.reduced}.items()
        ]
        tilings.append(" ".join(tiles))
        tilings[-1] += f" / {kernel.num_warps} warps, {kernel.num_stages} stages"
    return replace(scheduled.program, launches=tuple(launches)), tilings


def _at(fitting: Sequence[Candidate], number: int) -> Candidate:
    if not fitting:
        raise CleaveError("no schedule fits")
    place = RANKS[number] if number < len(RANKS) else int(SHARES[number - len(RANKS)] * len(fitting))
    return fitting[min(place, len(fitting) - 1)]


def pairs(subject: Subject, choice: Choice) -> Iterator[tuple[int, dict[str, int]]]:
    """(rows, all sizes) at which a schedule is measured."""
    for rows in ROWS:
        yield rows, {**subject.at(rows), **choice.choices[rows], **subject.graph.extents}


def predicted(program: TileProgram, sizes: Sizes) -> dict[str, float]:
    """Predicted microseconds by part, summed over the launches; ``launch`` with what even an empty kernel takes."""
    known = known_of(program.graph)
    costs = [kernel_cost(launch.kernel, sizes, TARGET, known) for launch in program.launches]
    parts = ("dram", "l2", "tensor", "special", "alu", "latency", "running")
    found = {part: sum(getattr(cost, part) for cost in costs) * 1e6 for part in parts}
    found["launch"] = (launch_time(len(costs), TARGET) + sum(cost.start for cost in costs)) * 1e6
    return {**found, "total": found["running"] + launch_time(len(costs), TARGET) * 1e6}
