"""Chains of more ops than Python's stack has frames are scheduled, and compute what they say."""

from __future__ import annotations

import numpy as np
import pytest

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.passes.graph_io import from_graph
from cleave.passes.schedule import Schedule
from cleave.reference import run

LENGTH = 1200
ROWS, COLUMNS = 2, 9


def chain(end: str) -> Graph:
    """x + 1 + 1 + …, of which the end is summed, or read in part, or under another name."""
    b = GraphBuilder("f")
    value = b.input(f"m n={COLUMNS}", "f32")
    one = b.constant(1.0, "f32")
    for _ in range(LENGTH):
        value = b.add(value, one)
    if end == "normalised":
        return b.build(b.sub(value, b.reduce(value, kind="max", over=["n"])))
    if end == "renamed":
        return b.build(b.add(b.rename(value, **{"from": "n", "to": "k=n"}), value))
    return b.build(b.slice(value, dim="n", into="e=4", offset="3"))


@pytest.mark.parametrize("end", ["normalised", "renamed", "in part"])
def test_long_chains_are_scheduled(end: str) -> None:
    x = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    last = x + LENGTH
    expected = {
        "normalised": last - last.max(axis=1, keepdims=True),
        "renamed": last[:, :, None] + last[:, None, :],
        "in part": last[:, 3:7],
    }[end]
    with context() as ctx, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(chain(end), module)
        Schedule().apply(ctx, module)
        (found,) = run(module, "f", [x], precision="declared")
    np.testing.assert_array_equal(found, expected)
