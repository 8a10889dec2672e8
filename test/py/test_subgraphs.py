"""A slice of ``subgraph_cases``: for each of these one program of the search, on one schedule."""

from __future__ import annotations

import pytest
from subgraph_cases import SUBGRAPHS, problems

SLICE = ("two_outputs gqa_window mqa_sink mla_decode_absorbed layernorm_linear_f32 qk_norm_decode lora").split()


@pytest.mark.parametrize("name", SLICE)
def test_subgraph(name: str) -> None:
    assert not list(problems(SUBGRAPHS[name]().named(name), quick=True))
