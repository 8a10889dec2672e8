"""The examples, the code on the pages of the documentation, and the tools that show things."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cleave.bindings import context, ir
from cleave.passes.verify import verify

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def run(*command: str | Path, text: str | None = None) -> str:
    """Standard output of a Python script or module; everything it said, if it fails or warns."""
    script = [sys.executable, "-W", "error", *command]
    result = subprocess.run(script, capture_output=True, text=True, input=text, cwd=ROOT)
    assert result.returncode == 0 and "Warning" not in result.stderr, result.stdout + result.stderr
    return result.stdout


def compiled(*arguments: str | Path) -> str:
    return run("-m", "cleave.tools.cleave_opt", *arguments)


def test_the_worked_example_is_what_the_compiler_prints() -> None:
    text = compiled("--import-linalg", "--superopt", "--schedule{sizes=m=16384}", EXAMPLES / "attention.mlir")
    outline = run("tools/outline.py", text=text).strip()
    readme = (ROOT / "README.md").read_text()
    assert "\n".join(f"    {line}".rstrip() for line in outline.splitlines()) in readme


def test_build_graph() -> None:
    lines = run("examples/build_graph.py").splitlines()
    assert lines[0] == "kernels: rmsnorm_linear__k0; loops: 1"
    start, _, error = lines[1].rpartition(" = ")
    assert start == "out: float16[37, 91], ‖out − ref‖/‖ref‖"
    assert float(error) < 1e-3


def test_embed() -> None:
    host, kernel = run("examples/embed.py").splitlines()
    assert host.startswith('host function "attention_softmax", type (tensor<2x4x64x64xf16')
    assert kernel.startswith('kernel "attention_softmax__k0"')


def test_attention_becomes_one_kernel_with_one_loop() -> None:
    module = compiled("--superopt", "--schedule{sizes=m=16384}", EXAMPLES / "attention.mlir")
    assert module.count("cleave.kernel") == 1
    assert module.count("scf.for") == 2  # over full tiles, and over the rest with masks


def test_exported_attention_is_the_sample() -> None:
    comment, _, body = (EXAMPLES / "attention.linalg.mlir").read_text().partition("\n\n")
    origin = re.search(r"test/lit/\S+\.mlir", comment)
    assert origin is not None
    assert body == (ROOT / origin.group()).read_text()


def test_outline() -> None:
    equal = compiled("--superopt", EXAMPLES / "attention.mlir")
    costs = run("tools/outline.py", "--costs", text=equal).splitlines()
    assert costs[:2] == ["@attention", "    reduction chain d + 3*n"]
    lines = run("tools/outline.py", "attention", text=equal).splitlines()
    assert lines[0] == "function @attention(%arg0 [m d] f16, %arg1 [n d] f16, %arg2 [n e] f16)"
    assert len(lines) == 12
    kernels = run("tools/outline.py", text=compiled("--schedule", EXAMPLES / "attention.mlir"))
    assert "  launch @attention__k0, grid ceildiv(" in kernels
    assert re.search(r"\n  for %\w+ in 0 … n / (\d+) \* \1 step \1, carrying \[m=", kernels)
    assert kernels.count("the same, with masks") >= 1


def test_outline_of_nonsense() -> None:
    result = subprocess.run(
        [sys.executable, "tools/outline.py"], input="nonsense", capture_output=True, text=True, cwd=ROOT
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr


def test_outline_of_an_unknown_function() -> None:
    result = subprocess.run(
        [sys.executable, "tools/outline.py", "softmax"], input="func.func private @f()", capture_output=True, text=True,
        cwd=ROOT,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (1, "outline.py: there is no function softmax; functions: f\n")


CHILDREN = ("cost_measure.py", "decode_measure.py", "device_run.py")  # of other scripts; they need PyTorch
SCRIPTS = [
    path
    for path in sorted([*ROOT.glob("bench/*.py"), *ROOT.glob("tools/*.py"), ROOT / "tools" / "dialect-reference"])
    if "__main__" in path.read_text() and path.name not in CHILDREN
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_refuse_what_they_do_not_know(script: Path) -> None:
    result = subprocess.run([sys.executable, script, "--colour"], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 2 and result.stderr.startswith("usage: "), result.stderr


def test_reference_page_is_up_to_date() -> None:
    assert run("tools/dialect-reference", "--check").strip() == "up to date"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page: Path) -> None:
    """Files that a page names, between backquotes and from the root of the checkout, but for the guide's example."""
    named = re.findall(r"`((?:cleave|test|tools|docs|examples|bench)/[\w./-]+)`", page.read_text())
    assert not [path for path in named if not (ROOT / path).exists() and "identity" not in path]


def test_the_tutorials_code_runs_in_order() -> None:
    """Each block's asserts are tests; they share one namespace, as a reader's session does."""
    page = ROOT / "docs" / "tutorial.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    assert len(blocks) >= 4
    run("-c", "\n".join(blocks))


def test_every_knob_is_on_the_page() -> None:
    from cleave.knobs import KNOBS

    page = (ROOT / "docs" / "README.md").read_text()
    assert [knob.variable for knob in KNOBS if f"`{knob.variable}`" not in page] == []


def test_the_python_page(tmp_path: Path) -> None:
    """Its first program runs, and is right."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)
    assert code is not None
    check = """
s = np.einsum("hmd,hnd->hmn", q.astype(float), k.astype(float)) * 0.125
s = np.where(np.arange(53) <= np.arange(37)[:, None], s, -np.inf)
p = np.exp(s - s.max(-1, keepdims=True))
print(abs(np.einsum("hmn,hne->hme", p / p.sum(-1, keepdims=True), v) - out).max())
"""
    script = tmp_path / "page.py"
    script.write_text(code[1] + check)
    assert float(run(script)) < 2e-3


def test_the_example_of_the_dialect_page() -> None:
    text = (ROOT / "docs" / "dialect.md").read_text().split("```mlir\n")[1].split("```")[0]
    ctx = context()
    with ctx:
        assert not verify(ir.Module.parse(text))
