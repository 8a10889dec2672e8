"""Random terms over shared inputs, for fuzzing the normal form, the fingerprint and the search."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from cleave.dialects.dims import Dim
from cleave.dialects.graph import Graph, GraphBuilder, Value

SIZES = {"m": 3, "n": 4, "k": 5, "e": 2, "s": 3, "g": 2, "p": 4}


class Terms:
    """Inputs under short names, and ops as operators would be."""

    def __init__(self) -> None:
        self.b = b = GraphBuilder("terms")
        self.x, self.y, self.a = b.input("m k", "f64"), b.input("m k", "f64"), b.input("k n", "f64")
        self.v, self.z, self.c = b.input("n e", "f64"), b.input("m n", "f64"), b.input("m", "f64")
        self.w, self.d, self.u = b.input("k", "f64"), b.input("", "f64"), b.input("n k", "f64")
        self.i, self.j, self.t = b.input("m", "i64"), b.input("m", "i64"), b.input("n", "f64")
        self.h = b.input("m k", "f16")
        self.add, self.sub, self.mul, self.div, self.exp, self.log = b.add, b.sub, b.mul, b.div, b.exp, b.log
        self.sqrt, self.rsqrt, self.neg, self.abs, self.max, self.min = b.sqrt, b.rsqrt, b.neg, b.abs, b.max, b.min

    def num(self, value: float) -> Value:
        return self.b.constant(value, "f64")

    def sum(self, x: Value, *over: str) -> Value:
        return self.b.reduce(x, kind="sum", over=list(over))

    def top(self, x: Value, *over: str) -> Value:
        return self.b.reduce(x, kind="max", over=list(over))

    def low(self, x: Value, *over: str) -> Value:
        return self.b.reduce(x, kind="min", over=list(over))

    def dot(self, x: Value, y: Value, *over: str) -> Value:
        return self.b.contract(x, y, over=list(over))

    def softmax(self, z: Value, over: str = "n") -> Value:
        p = self.exp(self.sub(z, self.top(z, over)))
        return self.div(p, self.sum(p, over))

    def cut(self, x: Value, dim: str = "n") -> Value:
        return self.b.split(x, dim=dim, into=["s", f"t=ceildiv({dim}, s)"])

    def square(self, x: Value) -> Value:
        return self.mul(x, x)

    def eps(self, x: Value, value: float = 0.5) -> Value:
        return self.add(x, self.num(value))

    def less(self, x: Value, y: Value) -> Value:
        return self.b.cmp(x, y, predicate="lt")

    def equal(self, x: Value, y: Value) -> Value:
        return self.b.cmp(x, y, predicate="eq")

    def nothing(self, dim: str) -> Value:
        """Whether the dim is empty."""
        ones = self.b.constant(1.0, "f64", (Dim.parse(dim),))
        return self.equal(self.sum(ones, dim), self.num(0.0))

    def parts(self, z: Value) -> tuple[Value, Value]:
        """The sum of exp(z - M) by parts of n, and M."""
        cut = self.cut(z)
        own = self.top(cut, "t")
        whole = self.top(own, "s")
        inner = self.sum(self.exp(self.sub(cut, own)), "t")
        return self.sum(self.mul(self.exp(self.sub(own, whole)), inner), "s"), whole


def draw(graph: Graph, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    arrays: list[Any] = []
    for value in graph.inputs:
        shape = [dim.size.evaluate(SIZES) for dim in value.dims]
        arrays.append(rng.integers(-9, 9, size=shape) if value.dtype == "i64" else rng.standard_normal(shape))
    return arrays


def aligned(*sides: tuple[Any, Any]) -> list[Any]:
    """The arrays with the same axes; a dim that only one side has is repeated in the other."""
    union = sorted({name for _, names in sides for name in names})
    arrays: list[Any] = []
    for array, names in sides:
        order = [names.index(name) for name in union if name in names]
        arrays.append(array.transpose(order)[tuple(slice(None) if name in names else None for name in union)])
    return [np.atleast_1d(array) for array in np.broadcast_arrays(*arrays)]


class Fuzzer:
    """Random terms over shared inputs, all in one algebra."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)
        self.terms = Terms()
        self.pool = [getattr(self.terms, name) for name in "x y a v z c w d t".split()]
        self.pool += [self.terms.num(value) for value in (1.0, 2.0, -1.0, 0.5)]

    def grow(self) -> Value:
        e, pick = self.terms, self.random.choice
        a, b = pick(self.pool), pick(self.pool[-24:])
        op = pick(
            "add sub mul mul div exp neg square sqrt rsqrt abs max log sum sum top dot dot cut tanh where".split()
        )
        if op in ("add", "sub", "mul", "div", "max"):
            return getattr(e, op)(a, b)
        if op in ("exp", "neg", "square", "abs", "log"):
            return getattr(e, op)(b)
        if op in ("sqrt", "rsqrt"):
            return getattr(e, op)(e.eps(e.square(b)) if self.random.random() < 0.5 else b)
        if op == "tanh":
            return e.b.tanh(b)
        if op == "where":
            return e.b.select(e.less(a, e.num(0.25)), b, e.num(0.0))
        dims = [*a.names, *b.names] if op == "dot" else list(b.names)
        if not dims:
            return e.neg(b)
        dim = pick(dims)
        if op == "dot":
            return e.dot(a, b, dim)
        if op == "cut" and dim in ("n", "k") and not {"s", "t"} & set(b.names):
            cut = e.b.split(b, dim=dim, into=["s", f"t{dim}=ceildiv({dim}, s)"])
            return e.sum(e.sum(cut, f"t{dim}"), "s")
        return (e.top if op == "top" else e.sum)(b, dim)
