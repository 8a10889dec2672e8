"""``tools/outline.py`` of modules that it has no outline of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def refused(text: str) -> str:
    command = [sys.executable, str(ROOT / "tools" / "outline.py")]
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (1, "")
    return result.stderr


def test_what_is_not_raised_is_named() -> None:
    text = """func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
      %z = linalg.add ins(%x, %x : tensor<4xf32>, tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
      return %z : tensor<4xf32>
    }"""
    assert refused(text) == "outline.py: @f is not raised: 'linalg.add' in line 2 is no op of Cleave's\n"


def test_text_that_does_not_parse_has_a_place() -> None:
    assert refused("func.func @f(\n").startswith("<stdin>:1:14: error: ")


def test_help_of_the_demo() -> None:
    result = subprocess.run([str(ROOT / "tools" / "demo"), "--help"], capture_output=True, text=True, check=True)
    assert "usage: tools/demo [FILE.mlir]" in result.stdout
