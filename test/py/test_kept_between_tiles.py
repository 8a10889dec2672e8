"""What a block keeps from tile to tile of a row: numbers, what is computed once, and what is not kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any

import graphs
import pytest
import random_specialised
from compiled import CTX
from test_warp_specialised import USUAL, _label, chain, matmul, swiglu
from test_warp_specialised import lowered as usual
from test_warp_specialised_forms import taken

from cleave.bindings import ir
from cleave.dialects.dims import parse
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.lowering.form import Form
from cleave.lowering.tile_loop import loop_over_tiles
from cleave.passes.functions import ops_inside
from cleave.passes.tile_io import from_tile_program
from cleave.schedule.scheduler import ScheduleOptions, Schedules, with_candidates
from cleave.schedule.traffic import Walk, blocks_in_bands

NOT_KEPT = replace(USUAL, kept_between_tiles=False)


def _squares(b: GraphBuilder, x: Value) -> Value:
    wide = b.cast(x, dtype="f32")
    return b.reduce(b.mul(wide, wide), kind="sum", over=["k"])


def normalised() -> Graph:
    b = GraphBuilder("normalised")
    x, w = b.input("m k=256", "f16"), b.input("k=256 n=1024", "f16")
    product = b.contract(x, w, over=["k"], dtype="f32")
    return b.build(b.cast(b.div(product, b.sqrt(_squares(b, x))), dtype="f16"))


def standardised() -> Graph:
    """Two numbers of a row, of which the results are made in different ways."""
    b = GraphBuilder("standardised")
    x, w = b.input("m k=256", "f16"), b.input("k=256 n=1024", "f16")
    total = b.reduce(b.cast(x, dtype="f32"), kind="sum", over=["k"])
    product = b.contract(x, w, over=["k"], dtype="f32")
    scaled = b.div(product, b.sqrt(_squares(b, x)))
    return b.build(b.cast(b.add(scaled, b.mul(total, b.constant(0.25, "f32"))), dtype="f16"))


def gated() -> Graph:
    """Two products of a row, joined, and its norm."""
    b = GraphBuilder("gated")
    x, w, v = b.input("m k=256", "f16"), b.input("k=256 n=1024", "f16"), b.input("k=256 n=1024", "f16")
    gate, up = (b.contract(x, y, over=["k"], dtype="f32") for y in (w, v))
    return b.build(b.cast(b.div(b.mul(gate, up), b.sqrt(_squares(b, x))), dtype="f16"))


def peaked() -> Graph:
    """A log-sum-exp beside the product, of rows whose last tile needs masks: a second loop, which has attributes."""
    b = GraphBuilder("peaked")
    x, w = b.input("m k=264", "f16"), b.input("k=264 n=1024", "f16")
    wide = b.cast(x, dtype="f32")
    largest = b.reduce(wide, kind="max", over=["k"])
    total = b.reduce(b.exp(b.sub(wide, largest)), kind="sum", over=["k"])
    product = b.contract(x, w, over=["k"], dtype="f32")
    return b.build(b.cast(b.sub(product, b.add(largest, b.log(total))), dtype="f16"))


@cache
def program(graph: Graph) -> str:
    """One kernel with bands of tiles, scheduled for 4096 rows."""
    options = ScheduleOptions(sizes={"m": 4096}, warp_specialise=True)
    scheduled = min(Schedules(graph.deduplicated(), options).finalists(64), key=lambda each: len(each.candidates))
    (launch,) = scheduled.candidates
    chosen = next(each for each in launch if each.warp_specialised and each.tiling.group > 1)
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(with_candidates(scheduled.program, [chosen]), module)
        return str(module)


def lowered(graph: Graph, form: Form = USUAL) -> random_specialised.Lowered:
    """With two stages, so that buffers are filled again and again."""
    return random_specialised.lowered(program(graph), form, 2, graph.name)


KEPT = [normalised(), standardised(), gated(), peaked()]


@pytest.mark.parametrize("graph", KEPT, ids=_label)
def test_numbers(graph: Graph) -> None:
    """Blocks have tiles of the same and of other rows, in either order; no rows, one, and ends of tiles."""
    kept, plain = lowered(graph), lowered(graph, NOT_KEPT)
    assert kept[0].launches[0].persistent and kept[1] != plain[1]
    for rows, seed in ((300, 1), (129, 2), (1, 3), (0, 4)):
        assert random_specialised.error(graph, kept, {"m": rows}, seed) < 1e-2
    assert random_specialised.error(graph, plain, {"m": 300}, 1) < 1e-2


@pytest.mark.parametrize("seed", [4, 5, 12, 13, 15, 19])
def test_drawn_programs(seed: int) -> None:
    """Of which all keep something."""
    assert random_specialised.judged(seed) == ("kept", "")


def _loops(text: str, grid: Sequence[str], *, keep: bool = True) -> list[list[str]]:
    """The ops of each loop of a tile, in order."""
    with CTX, ir.Location.unknown():
        module = ir.Module.parse(text)
        func = next(op.operation for op in module.body.operations if "cleave.kernel" in op.attributes)
        loop_over_tiles(func, [parse(extent) for extent in grid], keep=keep)
        assert module.operation.verify()
        tile_loop = next(op for op in ops_inside(func) if op.name == "scf.for")
        inner = [op.operation for op in tile_loop.regions[0].blocks[0].operations if op.operation.name == "scf.for"]
        return [[op.name.removeprefix("cleave.") for op in ops_inside(loop)] for loop in inner]


def test_what_is_computed_once() -> None:
    """Squares in the first loop, the root in a loop of one iteration, in the last loop nothing but the product."""
    first, once, rest = _loops(program(normalised()), ["ceildiv(m, 128)*8"])
    assert {"contract", "mul", "reduce"} <= set(first)
    assert once == ["sqrt", "scf.yield"]
    assert [name for name in rest if not name.startswith("arith.")] == ["load", "load", "contract", "add", "scf.yield"]


def test_attributes_of_loops() -> None:
    """Both loops of the last tile, which is one with masks, say that they have no pipeline."""
    with CTX, ir.Location.unknown():
        module = ir.Module.parse(program(peaked()))
        func = next(op.operation for op in module.body.operations if "cleave.kernel" in op.attributes)
        before = str(func).count("cleave.num_stages")
        loop_over_tiles(func, [parse("ceildiv(m, 128)*8")])
        assert 1 < before == str(func).count("cleave.num_stages") - 1


@pytest.mark.parametrize(
    "graph", [matmul(), swiglu(), chain(), graphs.attention(division_last=True), graphs.causal_attention()], ids=_label
)
def test_nothing_is_kept(graph: Graph) -> None:
    """What a row's tiles have in common feeds products, or there is nothing: the kernel is as without."""
    (kept,), (plain,) = (usual(graph, form=form)[1] for form in (USUAL, NOT_KEPT))
    assert kept.text == plain.text


MEMORIES = 'tensor<?x?xf32, #cleave.dims<["m", "n"]>>'
BANDS = """func.func private @k(%read: {memories}, %written: {memories}) attributes {{cleave.kernel}} {{
  %0 = "cleave.program_id"() {{axis = 0 : i64}} : () -> index
  %1 = "cleave.program_id"() {{axis = 1 : i64}} : () -> index
  %rows = "cleave.extent"() {{size = "rows"}} : () -> index
  %above = arith.muli %1, %rows : index
  %place = arith.addi %above, %0 : index
  %height = arith.constant {height} : index
  %columns = arith.constant {columns} : index
  %tiles = arith.muli %height, %columns : index
  %band = arith.divui %place, %tiles : index
  %inside = arith.remui %place, %tiles : index
  %first = arith.muli %band, %height : index
  %below = arith.remui %inside, %height : index
  %row = arith.addi %first, %below : index
  %column = arith.divui %inside, %height : index
  "test.sink"(%row, %column) : (index, index) -> ()
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %nothing = "cleave.constant"() {{value = 0.0 : f32}} : () -> {tile}
  {product}
  %number = "cleave.splat"(%column) : (index) -> tensor<i64, #cleave.dims<[]>>
  %wide = "cleave.cast"(%number) : (tensor<i64, #cleave.dims<[]>>) -> tensor<f32, #cleave.dims<[]>>
  %beside = "cleave.add"(%nothing, %wide) : ({tile}, tensor<f32, #cleave.dims<[]>>) -> {tile}
  %sums:3 = scf.for %k = %zero to %one step %one iter_args(%s = %{start}, %t = %nothing, %p = %nothing)
      -> ({tile}, {tile}, {tile}) {{
    %x = "cleave.splat"(%{of}) : (index) -> tensor<i64, #cleave.dims<[]>>
    %y = "cleave.cast"(%x) : (tensor<i64, #cleave.dims<[]>>) -> tensor<f32, #cleave.dims<[]>>
    %loaded = "cleave.load"(%{memory}, %row, %row, %rows, %rows) {{fill = 0.0 : f32,
      operandSegmentSizes = array<i32: 1, 2, 2>}} : ({memories}, index, index, index, index) -> {tile}
    %more = "cleave.add"(%s, %loaded) : ({tile}, {tile}) -> {tile}
    %z = "cleave.add"(%more, %y) : ({tile}, tensor<f32, #cleave.dims<[]>>) -> {tile}
    %i = "cleave.splat"(%column) : (index) -> tensor<i64, #cleave.dims<[]>>
    %j = "cleave.cast"(%i) : (tensor<i64, #cleave.dims<[]>>) -> tensor<f32, #cleave.dims<[]>>
    %u = "cleave.add"(%t, %j) : ({tile}, tensor<f32, #cleave.dims<[]>>) -> {tile}
    %v = "cleave.add"(%u, %{other}) : ({tile}, {tile}) -> {tile}
    %q = "cleave.add"(%p, %y) : ({tile}, tensor<f32, #cleave.dims<[]>>) -> {tile}
    scf.yield %z, %v, %q : {tile}, {tile}, {tile}
  }}
  %some = "cleave.add"(%sums#0, %sums#1) : ({tile}, {tile}) -> {tile}
  %sum = "cleave.add"(%some, %sums#2) : ({tile}, {tile}) -> {tile}
  "cleave.store"(%sum, %written, %row, %column, %rows, %rows) {{operandSegmentSizes = array<i32: 1, 1, 2, 2>}}
    : ({tile}, {memories}, index, index, index, index) -> ()
  return
}}"""


def _product(columns: int) -> str:
    """The numbers that are summed up are those of its columns."""
    left, right = (
        'tensor<16x8xf32, #cleave.dims<["j=16", "k=8"]>>',
        f'tensor<8x{columns}xf32, #cleave.dims<["k=8", "m={columns}"]>>',
    )
    result = f'tensor<16x{columns}xf32, #cleave.dims<["j=16", "m={columns}"]>>'
    return f"""%left = "cleave.constant"() {{value = 0.0 : f32}} : () -> {left}
  %right = "cleave.constant"() {{value = 0.0 : f32}} : () -> {right}
  %both = "cleave.contract"(%left, %right) {{over = ["k"]}} : ({left}, {right}) -> {result}"""


def bands(*, height: int = 16, columns: int = 40, elements: int = 16, **names: str) -> str:
    tile, memories = f'tensor<{elements}x1xf32, #cleave.dims<["m={elements}", "n=1"]>>', MEMORIES
    given = {"of": "row", "other": "nothing", "memory": "read", "start": "nothing", "product": "", **names}
    return BANDS.format(height=height, columns=columns, tile=tile, memories=memories, **given)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, 2),
        ({"other": "s"}, 1),  # what is not kept needs one in each iteration
        ({"height": 24}, 0),  # does not divide the number of blocks
        ({"start": "beside"}, 1),
        ({"of": "column"}, 0),
        ({"of": "place"}, 0),
        ({"memory": "written"}, 0),
        ({"elements": 128}, 2),  # four registers of a thread for each of two
        ({"elements": 128, "product": _product(128)}, 0),  # 32, as a product has them in its columns
        ({"elements": 16, "product": _product(16)}, 2),
        ({"elements": 512}, 0),
    ],
)
def test_what_the_next_tile_has_in_common(options: dict[str, Any], kept: int) -> None:
    """``kept``: how many of the three sums that the loop carries."""
    text = bands(**options)
    first, *others = _loops(text, ["rows", "columns"])
    assert first.count("add") == 5
    assert [each.count("add") for each in others] == ([0, 5 - {1: 1, 2: 3}[kept]] if kept else [])
    assert len(_loops(text, ["rows", "columns"], keep=False)) == 1


def test_what_says_that_a_tile_is_of_the_same_row() -> None:
    """The tile before passes its own row on, not what it was given."""
    with CTX, ir.Location.unknown():
        module = ir.Module.parse(bands())
        (func,) = (op.operation for op in module.body.operations)
        loop_over_tiles(func, [parse("rows"), parse("columns")])
        sink = next(op for op in ops_inside(func) if op.name == "test.sink")
        passed = list(sink.block.operations)[-1].operands
        assert passed[0] == sink.operands[0] and len(passed) == 3


def test_what_is_made_of_what_comes_later() -> None:
    """A tile that is loaded behind the loop is not there yet where the loop's sums are kept."""
    tile = 'tensor<16x1xf32, #cleave.dims<["m=16", "n=1"]>>'
    late = f"""%late = "cleave.load"(%read, %row, %row, %rows, %rows) {{fill = 0.0 : f32,
      operandSegmentSizes = array<i32: 1, 2, 2>}} : ({MEMORIES}, index, index, index, index) -> {tile}
  %scaled = "cleave.mul"(%sums#0, %late) : ({tile}, {tile}) -> {tile}
  %some = "cleave.add"(%scaled, %sums#1)"""
    text = bands().replace('%some = "cleave.add"(%sums#0, %sums#1)', late)
    _, once, _ = _loops(text, ["rows", "columns"])
    assert "%late" in text and once == ["scf.yield"]


DEVIATIONS = """
  %mean = "cleave.sqrt"(%sums#0) : ({tile}) -> {tile}
  %more:2 = scf.for %k = %zero to %one step %one iter_args(%s = %nothing, %p = %nothing) -> ({tile}, {tile}) {{
    %x = "cleave.sub"(%s, %mean) : ({tile}, {tile}) -> {tile}
    %i = "cleave.splat"(%column) : (index) -> tensor<i64, #cleave.dims<[]>>
    %j = "cleave.cast"(%i) : (tensor<i64, #cleave.dims<[]>>) -> tensor<f32, #cleave.dims<[]>>
    %u = "cleave.add"(%p, %j) : ({tile}, tensor<f32, #cleave.dims<[]>>) -> {tile}
    scf.yield %x, %u : {tile}, {tile}
  }}
  %root = "cleave.sqrt"(%sums#0) : ({tile}) -> {tile}
  %both_rows = "cleave.mul"(%more#0, %root) : ({tile}, {tile}) -> {tile}
  %ends = "cleave.add"(%both_rows, %more#1) : ({tile}, {tile}) -> {tile}
  %some = "cleave.add"(%ends, %sums#1) : ({tile}, {tile}) -> {tile}
"""


def test_what_is_made_of_what_two_loops_keep() -> None:
    """What both are needed for is made behind the second; what the first one alone is, behind the first, only."""
    text, tile = bands(), 'tensor<16x1xf32, #cleave.dims<["m=16", "n=1"]>>'
    start, end = text.index("  %some ="), text.index("  %sum =")
    loops = _loops(text[:start] + DEVIATIONS.format(tile=tile) + text[end:], ["rows", "columns"])
    assert [loop for loop in loops if "splat" not in loop] == [["sqrt", "sqrt", "scf.yield"], ["mul", "scf.yield"]]
    assert ["sub" in loop for loop in loops] == [False, False, False, True, False, False]


def test_what_no_place_decides() -> None:
    """A loop that is the same for all tiles has nothing that tells the first tile from others."""
    text = bands(of="rows").replace("(%read, %row, %row,", "(%read, %rows, %rows,")
    assert len(_loops(text, ["rows", "columns"])) == 1


@pytest.mark.parametrize(("rows", "blocks"), [(64, 132), (64, 128), (32, 100), (16, 33), (16, 3), (48, 1), (16, 64)])
def test_rounds_in_bands(rows: int, blocks: int) -> None:
    """Each tile is taken once, in as few rounds; a block has as many tiles of a row one after the other as is said."""
    columns = 24
    text = bands(columns=columns)
    sizes = {"rows": rows, "columns": columns}
    shares = [taken(text, block, blocks, sizes) for block in range(blocks)]
    assert sorted(tile for share in shares for tile in share) == [(r, c) for r in range(rows) for c in range(columns)]
    assert max(map(len, shares)) == -(-rows * columns // blocks)
    running = blocks_in_bands(rows * columns, blocks)
    assert sum(map(bool, shares)) == running
    if running % 32 == 0:
        runs = [len(list(run)) for share in shares for _, run in groupby(row for row, _ in share)]
        walk = Walk((rows, columns), 16)
        assert min(runs) >= walk.in_row(running) > 0
