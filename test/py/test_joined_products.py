"""Products of one left operand that are one product, with both right operands side by side."""

from __future__ import annotations

import re
from collections.abc import Callable

import graphs
import pytest
from test_warp_specialised import SM_90, lowered, run

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import compile_many
from cleave.lowering.consumer_loops import RUN_ON_STAGES
from cleave.lowering.form import Form

APART = Form(side_by_side=False)
PRODUCT = re.compile(r'ttng\.warp_group_dot"[^\n]*instrShape = \[16, (\d+), 16\]')


def gated(
    *, transposed: bool = False, products: int = 2, columns: int = 136, k: int = 200, rows: bool = False
) -> Graph:
    """The gate of SwiGLU and ``products − 1`` factors; ``transposed``: weights as ``torch.nn.Linear`` has them."""
    b = GraphBuilder("gated")
    x, dims = b.input(f"m k={k}", "f16"), f"n={columns} k={k}" if transposed else f"k={k} n={columns}"
    gate, *others = (b.contract(x, b.input(dims, "f16"), over=["k"], dtype="f32") for _ in range(products))
    found = b.mul(gate, b.sigmoid(gate))
    for other in others:
        found = b.mul(found, other)
    if rows:
        wide = b.cast(x, dtype="f32")
        found = b.mul(found, b.rsqrt(b.reduce(b.mul(wide, wide), kind="sum", over=["k"])))
    return b.build(b.cast(found, dtype="f16"))


Left = Callable[[GraphBuilder, Value], tuple[Value, Value]]


def late(left: Left = lambda b, scores: (scores, scores)) -> Graph:
    """Late products of one left operand, which is in registers; in loops of whole tiles and of the rest."""
    b = GraphBuilder("late")
    q, k = b.input("h m d=64", "f16"), b.input("h n d=64", "f16")
    scores = left(b, b.contract(q, k, over=["d"], dtype="f16"))
    one, other = (b.contract(each, b.input("h n e=64", "f16"), over=["n"], dtype="f32") for each in scores)
    return b.build(b.cast(b.mul(b.mul(one, b.constant(0.01, "f32")), other), dtype="f16"))


def with_other_signs(b: GraphBuilder, scores: Value) -> tuple[Value, Value]:
    return scores, b.abs(scores)


def masked_unlike(b: GraphBuilder, scores: Value) -> tuple[Value, Value]:
    """The same up to a query's own place, the mask of one of which is written twice."""
    seen = b.cmp(b.index(dim="n"), b.index(dim="m"), predicate="le")
    zero, one = (b.constant(number, "f16") for number in (0.0, 1.0))
    return b.select(seen, scores, zero), b.select(seen, b.select(seen, scores, one), zero)


def widths(graph: Graph, form: Form, columns: int | None = None) -> list[int]:
    """Columns of the products of one consumer, of tiles of so many."""
    _, (kernel,), _ = lowered(graph, form=form, columns=columns)
    found = [int(columns) for columns in PRODUCT.findall(kernel.text)]
    assert found[: len(found) // 2] == found[len(found) // 2 :]  # both consumers have the same
    return found[: len(found) // 2]


JOINED = [
    (gated(), 128, [{"m": 130}, {"m": 1}, {"m": 0}]),
    (gated(), 64, [{"m": 130}]),
    (gated(transposed=True), 128, [{"m": 130}, {"m": 300}]),
    (gated(products=3, columns=72), 64, [{"m": 130}]),
    (gated(products=3, columns=72, transposed=True), 64, [{"m": 130}]),
    (gated(products=4, columns=72, k=40), 64, [{"m": 130}]),
    (gated(rows=True), 128, [{"m": 130}]),
    (late(), None, [{"h": 1, "m": 70, "n": 200}, {"h": 1, "m": 3, "n": 0}]),
]


@pytest.mark.parametrize(("graph", "columns", "runs"), JOINED)
def test_numbers(graph: Graph, columns: int | None, runs: list[dict[str, int]]) -> None:
    for stages in (2, RUN_ON_STAGES):
        _, (kernel,), _ = lowered(graph, stages=stages, columns=columns)
        assert '"tt.split"' in kernel.text
        for sizes in runs:
            assert run(graph, {kernel.name: kernel.text}, sizes, stages, columns=columns) < 1e-2


@pytest.mark.parametrize("transposed", [False, True])
def test_one_product_in_place_of_two(transposed: bool) -> None:
    """Of twice the columns; an odd one beside these."""
    cases = [(2, 128, [256]), (2, 64, [128]), (3, 64, [128, 64]), (4, 64, [128, 128])]
    for products, columns, joined in cases:
        graph = gated(transposed=transposed, products=products, columns=264)
        assert widths(graph, APART, columns) == [columns] * products
        assert widths(graph, Form(), columns) == joined


def test_halves_that_change_places_are_noticed() -> None:
    graph = gated()
    _, (kernel,), _ = lowered(graph, columns=128)
    first, second = dict.fromkeys(re.findall(r"offsets = array<i32: 0, \d+>", kernel.text))
    swapped = re.sub(f"{first}|{second}", lambda found: second if found[0] == first else first, kernel.text)
    assert run(graph, {kernel.name: swapped}, {"m": 130}, 0, columns=128) > 0.1


def test_the_rest_goes_on_with_the_one_sum() -> None:
    """Which each consumer takes apart only behind all loops."""
    _, (kernel,), _ = lowered(late())
    assert kernel.text.count('"tt.split"') == 2 and kernel.text.count('"scf.for"') > 2 * 2


def test_a_rest_of_which_nothing_is_joined_goes_on_with_halves() -> None:
    """And keeps its order, as any rest with masks does: each of its products is there once."""
    graph = late(masked_unlike)
    assert widths(graph, Form()) == [128, 128, 128, 128, 128, 64, 64]
    _, (kernel,), _ = lowered(graph)
    for seed, sizes in enumerate(({"h": 1, "m": 150, "n": 300}, {"h": 1, "m": 3, "n": 0})):
        assert run(graph, {kernel.name: kernel.text}, sizes, seed) < 1e-2


def test_what_is_not_joined() -> None:
    """Products of different left operands; rows shorter than what copies swizzle; scores, which an iteration needs."""
    graph = late(with_other_signs)
    found = widths(graph, Form())
    assert found.count(64) == 4 and found == widths(graph, APART)
    _, (kernel,), _ = lowered(graph)
    assert run(graph, {kernel.name: kernel.text}, {"h": 1, "m": 70, "n": 200}, 0) < 1e-2
    assert widths(gated(), Form(), 32) == [32, 32] and widths(gated(transposed=True), Form(), 32) == [64]
    _, kernels, _ = lowered(graphs.attention(division_last=True))
    assert not any("tt.split" in kernel.text for kernel in kernels)


def test_ptx() -> None:
    """Products of all columns, no spills, and no shared memory or shuffles to take the halves apart."""
    _, (kernel,), _ = lowered(gated(), columns=128)
    _, (apart,), _ = lowered(gated(), form=APART, columns=128)
    found, other = compile_many([kernel.request(SM_90), apart.request(SM_90)])
    assert not isinstance(found, CleaveError) and not isinstance(other, CleaveError)
    assert "m64n256k16" in found.ptx and "m64n128k16" not in found.ptx and (found.spills, found.notes) == (0, ())
    assert found.ptx.count("shfl.sync.bfly") == other.ptx.count("shfl.sync.bfly") and found.shared <= other.shared
