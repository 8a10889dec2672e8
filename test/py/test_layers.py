"""The arrows between folders (docs/architecture.md) and what each may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "cleave"
BASE = {"errors", "knobs"}
MAY_IMPORT = {
    "dialects": BASE,
    "search": BASE | {"dialects"},
    "schedule": BASE | {"dialects"},
    "reference": BASE | {"dialects", "bindings"},
    "passes": BASE | {"dialects", "bindings", "search", "schedule"},
    "lowering": BASE | {"dialects", "bindings", "search", "schedule", "passes", "runtime"},
    "runtime": BASE | {"dialects"},
    "language": BASE | {"dialects"},
    "tuner": BASE | {"dialects", "bindings", "schedule", "passes", "lowering", "runtime"},
    "bench": BASE | {"dialects", "language", "runtime", "tuner"},
}
NO_MLIR = ("dialects", "search", "schedule", "runtime", "language", "bench")
MLIR_FILES = {"dialects/cleave.py"}
LAZY = {"numpy", "sympy", "z3", "triton", "torch", "ml_dtypes"}
EAGER_NUMPY = ("runtime", "reference", "search")


def imports(path: Path, *, top_level: bool) -> set[str]:
    """Modules that a file imports; ``top_level``: only those that importing the file runs."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


FILES = sorted(path for folder in MAY_IMPORT for path in (PACKAGE / folder).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_one_way(path: Path) -> None:
    folder = path.relative_to(PACKAGE).parts[0]
    ours = {name.split(".")[1] for name in imports(path, top_level=False) if name.startswith("cleave.")}
    assert ours <= MAY_IMPORT[folder] | {folder}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_mlir_stays_where_it_belongs(path: Path) -> None:
    relative = str(path.relative_to(PACKAGE))
    if relative.split("/")[0] in NO_MLIR and relative not in MLIR_FILES:
        loaded = imports(path, top_level=False)
        assert not any(name == "mlir" or name.startswith("mlir.") for name in loaded)
        assert not {"cleave.bindings", "cleave.dialects.cleave"} & loaded


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_imports_are_inside_functions(path: Path) -> None:
    allowed = {"numpy", "ml_dtypes"} if path.relative_to(PACKAGE).parts[0] in EAGER_NUMPY else set()
    if path.name in ("triton_worker.py",):
        allowed |= {"triton"}
    roots = {name.split(".")[0] for name in imports(path, top_level=True)}
    assert not (roots & LAZY) - allowed


def test_the_compilers_front_loads_nothing_heavy() -> None:
    code = (
        "import sys, cleave.tools.cleave_opt, cleave.passes.schedule, cleave.schedule.scheduler\n"
        f"print(sorted(set({sorted(LAZY)!r}) & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
