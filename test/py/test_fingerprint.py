"""The check over prime fields: the fields, what it tells apart, and that it shares nothing with the normal form."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import graphs
import numpy as np
import pytest
from search_programs import PROGRAMS

from cleave.dialects.dims import Dim
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.search import fields
from cleave.search.fields import LOWEST, ROOT, UNDEFINED, P, Q
from cleave.search.fingerprint import FingerprintChecker, random_element
from cleave.search.float_domain import FloatDomain
from cleave.search.floats import FloatChecker
from cleave.search.interpret import Interpreter, Memo

SEARCH = Path(fields.__file__).parent


def is_prime(n: int) -> bool:
    """Miller-Rabin, exact below 3.3e24 with these bases."""
    d, r = n - 1, 0
    while d % 2 == 0:
        d, r = d // 2, r + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41):
        x = pow(base, d, n)
        if x not in (1, n - 1) and not any((x := x * x % n) == n - 1 for _ in range(r - 1)):
            return False
    return True


def test_the_fields() -> None:
    assert is_prime(P) and is_prime(Q) and P == 2 * Q + 1
    assert P % 8 == Q % 8 == 7
    assert all(pow(a, (p - 1) // 2, p) == 1 for a in (2, 3, 5) for p in (P, Q))
    assert ROOT != 1 and pow(ROOT, Q, P) == 1


def test_laws_of_elements() -> None:
    rng = random.Random(0)
    for _ in range(50):
        x, y = random_element(rng), random_element(rng)
        assert fields.exp(fields.add(x, y)).a == fields.mul(fields.exp(x), fields.exp(y)).a
        assert fields.mul(x, fields.inverse(x)).a == 1
        square = fields.mul(x, x)
        assert fields.sqrt(square).a == fields.absolute(x).a and fields.sqrt(square).b == fields.absolute(x).b
        assert fields.maximum(x, y) is fields.maximum(y, x)
        top = fields.maximum(x, y)
        assert fields.maximum(fields.exp(x), fields.exp(y)).a == fields.exp(top).a
        two, least = fields.number(2), fields.minimum(x, y)
        assert fields.maximum(fields.mul(two, x), fields.mul(two, y)).a == fields.mul(two, top).a
        assert fields.maximum(fields.neg(x), fields.neg(y)).a == fields.neg(least).a != fields.neg(top).a
        assert fields.compare(x, y) == -fields.compare(y, x) != 0 and fields.compare(x, x) == 0
        assert (
            fields.sigmoid(x).a
            == fields.div(fields.number(1), fields.add(fields.number(1), fields.exp(fields.neg(x)))).a
        )
    assert fields.sqrt(fields.number(4)).a == 2
    assert fields.exp(LOWEST).a == 0 and fields.maximum(LOWEST, fields.number(3)).a == 3
    assert fields.inverse(fields.number(0)) is UNDEFINED
    assert fields.add(UNDEFINED, fields.number(1)) is UNDEFINED


def test_a_dot_product_is_the_sum_of_the_products() -> None:
    rng = random.Random(0)
    x = random_element(rng)
    pool = [fields.number(0), fields.exp(x), x, fields.neg(x), fields.number(1), fields.exp(LOWEST)]
    for special in ([], [LOWEST], [UNDEFINED]):
        for _ in range(300):
            xs, ys = ([rng.choice([*pool, *special]) for _ in range(4)] for _ in range(2))
            expected = fields.number(0)
            for pair in zip(xs, ys, strict=True):
                expected = fields.add(expected, fields.mul(*pair))
            found = fields.dot(xs, ys)
            if expected is UNDEFINED:
                assert found is UNDEFINED
            else:
                assert (found.a, found.b, found.real) == (expected.a, expected.b, expected.real)


def test_a_memo_tells_equal_sums_over_other_places_apart() -> None:
    """How many elements of [s, t] exist depends on what else the program cuts into these dims."""
    b = GraphBuilder("f")
    x = b.input("n", "f32")
    ones = b.constant(1.0, "f32", (Dim.parse("s"), Dim.parse("t=ceildiv(n, s)")))
    count = b.reduce(ones, kind="sum", over=["s", "t"])
    parts = b.reduce(b.split(x, dim="n", into=["s", "t=ceildiv(n, s)"]), kind="sum", over=["s", "t"])
    domain, memo = FloatDomain(declared=False), Memo()
    inputs = [np.arange(5.0)]
    for outputs, expected in (([count], [6]), ([parts, count], [10, 5]), ([count], [6]), ([parts, count], [10, 5])):
        found = Interpreter(domain, {"n": 5, "s": 2}, memo).run(b.build(*outputs), inputs)
        assert [float(array) for array in found] == expected


def test_a_memo_tells_inputs_apart() -> None:
    b = GraphBuilder("f")
    graph = b.build(b.exp(b.input("n", "f32")))
    memo = Memo()
    for number in range(5):
        (found,) = Interpreter(FloatDomain(declared=False), {"n": 1}, memo).run(graph, [np.full(1, float(number))])
        assert found == np.exp(float(number))


PAIRS = [
    (graphs.attention(), graphs.attention(division_last=True)),
    (graphs.attention(), graphs.split_attention()),
    (graphs.rmsnorm_matmul(), graphs.rmsnorm_matmul(scale_last=True)),
    (graphs.matmul(), graphs.split_matmul()),
]


@pytest.mark.parametrize(("source", "other"), PAIRS, ids=lambda g: g.name)
def test_equal_programs_pass(source: Graph, other: Graph) -> None:
    fingerprint, why = FingerprintChecker(source, 0, {}).check(other)
    assert fingerprint is not None, why
    assert fingerprint.samples == 2 and fingerprint.error_bound < 1e-20
    assert len(set(fingerprint.sizes.values())) > 1


def wrong_attention(mistake: str) -> Graph:
    """Attention with a fault that a careless transformation makes."""
    b = GraphBuilder("attention")
    q, k, v = b.input("h m d=64", "f16"), b.input("h n d", "f16"), b.input("h n d", "f16")
    s = b.mul(b.contract(q, k, over=["d"], dtype="f32"), b.constant(0.25 if mistake == "scale" else 0.125, "f32"))
    top = b.reduce(s, kind="max", over=["m" if mistake == "max over m" else "n"])
    e = b.exp(b.sub(s, top))
    total = b.reduce(e, kind="sum", over=["m" if mistake == "sum over m" else "n"])
    if mistake == "division dropped":
        p = e
    else:
        p = b.div(e, total)
    out = b.contract(b.cast(p, dtype="f16"), v, over=["n"])
    if mistake == "divided twice":
        out = b.div(out, total)
    return b.build(b.cast(out, dtype="f16", order=["h", "m", "d"]))


@pytest.mark.parametrize("mistake", ["scale", "max over m", "sum over m", "division dropped", "divided twice"])
def test_wrong_programs_are_refused(mistake: str) -> None:
    fingerprint, why = FingerprintChecker(graphs.attention(), 0, {}).check(wrong_attention(mistake))
    assert fingerprint is None and "differs" in why


@pytest.mark.parametrize("mistake", ["scale", "max over m", "sum over m", "division dropped", "divided twice"])
def test_floats_refuse_wrong_programs(mistake: str) -> None:
    check, why = FloatChecker(graphs.attention(), 0, {}).check(wrong_attention(mistake))
    assert check is None and why


def test_static_sizes_are_checked_as_they_are() -> None:
    """A cut at a place that only the function's own size reaches."""

    def program(rows: int, last: float) -> Graph:
        b = GraphBuilder("rows")
        x = b.input(f"m={rows} k=8", "f32")
        late = b.cmp(b.index(dim="m", dtype="i64"), b.constant(98, "i64"), predicate="gt")
        return b.build(
            b.mul(b.reduce(x, kind="sum", over=["k"]), b.select(late, *(b.constant(c, "f32") for c in (last, 1.0))))
        )

    check, _ = FloatChecker(program(100, 2.0), 0, {}).check(program(100, 2.0))
    assert check is not None and "at the function's own sizes" in check.draws
    check, why = FloatChecker(program(100, 2.0), 0, {}).check(program(100, 3.0))
    assert check is None and "own sizes" in why


def test_a_lost_part_is_seen() -> None:
    """Split-K that forgets the last part: an uneven cut tells."""
    b = GraphBuilder("matmul", facts=["1 <= s"])
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    x, w = (b.split(value, dim="k", into=("s", "t=ceildiv(k, s)")) for value in (x, w))
    partial = b.contract(x, w, over=["t"])
    keep = b.cmp(b.index(dim="s", dtype="i64"), b.constant(1, "i64"), predicate="lt")
    partial = b.select(keep, partial, b.constant(0.0, "f32"))
    graph = b.build(b.cast(b.reduce(partial, kind="sum", over=["s"]), dtype="f16"))
    assert FingerprintChecker(graphs.matmul(), 0, {}).check(graph)[0] is None


def test_user_rounding_is_seen() -> None:
    """x + y rounded once is not x rounded plus y."""

    def program(once: bool) -> Graph:
        b = GraphBuilder("round")
        x, y = b.input("m", "f32"), b.input("m", "f32")
        return b.build(
            b.cast(b.add(x, y), dtype="f16") if once else b.add(b.cast(x, dtype="f16"), b.cast(y, dtype="f16"))
        )

    assert FingerprintChecker(program(True), 0, {}).check(program(False))[0] is None


def test_deterministic_and_seeded() -> None:
    one, other = (
        FingerprintChecker(graphs.attention(), 7, {}).check(graphs.attention(division_last=True))[0] for _ in "ab"
    )
    assert one == other and one is not None and one.seed == 7


def test_roots_are_met() -> None:
    """Norms inside a softmax need many roots at once: points where all exist are looked for."""
    source = PROGRAMS["qk_norm"]()
    fingerprint, _ = FingerprintChecker(source, 0, {}).check(source)
    assert fingerprint is not None and fingerprint.samples > 0


@pytest.mark.parametrize(
    "name",
    [
        "check_sizes.py",
        "fields.py",
        "fingerprint.py",
        "floats.py",
        "float_domain.py",
        "draws.py",
        "trials.py",
        "unseen.py",
        "interpret.py",
    ],
)
def test_checks_share_no_code_with_the_search(name: str) -> None:
    trusted = {
        "certificate",
        "check_sizes",
        "draws",
        "fields",
        "fingerprint",
        "float_domain",
        "floats",
        "interpret",
        "numbers",
        "terms",
        "trials",
        "unseen",
    }
    for node in ast.walk(ast.parse((SEARCH / name).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cleave.search."):
            assert node.module.split(".")[-1] in trusted
