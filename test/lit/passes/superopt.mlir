// RUN: %cleave-opt --superopt{split=false} --split-input-file %s | FileCheck %s
// RUN: %cleave-opt --superopt --split-input-file %s | FileCheck %s --check-prefix=SPLIT

// Softmax's division follows the product with the values, for all sizes; with split, each part has its own maximum.

!Q = tensor<?x64xf16, #cleave.dims<["m", "d"]>>
!K = tensor<?x64xf16, #cleave.dims<["n", "d"]>>
!V = tensor<?x64xf16, #cleave.dims<["n", "e"]>>
!S = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!H = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
!R = tensor<?xf32, #cleave.dims<["m"]>>
!O = tensor<?x64xf32, #cleave.dims<["m", "e"]>>

// CHECK-LABEL: func.func @attention(
// CHECK-SAME: cleave.cost = "reduction chain d + 3*n;
// CHECK-LABEL: func.func @attention__alternative1(
// CHECK-SAME: cleave.alternative_of = @attention
// CHECK-SAME: cleave.cost = "reduction chain d + 2*n;
// CHECK: %[[E:.*]] = "cleave.exp"
// CHECK-NOT: cleave.div
// CHECK: %[[P:.*]] = "cleave.cast"(%[[E]])
// CHECK: %[[O:.*]] = "cleave.contract"(%[[P]], %{{.*}}) {over = ["n"]}
// CHECK: %[[L:.*]] = "cleave.reduce"(%[[E]]) {kind = "sum", over = ["n"]}
// CHECK: "cleave.div"(%[[O]], %[[L]])
// CHECK-NOT: cleave.alternative_of

// SPLIT-LABEL: func.func @attention__alternative2(
// SPLIT-SAME: cleave.facts = ["1 <= s", "1 <= u"]
// SPLIT: "cleave.split"{{.*}} {dim = "n", into = ["s", "t=u*ceildiv(n, s*u)"]}
// SPLIT: "cleave.reduce"{{.*}} {kind = "max", over = ["t"]}
// SPLIT: "cleave.reduce"{{.*}} {kind = "max", over = ["s"]}
func.func @attention(%q: !Q, %k: !K, %v: !V) -> !O {
  %s = "cleave.contract"(%q, %k) {over = ["d"]} : (!Q, !K) -> !S
  %m = "cleave.reduce"(%s) {kind = "max", over = ["n"]} : (!S) -> !R
  %c = "cleave.sub"(%s, %m) : (!S, !R) -> !S
  %e = "cleave.exp"(%c) : (!S) -> !S
  %l = "cleave.reduce"(%e) {kind = "sum", over = ["n"]} : (!S) -> !R
  %p = "cleave.div"(%e, %l) : (!S, !R) -> !S
  %h = "cleave.cast"(%p) : (!S) -> !H
  %o = "cleave.contract"(%h, %v) {over = ["n"]} : (!H, !V) -> !O
  return %o : !O
}

// -----

// A scale that does not depend on the summed dimension leaves the contraction.

!X = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
!W = tensor<?x?xf32, #cleave.dims<["k", "n"]>>
!R = tensor<?xf32, #cleave.dims<["m"]>>
!Y = tensor<?x?xf32, #cleave.dims<["m", "n"]>>

// CHECK-LABEL: func.func @scaled(
// CHECK-LABEL: func.func @scaled__alternative1(
// CHECK: %[[Y:.*]] = "cleave.contract"(%arg0, %arg1) {over = ["k"]}
// CHECK: "cleave.mul"(%[[Y]], %{{.*}})
func.func @scaled(%x: !X, %w: !W) -> !Y {
  %xx = "cleave.mul"(%x, %x) : (!X, !X) -> !X
  %s = "cleave.reduce"(%xx) {kind = "sum", over = ["k"]} : (!X) -> !R
  %r = "cleave.rsqrt"(%s) : (!R) -> !R
  %n = "cleave.mul"(%x, %r) : (!X, !R) -> !X
  %y = "cleave.contract"(%n, %w) {over = ["k"]} : (!X, !W) -> !Y
  return %y : !Y
}

// -----

// Nothing to find: the function alone, with its cost.

!X = tensor<?xf32, #cleave.dims<["m"]>>

// CHECK-LABEL: func.func @nothing(
// CHECK-SAME: cleave.cost = "reduction chain 0; contraction flops 0; pointwise m; materialised 0"
// CHECK-NOT: cleave.alternative_of
func.func @nothing(%x: !X) -> !X {
  %y = "cleave.exp"(%x) : (!X) -> !X
  return %y : !X
}
