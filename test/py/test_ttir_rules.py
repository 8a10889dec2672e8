"""The interpreter's operations on tiles, on memory and with regions, and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ttir_one_op import function, load, pointers, signed, store, tile

from cleave.errors import CleaveError
from cleave.runtime.ttir_control import CONTROL_RULES
from cleave.runtime.ttir_interpreter import Buffer, run_kernel
from cleave.runtime.ttir_memory_rules import MACHINE_RULES
from cleave.runtime.ttir_numbers import DTYPES
from cleave.runtime.ttir_rules import PURE_RULES
from cleave.runtime.ttir_text import parse_ttir

# Tiles: kernels written out


@dataclass
class Case:
    """A kernel over pointers: its body, the buffers, and what they hold afterwards (None: not looked at)."""

    body: str
    buffers: list[tuple[str, Any]]
    expected: list[Any]
    rest: str = ""
    grid: tuple[int, ...] = (1,)


def run_case(case: Case) -> list[np.ndarray]:
    arrays = [np.array(values, DTYPES[element]) for element, values in case.buffers]
    text = function(case.body, [f"!tt.ptr<{element}>" for element, _ in case.buffers], case.rest)
    run_kernel(parse_ttir(text), case.grid, [Buffer(array) for array in arrays])
    return arrays


RANGE = '%r = "tt.make_range"() <{start = 0 : i32, end = 4 : i32}> : () -> tensor<4xi32>'
INTO = RANGE + "\n" + load(0, 4, "i32") + "\n"


def out(value: str, n: int = 4, element: str = "i32", argument: int = 1) -> str:
    """Store a 1-D tile, with its own range."""
    place = store(argument, n, element, value).replace("%r)", f"%q{argument})")
    return f"""
    %q{argument} = "tt.make_range"() <{{start = 0 : i32, end = {n} : i32}}> : () -> {tile(n, "i32")}{place}"""


CASES: dict[str, Case] = {
    "constants": Case(
        """
    %c = "arith.constant"() <{value = dense<[5, -1, 2147483647, 0]> : tensor<4xi32>}> : () -> tensor<4xi32>
    %d = "arith.constant"() <{value = dense<"0x01000000FFFFFFFF0200000003000000"> : tensor<4xi32>}>
        : () -> tensor<4xi32>
    %e = "arith.constant"() <{value = dense<0x7F800000> : tensor<4xf32>}> : () -> tensor<4xf32>
    %f = "arith.constant"() <{value = dense<"0x0D"> : tensor<4xi1>}> : () -> tensor<4xi1>"""
        + out("%c", argument=0) + out("%d", argument=1) + out("%e", 4, "f32", 2) + out("%f", 4, "i1", 3),
        [("i32", [9] * 4), ("i32", [9] * 4), ("f32", [9] * 4), ("i1", [False] * 4)],
        [[5, -1, 2147483647, 0], [1, -1, 2, 3], [math.inf] * 4, [True, False, True, True]],
    ),
    "expand and broadcast": Case(
        INTO + """
    %e = "tt.expand_dims"(%x0) <{axis = 1 : i32}> : (tensor<4xi32>) -> tensor<4x1xi32>
    %b = "tt.broadcast"(%e) : (tensor<4x1xi32>) -> tensor<4x2xi32>
    %y = "tt.reshape"(%b) : (tensor<4x2xi32>) -> tensor<8xi32>""" + out("%y", 8),
        [("i32", [1, 2, 3, 4]), ("i32", [0] * 8)],
        [None, [1, 1, 2, 2, 3, 3, 4, 4]],
    ),
    "transpose": Case(
        INTO + """
    %e = "tt.reshape"(%x0) : (tensor<4xi32>) -> tensor<2x2xi32>
    %t = "tt.trans"(%e) <{order = array<i32: 1, 0>}> : (tensor<2x2xi32>) -> tensor<2x2xi32>
    %l = "ttg.convert_layout"(%t) : (tensor<2x2xi32>) -> tensor<2x2xi32>
    %y = "tt.reshape"(%l) : (tensor<2x2xi32>) -> tensor<4xi32>""" + out("%y"),
        [("i32", [1, 2, 3, 4]), ("i32", [0] * 4)],
        [None, [1, 3, 2, 4]],
    ),
    "join, split, cat": Case(
        INTO + """
    %n = "arith.addi"(%x0, %x0) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %j = "tt.join"(%x0, %n) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4x2xi32>
    %s:2 = "tt.split"(%j) : (tensor<4x2xi32>) -> (tensor<4xi32>, tensor<4xi32>)
    %y = "tt.cat"(%s#1, %s#0) : (tensor<4xi32>, tensor<4xi32>) -> tensor<8xi32>""" + out("%y", 8),
        [("i32", [1, 2, 3, 4]), ("i32", [0] * 8)],
        [None, [2, 4, 6, 8, 1, 2, 3, 4]],
    ),
    "unsplat": Case(
        """
    %c = "arith.constant"() <{value = dense<7> : tensor<1xi32>}> : () -> tensor<1xi32>
    %u = "tt.unsplat"(%c) : (tensor<1xi32>) -> i32
    "tt.store"(%a0, %u) : (!tt.ptr<i32>, i32) -> ()""",
        [("i32", [0])],
        [[7]],
    ),
    "gather along an axis": Case(
        INTO + load(1, 4, "i32") + """
    %e = "tt.reshape"(%x0) : (tensor<4xi32>) -> tensor<2x2xi32>
    %i = "tt.reshape"(%x1) : (tensor<4xi32>) -> tensor<2x2xi32>
    %g = "tt.gather"(%e, %i) <{axis = 1 : i32}> : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %y = "tt.reshape"(%g) : (tensor<2x2xi32>) -> tensor<4xi32>""" + out("%y", argument=2),
        [("i32", [1, 2, 3, 4]), ("i32", [1, 0, 1, 1]), ("i32", [0] * 4)],
        [None, None, [2, 1, 4, 4]],
    ),
    "histogram": Case(
        INTO + '%y = "tt.histogram"(%x0) : (tensor<4xi32>) -> tensor<4xi32>' + out("%y"),
        [("i32", [1, 3, 1, 9]), ("i32", [0] * 4)],
        [None, [0, 2, 0, 1]],
    ),
    "pointers as integers": Case(
        """
    %i = "tt.ptr_to_int"(%a0) : (!tt.ptr<i32>) -> i64
    %four = "arith.constant"() <{value = 4 : i64}> : () -> i64
    %j = "arith.addi"(%i, %four) : (i64, i64) -> i64
    %p = "tt.int_to_ptr"(%j) : (i64) -> !tt.ptr<i32>
    %h = "tt.bitcast"(%p) : (!tt.ptr<i32>) -> !tt.ptr<i16>
    %c = "arith.constant"() <{value = -1 : i16}> : () -> i16
    "tt.store"(%h, %c) : (!tt.ptr<i16>, i16) -> ()""",
        [("i32", [0, 0, 0])],
        [[0, 65535, 0]],
    ),
    "dot of bytes is exact": Case(
        INTO + """
    %c = "arith.constant"() <{value = dense<-128> : tensor<16x32xi8>}> : () -> tensor<16x32xi8>
    %d = "arith.constant"() <{value = dense<127> : tensor<32x16xi8>}> : () -> tensor<32x16xi8>
    %z = "arith.constant"() <{value = dense<3> : tensor<16x16xi32>}> : () -> tensor<16x16xi32>
    %m = "tt.dot"(%c, %d, %z) : (tensor<16x32xi8>, tensor<32x16xi8>, tensor<16x16xi32>) -> tensor<16x16xi32>
    %y = "tt.reshape"(%m) : (tensor<16x16xi32>) -> tensor<256xi32>""" + out("%y", 256),
        [("i32", [0] * 4), ("i32", [0] * 256)],
        [None, [-128 * 127 * 32 + 3] * 256],
    ),
    "undefined values are poison": Case(
        """
    %u = "ub.poison"() <{value = #ub.poison}> : () -> tensor<4xf32>
    %v = "ub.poison"() <{value = #ub.poison}> : () -> i32
    "tt.store"(%a1, %v) : (!tt.ptr<i32>, i32) -> ()""" + out("%u", 4, "f32", 0),
        [("f32", [0] * 4), ("i32", [0])],
        [[math.nan] * 4, [signed(0xA5A5A5A5, "i32")]],
    ),
    "hints do nothing": Case(
        """
    %t = "arith.constant"() <{value = true}> : () -> i1
    "llvm.intr.assume"(%t) : (i1) -> ()
    "tt.assert"(%t) <{message = "never"}> : (i1) -> ()
    "tt.print"(%t) <{prefix = "x", hex = false, isSigned = array<i32: 0>}> : (i1) -> ()
    "gpu.barrier"() : () -> ()
    "ttg.barrier"() <{addrSpace = 1 : i32}> : () -> ()
    "nvvm.griddepcontrol"() <{kind = 0 : i32}> : () -> ()""",
        [("i32", [1])],
        [[1]],
    ),
    "the grid": Case(
        """
    %x = "tt.get_program_id"() <{axis = 0 : i32}> : () -> i32
    %y = "tt.get_program_id"() <{axis = 1 : i32}> : () -> i32
    %n = "tt.get_num_programs"() <{axis = 0 : i32}> : () -> i32
    %z = "tt.get_num_programs"() <{axis = 2 : i32}> : () -> i32
    %k = "arith.muli"(%y, %n) : (i32, i32) -> i32
    %i = "arith.addi"(%k, %x) : (i32, i32) -> i32
    %p = "tt.addptr"(%a0, %i) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
    %v = "arith.addi"(%i, %z) : (i32, i32) -> i32
    "tt.store"(%p, %v) : (!tt.ptr<i32>, i32) -> ()""",
        [("i32", [0] * 6)],
        [[1, 2, 3, 4, 5, 6]],
        grid=(3, 2, 1),
    ),
    "masked accesses": Case(
        INTO + """
    %m = "arith.constant"() <{value = dense<[true, false, true, false]> : tensor<4xi1>}> : () -> tensor<4xi1>
    %l = "tt.load"(%p0, %m, %r) <{operandSegmentSizes = array<i32: 1, 1, 1>}>
        : (tensor<4x!tt.ptr<i32>>, tensor<4xi1>, tensor<4xi32>) -> tensor<4xi32>
    %u = "tt.load"(%p0, %m) <{operandSegmentSizes = array<i32: 1, 1, 0>}>
        : (tensor<4x!tt.ptr<i32>>, tensor<4xi1>) -> tensor<4xi32>
    %w = "arith.addi"(%l, %l) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>"""
        + out("%l") + out("%u", argument=2) + pointers("%a3", 4, "i32", "%p3") + """
    "tt.store"(%p3, %w, %m) : (tensor<4x!tt.ptr<i32>>, tensor<4xi32>, tensor<4xi1>) -> ()""",
        [("i32", [7, 8, 9, 10]), *[("i32", [0] * 4)] * 3],
        [None, [7, 1, 9, 3], [7, signed(0xA5A5A5A5, "i32"), 9, signed(0xA5A5A5A5, "i32")], [14, 0, 18, 0]],
    ),
    "branches between blocks": Case(
        """
    %c = "tt.load"(%a0) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<i32>) -> i32
    %z = "arith.constant"() <{value = 3 : i32}> : () -> i32
    "cf.br"(%c, %z)[^bb1] : (i32, i32) -> ()
  ^bb1(%i: i32, %s: i32):
    %one = "arith.constant"() <{value = 1 : i32}> : () -> i32
    %n = "arith.subi"(%i, %one) : (i32, i32) -> i32
    %t = "arith.addi"(%s, %i) : (i32, i32) -> i32
    %more = "arith.cmpi"(%n, %one) <{predicate = 5 : i64}> : (i32, i32) -> i1
    "cf.cond_br"(%more, %n, %t, %t)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 2, 1>}>
        : (i1, i32, i32, i32) -> ()
  ^bb2(%v: i32):
    "tt.store"(%a0, %v) : (!tt.ptr<i32>, i32) -> ()""",
        [("i32", [4])],
        [[13]],
    ),
    "a loop over index": Case(
        """
    %lo = "arith.constant"() <{value = 1 : index}> : () -> index
    %hi = "arith.constant"() <{value = 10 : index}> : () -> index
    %by = "arith.constant"() <{value = 4 : index}> : () -> index
    %s:2 = "scf.for"(%lo, %hi, %by, %lo, %hi) ({
    ^bb0(%i: index, %x: index, %y: index):
      %n = "arith.addi"(%x, %i) : (index, index) -> index
      "scf.yield"(%y, %n) : (index, index) -> ()
    }) : (index, index, index, index, index) -> (index, index)
    %v = "arith.index_cast"(%s#0) : (index) -> i32
    %w = "arith.index_cast"(%s#1) : (index) -> i32
    "tt.store"(%a0, %v) : (!tt.ptr<i32>, i32) -> ()
    "tt.store"(%a1, %w) : (!tt.ptr<i32>, i32) -> ()""",
        [("i32", [0]), ("i32", [0])],
        [[10 + 5], [1 + 1 + 9]],
    ),
    "reduction along each axis, captured value": Case(
        INTO + """
    %k = "arith.constant"() <{value = 100 : i32}> : () -> i32
    %e = "tt.reshape"(%x0) : (tensor<4xi32>) -> tensor<2x2xi32>
    %a = "tt.reduce"(%e) <{axis = 0 : i32}> ({
    ^bb0(%l: i32, %h: i32):
      %n = "arith.addi"(%l, %h) : (i32, i32) -> i32
      %n2 = "arith.addi"(%n, %k) : (i32, i32) -> i32
      "tt.reduce.return"(%n2) : (i32) -> ()
    }) : (tensor<2x2xi32>) -> tensor<2xi32>
    %b = "tt.reduce"(%a) <{axis = 0 : i32}> ({
    ^bb0(%l: i32, %h: i32):
      %n = "arith.subi"(%l, %h) : (i32, i32) -> i32
      %n2 = "arith.muli"(%n, %n) : (i32, i32) -> i32
      "tt.reduce.return"(%n2) : (i32) -> ()
    }) : (tensor<2xi32>) -> i32
    "tt.store"(%a2, %b) : (!tt.ptr<i32>, i32) -> ()""" + out("%a", 2),
        [("i32", [1, 2, 3, 5]), ("i32", [0, 0]), ("i32", [0])],
        [None, [104, 107], [9]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    case = CASES[name]
    for array, expected in zip(run_case(case), case.expected, strict=True):
        if expected is not None:
            np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("element", "accumulator", "precision", "expected"),
    [
        ("f32", "f32", 0, 16.0),  # tf32 cuts 2^-11 off.
        ("f32", "f32", 1, 16 + 2**-7),
        ("f32", "f32", 2, 16 + 2**-7),
        ("f64", "f64", 0, 16 + 2**-7),
        ("bf16", "f32", 0, 16.0),  # The constant itself is rounded.
        ("f16", "f16", 0, 16.0),
        ("f16", "f32", 0, 16.0),
    ],
)
def test_dot_precisions(element: str, accumulator: str, precision: int, expected: float) -> None:
    body = f"""
    %a = "arith.constant"() <{{value = dense<1.00048828125> : tensor<16x16x{element}>}}> : () -> tensor<16x16x{element}>
    %b = "arith.constant"() <{{value = dense<1.0> : tensor<16x16x{element}>}}> : () -> tensor<16x16x{element}>
    %c = "arith.constant"() <{{value = dense<0.0> : tensor<16x16x{accumulator}>}}> : () -> tensor<16x16x{accumulator}>
    %d = "tt.dot"(%a, %b, %c) <{{inputPrecision = {precision} : i32}}>
        : (tensor<16x16x{element}>, tensor<16x16x{element}>, tensor<16x16x{accumulator}>) -> tensor<16x16x{accumulator}>
    %y = "tt.reshape"(%d) : (tensor<16x16x{accumulator}>) -> tensor<256x{accumulator}>"""
    buffers = [(accumulator, [0.0] * 256)]
    (result,) = run_case(Case(body + out("%y", 256, accumulator, 0), buffers, []))
    assert result.astype(float).tolist() == [expected] * 256


# Atomics and descriptors


def atomic(kind: int, element: str, values: list[Any], memory: list[Any], offsets: list[int]) -> tuple[Any, Any]:
    n = len(values)
    pointer = tile(n, f"!tt.ptr<{element}>")
    body = (
        f'%r = "tt.make_range"() <{{start = 0 : i32, end = {n} : i32}}> : () -> {tile(n, "i32")}'
        + load(1, n, "i32") + load(2, n, element) + f"""
    %b = "tt.splat"(%a0) : (!tt.ptr<{element}>) -> {pointer}
    %p = "tt.addptr"(%b, %x1) : ({pointer}, {tile(n, "i32")}) -> {pointer}
    %o = "tt.atomic_rmw"(%p, %x2) <{{atomic_rmw_op = {kind} : i32, sem = 1 : i32, scope = 1 : i32}}>
        : ({pointer}, {tile(n, element)}) -> {tile(n, element)}""" + store(3, n, element, "%o")
    )  # fmt: skip
    text = function(body, [f"!tt.ptr<{e}>" for e in (element, "i32", element, element)])
    dtype = DTYPES[element]
    arrays = [np.array(memory, dtype), np.array(offsets, np.int32), np.array(values, dtype), np.zeros(n, dtype)]
    run_kernel(parse_ttir(text), (1,), [Buffer(array) for array in arrays])
    return arrays[0].tolist(), arrays[3].tolist()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(1, 6 & -2), (2, 6 | -2), (3, 6 ^ -2), (4, 4), (6, 6), (7, -2), (8, -2), (9, 6), (10, -2)],
)
def test_atomics(kind: int, expected: int) -> None:
    assert atomic(kind, "i32", [-2], [0, 6], [1]) == ([0, expected], [6])


def test_atomics_on_one_element_add_up() -> None:
    assert atomic(5, "f32", [1, 2, 4, 8], [0.5, 0, 0], [0, 2, 0, 0]) == ([13.5, 0, 2], [0.5, 0, 1.5, 5.5])
    assert atomic(5, "f16", [2048, 1, 1], [0], [0, 0, 0]) == ([2048], [0, 2048, 2048])  # Each addition rounds.
    assert atomic(10, "bf16", [1, 2], [7], [0, 0]) == ([2], [7, 1])


def test_wrong_atomics() -> None:
    with pytest.raises(CleaveError, match="atomic operation 4 is not defined on float32"):
        atomic(4, "f32", [1], [0], [0])
    with pytest.raises(CleaveError, match="atomic operation 11 does not exist"):
        atomic(11, "i32", [1], [0], [0])
    with pytest.raises(CleaveError, match="argument 0: offset 3 is outside the buffer of 3 elements"):
        atomic(4, "i32", [1, 1], [0] * 3, [0, 3])


def test_compare_and_swap() -> None:
    body = """
    %e = "arith.constant"() <{value = 5 : i32}> : () -> i32
    %n = "tt.get_program_id"() <{axis = 0 : i32}> : () -> i32
    %o = "tt.atomic_cas"(%a0, %e, %n) <{sem = 4 : i32, scope = 1 : i32}> : (!tt.ptr<i32>, i32, i32) -> i32
    %p = "tt.addptr"(%a1, %n) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
    "tt.store"(%p, %o) : (!tt.ptr<i32>, i32) -> ()"""
    lock, seen = run_case(Case(body, [("i32", [5]), ("i32", [9, 9, 9])], [], grid=(3,)))
    assert lock.tolist() == [0]
    assert seen.tolist() == [5, 0, 0]


def descriptor_case(element: str, stored: str, middle: str, memory: np.ndarray) -> None:
    """Blocks of 2x16 over a 3x20 tensor with rows 32 apart; ``middle`` uses %d at index (%one, %eight)."""
    body = f"""
    %m = "arith.constant"() <{{value = 3 : i32}}> : () -> i32
    %n = "arith.constant"() <{{value = 20 : i32}}> : () -> i32
    %s = "arith.constant"() <{{value = 32 : i64}}> : () -> i64
    %u = "arith.constant"() <{{value = 1 : i64}}> : () -> i64
    %two = "arith.constant"() <{{value = 2 : i32}}> : () -> i32
    %eight = "arith.constant"() <{{value = 8 : i32}}> : () -> i32
    %d = "tt.make_tensor_descriptor"(%a0, %m, %n, %s, %u)
        : (!tt.ptr<{element}>, i32, i32, i64, i64) -> !tt.tensordesc<tensor<2x16x{stored}>>
    {middle}"""
    run_kernel(parse_ttir(function(body, [f"!tt.ptr<{element}>"])), (1,), [Buffer(memory)])


REDUCTIONS: dict[int, Callable[[np.ndarray, int], np.ndarray]] = {
    1: lambda x, v: x + v,
    2: lambda x, v: np.minimum(x.view(np.uint32), np.uint32(v)).view(np.int32),
    3: lambda x, v: np.maximum(x.view(np.uint32), np.uint32(v)).view(np.int32),
    4: lambda x, v: np.where(x.view(np.uint32) >= v, 0, x + 1),
    5: lambda x, v: np.where((x == 0) | (x.view(np.uint32) > v), v, x - 1),
    6: lambda x, v: x & v,
    7: lambda x, v: x | v,
    8: lambda x, v: x ^ v,
}


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_descriptor_reduce(kind: int) -> None:
    memory = np.random.default_rng(0).integers(-9, 9, (4, 32), np.int32)
    expected = memory.copy()
    expected[2:3, 8:20] = REDUCTIONS[kind](memory[2:3, 8:20].copy(), 5)
    middle = f"""
    %c = "arith.constant"() <{{value = dense<5> : tensor<2x16xi32>}}> : () -> tensor<2x16xi32>
    "tt.descriptor_reduce"(%d, %c, %two, %eight) <{{kind = {kind} : i32}}>
        : (!tt.tensordesc<tensor<2x16xi32>>, tensor<2x16xi32>, i32, i32) -> ()"""
    descriptor_case("i32", "i32", middle, memory)
    np.testing.assert_array_equal(memory, expected)


def test_signed_descriptor_reduce() -> None:
    memory = np.random.default_rng(0).integers(-9, 9, (4, 32), np.int32)
    expected = memory.copy()
    expected[2:3, 8:20] = np.maximum(memory[2:3, 8:20], 5)
    middle = """
    %c = "arith.constant"() <{value = dense<5> : tensor<2x16xi32>}> : () -> tensor<2x16xi32>
    "tt.descriptor_reduce"(%d, %c, %two, %eight) <{kind = 3 : i32}>
        : (!tt.tensordesc<tensor<2x16xsi32>>, tensor<2x16xi32>, i32, i32) -> ()"""
    descriptor_case("i32", "si32", middle, memory)
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize(("padding", "fill"), [("", 0), (", padding = 2 : i32", math.nan)])
def test_descriptor_load_pads(padding: str, fill: float) -> None:
    body = f"""
    %m = "arith.constant"() <{{value = 3 : i32}}> : () -> i32
    %n = "arith.constant"() <{{value = 6 : i32}}> : () -> i32
    %s = "arith.constant"() <{{value = 8 : i64}}> : () -> i64
    %u = "arith.constant"() <{{value = 1 : i64}}> : () -> i64
    %i = "arith.constant"() <{{value = -1 : i32}}> : () -> i32
    %d = "tt.make_tensor_descriptor"(%a0, %m, %n, %s, %u) <{{x = 0 : i32{padding}}}>
        : (!tt.ptr<f32>, i32, i32, i64, i64) -> !tt.tensordesc<tensor<2x8xf32>>
    %b = "tt.descriptor_load"(%d, %i, %u32) : (!tt.tensordesc<tensor<2x8xf32>>, i32, i32) -> tensor<2x8xf32>
    %y = "tt.reshape"(%b) : (tensor<2x8xf32>) -> tensor<16xf32>""".replace("%u32", "%m")
    text = function(body + out("%y", 16, "f32"), ["!tt.ptr<f32>"] * 2)
    memory, y = np.arange(24, dtype=np.float32), np.full(16, -1, np.float32)
    run_kernel(parse_ttir(text), (1,), [Buffer(memory), Buffer(y)])
    np.testing.assert_array_equal(y, [*[fill] * 8, 3, 4, 5, *[fill] * 5])


def test_wrong_descriptors() -> None:
    memory = np.zeros((4, 32), np.int32)
    use = '%v = "tt.descriptor_load"(%d, %two) : (!tt.tensordesc<tensor<2x16xi32>>, i32) -> tensor<2x16xi32>'
    with pytest.raises(CleaveError, match=r"'tt.descriptor_load': 1 indices for a descriptor of rank 2"):
        descriptor_case("i32", "i32", use, memory)
    use = """%v = "tt.descriptor_load"(%d, %two, %eight)
        : (!tt.tensordesc<tensor<2x16xi32>>, i32, i32) -> tensor<2x16xi32>"""
    with pytest.raises(
        CleaveError, match=r"'tt.descriptor_load': argument 0: offset 83 is outside the buffer of 80 el"
    ):
        descriptor_case("i32", "i32", use, np.zeros(80, np.int32))
    wrong = """%w = "tt.make_tensor_descriptor"(%a0, %m, %n, %s, %s)
        : (!tt.ptr<i32>, i32, i32, i64, i64) -> !tt.tensordesc<tensor<2x16xi32>>"""
    with pytest.raises(CleaveError, match="a descriptor's last stride must be 1, got 32"):
        descriptor_case("i32", "i32", wrong, memory)


# Errors


def failing(body: str, message: str, elements: int = 4) -> None:
    memory = np.zeros(elements, np.int32)
    with pytest.raises(CleaveError) as caught:
        run_kernel(parse_ttir(function(body, ["!tt.ptr<i32>"]), "k.ttir"), (1,), [Buffer(memory)])
    assert message in str(caught.value)
    assert str(caught.value).startswith("k.ttir:")


def test_misaligned_access() -> None:
    body = """
    %i = "tt.ptr_to_int"(%a0) : (!tt.ptr<i32>) -> i64
    %two = "arith.constant"() <{value = 2 : i64}> : () -> i64
    %j = "arith.addi"(%i, %two) : (i64, i64) -> i64
    %p = "tt.int_to_ptr"(%j) : (i64) -> !tt.ptr<i32>
    %v = "tt.load"(%p) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<i32>) -> i32"""
    failing(body, "'tt.load': argument 0: byte offset 2 is misaligned for elements of 4 bytes")


@pytest.mark.parametrize(("offset", "outside"), [(-1, True), (3, False), (4, True), (2**30, True)])
def test_bounds(offset: int, outside: bool) -> None:
    body = f"""
    %o = "arith.constant"() <{{value = {offset} : i32}}> : () -> i32
    %p = "tt.addptr"(%a0, %o) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
    "tt.store"(%p, %o) : (!tt.ptr<i32>, i32) -> ()"""
    if outside:
        failing(body, f"k.ttir:8:5: error: 'tt.store': argument 0: offset {offset} is outside the buffer of 4 elements")
    else:
        run_case(Case(body, [("i32", [0] * 4)], []))


def test_masked_lanes_do_not_touch_memory() -> None:
    body = (
        INTO.replace("end = 4", "end = 4")
        + """
    %m = "arith.constant"() <{value = dense<[true, true, false, false]> : tensor<4xi1>}> : () -> tensor<4xi1>
    "tt.store"(%p0, %r, %m) : (tensor<4x!tt.ptr<i32>>, tensor<4xi32>, tensor<4xi1>) -> ()"""
    )
    masked = body.replace(load(0, 4, "i32"), pointers("%a0", 4, "i32", "%p0"))
    (memory,) = run_case(Case(masked, [("i32", [9, 9])], []))
    assert memory.tolist() == [0, 1]
    failing(body, "offset 2 is outside the buffer of 2 elements", elements=2)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('"tt.frobnicate"() : () -> ()', "'tt.frobnicate': this operation is not known to the interpreter"),
        ('%x = "tt.get_program_id"() : () -> i32', "'tt.get_program_id': the attribute 'axis' is missing"),
        ('%x = "tt.get_program_id"() <{axis = 3 : i32}> : () -> i32', "the grid has no axis 3"),
        ('"tt.call"() <{callee = @nobody}> : () -> ()', "is not in the module"),
        ('%x = "arith.constant"() <{value = 1 : i4}> : () -> i4', "the interpreter has no values of type i4"),
        ('%x = "arith.constant"() <{value = 1 : i32}> : () -> i32 "scf.for"(%x, %x, %x) ({}) : (i32, i32, i32) -> ()',
         "a region of 'scf.for' with 0 blocks is not run"),
        ('%x = "arith.constant"() <{value = 0 : i32}> : () -> i32 "scf.for"(%x, %x, %x) ({ ^bb0(%i: i32): '
         '"scf.yield"() : () -> () }) : (i32, i32, i32) -> ()', "the loop's step is 0"),
        ('%x = "arith.constant"() <{value = dense<1> : tensor<4xi32>}> : () -> tensor<4xi32> '
         '%y = "arith.addi"(%x, %x) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi64>', "its type says int64[4]"),
        ('%x = "arith.constant"() <{value = false}> : () -> i1 "llvm.intr.assume"(%x) : (i1) -> ()',
         "the assumption is false"),
        ('%x = "tt.make_range"() <{start = 0 : i32, end = 4 : i32}> : () -> tensor<4xi32> '
         '%y = "tt.gather"(%x, %x) <{axis = 1 : i32}> : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>',
         "'tt.gather' cannot be evaluated"),
    ],
)  # fmt: skip
def test_errors_name_the_operation_and_the_line(body: str, message: str) -> None:
    failing(body, message)


def test_recursion_ends() -> None:
    rest = """
  "tt.func"() <{function_type = () -> (), sym_name = "f", sym_visibility = "private"}> ({
    "tt.call"() <{callee = @f}> : () -> ()
    "tt.return"() : () -> ()
  }) : () -> ()"""
    with pytest.raises(CleaveError, match="nested or recursive too deeply"):
        run_case(Case('"tt.call"() <{callee = @f}> : () -> ()', [], [], rest))


# Coverage


def test_every_rule_is_tested() -> None:
    """By the tables above, or in a whole kernel of ``test_ttir_interpreter`` (the frozen texts)."""
    from test_ttir_interpreter import INPUTS

    folder = Path(__file__).parent
    here = "".join((folder / f"test_ttir_{name}.py").read_text() for name in ("rules", "scalar_rules"))
    frozen = "".join(path.read_text() for path in INPUTS.glob("*.ttir"))
    rules = {*PURE_RULES, *MACHINE_RULES, *CONTROL_RULES}
    assert {rule for rule in rules if f'"{rule}"' not in here and f'"{rule}"' not in frozen} == set()


def test_poison() -> None:
    assert np.isnan(Buffer.poisoned((2, 3), ml_dtypes.bfloat16).array.astype(float)).all()
    assert Buffer.poisoned(2, np.uint8).array.tolist() == [0xA5, 0xA5]
    assert Buffer.poisoned(2, np.int16).array.tolist() == [signed(0xA5A5, "i16")] * 2
