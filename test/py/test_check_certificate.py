"""Certificates are checked without the search: right ones pass, tampered ones fail."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from discovery_programs import PROGRAMS

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.errors import CleaveError
from cleave.passes.graph_io import from_graph
from cleave.passes.superopt import Superopt
from cleave.tools import check_certificate, field_evaluator, field_numbers
from cleave.tools.certificate_checks import check_fields, check_floats, check_record, read_program
from cleave.tools.field_numbers import LOW, PRIMES, UNKNOWN, number, same
from cleave.tools.scalar_laws import HEADER, LAWS, Law

ROOT = Path(__file__).parents[2]


@cache
def certificate(name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        ctx = context()
        with ctx, ir.Location.unknown():
            module = ir.Module.create()
            from_graph(PROGRAMS[name](), module)
        Superopt(certificate=str(path)).run(ctx, module)
        return path.read_text()


NAMES = "attention sink qk_norm rmsnorm_swiglu layernorm_linear log_sum_exp cross_entropy mla_cache".split()


@pytest.mark.parametrize("name", NAMES)
def test_certificates_pass(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(certificate(name))
    assert check_certificate.main([str(path), "--seed", "3"]) == 0
    text = capsys.readouterr().out
    assert ", 0 not" in text and "fields      ok" in text and "FAILS" not in text


def swap(old: str, new: str, *, key: str = "program") -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        assert old in data[key]
        data[key] = data[key].replace(old, new, 1)

    return change


def other_form(data: dict[str, Any]) -> None:
    data["normal_form"] = ["1"]


def without_program(data: dict[str, Any]) -> None:
    data["program"] = "module {}"


# What is changed in the last alternative (keys in parts), and what the table then says.
TAMPERED = {
    "another constant": (swap("1.250000e-01", "1.260000e-01"), "differs at"),
    "sub as add": (swap('"cleave.sub"', '"cleave.add"'), "differs at"),
    "sum as product": (swap('kind = "sum"', 'kind = "prod"'), "differs at"),
    "another normal form": (other_form, "differs from the source's"),
    "no program": (without_program, "not one function"),
    "garbage": (swap("module", "modul"), "does not parse"),
    "a type that does not follow": (swap('over = ["t"]', 'over = ["s"]'), "is not valid"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_tampered_certificates_fail(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, message = TAMPERED[what]
    data = json.loads(certificate("attention"))
    change(data["functions"]["attention"][-1])
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(data))
    code = check_certificate.main([str(path)])
    text = capsys.readouterr().out
    assert code == 1 and message in text and "FAILS" in text


# --- mistakes in any program ------------------------------------------------------------------------------------------


def rebuilt(graph: Graph, new: dict[Value, Value]) -> Graph:
    """The graph with values replaced and the types of all others inferred anew; outputs in their old order of dims."""
    b = GraphBuilder(graph.name, graph.facts, graph.extents)
    for value in graph.topological():
        if value not in new:
            operands = [new[operand] for operand in value.operands]
            same = tuple(operands) == value.operands
            dtype = value.dtype if value.op in ("cast", "contract") else None
            new[value] = value if same else b.op(value.op, *operands, dtype=dtype, **value.attrs)
    outputs = [new[output] for output in graph.outputs]
    ordered = [
        b.cast(made, dtype=old.dtype, order=list(old.names)) if set(made.names) == set(old.names) else made
        for made, old in zip(outputs, graph.outputs, strict=True)
    ]
    return Graph(graph.name, graph.inputs, tuple(ordered), graph.facts, graph.extents)


def dropped_eps(graph: Graph) -> Graph:
    """What is added to a small constant, without it."""
    for value in graph.topological():
        small = [o for o in value.operands if o.op == "constant" and 0 < float(o.attrs["value"]) < 1e-3]
        if value.op == "add" and small:
            return rebuilt(graph, {value: next(o for o in value.operands if o is not small[0])})
    raise AssertionError("nothing small is added")


def other_output_type(graph: Graph) -> Graph:
    b = GraphBuilder(graph.name, graph.facts, graph.extents)
    first, *others = graph.outputs
    return replace(graph, outputs=(b.cast(first, dtype="bf16"), *others))


def swapped_dim(graph: Graph) -> Graph:
    """A reduction over another dim of its operand; the result then has the one that was summed."""
    b = GraphBuilder(graph.name, graph.facts, graph.extents)
    for value in graph.topological():
        if value.op == "reduce" and value.operands[0].op != "constant":
            for name in value.names:
                try:
                    swapped = b.reduce(value.operands[0], kind=value.attrs["kind"], over=[name])
                    return rebuilt(graph, {value: swapped})
                except CleaveError:
                    continue
    raise AssertionError("no reduction can be swapped")


def text_of(graph: Graph) -> str:
    with context(), ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module)
        return str(module)


AUDITED = [*NAMES, "variance", "ngpt"]
MISTAKES: dict[str, tuple[Callable[[Graph], Graph], Sequence[str]]] = {
    "dropped eps": (dropped_eps, ["qk_norm", "rmsnorm_swiglu", "layernorm_linear", "ngpt"]),
    "another type": (other_output_type, AUDITED),
    "swapped dim": (swapped_dim, AUDITED),
}


@pytest.mark.parametrize(("what", "name"), [(what, name) for what, (_, names) in MISTAKES.items() for name in names])
def test_mistakes_are_refused(what: str, name: str) -> None:
    programs = json.loads(certificate(name))["functions"][PROGRAMS[name]().name][:2]
    changed = text_of(MISTAKES[what][0](read_program(programs[1]["program"])))
    assert changed != programs[1]["program"]
    (row,) = check_certificate.check_function(name, [programs[0], {**programs[1], "program": changed}], 1)
    assert not row.passed, check_certificate.table([row])


@pytest.mark.parametrize("name", AUDITED)
def test_the_program_of_another_function_is_refused(name: str) -> None:
    programs = json.loads(certificate(name))["functions"][PROGRAMS[name]().name][:2]
    other = json.loads(certificate("attention" if name != "attention" else "sink"))["functions"]
    stranger = next(iter(other.values()))[1]["program"]
    (row,) = check_certificate.check_function(name, [programs[0], {**programs[1], "program": stranger}], 1)
    assert not row.passed


RECORDS: dict[str, tuple[str, str, Any]] = {
    "a field of no prime": ("fingerprint", "p", 2**61 - 3),
    "another field": ("fingerprint", "q", 7),
    "no bound": ("fingerprint", "error_bound", 0.5),
    "a bound too good": ("fingerprint", "error_bound", 0.0),
    "a difference in f64": ("floats", "f64_difference", 1e-3),
    "an error beyond the budget": ("floats", "error", 0.5),
    "not a number": ("floats", "error", float("nan")),
}


@pytest.mark.parametrize("what", RECORDS)
def test_what_was_tested_is_looked_at(what: str) -> None:
    part, key, value = RECORDS[what]
    programs = json.loads(certificate("attention"))["functions"]["attention"][:2]
    assert check_record(programs[1]).passed
    programs[1][part][key] = value
    assert check_record(programs[1]).passed is False
    del programs[1][part][key]
    assert check_record(programs[1]).passed is False


def test_each_op_matters() -> None:
    """Every single-op change of an alternative of RMSNorm and linear is noticed."""
    source, alternative, *_ = json.loads(certificate("rmsnorm_linear"))["functions"]["rmsnorm_linear"]
    program = alternative["program"]
    changes = [('"cleave.rsqrt"', '"cleave.sqrt"'), ('"cleave.mul"', '"cleave.add"'), ('"cleave.add"', '"cleave.sub"')]
    for old, new in changes:
        parts = program.split(old)
        assert len(parts) > 1
        for at in range(1, len(parts)):
            changed = {**alternative, "program": old.join(parts[:at]) + new + old.join(parts[at:])}
            (row,) = check_certificate.check_function("rmsnorm_linear", [source, changed], 0)
            assert not row.passed, (old, at)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[]", "no certificate"), ('{"version": 1, "functions": {"f": []}}', "no programs")],
)
def test_what_is_no_certificate(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(text)
    assert check_certificate.main([str(path)]) == 1
    assert message in capsys.readouterr().err
    assert check_certificate.main([str(tmp_path / "none.json")]) == 1
    assert "cannot read" in capsys.readouterr().err


def test_the_tool_loads_nothing_of_the_search(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(certificate("attention"))
    code = (
        "import sys; from cleave.tools.check_certificate import main\n"
        f"code = main(['--smt', {str(tmp_path / 'laws.smt2')!r}, {str(path)!r}])\n"
        "assert code == 0\n"
        "print([name for name in sys.modules if name.startswith('cleave.search')])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip().endswith("[]")
    assert "(check-sat)" in (tmp_path / "laws.smt2").read_text()


# --- the fields themselves --------------------------------------------------------------------------------------------


def built(build: Callable[[GraphBuilder, Value, Value], Value]) -> Graph:
    b = GraphBuilder("f")
    x, y = b.input("m n", "f32"), b.input("m", "f32")
    return b.build(build(b, x, y))


def equal(one: Graph, other: Graph) -> tuple[bool | None, bool | None]:
    return tuple(check((), one, other) for check in (
        lambda _, a, c: check_fields(a, c, (), {}, 0).passed, lambda _, a, c: check_floats(a, c, (), {}, 0).passed
    ))  # type: ignore[return-value]  # fmt: skip


PAIRS: list[tuple[Callable[..., Value], Callable[..., Value], bool]] = [
    (lambda b, x, y: b.exp(b.add(x, y)), lambda b, x, y: b.mul(b.exp(x), b.exp(y)), True),
    (lambda b, x, y: b.exp(b.mul(x, y)), lambda b, x, y: b.mul(b.exp(x), b.exp(y)), False),
    (lambda b, x, y: b.sqrt(b.mul(x, x)), lambda b, x, y: b.abs(x), True),
    (lambda b, x, y: b.sqrt(b.mul(x, x)), lambda b, x, y: x, False),
    (lambda b, x, y: b.reduce(b.mul(x, y), kind="sum", over=["n"]),
     lambda b, x, y: b.mul(b.reduce(x, kind="sum", over=["n"]), y), True),
    (lambda b, x, y: b.reduce(b.add(x, y), kind="sum", over=["n"]),
     lambda b, x, y: b.add(b.reduce(x, kind="sum", over=["n"]), y), False),
    (lambda b, x, y: b.reduce(b.mul(x, x), kind="sum", over=["n"]),
     lambda b, x, y: b.contract(x, x, over=["n"]), True),
    (lambda b, x, y: b.sigmoid(x), lambda b, x, y: b.div(b.exp(x), b.add(b.exp(x), b.constant(1.0, "f32"))), True),
    (lambda b, x, y: b.tanh(x), lambda b, x, y: b.sigmoid(x), False),
    (lambda b, x, y: b.reduce(x, kind="max", over=["n"]), lambda b, x, y: b.reduce(x, kind="min", over=["n"]), False),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(PAIRS)))
def test_pairs(case: int) -> None:
    one, other, wanted = PAIRS[case]
    assert equal(built(one), built(other)) == (wanted, wanted)


def test_elements_past_the_end_of_a_split_do_not_exist() -> None:
    b = GraphBuilder("f", facts=["1 <= s"])
    x = b.input("m n", "f32")
    parts = b.split(x, dim="n", into=["s", "t=ceildiv(n, s)"])
    partial = b.reduce(b.exp(parts), kind="sum", over=["t"])
    cut = b.build(b.reduce(partial, kind="sum", over=["s"]))
    plain = built(lambda b, x, y: b.reduce(b.exp(x), kind="sum", over=["n"]))
    plain = replace(plain, inputs=plain.inputs[:1])
    sizes = {"m": 2, "n": 4, "s": 3}
    inputs = field_evaluator.draw(plain, sizes, random.Random(0))
    for one, other in zip(
        *(field_evaluator.evaluate(graph, inputs, sizes)[0].ravel() for graph in (plain, cut)), strict=True
    ):
        assert same(one, other) is True


def test_counts_are_in_order() -> None:
    """The larger of two counts; of a count and a random number either may be."""
    larger = field_numbers._max
    assert all(larger(number(i), number(j)) is not None for i in (0, 1, 43) for j in (0, 1, 43))
    assert same(larger(number(43), number(1)), number(43)) and same(larger(number(0), number(1)), number(1))
    rng = random.Random(0)
    draws = [number(rng.randrange(PRIMES[0])) for _ in range(32)]
    above = [same(larger(x, number(0)), x) for x in draws]
    assert any(above) and not all(above)


def test_primes() -> None:
    import sympy

    for p in PRIMES:
        assert sympy.isprime(p) and p % 120 == 119
        assert all(pow(r, (p - 1) // 2, p) == 1 for r in (2, 3, 5))
    for p, q in pairwise(PRIMES):
        assert p == 2 * q + 1 and pow(4, q, p) == 1


def test_what_the_fields_do_not_know_agrees_with_nothing() -> None:
    assert same(UNKNOWN, number(1)) is None
    assert same(LOW, number(1)) is False
    array = np.array([number(1)], dtype=object)
    assert same(array[0], number(2)) is False


# --- scalar laws ------------------------------------------------------------------------------------------------------


def solve(text: str, seconds: float = 20) -> list[str]:
    import z3

    answers: list[str] = []
    for block in text.split("(push)")[1:]:
        solver = z3.Solver()
        solver.set("timeout", int(1000 * seconds))
        solver.from_string(HEADER + block.partition("(check-sat)")[0])
        answers.append(str(solver.check()))
    return answers


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_laws_are_proved(law: Law) -> None:
    assert solve(law.script()) == ["unsat"]


@pytest.mark.parametrize("law", [law for law in LAWS if not law.ops], ids=lambda law: law.name)
def test_a_wrong_law_is_refuted(law: Law) -> None:
    assert solve(replace(law, right="(* a b)").script()) == ["sat"]


def test_axioms_do_not_contradict_each_other() -> None:
    """What a law assumes has a model or is at least not refuted: else every law would hold."""
    for law in LAWS:
        if law.given:
            assert solve(replace(law, left="0", right="1").script(), 0.5) != ["unsat"], law.name
