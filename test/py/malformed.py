"""Inputs that no tool may accept: what is wrong, on which line, and a part of what is said about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """``text`` is wrong on ``line`` (of several: the first reported); ``message`` is part of the error there."""

    text: str | bytes
    line: int
    message: str
    flags: tuple[str, ...] = ()


def tensor(names: str) -> str:
    """A dynamic f32 tensor whose dims have names of one letter."""
    return "tensor<" + "?x" * len(names) + "f32, #cleave.dims<[" + ", ".join(f'"{name}"' for name in names) + "]>>"


TILE = 'tensor<4xf32, #cleave.dims<["m=4"]>>'
M, MK, KN, MN = map(tensor, ("m", "mk", "kn", "mn"))


def op(text: str, message: str, *, attributes: str = "", flags: tuple[str, ...] = ()) -> Case:
    """A function of [m, k], [k, n], [m] and an index, with one op on line 2."""
    header = f"func.func @f(%a: {MK}, %b: {KN}, %v: {M}, %i: index) {attributes} {{"
    return Case(f"{header}\n  {text}\n  return\n}}\n", 2, message, flags)


def argument(type_: str, message: str) -> Case:
    return Case(f"// a comment\nfunc.func @f(%a: {type_}) {{\n  return\n}}\n", 2, message)


def facts(value: str, message: str) -> Case:
    return Case(f"func.func @f(%a: {MK}) attributes {{cleave.facts = {value}}} {{\n  return\n}}\n", 1, message)


GOOD = f"""\
func.func @f(%a: {MK}, %b: {KN}) -> {M} {{
  %0 = "cleave.contract"(%a, %b) {{over = ["k"]}} : ({MK}, {KN}) -> {MN}
  %1 = "cleave.exp"(%0) : ({MN}) -> {MN}
  %2 = "cleave.reduce"(%1) {{kind = "sum", over = ["n"]}} : ({MN}) -> {M}
  return %2 : {M}
}}
"""

FILES = {
    "empty": Case("", 1, "the input is empty"),
    "blank": Case(" \n\t\n", 1, "the input is empty"),
    "NUL": Case("module {\n\0}\n", 2, "a NUL character"),
    "only NULs": Case(b"\0" * 64, 1, "a NUL character"),
    "not UTF-8": Case(b"module {\n}\n// caf\xe9\n", 3, "byte 0xe9 is not UTF-8"),
    "UTF-16": Case("module {}".encode("utf-16"), 1, "is not UTF-8"),
    "an ELF file": Case(b"\x7fELF\x02\x01\x01" + bytes(range(128, 256)), 1, "is not UTF-8"),
    "bytecode of a later version": Case(b"ML\xefR\xff\xff\xff", 1, "error"),
    "bytecode that ends": Case(b"ML\xefR", 1, "error"),
    "bytecode that is garbage": Case(b"ML\xefR\x0dMLIR22\0" + bytes(range(200)), 1, "error"),
    "English": Case("To be, or not to be\n", 1, "is unknown"),
    "JSON": Case('{"a": 1}\n', 1, "expected"),
    "C": Case("int main(void) { return 0; }\n", 1, "is unknown"),
    "a merge conflict": Case(f"<<<<<<< HEAD\n{GOOD}", 1, "expected"),
}

SYNTAX = {
    "unclosed function": Case("func.func @f() {\n  return\n", 2, "expected operation name in quotes"),
    "unclosed module": Case("module {\n  func.func @f() { return }\n", 2, "expected operation name in quotes"),
    "unclosed string": Case('func.func @f() attributes {a = "x} { return }\n', 1, "expected"),
    "unclosed type": Case("func.func @f(%a: tensor<4xf32) { return }\n", 1, "expected '>'"),
    "unclosed operands": op('"cleave.exp"(%a : () -> ()', r"expected '\)'"),
    "too many braces": Case("func.func @f() { return }\n}\n", 1, "expected operation name in quotes"),
    "no type": op('%0 = "cleave.exp"(%a)', "expected ':'"),
    "wrong number of types": op(f'%0 = "cleave.exp"(%a) : ({M}, {M}) -> {M}', "expected 1 operand type"),
    "undefined value": op(f'%0 = "cleave.exp"(%zzz) : ({M}) -> {M}', "use of undeclared SSA value"),
    "value used before": Case(
        f'func.func @f(%a: {M}) {{\n  %1 = "cleave.exp"(%0) : ({M}) -> {M}\n  %0 = "cleave.exp"(%a) : ({M}) -> {M}\n'
        "  return\n}\n",
        2,
        "does not dominate this use",
    ),
    "value defined twice": op("%i = arith.constant 0 : index", "redefinition of SSA value"),
    "another type at the use": op(f'%0 = "cleave.exp"(%a) : ({M}) -> {M}', "expects different type"),
    "an unknown element type": argument('tensor<?xf99, #cleave.dims<["m"]>>', "expected"),
    "a negative extent": argument('tensor<-4xf32, #cleave.dims<["m"]>>', "expected"),
    "an extent past 64 bits": argument("tensor<99999999999999999999xf32>", "invalid"),
    "an unknown alias": argument("!matrix", "undefined symbol alias id 'matrix'"),
    "an unknown attribute of the dialect": argument("tensor<?xf32, #cleave.dimz<[]>>", "expected dynamic attribute"),
    "dims that are no array": argument('tensor<?xf32, #cleave.dims<"m">>', "expected base attribute 'builtin.array'"),
    "dims without parameters": argument("tensor<?xf32, #cleave.dims>", "error"),
}

STRUCTURE = {
    "two functions of one name": Case(
        "func.func @f() { return }\nfunc.func @f() { return }\n", 2, "redefinition of symbol"
    ),
    "no terminator": Case(f'func.func @f(%a: {M}) {{\n  %0 = "cleave.exp"(%a) : ({M}) -> {M}\n}}\n', 2, "terminator"),
    "an empty body": Case("\nfunc.func @f() {\n}\n", 2, "expected non-empty function body"),
    "an op after the return": Case("func.func @f() {\n  return\n  func.call @f() : () -> ()\n}\n", 2, "last operation"),
    "no result returned": Case(
        f"func.func @f(%a: {M}) -> {M} {{\n  return\n}}\n", 2, "has 0 operands, but enclosing function"
    ),
    "another type returned": Case(f"func.func @f(%a: {M}) -> {MK} {{\n  return %a : {M}\n}}\n", 2, "doesn't match"),
    "a call of nothing": op("func.call @g() : () -> ()", "'g' does not reference a valid function"),
    "a call with too few operands": Case(
        f"func.func private @g({M})\nfunc.func @f() {{\n  func.call @g() : () -> ()\n  return\n}}\n",
        3,
        "incorrect number of operands",
    ),
    "an unknown op": op(f'%0 = "cleave.softmax"(%a) : ({MK}) -> {MK}', "cleave.softmax"),
    "an op of an unknown dialect": op('"tt.store"() : () -> ()', "unregistered dialect"),
    "custom syntax of ours": op("%0 = cleave.exp %a", "generic form only"),
    "too few operands": op(
        f'%0 = "cleave.contract"(%a) {{over = ["k"]}} : ({MK}) -> {MK}', "expects exactly 2 operands"
    ),
    "too many operands": op(f'%0 = "cleave.exp"(%a, %a) : ({MK}, {MK}) -> {MK}', "expects exactly 1 operands"),
    "no result": op(f'"cleave.exp"(%a) : ({MK}) -> ()', "expects exactly 1 results"),
    "two results": op(f'%0:2 = "cleave.exp"(%a) : ({MK}) -> ({MK}, {MK})', "expects exactly 1 results"),
    "an index where a tensor stands": op(f'%0 = "cleave.exp"(%i) : (index) -> {M}', "builtin.tensor"),
    "a memref": op('%0 = "cleave.alloc"() : () -> memref<4xf32>', "builtin.tensor"),
    "a region": op(f'%0 = "cleave.exp"(%a) ({{}}) : ({MK}) -> {MK}', "region"),
    "a loop over floats": op("scf.for %j = %x to %x step %x {}".replace("%x", "%v"), "expects different type"),
}

DIMS = {
    "no dims": op('%0 = "cleave.alloc"() : () -> tensor<?xf32>', "names no dimensions"),
    "unranked": op('%0 = "cleave.alloc"() : () -> tensor<*xf32>', "but got 'builtin.unranked_tensor'"),
    "unranked argument": Case(
        f'func.func @f(%u: tensor<*xf32>) {{\n  %0 = "cleave.exp"(%u) : (tensor<*xf32>) -> {M}\n  return\n}}\n',
        2,
        "but got 'builtin.unranked_tensor'",
    ),
    "fewer names than the rank": argument('tensor<?x?xf32, #cleave.dims<["m"]>>', "rank 2 but names 1"),
    "more names than the rank": argument('tensor<?xf32, #cleave.dims<["m", "k"]>>', "rank 1 but names 2"),
    "a name twice": argument('tensor<?x?xf32, #cleave.dims<["m", "m"]>>', "twice"),
    "an empty name": argument('tensor<?xf32, #cleave.dims<[""]>>', "error"),
    "a name with blanks": argument('tensor<?xf32, #cleave.dims<["a b"]>>', "error"),
    "a name that is a number": argument("tensor<?xf32, #cleave.dims<[7 : i64]>>", "error"),
    "a size that does not parse": argument('tensor<?xf32, #cleave.dims<["m=2*"]>>', "error"),
    "a size without partner": argument('tensor<?xf32, #cleave.dims<["m=ceildiv(n)"]>>', "error"),
    "a division by zero": argument('tensor<?xf32, #cleave.dims<["m=n/0"]>>', "error"),
    "an extent that is another": argument('tensor<4xf32, #cleave.dims<["m=5"]>>', "has extent 4"),
    "a type of no use": argument('tensor<?xi7, #cleave.dims<["m"]>>', "element type i7 is not supported"),
    "symbols that disagree": Case(
        'func.func @f(%a: tensor<4xf32, #cleave.dims<["m"]>>,\n'
        '             %b: tensor<5xf32, #cleave.dims<["m"]>>) {\n  return\n}\n',
        1,
        "dimension 'm' has extent 5 here and 4 before",
    ),
    "sizes that disagree": op(
        f'%0 = "cleave.rename"(%a) {{from = "k", to = "n=2"}} : ({MK}) -> tensor<?x?xf32, #cleave.dims<["m", "n=3"]>>',
        "error",
    ),
    "a result of another rank": op(f'%0 = "cleave.exp"(%a) : ({MK}) -> {M}', "the result has dimensions"),
    "a result with other names": op(f'%0 = "cleave.exp"(%a) : ({MK}) -> {MN}', "the result has dimensions"),
}

ATTRIBUTES = {
    "contraction over nothing known": op(
        f'%0 = "cleave.contract"(%a, %b) {{over = ["z"]}} : ({MK}, {KN}) -> {MN}', "names 'z'"
    ),
    "no over": op(f'%0 = "cleave.contract"(%a, %b) : ({MK}, {KN}) -> {MN}', "over"),
    "over is no array": op(f'%0 = "cleave.contract"(%a, %b) {{over = "k"}} : ({MK}, {KN}) -> {MN}', "over|array"),
    "over twice": op(f'%0 = "cleave.reduce"(%a) {{kind = "sum", over = ["k", "k"]}} : ({MK}) -> {M}', "twice"),
    "an unknown kind": op(f'%0 = "cleave.reduce"(%a) {{kind = "mean", over = ["k"]}} : ({MK}) -> {M}', "not one of"),
    "an unknown predicate": op(f'%0 = "cleave.cmp"(%v, %v) {{predicate = "is"}} : ({M}, {M}) -> {M}', "predicate"),
    "a misspelt attribute": op(f'%0 = "cleave.exp"(%a) {{ovr = ["k"]}} : ({MK}) -> {MK}', "unknown attribute 'ovr'"),
    "no value": op(f'%0 = "cleave.constant"() : () -> {M}', "value"),
    "a value of another type": op(f'%0 = "cleave.constant"() {{value = 1 : i32}} : () -> {M}', "i32"),
    "split into one": op(f'%0 = "cleave.split"(%v) {{dim = "m", into = ["s"]}} : ({M}) -> {M}', "into"),
    "split of nothing known": op(f'%0 = "cleave.split"(%v) {{dim = "z", into = ["s", "t"]}} : ({M}) -> {MN}', "'z'"),
    "merge into a name in use": op(f'%0 = "cleave.merge"(%a) {{dims = ["m"], into = "k"}} : ({MK}) -> {MK}', "error"),
    "a slice past the end": op(
        '%0 = "cleave.slice"(%v) {dim = "m", into = "e=4", offset = "m"} : '
        f'({M}) -> tensor<4xf32, #cleave.dims<["e=4"]>>',
        "error",
    ),
    "a slice before the start": op(
        '%0 = "cleave.slice"(%v) {dim = "m", into = "e=4", offset = "-1"} : '
        f'({M}) -> tensor<4xf32, #cleave.dims<["e=4"]>>',
        "starts at -1, below 0",
    ),
    "program id on axis 7": op('%0 = "cleave.program_id"() {axis = 7 : i64} : () -> index', "axis"),
    "an extent of no size": op('%0 = "cleave.extent"() {size = "2 +"} : () -> index', "error"),
    "load without segments": op(
        f'%0 = "cleave.load"(%v, %i, %i) {{fill = 0.0 : f32}} : ({M}, index, index) -> {TILE}',
        "operandSegmentSizes|operand_segment_sizes",
    ),
    "a store of a tile without extents": op(
        '"cleave.store"(%v, %v, %i, %i) {operandSegmentSizes = array<i32: 1, 1, 1, 1>} : '
        f"({M}, {M}, index, index) -> ()",
        "static extents",
    ),
    "facts that are no array": facts('"k = 4"', "cleave.facts"),
    "a fact that does not parse": facts('["k = "]', "cleave.facts"),
    "a fact without relation": facts('["k"]', "cleave.facts"),
    "facts that contradict": facts('["k = 4", "k = 5"]', "cleave.facts"),
    "a misspelt function attribute": Case(
        f"func.func @f(%a: {M}) attributes {{cleave.fact = []}} {{\n  return\n}}\n",
        1,
        "unknown attribute 'cleave.fact'",
    ),
    "a misspelt argument attribute": Case(
        f"func.func @f(%a: {M} {{cleave.outt}}) {{\n  return\n}}\n", 1, "unknown argument attribute 'cleave.outt'"
    ),
}

CASES = {**FILES, **SYNTAX, **STRUCTURE, **DIMS, **ATTRIBUTES}
