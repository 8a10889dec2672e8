"""Sizes, facts and dims: laws, round trips and answers against two oracles of their own (Python integers and z3).

The oracles work on the *unsimplified* tree: nested tuples ("+", left, right) with names and integers at the leaves.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from cleave.dialects.dims import (
    Answer,
    Dim,
    Facts,
    Size,
    ceildiv,
    const,
    floordiv,
    maximum,
    minimum,
    mod,
    parse,
    sym,
)
from cleave.errors import CleaveError

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("n", "m", "s")
Tree = Any  # str | int | tuple[str, Tree, Tree]

# ---------------------------------------------------------------- the oracles


class BadDivisor(Exception):
    """A divisor below 1: the assignment is not admitted."""


def run(tree: Tree, values: dict[str, int]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return values[tree]
    kind, a, b = tree[0], run(tree[1], values), run(tree[2], values)
    if kind in ("floordiv", "mod", "ceildiv") and b < 1:
        raise BadDivisor
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "floordiv": lambda: a // b,
        "mod": lambda: a % b,
        "ceildiv": lambda: (a + b - 1) // b,
        "min": lambda: min(a, b),
        "max": lambda: max(a, b),
    }[kind]()


def text_of(tree: Tree) -> str:
    if not isinstance(tree, tuple):
        return str(tree) if not isinstance(tree, int) or tree >= 0 else f"(-{-tree})"
    kind, a, b = tree[0], text_of(tree[1]), text_of(tree[2])
    return f"({a} {kind} {b})" if kind in "+-*" else f"{kind}({a}, {b})"


def z3_of(tree: Tree, admitted: list[z3.BoolRef]) -> z3.ArithRef:
    if isinstance(tree, int):
        return z3.IntVal(tree)
    if isinstance(tree, str):
        return z3.Int(tree)
    kind, a, b = tree[0], z3_of(tree[1], admitted), z3_of(tree[2], admitted)
    if kind in ("floordiv", "mod", "ceildiv"):
        admitted.append(b >= 1)  # then z3's div and mod are floor division and its remainder
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "floordiv": lambda: a / b,
        "mod": lambda: a % b,
        "ceildiv": lambda: (a + b - 1) / b,
        "min": lambda: z3.If(a <= b, a, b),
        "max": lambda: z3.If(a >= b, a, b),
    }[kind]()


RELATIONS = {
    "=": lambda a, b: a == b,
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}


def assignments(names: tuple[str, ...] = NAMES, below: int = 7) -> list[dict[str, int]]:
    return [dict(zip(names, values, strict=True)) for values in itertools.product(range(below), repeat=len(names))]


def build(tree: Tree) -> Size:
    if not isinstance(tree, tuple):
        return const(tree) if isinstance(tree, int) else sym(tree)
    a, b = build(tree[1]), build(tree[2])
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "floordiv": lambda: floordiv(a, b),
        "mod": lambda: mod(a, b),
        "ceildiv": lambda: ceildiv(a, b),
        "min": lambda: minimum(a, b),
        "max": lambda: maximum(a, b),
    }[tree[0]]()


KINDS = ("+", "-", "*", "floordiv", "mod", "ceildiv", "min", "max")
leaves = st.sampled_from([*NAMES, *NAMES, 0, 1, 2, 3, 4, 8, 16, -1, -5])
trees = st.recursive(leaves, lambda inner: st.tuples(st.sampled_from(KINDS), inner, inner), max_leaves=9)
values = st.fixed_dictionaries({name: st.integers(0, 40) for name in NAMES})


def random_tree(rng: random.Random, depth: int, linear: bool = False) -> Tree:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*NAMES, *NAMES, rng.randint(0, 12)])
    kind = rng.choice(KINDS)
    left = random_tree(rng, depth - 1, linear)
    if linear and kind in ("*", "floordiv", "mod", "ceildiv"):
        return kind, left, rng.choice([2, 3, 4, 8])
    return kind, left, random_tree(rng, depth - 1, linear)


def checked(tree: Tree) -> Size | None:
    """The size of a tree; None when it has no value anywhere, which must be why it was refused."""
    try:
        return build(tree)
    except CleaveError as error:
        assert "divisor" in error.message, error
        for point in assignments(below=4):
            with pytest.raises(BadDivisor):
                run(tree, point)
        return None


# ---------------------------------------------------------------- sizes


@settings(max_examples=400, deadline=None)
@given(trees, st.lists(values, min_size=6, max_size=6))
def test_normal_form_has_the_value_of_the_tree(tree: Tree, points: list[dict[str, int]]) -> None:
    size = checked(tree)
    for point in points if size is not None else ():
        try:
            expected = run(tree, point)
        except BadDivisor:
            continue
        assert size.evaluate(point) == expected, (text_of(tree), str(size), point)


@settings(max_examples=300, deadline=None)
@given(trees)
def test_text_round_trip(tree: Tree) -> None:
    size = checked(tree)
    if size is None:
        return
    assert parse(str(size)) is size
    assert parse(text_of(tree)) is size
    assert pickle.loads(pickle.dumps(size)) is size
    assert copy.deepcopy(size) is size


@settings(max_examples=150, deadline=None)
@given(trees, trees, trees)
def test_polynomials_are_a_commutative_ring(x: Tree, y: Tree, z: Tree) -> None:
    a, b, c = checked(x), checked(y), checked(z)
    if a is None or b is None or c is None:
        return
    assert a + b is b + a and a * b is b * a
    assert (a + b) + c is a + (b + c) and (a * b) * c is a * (b * c)
    assert a * (b + c) is a * b + a * c
    assert a - a is const(0) and a + 0 is a and a * 1 is a and a * 0 is const(0) and a * -1 * -1 is a
    assert 5 - a is -(a - 5) and -a + a is const(0)


@settings(max_examples=150, deadline=None)
@given(trees, trees, values)
def test_substitute(tree: Tree, replacement: Tree, point: dict[str, int]) -> None:
    size, value = checked(tree), checked(replacement)
    if size is None or value is None:
        return
    try:
        inner = run(replacement, point)
        expected = run(tree, point | {"n": inner})
        if inner < 0:
            return
        result = size.substitute({"n": value})
    except BadDivisor:
        return
    assert result.evaluate(point) == expected
    assert parse(str(result)) is result


def test_substitution_is_simultaneous() -> None:
    n, m = sym("n"), sym("m")
    assert (2 * n + m).substitute({"n": m, "m": n}) is 2 * m + n
    assert ceildiv(n, 4).substitute({"n": 9}).value == 3


LAWS = [
    # quotients and remainders
    ("floordiv(n*s, s)", "n"),
    ("ceildiv(16*q, 16)", "q"),
    ("mod(n*s, s)", "0"),
    ("s*floordiv(d, s) + mod(d, s)", "d"),
    ("3*m*s*floordiv(d, s) + 3*m*mod(d, s)", "3*m*d"),
    ("mod(mod(n, s), s)", "mod(n, s)"),
    ("floordiv(mod(n, s), s)", "0"),
    ("mod(n + 5*s, s)", "mod(n, s)"),
    ("floordiv(n + 35, 16)", "floordiv(n + 3, 16) + 2"),
    ("ceildiv(n, s)", "floordiv(n + s - 1, s)"),
    ("ceildiv(n, s)", "floordiv(n - 1, s) + 1"),
    ("ceildiv(n, 16)", "floordiv(n + 15, 16)"),
    ("ceildiv(ceildiv(n, 4), 8)", "ceildiv(n, 32)"),
    ("ceildiv(ceildiv(n, a), b)", "ceildiv(n, a*b)"),
    ("floordiv(floordiv(n, a), b)", "floordiv(n, a*b)"),
    ("floordiv(floordiv(n, 4) + m, 8)", "floordiv(n + 4*m, 32)"),
    ("floordiv(6*n, 4*s)", "floordiv(3*n, 2*s)"),
    ("floordiv(n*s, m*s)", "floordiv(n, m)"),
    ("floordiv(4*n + 3, 8)", "floordiv(n, 2)"),
    ("floordiv(4*n + mod(m, 4), 8)", "floordiv(n, 2)"),
    ("floordiv(n*(s + 1), s + 1)", "n"),
    ("floordiv(n + s, s + 1)", "ceildiv(n, s + 1)"),
    ("floordiv(-n, s)", "-ceildiv(n, s)"),
    ("ceildiv(-n, 16)", "-floordiv(n, 16)"),
    ("floordiv(n, 1)", "n"),
    ("ceildiv(0, s)", "0"),
    ("ceildiv(s, s)", "1"),
    ("floordiv(17, 5)*10 + mod(-7, 4) + ceildiv(-7, 4)", "30"),
    ("n/1 + (4*n)/4", "2*n"),
    ("n/s", "floordiv(n, s)"),
    # min and max
    ("min(n, n + 3)", "n"),
    ("max(n, n + m)", "n + m"),
    ("min(n, min(m, min(s, n)))", "min(m, n, s)"),
    ("max(7, n, 3)", "max(n, 7)"),
    ("min(3, 9, 5)", "3"),
    ("max(n, 0)", "n"),
    ("min(n, -1)", "-1"),
    ("min(16*n, 16*m)", "16*min(n, m)"),
    ("min(n*s, m*s)", "s*min(m, n)"),
    ("min(mod(n, 16), 16)", "mod(n, 16)"),
    ("min(floordiv(n, s), n)", "floordiv(n, s)"),
    ("max(s*ceildiv(n, s), n)", "s*ceildiv(n, s)"),
    # polynomials
    ("(n + m)*(n - m)", "n*n - m*m"),
    ("- - -n + 2*-3", "-(n + 6)"),
    ("2 + 3*4 - 10/5", "12"),
]


@pytest.mark.parametrize(("left", "right"), LAWS)
def test_law(left: str, right: str) -> None:
    assert parse(left) is parse(right), (str(parse(left)), str(parse(right)))


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-3", "n", "-n", "2*ceildiv(n, s) + 1", "mod(n, 16)", "m + 3*mod(n, s)", "n*n*s - 4"),
        *("min(m, n, 3)", "64*s - m", "16*ceildiv(n, 16) - n", "h*ceildiv(m, 64)", "floordiv(n + 7, 16)"),
        *("ceildiv(n, 4*s)", "min(n - 64*m, 64)", "floordiv(n, s)"),
    ],
)
def test_canonical_text_is_readable(text: str) -> None:
    assert str(parse(text)) == text


def test_text_does_not_depend_on_the_process() -> None:
    code = (
        "from cleave.dialects.dims import parse; import sys;"
        "print([str(parse(t)) for t in ('b*a+floordiv(z,y)*x-min(q,p,3)', 'max(ceildiv(n,s), m, 4)*k')]);"
        "print([m for m in ('numpy', 'sympy', 'z3', 'mlir', 'triton') if m in sys.modules])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert outputs.pop().endswith("[]\n")


def test_constants_symbols_and_identity() -> None:
    assert parse("3*4").value == 12 and const(0).value == 0 and sym("n").value is None
    assert parse("n*0 + ceildiv(m, s)").symbols == {"m", "s"}
    assert len({parse("n + m"), parse("m + n"), sym("n")}) == 2


def test_evaluate_refuses_what_has_no_value() -> None:
    with pytest.raises(CleaveError, match="'m' has no value"):
        parse("n + m").evaluate({"n": 1})
    with pytest.raises(CleaveError, match="'n' is -1; sizes are at least 0"):
        sym("n").evaluate({"n": -1})
    with pytest.raises(CleaveError, match=r"divisor of ceildiv\(n, s\) is 0; a divisor must be at least 1"):
        parse("ceildiv(n, s)").evaluate({"n": 4, "s": 0})
    with pytest.raises(CleaveError, match="divisor"):
        floordiv(sym("n"), 0)
    assert parse("floordiv(n*s, s)").evaluate({"n": 4, "s": 0}) == 4  # documented: the divisor is gone


def test_division_by_large_numbers_is_exact() -> None:
    big = 10**30
    assert parse("ceildiv(n, 7)").evaluate({"n": big}) == -(-big // 7)


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("n + * 2", 5, "expected a number, a name or '(', found '*'"),
        ("", 1, "found the end"),
        ("   ", 4, "found the end"),
        ("foo(n)", 4, "expected an operator, found '('"),
        ("min(n)", 1, "min takes at least two arguments, not 1"),
        ("mod(n, 2, 3)", 1, "mod takes two arguments, not 3"),
        ("n $ 2", 3, "unexpected character '$'"),
        ("(n + 1", 7, "expected ')' to close the group"),
        ("min(n, 2", 9, "expected ')' to close min(...)"),
        ("min + 2", 5, "expected '(' after min"),
        ("1 2", 3, "expected an operator, found '2'"),
        ("2n", 2, "expected an operator, found 'n'"),
        ("1 + floordiv(n, 0)", 5, "a divisor must be at least 1"),
        ("n / (2 - 2)", 3, "a divisor must be at least 1"),
        ("é", 1, "unexpected character"),
        ("²", 1, "unexpected character"),
        ("9" * 5000, 4097, "more than the 4096 allowed"),
        ("1" + "0" * 50, 1, "an integer of 51 digits"),
    ],
)
def test_parse_errors_point_at_the_place(text: str, column: int, problem: str) -> None:
    with pytest.raises(CleaveError) as caught:
        parse(text)
    first, shown, caret = caught.value.message.split("\n")
    assert problem in first and f"at column {column}" in first
    if len(text) < 60:
        assert shown == "  " + text
        assert caret.index("^") == 2 + column - 1


@pytest.mark.parametrize(
    "text",
    [
        "(" * 2000 + "n" + ")" * 2000,
        "min(n, " * 500 + "n" + ")" * 500,
        "floordiv(n + 1, 3 + " * 70 + "m" + ")" * 70,
        "*".join(f"(a{i} + b{i})" for i in range(60)),
        "*".join(["(a + b + c + d + e)"] * 60),
        "*".join(["99999999999999999999"] * 60),
        "n*" * 2047 + "n",
        "min(" + ", ".join(f"x{i}" for i in range(400)) + ")",
    ],
)
def test_huge_or_deep_text_is_an_error_and_quick(text: str) -> None:
    start = time.process_time()
    with pytest.raises(CleaveError):
        parse(text)
    assert time.process_time() - start < 1.5


def test_deeply_nested_text_has_a_normal_form() -> None:
    rng = random.Random(3)
    for _ in range(60):
        text = "n"
        for _ in range(rng.choice([4, 8, 16, 23])):
            step = f"{rng.choice('+-*')} {rng.choice(['m', '3', 's', '2*n'])}"
            other = rng.choice(["m", "s", "s + 1", "n*m", "16", "2*s", "m*s"])
            kind = rng.choice(["min", "max", "floordiv", "ceildiv", "mod"])
            text = f"{kind}({text} {step}, {other})" if rng.random() < 0.7 else f"{kind}({other}, {text})"
        try:
            size = parse(text)
        except CleaveError as error:
            assert "too large" in error.message or "divisor" in error.message or "nested" in error.message
            continue
        assert parse(str(size)) is size, text


def test_any_text_is_a_size_or_an_error() -> None:
    rng = random.Random(5)
    pieces = [*NAMES, "1", "16", "0", *"+-*/(),= ", "min(", "floordiv(", "ceildiv(", "mod(", "<=", "<", "é"]
    for _ in range(3000):
        text = "".join(rng.choices(pieces, k=rng.choice([3, 6, 12])))
        for read in (parse, Dim.parse, lambda text: Facts.parse([text])):
            with contextlib.suppress(CleaveError):  # nothing else may be raised
                read(text)


def test_long_but_plain_text_is_read() -> None:
    assert parse("-" * 4000 + "n") is sym("n")
    assert parse(" + ".join(["n"] * 1000)) is 1000 * sym("n")
    assert parse("(" * 60 + "n" + ")" * 60) is sym("n")


def test_repeated_nesting_in_python_is_bounded() -> None:
    size = sym("n")
    with pytest.raises(CleaveError, match=r"too large|nested"):
        for _ in range(100):
            size = floordiv(size * size + 1, size + sym("m") + 2)


@pytest.mark.parametrize("name", ["", "1n", "n m", "min", "ñ", "n\n", "a-b"])
def test_names(name: str) -> None:
    with pytest.raises(CleaveError, match="name"):
        sym(name)


# ---------------------------------------------------------------- facts


def test_answers_have_no_truth_value() -> None:
    for answer in Answer:
        with pytest.raises(TypeError, match="truth value"):
            bool(answer)


FACTS = ["N = 16*N1", "N1 = 4*k", "1 <= s", "n <= 4096", "r < 4", "n <= m", "P = s*p", "t = ceildiv(P, s)"]


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("floordiv(4*q + r, 4)", "q"),
        ("mod(4*q + r, 4)", "r"),
        ("floordiv(4*q + r, 16)", "floordiv(q, 4)"),
        ("floordiv(s*q + mod(m, s), s)", "q"),
        ("ceildiv(N, 64)", "k"),
        ("mod(N, 32)", "0"),
        ("t", "p"),
        ("ceildiv(P, s)*s - P", "0"),
        ("min(n, m)", "n"),
        ("max(n, 5000)", "5000"),
        ("max(s, 1)", "s"),
        ("min(n, 100000, m)", "n"),
        ("floordiv(n, 8192)", "0"),
    ],
)
def test_facts_simplify(text: str, simple: str) -> None:
    facts = Facts.parse(FACTS)
    assert facts.simplify(parse(text)) is parse(simple)
    assert facts.equal(parse(text), parse(simple)) is Answer.YES


@pytest.mark.parametrize(
    ("question", "a", "b", "answer"),
    [
        ("less_equal", "n", "s*ceildiv(n, s)", "YES"),
        ("less", "s*ceildiv(n, s)", "n + s", "YES"),
        ("less", "mod(m, s)", "s", "YES"),
        ("less_equal", "n*p", "m*p", "YES"),
        ("less_equal", "m", "n", "UNKNOWN"),
        ("less_equal", "m + 1", "n", "NO"),
        ("less", "4096", "n", "NO"),
        ("less_equal", "floordiv(m, s)", "m", "YES"),
        ("less_equal", "ceildiv(m, s)", "m", "YES"),
        ("less_equal", "min(m, 64)", "64", "YES"),
        ("less_equal", "min(m, q)", "q", "YES"),
        ("less_equal", "1", "s*s", "YES"),
        ("equal", "min(m, q) + max(m, q)", "m + q", "YES"),
        ("equal", "2*m", "2*q + 1", "NO"),
        ("equal", "m", "q", "UNKNOWN"),
        ("equal", "m", "m + s", "NO"),
        ("divides", "16", "N", "YES"),
        ("divides", "64", "N + 64*m", "YES"),
        ("divides", "s", "P + s", "YES"),
        ("divides", "4", "2*m + 1", "NO"),
        ("divides", "128", "N", "UNKNOWN"),
        ("divides", "8", "N + 4", "NO"),
    ],
)
def test_questions(question: str, a: str, b: str, answer: str) -> None:
    assert getattr(Facts.parse(FACTS), question)(parse(a), parse(b)) is Answer[answer]


GRID = ["i < ceildiv(m, 64)", "j <= 63", "p < h*ceildiv(m, 64)", "n = s*t"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("64*i", "m"),
        ("64*floordiv(m, 64)", "m + 1"),
        ("floordiv(p, ceildiv(m, 64))", "h"),  # a program's index along the outer axis of a flattened grid
        ("mod(p, ceildiv(m, 64))", "ceildiv(m, 64)"),
        ("64*mod(p, ceildiv(m, 64))", "m"),
        ("0", "min(m - 64*i, 64)"),
        ("64*i + j", "m + 64"),
        ("floordiv(64*i + j, 64)", "ceildiv(m, 64)"),
    ],
)
def test_offsets_of_tiles_lie_within_the_grid(a: str, b: str) -> None:
    facts = Facts.parse(GRID)
    assert facts.less(parse(a), parse(b)) is Answer.YES
    assert facts.less_equal(parse(b), parse(a)) is Answer.NO


def test_bounds() -> None:
    facts = Facts.parse(FACTS)
    expected = {
        "n": (0, 4096),
        "N": (0, None),
        "ceildiv(n, 16)": (0, 256),
        "mod(m, 16)": (0, 15),
        "m - n": (0, None),
        "5 - 2*r": (-1, 5),
        "min(m, 64) - 10": (-10, 54),
        "mod(r + 3, 3)": (0, 2),
        "mod(n, s)": (0, 4096),
        "7": (7, 7),
    }
    assert {text: facts.bounds(parse(text)) for text in expected} == expected
    assert Facts.parse(["n <= m", "m <= 100", "3 <= n"]).bounds(sym("n")) == (3, 100)
    assert Facts.parse(["2*n <= 9", "1 < 3*n"]).bounds(sym("n")) == (1, 4)


def test_facts_are_values() -> None:
    facts = Facts.parse(FACTS)
    assert facts.texts == tuple(FACTS)
    assert facts == Facts.parse(FACTS) and hash(facts) == hash(Facts.parse(FACTS)) and facts != Facts.parse([])
    assert pickle.loads(pickle.dumps(facts)) == facts
    assert Facts.parse(iter(FACTS)) is facts  # so that what is found out of sizes is found once
    with pytest.raises(TypeError, match="not one text"):
        Facts.parse("1 <= s")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a = b", "b = 4*c", "c = d + 1"], {"a": "4*d + 4", "b": "4*d + 4", "c": "d + 1"}),
        (["16*k = N"], {"N": "16*k"}),
        (["N = 16*a", "N = 8*b"], {"N": "16*a", "b": "2*a"}),
        (["N = 16*a", "N = 16*a"], {"N": "16*a"}),
        (["2*a + 2 = 4*b + 2*c"], {"a": "2*b + c - 1"}),
        (["N = N"], {}),
        (["a == b"], {"a": "b"}),
    ],
)
def test_definitions(texts: list[str], expected: dict[str, str]) -> None:
    assert Facts.parse(texts).definitions == {name: parse(value) for name, value in expected.items()}


def test_a_definition_bounds_its_symbols() -> None:
    facts = Facts.parse(["n = m - 5"])  # n >= 0
    assert facts.less_equal(5, sym("m")) is Answer.YES
    assert Facts.parse(["t = ceildiv(n, s)"]).less_equal(1, sym("s")) is Answer.YES  # s is a divisor


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["N = N + 1"], "contradict"),
        (["3 = 4"], "contradict"),
        (["2*a = 2*b + 1"], "contradict"),
        (["N = 2*N"], "defines 'N' by itself"),
        (["a = 2*b", "b = 2*c", "c = 3*a"], "defines 'c' by itself"),
        (["n < 3", "n >= 5"], "contradict"),
        (["n < m", "m < n"], "contradict"),
        (["n < 0"], "contradict"),
        (["n = 4", "n = 5"], "contradict"),
        (["n = 4", "n > 5"], "contradict"),
        (["a = b + 3", "a <= 2"], "contradict"),
        (["n"], "needs one of"),
        (["= 4"], "a side of the fact is missing at column 1"),
        (["n <= "], "a side of the fact is missing at column 6"),
        (["n <= 4 +"], "at column 9"),
        (["n <= m <= $"], "at column 11"),
        (["n != 3"], "at column 3"),
    ],
)
def test_bad_facts(texts: list[str], problem: str) -> None:
    with pytest.raises(CleaveError) as caught:
        Facts.parse(texts)
    assert problem in str(caught.value)


FACT_TREES = [
    ("<=", 1, "s"),
    ("<=", "n", 5),
    ("<", "s", 4),
    ("<=", "n", "m"),
    (">", "m", "s"),
    ("=", "n", ("*", 4, "s")),
    ("=", "m", ("ceildiv", "n", 3)),
    ("=", "n", ("-", "m", 2)),
    ("<=", ("*", 2, "n"), ("+", "m", "s")),
    ("=", ("mod", "m", 2), 0),
    ("<=", ("floordiv", "m", "s"), 2),
    (">=", ("min", "n", "m"), "s"),
    ("=", ("*", 2, "n"), ("*", 3, "m")),
]


def random_facts(rng: random.Random) -> tuple[list[Tree], Facts] | None:
    chosen = rng.sample(FACT_TREES, rng.randint(0, 3))
    try:
        return chosen, Facts.parse([f"{text_of(a)} {sign} {text_of(b)}" for sign, a, b in chosen])
    except CleaveError:
        assert "defines" in str(sys.exc_info()[1]) or not list(admitted(chosen, ())), chosen
        return None


def admitted(facts: list[Tree], queries: tuple[Tree, ...]) -> list[dict[str, int]]:
    """The small assignments that satisfy the facts and keep all divisors, of the queries too, at 1 or more."""
    found: list[dict[str, int]] = []
    for point in assignments(below=8):
        try:
            for query in queries:
                run(query, point)
            if all(RELATIONS[sign](run(a, point), run(b, point)) for sign, a, b in facts):
                found.append(point)
        except BadDivisor:
            continue
    return found


def ask(facts: Facts, question: str, a: Size, b: Size) -> Answer:
    return facts.divides(a, b) if question == "divides" else getattr(facts, question)(a, b)


TRUTH = {"equal": "=", "less_equal": "<=", "less": "<"}


def test_answers_against_brute_force() -> None:
    rng = random.Random(7)
    decided = 0
    for _ in range(400):
        made = random_facts(rng)
        a, b = random_tree(rng, 2), random_tree(rng, 3)
        left, right = checked(a), checked(b)
        if made is None or left is None or right is None:
            continue
        question = rng.choice(["equal", "less_equal", "less", "divides"])
        trees, facts = made
        try:
            answer = ask(facts, question, left, right)
        except CleaveError as error:
            assert "divisor" in error.message
            continue
        queries = (("mod", b, a),) if question == "divides" else (a, b)
        points = admitted(trees, queries)
        truths = {
            run(queries[0], p) == 0 if question == "divides" else RELATIONS[TRUTH[question]](run(a, p), run(b, p))
            for p in points
        }
        decided += answer is not Answer.UNKNOWN
        assert answer is not Answer.YES or False not in truths, (facts, question, text_of(a), text_of(b))
        assert answer is not Answer.NO or True not in truths, (facts, question, text_of(a), text_of(b))
        for size, tree in ((left, a), (right, b)):
            check_values(facts, size, tree, points)
    assert decided > 50


def check_values(facts: Facts, size: Size, tree: Tree, points: list[dict[str, int]]) -> None:
    simple, (low, high) = facts.simplify(size), facts.bounds(size)
    assert parse(str(simple)) is simple
    for point in points:
        value = run(tree, point)
        assert simple.evaluate(point) == value, (facts, text_of(tree), str(simple), point)
        assert (low is None or low <= value) and (high is None or value <= high), (facts, text_of(tree), low, high)


def test_answers_against_z3() -> None:
    """The negation of every YES and the statement of every NO is unsatisfiable, for all integers."""
    rng = random.Random(11)
    proved = undecided = 0
    for _ in range(300):
        made = random_facts(rng)
        a, b = random_tree(rng, 2, linear=True), random_tree(rng, 2, linear=True)
        if made is None:
            continue
        trees, facts = made
        question = rng.choice(list(TRUTH))
        answer = ask(facts, question, build(a), build(b))
        if answer is Answer.UNKNOWN:
            continue
        conditions: list[z3.BoolRef] = [z3.Int(name) >= 0 for name in NAMES]
        conditions += [RELATIONS[sign](z3_of(x, conditions), z3_of(y, conditions)) for sign, x, y in trees]
        truth = RELATIONS[TRUTH[question]](z3_of(a, conditions), z3_of(b, conditions))
        solver = z3.Solver()
        solver.set("timeout", 300)
        solver.add(*conditions, z3.Not(truth) if answer is Answer.YES else truth)
        verdict = solver.check()
        assert verdict != z3.sat, (facts, question, text_of(a), text_of(b), answer, solver.model())
        proved += verdict == z3.unsat
        undecided += verdict == z3.unknown
    assert proved > 60 and undecided < proved / 4, (proved, undecided)


# ---------------------------------------------------------------- dims


def test_dims() -> None:
    assert Dim.parse("n") == Dim("n", sym("n")) and str(Dim("n", sym("n"))) == "n"
    assert str(Dim.parse("t = ceildiv(n,s)")) == "t=ceildiv(n, s)"
    assert Dim.parse("n=n") == Dim.parse(" n ") == Dim.parse("n")
    assert Dim.parse("d=64").size.value == 64
    for text in ("n", "t=ceildiv(n, s)", "d=64", "e=d", "x=2*n + 1"):
        assert str(Dim.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "column"), [("", 1), ("3=n", 1), ("n=", 3), ("n m", 3), ("n==m", 2), ("t=n +* 2", 6), ("min", 1)]
)
def test_bad_dims(text: str, column: int) -> None:
    with pytest.raises(CleaveError) as caught:
        Dim.parse(text)
    assert f"column {column}" in caught.value.message or text == "min"
