// What cannot be raised is named as it is written, and each thing that passes say of its function is said once.
// RUN: cleave-opt --import-linalg --superopt --schedule --lower-to-triton %s -o /dev/null 2>&1 | FileCheck %s --check-prefixes=REFUSED,ONCE
// RUN: not cleave-run %s 2>&1 | FileCheck %s --check-prefixes=REFUSED,FAILS

// REFUSED: import-refused.mlir:[[@LINE+11]]:8: remark: 'linalg.conv_2d_nhwc_hwcf' is not raised: the indexing map
// ONCE: import-refused.mlir:[[@LINE+6]]:1: remark: 'convolved' is left as it is: its linalg ops have no named dimensions
// ONCE-NOT: remark
// FAILS: import-refused.mlir:[[@LINE+8]]:8: error: 'convolved' cannot be compiled as a whole: 'linalg.conv_2d_nhwc_hwcf' is no op
!X = tensor<1x8x8x3xf32>
!K = tensor<3x3x3x4xf32>
!Y = tensor<1x6x6x4xf32>
func.func @convolved(%x: !X, %k: !K) -> !Y {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !Y
  %filled = linalg.fill ins(%zero : f32) outs(%empty : !Y) -> !Y
  %y = linalg.conv_2d_nhwc_hwcf ins(%x, %k : !X, !K) outs(%filled : !Y) -> !Y
  return %y : !Y
}
