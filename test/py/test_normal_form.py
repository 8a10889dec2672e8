"""The normal form: what it must call equal, what it must not, and random terms against NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import random_pairs
from random_terms import SIZES, Fuzzer, Terms, aligned, draw
from search_programs import PROGRAMS, evaluate

from cleave.dialects import rounding
from cleave.dialects.graph import Graph, Value
from cleave.errors import CleaveError
from cleave.search import binders, normal_form
from cleave.search.binders import Algebra
from cleave.search.lift import _FLOAT, Lifter, Unliftable
from cleave.search.terms import OutOfFuel

Row = tuple[str, Callable[[Terms], Value], Callable[[Terms], Value]]

EQUAL: list[Row] = [
    ("commuted sum", lambda e: e.add(e.x, e.y), lambda e: e.add(e.y, e.x)),
    ("distribution", lambda e: e.mul(e.c, e.add(e.x, e.y)), lambda e: e.add(e.mul(e.c, e.x), e.mul(e.c, e.y))),
    (
        "difference of squares",
        lambda e: e.mul(e.add(e.x, e.y), e.sub(e.x, e.y)),
        lambda e: e.sub(e.square(e.x), e.square(e.y)),
    ),
    ("division is multiplication", lambda e: e.div(e.x, e.c), lambda e: e.mul(e.x, e.div(e.num(1.0), e.c))),
    ("cancelled sum", lambda e: e.div(e.add(e.x, e.y), e.add(e.y, e.x)), lambda e: e.num(1.0)),
    ("cancelled product of sums", lambda e: e.div(e.mul(e.add(e.x, e.y), e.c), e.add(e.x, e.y)), lambda e: e.c),
    (
        "shares of a sum",
        lambda e: e.add(e.div(e.x, e.add(e.x, e.y)), e.div(e.y, e.add(e.x, e.y))),
        lambda e: e.num(1.0),
    ),
    (
        "associative contraction",
        lambda e: e.dot(e.dot(e.x, e.a, "k"), e.v, "n"),
        lambda e: e.dot(e.x, e.dot(e.a, e.v, "n"), "k"),
    ),
    (
        "factor out of a contraction",
        lambda e: e.dot(e.mul(e.x, e.c), e.a, "k"),
        lambda e: e.mul(e.dot(e.x, e.a, "k"), e.c),
    ),
    (
        "gain in the other operand",
        lambda e: e.dot(e.mul(e.x, e.w), e.a, "k"),
        lambda e: e.dot(e.x, e.mul(e.w, e.a), "k"),
    ),
    (
        "contraction of a sum",
        lambda e: e.dot(e.add(e.x, e.y), e.a, "k"),
        lambda e: e.add(e.dot(e.x, e.a, "k"), e.dot(e.y, e.a, "k")),
    ),
    ("sums commute", lambda e: e.sum(e.sum(e.x, "k"), "m"), lambda e: e.sum(e.sum(e.x, "m"), "k")),
    ("unconnected sums", lambda e: e.sum(e.mul(e.c, e.w), "m", "k"), lambda e: e.mul(e.sum(e.c, "m"), e.sum(e.w, "k"))),
    ("row sums of a product", lambda e: e.sum(e.dot(e.x, e.a, "k"), "n"), lambda e: e.dot(e.x, e.sum(e.a, "n"), "k")),
    ("exp of a sum", lambda e: e.exp(e.add(e.x, e.y)), lambda e: e.mul(e.exp(e.x), e.exp(e.y))),
    ("exp of a multiple", lambda e: e.exp(e.mul(e.x, e.num(2.0))), lambda e: e.square(e.exp(e.x))),
    ("exp2", lambda e: e.b.exp2(e.add(e.x, e.y)), lambda e: e.mul(e.b.exp2(e.x), e.b.exp2(e.y))),
    ("log of exp", lambda e: e.log(e.exp(e.x)), lambda e: e.x),
    (
        "log of a product",
        lambda e: e.log(e.mul(e.exp(e.x), e.eps(e.square(e.y)))),
        lambda e: e.add(e.x, e.log(e.eps(e.square(e.y)))),
    ),
    ("softmax without its maximum", lambda e: e.softmax(e.z), lambda e: e.div(e.exp(e.z), e.sum(e.exp(e.z), "n"))),
    ("softmax of shifted scores", lambda e: e.softmax(e.add(e.z, e.c)), lambda e: e.softmax(e.z)),
    ("softmax sums to one", lambda e: e.sum(e.softmax(e.z), "n"), lambda e: e.sum(e.softmax(e.add(e.z, e.c)), "n")),
    (
        "division after the values",
        lambda e: e.dot(e.softmax(e.z), e.v, "n"),
        lambda e: e.div(
            e.dot(e.exp(e.sub(e.z, e.top(e.z, "n"))), e.v, "n"), e.sum(e.exp(e.sub(e.z, e.top(e.z, "n"))), "n")
        ),
    ),
    (
        "log-sum-exp with and without maximum",
        lambda e: e.add(e.log(e.sum(e.exp(e.sub(e.z, e.top(e.z, "n"))), "n")), e.top(e.z, "n")),
        lambda e: e.log(e.sum(e.exp(e.z), "n")),
    ),
    (
        "log-sum-exp in parts",
        lambda e: e.add(e.log(e.parts(e.z)[0]), e.parts(e.z)[1]),
        lambda e: e.log(e.sum(e.exp(e.z), "n")),
    ),
    ("sum in parts", lambda e: e.sum(e.sum(e.cut(e.z), "t"), "s"), lambda e: e.sum(e.z, "n")),
    ("contraction in parts", lambda e: e.sum(e.dot(e.cut(e.z), e.cut(e.v), "t"), "s"), lambda e: e.dot(e.z, e.v, "n")),
    ("maximum in parts", lambda e: e.top(e.top(e.cut(e.z), "t"), "s"), lambda e: e.top(e.z, "n")),
    ("minimum in parts", lambda e: e.low(e.low(e.cut(e.z), "t"), "s"), lambda e: e.low(e.z, "n")),
    ("both parts at once", lambda e: e.sum(e.cut(e.z), "t", "s"), lambda e: e.sum(e.z, "n")),
    ("maximum of a shift", lambda e: e.top(e.add(e.z, e.c), "n"), lambda e: e.add(e.top(e.z, "n"), e.c)),
    (
        "maximum of a positive multiple",
        lambda e: e.top(e.mul(e.z, e.num(3.0)), "n"),
        lambda e: e.mul(e.top(e.z, "n"), e.num(3.0)),
    ),
    (
        "maximum of a positive factor",
        lambda e: e.top(e.mul(e.z, e.exp(e.c)), "n"),
        lambda e: e.mul(e.top(e.z, "n"), e.exp(e.c)),
    ),
    ("minimum is a maximum", lambda e: e.low(e.z, "n"), lambda e: e.neg(e.top(e.neg(e.z), "n"))),
    ("maxima merge", lambda e: e.max(e.max(e.x, e.y), e.c), lambda e: e.max(e.x, e.max(e.c, e.y))),
    ("root of a square of what is positive", lambda e: e.sqrt(e.square(e.exp(e.x))), lambda e: e.exp(e.x)),
    ("root of a square is the absolute value", lambda e: e.sqrt(e.square(e.x)), lambda e: e.abs(e.x)),
    ("absolute value of a negation", lambda e: e.abs(e.sub(e.x, e.y)), lambda e: e.abs(e.sub(e.y, e.x))),
    ("rsqrt", lambda e: e.div(e.x, e.sqrt(e.eps(e.square(e.y)))), lambda e: e.mul(e.x, e.rsqrt(e.eps(e.square(e.y))))),
    ("square of a root", lambda e: e.square(e.sqrt(e.eps(e.square(e.y)))), lambda e: e.eps(e.square(e.y))),
    (
        "square of a reciprocal root",
        lambda e: e.square(e.rsqrt(e.sum(e.square(e.y), "k"))),
        lambda e: e.div(e.num(1.0), e.sum(e.square(e.y), "k")),
    ),
    (
        "scaled root",
        lambda e: e.sqrt(e.mul(e.num(4.0), e.eps(e.square(e.y)))),
        lambda e: e.mul(e.num(2.0), e.sqrt(e.eps(e.square(e.y)))),
    ),
    (
        "scaled root of a prime",
        lambda e: e.sqrt(e.mul(e.num(3.0), e.eps(e.square(e.y)))),
        lambda e: e.mul(e.sqrt(e.num(3.0)), e.sqrt(e.eps(e.square(e.y)))),
    ),
    (
        "root of a fraction",
        lambda e: e.rsqrt(e.div(e.eps(e.square(e.y)), e.num(5.0))),
        lambda e: e.div(e.sqrt(e.num(5.0)), e.sqrt(e.eps(e.square(e.y)))),
    ),
    (
        "one-pass variance",
        lambda e: e.sum(e.square(e.sub(e.x, e.c)), "k"),
        lambda e: e.add(
            e.sub(e.sum(e.square(e.x), "k"), e.mul(e.num(2.0), e.mul(e.c, e.sum(e.x, "k")))),
            e.sum(e.square(e.add(e.c, e.mul(e.w, e.num(0.0)))), "k"),
        ),
    ),
    ("sigmoid", lambda e: e.b.sigmoid(e.x), lambda e: e.div(e.num(1.0), e.add(e.num(1.0), e.exp(e.neg(e.x))))),
    ("power", lambda e: e.b.pow(e.x, e.num(3.0)), lambda e: e.mul(e.x, e.square(e.x))),
    (
        "select times a factor",
        lambda e: e.sum(e.mul(e.b.select(e.less(e.c, e.d), e.num(0.0), e.z), e.t), "n"),
        lambda e: e.b.select(e.less(e.c, e.d), e.num(0.0), e.sum(e.mul(e.z, e.t), "n")),
    ),
    (
        "select of nothing twice",
        lambda e: e.b.select(e.less(e.x, e.y), e.b.select(e.less(e.x, e.y), e.x, e.num(0.0)), e.num(0.0)),
        lambda e: e.b.select(e.less(e.x, e.y), e.x, e.num(0.0)),
    ),
    (
        "select on an empty dim beside a sum over it",
        lambda e: e.b.select(e.nothing("n"), e.num(0.0), e.div(e.sum(e.z, "n"), e.sum(e.t, "n"))),
        lambda e: e.div(e.sum(e.z, "n"), e.sum(e.t, "n")),
    ),
    (
        "select on an empty dim under a sum in parts",
        lambda e: e.b.select(e.nothing("n"), e.num(0.0), e.mul(e.c, e.sum(e.sum(e.cut(e.z), "t"), "s"))),
        lambda e: e.mul(e.c, e.sum(e.z, "n")),
    ),
    ("select of equal sides", lambda e: e.b.select(e.less(e.x, e.y), e.c, e.c), lambda e: e.c),
    (
        "renamed and summed",
        lambda e: e.sum(e.b.rename(e.z, **{"from": "n", "to": "g=n"}), "g"),
        lambda e: e.sum(e.z, "n"),
    ),
    (
        "transparent rounding",
        lambda e: e.dot(e.mul(e.h, e.h), e.a, "k"),
        lambda e: e.dot(e.square(e.b.cast(e.h, dtype="f64")), e.a, "k"),
    ),
    (
        "widening cast",
        lambda e: e.b.cast(e.b.cast(e.h, dtype="f32"), dtype="f64"),
        lambda e: e.b.cast(e.h, dtype="f64"),
    ),
]

DIFFERENT: list[Row] = [
    ("softmax over the wrong dim", lambda e: e.softmax(e.z, "n"), lambda e: e.softmax(e.z, "m")),
    (
        "sum over the wrong dim",
        lambda e: e.sum(e.sum(e.z, "n"), "m"),
        lambda e: e.sum(e.mul(e.sum(e.z, "n"), e.c), "m"),
    ),
    (
        "division across its own dim",
        lambda e: e.sum(e.div(e.z, e.t), "n"),
        lambda e: e.div(e.sum(e.z, "n"), e.sum(e.t, "n")),
    ),
    (
        "division under a contraction",
        lambda e: e.dot(e.div(e.z, e.t), e.v, "n"),
        lambda e: e.div(e.dot(e.z, e.v, "n"), e.sum(e.t, "n")),
    ),
    (
        "maximum of a factor of unknown sign",
        lambda e: e.top(e.mul(e.z, e.c), "n"),
        lambda e: e.mul(e.top(e.z, "n"), e.c),
    ),
    (
        "maximum of a negative multiple",
        lambda e: e.top(e.mul(e.z, e.num(-2.0)), "n"),
        lambda e: e.mul(e.top(e.z, "n"), e.num(-2.0)),
    ),
    ("maximum of a scalar factor", lambda e: e.top(e.mul(e.z, e.d), "n"), lambda e: e.mul(e.top(e.z, "n"), e.d)),
    ("root of a square is the number", lambda e: e.sqrt(e.square(e.x)), lambda e: e.x),
    ("root of a fourth power of a product", lambda e: e.sqrt(e.square(e.mul(e.x, e.y))), lambda e: e.mul(e.x, e.y)),
    ("absolute value dropped", lambda e: e.abs(e.x), lambda e: e.x),
    ("absolute value of a sum", lambda e: e.abs(e.add(e.x, e.y)), lambda e: e.add(e.abs(e.x), e.abs(e.y))),
    ("missing eps", lambda e: e.rsqrt(e.eps(e.sum(e.square(e.x), "k"))), lambda e: e.rsqrt(e.sum(e.square(e.x), "k"))),
    (
        "another eps",
        lambda e: e.rsqrt(e.eps(e.sum(e.square(e.x), "k"))),
        lambda e: e.rsqrt(e.eps(e.sum(e.square(e.x), "k"), 0.25)),
    ),
    ("eps outside the root", lambda e: e.sqrt(e.eps(e.square(e.x))), lambda e: e.eps(e.abs(e.x))),
    (
        "log of a sum against sum of logs",
        lambda e: e.log(e.sum(e.exp(e.z), "n")),
        lambda e: e.sum(e.log(e.exp(e.z)), "n"),
    ),
    ("exp of a sum against sum of exps", lambda e: e.exp(e.sum(e.z, "n")), lambda e: e.sum(e.exp(e.z), "n")),
    ("exp of a product", lambda e: e.exp(e.mul(e.x, e.y)), lambda e: e.mul(e.exp(e.x), e.exp(e.y))),
    ("log of a product of unknown sign", lambda e: e.log(e.square(e.x)), lambda e: e.mul(e.num(2.0), e.log(e.x))),
    (
        "log-sum-exp without adding the maximum",
        lambda e: e.log(e.sum(e.exp(e.sub(e.z, e.top(e.z, "n"))), "n")),
        lambda e: e.log(e.sum(e.exp(e.z), "n")),
    ),
    (
        "stabiliser over another dim",
        lambda e: e.sum(e.exp(e.sub(e.z, e.top(e.z, "m"))), "n"),
        lambda e: e.sum(e.exp(e.sub(e.z, e.top(e.z, "n"))), "n"),
    ),
    (
        "sum of squares against square of the sum",
        lambda e: e.sum(e.square(e.x), "k"),
        lambda e: e.square(e.sum(e.x, "k")),
    ),
    (
        "contraction against product of sums",
        lambda e: e.sum(e.mul(e.x, e.w), "k"),
        lambda e: e.mul(e.sum(e.x, "k"), e.sum(e.w, "k")),
    ),
    ("one operand transposed", lambda e: e.dot(e.x, e.a, "k"), lambda e: e.dot(e.x, e.u, "k")),
    ("gain left out", lambda e: e.dot(e.mul(e.x, e.w), e.a, "k"), lambda e: e.dot(e.x, e.a, "k")),
    ("gain twice", lambda e: e.dot(e.mul(e.x, e.w), e.a, "k"), lambda e: e.dot(e.mul(e.x, e.square(e.w)), e.a, "k")),
    ("factor under a nonlinear function", lambda e: e.b.tanh(e.mul(e.x, e.c)), lambda e: e.mul(e.b.tanh(e.x), e.c)),
    ("sigmoid of a scaled argument", lambda e: e.b.sigmoid(e.mul(e.x, e.num(2.0))), lambda e: e.b.sigmoid(e.x)),
    ("sigmoid of the negation", lambda e: e.b.sigmoid(e.x), lambda e: e.b.sigmoid(e.neg(e.x))),
    ("erf against tanh", lambda e: e.b.erf(e.x), lambda e: e.b.tanh(e.x)),
    ("maximum against minimum", lambda e: e.max(e.x, e.y), lambda e: e.min(e.x, e.y)),
    ("maximum of sums", lambda e: e.max(e.add(e.x, e.y), e.c), lambda e: e.add(e.max(e.x, e.c), e.y)),
    (
        "maximum of a product by parts",
        lambda e: e.max(e.mul(e.x, e.c), e.mul(e.y, e.c)),
        lambda e: e.mul(e.max(e.x, e.y), e.c),
    ),
    (
        "maximum over dims against elementwise",
        lambda e: e.top(e.add(e.x, e.y), "k"),
        lambda e: e.add(e.top(e.x, "k"), e.top(e.y, "k")),
    ),
    (
        "sum of maxima against maximum of sums",
        lambda e: e.sum(e.top(e.z, "n"), "m"),
        lambda e: e.top(e.sum(e.z, "m"), "n"),
    ),
    ("sign of a maximum", lambda e: e.top(e.z, "n"), lambda e: e.neg(e.top(e.neg(e.z), "n"))),
    (
        "select with sides exchanged",
        lambda e: e.b.select(e.less(e.x, e.y), e.x, e.y),
        lambda e: e.b.select(e.less(e.x, e.y), e.y, e.x),
    ),
    (
        "select on the other condition",
        lambda e: e.b.select(e.less(e.x, e.y), e.x, e.num(0.0)),
        lambda e: e.b.select(e.less(e.y, e.x), e.x, e.num(0.0)),
    ),
    (
        "select that depends on the summed dim",
        lambda e: e.sum(e.b.select(e.less(e.z, e.c), e.z, e.num(0.0)), "n"),
        lambda e: e.b.select(e.less(e.sum(e.z, "n"), e.c), e.sum(e.z, "n"), e.num(0.0)),
    ),
    (
        "lt against le of integers",
        lambda e: e.b.cast(e.b.cmp(e.i, e.j, predicate="lt"), dtype="f64"),
        lambda e: e.b.cast(e.b.cmp(e.i, e.j, predicate="le"), dtype="f64"),
    ),
    (
        "masked scores against masked probabilities",
        lambda e: e.softmax(e.b.select(e.less(e.z, e.t), e.z, e.b.constant(float("-inf"), "f64"))),
        lambda e: e.b.select(e.less(e.z, e.t), e.softmax(e.z), e.num(0.0)),
    ),
    (
        "soft cap after the mask",
        lambda e: e.b.tanh(e.b.select(e.less(e.z, e.t), e.z, e.num(-30.0))),
        lambda e: e.b.select(e.less(e.z, e.t), e.b.tanh(e.z), e.num(-30.0)),
    ),
    (
        "reordered integer division",
        lambda e: e.mul(e.div(e.i, e.b.constant(2, "i64")), e.b.constant(2, "i64")),
        lambda e: e.i,
    ),
    (
        "integer division of a sum",
        lambda e: e.div(e.add(e.i, e.j), e.b.constant(2, "i64")),
        lambda e: e.add(e.div(e.i, e.b.constant(2, "i64")), e.div(e.j, e.b.constant(2, "i64"))),
    ),
    ("rounding to integers and back", lambda e: e.b.cast(e.b.cast(e.x, dtype="i64"), dtype="f64"), lambda e: e.x),
    (
        "rounding to integers of a sum",
        lambda e: e.b.cast(e.add(e.x, e.y), dtype="i64"),
        lambda e: e.add(e.b.cast(e.x, dtype="i64"), e.b.cast(e.y, dtype="i64")),
    ),
    ("user rounding", lambda e: e.b.cast(e.b.cast(e.x, dtype="f32"), dtype="f64"), lambda e: e.x),
    (
        "user rounding of a sum",
        lambda e: e.b.cast(e.b.cast(e.add(e.x, e.y), dtype="f32"), dtype="f64"),
        lambda e: e.add(
            e.b.cast(e.b.cast(e.x, dtype="f32"), dtype="f64"), e.b.cast(e.b.cast(e.y, dtype="f32"), dtype="f64")
        ),
    ),
    (
        "rounding to another type",
        lambda e: e.b.cast(e.b.cast(e.x, dtype="f32"), dtype="f64"),
        lambda e: e.b.cast(e.b.cast(e.x, dtype="bf16"), dtype="f64"),
    ),
    (
        "one rounding against two",
        lambda e: e.b.cast(e.b.cast(e.x, dtype="f16"), dtype="f64"),
        lambda e: e.b.cast(e.b.cast(e.b.cast(e.x, dtype="bf16"), dtype="f16"), dtype="f64"),
    ),
    (
        "one operand split",
        lambda e: e.sum(e.mul(e.z, e.t), "n"),
        lambda e: e.sum(e.sum(e.mul(e.cut(e.z), e.sum(e.cut(e.t), "s")), "t"), "s"),
    ),
    (
        "parts without rescaling",
        lambda e: e.sum(e.exp(e.sub(e.z, e.top(e.z, "n"))), "n"),
        lambda e: e.sum(e.sum(e.exp(e.sub(e.cut(e.z), e.top(e.cut(e.z), "t"))), "t"), "s"),
    ),
    (
        "parts rescaled the wrong way",
        lambda e: e.parts(e.z)[0],
        lambda e: e.sum(
            e.mul(
                e.exp(e.sub(e.top(e.z, "n"), e.top(e.cut(e.z), "t"))),
                e.sum(e.exp(e.sub(e.cut(e.z), e.top(e.cut(e.z), "t"))), "t"),
            ),
            "s",
        ),
    ),
    ("maximum of parts summed", lambda e: e.top(e.z, "n"), lambda e: e.sum(e.top(e.cut(e.z), "t"), "s")),
    (
        "inner and outer exchanged",
        lambda e: e.top(e.sum(e.cut(e.z), "t"), "s"),
        lambda e: e.sum(e.top(e.cut(e.z), "s"), "t"),
    ),
    ("sigmoid in place of softmax", lambda e: e.softmax(e.z), lambda e: e.b.sigmoid(e.z)),
    (
        "mean of another size",
        lambda e: e.div(e.sum(e.x, "k"), e.num(5.0)),
        lambda e: e.div(e.sum(e.x, "k"), e.num(4.0)),
    ),
    ("variance about zero", lambda e: e.sum(e.square(e.sub(e.x, e.c)), "k"), lambda e: e.sum(e.square(e.x), "k")),
    ("sum of a constant along a dim", lambda e: e.sum(e.add(e.x, e.c), "k"), lambda e: e.add(e.sum(e.x, "k"), e.c)),
    (
        "reciprocal of a sum",
        lambda e: e.div(e.num(1.0), e.add(e.x, e.y)),
        lambda e: e.add(e.div(e.num(1.0), e.x), e.div(e.num(1.0), e.y)),
    ),
    ("root of a sum", lambda e: e.sqrt(e.add(e.square(e.x), e.square(e.y))), lambda e: e.add(e.abs(e.x), e.abs(e.y))),
    ("power of a sum", lambda e: e.square(e.add(e.x, e.y)), lambda e: e.add(e.square(e.x), e.square(e.y))),
    (
        "renamed dims contracted as one",
        lambda e: e.sum(e.mul(e.c, e.b.rename(e.c, **{"from": "m", "to": "g=m"})), "g"),
        lambda e: e.mul(e.sum(e.c, "m"), e.sum(e.c, "m")),
    ),
    (
        "trace against sum of all",
        lambda e: e.sum(e.mul(e.c, e.c), "m"),
        lambda e: e.sum(e.mul(e.c, e.b.rename(e.c, **{"from": "m", "to": "g=m"})), "m", "g"),
    ),
    ("product against sum", lambda e: e.b.reduce(e.x, kind="prod", over=["k"]), lambda e: e.sum(e.x, "k")),
    (
        "product of a factor",
        lambda e: e.b.reduce(e.mul(e.x, e.c), kind="prod", over=["k"]),
        lambda e: e.mul(e.b.reduce(e.x, kind="prod", over=["k"]), e.c),
    ),
    ("exp2 against exp", lambda e: e.b.exp2(e.x), lambda e: e.exp(e.x)),
    ("scale on one side only", lambda e: e.softmax(e.mul(e.z, e.num(0.5))), lambda e: e.softmax(e.z)),
    (
        "guarded quotient times its divisor",
        lambda e: e.mul(e.b.select(e.equal(e.y, e.num(0.0)), e.num(0.0), e.div(e.x, e.y)), e.y),
        lambda e: e.x,
    ),
    ("log of a square", lambda e: e.log(e.square(e.x)), lambda e: e.mul(e.num(2.0), e.log(e.abs(e.eps(e.x))))),
    (
        "root of a product of unknown signs",
        lambda e: e.sqrt(e.mul(e.x, e.y)),
        lambda e: e.mul(e.sqrt(e.x), e.sqrt(e.x)),
    ),
    (
        "another comparison with NaN's side",
        lambda e: e.b.select(e.less(e.x, e.y), e.num(1.0), e.num(0.0)),
        lambda e: e.b.select(e.b.cmp(e.x, e.y, predicate="ge"), e.num(1.0), e.num(0.0)),
    ),
    (
        "select on an empty dim without a sum over it",
        lambda e: e.b.select(e.nothing("n"), e.num(0.0), e.sum(e.x, "k")),
        lambda e: e.sum(e.x, "k"),
    ),
    (
        "select on an empty dim beside a maximum",
        lambda e: e.b.select(e.nothing("n"), e.num(0.0), e.top(e.z, "n")),
        lambda e: e.top(e.z, "n"),
    ),
    (
        "select on an empty dim around a divisor",
        lambda e: e.b.select(e.nothing("n"), e.num(0.0), e.div(e.c, e.sum(e.z, "n"))),
        lambda e: e.div(e.c, e.sum(e.z, "n")),
    ),
    (
        "position along another dim",
        lambda e: e.b.cast(e.b.index(dim="m", dtype="i64"), dtype="f64"),
        lambda e: e.b.cast(e.b.index(dim="n", dtype="i64"), dtype="f64"),
    ),
]


def forms_and_values(row: Row) -> tuple[Any, Any, list[Any]]:
    terms = Terms()
    graph = terms.b.build(row[1](terms), row[2](terms))
    # Each side is lifted as a program of its own: what rounds depends on the uses.
    lifter = Lifter(Algebra())
    sides = [Graph("side", graph.inputs, (output,)) for output in graph.outputs]
    left, right = (lifter.lift(side)[side.outputs[0]] for side in sides)
    samples: list[Any] = []
    for seed in range(3):
        arrays = evaluate(graph, draw(graph, seed), SIZES)
        samples.append(aligned(*zip(arrays, [output.names for output in graph.outputs], strict=True)))
    return left, right, samples


def agree(left: Any, right: Any) -> bool:
    defined = np.isfinite(left) & np.isfinite(right)
    return bool(np.allclose(left[defined], right[defined], rtol=1e-8, atol=1e-8))


@pytest.mark.parametrize("row", EQUAL, ids=lambda row: row[0])
def test_equal(row: Row) -> None:
    left, right, samples = forms_and_values(row)
    assert all(agree(*sample) for sample in samples)
    assert left is right


@pytest.mark.parametrize("row", DIFFERENT, ids=lambda row: row[0])
def test_different(row: Row) -> None:
    left, right, _ = forms_and_values(row)
    assert left is not right


# Over the reals these are equal at every sample, or undefined: roundings, logs of what may be negative, empty
# dims, divisors that are 0.
NO_WITNESS = {
    "select on an empty dim without a sum over it",
    "select on an empty dim beside a maximum",
    "select on an empty dim around a divisor",
    "guarded quotient times its divisor",
    "user rounding",
    "user rounding of a sum",
    "rounding to another type",
    "one rounding against two",
    "log of a product of unknown sign",
}


@pytest.mark.parametrize("row", [row for row in DIFFERENT if row[0] not in NO_WITNESS], ids=lambda row: row[0])
def test_different_pairs_do_differ(row: Row) -> None:
    """The negative rows are real: some sample tells the sides apart."""
    _, _, samples = forms_and_values(row)
    assert any(not agree(left, right) for left, right in samples)


def test_enough_negative_pairs() -> None:
    assert len({row[0] for row in DIFFERENT}) == len(DIFFERENT) >= 60


Careless = Callable[[pytest.MonkeyPatch], None]


def every_sign_is_known(patch: pytest.MonkeyPatch) -> None:
    for module in (normal_form, binders):
        for name in ("atom_nonnegative", "nonnegative", "positive", "poly_positive"):
            patch.setattr(module, name, lambda *_: True, raising=False)


def roundings_do_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounding, "rounds", lambda _: False)


def every_rounding_is_transparent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounding, "transparent", lambda values, outputs: frozenset(values))


def integers_are_reals(patch: pytest.MonkeyPatch) -> None:
    def form(self: Lifter, value: Value, args: list[Any]) -> Any:
        return _FLOAT[value.op](self.algebra, value, args) if value.op in _FLOAT else self._opaque(value, args)

    patch.setattr(Lifter, "_discrete", form)
    patch.setattr(Lifter, "constant", lambda self, value, _: self.algebra.number(Fraction(value.attrs["value"])))


def casts_do_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lifter, "_cast", lambda _, value, arg: arg)


def conditions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lifter, "_select", lambda self, value, args: self.algebra.add(*args[1:]))


def functions_are_linear(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Algebra, "fn", lambda self, name, *args: args[0] if args else self.number(1))


def maxima_are_sums(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Algebra, "max_over", Algebra.sum_over)


# A law that is wrong, and pairs of the negative set that it makes equal.
CARELESS: Mapping[Careless, tuple[str, ...]] = {
    every_sign_is_known: (
        "maximum of a factor of unknown sign", "maximum of a scalar factor", "root of a square is the number",
        "root of a fourth power of a product", "absolute value dropped",
    ),
    roundings_do_nothing: ("user rounding", "user rounding of a sum", "one rounding against two"),
    every_rounding_is_transparent: ("user rounding", "rounding to another type"),
    integers_are_reals: ("reordered integer division", "integer division of a sum"),
    casts_do_nothing: ("rounding to integers and back",),
    conditions_are_forgotten: (
        "select with sides exchanged", "select on the other condition",
        "select on an empty dim without a sum over it", "select on an empty dim beside a maximum",
    ),
    functions_are_linear: ("factor under a nonlinear function", "erf against tanh"),
    maxima_are_sums: ("sum of maxima against maximum of sums", "inner and outer exchanged"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("law", "name"), [(law, name) for law, names in CARELESS.items() for name in names],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)  # fmt: skip
def test_a_careless_law_is_noticed(law: Careless, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative set has a pair that each of these mistakes would call equal."""
    law(monkeypatch)
    left, right, _ = forms_and_values(next(row for row in DIFFERENT if row[0] == name))
    assert left is right


def test_stress_of_programs_lifts_fast() -> None:
    start = time.process_time()
    for make in PROGRAMS.values():
        graph = make()
        algebra = Algebra()
        algebra.extents.update(graph.extents)
        Lifter(algebra).lift(graph)
    assert time.process_time() - start < 2.0


# --- random terms  ---


def fuzz(seed: int, seconds: float, terms: int) -> tuple[int, int]:
    """Terms and merges; AssertionError where the normal form merges what NumPy tells apart."""
    fuzzer = Fuzzer(seed)
    lifter = Lifter(Algebra())
    inputs = [draw(fuzzer.terms.b.build(), number) for number in range(4)]
    graph = fuzzer.terms.b.build()
    known: dict[Any, tuple[Value, list[Any]]] = {}
    count = merges = 0
    end = time.process_time() + seconds
    while count < terms and time.process_time() < end:
        value = fuzzer.grow()
        if len(Graph("t", graph.inputs, (value,)).topological()) > 40:
            fuzzer.pool.pop(self_index(fuzzer))
            continue
        term = Graph("t", graph.inputs, (value,))
        try:
            form = lifter.lift(term)[value]
        except (OutOfFuel, Unliftable, CleaveError):
            continue
        count += 1
        samples = [evaluate(term, arrays, SIZES)[0] for arrays in inputs]
        if form in known:
            merges += 1
            other, expected = known[form]
            for mine, theirs in zip(samples, expected, strict=True):
                assert same_values(mine, theirs, value.names, other.names), f"{term}\n{Graph('t', (), (other,))}"
        else:
            known[form] = (value, samples)
            fuzzer.pool.append(value)
    return count, merges


def self_index(fuzzer: Fuzzer) -> int:
    """Which grown term to forget, so that terms stay small."""
    return fuzzer.random.randrange(13, len(fuzzer.pool)) if len(fuzzer.pool) > 13 else -1


def same_values(mine: Any, theirs: Any, names: Any, others: Any) -> bool:
    """Equal where both are finite and of ordinary size."""
    mine, theirs = aligned((mine, names), (theirs, others))
    usable = np.isfinite(mine) & np.isfinite(theirs) & (np.abs(mine) < 1e6) & (np.abs(theirs) < 1e6)
    return bool(np.allclose(mine[usable], theirs[usable], rtol=1e-5, atol=1e-5))


@pytest.mark.parametrize("seed", range(3))
def test_random_terms(seed: int) -> None:
    count, merges = fuzz(seed, seconds=4.0, terms=1500)
    assert count > 50 and merges > 5


@pytest.mark.parametrize("seed", range(2))
def test_random_pairs(seed: int) -> None:
    """A slice of what `random_pairs.py` runs for longer."""
    counts = random_pairs.run(seed, 400, seconds=4.0)
    assert not counts.refuted, counts.refuted
    assert counts.pairs > 50 and counts.equal > 3 and counts.different > 20


def test_random_pairs_find_a_careless_law(monkeypatch: pytest.MonkeyPatch) -> None:
    every_sign_is_known(monkeypatch)
    assert random_pairs.run(1, 1500, seconds=20.0).refuted
