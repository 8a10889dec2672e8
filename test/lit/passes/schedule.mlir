// RUN: %cleave-opt --schedule --split-input-file %s | FileCheck %s

// A product: one kernel, one loop over the summed dimension; tails are bounds, not other kernels.

!X = tensor<?x?xf16, #cleave.dims<["m", "k"]>>
!W = tensor<?x?xf16, #cleave.dims<["k", "n"]>>
!Y = tensor<?x?xf16, #cleave.dims<["m", "n"]>>

// CHECK-LABEL: func.func @matmul(
// CHECK: %[[O:.*]] = "cleave.alloc"
// CHECK: call @matmul__k0(%arg0, %arg1, %[[O]]) {cleave.grid = ["ceildiv(m, {{[0-9]+}})*ceildiv(n, {{[0-9]+}})"]}
// CHECK: return %[[O]]
// CHECK-LABEL: func.func private @matmul__k0(
// CHECK-SAME: {cleave.out}
// CHECK-SAME: cleave.kernel
// CHECK: %[[K:.*]] = "cleave.extent"() {size = "k"}
// CHECK: scf.for {{.*}} to %[[K]]
// CHECK: "cleave.load"
// CHECK: "cleave.load"
// CHECK: "cleave.contract"
// CHECK: scf.yield
// CHECK-NOT: scf.for
// CHECK: "cleave.store"
func.func @matmul(%x: !X, %w: !W) -> !Y {
  %y = "cleave.contract"(%x, %w) {over = ["k"]} : (!X, !W) -> !Y
  return %y : !Y
}

// -----

// Two reductions that share an operand share a loop.

!X = tensor<65536x4096xf32, #cleave.dims<["m", "k"]>>
!W = tensor<4096x32xf32, #cleave.dims<["k", "n"]>>
!Y = tensor<65536x32xf32, #cleave.dims<["m", "n"]>>
!R = tensor<65536xf32, #cleave.dims<["m"]>>

// CHECK-LABEL: func.func private @shared__k0(
// CHECK: scf.for
// CHECK: "cleave.contract"
// CHECK: "cleave.reduce"{{.*}}over = ["k"]
// CHECK: scf.yield
// CHECK-NOT: scf.for
// CHECK: "cleave.store"
func.func @shared(%x: !X, %w: !W) -> (!Y, !R) {
  %y = "cleave.contract"(%x, %w) {over = ["k"]} : (!X, !W) -> !Y
  %r = "cleave.reduce"(%x) {kind = "sum", over = ["k"]} : (!X) -> !R
  return %y, %r : !Y, !R
}

// -----

// A maximum and what depends on it exponentially: one loop, the sum corrected as the maximum moves. Over the last tile, if
// it is not full, another one goes on with masks.

!X = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!R = tensor<?xf32, #cleave.dims<["m"]>>

// CHECK-LABEL: func.func @log_sum_exp(
// CHECK-SAME: attributes {cleave.facts = ["1 <= n"]}
// CHECK-LABEL: func.func private @log_sum_exp__k0(
// CHECK: %[[FULL:.*]]:2 = scf.for {{.*}} iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}})
// CHECK: "cleave.reduce"{{.*}}kind = "max"
// CHECK: "cleave.max"(%[[M]],
// CHECK: "cleave.sub"(%[[M]],
// CHECK: %[[A:.*]] = "cleave.exp"
// CHECK: "cleave.mul"(%[[L]], %[[A]])
// CHECK: scf.yield
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[FULL]]#0, %{{.*}} = %[[FULL]]#1)
// CHECK: scf.yield
// CHECK-NEXT: cleave.num_stages
// CHECK-NOT: scf.for
func.func @log_sum_exp(%x: !X) -> !R {
  %m = "cleave.reduce"(%x) {kind = "max", over = ["n"]} : (!X) -> !R
  %c = "cleave.sub"(%x, %m) : (!X, !R) -> !X
  %e = "cleave.exp"(%c) : (!X) -> !X
  %l = "cleave.reduce"(%e) {kind = "sum", over = ["n"]} : (!X) -> !R
  %g = "cleave.log"(%l) : (!R) -> !R
  %y = "cleave.add"(%m, %g) : (!R, !R) -> !R
  return %y : !R
}

// -----

// A sum that depends on another sum does not separate: a second loop in the same kernel.

!X = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!R = tensor<?xf32, #cleave.dims<["m"]>>

// CHECK-LABEL: func.func private @spread__k0(
// CHECK: scf.for
// CHECK: scf.yield
// CHECK: %[[SECOND:.*]] = scf.for
// CHECK: scf.for {{.*}} = %[[SECOND]])
// CHECK-NOT: scf.for
func.func @spread(%x: !X) -> !R {
  %s = "cleave.reduce"(%x) {kind = "sum", over = ["n"]} : (!X) -> !R
  %d = "cleave.sub"(%x, %s) : (!X, !R) -> !X
  %a = "cleave.abs"(%d) : (!X) -> !X
  %y = "cleave.reduce"(%a) {kind = "sum", over = ["n"]} : (!X) -> !R
  return %y : !R
}
