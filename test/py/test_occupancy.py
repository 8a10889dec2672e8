"""What a block's tiles take of registers."""

from __future__ import annotations

import pytest
from test_ranges import scheduled

from cleave.dialects.graph import GraphBuilder
from cleave.schedule.occupancy import occupied
from cleave.schedule.tile_sizes import Shapes
from cleave.schedule.tiling import Tiling

ROWS, COLUMNS, DEPTH = 64, 32, 128


@pytest.mark.parametrize("computed", [True, False])
def test_a_product_is_beside_its_rows_if_these_are_computed(computed: bool) -> None:
    """Outside loops; loaded rows are in shared memory."""
    b = GraphBuilder("product")
    x, w = b.input(f"m d={DEPTH}", "f16"), b.input("d n", "f16")
    graph = b.build(b.contract(b.exp(x) if computed else x, w, over=["d"], dtype="f32"))
    kernel, _ = scheduled(graph, Tiling({"m": ROWS, "n": COLUMNS}, {"d": DEPTH}, frozenset("d")))
    assert not any(instruction.body for instruction in kernel.body.instructions)
    shapes = Shapes()
    live, _ = occupied(kernel, shapes).live(shapes.at(None))
    assert live == 4 * ROWS * COLUMNS + 2 * ROWS * DEPTH * computed
