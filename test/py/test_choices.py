"""What is chosen at shapes where an H200 showed that the choice matters (bench/results/h200/)."""

from __future__ import annotations

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.schedule.scheduler import Scheduled, ScheduleOptions, schedule
from cleave.schedule.tile_program import LOADS, Kernel
from cleave.schedule.tile_sizes import is_tensor_core

TARGET = ScheduleOptions().target
WIDTHS = {"q": 4096, "v": 1024, "w": 1024}
FACTS = [f"{name} = 16*{name}1" for name in ("k", *WIDTHS)]


def _scheduled(graph: Graph, tilings: int = 12, **sizes: int) -> Scheduled:
    known = {f"{name}1": size // 16 for name, size in sizes.items()}
    return schedule(graph.deduplicated(), ScheduleOptions(sizes={**known, **sizes}, max_tilings=tilings))


def _projections(*, normalised: bool) -> Graph:
    """x, or RMSNorm of x, times three matrices."""
    b = GraphBuilder("projections", facts=FACTS)
    x = b.input("m k", "f16")
    rows = _normalised(b, x, b.input("k", "f16")) if normalised else x
    return b.build(*(b.contract(rows, b.input(f"k {n}", "f16"), over=["k"], dtype="f16") for n in WIDTHS))


def _normalised(b: GraphBuilder, x: Value, gain: Value) -> Value:
    wide = b.cast(x, dtype="f32")
    mean = b.div(b.reduce(b.mul(wide, wide), kind="sum", over=["k"]), b.constant(4096.0, "f32"))
    return b.cast(b.mul(b.mul(wide, b.rsqrt(mean)), b.cast(gain, dtype="f32")), dtype="f16")


def _products_of_registers(kernel: Kernel) -> int:
    """Products on tensor cores of operands that are computed where they are multiplied."""
    loaded = {result for i in kernel.body.walk() if i.op in LOADS for result in i.results}
    products = (i for i in kernel.body.walk() if i.op == "contract" and is_tensor_core(i))
    return sum(not loaded.issuperset(product.operands) for product in products)


def test_three_products_of_normalised_rows() -> None:
    """Rows normalised in a kernel of their own: in the products' loops they would come from registers."""
    scheduled = _scheduled(_projections(normalised=True), m=2048, k=4096, **WIDTHS)
    norm, products = scheduled.program.kernels
    assert len(norm.outputs) == 1
    assert len(products.beside) == 3
    assert _products_of_registers(products) == 0


def test_kernels_side_by_side_fit() -> None:
    """Three products whose tiles would fill shared memory three times."""
    scheduled = _scheduled(_projections(normalised=False), m=2048, k=4096, **WIDTHS)
    assert all(candidates[0].cost.fits(TARGET) for candidates in scheduled.candidates)
    (products,) = scheduled.program.kernels
    assert len(products.beside) == 3
