"""Static extents that only values inside a function have: kernels must know them though no argument says them."""

from __future__ import annotations

import numpy as np
import pytest

import cleave

CONCAT = """
  func.func @f(%x: tensor<?x4xf32>) -> tensor<4xf32> {
    %zero = arith.constant 0.0 : f32
    %ones = arith.constant dense<1.0> : tensor<9x4xf32>
    %c = tensor.concat dim(0) %ones, %x : (tensor<9x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    %e = tensor.empty() : tensor<4xf32>
    %i = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %t = linalg.reduce ins(%c : tensor<?x4xf32>) outs(%i : tensor<4xf32>) dimensions = [0]
      (%in: f32, %out: f32) { %s = arith.addf %in, %out : f32 linalg.yield %s : f32 }
    return %t : tensor<4xf32>
  }"""
PARTS = """
  func.func @f(%x: tensor<8x64xf32>) -> tensor<8x2xf32> {
    %zero = arith.constant 0.0 : f32
    %p = tensor.expand_shape %x [[0], [1, 2]] output_shape [8, 2, 32] : tensor<8x64xf32> into tensor<8x2x32xf32>
    %e = tensor.empty() : tensor<8x2xf32>
    %i = linalg.fill ins(%zero : f32) outs(%e : tensor<8x2xf32>) -> tensor<8x2xf32>
    %t = linalg.reduce ins(%p : tensor<8x2x32xf32>) outs(%i : tensor<8x2xf32>) dimensions = [2]
      (%in: f32, %out: f32) { %s = arith.addf %in, %out : f32 linalg.yield %s : f32 }
    return %t : tensor<8x2xf32>
  }"""
NAMED = """
  !x = tensor<?x4xf32, #cleave.dims<["m", "n"]>>
  !one = tensor<9x4xf32, #cleave.dims<["r", "n"]>>
  !c = tensor<?x4xf32, #cleave.dims<["c=m+r", "n"]>>
  func.func @f(%x: !x) -> !c {
    %one = "cleave.constant"() {value = 1.0 : f32} : () -> !one
    %c = "cleave.concat"(%one, %x) {dims = ["r", "m"], into = "c=m+r"} : (!one, !x) -> !c
    return %c : !c
  }"""


@pytest.mark.parametrize("superopt", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 2, 77])
def test_constant_rows_before_those_of_an_argument(rows: int, superopt: bool) -> None:
    x = np.ones((rows, 4), np.float32)
    np.testing.assert_array_equal(cleave.compile(CONCAT, superopt=superopt)(x), np.full(4, 9 + rows, np.float32))
    np.testing.assert_array_equal(cleave.compile(NAMED, superopt=superopt)(3 * x), np.r_[np.ones((9, 4)), 3 * x])


def test_parts_of_an_argument() -> None:
    x = np.arange(8 * 64, dtype=np.float32).reshape(8, 64)
    np.testing.assert_array_equal(cleave.compile(PARTS)(x), x.reshape(8, 2, 32).sum(2))
