"""The reader for generic TTIR: types, attributes, structure, errors with their place, and speed."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any

import pytest

from cleave.errors import CleaveError
from cleave.runtime.ttir_ir import (
    DenseElements,
    DescriptorType,
    FunctionType,
    OpaqueAttribute,
    OpaqueType,
    PointerType,
    ScalarType,
    SymbolRef,
    TensorType,
)
from cleave.runtime.ttir_text import parse_ttir

INPUTS = Path(__file__).parent / "inputs"
F16, F32, I32, I1 = (ScalarType(name) for name in ("f16", "f32", "i32", "i1"))


def attribute(text: str) -> Any:
    return parse_ttir(f'"op"() {{x = {text}}} : () -> ()').operations[0].attributes["x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i32", I32),
        ("index", ScalarType("index")),
        ("f8E4M3FN", ScalarType("f8E4M3FN")),
        ("!tt.ptr<f16>", PointerType(F16)),
        ("!tt.ptr<f16, 3>", PointerType(F16, 3)),
        ("tensor<64x32xf16>", TensorType((64, 32), F16)),
        ("tensor<f32>", TensorType((), F32)),
        ("tensor<64x!tt.ptr<f16>>", TensorType((64,), PointerType(F16))),
        ("!tt.tensordesc<tensor<128x64xf16>>", DescriptorType(TensorType((128, 64), F16))),
        ("!tt.tensordesc<128x64xf16>", DescriptorType(TensorType((128, 64), F16))),
        ("!tt.ptr<tensor<4x4xf32>>", PointerType(TensorType((4, 4), F32))),
        ("(i32, f32) -> ()", FunctionType((I32, F32), ())),
        ("() -> i1", FunctionType((), (I1,))),
        ("!ttg.async.token", OpaqueType("!ttg.async.token")),
        ("!ttg.memdesc<2x8xf16, #ttg.x<{a = [1], b = 2}>, mutable>", None),
        ("tensor<8xf32, #ttg.slice<{dim = 1, parent = #ttg.b<{w = [4, 1]}>}>>", TensorType((8,), F32)),
    ],
)
def test_types(text: str, expected: Any) -> None:
    parsed = attribute(text)
    assert parsed == (expected or OpaqueType(text))
    if not isinstance(parsed, FunctionType) and "#" not in text and "<128x" not in text:
        assert str(parsed) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", 12),
        ("-1 : i64", -1),
        ("0xFF : i32", 255),
        ("1.5 : f32", 1.5),
        ("1.0e-05 : f64", 1e-5),
        ("-2.500000e+00 : f16", -2.5),
        ("0x7F800000 : f32", math.inf),
        ("0xFF80 : bf16", -math.inf),
        ("0x3C00 : f16", 1.0),
        ("0x0001 : f16", 2.0**-24),
        ("0x7E : f8E4M3FN", 448.0),
        ("0x7B : f8E5M2", 57344.0),
        ("0xC000000000000000 : f64", -2.0),
        ("true", True),
        ("false", False),
        ("unit", True),
        ('"a\\22b\\n"', 'a"b\n'),
        ('"text" : i32', "text"),
        ("[1 : i32, [2.0], {}]", [1, [2.0], {}]),
        ('{a = 1 : i32, b, "c.d" = @f}', {"a": 1, "b": True, "c.d": SymbolRef("f")}),
        ("array<i32>", ()),
        ("array<i32: 1, -2>", (1, -2)),
        ("array<i1: true, false>", (True, False)),
        ("array<f32: 1.0, 0x7F800000>", (1.0, math.inf)),
        ("@a::@b", SymbolRef("a::b")),
        ('@"x y"', SymbolRef("x y")),
        ("#arith.fastmath<none>", OpaqueAttribute("#arith.fastmath<none>")),
        ("#ub.poison", OpaqueAttribute("#ub.poison")),
        ("dense<1.0> : tensor<4xf32>", DenseElements(TensorType((4,), F32), (1.0,))),
        ("dense<[[1, 2], [3, -4]]> : tensor<2x2xi32>", DenseElements(TensorType((2, 2), I32), (1, 2, 3, -4))),
        ("dense<[true, false]> : tensor<2xi1>", DenseElements(TensorType((2,), I1), (True, False))),
        ("dense<0x7F800000> : tensor<4xf32>", DenseElements(TensorType((4,), F32), (math.inf,))),
        ('dense<"0x0100"> : tensor<1xf16>', DenseElements(TensorType((1,), F16), b"\1\0")),
    ],
)
def test_attributes(text: str, expected: Any) -> None:
    assert attribute(text) == expected
    assert type(attribute(text)) is type(expected)


def test_nan_literals() -> None:
    assert all(math.isnan(attribute(t)) for t in ("0x7FC00000 : f32", "0x7E00 : f16", "0x7F : f8E4M3FN"))


def test_structure() -> None:
    module = parse_ttir(
        """
#loc = loc("file.py":1:0)
// A comment.
"builtin.module"() ({
  "tt.func"() <{function_type = (i32) -> i32, sym_name = "f", sym_visibility = "private"}> ({
  ^bb0(%arg0: i32 loc("x"(#loc))):
    %0:2 = "a.b"(%arg0, %arg0) <{p = 1 : i32}> ({
    ^bb0(%x: i32, %y: i32):
      %1 = "inner"(%x, %arg0) : (i32, i32) -> i32 loc(#loc)
      "yield"(%1) : (i32) -> ()
    }, {
    }) {q = 2 : i32} : (i32, i32) -> (i32, f32) loc(callsite(#loc at "g"("h.py":3:4)))
    "br"(%0#0)[^bb1] : (i32) -> ()
  ^bb1(%r: i32):  // pred: ^bb0
    %1 = "late"(%0#1, %0) : (f32, i32) -> i32
    "tt.return"(%1) : (i32) -> ()
  }) {extra} : () -> () loc(#loc)
}) {tag = "m"} : () -> () loc(#loc)
#loc1 = loc(unknown)
""",
        "m.ttir",
    )
    function = module.functions["f"]
    assert (module.attributes, function.is_public, function.type) == ({"tag": "m"}, False, FunctionType((I32,), (I32,)))
    first, second = function.body.blocks
    op = first.operations[0]
    assert (op.name, op.line, op.position.column, op.attributes) == ("a.b", 7, 5, {"p": 1, "q": 2})
    assert op.result_types == [I32, F32]
    assert op.operands == [first.arguments[0]] * 2
    inner = op.regions[0].blocks[0]
    assert inner.operations[0].operands == [inner.arguments[0], first.arguments[0]]
    assert op.regions[1].blocks == []
    assert first.operations[1].successors == ["^bb1"]
    assert second.operations[0].operands == [op.results[1], op.results[0]]


def test_short_module_and_aliases() -> None:
    module = parse_ttir("""
#layout = #ttg.blocked<{order = [1, 0]}>
!block = tensor<4xf32>
module @m attributes {a = 1 : i32} {
  "tt.func"() <{function_type = (tensor<4xf32, #layout>) -> (), sym_name = "f"}> ({
  ^bb0(%x: !block):
    "tt.return"() : () -> ()
  }) : () -> ()
} loc(unknown)""")
    assert module.functions["f"].is_public
    assert module.attributes == {"a": 1}


OP = '"tt.func"() <{function_type = (i32) -> (), sym_name = "f"}> ({\n^bb0(%a: i32):\n'
END = '\n"tt.return"() : () -> ()\n}) : () -> ()'


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("%0 = arith.constant 1 : i32", "1:6", "expected an operation's quoted name, got 'arith.constant'"),
        ('"op"(', "1:6", "expected ')' after the operands, got the end of the text"),
        ('"op"() : ()', "1:12", "expected '->' before the result types, got the end of the text"),
        ('\n  "op"() {x = 1 y} : () -> ()', "2:17", "expected '}' after the attributes, got 'y'"),
        ('"op"() {x = ;} : () -> ()', "1:13", "unexpected character ';'"),
        ('"op', "1:1", "unexpected character '\"'"),
        ('"op"() {x = tensor<?xf32>} : () -> ()', "1:20", "tiles have static shapes"),
        ('"op"() {x = vector<4xf32>} : () -> ()', "1:13", "'vector' is not a type that TTIR uses"),
        ('"op"() {x = tensor<4xtensor<4xf32>>} : () -> ()', "1:35", "cannot be an element of a tensor"),
        ('"op"() {x = dense<[1, 2]> : tensor<3xi32>} : () -> ()', "1:13", "2 elements for tensor<3xi32>"),
        ('"op"() {x = 1.5 : i32} : () -> ()', "1:13", "a float literal of type i32"),
        ('"op"() {x = #a.b<(} : () -> ()', "1:17", "'<' is never closed"),
        (OP + '"op"(%b) : (i32) -> ()' + END, "3:6", "%b is not defined here"),
        (OP + '"op"(%a) : (f32) -> ()' + END, "3:12", "operand 0 of 'op' is i32, but its type says f32"),
        (OP + '"op"(%a) : () -> ()' + END, "3:12", "'op' has 1 operands but its type lists 0"),
        (OP + '%a = "op"() : () -> i32' + END, "3:1", "%a is defined twice"),
        (OP + '%x, %y = "op"() : () -> i32' + END, "3:1", "2 names for 1 results"),
        (OP + '%x:2 = "op"() : () -> i32' + END, "3:1", "2 names for 1 results"),
        (OP.replace("(%a: i32)", "(%a: f32)") + END, "1:1", "differ from its type (i32) -> ()"),
        (OP + END + OP + END, "5:14", "a second function @f"),
        ('"tt.func"() <{sym_name = "f"}> ({}) : () -> ()', "1:1", "needs a sym_name and a function_type"),
        ('"tt.func"() <{sym_name = "f", function_type = () -> ()}> ({}) : () -> ()', "1:1", "@f has no body"),
        ('%x:99999999999 = "op"() : () -> i32', "1:1", "99999999999 names for 1 results"),
        ('"op"() {x = ' + "1" * 9999 + "} : () -> ()", None, "a literal that cannot be read"),
        ('"op"() {x = dense<"0x123"> : tensor<1xf16>} : () -> ()', None, "a literal that cannot be read"),
        ("[" * 5, "1:1", "expected an operation's quoted name"),
        ('"op"() {x = ' + "[" * 100000, None, "nested too deeply to be read"),
    ],
)  # fmt: skip
def test_errors(text: str, place: str | None, message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        parse_ttir(text, "t.ttir")
    assert message in str(caught.value)
    if place is not None:
        assert str(caught.value).startswith(f"t.ttir:{place}: ")


def test_values_of_a_region_end_with_it() -> None:
    text = OP + '"op"() ({\n%b = "c"() : () -> i32\n}) : () -> ()\n"use"(%b) : (i32) -> ()' + END
    with pytest.raises(CleaveError, match="%b is not defined here"):
        parse_ttir(text)


def test_damaged_text_only_raises_cleave_errors() -> None:
    """Deletions, swaps and stray characters anywhere in real modules."""
    rng = random.Random(0)
    texts = [path.read_text() for path in sorted(INPUTS.glob("*.ttir"))]
    for _ in range(400):
        text = rng.choice(texts)[:3000]
        at, length = rng.randrange(len(text)), rng.choice((1, 1, 3, 20))
        text = text[:at] + rng.choice(("", "<", "}", "%", '"', "  ", "é", "0x", "#")) + text[at + length :]
        try:
            parse_ttir(text)
        except CleaveError as error:
            assert error.location


def test_time_is_linear() -> None:
    """CPU seconds: well under one for 2,000 lines; eight times as much text takes less than thirty times as long."""

    def module(lines: int) -> str:
        body = ['%0 = "arith.constant"() <{value = 1 : i32}> : () -> i32 loc(#loc)']
        body += [
            f'%{i} = "arith.addi"(%{i - 1}, %a) <{{o = #arith.overflow<none>}}> : (i32, i32) -> i32 loc(#loc1)'
            for i in range(1, lines)
        ]
        return OP + "\n".join(body) + END

    def seconds(lines: int) -> float:
        text = module(lines)
        start = time.process_time()
        parse_ttir(text)
        return time.process_time() - start

    small = min(seconds(2000) for _ in range(3))
    assert small < 1.5
    assert seconds(16000) < 30 * small  # 64 times if it were quadratic


def test_white_space_does_not_explode() -> None:
    start = time.process_time()
    with pytest.raises(CleaveError, match="unexpected character"):
        parse_ttir(" \n" * 20000 + ";")
    assert time.process_time() - start < 1.5
