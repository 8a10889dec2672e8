"""Which products run into the next iteration: of one tile program, and of the same with one thing changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from unittest.mock import patch

import numpy as np
import pytest
from compiled import CTX
from test_warp_specialised import matmul
from test_warp_specialised_forms import tile_program

from cleave.bindings import ir
from cleave.lowering import rings
from cleave.lowering.emit import kernel_modules
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.execute import execute

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


@pytest.mark.parametrize(("changes", "expected", "run_on"), CASES.values(), ids=CASES)
def test_numbers(changes: Mapping[str, str], expected: Callable[[Array, Array], Array], run_on: bool) -> None:
    """Those that do are awaited when the next ones are started, the others when there are no more."""
    with CTX, ir.Location.unknown(), patch.object(rings, "MOST_STAGES", 3):
        module = ir.Module.parse(text_of(changes))
        LowerToTtgir().apply(CTX, module)
        (kernel,) = kernel_modules(module)
        plan = plan_of(module, "matmul", {kernel.name: kernel})
    assert "warp_group_dot" in kernel.text
    pendings: Sequence[str] = re.findall(r"warp_group_dot_wait.*pendings = (\d)", kernel.text)
    assert ("1" in pendings) == run_on
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((130, 200), (200, 264)))
    for seed in range(2):
        (found,) = execute(plan, {kernel.name: kernel.text}, [x, w], choose_free(plan, {}), seed=seed)
        np.testing.assert_allclose(found, expected(x.astype(float), w.astype(float)), rtol=2e-3, atol=5e-2)
