"""Integer and NaN-ignoring ops through import-linalg: what Python's integers and NumPy say, over all of i8."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from test_import_linalg import imported

from cleave.reference import run

ELEMENTWISE = """
#id = affine_map<(n) -> (n)>
func.func @f(%a: tensor<?x{i}>, %b: tensor<?x{i}>, %o: tensor<?x{r}>) -> tensor<?x{r}> {{
  %0 = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}}
      ins(%a, %b : tensor<?x{i}>, tensor<?x{i}>) outs(%o : tensor<?x{r}>) {{
  ^bb0(%x: {i}, %y: {i}, %z: {r}):
    %v = {op}
    linalg.yield %v : {r}
  }} -> tensor<?x{r}>
  return %0 : tensor<?x{r}>
}}
"""
BINARY: dict[str, Callable[[int, int], int]] = {
    "remsi": lambda x, y: int(math.fmod(x, y)),
    "floordivsi": lambda x, y: x // y,
    "ceildivsi": lambda x, y: -(-x // y),
    "divui": lambda x, y: x % 256 // (y % 256),
    "remui": lambda x, y: x % 256 % (y % 256),
    "maxui": lambda x, y: max(x % 256, y % 256),
    "minui": lambda x, y: min(x % 256, y % 256),
}
COMPARE = {"ult": np.less, "ule": np.less_equal, "ugt": np.greater, "uge": np.greater_equal}


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """All pairs of i8 whose quotient exists."""
    x, y = (side.ravel() for side in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    defined = (y != 0) & ~((x == -128) & (y == -1))
    return x[defined].astype(np.int8), y[defined].astype(np.int8)


def raised(text: str, inputs: list[np.ndarray], result: np.dtype) -> np.ndarray:
    case = imported(text)
    assert "linalg" not in str(case.result), case.remarks
    outputs = [np.zeros(inputs[0].shape, result)]
    return run(case.result, "f", [*inputs, *outputs], precision="declared")[0]


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    x, y = pairs()
    text = ELEMENTWISE.format(i="i8", r="i8", op=f"arith.{name} %x, %y : i8")
    expected = np.array([BINARY[name](int(a), int(b)) for a, b in zip(x, y, strict=True)]).astype(np.int8)
    np.testing.assert_array_equal(raised(text, [x, y], np.dtype(np.int8)), expected)


@pytest.mark.parametrize("dtype", ["i8", "i64"])
@pytest.mark.parametrize("predicate", COMPARE)
def test_unsigned_comparison(predicate: str, dtype: str) -> None:
    x, y = (side.astype(f"int{dtype[1:]}") for side in pairs())
    text = ELEMENTWISE.format(i=dtype, r="i1", op=f"arith.cmpi {predicate}, %x, %y : {dtype}")
    expected = COMPARE[predicate](x.view(f"u{x.dtype}"), y.view(f"u{y.dtype}"))
    np.testing.assert_array_equal(raised(text, [x, y], np.dtype(np.bool_)), expected)


def test_zero_extension() -> None:
    x = np.arange(-128, 128).astype(np.int8)
    for kind, op in (("i32", "arith.extui %x : i8 to i32"), ("f32", "arith.uitofp %x : i8 to f32")):
        out = raised(ELEMENTWISE.format(i="i8", r=kind, op=op), [x, x], np.dtype(f"{kind[0]}4"))
        np.testing.assert_array_equal(out, x.view(np.uint8))


def test_what_has_no_wider_type_is_a_remark() -> None:
    case = imported(ELEMENTWISE.format(i="i64", r="i64", op="arith.divui %x, %y : i64"))
    assert case.remarks == [
        "'linalg.generic' is not raised: arith.divui on i64: unsigned integers of 64 bits have no wider type"
    ]


@pytest.mark.parametrize(("name", "function"), [("maxnumf", np.fmax), ("minnumf", np.fmin)])
def test_the_larger_of_what_is_no_nan(name: str, function: np.ufunc) -> None:
    values = np.array([np.nan, -np.inf, -1.0, 0.0, 2.0, np.inf], np.float32)
    x, y = (side.ravel() for side in np.meshgrid(values, values))
    out = raised(ELEMENTWISE.format(i="f32", r="f32", op=f"arith.{name} %x, %y : f32"), [x, y], np.dtype(np.float32))
    np.testing.assert_array_equal(out, function(x, y))


REDUCTION = """
func.func @f(%a: tensor<?x?xf32>, %e: tensor<?xf32>) -> tensor<?xf32> {{
  %c = arith.constant {start} : f32
  %i = linalg.fill ins(%c : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %0 = linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>],
      iterator_types = ["parallel", "reduction"]}} ins(%a : tensor<?x?xf32>) outs(%i : tensor<?xf32>) {{
  ^bb0(%x: f32, %z: f32):
    %v = arith.{name} %x, %z : f32
    linalg.yield %v : f32
  }} -> tensor<?xf32>
  return %0 : tensor<?xf32>
}}
"""


@pytest.mark.parametrize("start", ["0xFF800000", "0.5"])
def test_a_maximum_that_ignores_nan(start: str) -> None:
    x = np.array([[1, np.nan, 3], [np.nan] * 3, [-1, -2, np.nan]], np.float32)
    case = imported(REDUCTION.format(name="maxnumf", start=start))
    assert "linalg" not in str(case.result), case.remarks
    (out,) = run(case.result, "f", [x, np.zeros(3, np.float32)], precision="declared")
    first = -np.inf if start.startswith("0x") else 0.5
    np.testing.assert_array_equal(out, np.fmax(first, np.array([3, -np.inf, -1])))
