"""Loads through tensor descriptors: which loads become one, their numbers, and what the launch makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import graphs
import numpy as np
import one_kernel
import pytest
from compiled import CTX, reference
from cuda_stub import Stub, library, spec, stub
from lowered import NUMPY, lower
from torch_stub import FakeTensor, Memory

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.plan import plan_of
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.cuda import Kernel, Program
from cleave.runtime.descriptors import Box, DescriptorSpec
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import Alloc, Launch, LaunchPlan, TensorSpec, View
from cleave.schedule.scheduler import ScheduleOptions, schedule

__all__ = ["library", "stub"]


def lowered(graph: Graph, sizes: Mapping[str, int]) -> tuple[LaunchPlan, list[KernelModule]]:
    """With every kernel told to use descriptors."""
    program = schedule(graph.deduplicated(), ScheduleOptions(sizes=dict(sizes))).program
    launches = tuple(replace(each, kernel=replace(each.kernel, descriptors=True)) for each in program.launches)
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(replace(program, launches=launches), module)
        LowerToTriton().apply(CTX, module)
        kernels = kernel_modules(module)
        return plan_of(module, graph.name, {kernel.name: kernel for kernel in kernels}), kernels


def descriptors(kernels: Sequence[KernelModule]) -> list[str]:
    return [text for kernel in kernels for text in kernel.arguments if text.startswith("desc:")]


def matmul(k: str = "k=40", n: str = "n=72", dtype: str = "f16", *facts: str, transposed: bool = False) -> Graph:
    b = GraphBuilder("matmul", facts=list(facts))
    x, w = b.input(f"m {k}", dtype), b.input(f"{n} {k}" if transposed else f"{k} {n}", dtype)
    return b.build(b.contract(x, w, over=["k"], dtype=dtype))


def latent_attention() -> Graph:
    """The cache is keys and values."""
    b = GraphBuilder("latent")
    q, c = b.input("b h d=64", "f16"), b.input("b n d=64", "f16")
    s = b.contract(q, c, over=["d"])
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    values = b.rename(c, from_="d", to="e=d")
    product = b.contract(b.cast(e, dtype="f16"), values, over=["n"])
    return b.build(b.cast(b.div(product, b.reduce(e, kind="sum", over=["n"])), dtype="f16"))


LATENT = latent_attention()
FACTS = ("k = 16*k1", "n = 16*n1")
RIGHT = [
    (matmul(), [{"m": 37}, {"m": 1}, {"m": 0}, {"m": 130}]),
    (matmul(dtype="bf16"), [{"m": 37}]),
    (matmul(dtype="f32"), [{"m": 37}]),
    (matmul(transposed=True), [{"m": 37}]),
    (matmul("k", "n", "f16", *FACTS), [{"m": 37, "k1": 3, "n1": 5}, {"m": 3, "k1": 0, "n1": 1}]),
    (graphs.attention(division_last=True), [{"h": 2, "m": 37, "n": 70}, {"h": 1, "m": 1, "n": 1}]),
    (graphs.rmsnorm_matmul(), [{"m": 37, "n": 96}]),
    (LATENT, [{"b": 2, "h": 70, "n": 37}, {"b": 1, "h": 1, "n": 1}]),
]


@pytest.mark.parametrize(("graph", "runs"), RIGHT, ids=lambda value: value.name if isinstance(value, Graph) else "")
def test_numbers(graph: Graph, runs: list[dict[str, int]]) -> None:
    plan, kernels = lowered(graph, {"m": 37, "n": 80, "k": 48, "h": 2, "k1": 3, "n1": 5})
    texts = {kernel.name: kernel.text for kernel in kernels}
    for run in runs:
        sizes = {**graph.extents, **run}
        sizes |= {str(name): size.evaluate(sizes) for name, size in graph.facts.definitions.items() if name not in run}
        rng = np.random.default_rng(3)
        shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in graph.inputs]
        inputs = [rng.standard_normal(s).astype(NUMPY[v.dtype]) for s, v in zip(shapes, graph.inputs, strict=True)]
        (expected,) = reference(graph, inputs, "f64", sizes)
        (found,) = execute(plan, texts, inputs, choose_free(plan, run))
        tolerance = 1e-2 * np.abs(expected).max(initial=1e-30)
        np.testing.assert_allclose(found.astype(float), expected, rtol=0, atol=tolerance)


LOADS = [
    (matmul(), ["desc:0:0,1:", "desc:1:0,1:"]),
    (matmul("k", "n"), []),  # rows of 2k and 2n bytes: no multiples of 16
    (matmul("k=44"), ["desc:1:0,1:"]),
    (matmul("k", "n", "f16", *FACTS), ["desc:0:0,1:", "desc:1:0,1:"]),
    (graphs.attention(division_last=True), [f"desc:{i}:0,1,2:1x" for i in range(3)]),
]


@pytest.mark.parametrize(("graph", "expected"), LOADS, ids=[f"{g.name}-{len(e)}" for g, e in LOADS])
def test_which_loads_become_one(graph: Graph, expected: list[str]) -> None:
    _, kernels = lowered(graph, {"m": 4096, "n": 4096, "k": 4096, "h": 8, "s": 2, "k1": 256, "n1": 256})
    found = descriptors(kernels)
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True)), found


def test_a_tensor_in_two_roles_is_loaded_once() -> None:
    """The latent cache is keys and values: one descriptor, and of equal loads in a loop one."""
    _, (kernel,) = lowered(LATENT, {"b": 128, "h": 128, "n": 1024})
    assert [text.split(":")[1] for text in descriptors([kernel])] == ["0", "1"]
    loop = kernel.text.split("scf.for")[1]
    assert loop.count('"tt.descriptor_load"') == 1
    assert loop.count('"tt.dot"') == 2


@pytest.mark.parametrize(("facts", "count"), [("", 0), ("1 <= m, 1 <= k1", 1)])
def test_empty_tensors_have_no_descriptor(facts: str, count: int) -> None:
    """A hand-written kernel may load what does not exist, and gets the fill."""
    names, listed = ("m", "k"), ", ".join(f'"{fact}"' for fact in ("k = 16*k1", *filter(None, facts.split(", "))))
    text = one_kernel.module(
        [(names, "f16")], [(names, "f16")], one_kernel.op("o0", "neg", [("t0", names, "f16")], names, "f16")
    )
    text = text.replace("fill = 1.0", "fill = 0.0").replace(
        "{cleave.kernel", f"{{cleave.kernel, cleave.descriptors, cleave.facts = [{listed}]"
    )
    kernels = kernel_modules(lower(text))
    assert len(descriptors(kernels)) == count


def test_a_mask_past_the_end_is_still_there() -> None:
    """What a descriptor fills with is 0, which is no neutral element of a maximum."""
    b = GraphBuilder("largest", facts=["1 <= n"])
    x, w = b.input("m k=32", "f16"), b.input("n k=32", "f16")
    graph = b.build(b.reduce(b.contract(x, w, over=["k"], dtype="f32"), kind="max", over=["n"]))
    plan, kernels = lowered(graph, {"m": 64, "n": 96})
    assert len(descriptors(kernels)) == 2
    left, right = np.ones((5, 32), np.float16), -np.ones((7, 32), np.float16)
    (found,) = execute(plan, {kernel.name: kernel.text for kernel in kernels}, [left, right])
    assert (found == -32).all()


# --- launches ---------------------------------------------------------------------------------------------------------

SPECS = ("desc:0:1,0,2:1x64x32", "desc:1:0,1:32x64")
LAUNCH = Launch("k", ("m",), ("x", "w", "y"), ("y",), ("in:2", *SPECS), 8)
PLAN = LaunchPlan(
    "f", (spec("x", "m h k"), spec("w", "k n")), (Alloc(spec("y", "m n")), LAUNCH), ("y",), location="in.mlir:3:1"
)
BOXES = (Box((1, 64, 32), 2), Box((32, 64), 3))
KERNEL = Kernel("k", b"k:8,128,128,8,8", 0, 4, boxes=BOXES)
X, W = 2**32, 2**33


def test_tensor_maps_are_made_once_for_the_same_memory(stub: Stub) -> None:
    program, memory = Program(PLAN, {"k": KERNEL}, stub.driver), Memory()
    for address in (X, X, X + 4096):
        program([FakeTensor(address, (5, 3, 40)), FakeTensor(W, (40, 96))], memory)
    y = [tensor.address for tensor in memory.given]
    head = "launch k grid 5 1 1 block 128 1 1 shared 0 stream 0:"
    shape = "40 5 3 /240 /80 [32] [64] [1] 0 2 2 0"  # innermost first; strides in bytes; box; modes
    assert [line for line in stub.log if not line.startswith("load")] == [
        f"map 6 at {X}: {shape}",
        f"map 6 at {W}: 96 40 /192 [64] [32] 0 3 2 0",
        f"{head} {y[0]} map 1 map 2 0 0",
        f"{head} {y[1]} map 1 map 2 0 0",
        f"map 6 at {X + 4096}: {shape}",
        f"{head} {y[2]} map 3 map 2 0 0",
    ]


def test_an_empty_tensor_has_no_map(stub: Stub) -> None:
    Program(PLAN, {"k": KERNEL}, stub.driver)([FakeTensor(X, (5, 3, 0)), FakeTensor(W, (0, 96))], Memory())
    assert not [line for line in stub.log if line.startswith("map")]


def test_a_dim_of_one_element_may_have_any_stride(stub: Stub) -> None:
    x = FakeTensor(X, (5, 1, 40), strides=(40, 7, 1))
    Program(PLAN, {"k": KERNEL}, stub.driver)([x, FakeTensor(W, (40, 96))], Memory())
    assert f"map 6 at {X}: 40 5 1 /80 /480 [32] [64] [1] 0 2 2 0" in stub.log


BAD = [
    (FakeTensor(X, (5, 3, 41)), FakeTensor(W, (41, 96)), PLAN, KERNEL, r"has strides \[41, 123, 1\]"),
    (FakeTensor(X, (5, 3, 40)), FakeTensor(W, (40, 96)), PLAN, replace(KERNEL, boxes=()), "boxes for 0 descriptors"),
    (
        FakeTensor(X, (5, 3, 40)), FakeTensor(W, (40, 96)),
        replace(PLAN, steps=(*PLAN.steps[:1], replace(LAUNCH, arguments=("in:2", "desc:0:0,1:8x8", SPECS[1])))),
        KERNEL, "'desc:0:0,1:8x8' is given a tensor of rank 3",
    ),
    (
        FakeTensor(X, (5, 3, 40)), FakeTensor(W, (40, 96)),
        replace(PLAN, steps=(*PLAN.steps[:1], replace(LAUNCH, arguments=("in:2", "desc:0:0,2:8x8", SPECS[1])))),
        KERNEL, "does not name each axis once",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("x", "w", "plan", "kernel", "message"), BAD, ids=["stride", "boxes", "rank", "axes"])
def test_what_cannot_be_described_is_refused(
    stub: Stub, x: FakeTensor, w: FakeTensor, plan: LaunchPlan, kernel: Kernel, message: str
) -> None:
    with pytest.raises(CleaveError, match=message):
        Program(plan, {"k": kernel}, stub.driver)([x, w], Memory())
    assert not [line for line in stub.log if line.startswith("launch")]


def test_a_refusal_of_the_driver_names_the_tensor(stub: Stub) -> None:
    stub.reset("cuTensorMapEncodeTiled", 1)
    with pytest.raises(CleaveError, match=r"cannot describe x of shape \[3, 5, 40\]"):
        Program(PLAN, {"k": KERNEL}, stub.driver)([FakeTensor(X, (5, 3, 40)), FakeTensor(W, (40, 96))], Memory())


def test_the_interpreter_refuses_what_the_hardware_would() -> None:
    """A slice that begins within 16 bytes."""
    part = View("x", ("k",), ("p=16",), TensorSpec("y", "f16", ("m", "p=16"), (None, 16)), offset="4")
    launch = Launch("k", ("1",), ("y",), (), ("desc:0:0,1:1x16",))
    plan = LaunchPlan("f", (spec("x", "m k"),), (part, launch), ("x",))
    with pytest.raises(CleaveError, match="starts at an address that is no multiple of 16 bytes"):
        execute(plan, {"k": "module { }"}, [np.zeros((3, 40), np.float16)])


@pytest.mark.parametrize("text", ["desc:0:0,1:8x16", "desc:3:2,0,1:1x64x128"])
def test_descriptions_are_read_back(text: str) -> None:
    assert str(DescriptorSpec.parse(text)) == text
    assert math.prod(DescriptorSpec.parse(text).extents) > 0
