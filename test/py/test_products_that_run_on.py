"""Which products run into the next iteration: of one tile program, and of the same with one thing changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from unittest.mock import patch

import numpy as np
import pytest
from compiled import CTX
from test_warp_specialised import lowered, matmul, run, swiglu
from test_warp_specialised_forms import tile_program

from cleave.bindings import ir
from cleave.lowering import rings
from cleave.lowering.consumer_loops import RUN_ON_STAGES
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.form import Form
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import LaunchPlan

Array = np.ndarray
LEFT, RIGHT = (
    'tensor<128x32xf16, #cleave.dims<["m=128", "k=32"]>>',
    'tensor<32x128xf16, #cleave.dims<["k=32", "n=128"]>>',
)
SUM = 'tensor<128x128xf32, #cleave.dims<["m=128", "n=128"]>>'


def on_sums(name: str, *operands: str) -> str:
    return f'"cleave.{name}"({", ".join(operands)}) : ({", ".join(SUM for _ in operands)}) -> {SUM}'


PRODUCT = f'"cleave.contract"(%10, %11) {{over = ["k"]}} : ({LEFT}, {RIGHT}) -> {SUM}'
ADDED = on_sums("add", "%arg4", "%12")
STARTS, END = f"iter_args(%arg4 = %7) -> ({SUM})", f"scf.yield %13 : {SUM}"
RESULT = '"cleave.cast"(%8)'


def text_of(changes: Mapping[str, str]) -> str:
    """Its loop goes through tiles of 32 along k: %10 is of x, %11 of w, %12 their product, %13 the sum."""
    text = tile_program(matmul())
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def second(before: str, carried: str) -> dict[str, str]:
    """The loop carries another tile, %arg5, which becomes ``carried``; it is the result."""
    starts = f"iter_args(%arg4 = %7, %arg5 = %7) -> ({SUM}, {SUM})"
    yielded = f"{before}\n scf.yield %13, {carried} : {SUM}, {SUM}"
    return {STARTS: starts, "%8 = scf.for": "%8:2 = scf.for", END: yielded, RESULT: '"cleave.cast"(%8#1)'}


def outside() -> dict[str, str]:
    (load,) = re.findall(r"\n *(%10 = .*)", tile_program(matmul()))
    return {load: "", "%8 = scf.for": load.replace("%arg3", "%c0") + "\n%8 = scf.for"}


def summed(step: Callable[[Array, Array, Array], Array], x: Array, w: Array) -> Array:
    """``step``: of the result up to here, and of the product's sum before and after an iteration."""
    result, total = np.zeros((2, len(x), w.shape[1]))
    for first in range(0, w.shape[0], 32):
        after = total + x[:, first : first + 32] @ w[first : first + 32]
        result, total = step(result, total, after), after
    return result


Case = tuple[Mapping[str, str], Callable[[Array, Array], Array], bool]
HALF = f'%half = "cleave.constant"() {{value = 0.5 : f32}} : () -> {SUM}\n%less = {on_sums("mul", "%arg4", "%half")}'
MAGNITUDE = f"%s = {PRODUCT}\n%a = {on_sums('abs', '%s')}\n%t = {on_sums('add', '%arg5', '%a')}"
TRUTH = SUM.replace("f32", "i1")
CHOSEN = f"""%never = "cleave.cmp"(%7, %7) {{predicate = "lt"}} : ({SUM}, {SUM}) -> {TRUTH}
%kept = "cleave.select"(%never, %7, %arg4) : ({TRUTH}, {SUM}, {SUM}) -> {SUM}"""
READ = f"%t = {on_sums('add', '%arg5', '%arg4')}"
CASES: dict[str, Case] = {
    "as it stands": ({}, lambda x, w: x @ w, True),
    "the left operand stays in registers": (outside(), lambda x, w: x[:, :32] @ _folded(w), True),
    "the left operand is computed": (
        {"%12 =": f'%x = "cleave.abs"(%10) : ({LEFT}) -> {LEFT}\n %12 =', "(%10, %11)": "(%x, %11)"},
        lambda x, w: np.abs(x) @ w,
        False,
    ),
    "the sum is scaled": (
        {ADDED: ADDED.replace("%arg4", "%less"), "%12 =": f"{HALF}\n %12 ="},
        lambda x, w: summed(lambda result, before, after: result / 2 + after - before, x, w),
        False,
    ),
    "the sum is chosen": (
        {ADDED: ADDED.replace("%arg4", "%kept"), "%12 =": f"{CHOSEN}\n %12 ="},
        lambda x, w: x @ w,
        False,
    ),
    "two products one after the other": (
        {ADDED: f"{ADDED}\n%y = {PRODUCT}\n%z = {on_sums('add', '%13', '%y')}", END: END.replace("%13", "%z")},
        lambda x, w: 2 * x @ w,
        True,
    ),
    "the sum is read, too": (
        {**second("", "%t"), "%12 =": f"{READ}\n %12 ="},
        lambda x, w: summed(lambda result, before, after: result + before, x, w),
        False,
    ),
    "the sum is read behind the product": (
        second(READ, "%t"),
        lambda x, w: summed(lambda result, before, after: result + before, x, w),
        False,
    ),
    "the sum is carried twice": (second("", "%13"), lambda x, w: x @ w, False),
    "another product is needed": (
        {**second("", "%t"), "%12 =": f"{MAGNITUDE}\n %12 ="},
        lambda x, w: summed(lambda result, before, after: result + np.abs(after - before), x, w),
        False,
    ),
}


def _folded(w: Array) -> Array:
    return np.pad(w, ((0, -len(w) % 32), (0, 0))).reshape(-1, 32, w.shape[1]).sum(axis=0)


def lowered_with(changes: Mapping[str, str]) -> tuple[LaunchPlan, KernelModule]:
    with CTX, ir.Location.unknown(), patch.object(rings, "MOST_STAGES", RUN_ON_STAGES):
        module = ir.Module.parse(text_of(changes))
        LowerToTtgir().apply(CTX, module)
        (kernel,) = kernel_modules(module)
        return plan_of(module, "matmul", {kernel.name: kernel}), kernel


def numbers(changes: Mapping[str, str], rows: int, seed: int) -> tuple[Array, Array, Array]:
    """The operands, and what the kernel makes of them."""
    plan, kernel = lowered_with(changes)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((rows, 200), (200, 264)))
    (found,) = execute(plan, {kernel.name: kernel.text}, [x, w], choose_free(plan, {}), seed=seed)
    return x.astype(float), w.astype(float), found


@pytest.mark.parametrize(("changes", "expected", "run_on"), CASES.values(), ids=CASES)
def test_numbers(changes: Mapping[str, str], expected: Callable[[Array, Array], Array], run_on: bool) -> None:
    """Those that do are awaited when the next ones are started, the others when there are no more."""
    _, kernel = lowered_with(changes)
    assert "warp_group_dot" in kernel.text
    pendings: Sequence[str] = re.findall(r"warp_group_dot_wait.*pendings = ([1-9])", kernel.text)
    assert bool(pendings) == run_on
    for seed in range(2):
        x, w, found = numbers(changes, 130, seed)
        np.testing.assert_allclose(found, expected(x, w), rtol=2e-3, atol=5e-2)


def test_no_iterations_for_some_tiles() -> None:
    """Behind which no buffer is released; one block goes through such a tile and through one with iterations."""
    x, w, found = numbers({"to %c200 step": "to %5 step"}, 300, 0)
    assert not found[:128].any()
    np.testing.assert_allclose(found[128:256], x[128:256, :128] @ w[:128], rtol=2e-3, atol=5e-2)
    np.testing.assert_allclose(found[256:], x[256:] @ w, rtol=2e-3, atol=5e-2)


def test_a_buffer_of_two_products_is_released_once() -> None:
    form = Form(side_by_side=False)
    _, (kernel,), _ = lowered(swiglu(), stages=RUN_ON_STAGES, form=form)
    assert "pendings = 2" in kernel.text
    assert run(swiglu(), {kernel.name: kernel.text}, {"m": 130}, 0, form=form) < 1e-2
