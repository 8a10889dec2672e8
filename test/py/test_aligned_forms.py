"""Two forms of a function of dynamic sizes: for any, and for those of which rows are whole vectors."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping

import numpy as np
import pytest

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled, compile_many
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.package import package_of
from cleave.lowering.plan import plan_of
from cleave.lowering.targets import Target
from cleave.passes.graph_io import from_graph
from cleave.passes.schedule import Schedule
from cleave.passes.verify import verify
from cleave.runtime.bind_sizes import bind_form
from cleave.runtime.cuda_bind import bind
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import LaunchPlan
from cleave.runtime.layout import Layout
from cleave.schedule.alignment import aligned

CTX = context(allow_unregistered=True)


def product(dtype: str = "f16", facts: tuple[str, ...] = ()) -> Graph:
    b = GraphBuilder("product", facts=facts)
    x, w = b.input("m k", dtype), b.input("k n", dtype)
    return b.build(b.contract(x, w, over=["k"], dtype=dtype))


def lowered(graph: Graph, sizes: str = "m=256,k=256,n=256") -> ir.Module:
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module)
        Schedule(sizes=sizes, aligned=True).apply(CTX, module)
        assert not verify(module), list(map(str, verify(module)))
        LowerToTriton().apply(CTX, module)
        assert module.operation.verify()
    return module


def compiled(graph: Graph) -> tuple[LaunchPlan, Mapping[str, KernelModule]]:
    module = lowered(graph)
    with module.context:
        kernels = {kernel.name: kernel for kernel in kernel_modules(module)}
        return plan_of(module, graph.name, kernels), kernels


@pytest.fixture(scope="module")
def plan_and_kernels() -> tuple[LaunchPlan, Mapping[str, KernelModule]]:
    return compiled(product())


# --- which facts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dims", "dtype", "facts", "expected"),
    [
        ("m k", "f16", (), ["k = 8*k__8"]),
        ("m k", "f32", (), ["k = 4*k__4"]),
        ("m k", "f8E4M3FN", (), ["k = 16*k__16"]),
        ("m k=64", "f16", (), None),
        ("m k=63", "f16", (), None),
        ("m k", "f16", ("k = 16*j",), None),
        ("m k", "f16", ("k = 4*j",), ["k = 4*j", "j = 2*j__2"]),
        ("m k", "f16", ("k = 3*j",), ["k = 3*j", "j = 8*j__8"]),
        ("m k", "f16", ("k = 8*j + 1",), None),
    ],
)
def test_the_facts_are_what_the_rows_need(
    dims: str, dtype: str, facts: tuple[str, ...], expected: list[str] | None
) -> None:
    b = GraphBuilder("rows", facts=facts)
    graph = b.build(b.reduce(b.cast(b.input(dims, dtype), dtype="f32"), kind="sum", over=["k"]))
    found = aligned(graph, {"m": 63})
    assert (list(found.facts.texts) if found else None) == expected


def test_a_typical_size_that_is_not_aligned_needs_no_second_form() -> None:
    assert aligned(product(), {"k": 4096, "n": 50257}) is None
    assert aligned(product(), {"k": 4096, "n": 50256}) is not None


# --- which form a launch takes ----------------------------------------------------------------------------------------


def test_the_form_follows_the_sizes(plan_and_kernels: tuple[LaunchPlan, Mapping[str, KernelModule]]) -> None:
    plan, _ = plan_and_kernels
    assert plan.aligned is not None and plan.aligned.facts == ("k = 8*k__8", "n = 8*n__8")
    for m, k, n in itertools.product((0, 1, 7), (0, 1, 8, 63, 64), (0, 1, 8, 12, 64)):
        form, sizes = bind_form(plan, [(m, k), (k, n)])
        assert (form is plan.aligned) == (k % 8 == 0 and n % 8 == 0)
        assert (sizes.evaluate("k"), sizes.evaluate("n")) == (k, n)
    with pytest.raises(CleaveError, match="dimension 'k' is 8 in in0 and 16 in in1"):
        bind_form(plan, [(4, 8), (16, 8)])


@pytest.mark.parametrize("sizes", [(33, 64, 72), (33, 63, 72), (33, 64, 71), (1, 1, 1), (5, 0, 8), (40, 136, 8)])
def test_both_forms_compute_the_same(
    sizes: tuple[int, int, int], plan_and_kernels: tuple[LaunchPlan, Mapping[str, KernelModule]]
) -> None:
    plan, kernels = plan_and_kernels
    m, k, n = sizes
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    texts = {name: kernel.text for name, kernel in kernels.items()}
    form, _ = bind_form(plan, [x.shape, w.shape])
    (got,) = execute(plan, {launch.kernel: texts[launch.kernel] for launch in form.launches}, [x, w])
    np.testing.assert_allclose(got.astype(float), x.astype(float) @ w.astype(float), rtol=2e-3, atol=2e-2)


def test_launches_on_a_gpu_take_the_form_too(plan_and_kernels: tuple[LaunchPlan, Mapping[str, KernelModule]]) -> None:
    plan, _ = plan_and_kernels
    for k, name in ((64, "product__aligned__k0"), (63, "product__k0")):
        bound = bind(plan, [Layout.row_major((32, k)), Layout.row_major((k, 64))], {})
        assert [launch.kernel for launch in bound.launches] == [name]


def test_the_plan_keeps_both_as_json(plan_and_kernels: tuple[LaunchPlan, Mapping[str, KernelModule]]) -> None:
    plan, _ = plan_and_kernels
    assert LaunchPlan.from_json(plan.to_json()) == plan
    named = plan.with_argument_names(["x", "w"])
    assert named.aligned is not None and [argument.name for argument in named.aligned.arguments] == ["x", "w"]
    broken = json.loads(plan.to_json())
    broken["aligned"]["results"] = ["nothing"]
    with pytest.raises(CleaveError, match="returns tensor 'nothing'"):
        LaunchPlan.from_json(json.dumps(broken))


def test_a_package_of_a_module_has_both() -> None:
    package = package_of(lowered(product("f32"), "m=16,k=16,n=16"), "sm_90")
    assert set(package.variants[0].binaries["sm_90"]) == {"product__k0", "product__aligned__k0"}


def test_a_form_that_is_not_there_is_an_error() -> None:
    module = lowered(product("f32"), "m=16,k=16,n=16")
    text = str(module).replace("cleave.aligned = @product__aligned", "cleave.aligned = @elsewhere")
    with CTX:
        broken = ir.Module.parse(text)
        with pytest.raises(CleaveError, match="'elsewhere' is no aligned form of 'product'"):
            plan_of(broken, "product")


# --- what it is for ---------------------------------------------------------------------------------------------------


def test_aligned_rows_are_copied_16_bytes_at_a_time() -> None:
    """The aligned form's loads: asynchronous copies of 16 bytes, and none otherwise."""
    graph = product()
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module)
        Schedule(sizes="m=4096,k=4096,n=4096", aligned=True).apply(CTX, module)
        LowerToTriton().apply(CTX, module)
        kernels = [kernel for kernel in kernel_modules(module) if "aligned" in kernel.name]
    (result,) = compile_many([kernel.request(Target.parse("sm_90")) for kernel in kernels])
    assert isinstance(result, Compiled)
    assert result.spills == 0
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^\]]*\], \[[^\]]*\], (0x[0-9a-f]+|\d+)", result.ptx)
    assert copies or "cp.async.bulk.tensor" in result.ptx
    assert {int(size, 0) for size in copies} <= {16}
    assert "ld.global" not in result.ptx
    assert "wgmma.mma_async" in result.ptx
