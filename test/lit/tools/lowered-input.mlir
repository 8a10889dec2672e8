// What --lower-to-triton writes is read again as it is, Triton's ops among it; ops of other unknown dialects are errors.

// RUN: cleave-opt --schedule --lower-to-triton %s -o %t.lowered
// RUN: cleave-opt %t.lowered -o %t.again
// RUN: diff %t.lowered %t.again
// RUN: cleave-opt --mlir-print-op-generic %t.lowered | cleave-opt --canonicalize --cleave-cse --emit=ttir - | FileCheck %s
// RUN: sed 's/"tt.make_range"/"other.make_range"/' %t.lowered | not cleave-opt - 2>&1 | FileCheck --check-prefix=OTHER %s
// RUN: sed 's/"tt.make_range"/"other.make_range"/' %t.lowered | cleave-opt --allow-unregistered-dialect - | FileCheck --check-prefix=ALLOWED %s

// CHECK: "tt.make_range"
// OTHER: <stdin>:{{[0-9]+}}:{{[0-9]+}}: error: 'other.make_range' is an op of no known dialect
// OTHER: note: --allow-unregistered-dialect
// ALLOWED: "other.make_range"

!A = tensor<?x?xf16, #cleave.dims<["m", "k"]>>
!B = tensor<?xf32, #cleave.dims<["m"]>>

func.func @row_sums(%a: !A) -> !B {
  %0 = "cleave.cast"(%a) : (!A) -> tensor<?x?xf32, #cleave.dims<["m", "k"]>>
  %1 = "cleave.reduce"(%0) {kind = "sum", over = ["k"]} : (tensor<?x?xf32, #cleave.dims<["m", "k"]>>) -> !B
  return %1 : !B
}
