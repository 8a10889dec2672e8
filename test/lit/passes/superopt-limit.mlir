// RUN: %cleave-opt "--superopt{max-classes=1}" --verify-diagnostics %s | FileCheck %s
// RUN: not %cleave-opt "--superopt{max-ops=0}" %s 2>&1 | FileCheck %s --check-prefix=OPS
// RUN: not %cleave-opt "--superopt{time-limit=-1}" %s 2>&1 | FileCheck %s --check-prefix=TIME
// RUN: not %cleave-opt "--superopt{time-limit=nan}" %s 2>&1 | FileCheck %s --check-prefix=NAN

// A limit that is reached is said, and the source stays.

!X = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
!W = tensor<?x?xf32, #cleave.dims<["k", "n"]>>
!Y = tensor<?x?xf32, #cleave.dims<["m", "n"]>>

// OPS: error: cleave-superopt: max_ops is 0, but must be a number of at least 1
// TIME: error: cleave-superopt: time_limit is -1.0, but must be a number of at least 0
// NAN: <command line>:1:12: error: option 'time-limit' of cleave-superopt must be a finite number, not 'nan'
// CHECK-LABEL: func.func @matmul(
// expected-remark @+1 {{the search of 'matmul' stopped early: these are the best so far; it has 1 classes (max-classes)}}
func.func @matmul(%x: !X, %w: !W) -> !Y {
  %a = "cleave.mul"(%x, %x) : (!X, !X) -> !X
  %b = "cleave.contract"(%a, %w) {over = ["k"]} : (!X, !W) -> !Y
  return %b : !Y
}
