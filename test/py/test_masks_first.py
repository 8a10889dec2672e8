"""Two loops of TTIR, the second one of the tile with masks: when they are exchanged, which leaves all sums the same."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from cleave.bindings import ir
from cleave.lowering.descriptors import LOAD
from cleave.lowering.masks_first import put_masks_first
from cleave.lowering.register_layouts import resident_values
from cleave.passes.functions import ops_inside
from cleave.runtime.ttir_interpreter import TensorDescriptor, run_kernel
from cleave.runtime.ttir_text import parse_ttir

CTX = ir.Context()
CTX.allow_unregistered_dialects = True
Changes = Mapping[str, str]
TYPES = {"H": "tensor<16x16xf16>", "F": "tensor<16x16xf32>", "B": "tensor<16x16xbf16>", "L": "tensor<16xi32>"}
TYPES |= {"D": f"!tt.tensordesc<{TYPES['H']}>", "G": f"!tt.tensordesc<{TYPES['F']}>"}


def loop(name: str, low: str, stop: str, starts: str, hint: str = "") -> str:
    """2^(q·k), added up over its tiles, and its products with v, which are late; masked if there is a hint."""
    mask = """
    %place = "tt.splat"(%i) : (i32) -> L
    %places = "arith.addi"(%range, %place) : (L, L) -> L
    %limit = "tt.splat"(%n) : (i32) -> L
    %inside = "arith.cmpi"(%places, %limit) <{predicate = 2 : i64}> : (L, L) -> tensor<16xi1>
    %row = "tt.expand_dims"(%inside) {axis = 0 : i32} : (tensor<16xi1>) -> tensor<1x16xi1>
    %mask = "tt.broadcast"(%row) : (tensor<1x16xi1>) -> tensor<16x16xi1>
    %x = "arith.select"(%mask, %raw, %none) : (tensor<16x16xi1>, F, F) -> F"""
    text = f"""
  %{name}:2 = "scf.for"({low}, {stop}, %step, {starts}) ({{
  ^bb0(%i: i32, %p: F, %e: F):
    %k = "tt.descriptor_load"(%kd, %i, %zero) : (D, i32, i32) -> H
    %kt = "tt.trans"(%k) {{order = array<i32: 1, 0>}} : (H) -> H
    %s = "tt.dot"(%q, %kt, %none) : (H, H, F) -> F
    %raw = "math.exp2"(%s) : (F) -> F{mask if hint else ""}
    %sum = "arith.addf"(%e, %x) : (F, F) -> F
    %h = "arith.truncf"(%x) : (F) -> H
    %v = "tt.descriptor_load"(%vd, %i, %zero) : (D, i32, i32) -> H
    %late = "tt.dot"(%h, %v, %p) : (H, H, F) -> F
    "scf.yield"(%late, %sum) : (F, F) -> ()
  }}) {{{hint}}} : (i32, i32, i32, F, F) -> (F, F)"""
    local = r"%(i|p|e|k|kt|s|raw|x|sum|h|v|late|place|places|limit|inside|row|mask)\b"
    return re.sub(local, rf"%{name}\1", text if hint else text.replace("%x", "%raw"))


LOOPS = f"""
"builtin.module"() ({{
"tt.func"() <{{function_type = (D, D, D, G, G, i32) -> (), sym_name = "sums"}}> ({{
^bb0(%qd: D, %kd: D, %vd: D, %od: G, %rd: G, %n: i32):
  %zero = "arith.constant"() <{{value = 0 : i32}}> : () -> i32
  %step = "arith.constant"() <{{value = 16 : i32}}> : () -> i32
  %none = "arith.constant"() <{{value = dense<0.0> : F}}> : () -> F
  %half = "arith.constant"() <{{value = dense<0.5> : F}}> : () -> F
  %small = "arith.truncf"(%half) : (F) -> H
  %range = "tt.make_range"() {{end = 16 : i32, start = 0 : i32}} : () -> L
  %q = "tt.descriptor_load"(%qd, %zero, %zero) : (D, i32, i32) -> H
  %tiles = "arith.divui"(%n, %step) : (i32, i32) -> i32
  %stop = "arith.muli"(%tiles, %step) : (i32, i32) -> i32{loop("W", "%zero", "%stop", "%none, %none")}
{loop("M", "%stop", "%n", "%W#0, %W#1", "tt.num_stages = 2 : i32")}
  "tt.descriptor_store"(%od, %M#0, %zero, %zero) : (G, F, i32, i32) -> ()
  "tt.descriptor_store"(%rd, %M#1, %zero, %zero) : (G, F, i32, i32) -> ()
  "tt.return"() : () -> ()
}}) : () -> ()
}}) : () -> ()
"""


def put_first(changes: Changes) -> tuple[str, str, list[list[tuple[str, str]]]]:
    """The function before and after, and for each pair of loops what passes from the one into the other."""
    text = LOOPS
    for old, new in changes.items():
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    with CTX, ir.Location.unknown():
        module = ir.Module.parse(re.sub(r"\b[HFBLDG]\b", lambda match: TYPES[match[0]], text))
        before = module.operation.get_asm(print_generic_op_form=True)
        ops = ops_inside(module.operation)
        loops = [op for op in ops if op.name == "scf.for"]
        found = put_masks_first(loops, resident_values([op for op in ops if op.name == LOAD]))
        assert module.operation.verify()
        passed = [sorted((_made(a), _made(b)) for a, b in each.counterparts.items()) for each in found.values()]
        return before, module.operation.get_asm(print_generic_op_form=True), passed


def _made(value: ir.Value) -> str:
    """What makes a value: an op, or a loop as what it carries there."""
    owner = value.owner
    return str(list(owner.arguments).index(value)) if isinstance(owner, ir.Block) else owner.name


def sums(text: str, n: int, until: int | None = None) -> list[np.ndarray]:
    """The two sums, and what they are expected to be; ``until``: of so many positions."""
    rng = np.random.default_rng(n)
    q, k, v = ((rng.standard_normal((rows, 16)) / 4).astype(np.float16) for rows in (16, n, n))
    results = [np.full((16, 16), np.nan, np.float32) for _ in range(2)]
    arrays = [np.resize(x, (max(len(x), 1), 16)) for x in (q, k, v)] + results
    shapes = [(16, 16), (n, 16), (n, 16), (16, 16), (16, 16)]
    descriptors = [TensorDescriptor(x, (16, 16), shape=s, strides=(16, 1)) for x, s in zip(arrays, shapes, strict=True)]
    run_kernel(parse_ttir(text), (1,), [*descriptors, n])
    weights = np.exp2(q.astype(float) @ k[:until].astype(float).T)
    padded = np.pad(weights, ((0, 0), (0, -weights.shape[1] % 16)))
    expected = weights @ v[:until].astype(float), padded.reshape(16, -1, 16).sum(axis=1)
    return [*results, *expected]


SHIFTED = '%{0}more = "arith.{1}"(%{0}late, %half) : (F, F) -> F\n    "scf.yield"(%{0}more, %{0}sum)'
YIELD = '"scf.yield"(%{0}late, %{0}sum)'
LATE = '"tt.dot"(%{0}h, %{0}v, %{0}p) : (H, H, F) -> F'
TWICE = LATE + '\n    %{0}last = "tt.dot"({1}, %{0}v, %{0}late) : (H, H, F) -> F\n    "scf.yield"(%{0}last, %{0}sum)'
ANOTHER = '%{0}g = "arith.negf"(%{0}h) : (H) -> H\n    %{0}v ='


def both(old: str, whole: str, rest: str) -> Changes:
    """``old`` in the first loop and in the second one."""
    return {old.format("W"): whole.format("W"), old.format("M"): rest.format("M")}


def twice(whole: str, rest: str) -> Changes:
    """Two late products each, of these left operands."""
    rows = f"{LATE}\n    {YIELD} : (F, F)"
    ends = both(rows, *(TWICE.replace("{1}", left) + " : (F, F)" for left in (whole, rest)))
    return {**ends, **both("%{0}v =", ANOTHER, ANOTHER)}


def shifted(whole: str, rest: str) -> Changes:
    return both(YIELD, *(SHIFTED.replace("{1}", op) for op in (whole, rest)))


PASSED = ("1", "arith.truncf", LOAD)
"""The sum of late products, and the operands of one."""
EXCHANGED: dict[str, tuple[Changes, tuple[str, ...]]] = {
    "as they stand": ({}, PASSED),
    "more behind the late product": (shifted("addf", "addf"), PASSED),
    "two late products": (twice("%{0}g", "%{0}g"), ("1", "arith.negf", *PASSED[1:])),
    "twice the same operands": (twice("%{0}h", "%{0}h"), PASSED),
}


@pytest.mark.parametrize(("changes", "passed"), EXCHANGED.values(), ids=EXCHANGED)
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 32, 40])
def test_exchanged(changes: Changes, passed: tuple[str, ...], n: int) -> None:
    """With masks comes one iteration, from whose values those of the other loop take over."""
    before, after, found = put_first(changes)
    assert found == [[(name, name) for name in sorted(passed)]] and before.index("num_stages") > before.rindex(
        '"scf.for"'
    )
    assert after.index("num_stages") < after.rindex('"scf.for"')
    (*old, _, _), (*new, late, row) = sums(before, n), sums(after, n)
    np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)
    if not changes:
        np.testing.assert_allclose(new, [late, row], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 32, 40])
def test_one_iteration_has_masks(n: int) -> None:
    """The last one, full or not; here it adds 1/2 in place of its numbers."""
    _, after, _ = put_first({'"arith.addf"(%Me, %Mx)': '"arith.addf"(%Me, %half)'})
    _, row, _, _ = sums(after, n)
    _, _, _, whole = sums(after, n, until=(n - 1) // 16 * 16 if n else 0)
    np.testing.assert_allclose(row, whole + 0.5 * (n > 0), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("n", [16, 17, 40])
def test_whole_tiles_that_do_not_begin_at_the_first(n: int) -> None:
    """Of which there may be none, and no rest either."""
    changes = {'%W:2 = "scf.for"(%zero,': '%W:2 = "scf.for"(%step,'}
    before, after, found = put_first(changes)
    assert len(found) == 1
    np.testing.assert_allclose(sums(after, n)[:2], sums(before, n)[:2], rtol=1e-5, atol=1e-5)


BRANCH = {
    "  %M:2 =": '  %more = "arith.cmpi"(%n, %stop) <{predicate = 4 : i64}> : (i32, i32) -> i1\n'
    '  "scf.if"(%more) ({\n  %M:2 =',
    '  "tt.return"': '  "scf.yield"() : () -> ()\n  }, {}) : (i1) -> ()\n  "tt.return"',
}
"""The rest in a branch of its own."""
KEPT: dict[str, Changes] = {
    "several iterations with masks": {"tt.num_stages = 2 : i32": ""},
    "a sum that something else needs, too": {'  "tt.return"': '  "other"(%W#0) : (F) -> ()\n  "tt.return"'},
    "sums that change places": {"%W#0, %W#1)": "%W#1, %W#0)"},
    "only one of the sums": {"%W#0, %W#1)": "%W#0, %none)"},
    "a start that is none of its sums": {"%W#0, %W#1)": "%none, %W#1)"},
    "a start that is an argument": {
        "%W#0, %W#1)": "%given, %W#1)",
        "%n: i32):": "%n: i32, %given: F):",
    },
    "another beginning": {'%M:2 = "scf.for"(%stop,': '%M:2 = "scf.for"(%zero,'},
    "another step": {'"scf.for"(%stop, %n, %step,': '"scf.for"(%stop, %n, %tiles,'},
    "a branch": BRANCH,
    "whole tiles that go on with others": {
        "  %W:2 =": loop("P", "%zero", "%step", "%none, %none") + "\n  %W:2 =",
        '%W:2 = "scf.for"(%zero, %stop, %step, %none, %none)': '%W:2 = "scf.for"(%step, %stop, %step, %P#0, %P#1)',
    },
    "nothing late in the first": {LATE.format("W"): '"arith.addf"(%Wraw, %Wp) : (F, F) -> F'},
    "nothing late in the second": {LATE.format("M"): '"arith.addf"(%Mx, %Mp) : (F, F) -> F'},
    "another sum is late": {
        '"arith.addf"(%Me, %Mx)': '"arith.addf"(%Mp, %Mx)',
        LATE.format("M"): LATE.format("M").replace("%Mp", "%Me"),
        '"scf.yield"(%Mlate, %Msum)': '"scf.yield"(%Msum, %Mlate)',
    },
    "other ops behind": shifted("addf", "subf"),
    "another type": {
        '%Mh = "arith.truncf"(%Mx) : (F) -> H': '%Mh = "arith.truncf"(%Mx) : (F) -> B',
        LATE.format("M"): LATE.format("M").replace("(H,", "(B,"),
    },
    "computed once for all": both(
        YIELD, *(SHIFTED.replace("{1}", "addf").replace("%half", x) for x in ("%{0}s", "%half"))
    ),
    "not loaded": {LATE.format("M"): LATE.format("M").replace("%Mv", "%small")},
    "one operand for two": twice("%{0}g", "%{0}h"),
    "two operands for one": twice("%{0}h", "%{0}g"),
}


@pytest.mark.parametrize("changes", KEPT.values(), ids=KEPT)
def test_kept(changes: Changes) -> None:
    before, after, found = put_first(changes)
    assert not found and before == after


def test_a_loop_that_carries_nothing() -> None:
    text = """
  "scf.for"(%stop, %n, %step) ({
  ^bb0(%j: i32):
    "scf.yield"() : () -> ()
  }) {tt.num_stages = 2 : i32} : (i32, i32, i32) -> ()
  "tt.return"()"""
    assert put_first({'  "tt.return"()': text})[2] == put_first({})[2]
