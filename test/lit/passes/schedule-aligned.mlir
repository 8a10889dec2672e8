// RUN: %cleave-opt --schedule=aligned %s | FileCheck %s
// RUN: %cleave-opt --schedule %s | FileCheck %s --check-prefix=OFF

// A form for any size, and one for sizes of which rows are whole vectors, each with its own kernels.

!X = tensor<?x?xf16, #cleave.dims<["m", "k"]>>
!W = tensor<?x512xf16, #cleave.dims<["k", "n"]>>
!Y = tensor<?x512xf16, #cleave.dims<["m", "n"]>>

// CHECK-LABEL: func.func @matmul(
// CHECK-SAME: attributes {cleave.aligned = @matmul__aligned}
// CHECK: call @matmul__k0(
// CHECK-LABEL: func.func private @matmul__aligned(
// CHECK-SAME: attributes {cleave.facts = ["k = 8*k__8"]}
// CHECK: call @matmul__aligned__k0(
// OFF-NOT: aligned
func.func @matmul(%x: !X, %w: !W) -> !Y {
  %y = "cleave.contract"(%x, %w) {over = ["k"]} : (!X, !W) -> !Y
  return %y : !Y
}
