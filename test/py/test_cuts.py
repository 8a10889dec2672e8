"""What kernels write for one another."""

from __future__ import annotations

import graphs
import pytest

from cleave.dialects.graph import Graph
from cleave.schedule import scheduler
from cleave.schedule.partition import cuts, kernels_of
from cleave.schedule.region import region_of
from cleave.schedule.rename import viewed
from cleave.schedule.scheduler import PROMISING, QUICK, Kernels, ScheduleOptions, Schedules


@pytest.mark.parametrize(
    "graph", [graphs.attention(), graphs.causal_attention(), graphs.rmsnorm_swiglu(), graphs.qkv()]
)
@pytest.mark.parametrize("wide", [False, True])
def test_each_kernel_writes_outputs_or_what_another_one_reads(graph: Graph, wide: bool) -> None:
    partitions = [kernels_of(graph, cut, wide=wide) for cut in cuts(graph)]
    assert max(map(len, partitions)) > 1
    for kernels in partitions:
        boundary = frozenset(value for outputs in kernels for value in outputs)
        reads = [region_of(outputs, boundary, graph.extents).memory for outputs in kernels]
        read = {viewed(value) for memory in reads for value in memory} | {viewed(value) for value in graph.outputs}
        assert boundary <= read


def test_fewest_kernels_are_never_left_out_for_what_few_tilings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many ways to divide a function that of one kernel looks worst with few tilings here, and best with more."""
    times: dict[Kernels, int] = {}

    def time_below(self: object, limits: tuple[float, float], kernels: Kernels, tilings: int) -> float:
        number = times.setdefault(kernels, len(times) + 1)
        return 1 / number if tilings <= QUICK else number

    monkeypatch.setattr(scheduler._Scheduler, "_time_below", time_below)
    found = Schedules(graphs.lora().deduplicated(), ScheduleOptions()).finalists(2 * QUICK)
    assert len(times) > PROMISING + 1
    assert 1 in [len(each.program.launches) for each in found]
