"""TTIR kernels of one operation, written as text, and integers as the hardware keeps them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cleave.runtime.ttir_interpreter import Buffer, run_kernel
from cleave.runtime.ttir_numbers import DTYPES
from cleave.runtime.ttir_text import parse_ttir

WIDTH = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}


def function(body: str, arguments: Iterable[str], rest: str = "") -> str:
    types = list(arguments)
    formals = ", ".join(f"%a{i}: {type_}" for i, type_ in enumerate(types))
    return f"""
"builtin.module"() ({{
  "tt.func"() <{{function_type = ({", ".join(types)}) -> (), sym_name = "k"}}> ({{
  ^bb0({formals}):
{body}
    "tt.return"() : () -> ()
  }}) : () -> ()
{rest}
}}) : () -> ()
"""


def tile(n: int, element: str) -> str:
    return f"tensor<{n}x{element}>"


def pointers(name: str, n: int, element: str, result: str) -> str:
    pointer = f"!tt.ptr<{element}>"
    return f"""
    {result}_base = "tt.splat"({name}) : ({pointer}) -> {tile(n, pointer)}
    {result} = "tt.addptr"({result}_base, %r) : ({tile(n, pointer)}, {tile(n, "i32")}) -> {tile(n, pointer)}"""


def load(i: int, n: int, element: str) -> str:
    pointer = f"!tt.ptr<{element}>"
    return (
        pointers(f"%a{i}", n, element, f"%p{i}")
        + f"""
    %x{i} = "tt.load"(%p{i}) <{{operandSegmentSizes = array<i32: 1, 0, 0>}}>
        : ({tile(n, pointer)}) -> {tile(n, element)}"""
    )


def store(i: int, n: int, element: str, value: str) -> str:
    pointer = f"!tt.ptr<{element}>"
    return (
        pointers(f"%a{i}", n, element, f"%p{i}")
        + f"""
    "tt.store"(%p{i}, {value}) : ({tile(n, pointer)}, {tile(n, element)}) -> ()"""
    )


def run(op: str, attributes: str, inputs: list[tuple[str, np.ndarray]], outputs: list[str]) -> list[np.ndarray]:
    """Apply one elementwise operation to tiles of given element types; index tiles travel as i64."""
    n = len(inputs[0][1])
    stored = ["i64" if e == "index" else e for e in [*(e for e, _ in inputs), *outputs]]
    body = [f'    %r = "tt.make_range"() <{{start = 0 : i32, end = {n} : i32}}> : () -> {tile(n, "i32")}']
    names: list[str] = []
    for i, (element, _) in enumerate(inputs):
        body.append(load(i, n, stored[i]))
        names.append(f"%x{i}")
        if element == "index":
            body.append(f'    %i{i} = "arith.index_cast"(%x{i}) : ({tile(n, "i64")}) -> {tile(n, "index")}')
            names[-1] = f"%i{i}"
    types = ", ".join(tile(n, element) for element, _ in inputs)
    results = ", ".join(tile(n, element) for element in outputs)
    body.append(f'    %y:{len(outputs)} = "{op}"({", ".join(names)}) {{{attributes}}} : ({types}) -> ({results})')
    for j, element in enumerate(outputs):
        value = f"%y#{j}"
        if element == "index":
            body.append(f'    %z{j} = "arith.index_cast"({value}) : ({tile(n, "index")}) -> {tile(n, "i64")}')
            value = f"%z{j}"
        body.append(store(len(inputs) + j, n, stored[len(inputs) + j], value))
    text = function("\n".join(body), [f"!tt.ptr<{element}>" for element in stored])
    buffers = [Buffer(array) for _, array in inputs]
    results_ = [Buffer.poisoned(n, DTYPES[element]) for element in outputs]
    run_kernel(parse_ttir(text), (1,), [*buffers, *results_])
    return [buffer.array for buffer in results_]


def signed(value: int, element: str) -> int:
    bits = WIDTH[element]
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def unsigned(value: int, element: str) -> int:
    return value & ((1 << WIDTH[element]) - 1)
