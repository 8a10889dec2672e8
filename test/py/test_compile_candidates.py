"""Candidates of a schedule as the compiler sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import graphs
import pytest

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.lowering.compile_candidates import Schedule, compiled
from cleave.lowering.targets import Target
from cleave.schedule.scheduler import Scheduled, ScheduleOptions, schedule

COUNT = 4
OPTIONS = ScheduleOptions(sizes={"m": 512, "n": 512, "k": 512})


@pytest.fixture(autouse=True)
def inside_a_context() -> Iterator[None]:
    with context(allow_unregistered=True), ir.Location.unknown():
        yield


def _matmul() -> Graph:
    return replace(graphs.matmul(), extents={"m": 512, "n": 512, "k": 512}).deduplicated()


@pytest.fixture(scope="module")
def ranked() -> Scheduled:
    return schedule(_matmul(), OPTIONS)


def _limit(monkeypatch: pytest.MonkeyPatch, shared: int) -> None:
    monkeypatch.setattr(Target, "shared_per_block", property(lambda target: shared))


def test_the_first_candidates_have_the_compilers_resources(ranked: Scheduled) -> None:
    (candidates,) = compiled(ranked, OPTIONS, COUNT).candidates
    tried, untried = candidates[:COUNT], candidates[COUNT:]
    assert all(candidate.tiling in [other.tiling for other in ranked.candidates[0][:COUNT]] for candidate in tried)
    assert all(candidate.cost.shared > 0 and 16 <= candidate.cost.registers <= 255 for candidate in tried)
    assert list(untried) == list(ranked.candidates[0][COUNT:])
    times = [candidate.cost.running for candidate in tried if not candidate.rejected]
    assert times == sorted(times)


def test_what_does_not_fit_is_rejected_with_the_reason(ranked: Scheduled, monkeypatch: pytest.MonkeyPatch) -> None:
    (free,) = compiled(ranked, OPTIONS, COUNT).candidates
    sizes = sorted(candidate.cost.shared for candidate in free[:COUNT])
    assert sizes[0] < sizes[-1], "candidates of different needs are wanted here"
    _limit(monkeypatch, sizes[0])
    limited = compiled(ranked, OPTIONS, COUNT)
    (candidates,) = limited.candidates
    assert candidates[0].cost.shared == sizes[0] and not candidates[0].rejected
    assert any("of shared memory" in candidate.rejected for candidate in candidates[:COUNT])
    assert limited.program.launches[0].kernel.num_warps == candidates[0].kernel.num_warps


def test_nothing_that_fits_is_an_error(ranked: Scheduled, monkeypatch: pytest.MonkeyPatch) -> None:
    _limit(monkeypatch, 100)
    with pytest.raises(CleaveError, match="no candidate for kernel 'matmul__k0' can be compiled") as caught:
        compiled(ranked, OPTIONS, 2)
    assert "KiB of shared memory" in caught.value.notes[0]


def test_where_none_of_the_first_can_be_taken_others_are_tried(
    ranked: Scheduled, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = compiled(ranked, OPTIONS, 1).candidates
    others = [c for c in ranked.candidates[0] if c.cost.shared < first[0].cost.shared // 2]
    assert others, "a candidate that needs less is wanted here"
    _limit(monkeypatch, first[0].cost.shared - 1)
    listed = replace(ranked, candidates=((ranked.candidates[0][0], others[0]),))
    (candidates,) = compiled(listed, OPTIONS, 1).candidates
    assert candidates[0].tiling == others[0].tiling and "of shared memory" in candidates[1].rejected


def test_a_number_below_nothing() -> None:
    with pytest.raises(CleaveError, match="compile is -1, but must be a number of candidates"):
        Schedule(compile=-1).refined(schedule(_matmul(), OPTIONS), OPTIONS)


def test_stages_that_change_nothing_are_tried_once(ranked: Scheduled) -> None:
    (first, *_), count = ranked.candidates[0], 4
    same = [replace(first, num_stages=stages) for stages in (2, 3, 4)]
    repeated = replace(ranked, candidates=((*same, *ranked.candidates[0][1:]),))
    tried = compiled(repeated, OPTIONS, count).candidates[0][:count]
    assert len({(c.kernel.body, c.kernel.num_warps, c.kernel.num_stages) for c in tried}) == count
    assert sum(c.kernel.body is first.kernel.body and c.num_stages in (2, 3, 4) for c in tried) == 1


def test_each_form_is_compiled_as_it_runs() -> None:
    """A warp-specialised candidate keeps its cost and the compiler's shared memory; of 192 rows it is no error."""
    options = replace(OPTIONS, sizes={"h": 32, "m": 4096, "n": 4096}, max_tilings=24, warp_specialise=True)
    found = schedule(graphs.attention(division_last=True, head=64).deduplicated(), options)
    special = [each for each in found.candidates[0] if each.warp_specialised]
    tried = [special[0], *(each for each in special if each.tiling.tiles["m"] == 192)][:2]
    (judged,) = compiled(replace(found, candidates=(tuple(tried),)), options, 2).candidates
    assert not judged[0].rejected
    before = {each.tiling.key: each.cost.running for each in tried}
    assert all(each.cost.running == before[each.tiling.key] and each.cost.shared > 0 for each in judged)
