"""Kernels as warp-specialised TTGIR: numbers with the partitions run in random order, faults that are found, PTX."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from unittest.mock import patch

import graphs
import numpy as np
import pytest
from compiled import CTX, reference
from cuda_stub import Stub, library, stub
from lowered import NUMPY
from torch_stub import FakeTensor, Memory

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.lowering import rings
from cleave.lowering.compile_ttir import compile_many
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.form import Form
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.package import compiled_for
from cleave.lowering.plan import plan_of
from cleave.lowering.targets import TTGIR_TARGET, Target
from cleave.passes.diagnostics import Diagnostic, collecting
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.cuda import Program
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import LaunchPlan
from cleave.runtime.package import Variant
from cleave.runtime.ttgir_races import Races
from cleave.schedule.scheduler import ScheduleOptions, Schedules, with_candidates

__all__ = ["library", "stub"]

SM_90 = Target.parse("sm_90")
LARGE = {"m": 4096, "n": 4096, "k": 4096, "h": 32}
USUAL = Form()
Lowered = tuple[LaunchPlan, list[KernelModule], list[Diagnostic]]


@cache
def lowered(
    graph: Graph, rows: int = LARGE["m"], stages: int = 2, form: Form = USUAL, columns: int | None = None
) -> Lowered:
    """As for large sizes, in as few kernels as may be, with tiles of 128 rows, or for so many, with 64; with few
    stages, so that they are reused. ``columns``: of tiles along n, where they are not to be the best."""
    sizes = {name: size for name, size in {**LARGE, "m": rows}.items() if name not in graph.extents}
    found = Schedules(graph.deduplicated(), ScheduleOptions(sizes=sizes)).finalists(64)
    scheduled = min(found, key=lambda each: len(each.candidates))
    tile = 128 if rows == LARGE["m"] else 64
    exact = {"m": tile, **({"n": columns} if columns else {})}
    wanted = [
        next((each for each in launch if exact.items() <= each.tiling.tiles.items()), launch[0])
        for launch in scheduled.candidates
    ]
    program = with_candidates(scheduled.program, wanted)
    remarks: list[Diagnostic] = []
    few = patch.object(rings, "MOST_STAGES", stages)
    with CTX, ir.Location.unknown(), collecting(remarks.append), few:
        module = ir.Module.create()
        from_tile_program(program, module)
        LowerToTtgir(**asdict(form)).apply(CTX, module)
        assert module.operation.verify()
        kernels = kernel_modules(module)
        return plan_of(module, graph.name, {kernel.name: kernel for kernel in kernels}), kernels, remarks


def run(
    graph: Graph,
    texts: Mapping[str, str],
    sizes: Mapping[str, int],
    seed: int,
    rows: int = LARGE["m"],
    form: Form = USUAL,
    columns: int | None = None,
    plan: LaunchPlan | None = None,
) -> float:
    """The largest error, relative to the largest number. ``plan``: if it is another one than the kernel's."""
    plan = plan or lowered(graph, rows, form=form, columns=columns)[0]
    rng = np.random.default_rng(3)
    bound = {**graph.extents, **sizes}
    shapes = [[dim.size.evaluate(bound) for dim in value.dims] for value in graph.inputs]
    inputs = [rng.standard_normal(s).astype(NUMPY[v.dtype]) for s, v in zip(shapes, graph.inputs, strict=True)]
    (expected,) = reference(graph, inputs, "f64", bound)
    (found,) = execute(plan, texts, inputs, choose_free(plan, dict(sizes)), seed=seed)
    difference = np.abs(found.astype(float) - expected).max(initial=0.0)
    return float(difference / np.abs(expected).max(initial=1e-30))


def matmul(dtype: str = "f16", *, transposed: bool = False) -> Graph:
    b = GraphBuilder("matmul")
    x, w = b.input("m k=200", dtype), b.input("n=264 k=200" if transposed else "k=200 n=264", dtype)
    return b.build(b.contract(x, w, over=["k"], dtype=dtype))


def swiglu() -> Graph:
    b = GraphBuilder("swiglu")
    x, w, v = b.input("m k=200", "f16"), b.input("k=200 n=136", "f16"), b.input("k=200 n=136", "f16")
    gate, up = (b.contract(x, y, over=["k"], dtype="f32") for y in (w, v))
    return b.build(b.cast(b.mul(b.mul(gate, b.sigmoid(gate)), up), dtype="f16"))


def normalised() -> Graph:
    """A tile is an operand of a product and read into registers, too."""
    b = GraphBuilder("normalised")
    x, w = b.input("m k=256", "f16"), b.input("k=256 n=256", "f16")
    wide = b.cast(x, dtype="f32")
    total = b.reduce(b.mul(wide, wide), kind="sum", over=["k"])
    product = b.contract(x, w, over=["k"], dtype="f32")
    return b.build(b.cast(b.div(product, b.sqrt(total)), dtype="f16"))


def chain(n: str = "n") -> Graph:
    """Without a softmax between the products: the late one only adds."""
    b = GraphBuilder("chain")
    q, k, v = b.input("h m d=64", "f16"), b.input(f"h {n} d=64", "f16"), b.input(f"h {n} e=64", "f16")
    scores = b.contract(q, k, over=["d"], dtype="f16")
    return b.build(b.contract(scores, v, over=["n"], dtype="f16"))


def gram() -> Graph:
    """One tensor in two roles, of which only the rows of one are divided."""
    b = GraphBuilder("gram")
    x = b.input("m k=200", "f16")
    return b.build(b.contract(x, b.rename(x, from_="m", to="n=m"), over=["k"], dtype="f16"))


RIGHT = [
    (matmul(), [{"m": 300}, {"m": 1}, {"m": 0}]),
    (matmul("bf16", transposed=True), [{"m": 130}]),
    (swiglu(), [{"m": 130}]),
    (normalised(), [{"m": 70}]),
    (gram(), [{"m": 300}, {"m": 1}]),
    (chain(), [{"h": 1, "m": 70, "n": 200}, {"h": 1, "m": 3, "n": 0}]),
    (graphs.attention(division_last=True), [{"h": 1, "m": 70, "n": 150}, {"h": 2, "m": 1, "n": 1}]),
    (graphs.causal_attention(), [{"h": 1, "m": 150, "n": 150}, {"h": 1, "m": 70, "n": 200}, {"h": 1, "m": 0, "n": 3}]),
]


def _label(value: Graph | Mapping[str, int]) -> str:
    return value.name if isinstance(value, Graph) else "-".join(f"{name}{size}" for name, size in value.items())


@pytest.mark.parametrize(("graph", "sizes"), [(g, s) for g, runs in RIGHT for s in runs], ids=_label)
def test_numbers(graph: Graph, sizes: dict[str, int]) -> None:
    for stages in (2, 4):  # of which products run on with four
        _, kernels, _ = lowered(graph, stages=stages)
        assert all(TTGIR_TARGET in kernel.text for kernel in kernels)
        assert run(graph, {kernel.name: kernel.text for kernel in kernels}, sizes, stages) < 1e-2


def _first_call(pattern: str, replacement: str) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, replacement, text, count=1)


def _everywhere(pattern: str, replacement: str) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, replacement, text)


FAULTS: list[tuple[str, Callable[[str], str], str]] = [
    ("a consumer releases nothing", _first_call(r'\n *"ttng\.arrive_barrier"[^\n]*', ""), "nothing completes"),
    (
        "a barrier for one",
        _everywhere(r"\{count = 2 : i32\}", "{count = 1 : i32}"),
        "nothing completes|arrivals in one|may still read",
    ),
    ("a barrier for three", _everywhere(r"\{count = 2 : i32\}", "{count = 3 : i32}"), "nothing completes"),
    ("released too early", _everywhere("pendings = 1 : i32", "pendings = 2 : i32"), "may still read"),
    ("more bytes", _first_call(r"\{size = \d+ : i32\}", "{size = 65536 : i32}"), "nothing completes"),
    ("results not waited for", _everywhere("pendings = 0 : i32", "pendings = 1 : i32"), "evaluated|not waited for"),
]


@pytest.mark.parametrize(("fault", "message"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_faults_are_found(fault: Callable[[str], str], message: str) -> None:
    graph = matmul()
    plan, (kernel,), _ = lowered(graph, stages=4)
    text = fault(kernel.text)
    assert text != kernel.text
    outcomes = [_outcome(graph, plan, text, seed) for seed in range(3)]
    assert any(re.search(message, outcome) for outcome in outcomes), outcomes


PARTITIONS = '"ttg.warp_specialize.partitions"'
"""Between the producer and the consumers."""


@pytest.mark.parametrize("seed", range(3))
def test_a_buffer_that_is_not_waited_for_is_found_whatever_the_order(seed: int) -> None:
    """Also where the copy happens to be there, and the numbers are right."""
    graph = matmul()
    plan, (kernel,), _ = lowered(graph, stages=3)
    producer, consumers = kernel.text.split(PARTITIONS)
    text = producer + PARTITIONS + _first_call(r'\n *"ttng\.wait_barrier"[^\n]*', "")(consumers)
    assert "a buffer is read that a copy fills, before it was waited for" in _outcome(graph, plan, text, seed)


def test_a_copy_into_what_another_partition_may_still_read_is_found() -> None:
    """Also where its reads happen to be done: the copying partition must know."""
    races, buffer, barrier = Races(), np.zeros(4), dict[int, int]()
    races.copied(0, key=7)
    races.read(1, 7, buffer)
    with pytest.raises(CleaveError, match="another partition may still read"):
        races.copied(0, key=7)
    races.publish(1, barrier)
    races.learn(0, barrier)
    races.copied(0, key=7)


def test_a_missing_fence_is_found() -> None:
    graph = normalised()
    plan, (kernel,), _ = lowered(graph)
    text = re.sub(r'\n *"ttng\.fence_async_shared"[^\n]*', "", kernel.text)
    assert text != kernel.text and "without a fence" in _outcome(graph, plan, text, 0)


def _outcome(graph: Graph, plan: LaunchPlan, text: str, seed: int) -> str:
    try:
        error = run(graph, {plan.launches[0].kernel: text}, {"m": 300}, seed)
    except CleaveError as problem:
        return problem.message
    return "numbers" if not error < 1e-2 else ""


def remarks_of(graph: Graph) -> Sequence[str]:
    return [diagnostic.message for diagnostic in lowered(graph)[2]]


def test_tiles_of_64_rows_have_one_consumer() -> None:
    """Of 128 registers per thread, so that two blocks fit on a multiprocessor."""
    graph = graphs.attention(division_last=True)
    _, (kernel,), _ = lowered(graph, 256)
    assert "partitionNumWarps = array<i32: 4>" in kernel.text and "ttg.maxnreg = 128" in kernel.text
    assert run(graph, {kernel.name: kernel.text}, {"h": 1, "m": 40, "n": 70}, 0, 256) < 1e-2
    (found,) = compile_many([kernel.request(SM_90)])
    assert not isinstance(found, CleaveError)
    assert (found.num_warps, found.registers, found.notes) == (8, 128, ()) and found.spills <= 128
    assert found.shared <= SM_90.shared_per_block // 2


def test_what_has_no_such_form_says_why() -> None:
    b = GraphBuilder("rows")
    x = b.input("m n", "f16")
    (remark,) = remarks_of(b.build(b.reduce(x, kind="sum", over=["n"])))
    assert "is lowered to TTIR: no loop of it multiplies tiles that can be copied" in remark
    b = GraphBuilder("wide")
    y, w = b.input("m k=256", "f32"), b.input("k=256 n=256", "f32")
    (remark,) = remarks_of(b.build(b.contract(y, w, over=["k"])))
    assert "is lowered to TTIR: a product of" in remark
    b = GraphBuilder("number")
    (remark,) = remarks_of(b.build(b.contract(b.input("k", "f16"), b.input("k", "f16"), over=["k"])))
    assert "is lowered to TTIR" in remark  # a product without columns


def test_of_forms_that_are_refused_nothing_is_left() -> None:
    """Half of one, that of consumers which exchange what they multiply, stood beside the kernel."""
    b = GraphBuilder("chained")
    q, k, v = b.input("m d=64", "f32"), b.input("n d", "f32"), b.input("n d", "f32")
    graph = b.build(b.contract(b.exp(b.contract(q, k, over=["d"])), v, over=["n"]))
    _, kernels, remarks = lowered(graph)
    assert [kernel.name for kernel in kernels] == ["chained__k0"] and len(remarks) == 1
    assert run(graph, {"chained__k0": kernels[0].text}, {"m": 40, "n": 70}, 0) < 1e-5


def test_another_architecture_is_refused() -> None:
    _, (kernel,), _ = lowered(matmul())
    with pytest.raises(CleaveError, match="warp-specialised for sm_90"):
        kernel.request(Target.parse("sm_80"))


@pytest.mark.parametrize("graph", [matmul(), chain("n=256")], ids=_label)
def test_ptx(graph: Graph) -> None:
    """Two warpgroups of consumers and a producer, no spills, nothing that ptxas remarks on."""
    _, kernels, _ = lowered(graph, stages=4)
    (found,) = compile_many([kernel.request(SM_90) for kernel in kernels])
    assert not isinstance(found, CleaveError)
    assert (found.num_warps, found.spills, found.notes) == (12, 0, ())
    assert found.registers == 168 and found.fits
    assert "wait_group.sync.aligned 1;" in found.ptx or graph.name != "matmul"
    assert "setmaxnreg.inc.sync.aligned.u32" in found.ptx and "cp.async.bulk.tensor" in found.ptx


def test_a_late_product_runs_under_the_pointwise_work() -> None:
    """Both products are started before the scores are awaited; the late one is when its sum is rescaled."""
    _, (kernel,), _ = lowered(graphs.attention(division_last=True), form=replace(USUAL, persistent=False))
    _, consumers = kernel.text.split(PARTITIONS)
    loop = consumers[consumers.index('"scf.for"') :]
    found = re.findall(r'"(ttng\.(?:warp_group_dot\w*|arrive_barrier|wait_barrier)|math\.exp2|scf\.yield)"', loop)
    order = [name.rpartition(".")[2] for name in found[: found.index("scf.yield")]]
    assert order == [
        *("wait_barrier", "warp_group_dot", "wait_barrier", "warp_group_dot"),
        *("warp_group_dot_wait", "arrive_barrier", "exp2", "exp2", "warp_group_dot_wait", "arrive_barrier"),
    ]
    assert re.findall(r"pendings = (\d)", loop)[:2] == ["1", "0"]


def test_a_mask_from_positions_transposes_nothing() -> None:
    """Whole iterations and masked ones share a ring for keys and one for values; both consumers have a buffer for
    queries and, the last one, for results."""
    _, (kernel,), _ = lowered(graphs.causal_attention(), stages=3)
    assert "tt.trans" not in kernel.text
    rings = re.findall(r'"ttg.local_alloc"\(\) : \(\) -> !ttg.memdesc<(\d+)x\d+x32xf16', kernel.text)
    assert rings == ["2", "3", "3", "2"]


def test_a_package_launches_with_all_warps(stub: Stub) -> None:
    """The binary's 12 warps, not the program's, and a map for each descriptor."""
    plan, kernels, _ = lowered(matmul())
    variant = compiled_for(Variant(plan, {kernel.name: kernel.text for kernel in kernels}, {}, {}), [SM_90])
    ((name, binary),) = variant.binaries["sm_90"].items()
    image = b"matmul__k0:8,8,8,4,128,128,128,8,8"  # what the stub makes of a binary: sizes of the parameters
    x, w = FakeTensor(2**32, (300, 200)), FakeTensor(2**33, (200, 264))
    Program(plan, {name: replace(binary, cubin=image)}, stub.driver)([x, w], Memory())
    (launch,) = [line for line in stub.log if line.startswith("launch")]
    assert "8 1 1" in launch and " 384 " in launch  # of 9 tiles, as 8 blocks run at once
    assert len([line for line in stub.log if line.startswith("map")]) == 3
