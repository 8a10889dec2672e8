"""What is known of addresses and masks along rows, against the numbers themselves."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
from compiled import CTX

from cleave.bindings import ir
from cleave.lowering import tt
from cleave.lowering.contiguity import Along, Contiguity

SHAPE = (4, 16)


@dataclass(frozen=True)
class Known:
    """A value, and its elements for one choice of the arguments."""

    value: ir.Value
    elements: np.ndarray


class Expressions:
    """Random ones of integers, over arguments of which multiples are known."""

    def __init__(self, seed: int, arguments: list[tuple[ir.Value, int]]) -> None:
        self.random = random.Random(seed)
        self.scalars = [Known(a, np.array(self.random.randrange(-50, 50) * hint)) for a, hint in arguments]

    def scalar(self, depth: int) -> Known:
        choice = self.random.randrange(4) if depth else self.random.randrange(2)
        if choice == 0:
            number = self.random.choice([0, 1, 4, 8, 24, 64])
            return Known(tt.constant(number, tt.scalar("i32")), np.array(number))
        if choice == 1:
            return self.random.choice(self.scalars)
        return self.combined(self.scalar(depth - 1), self.scalar(depth - 1))

    def matrix(self, depth: int) -> Known:
        choice = self.random.randrange(6) if depth else self.random.randrange(3)
        if choice == 0:
            return self.splat()
        if choice in (1, 2):
            return self.along(choice - 1)
        return self.combined(self.matrix(depth - 1), self.matrix(depth - 1))

    def splat(self) -> Known:
        x = self.scalar(1)
        return Known(tt.splat(x.value, SHAPE), np.full(SHAPE, x.elements))

    def along(self, axis: int) -> Known:
        line = self.line(SHAPE[axis])
        value = tt.broadcast(tt.expand_dims(line.value, 1 - axis), SHAPE)
        return Known(value, np.broadcast_to(np.expand_dims(line.elements, 1 - axis), SHAPE))

    def line(self, extent: int) -> Known:
        x, line = self.scalar(1), Known(tt.make_range(extent), np.arange(extent))
        return self.combined(line, Known(tt.splat(x.value, (extent,)), np.full((extent,), x.elements)))

    def combined(self, a: Known, b: Known) -> Known:
        names = {"addi": np.add, "subi": np.subtract, "muli": np.multiply, "minsi": np.minimum, "maxsi": np.maximum}
        name = self.random.choice(["addi", *names])
        return Known(tt.same(f"arith.{name}", a.value, b.value), names[name](a.elements, b.elements))

    def comparison(self) -> Known:
        a, b = self.along(1), self.random.choice([self.splat(), self.matrix(1)])
        predicates = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ge": np.greater_equal, "gt": np.greater}
        name = self.random.choice(list(predicates))
        return Known(tt.compare(name, a.value, b.value), predicates[name](a.elements, b.elements))


def holds(found: Along, elements: np.ndarray) -> bool:
    """Whether runs, equal elements and multiples are as they are said to be; 0 stands for any number."""
    lines = np.atleast_2d(elements).astype(np.int64)
    extent = lines.shape[1]
    equal, run = (math.gcd(number, extent) for number in (found.equal, found.run))
    groups = lines.reshape(-1, equal)
    runs = lines.reshape(-1, run)
    multiples = runs[:, 0] % found.divisor == 0 if found.divisor else runs[:, 0] == 0
    counts = runs - runs[:, :1] == np.arange(run)
    return bool((groups == groups[:, :1]).all() and counts.all() and multiples.all())


def test_what_is_known_holds() -> None:
    known = 0
    for seed in range(10):
        with CTX, ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                function = tt.create("tt.func", [], [], {}, regions=1)
            block = ir.Block.create_at_start(function.regions[0], [tt.scalar("i32")] * 3)
            hints = dict(zip(block.arguments, (2, 4, 16), strict=True))
            with ir.InsertionPoint(block):
                expressions = Expressions(seed, list(hints.items()))
                matrices = [expressions.matrix(2) for _ in range(40)] + [expressions.comparison() for _ in range(40)]
                scalars = [expressions.scalar(3) for _ in range(20)]
            analysis = Contiguity(hints)
            for pair in (*matrices, *scalars):
                found = analysis.along(pair.value)
                assert holds(found, pair.elements), f"{found}\n{pair.elements}\n{pair.value}"
            known += sum(found.run > 1 or found.equal > 1 for found in map(analysis.along, (m.value for m in matrices)))
    assert known > 50
