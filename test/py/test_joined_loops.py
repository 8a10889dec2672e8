"""Which products of loops in TTIR are joined: two that can be, and the same with one thing changed that forbids it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from cleave.bindings import ir
from cleave.lowering.descriptors import LOAD
from cleave.lowering.side_by_side import BESIDE, HALVES, join_products
from cleave.passes.functions import ops_inside

CTX = ir.Context()
CTX.allow_unregistered_dialects = True  # one without our dialect, which does not have the ops of joined products
Changes = Mapping[str, str]
LOOP = f"""
"tt.func"() ({{
^bb0(%x: XD, %y: XD, %w: WD, %v: WD, %n: i32, %tile: W, %one: S, %wide: T):
  %low = "arith.constant"() <{{value = 0 : i32}}> : () -> i32
  %step = "arith.constant"() <{{value = 32 : i32}}> : () -> i32
  %zero = "arith.constant"() <{{value = dense<0.0> : S}}> : () -> S
  %s, %t = "{HALVES}"(%wide) : (T) -> (S, S)
  %outside = "tt.descriptor_load"(%w, %low, %low) : (WD, i32, i32) -> W
  %sums:2 = "scf.for"(%low, %n, %step, %zero, %zero) ({{
  ^bb0(%i: i32, %p: S, %q: S):
    %a = "tt.descriptor_load"(%x, %i, %low) : (XD, i32, i32) -> X
    %b = "tt.descriptor_load"(%y, %i, %low) : (XD, i32, i32) -> X
    %r = "tt.descriptor_load"(%w, %i, %low) : (WD, i32, i32) -> W
    %first = "tt.dot"(%a, %r, %p) : (X, W, S) -> S
    %j = "arith.addi"(%i, %low) : (i32, i32) -> i32
    %u = "tt.descriptor_load"(%v, %j, %low) : (WD, i32, i32) -> W
    %second = "tt.dot"(%a, %u, %q) : (X, W, S) -> S
    "scf.yield"(%first, %second) : (S, S) -> ()
  }}) {{tt.num_stages = 2 : i32}} : (i32, i32, i32, S, S) -> (S, S)
  "result"(%sums#0, %sums#1) : (S, S) -> ()
  "tt.return"() : () -> ()
}}) : () -> ()
"""
_LAST_TURNED = {
    "%v: WD": "%v: VD",
    "(%v, %j, %low) : (WD, i32, i32) -> W": "(%v, %low, %j) : (VD, i32, i32) -> V",
    '%second = "tt.dot"(%a, %u, %q)': '%h = "tt.trans"(%u) : (V) -> W\n    %second = "tt.dot"(%a, %h, %q)',
}
TURNED = {
    **_LAST_TURNED,
    "%w: WD": "%w: VD",
    "(%w, %low, %low) : (WD, i32, i32) -> W": "(%w, %low, %low) : (VD, i32, i32) -> V",
    "(%w, %i, %low) : (WD, i32, i32) -> W": "(%w, %low, %i) : (VD, i32, i32) -> V",
    '%first = "tt.dot"(%a, %r, %p)': '%g = "tt.trans"(%r) : (V) -> W\n    %first = "tt.dot"(%a, %g, %p)',
}
"""Right operands whose rows lie in memory as those of the left one do."""


def joined(changes: Changes, columns: int = 64, k: int = 32, own: str = "") -> str:
    """The function with its products joined; ``own``: what this descriptor loads is of a consumer's part."""
    text = LOOP
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    types = {"X": f"tensor<64x{k}xf16>", "W": f"tensor<{k}x{columns}xf16>", "V": f"tensor<{columns}x{k}xf16>"}
    types |= {f"{name}D": f"!tt.tensordesc<{type_}>" for name, type_ in types.items()}
    types |= {"S": f"tensor<64x{columns}xf32>", "T": f"tensor<64x{2 * columns}xf32>", "E": f"tensor<{k}x128xf16>"}
    types |= {"U": "tensor<64x128xf32>", "ED": f"!tt.tensordesc<{types['E']}>"}
    with CTX, ir.Location.unknown():
        module = ir.Module.parse(re.sub(r"\b(?:[XWVE]D?|[STU])\b", lambda match: types[match[0]], text))
        function = module.body.operations[0].operation
        descriptors = dict(zip("xywv", function.regions[0].blocks[0].arguments, strict=False))
        loads = [op for op in ops_inside(function) if op.name == LOAD]
        parted = [load.results[0] for load in loads if own and load.operands[0] == descriptors[own]]
        found = join_products(function, parted)
        assert module.operation.verify()
        assert found == [op for op in ops_inside(function) if op.name in (LOAD, BESIDE)]
        return module.operation.get_asm(print_generic_op_form=True)


def counts(text: str) -> tuple[int, ...]:
    """Of products, of loads of two tiles side by side, of loads of one, of tiles taken apart."""
    return tuple(text.count(f'"{name}"') for name in ("tt.dot", BESIDE, LOAD, HALVES))


HALVED = {"%step, %zero, %zero)": "%step, %s, %t)"}
JOINED: dict[str, tuple[Changes, int, int]] = {
    "as they stand": ({}, 64, 32),
    "all columns of an instruction": ({}, 128, 32),
    "transposed": (TURNED, 64, 32),
    "transposed rows of 32 bytes": (TURNED, 64, 16),
    "transposed rows of 128 bytes": (TURNED, 64, 64),
    "halves of one tile": (HALVED, 64, 32),
}


@pytest.mark.parametrize(("changes", "columns", "k"), JOINED.values(), ids=JOINED)
def test_joined(changes: Changes, columns: int, k: int) -> None:
    """One product, in a loop that carries one sum and has the hints it had; each part comes out in its place."""
    text = joined(changes, columns, k)
    turned = changes is TURNED
    assert counts(text) == (1, 1, 3, 1 if changes is HALVED else 2)  # left operands, and what is loaded outside
    assert text.count('"tt.trans"') == turned
    wide, narrow = f"tensor<64x{2 * columns}xf32>", f"tensor<64x{columns}xf32>"
    assert re.search(rf'"scf.for"\([^)]*\) \(\{{\n *\^bb0\(%\w+: i32, %\w+: {wide}\)', text)
    assert "}) {tt.num_stages = 2 : i32}" in text
    sums = re.findall(rf'(%\w+):2 = "{HALVES}"\(%\w+\) : \({wide}\)', text)[-1]
    assert f'"result"({sums}#0, {sums}#1) : ({narrow}, {narrow})' in text
    tile = f"{2 * columns}x{k}" if turned else f"{k}x{2 * columns}"
    assert re.search(rf'"{BESIDE}".*axis = {int(not turned)} : i32, first = 3 : i32.* -> tensor<{tile}xf16>', text)


def test_where_the_sum_starts() -> None:
    """At zeros, or at the tile that its halves were of; these stay where something else needs them."""
    other = {**HALVED, '  "result"': '  "other"(%t) : (S) -> ()\n  "result"'}
    starts = {joined(changes): count for changes, count in (({}, 2), (HALVED, 1), (other, 2))}
    for number, (text, count) in enumerate(starts.items()):
        (start,) = re.findall(r'"scf.for"\(%\w+, %\w+, %\w+, (%\w+)\)', text)
        (argument,) = re.findall(r"(%\w+): tensor<64x128xf32>\):\n *%\w+ = \"arith", text)
        zeros = f'{start} = "arith.constant"() <{{value = dense<0.000000e+00> : tensor<64x128xf32>}}>'
        assert (zeros in text, start == argument) == (number == 0, number > 0)
        assert text.count(f'"{HALVES}"') == count


SECOND = '%second = "tt.dot"(%a, %u, %q)'
APART: dict[str, Changes] = {
    "different left operands": {SECOND: '%second = "tt.dot"(%b, %u, %q)'},
    "different columns": {
        "%v: WD": "%v: ED",
        "(%v, %j, %low) : (WD, i32, i32) -> W": "(%v, %j, %low) : (ED, i32, i32) -> E",
        f"{SECOND} : (X, W, S) -> S": f"{SECOND} : (X, E, U) -> U",
        "%q: S": "%q: U",
        "%sums:2": '%none = "arith.constant"() <{value = dense<0.0> : U}> : () -> U\n  %sums:2',
        "%step, %zero, %zero)": "%step, %zero, %none)",
        "(%first, %second) : (S, S)": "(%first, %second) : (S, U)",
        "(i32, i32, i32, S, S) -> (S, S)": "(i32, i32, i32, S, U) -> (S, U)",
        "(%sums#0, %sums#1) : (S, S)": "(%sums#0, %sums#1) : (S, U)",
    },
    "one is transposed": _LAST_TURNED,
    "one does not add up": {SECOND: '%second = "tt.dot"(%a, %u, %one)'},
    "a sum that is read": {SECOND: f'"other"(%q) : (S) -> ()\n    {SECOND}'},
    "a result that is read": {'"scf.yield"': '"other"(%second) : (S) -> ()\n    "scf.yield"'},
    "a result that is not what is carried": {
        '"scf.yield"(%first,': '%z = "other"(%first) : (S) -> S\n    "scf.yield"(%z,'
    },
    "sums that change places": {"(%first, %second)": "(%second, %first)"},
    "a right operand that is an argument": {SECOND: '%second = "tt.dot"(%a, %tile, %q)'},
    "a right operand that is computed": {
        SECOND: '%c = "other"(%u) : (W) -> W\n    %second = "tt.dot"(%a, %c, %q)',
    },
    "a right operand of all iterations": {SECOND: '%second = "tt.dot"(%a, %outside, %q)'},
    "a right operand that is read": {SECOND: f'"other"(%u) : (W) -> ()\n    {SECOND}'},
    "a transposed one that is read": {**TURNED, "%h =": '"other"(%u) : (V) -> ()\n    %h ='},
    "a transposed one that is read as such": {**TURNED, '"scf.yield"': '"other"(%h) : (W) -> ()\n    "scf.yield"'},
    "one starts at zero": {"%step, %zero, %zero)": "%step, %zero, %one)"},
    "both start elsewhere": {"%step, %zero, %zero)": "%step, %one, %one)"},
    "halves that changed places": {"%step, %zero, %zero)": "%step, %t, %s)"},
    "one half": {"%step, %zero, %zero)": "%step, %s, %s)"},
    "results of another loop": {f'%s, %t = "{HALVES}"': '%s, %t = "other"', **HALVED},
}


@pytest.mark.parametrize("changes", APART.values(), ids=APART)
def test_apart(changes: Changes) -> None:
    assert counts(joined(changes))[:2] == (2, 0)


@pytest.mark.parametrize("columns", [16, 96, 256])
def test_columns_that_no_copies_or_instructions_have(columns: int) -> None:
    assert counts(joined({}, columns))[:2] == (2, 0)


@pytest.mark.parametrize("k", [8, 48, 128])
def test_transposed_rows_that_no_copies_have(k: int) -> None:
    assert counts(joined(TURNED, 64, k))[:2] == (2, 0)


@pytest.mark.parametrize("own", ["w", "v"])
def test_tiles_of_which_each_consumer_has_a_part(own: str) -> None:
    assert counts(joined({}, own=own))[:2] == (2, 0)
