"""Maxima of monotone functions: the normal form, the prime fields and floats agree on what commutes with a maximum."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from discovery_programs import PROGRAMS

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.search import superoptimise
from cleave.search.binders import Algebra
from cleave.search.fingerprint import FingerprintChecker
from cleave.search.floats import FloatChecker
from cleave.search.lift import Lifter

Function = Callable[[GraphBuilder, Value], Value]


def over(kind: str, f: Function, g: Function = lambda b, x: x) -> Graph:
    """``f`` of the maximum or minimum over n of ``g(x)``."""
    b = GraphBuilder("term")
    x, _ = b.input("m n", "f32"), b.input("m", "f32")
    return b.build(f(b, b.reduce(g(b, x), kind=kind, over=["n"])))


def pointwise(name: str) -> Function:
    return lambda b, x: getattr(b, name)(x)


def number(b: GraphBuilder, value: float) -> Value:
    return b.constant(value, "f32")


def affine(b: GraphBuilder, x: Value) -> Value:
    return b.add(b.mul(x, number(b, 2.0)), number(b, 1.0))


def falling(b: GraphBuilder, x: Value) -> Value:
    return b.rsqrt(b.add(b.exp(x), number(b, 1.0)))


def composed(b: GraphBuilder, x: Value) -> Value:
    return b.log(b.add(b.exp(b.mul(b.tanh(x), number(b, 3.0))), number(b, 1.0)))


def scaled_exp(b: GraphBuilder, x: Value) -> Value:
    """Times a factor whose sign is known."""
    return b.mul(b.exp(x), b.exp(b.inputs[1]))


def minus_exp(b: GraphBuilder, x: Value) -> Value:
    return b.neg(b.exp(x))


RISING = [*map(pointwise, ("exp", "exp2", "tanh", "erf", "sigmoid")), affine, composed, scaled_exp]
FALLING = [pointwise("neg"), falling, minus_exp]
OTHER: dict[str, tuple[Function, str, Function]] = {
    "square": (lambda b, x: b.mul(x, x), "max", lambda b, x: b.mul(x, x)),
    "absolute value": (pointwise("abs"), "max", pointwise("abs")),
    "reciprocal": (lambda b, x: b.div(number(b, 1.0), x), "min", lambda b, x: b.div(number(b, 1.0), x)),
    "factor of unknown sign": (lambda b, x: b.mul(x, b.inputs[1]), "max", lambda b, x: b.mul(x, b.inputs[1])),
    "exponential times that": (
        lambda b, x: b.mul(b.exp(x), b.inputs[1]),
        "max",
        lambda b, x: b.mul(b.exp(x), b.inputs[1]),
    ),
    "rising, as if it fell": (pointwise("tanh"), "min", pointwise("tanh")),
    "falling, as if it rose": (minus_exp, "max", minus_exp),
    "a sum of two that depend": (
        lambda b, x: b.add(b.exp(x), x),
        "min",
        lambda b, x: b.add(b.exp(x), x),
    ),
}


def verdicts(one: Graph, other: Graph) -> tuple[bool, bool, bool]:
    """Whether the normal forms, the fields and floats find them equal."""
    lifter = Lifter(Algebra())
    forms = [lifter.lift(graph)[graph.outputs[0]] for graph in (one, other)]
    fingerprint, _ = FingerprintChecker(one, 0, {}).check(other)
    assert fingerprint is None or fingerprint.samples > 0
    floats, _ = FloatChecker(one, 0, {}).check(other)
    return forms[0] is forms[1], fingerprint is not None, floats is not None


@pytest.mark.parametrize("f", RISING)
def test_rising_functions_commute(f: Function) -> None:
    identity: Function = lambda b, x: x  # noqa: E731
    for kind in ("max", "min"):
        assert verdicts(over(kind, identity, f), over(kind, f)) == (True, True, True)


@pytest.mark.parametrize("f", FALLING)
def test_falling_functions_turn_maxima_into_minima(f: Function) -> None:
    identity: Function = lambda b, x: x  # noqa: E731
    for kind, opposite in (("max", "min"), ("min", "max")):
        assert verdicts(over(kind, identity, f), over(opposite, f)) == (True, True, True)
        assert not any(verdicts(over(kind, identity, f), over(kind, f)))


@pytest.mark.parametrize("name", OTHER)
def test_what_does_not_commute(name: str) -> None:
    outside, kind, inside = OTHER[name]
    assert not any(verdicts(over("max", lambda b, x: x, inside), over(kind, outside)))


def test_roots_and_signs() -> None:
    """Of numbers that have a root, and of those that are known to be positive."""
    lifter = Lifter(Algebra())

    def same(f: Function, kind: str) -> bool:
        graphs = over("max", lambda b, x: x, f), over(kind, f)
        forms = [lifter.lift(graph)[graph.outputs[0]] for graph in graphs]
        return forms[0] is forms[1]

    positive: Function = lambda b, x: b.div(number(b, 1.0), b.add(b.exp(x), number(b, 2.0)))  # noqa: E731
    assert same(pointwise("sqrt"), "max") and same(pointwise("rsqrt"), "min") and same(pointwise("log"), "max")
    assert same(positive, "min") and not same(positive, "max")
    assert not same(lambda b, x: b.div(number(b, 1.0), b.add(b.tanh(x), number(b, 0.5))), "min")


def test_the_largest_probability_is_one_over_the_sum() -> None:
    """max exp(z - max z) = 1, so no maximum of the probabilities is taken; the fields judge it."""
    source, *others = superoptimise(PROGRAMS["top_probability"]()).alternatives
    best = others[0]
    values = best.graph.topological()
    assert sum(v.op == "reduce" and v.attrs["kind"] == "max" for v in values) == 1
    assert best.graph.outputs[0].op == "div" and best.cost.dominates(source.cost)
    assert best.cost.depth == source.cost.depth - 1
    assert best.certificate.fingerprint is not None and best.certificate.fingerprint.samples > 0
