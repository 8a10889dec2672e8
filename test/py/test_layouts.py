"""``cleave-opt --layouts``: packages for arguments that are not row-major, and what is wrong with a layout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cleave
from cleave.errors import CleaveError
from cleave.tools.cleave_opt import main
from cleave.tools.layouts import parse_layouts

PRODUCT = """
!X = tensor<?x48xf16, #cleave.dims<["m", "k"]>>
!W = tensor<48x32xf16, #cleave.dims<["k", "n"]>>
!Y = tensor<?x32xf16, #cleave.dims<["m", "n"]>>
func.func @product(%x: !X, %w: !W) -> !Y {
  %y = "cleave.contract"(%x, %w) {over = ["k"]} : (!X, !W) -> !Y
  return %y : !Y
}
"""
ITSELF = """
!X = tensor<?x48xf16, #cleave.dims<["m", "k"]>>
func.func @itself(%x: !X) -> !X {
  return %x : !X
}
"""
PASSES = ["--schedule", "--lower-to-triton", "--emit=package"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.mlir"
    path.write_text(PRODUCT)
    return path


def test_a_package_is_that_of_the_python_interface(source: Path, tmp_path: Path) -> None:
    """Variants for each of the layouts, behind that for row-major arguments, with the same plans and kernels."""
    output = tmp_path / "out.cleave"
    layouts = ["--layouts=in0: m k+, in1: n k", "--layouts", "in1:n k"]
    assert main([*PASSES, *layouts, "-o", str(output), str(source)]) == 0
    function = cleave.compile(source, superopt=False)
    function._compilation.schedule["aligned"] = False  # type: ignore[index]
    wanted = function.package("sm_90", layouts=[{"in0": "m k+", "in1": "n k"}, {"in1": "n k"}])
    found = cleave.Package.load(output)
    assert [variant.parts for variant in found.variants] == [variant.parts for variant in wanted.variants]
    for ours, theirs in zip(found.variants, wanted.variants, strict=True):
        assert ours.plan.steps == theirs.plan.steps and ours.ttir.keys() == theirs.ttir.keys()
        assert {*ours.binaries["sm_90"]} == {*theirs.binaries["sm_90"]}


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("in0 m k+", 1, "'in0 m k+' is no layout of an argument"),
        ("in0: m k+, in0: m k", 12, "'in0' is given twice"),
        ("in0: m k+,", 11, "'' is no layout of an argument"),
        ("in0:", 1, "'in0:' is no layout of an argument"),
        ("in0: m: k", 1, "'in0: m: k' is no layout of an argument"),
        ("", 1, "'' is no layout of an argument"),
    ],
)
def test_what_is_no_layout_is_said_where_it_stands(text: str, column: int, message: str) -> None:
    with pytest.raises(CleaveError, match=re.escape(f"<--layouts>:1:{column}: error: {message}")):
        parse_layouts(text, "<--layouts>")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("in0: m k+, x: n k", "<--layouts>:1:12: error: 'x' is no argument of product"),
        ("in1: n m", "<--layouts>:1:1: error: the layout 'n m' is none of a tensor with the dims k, n"),
        (
            "in0: m+ k",
            "<--layouts>:1:1: error: the layout 'm+ k' has a padded outermost dim, which makes no difference",
        ),
    ],
)
def test_layouts_of_other_tensors_are_errors(
    source: Path, text: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Said before any pass runs."""
    output = tmp_path / "out.cleave"
    shown = "--mlir-print-ir-after-all"
    assert main([*PASSES, shown, "--layouts", text, "--layouts=in0: m k+", "-o", str(output), str(source)]) == 1
    said = capfd.readouterr().err
    assert message in said and "IR Dump" not in said and not output.exists()


def test_layouts_are_of_packages_of_tensor_functions(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--layouts=in0: m k", str(source)]) == 1
    assert "--layouts are those of a package, which --emit=package writes" in capfd.readouterr().err
    source.write_text(ITSELF)
    assert main([*PASSES, "--layouts=in0: k m", "-o", str(tmp_path / "o"), str(source)]) == 1
    assert "a result of itself is one of in0, which is row-major then" in capfd.readouterr().err
    source.write_text(PRODUCT)
    lowered = tmp_path / "lowered.mlir"
    assert main(["--schedule", "--lower-to-triton", "-o", str(lowered), str(source)]) == 0
    assert main(["--emit=package", "--layouts=in0: m k+", "-o", str(tmp_path / "o"), str(lowered)]) == 1
    assert f"{lowered}:" in (text := capfd.readouterr().err) and "Traceback" not in text, text


def test_layouts_are_of_one_function(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source.write_text(PRODUCT + ITSELF[ITSELF.index("func.func") :])
    assert main([*PASSES, "--layouts=in0: m k+", "-o", str(tmp_path / "o"), str(source)]) == 1
    assert "a package holds one function\n" in capfd.readouterr().err
