"""Divisions and roots whose last bits do not show are not IEEE's, which take branches; all others are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from compiled import CTX

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.lowering.emit import kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.passes.tile_io import from_tile_program
from cleave.schedule.scheduler import ScheduleOptions, schedule

Build = Callable[[GraphBuilder, Value, Value], Value]


def _text(graph: Graph) -> str:
    program = schedule(graph.deduplicated(), ScheduleOptions(sizes={"m": 256})).program
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(program, module)
        LowerToTriton().apply(CTX, module)
        return "".join(kernel.text for kernel in kernel_modules(module))


def _root(b: GraphBuilder, x: Value, dtype: str) -> Value:
    return b.sqrt(b.cast(x, dtype=dtype))


def _half(b: GraphBuilder, x: Value) -> Value:
    return b.cast(x, dtype="f16")


def _powers(b: GraphBuilder, x: Value, y: Value) -> Value:
    """Uses of uses, each of them twice: 2⁴⁰ ways to the result."""
    found = b.div(x, y)
    for _ in range(40):
        found = b.mul(found, found)
    return _half(b, found)


def _times_tf32(b: GraphBuilder, x: Value, y: Value) -> Value:
    left = b.cast(b.div(x, y), dtype="tf32")
    return b.contract(left, b.cast(b.input("n p=64", "f32"), dtype="tf32"), over=["n"], dtype="f32")


FAST: dict[str, Build] = {
    "rounded": lambda b, x, y: _half(b, b.div(x, y)),
    "sigmoid": lambda b, x, y: _half(b, b.sigmoid(x)),
    "gate": lambda b, x, y: _half(b, b.mul(b.mul(x, b.sigmoid(x)), y)),
    "of a quotient": lambda b, x, y: _half(b, b.div(b.div(x, y), y)),
    "clamped": lambda b, x, y: _half(b, b.max(b.neg(b.div(x, y)), b.constant(0.5, "f32"))),
    "a least one": lambda b, x, y: _half(b, b.min(b.abs(b.div(x, y)), x)),
    "one of two": lambda b, x, y: _half(b, b.select(b.cmp(x, y, predicate="lt"), b.div(x, y), y)),
    "powers": _powers,
    "bf16": lambda b, x, y: b.cast(b.div(x, y), dtype="bf16"),
    "f8E4M3FN": lambda b, x, y: b.cast(b.div(x, y), dtype="f8E4M3FN"),
    "f8E5M2": lambda b, x, y: b.cast(b.div(x, y), dtype="f8E5M2"),
    "tf32": _times_tf32,
    "of f16": lambda b, x, y: b.div(_half(b, x), _half(b, y)),
}
PRECISE: dict[str, Build] = {
    "by a constant": lambda b, x, y: b.mul(b.div(x, b.constant(3.0, "f32")), y),
    "f32": lambda b, x, y: b.div(x, y),
    "gate in f32": lambda b, x, y: b.mul(x, b.sigmoid(x)),
    "a difference": lambda b, x, y: _half(b, b.sub(b.div(x, y), b.constant(1.0, "f32"))),
    "a sum": lambda b, x, y: _half(b, b.add(b.div(x, y), y)),
    "a condition": lambda b, x, y: _half(b, b.select(b.cmp(b.div(x, y), y, predicate="lt"), x, y)),
    "an integer": lambda b, x, y: b.cast(b.div(x, y), dtype="i32"),
    "a difference later": lambda b, x, y: _half(b, b.sub(b.mul(b.neg(b.div(x, y)), y), x)),
    "by a huge power of two": lambda b, x, y: b.div(x, b.constant(2.0**100, "f32")),
    "by a tiny power of two": lambda b, x, y: b.div(x, b.constant(2.0**-100, "f32")),
    "by infinity": lambda b, x, y: b.div(x, b.constant(float("inf"), "f32")),
    "by zero": lambda b, x, y: b.div(x, b.constant(0.0, "f32")),
    "of constants": lambda b, x, y: b.mul(x, b.div(b.constant(1.0, "f32"), b.constant(0.0, "f32"))),
    "a logarithm": lambda b, x, y: _half(b, b.log(b.div(x, y))),
    "an exponential": lambda b, x, y: _half(b, b.exp(b.mul(b.div(x, y), y))),
    "both": lambda b, x, y: b.add(b.cast(_half(b, b.div(x, y)), dtype="f32"), b.div(x, y)),
}


ROOTS: dict[str, tuple[Build, bool]] = {
    "rounded": (lambda b, _, y: _half(b, b.sqrt(y)), False),
    "bf16": (lambda b, _, y: b.cast(b.sqrt(y), dtype="bf16"), True),
    "a divisor": (lambda b, x, y: _half(b, b.div(x, b.sqrt(y))), True),
    "a factor": (lambda b, x, y: _half(b, b.mul(x, b.sqrt(y))), True),
    "f8E4M3FN": (lambda b, _, y: b.cast(b.sqrt(y), dtype="f8E4M3FN"), False),
    "f8E5M2": (lambda b, _, y: b.cast(b.sqrt(y), dtype="f8E5M2"), False),
    "f32": (lambda b, _, y: b.sqrt(y), True),
    "of f16": (lambda b, _, y: _root(b, y, "f16"), False),
    "of bf16": (lambda b, _, y: _root(b, y, "bf16"), True),
}


NONE: dict[str, Build] = {
    "by a power of two": lambda b, x, y: b.mul(b.div(x, b.constant(-4096.0, "f32")), y),
    "by a fraction": lambda b, x, y: b.add(b.div(x, b.constant(0.125, "f32")), y),
}
CASES = {
    **{name: (build, False) for name, build in FAST.items()},
    **{name: (build, True) for name, build in PRECISE.items()},
}


@pytest.mark.parametrize("build", NONE.values(), ids=NONE)
def test_a_division_that_is_a_product(build: Build) -> None:
    """To the bit, for the reciprocal is exact."""
    b = GraphBuilder("quotient")
    text = _text(b.build(build(b, b.input("m n=64", "f32"), b.input("m n", "f32"))))
    assert "divf" not in text and ("-2.44140625E-4" in text or "8.000000e+00" in text.lower())


@pytest.mark.parametrize(("build", "precise"), CASES.values(), ids=CASES)
def test_division(build: Build, precise: bool) -> None:
    b = GraphBuilder("quotient")
    text = _text(b.build(build(b, b.input("m n=64", "f32"), b.input("m n", "f32"))))
    assert ("precise_divf" in text, "arith.divf" in text) == (precise, not precise)


@pytest.mark.parametrize(("build", "precise"), ROOTS.values(), ids=ROOTS)
def test_square_root(build: Build, precise: bool) -> None:
    """The fast one makes 0 of what is below 2⁻¹²⁶: x / √y would be infinite where it is a number."""
    b = GraphBuilder("root")
    text = _text(b.build(build(b, b.input("m n=64", "f32"), b.input("m n", "f32"))))
    assert ("precise_sqrt" in text, "math.sqrt" in text) == (precise, not precise)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda b, x: b.div(x, b.constant(4.0, "f64")), "arith.mulf"),
        (lambda b, x: b.div(x, b.constant(3.0, "f64")), "arith.divf"),
        (lambda b, x: b.sqrt(x), "math.sqrt"),
    ],
    ids=["by a power of two", "by another number", "root"],
)
def test_f64(build: Callable[[GraphBuilder, Value], Value], expected: str) -> None:
    """In its own type, whose ops are IEEE's."""
    b = GraphBuilder("double")
    text = _text(b.build(build(b, b.input("m n=64", "f64"))))
    assert expected in text and "precise" not in text and "f32" not in text


def test_constant_integers_are_divided_as_such() -> None:
    b = GraphBuilder("integers")
    x, quotient = b.input("m n=64", "i32"), b.div(b.constant(7, "i32"), b.constant(2, "i32"))
    assert "arith.divsi" in _text(b.build(b.mul(x, quotient)))
