"""Few rows: the workloads of the decode figures, and which schedules of each are measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "test" / "py"))

import graphs

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.errors import CleaveError
from cleave.schedule.scheduler import PARTS, Candidate, Scheduled, ScheduleOptions, schedule
from cleave.schedule.target import target_named
from cleave.schedule.tile_program import TileProgram
from cleave.search import SearchOptions, superoptimise

TARGET = target_named("h200")
ROUGH = 12
"""Tilings on which each alternative is judged before the best are searched in full."""
FIRST = 6
SPREAD = 10
"""Schedules measured of the best alternative without a split and of the best one with: the first, and others over the
whole ranking."""


@dataclass(frozen=True)
class Workload:
    """``name``/``rows``; ``sizes``: of the dynamic dims, rows included; ``reference`` names its computation."""

    name: str
    rows: int
    graph: Graph
    reference: str
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class Choice:
    """A schedule; ``counts``: numbers of parts to measure it at, the predicted best first (none: no split)."""

    program: TileProgram
    tilings: Sequence[str]
    counts: Sequence[Mapping[str, int]]


def workloads() -> Iterator[Workload]:
    for rows in (16, 32, 64, 128):
        yield Workload("matmul", rows, _static(graphs.matmul(), k=4096, n=4096), "matmul", {"m": rows})
    for rows in (16, 128):
        norm = _static(graphs.rmsnorm_matmul(size=4096), n=6144)
        yield Workload("rmsnorm_matmul", rows, norm, "rmsnorm_matmul", {"m": rows})
        yield Workload("swiglu", rows, _swiglu(), "swiglu", {"m": rows})
        chain = _static(graphs.matmul_matmul(), h=32)
        yield Workload("matmul_matmul", rows, chain, "matmul_matmul", {"m": rows, "n": 4096})
        for name, kv in (("mha", 32), ("gqa", 8), ("mqa", 1)):
            for head in (64, 128):
                attention = _attention(kv, 32 // kv, head)
                yield Workload(f"{name}_d{head}", rows, attention, "attention", {"m": rows, "n": 4096})
    for length in (1024, 4096):
        yield Workload(f"mla_{length}", 128, _latent_attention(), "mla", {"n": length})


def _static(graph: Graph, **extents: int) -> Graph:
    return replace(graph, extents={**graph.extents, **extents})


def _attention(kv: int, group: int, head: int) -> Graph:
    b = GraphBuilder("attention", facts=["1 <= n"])
    q = b.input(f"a={kv} g={group} m d={head}", "f16")
    k, v = b.input("a n d", "f16"), b.input(f"a n e={head}", "f16")
    s = b.mul(b.contract(q, k, over=["d"], dtype="f32"), b.constant(head**-0.5, "f32"))
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    return b.build(_divided_last(b, e, v))


def _latent_attention() -> Graph:
    """MLA's decode step with absorbed weights: 128 sequences, 128 heads, latent 512, positions 64."""
    b = GraphBuilder("mla", facts=["1 <= n"])
    q, c = b.input("b=128 h=128 d=512", "f16"), b.input("b n d", "f16")
    qp, kp = b.input("b h r=64", "f16"), b.input("b n r", "f16")
    s = b.add(b.contract(q, c, over=["d"], dtype="f32"), b.contract(qp, kp, over=["r"], dtype="f32"))
    s = b.mul(s, b.constant(192**-0.5, "f32"))
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    return b.build(_divided_last(b, e, c))


def _divided_last(b: GraphBuilder, e: Value, v: Value) -> Value:
    total = b.reduce(e, kind="sum", over=["n"])
    product = b.contract(b.cast(e, dtype="f16"), v, over=["n"], dtype="f32")
    return b.cast(b.div(product, total), dtype="f16")


def _swiglu() -> Graph:
    b = GraphBuilder("swiglu")
    x, w, v = b.input("m k=4096", "f16"), b.input("k f=14336", "f16"), b.input("k f", "f16")
    a, u = b.contract(x, w, over=["k"]), b.contract(x, v, over=["k"])
    return b.build(b.cast(b.mul(b.mul(a, b.sigmoid(a)), u), dtype="f16"))


def chosen(workload: Workload) -> list[Choice]:
    """The first schedules of the best alternatives, the best predicted one first."""
    found = superoptimise(workload.graph.deduplicated(), SearchOptions(split=True)).alternatives
    plain = _best([each.graph for each in found if each.split is None], workload)
    split = _best([each.graph for each in found if each.split], workload)
    both = sorted((each for each in (plain, split) if each), key=lambda scheduled: scheduled.seconds)
    return [choice for scheduled in both for choice in _first(scheduled)]


def _best(alternatives: Sequence[Graph], workload: Workload) -> Scheduled | None:
    rough = ScheduleOptions(TARGET, workload.sizes, max_tilings=ROUGH)
    judged: list[tuple[float, Graph]] = []
    for graph in alternatives:
        try:
            judged.append((schedule(graph.deduplicated(), rough).seconds, graph))
        except CleaveError as error:
            print(f"{workload.name}: {error}")
    if not judged:
        return None
    _, graph = min(judged, key=lambda pair: pair[0])
    return schedule(graph.deduplicated(), ScheduleOptions(TARGET, workload.sizes))


def _first(scheduled: Scheduled) -> Iterator[Choice]:
    """Schedules of different tilings: the first ones, and some down to the bad ones."""
    ranked = [_different([c for c in each if c.cost.fits(TARGET)]) for each in scheduled.candidates]
    main, others = ranked[0], [each[0] for each in ranked[1:]]
    rest = main[FIRST:]
    spread = [rest[number * len(rest) // SPREAD] for number in range(min(SPREAD, len(rest)))]
    for candidate in (*main[:FIRST], *spread):
        picked = [candidate, *others]
        yield Choice(_with(scheduled, picked), [_described(c) for c in picked], _counts(scheduled))


def _different(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best of each tiling, in the order of their ranks, but the second place stays; every third with other options
    than its best."""
    of_tiling: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        of_tiling.setdefault(id(candidate.tiling), []).append(candidate)
    found = [each[(number % 3 == 2) * (len(each) // 2)] for number, each in enumerate(of_tiling.values())]
    second = [candidate for candidate in candidates[1:2] if candidate not in found]
    return [*found[:1], *second, *found[1:]]


def _with(scheduled: Scheduled, picked: Sequence[Candidate]) -> TileProgram:
    launches = [
        replace(launch, kernel=replace(candidate.kernel, name=launch.kernel.name), operands=candidate.operands)
        for launch, candidate in zip(scheduled.program.launches, picked, strict=True)
    ]
    return replace(scheduled.program, launches=tuple(launches))


def _described(candidate: Candidate) -> str:
    tiling = candidate.tiling
    tiles = [f"{name}={n}{'*' * (name in tiling.resident)}" for name, n in {**tiling.grid, **tiling.reduced}.items()]
    kernel, form = candidate.kernel, f" {tiling.form}" if tiling.form else ""
    return f"{' '.join(tiles)}{form} / {kernel.num_warps} warps, {kernel.num_stages} stages"


def _counts(scheduled: Scheduled) -> list[Mapping[str, int]]:
    choices = scheduled.program.choices
    if not choices:
        return [{}]
    ((name, best),) = choices.items()
    place = PARTS.index(best)
    return [{name: PARTS[i]} for i in (place, place - 1, place + 1, place + 2) if 0 <= i < len(PARTS)]
