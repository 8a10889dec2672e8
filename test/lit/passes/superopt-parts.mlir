// RUN: %cleave-opt "--superopt{max-ops=4 split=false}" --verify-diagnostics --split-input-file %s | FileCheck %s

// A function beyond the bound is cut at a value that the user rounds, and each part is improved.

!X = tensor<?x?xf16, #cleave.dims<["m", "k"]>>
!W = tensor<?x?xf32, #cleave.dims<["k", "n"]>>
!V = tensor<?x?xf32, #cleave.dims<["n", "o"]>>
!WF = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
!Y = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!H = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
!Z = tensor<?x?xf32, #cleave.dims<["m", "o"]>>
!R = tensor<?xf32, #cleave.dims<["m"]>>

// CHECK-LABEL: func.func @two_layers(
// CHECK-LABEL: func.func @two_layers__alternative1(
// CHECK-SAME: cleave.certificate = ["part 1: {{.*}}", "part 2: {{.*}}"]
// CHECK: %[[H:.*]] = "cleave.cast"(%{{.*}}) : {{.*}} -> tensor<?x?xf16, #cleave.dims<["m", "n"]>>
// CHECK-NEXT: %[[F:.*]] = "cleave.cast"(%[[H]])
// CHECK-NEXT: %[[Z:.*]] = "cleave.contract"(%[[F]], %arg2) {over = ["n"]}
// CHECK-NEXT: "cleave.mul"(%[[Z]], %arg3)
func.func @two_layers(%x: !WF, %w: !W, %v: !V, %r: !R) -> !Z {
  %a = "cleave.mul"(%x, %r) : (!WF, !R) -> !WF
  %b = "cleave.contract"(%a, %w) {over = ["k"]} : (!WF, !W) -> !Y
  // expected-remark @+1 {{superopt: cut here: 'cast' [m, n] f16 is computed in one part and taken as given in others}}
  %c = "cleave.cast"(%b) : (!Y) -> !H
  %d = "cleave.cast"(%c) : (!H) -> !Y
  %e = "cleave.mul"(%d, %r) : (!Y, !R) -> !Y
  %f = "cleave.contract"(%e, %v) {over = ["n"]} : (!Y, !V) -> !Z
  return %f : !Z
}

// -----

// Of cuts at equal ops the first says how many more there are.

!S = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
!N = tensor<?x?xf16, #cleave.dims<["m", "k"]>>

func.func @three_roundings(%x: !S) -> !S {
  %a = "cleave.exp"(%x) : (!S) -> !S
  // expected-remark @+1 {{superopt: cut here: 'cast' [m, k] f16 is computed in one part and taken as given in others; and 1 more such, which 'explain' shows}}
  %b = "cleave.cast"(%a) : (!S) -> !N
  %c = "cleave.cast"(%b) : (!N) -> !S
  %d = "cleave.exp"(%c) : (!S) -> !S
  %e = "cleave.cast"(%d) : (!S) -> !N
  %f = "cleave.cast"(%e) : (!N) -> !S
  %g = "cleave.exp"(%f) : (!S) -> !S
  %h = "cleave.tanh"(%g) : (!S) -> !S
  return %h : !S
}
