"""Passes as objects: options, the table, upstream's pass managers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

from cleave import bindings, passes
from cleave.bindings import MLIRError, ir, passmanager
from cleave.errors import CleaveError, Position
from cleave.passes import diagnostics, options, registry
from cleave.passes.diagnostics import Diagnostic
from cleave.passes.pipeline_text import parse_pipeline

TEXT = """\
!v = tensor<?xf32, #cleave.dims<["m"]>>
func.func @f(%a: !v, %i: index) -> (!v, index) {
  %0 = "cleave.exp"(%a) : (!v) -> !v
  %1 = "cleave.exp"(%a) : (!v) -> !v
  %2 = "cleave.add"(%0, %1) : (!v, !v) -> !v
  %zero = arith.constant 0 : index
  %j = arith.addi %i, %zero : index
  return %2, %j : !v, index
}
"""


@dataclass(frozen=True)
class Sample:
    """A pass with an option of each type. This is no part of the summary."""

    keep: int = 2
    explain: bool = False
    budget: float = 1.5
    target: Literal["h100", "h200"] = "h200"
    dims: tuple[str, ...] = ()
    limit: int | None = None
    only_positive: int = 1

    def __post_init__(self) -> None:
        if self.only_positive < 1:
            raise ValueError("only_positive must be at least 1")

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Needy:
    """A pass with an option that has no default."""

    name: str


def sample(text: str) -> Sample:
    return options.from_text(Sample, "sample", text, lambda offset: Position("here", 1, offset + 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Sample()),
        ("  ", Sample()),
        ("keep=4 explain", Sample(keep=4, explain=True)),
        ("explain=false budget=2 target=h100", Sample(budget=2.0, target="h100")),
        ("dims=m,n limit=7", Sample(dims=("m", "n"), limit=7)),
        ("dims={m, n}", Sample(dims=("m", "n"))),
        ('dims="m, n" only-positive=3', Sample(dims=("m", "n"), only_positive=3)),
    ],
)
def test_options_from_text(text: str, expected: Sample) -> None:
    assert sample(text) == expected


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("kep=4", 1, "sample has no option 'kep'; did you mean 'keep'?"),
        ("keep=4 zzz", 8, "sample has no option 'zzz'"),
        ("keep", 1, "option 'keep' of sample must be an integer, not nothing"),
        ("explain keep=4.5", 9, "option 'keep' of sample must be an integer, not '4.5'"),
        ("budget=much", 1, "option 'budget' of sample must be a finite number, not 'much'"),
        ("budget=nan", 1, "option 'budget' of sample must be a finite number, not 'nan'"),
        ("keep=1 budget=inf", 8, "option 'budget' of sample must be a finite number, not 'inf'"),
        ("budget=-1e999", 1, "option 'budget' of sample must be a finite number, not '-1e999'"),
        ("target=h300", 1, "option 'target' of sample must be h100 or h200, not 'h300'"),
        ("explain=perhaps", 1, "option 'explain' of sample must be true or false, not 'perhaps'"),
        ("keep=1 keep=2", 8, "option 'keep' of sample is given twice"),
        ("only_positive=0", 1, "sample: only_positive must be at least 1"),
    ],
)
def test_wrong_options(text: str, column: int, message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        sample(text)
    assert caught.value.message == message
    assert caught.value.location == Position("here", 1, column)
    if "no option" in message:
        assert "keep=an integer (default 2); explain=true or false (default false)" in caught.value.notes[0]


def test_missing_option() -> None:
    with pytest.raises(CleaveError, match="needy needs the option 'name'"):
        options.from_text(Needy, "needy", "", lambda offset: None)


@pytest.mark.parametrize(
    "values",
    [
        {"keep": "4"},
        {"explain": 1},
        {"keep": True},
        {"dims": ["m"]},
        {"target": "h300"},
        {"kep": 1},
        {"budget": float("nan")},
    ],
)
def test_wrong_values(values: dict[str, object]) -> None:
    with pytest.raises(CleaveError):
        options.from_values(Sample, "sample", values)


def test_values() -> None:
    values = {"keep": 4, "budget": 2, "limit": None, "dims": ("m",)}
    assert options.from_values(Sample, "sample", values) == Sample(4, budget=2, dims=("m",))


def test_every_pass_has_a_summary_and_is_found_again() -> None:
    for name in registry.PASSES:
        assert registry.summary(name)[0].isupper()
        assert 20 < len(registry.summary(name)) < 160
        assert registry.name_of(registry.create(name)) == name


def test_the_table_is_lazy() -> None:
    code = "import sys, cleave.passes; print([name for name in sys.modules if name.startswith('mlir')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_recipe_for_a_pass_runs_as_it_stands() -> None:
    recipe = (Path(__file__).parents[2] / "docs" / "adding.md").read_text().partition("\n## A pass\n")[2]
    lines = recipe.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(" " * 7))
    code = "\n".join(line[7:] for line in takewhile(lambda line: not line or line.startswith(" " * 7), lines[first:]))
    names: dict[str, Any] = {"__name__": "identity_casts"}
    sys.modules["identity_casts"] = ModuleType("identity_casts")  # where dataclasses look for types
    try:
        exec(compile(code, "docs/adding.md", "exec"), names)
    finally:
        del sys.modules["identity_casts"]
    ctx = bindings.context()
    with ctx:
        module = ir.Module.parse(TEXT.replace('"cleave.exp"(%a)', '"cleave.cast"(%a)'))
        names["IdentityCasts"]().apply(ctx, module)
    assert "cleave.cast" not in str(module) and "cleave.add" in str(module)


def test_unknown_pass() -> None:
    with pytest.raises(CleaveError, match="no pass 'cleave-csee'; did you mean 'cleave-cse'"):
        passes.make("cleave-csee")
    with pytest.raises(CleaveError, match="cleave-cse has no option 'keep'"):
        passes.make("cleave-cse", keep=2)


def test_pipeline_text() -> None:
    elements = parse_pipeline("builtin.module(func.func(a{x=1 y={2 3}}, scf.for(b)),c)", "file")
    assert [(each.name, each.options, each.nest) for each in elements] == [
        ("a", "x=1 y={2 3}", ("func.func",)),
        ("b", "", ("func.func", "scf.for")),
        ("c", "", ()),
    ]
    assert [str(each) for each in elements] == ["func.func(a{x=1 y={2 3}})", "func.func(scf.for(b))", "c"]
    assert elements[0].place(4) == Position("file", 1, 32)


# --- on upstream's pass managers -------------------------------------------------------------------------------------


@pytest.fixture
def ctx() -> Iterator[ir.Context]:
    context = bindings.context()
    with context:
        yield context


def collect(ctx: ir.Context, into: list[Diagnostic]) -> object:
    def handle(info: ir.Diagnostic) -> bool:
        into.append(diagnostics.from_mlir(info))
        return True

    return ctx.attach_diagnostic_handler(handle)


def test_between_upstream_passes(ctx: ir.Context) -> None:
    module = ir.Module.parse(TEXT)
    manager = passmanager.PassManager("builtin.module")
    manager.add("func.func(canonicalize)")
    manager.add(*passes.make("cleave-verify"))
    manager.add(*passes.make("cleave-cse"))
    manager.add("func.func(cse)")
    assert "cleave-verify,cleave-cse" in str(manager)
    manager.run(module.operation)
    assert str(module).count("cleave.exp") == 1
    assert "arith.addi" not in str(module)


def test_an_error_is_a_diagnostic_and_fails_the_pipeline(ctx: ir.Context) -> None:
    module = ir.Module.parse(TEXT.replace("-> (!v, index) {", "-> (!v, index) attributes {cleave.zzz} {"))
    seen: list[Diagnostic] = []
    handler = collect(ctx, seen)
    manager = passmanager.PassManager("builtin.module")
    manager.add(*passes.make("cleave-verify"))
    manager.add("canonicalize")
    with pytest.raises(MLIRError):
        manager.run(module.operation)
    assert len(seen) == 1
    assert seen[0].message.startswith("unknown attribute 'cleave.zzz'")
    assert seen[0].position == Position("-", 2, 1)
    assert "arith.addi" in str(module), "the passes after the failing one must not run"
    del handler


def test_an_unforeseen_exception_comes_through(ctx: ir.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ir.Module.parse(TEXT)

    def fail(op: ir.Operation) -> int:
        raise KeyError("oops")

    monkeypatch.setattr("cleave.passes.cse.cse", fail)
    manager = passmanager.PassManager("builtin.module")
    manager.add(*passes.make("cleave-cse"))
    with pytest.raises(KeyError, match="oops"):
        manager.run(module.operation)


def test_anchor_and_dialect_are_required() -> None:
    bare = ir.Context()
    bare.emit_error_diagnostics = True
    seen: list[Diagnostic] = []
    handler = collect(bare, seen)
    with bare:
        module = ir.Module.parse("func.func @f() { return }")
        for anchor, wrap in (("builtin.module", "{}"), ("func.func", "func")):
            manager = passmanager.PassManager(anchor)
            manager.add(*passes.make("cleave-cse"))
            target = module.operation if wrap == "{}" else module.body.operations[0].operation
            with pytest.raises(MLIRError):
                manager.run(target)
    assert "call cleave.bindings.register(context)" in seen[0].message
    assert "cleave-cse runs on builtin.module, not on func.func" in seen[1].message
    del handler


def test_registering_twice_is_fine(ctx: ir.Context) -> None:
    bindings.register(ctx)
    bindings.register(ctx)


# --- diagnostics -----------------------------------------------------------------------------------------------------


def test_locations(ctx: ir.Context) -> None:
    file = ir.Location.file("a.mlir", 3, 4)
    expected = Position("a.mlir", 3, 4)
    assert diagnostics.position_of(file) == expected
    assert diagnostics.position_of(str(file)) == expected
    assert diagnostics.position_of("a.mlir:3:4") == expected
    assert diagnostics.position_of(ir.Location.name("x", file)) == expected
    assert diagnostics.position_of(ir.Location.callsite(file, [ir.Location.unknown()])) == expected
    assert diagnostics.position_of(ir.Location.fused([ir.Location.unknown(), file])) == expected
    assert diagnostics.position_of(ir.Location.unknown()) is None
    assert diagnostics.position_of(None) is None


def test_rendering() -> None:
    note = Diagnostic("note", Position("f", 1, 1), "see")
    text = diagnostics.render(Diagnostic("error", Position("f", 2, 4), "bad", (note,)), {"f": "first\n\tab c\n"})
    assert text == "f:2:4: error: bad\n\tab c\n\t  ^\nf:1:1: note: see\nfirst\n^"
    assert diagnostics.render(Diagnostic("remark", None, "so"), {}, "file") == "file: remark: so"
    long = diagnostics.render(Diagnostic("error", Position("f", 1, 500), "bad"), {"f": "x" * 499 + "y" + "x" * 500})
    line, caret = long.splitlines()[1:]
    assert len(line) <= 200
    assert line[caret.index("^")] == "y"
    past = diagnostics.render(Diagnostic("error", Position("f", 1, 9), "bad"), {"f": "abc"})
    assert past.splitlines()[1:] == ["abc", "   ^"]


def test_remarks_and_warnings_reach_the_innermost_handler(capsys: pytest.CaptureFixture[str]) -> None:
    outer: list[Diagnostic] = []
    inner: list[Diagnostic] = []
    with diagnostics.collecting(outer.append):
        with diagnostics.collecting(inner.append):
            diagnostics.remark("f:1:2", "one")
        diagnostics.warning(None, "two", ("because",))
    diagnostics.remark("f:1:2", "three")
    assert [each.message for each in inner] == ["one"]
    assert [(each.severity, each.notes[0].message) for each in outer] == [("warning", "because")]
    assert capsys.readouterr().err == "f:1:2: remark: three\n"
