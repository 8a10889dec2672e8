"""Pairs of random programs, judged by the normal form and by NumPy in f64: the two may never disagree.

A pair is two unrelated terms, or a term and the same with one op changed: sometimes by a law, mostly by a mistake. The
normal form may miss an equality, which is counted; an equality that NumPy refutes is a failure.

    .venv/bin/python test/py/random_pairs.py --pairs 20000 --seed 1
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from random_terms import SIZES, Fuzzer, aligned, draw
from search_programs import evaluate

from cleave.dialects.graph import Graph, Value
from cleave.errors import CleaveError
from cleave.search.binders import Algebra
from cleave.search.lift import Lifter, Unliftable
from cleave.search.terms import OutOfFuel

MAX_OPS = 24
DRAWS = 4


@dataclass
class Counts:
    """``equal``: both say so. ``missed``: only NumPy does. ``refuted``: pairs that only the normal form calls equal."""

    pairs: int = 0
    equal: int = 0
    different: int = 0
    missed: int = 0
    undecided: int = 0
    refuted: list[str] | None = None

    def __str__(self) -> str:
        wrong = len(self.refuted or ())
        return (
            f"{self.pairs} pairs: {self.equal} equal by both, {self.different} different by both, {self.missed} equal "
            f"by NumPy only, {self.undecided} without a finite sample; {wrong} equal by the normal form only"
        )


# --- one op changed --------------------------------------------------------------------------------------------------

Change = Callable[["Changer", Value], Value | None]


class Changer:
    """Makes a program with one op changed; ``rng`` picks the op and the change."""

    def __init__(self, fuzzer: Fuzzer) -> None:
        self.fuzzer, self.rng, self.b = fuzzer, fuzzer.random, fuzzer.terms.b

    def changed(self, root: Value) -> Value | None:
        """The term with one op replaced, or None where nothing fits."""
        graph = Graph("t", self.b.build().inputs, (root,))
        values = [v for v in graph.topological() if v.op in CHANGED]
        if not values:
            return None
        target = self.rng.choice(values)
        name = self.rng.choice([name for name, (ops, _) in CHANGES.items() if target.op in ops])
        try:
            made = CHANGES[name][1](self, target)
            return None if made is None else self._rebuilt(graph, {target: made})[root]
        except CleaveError:
            return None  # the change does not type-check

    def _rebuilt(self, graph: Graph, new: Mapping[Value, Value]) -> dict[Value, Value]:
        made = dict(new)
        for value in graph.topological():
            if value in made:
                continue
            operands = tuple(made[operand] for operand in value.operands)
            if operands == value.operands:
                made[value] = value
            else:
                dtype = value.dtype if value.op == "cast" else None
                made[value] = self.b.op(value.op, *operands, dtype=dtype, **value.attrs)
        return made

    def exchange_op(self, value: Value) -> Value:
        others = [op for op in ("add", "sub", "mul", "div", "max", "min") if op != value.op]
        return self.b.op(self.rng.choice(others), *value.operands)

    def exchange_function(self, value: Value) -> Value:
        others = [op for op in ("neg", "exp", "abs", "tanh", "sigmoid", "exp2") if op != value.op]
        return self.b.op(self.rng.choice(others), *value.operands)

    def exchange_operands(self, value: Value) -> Value:
        """The two operands, or the two sides of a select."""
        return self.b.op(value.op, *value.operands[:-2], value.operands[-1], value.operands[-2], **value.attrs)

    def drop(self, value: Value) -> Value:
        return self.rng.choice(value.operands)

    def other_dim(self, value: Value) -> Value | None:
        names = [n for o in value.operands for n in o.names if n not in value.attrs["over"]]
        if not names:
            return None
        return self.b.op(value.op, *value.operands, **{**value.attrs, "over": [self.rng.choice(names)]})

    def other_kind(self, value: Value) -> Value:
        kinds = [kind for kind in ("sum", "max", "min", "prod") if kind != value.attrs["kind"]]
        return self.b.reduce(value.operands[0], kind=self.rng.choice(kinds), over=list(value.attrs["over"]))

    def other_predicate(self, value: Value) -> Value:
        predicates = [p for p in ("lt", "le", "gt", "ge", "eq", "ne") if p != value.attrs["predicate"]]
        return self.b.cmp(*value.operands, predicate=self.rng.choice(predicates))

    def other_constant(self, value: Value) -> Value:
        number = self.rng.choice([0.0, 1.0, -1.0, 2.0, 0.5, value.attrs["value"] + 1e-3])
        return Value(value.op, (), value.type, {**value.attrs, "value": number})

    def move_factor(self, value: Value) -> Value | None:
        """A factor of what is reduced, outside of the reduction: right for a sum if it does not have the dim."""
        (operand,) = value.operands
        if operand.op not in ("mul", "div"):
            return None
        inside, outside = operand.operands if operand.op == "div" else self.rng.sample(operand.operands, 2)
        reduced = self.b.reduce(inside, kind=value.attrs["kind"], over=list(value.attrs["over"]))
        return self.b.op(operand.op, reduced, outside)

    def distribute(self, value: Value) -> Value | None:
        """f(a·b) as f(a)·f(b), f(a+b) as f(a)+f(b)."""
        operand = value.operands[0]
        if operand.op not in ("add", "sub", "mul", "div", "max"):
            return None
        attrs = value.attrs if value.op == "reduce" else {}
        parts = [self.b.op(value.op, part, **attrs) for part in operand.operands]
        joined = {"exp": {"add": "mul", "sub": "div"}, "log": {"mul": "add", "div": "sub"}}.get(value.op, {})
        right = self.rng.random() < 0.5
        return self.b.op(joined.get(operand.op, operand.op) if right else operand.op, *parts)

    def associate(self, value: Value) -> Value | None:
        """(a∘b)∘c as a∘(b∘c): right for some ops."""
        left, c = value.operands
        if left.op != value.op or value.op == "contract":
            return None
        return self.b.op(value.op, left.operands[0], self.b.op(value.op, left.operands[1], c))

    def cancel(self, value: Value) -> Value | None:
        """√(x·x) as x, exp(log x) and log(exp x) as x, x/y·y as x."""
        (operand,) = value.operands if len(value.operands) == 1 else (value.operands[0],)
        undone = {"sqrt": "mul", "exp": "log", "log": "exp", "abs": "neg", "neg": "neg", "mul": "div", "div": "mul"}
        return operand.operands[0] if undone.get(value.op) == operand.op else None


_BINARY = frozenset("add sub mul div max min".split())
_UNARY = frozenset("neg exp abs tanh sqrt rsqrt log".split())
CHANGES: Mapping[str, tuple[frozenset[str], Change]] = {
    "another op": (_BINARY, Changer.exchange_op),
    "another function": (_UNARY, Changer.exchange_function),
    "operands exchanged": (_BINARY | {"contract", "select"}, Changer.exchange_operands),
    "an op left out": (_BINARY | _UNARY, Changer.drop),
    "another dim": (frozenset(("reduce", "contract")), Changer.other_dim),
    "another reduction": (frozenset(("reduce",)), Changer.other_kind),
    "another comparison": (frozenset(("cmp",)), Changer.other_predicate),
    "another constant": (frozenset(("constant",)), Changer.other_constant),
    "a factor moved out": (frozenset(("reduce",)), Changer.move_factor),
    "distributed": (_UNARY | {"reduce"}, Changer.distribute),
    "associated": (_BINARY, Changer.associate),
    "cancelled": (_BINARY | _UNARY, Changer.cancel),
}
CHANGED = frozenset().union(*(ops for ops, _ in CHANGES.values()))


# --- pairs -----------------------------------------------------------------------------------------------------------


def pairs(seed: int) -> Iterator[tuple[Fuzzer, Value, Value]]:
    """Pairs of terms of one fuzzer, without end: every third unrelated, the others with one op or two changed."""
    number = 0
    while True:
        fuzzer = Fuzzer(f"{seed}:{number}")
        number += 1
        changer = Changer(fuzzer)
        for _ in range(60):
            value = fuzzer.grow()
            if len(Graph("t", (), (value,)).topological()) > MAX_OPS:
                continue
            fuzzer.pool.append(value)
            if fuzzer.random.random() < 1 / 3:
                yield fuzzer, value, fuzzer.random.choice(fuzzer.pool)
                continue
            other = changer.changed(value)
            if other is not None and fuzzer.random.random() < 0.3:
                other = changer.changed(other)
            if other is not None and other is not value:
                yield fuzzer, value, other


class Judge:
    """Both opinions on a pair; a fuzzer's inputs are drawn once."""

    def __init__(self) -> None:
        self._inputs: dict[Fuzzer, list[list[Any]]] = {}

    def judge(self, counts: Counts, fuzzer: Fuzzer, one: Value, other: Value) -> None:
        inputs = fuzzer.terms.b.build().inputs
        sides = [Graph("t", inputs, (value,)) for value in (one, other)]
        lifter = Lifter(Algebra())
        try:
            left, right = (lifter.lift(side)[side.outputs[0]] for side in sides)
        except (OutOfFuel, Unliftable, CleaveError):
            return
        counts.pairs += 1
        finite, same = self._compare(fuzzer, sides)
        if left is right and not same:
            counts.refuted = [*(counts.refuted or []), "\n".join(map(str, sides))]
        elif not finite:
            counts.undecided += 1
        elif left is right:
            counts.equal += 1
        elif same:
            counts.missed += 1
        else:
            counts.different += 1

    def _compare(self, fuzzer: Fuzzer, sides: list[Graph]) -> tuple[bool, bool]:
        """Whether an element of some draw is finite on both sides, and whether all those agree."""
        if fuzzer not in self._inputs:
            self._inputs = {fuzzer: [draw(sides[0], number) for number in range(DRAWS)]}
        finite, same = False, True
        for inputs in self._inputs[fuzzer]:
            arrays = [evaluate(side, inputs, SIZES)[0] for side in sides]
            a, b = aligned(*((array, side.outputs[0].names) for array, side in zip(arrays, sides, strict=True)))
            usable = np.isfinite(a) & np.isfinite(b) & (np.abs(a) < 1e6) & (np.abs(b) < 1e6)
            finite = finite or bool(usable.any())
            same = same and bool(np.allclose(a[usable], b[usable], rtol=1e-5, atol=1e-5))
        return finite, same


def run(seed: int, count: int, seconds: float = float("inf")) -> Counts:
    """Judge ``count`` pairs, fewer if the time is over."""
    counts, judge = Counts(), Judge()
    end = time.process_time() + seconds
    for fuzzer, one, other in pairs(seed):
        judge.judge(counts, fuzzer, one, other)
        if counts.pairs >= count or time.process_time() > end:
            return counts
    raise AssertionError("pairs do not end")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start = time.process_time()
    counts = run(options.seed, options.pairs)
    for text in counts.refuted or ():
        print(text, end="\n\n")
    print(f"seed {options.seed}: {counts}; {time.process_time() - start:.0f} s")
    return bool(counts.refuted)


if __name__ == "__main__":
    raise SystemExit(main())
