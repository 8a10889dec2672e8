"""What kernels write for one another."""

from __future__ import annotations

import graphs
import pytest

from cleave.dialects.graph import Graph
from cleave.schedule.partition import cuts, kernels_of
from cleave.schedule.region import region_of
from cleave.schedule.rename import viewed


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
