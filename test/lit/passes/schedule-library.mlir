// RUN: cleave-opt "--schedule{library=2}" --cleave-verify %s | FileCheck %s
// RUN: cleave-opt --schedule %s | FileCheck %s --check-prefix=OFF

// What is a product and nothing else may be cuBLAS's: its launch says so, and its kernel is there for want of it.
// CHECK-LABEL: func.func @plain
// CHECK: call @plain__k0{{.*}}cleave.product = 2
// CHECK: func.func private @plain__k0
// CHECK-LABEL: func.func @scaled
// CHECK-NOT: cleave.product
// CHECK-LABEL: func.func @rounded
// CHECK: call @rounded__k0{{.*}}cleave.product = 2
// CHECK-LABEL: func.func @rounded_static
// CHECK: call @rounded_static__k0{{.*}}cleave.product = 2
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

!F = tensor<?x64xf16, #cleave.dims<["m", "k"]>>
!G = tensor<64x32xf16, #cleave.dims<["k", "n"]>>
!R = tensor<?x32xf16, #cleave.dims<["m", "n"]>>
func.func @rounded(%x: !F, %w: !G) -> !R {
  %y = "cleave.contract"(%x, %w) {over = ["k"]} : (!F, !G) -> !R
  return %y : !R
}

!S = tensor<48x64xbf16, #cleave.dims<["m", "k"]>>
!Z = tensor<48x32xbf16, #cleave.dims<["m", "n"]>>
func.func @rounded_static(%x: !S, %w: !W) -> !Z {
  %y = "cleave.contract"(%x, %w) {over = ["k"]} : (!S, !W) -> !Z
  return %y : !Z
}
