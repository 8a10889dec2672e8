"""Operands that threads of the producer copy: rows picked by an index, rows of fewer than whole vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from compiled import CTX, reference
from lowered import NUMPY
from test_warp_specialised import SM_90, Lowered
from test_warp_specialised_choice import lowered as is_lowered
from test_warp_specialised_choice import specialised

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.errors import CleaveError
from cleave.lowering import rings
from cleave.lowering.compile_ttir import compile_many
from cleave.lowering.emit import kernel_modules
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.lowering.targets import TTGIR_TARGET
from cleave.passes.diagnostics import Diagnostic, collecting
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.execute import execute
from cleave.schedule.copying_threads import ThreadCopy, copying_registers, lanes_of_row
from cleave.schedule.scheduler import ScheduleOptions, Schedules, schedule, with_candidates
from cleave.schedule.target import target_named

LARGE = {"k": 256, "n": 4096, "m": 4096, "v": 32768, "h": 16, "page": 4096, "j": 256, "a": 64}


def sizes_of(graph: Graph) -> dict[str, int]:
    symbols = {name for value in graph.inputs for dim in value.dims for name in dim.size.symbols}
    return {name: LARGE[name] for name in sorted(symbols - graph.extents.keys())}


@cache
def lowered(graph: Graph) -> Lowered:
    """As for large sizes, in as few kernels as may be, with tiles of 128 rows, and few stages, so that they are
    reused."""
    options = ScheduleOptions(sizes=sizes_of(graph), max_tilings=8)
    scheduled = min(Schedules(graph.deduplicated(), options).finalists(8), key=lambda each: len(each.candidates))
    wanted = [next((c for c in each if c.tiling.tiles.get("m") == 128), each[0]) for each in scheduled.candidates]
    remarks: list[Diagnostic] = []
    few = patch.object(rings, "MOST_STAGES", 2)
    with CTX, ir.Location.unknown(), collecting(remarks.append), few:
        module = ir.Module.create()
        from_tile_program(with_candidates(scheduled.program, wanted), module)
        LowerToTtgir().apply(CTX, module)
        assert module.operation.verify()
        kernels = kernel_modules(module)
        return plan_of(module, graph.name, {kernel.name: kernel for kernel in kernels}), kernels, remarks


def inputs_of(graph: Graph, bound: Mapping[str, int]) -> list[np.ndarray]:
    """Indices are of what there is of the first dim of the tensor before."""
    rng, found, rows = np.random.default_rng(3), list[np.ndarray](), 1
    for value in graph.inputs:
        shape = [dim.size.evaluate(bound) for dim in value.dims]
        if value.dtype.startswith("i"):
            found.append(rng.integers(0, rows, shape).astype(NUMPY[value.dtype]))
        else:
            found.append(rng.standard_normal(shape).astype(NUMPY[value.dtype]))
            rows = shape[0]
    return found


def run(graph: Graph, text: str, sizes: Mapping[str, int], seed: int) -> float:
    """The largest error, relative to the largest number."""
    plan, (kernel,), _ = lowered(graph)
    bound = {**graph.extents, **sizes}
    inputs = inputs_of(graph, bound)
    expected = reference(graph, inputs, "f64", bound)
    found = execute(plan, {kernel.name: text}, inputs, choose_free(plan, dict(sizes)), seed=seed)
    errors = [np.abs(x.astype(float) - y).max(initial=0.0) for x, y in zip(found, expected, strict=True)]
    return max(float(e / np.abs(y).max(initial=1e-30)) for e, y in zip(errors, expected, strict=True))


def embedding(k: int = 200) -> Graph:
    """Rows of a table, times a matrix."""
    b = GraphBuilder("embedding")
    table, tokens, w = b.input(f"v k={k}", "bf16"), b.input("m", "i32"), b.input(f"k={k} n=136", "bf16")
    return b.build(b.contract(b.gather(table, tokens, dim="v"), w, over=["k"], dtype="bf16"))


def experts() -> Graph:
    """Columns of the right operand are picked."""
    b = GraphBuilder("experts")
    x, w, columns = b.input("m k=136", "f16"), b.input("v k=136", "f16"), b.input("n=200", "i64")
    return b.build(b.contract(x, b.gather(w, columns, dim="v"), over=["k"], dtype="f16"))


def odd(k: int, n: int, *, transposed: bool = False) -> Graph:
    """Rows that no descriptor describes."""
    b = GraphBuilder(f"odd_{k}_{n}")
    x, w = b.input(f"m k={k}", "f16"), b.input(f"n={n} k={k}" if transposed else f"k={k} n={n}", "f16")
    return b.build(b.contract(x, w, over=["k"], dtype="f16"))


def strided() -> Graph:
    """Rows of which the launch says how far they are apart; of whole vectors of 8 bytes."""
    b = GraphBuilder("strided", facts=["k = 4*a"])
    x, w = b.input("m k", "f16"), b.input("k n=128", "f16")
    return b.build(b.contract(x, w, over=["k"], dtype="f16"))


def paged(head: int = 64, slots: int = 16) -> Graph:
    """Attention to keys and values in pages that a table lists."""
    b = GraphBuilder(f"paged_{head}")
    q, keys = b.input(f"h m d={head}", "f16"), b.input(f"page slot={slots} h d={head}", "f16")
    values, table = b.input(f"page slot={slots} h e={head}", "f16"), b.input("j", "i32")
    k, v = (_in_line(b, b.gather(x, table, dim="page"), slots) for x in (keys, values))
    s = b.contract(q, k, over=["d"], dtype="f32")
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    o = b.contract(b.cast(e, dtype="f16"), v, over=["n"], dtype="f32")
    return b.build(b.cast(b.div(o, b.reduce(e, kind="sum", over=["n"])), dtype="f16"))


def picked(head: int = 64) -> Graph:
    """Attention to keys and values that an index picks one by one."""
    b = GraphBuilder("picked")
    q, keys = b.input(f"h m d={head}", "f16"), b.input(f"v h d={head}", "f16")
    values, index = b.input(f"v h e={head}", "f16"), b.input("n", "i32")
    k, v = (b.gather(x, index, dim="v") for x in (keys, values))
    s = b.contract(q, k, over=["d"], dtype="f32")
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    o = b.contract(b.cast(e, dtype="f16"), v, over=["n"], dtype="f32")
    return b.build(b.cast(b.div(o, b.reduce(e, kind="sum", over=["n"])), dtype="f16"))


def beside() -> Graph:
    """Two products of the same rows, side by side: the producer copies in branches."""
    b = GraphBuilder("beside")
    table, tokens = b.input("v k=196", "f16"), b.input("m", "i32")
    x, widths = b.gather(table, tokens, dim="v"), ("n=136", "o=72")
    return b.build(*(b.contract(x, b.input(f"k=196 {width}", "f16"), over=["k"], dtype="f16") for width in widths))


def normalised() -> Graph:
    """A tile that threads copy is an operand of a product and read into registers, too."""
    b = GraphBuilder("normalised")
    x, w = b.input("m k=204", "f16"), b.input("k=204 n=140", "f16")
    wide = b.cast(x, dtype="f32")
    total = b.reduce(b.mul(wide, wide), kind="sum", over=["k"])
    return b.build(b.cast(b.div(b.contract(x, w, over=["k"], dtype="f32"), b.sqrt(total)), dtype="f16"))


def _in_line(b: GraphBuilder, pages: Value, slots: int) -> Value:
    return b.merge(pages, dims=["j", "slot"], into=f"n=j*{slots}")


RIGHT: list[tuple[Graph, list[dict[str, int]], int]] = [
    (embedding(), [{"m": 300, "v": 77}, {"m": 1, "v": 1}, {"m": 0, "v": 5}], 16),
    (experts(), [{"m": 130, "v": 31}], 16),
    (odd(196, 260), [{"m": 300}, {"m": 1}, {"m": 0}], 8),
    (odd(140, 70, transposed=True), [{"m": 130}], 8),
    (odd(102, 134), [{"m": 130}], 4),
    (strided(), [{"m": 130, "a": 21, "k": 84}, {"m": 3, "a": 1, "k": 4}, {"m": 3, "a": 0, "k": 0}], 8),
    (beside(), [{"m": 140, "v": 19}], 8),
    (normalised(), [{"m": 130}], 8),
    (picked(), [{"h": 1, "m": 70, "n": 133, "v": 9}, {"h": 1, "m": 1, "n": 1, "v": 1}], 16),
    (paged(), [{"h": 2, "m": 130, "j": 9, "page": 20}, {"h": 1, "m": 1, "j": 1, "page": 1}], 16),
]


def _label(value: Graph | Mapping[str, int] | int) -> str | None:
    if isinstance(value, Graph):
        return value.name
    return None if isinstance(value, int) else "-".join(f"{name}{size}" for name, size in value.items())


@pytest.mark.parametrize(
    ("graph", "sizes", "width"), [(g, s, width) for g, runs, width in RIGHT for s in runs], ids=_label
)
def test_numbers(graph: Graph, sizes: dict[str, int], width: int) -> None:
    """Copies of ``width`` bytes by each thread."""
    _, (kernel,), remarks = lowered(graph)
    assert not remarks and TTGIR_TARGET in kernel.text
    vectors = {int(number) for number in re.findall(r"async_copy_global.*?contiguity = (\d+)", kernel.text)}
    assert {2 * vector for vector in vectors} == {width}
    for seed in range(3):
        assert run(graph, kernel.text, sizes, seed) < 1e-2


ARRIVAL = r'\n *"ttng\.async_copy_mbarrier_arrive"[^\n]*'
COPY = r'\n *%\d+ = "ttg\.async_copy_global_to_local"[^\n]*'
WAIT = r'(\n *"ttng\.wait_barrier"[^\n]*)\n *"ttng\.fence_async_shared"[^\n]*'

FAULTS: list[tuple[str, Callable[[str], str], str]] = [
    ("nobody arrives", lambda text: re.sub(ARRIVAL, "", text, count=1), "nothing completes|before it was waited"),
    ("arrivals that do not count", lambda text: text.replace("noIncrement", "other"), "nothing completes"),
    ("a barrier for a warp", lambda text: re.sub(r"\{count = 128 :", "{count = 32 :", text), "arrivals in one phase"),
    ("a barrier for more", lambda text: re.sub(r"\{count = 128 :", "{count = 256 :", text), "nothing completes"),
    (
        "an arrival before the copies",
        lambda text: re.sub(rf"({COPY})({ARRIVAL})", r"\2\1", text),
        "before it was waited",
    ),
    ("no fence", lambda text: re.sub(WAIT, r"\1", text), "without a fence"),
    ("a fence too early", lambda text: re.sub(rf"{WAIT}", _fence_first, text), "without a fence"),
    ("no wait", lambda text: re.sub(WAIT, "", text, count=1), "before it was waited"),
    ("not waiting for empty buffers", lambda text: _without_empty(text), "may still read|before it was waited|numbers"),
    ("no mask", lambda text: _unmasked(text), "out of bounds|outside|numbers|memory"),
]


def _fence_first(match: re.Match[str]) -> str:
    return '\n"ttng.fence_async_shared"() {bCluster = false} : () -> ()' + match[1]


def _without_empty(text: str) -> str:
    """The waits of the producer, which stand behind the last return of a consumer."""
    start = text.rindex('"ttg.warp_return"', 0, text.rindex('"ttg.warp_return"'))
    return text[:start] + re.sub(r'\n *"ttng\.wait_barrier"[^\n]*', "", text[start:])


def _unmasked(text: str) -> str:
    """The last comparison is true everywhere."""
    start = text.rindex("arith.cmpi", 0, text.rindex("async_copy_global"))
    return text[:start] + re.sub(r"predicate = 2", "predicate = 1", text[start:], count=1)


@pytest.mark.parametrize(("fault", "message"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_faults_are_found(fault: Callable[[str], str], message: str) -> None:
    graph = odd(196, 260)
    _, (kernel,), _ = lowered(graph)
    text = fault(kernel.text)
    assert text != kernel.text
    outcomes = [_outcome(graph, text, seed) for seed in range(3)]
    assert any(re.search(message, outcome) for outcome in outcomes), outcomes


def _outcome(graph: Graph, text: str, seed: int) -> str:
    try:
        error = run(graph, text, {"m": 200}, seed)
    except CleaveError as problem:
        return problem.message
    return "numbers" if not error < 1e-2 else ""


def test_indices_are_loaded_an_iteration_ahead() -> None:
    """Behind the copies of an iteration come the indices of the next one, if there is one."""
    graph, sizes = picked(), {"h": 1, "m": 70, "n": 133, "v": 9}
    _, (kernel,), _ = lowered(graph)
    start = kernel.text.rindex('"scf.for"', 0, kernel.text.rindex("async_copy_global"))  # that without masks
    body = kernel.text[start : kernel.text.index('"scf.yield"', start)]
    order = re.findall(r'"(tt\.load|ttg\.async_copy_global_to_local)"', body)
    assert order == ["ttg.async_copy_global_to_local"] * 2 + ["tt.load"] * order.count("tt.load") and "tt.load" in order
    exists = r'"arith.cmpi"\((%\w+), %\w+\) <\{predicate = 2 : i64\}>(?= : \(i(?:32|64), i(?:32|64)\) -> i1)'
    always = re.sub(exists, r'"arith.cmpi"(\1, \1) <{predicate = 0 : i64}>', body)
    with pytest.raises(CleaveError, match="outside"):
        run(graph, kernel.text.replace(body, always), sizes, 0)


@pytest.mark.parametrize("graph", [embedding(), odd(196, 260), paged()], ids=_label)
def test_ptx(graph: Graph) -> None:
    """Four warps that copy, beside those that multiply: nothing that ptxas remarks on, and no tile is spilled."""
    _, kernels, _ = lowered(graph)
    (found,) = compile_many([kernel.request(SM_90) for kernel in kernels])
    assert not isinstance(found, CleaveError)
    assert (found.num_warps, found.registers, found.notes) == (12, 168, ()) and found.spills <= 128 and found.fits
    copies = {int(size, 16) for size in re.findall(r"cp\.async\.c[ag]\.shared\.global .*?, (0x\w+)", found.ptx)}
    assert copies == {8 if graph.name.startswith("odd") else 16}
    assert "cp.async.mbarrier.arrive.noinc.shared" in found.ptx and "wgmma.mma_async" in found.ptx


def test_threads_have_few_addresses() -> None:
    """They copy lines of 128 bytes, half of longer rows at a time; the producer has registers for its rows."""
    assert (lanes_of_row(256, 16), lanes_of_row(128, 4), lanes_of_row(64, 16)) == (8, 32, 4)
    assert copying_registers([ThreadCopy(128, 256, 16, indexed=True)] * 2) == 104
    _, (kernel,), _ = lowered(embedding(4096))
    assert "sizePerThread = [1, 8], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1]" in kernel.text
    assert "partitionNumWarps = array<i32: 4, 4>, requestedRegisters = array<i32: 224, 224>" in kernel.text


def test_what_cannot_be_copied_says_why() -> None:
    _, (kernel,), (remark,) = lowered(odd(101, 135))
    assert TTGIR_TARGET not in kernel.text
    assert "an operand of a product is loaded by pointers to 2 bytes, too few for a copy" in remark.message


@pytest.mark.parametrize("graph", [odd(4100, 4096), paged()], ids=_label)
def test_what_is_predicted_to_have_the_form_is_lowered_to_it(graph: Graph) -> None:
    options = ScheduleOptions(target_named("h200"), sizes_of(graph), max_tilings=4, warp_specialise=True)
    found = schedule(graph.deduplicated(), options)
    chosen = specialised(found)
    assert found.candidates[0][0].warp_specialised
    assert all(is_lowered(found, each) for each in chosen[:2])
