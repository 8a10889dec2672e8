// RUN: cleave-opt "--schedule{library=2}" --cleave-verify %s | FileCheck %s
// RUN: cleave-opt --schedule %s | FileCheck %s --check-prefix=OFF

// What is a product and nothing else may be cuBLAS's: its launch says so, and its kernel is there for want of it.
// CHECK-LABEL: func.func @plain
// CHECK: call @plain__k0{{.*}}cleave.product = 2
// CHECK: func.func private @plain__k0
// CHECK-LABEL: func.func @scaled
// CHECK-NOT: cleave.product
// OFF-NOT: cleave.product
!X = tensor<?x64xbf16, #cleave.dims<["m", "k"]>>
!W = tensor<64x32xbf16, #cleave.dims<["k", "n"]>>
!Y = tensor<?x32xf32, #cleave.dims<["m", "n"]>>
func.func @plain(%x: !X, %w: !W) -> !Y {
  %y = "cleave.contract"(%x, %w) {over = ["k"]} : (!X, !W) -> !Y
  return %y : !Y
}

func.func @scaled(%x: !X, %w: !W) -> !Y {
  %y = "cleave.contract"(%x, %w) {over = ["k"]} : (!X, !W) -> !Y
  %z = "cleave.exp"(%y) : (!Y) -> !Y
  return %z : !Y
}
