"""Forms of warp-specialised kernels: several tiles for a block, operands that stay in registers, turns, stores."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from unittest.mock import patch

import graphs
import numpy as np
import pytest
from compiled import CTX, reference
from test_warp_specialised import _label, chain, lowered, matmul, normalised, run, swiglu

from cleave.bindings import ir
from cleave.dialects.dims import parse
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.lowering import budgets
from cleave.lowering.compile_ttir import compile_many
from cleave.lowering.emit import kernel_modules
from cleave.lowering.form import Form
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.lowering.targets import Target
from cleave.lowering.tile_loop import BLOCK_COUNT, loop_over_tiles
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.execute import RESIDENT, execute
from cleave.schedule import tilings
from cleave.schedule.scheduler import ScheduleOptions, schedule

PLAIN = Form(persistent=False, in_registers=False, in_turn=False, stored_by_copies=False)
SIZES = {"h": 2, "m": 130, "n": 270}


def tile_program(graph: Graph) -> str:
    program = schedule(graph.deduplicated(), ScheduleOptions(sizes={"m": 4096})).program
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(program, module)
        return str(module)


@pytest.mark.parametrize("graph", [matmul(), chain()], ids=_label)
def test_numbers_of_one_tile_for_each_block(graph: Graph) -> None:
    plan, (kernel,), _ = lowered(graph, form=PLAIN)
    assert not plan.launches[0].persistent and "get_num_programs" not in kernel.text
    sizes = {name: size for name, size in {"h": 2, "m": 300, "n": 70}.items() if name not in graph.extents}
    assert run(graph, {kernel.name: kernel.text}, sizes, 0, form=PLAIN) < 1e-2


ARITHMETIC = {
    "addi": operator.add, "subi": operator.sub, "muli": operator.mul, "divui": operator.floordiv,
    "remui": operator.mod, "minsi": min, "maxsi": max,
}  # fmt: skip


TWO_AXES = """func.func private @k() attributes {cleave.kernel} {
  %0 = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %1 = "cleave.program_id"() {axis = 1 : i64} : () -> index
  %2 = arith.addi %0, %1 : index
  return
}"""
"""A tile program of which ``taken`` says where its two coordinates are, the first of which varies fastest."""


def taken(text: str, block: int, blocks: int, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """The places of the tiles that a block goes through."""
    with CTX, ir.Location.unknown():
        module = ir.Module.parse(text)
        func = module.body.operations[0].operation
        loop_over_tiles(func, [parse("rows"), parse("columns")])
        *before, loop, _ = [view.operation for view in func.regions[0].blocks[0].operations]
        values: dict[ir.Value, int] = {}

        def evaluate(ops: list[ir.Operation]) -> None:
            for op in ops:
                if op.name == "cleave.program_id":
                    values[op.results[0]] = block
                elif op.name == "arith.constant":
                    values[op.results[0]] = ir.IntegerAttr(op.attributes["value"]).value
                elif op.name == "cleave.extent":
                    size = parse(ir.StringAttr(op.attributes["size"]).value)
                    values[op.results[0]] = size.evaluate({**sizes, BLOCK_COUNT: blocks})
                elif op.name.startswith("arith."):
                    x, y = (values[operand] for operand in op.operands)
                    values[op.results[0]] = ARITHMETIC[op.name.removeprefix("arith.")](x, y)

        evaluate(before)
        found: list[tuple[int, ...]] = []
        body = loop.regions[0].blocks[0]
        ops = [view.operation for view in body.operations]
        sink = next((op for op in ops if op.name == "test.sink"), ops[-2])
        for index in range(*(values[bound] for bound in list(loop.operands)[:3])):
            values[body.arguments[0]] = index
            evaluate(ops[: ops.index(sink)])
            found.append(tuple(values[operand] for operand in sink.operands))
        return found


def test_blocks_share_the_tiles() -> None:
    """Each is taken once, in rounds, in every other one by the last block first."""
    for rows, columns, blocks in [(1, 1, 1), (3, 1, 3), (2, 2, 3), (3, 3, 4), (5, 3, 4), (4, 4, 4), (7, 3, 2)]:
        shares = [taken(TWO_AXES, block, blocks, {"rows": rows, "columns": columns}) for block in range(blocks)]
        tiles = [column * rows + row for share in shares for row, column in share]
        assert sorted(tiles) == list(range(rows * columns))
        assert max(map(len, shares)) <= min(map(len, shares)) + 1
        numbers = [column * rows + row for row, column in shares[0]]
        assert numbers == [(n + n % 2) * blocks - n % 2 for n in range(len(numbers))]


TILES = [
    (matmul(), {"m": 400}, 12),
    (swiglu(), {"m": 300}, 6),
    (normalised(), {"m": 300}, 6),
    (chain(), {"h": 2, "m": 130, "n": 200}, 4),
    (chain(), {"h": 3, "m": 130, "n": 0}, 6),
    (graphs.attention(division_last=True), {"h": 2, "m": 130, "n": 70}, 4),
]


@pytest.mark.parametrize(("graph", "sizes", "tiles"), TILES, ids=[f"{g.name}-{s}" for g, s, _ in TILES])
def test_numbers_of_several_tiles_for_each_block(graph: Graph, sizes: dict[str, int], tiles: int) -> None:
    """Slots and phases go on from tile to tile."""
    plan, kernels, _ = lowered(graph)
    assert plan.launches[0].persistent and tiles > RESIDENT
    texts = {kernel.name: kernel.text for kernel in kernels}
    assert run(graph, texts, sizes, 1) < 1e-2


def test_a_buffer_outside_the_inner_loop_is_released_after_it() -> None:
    """Without that the second tile waits for ever; at the first iteration's end it would be too early."""
    graph = chain()
    _, (kernel,), _ = lowered(graph, form=replace(Form(), in_registers=False))
    arrivals = [m.span() for m in re.finditer(r'\n *"ttng\.arrive_barrier"[^\n]*', kernel.text)]
    outcomes = []
    for start, end in arrivals:
        text = kernel.text[:start] + kernel.text[end:]
        try:
            run(graph, {kernel.name: text}, {"h": 2, "m": 130, "n": 600}, 0)
        except CleaveError as error:
            outcomes.append(error.message)
    assert len(outcomes) == len(arrivals) and all("nothing completes" in outcome for outcome in outcomes)


def _on_two_axes(text: str) -> str:
    """The matmul with its tiles counted along the grid's first axis for n and along its second for m."""
    text = text.replace('["ceildiv(m, 128)*ceildiv(n, 128)"]', '["ceildiv(n, 128)", "ceildiv(m, 128)"]')
    text = re.sub(r"= arith\.remui %\d+, %c3 : index", '= "cleave.program_id"() {axis = 0 : i64} : () -> index', text)
    return re.sub(r"= arith\.divui %\d+, %c3 : index", '= "cleave.program_id"() {axis = 1 : i64} : () -> index', text)


def test_a_grid_of_two_axes() -> None:
    graph = matmul()
    text = _on_two_axes(tile_program(graph))
    assert text.count("axis = 1") == 1
    with CTX, ir.Location.unknown():
        module = ir.Module.parse(text)
        LowerToTtgir().apply(CTX, module)
        kernels = kernel_modules(module)
        plan = plan_of(module, graph.name, {kernel.name: kernel for kernel in kernels})
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((400, 200), (200, 264)))
    (found,) = execute(plan, {kernel.name: kernel.text for kernel in kernels}, [x, w])
    expected = x.astype(float) @ w.astype(float)
    assert plan.launches[0].persistent and np.abs(found - expected).max() < 1e-2 * np.abs(expected).max()


def _error(graph: Graph, kernel: str, text: str) -> str:
    sizes = {name: size for name, size in SIZES.items() if name not in graph.extents}
    try:
        return "" if run(graph, {kernel: text}, sizes, 0) < 1e-2 else "numbers"
    except CleaveError as error:
        return error.message


def test_left_operands_stay_in_registers() -> None:
    """Read once by each consumer, listed in each wait of the loops; the buffer is free for the next tile at once."""
    graph = graphs.attention(division_last=True)
    _, (kernel,), _ = lowered(graph)
    reads = re.findall(r'"ttg.local_load".* -> tensor<64x64xf16, #ttg.dot_op<', kernel.text)
    waits = re.findall(r'"ttng.warp_group_dot_wait"\(([^)]*)\)', kernel.text)
    assert len(reads) == 2 and all("," in operands for operands in waits)
    without = re.sub(r'\n *"ttng\.fence_async_shared"[^\n]*', "", kernel.text)
    assert _error(graph, kernel.name, kernel.text) == "" and "without a fence" in _error(graph, kernel.name, without)


def test_left_operands_stay_in_shared_memory_where_registers_do_not_suffice() -> None:
    with patch.dict(budgets._TILES, {2: 64}):
        lowered.cache_clear()
        _, (kernel,), _ = lowered(graphs.attention(division_last=True))
    lowered.cache_clear()
    assert "local_load" not in kernel.text


def test_consumers_take_turns() -> None:
    """Before the products of an iteration each waits for its turn, and then gives it to the other one."""
    graph = graphs.attention(division_last=True, head=128)
    _, (kernel,), _ = lowered(graph, stages=3)
    wait, give = "bar.sync $1, 256; ", "bar.arrive $1, 256; "
    found = re.findall(r'(bar\.\w+|"ttng\.warp_group_dot"|math\.exp2)', kernel.text)
    (first, *_), loop = found, [name.strip('"') for name in found]
    assert first == "bar.arrive"  # of the producer, for the first consumer
    start = loop.index("bar.sync", loop.index("bar.sync") + 1)
    products = ["ttng.warp_group_dot"] * 2
    assert loop[start : start + 5] == ["bar.sync", *products, "bar.arrive", "math.exp2"]
    for place in (1, 2):  # the producer's, and one in a consumer's loop
        parts = kernel.text.split(give)
        fault = give.join(parts[:place]) + give.join(parts[place:])
        assert "nothing completes" in _error(graph, kernel.name, fault)
    before, _, after = kernel.text.rpartition(wait)
    assert "a barrier for" in _error(graph, kernel.name, f"{before}bar.sync $1, 384; {after}")


def test_a_chain_of_products_takes_no_turns() -> None:
    """There is nothing to compute meanwhile."""
    assert "bar." not in lowered(chain())[1][0].text


def test_results_are_stored_by_copies() -> None:
    """Written to shared memory behind the wait for the tile before, fenced, and waited for at the end."""
    graph = matmul()
    _, (kernel,), _ = lowered(graph)
    names = re.findall(
        r'"(tt\.store|ttg\.local_store|ttng\.(?:async_tma_store_wait|fence|async_tma_copy_local)\w*)"', kernel.text
    )
    send = [
        "ttng.async_tma_store_wait",
        "ttg.local_store",
        "ttng.fence_async_shared",
        "ttng.async_tma_copy_local_to_global",
    ]
    assert names == [*send, "ttng.async_tma_store_wait"] * 2
    fence, copy, wait = (
        rf'\n *"ttng\.{name}"[^\n]*'
        for name in ("fence_async_shared", r"async_tma_copy_local_\w+", "async_tma_store_wait")
    )
    faults = [(fence, "written without a fence"), (wait, "may still read|not waited for")]
    for pattern, message in faults:
        text = re.sub(pattern, "", kernel.text, count=1)
        assert re.search(message, _error(graph, kernel.name, text))
    assert _error(graph, kernel.name, re.sub(copy, "", kernel.text)) == "numbers"


def test_what_does_not_fit_beside_the_stages_is_stored_by_threads() -> None:
    b = GraphBuilder("wide")
    x, w = b.input("m k=200", "f16"), b.input("k=200 n=264", "f16")
    _, (kernel,), _ = lowered(b.build(b.contract(x, w, over=["k"], dtype="f32")))
    assert ("local_store" in kernel.text) == ("64x256" not in kernel.text)


ATTENTION = graphs.attention(division_last=True)
IN_PIECES = [(matmul(), 2, 2), (matmul(), 4, 4), (swiglu(), 2, 2), (ATTENTION, 2, 2), (ATTENTION, 4, 0)]


@pytest.mark.parametrize(("graph", "pieces", "copies"), IN_PIECES, ids=[f"{g.name}-{n}" for g, n, _ in IN_PIECES])
def test_results_in_pieces(graph: Graph, pieces: int, copies: int) -> None:
    """Columns after columns through one buffer, the last ones past the tensor's end; by threads what is too narrow."""
    with patch("cleave.lowering.to_ttgir.PIECES", (pieces,)):
        plan, (kernel,), _ = lowered.__wrapped__(graph)
    whole = lowered(graph)[1][0].text
    stores = [text.count('"ttng.async_tma_copy_local_to_global"') for text in (whole, kernel.text)]
    assert stores == [2, 2 * copies]
    sizes = {name: size for name, size in SIZES.items() if name not in graph.extents}
    for seed in range(2):
        assert run(graph, {kernel.name: kernel.text}, sizes, seed, plan=plan) < 1e-2


def test_products_that_run_on() -> None:
    """They are awaited at the end of the next iteration, and otherwise in their own: with two stages nothing could be
    copied meanwhile, with three too little."""
    for form, stages, pendings in ((Form(), 4, "1"), (Form(), 3, "0"), (Form(run_on=False), 4, "0")):
        _, (kernel,), _ = lowered(matmul(), stages=stages, form=form)
        loop = kernel.text[kernel.text.index("warp_group_dot") :]
        assert re.findall(r"pendings = (\d)", loop)[0] == pendings


def test_three_consumers() -> None:
    """Of 192 rows, 64 each, in turn; sizes that nothing divides; 160 registers for each thread without spills."""
    graph = graphs.attention(division_last=True)
    with patch.object(tilings, "_side_choices", _of_rows(192)), CTX, ir.Location.unknown():
        program = schedule(graph.deduplicated(), ScheduleOptions(sizes={"m": 4096, "n": 4096, "h": 32})).program
        module = ir.Module.create()
        from_tile_program(program, module)
        LowerToTtgir().apply(CTX, module)
        (kernel,) = kernel_modules(module)
        plan = plan_of(module, graph.name, {kernel.name: kernel})
    assert "array<i32: 160, 160, 160>" in kernel.text and "bar.sync $1, 256" in kernel.text
    rng = np.random.default_rng(0)
    for h, m, n in ((2, 400, 150), (1, 1, 1)):
        inputs = [rng.standard_normal((h, size, 64)).astype(np.float16) for size in (m, n, n)]
        (expected,) = reference(graph, inputs, "f64", {**graph.extents, "h": h, "m": m, "n": n})
        (found,) = execute(plan, {kernel.name: kernel.text}, inputs, choose_free(plan, {}))
        assert np.abs(found - expected).max() < 1e-2 * np.abs(expected).max()
    (compiled,) = compile_many([kernel.request(Target.parse("sm_90"))])
    assert not isinstance(compiled, CleaveError)
    assert (compiled.num_warps, compiled.registers, compiled.notes) == (16, 128, ()) and compiled.spills <= 128


def _of_rows(rows: int) -> Callable[..., Iterator[Mapping[str, int]]]:
    def choices(group: Sequence[str], sizes: Mapping[str, int], *, single: bool) -> Iterator[Mapping[str, int]]:
        yield {name: {"m": rows, "d": 64}.get(name, 1) for name in group}

    return choices
