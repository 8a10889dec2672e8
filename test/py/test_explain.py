"""The table of ``--schedule{explain}``: how each candidate loads, and no row twice."""

from __future__ import annotations

from dataclasses import replace

from cleave.dialects.dims import Facts
from cleave.dialects.graph import GraphBuilder
from cleave.schedule.explain import ROWS, table
from cleave.schedule.scheduler import Scheduled, ScheduleOptions, schedule
from cleave.schedule.target import target_named

TARGET = target_named("h200")


def scheduled() -> Scheduled:
    b = GraphBuilder("product", Facts.parse([]))
    x, w = b.input("m=4096 k=4096", "f16"), b.input("k=4096 n=4096", "f16")
    graph = b.build(b.op("contract", x, w, over=["k"], dtype="f16"))
    return schedule(graph, ScheduleOptions(TARGET, warp_specialise=True, max_tilings=4))


def test_each_row_says_how_it_loads_and_differs_from_the_others() -> None:
    found = scheduled()
    (candidates,) = found.candidates
    ways = {way: next(c for c in candidates if flag(c)) for way, flag in WAYS.items()}
    few = replace(found, candidates=((*ways.values(), *map(replace, ways.values())),))
    title, heads, *rows = table(few, TARGET).splitlines()
    assert title.startswith("product__k0: grid ") and title.endswith(", a plain product") and "loads by" in heads
    assert [next(word for word in row.split() if word in ways) for row in rows] == list(ways)
    assert [row.split()[0] for row in rows] == ["0", "1", "2"]


WAYS = {
    "pointers": lambda c: not c.descriptors,
    "descriptors": lambda c: c.descriptors and not c.warp_specialised,
    "warp-specialised": lambda c: c.warp_specialised,
}


def test_what_is_not_shown_is_counted_and_what_the_compiler_rejected_is_shown() -> None:
    found = scheduled()
    rejected = replace(found.candidates[0][-1], rejected="it spills", num_warps=32)
    few = replace(found, candidates=((*found.candidates[0], rejected, rejected),))
    *rows, more = table(few, TARGET).splitlines()
    assert sum("rejected: it spills" in row for row in rows) == 1
    shown = [row.split()[0] for row in rows[2:]]
    assert len(shown) == ROWS + 1 and len({tuple(row.split()[1:]) for row in rows[2:]}) == len(shown)
    assert int(more.split()[2]) + len(shown) <= len(few.candidates[0])
