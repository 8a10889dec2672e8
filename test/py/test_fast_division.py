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


FAST: dict[str, Build] = {
    "rounded": lambda b, x, y: _half(b, b.div(x, y)),
    "sigmoid": lambda b, x, y: _half(b, b.sigmoid(x)),
    "gate": lambda b, x, y: _half(b, b.mul(b.mul(x, b.sigmoid(x)), y)),
    "of a quotient": lambda b, x, y: _half(b, b.div(b.div(x, y), y)),
    "clamped": lambda b, x, y: _half(b, b.max(b.neg(b.div(x, y)), b.constant(0.5, "f32"))),
    "bf16": lambda b, x, y: b.cast(b.div(x, y), dtype="bf16"),
}
PRECISE: dict[str, Build] = {
    "by a constant": lambda b, x, y: b.mul(b.div(x, b.constant(3.0, "f32")), y),
    "f32": lambda b, x, y: b.div(x, y),
    "gate in f32": lambda b, x, y: b.mul(x, b.sigmoid(x)),
    "a difference": lambda b, x, y: _half(b, b.sub(b.div(x, y), b.constant(1.0, "f32"))),
    "a logarithm": lambda b, x, y: _half(b, b.log(b.div(x, y))),
    "an exponential": lambda b, x, y: _half(b, b.exp(b.mul(b.div(x, y), y))),
    "both": lambda b, x, y: b.add(b.cast(_half(b, b.div(x, y)), dtype="f32"), b.div(x, y)),
}


ROOTS: dict[str, tuple[Build, bool]] = {
    "rounded": (lambda b, _, y: _half(b, b.sqrt(y)), False),
    "bf16": (lambda b, _, y: b.cast(b.sqrt(y), dtype="bf16"), True),
    "a divisor": (lambda b, x, y: _half(b, b.div(x, b.sqrt(y))), True),
    "a factor": (lambda b, x, y: _half(b, b.mul(x, b.sqrt(y))), True),
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
