// RUN: not cleave-run %s 2>&1 | FileCheck %s
// RUN: not cleave-run --stage=reference %s 2>&1 | FileCheck %s --check-prefix=REFERENCE

// What cannot be compiled is run by the reference executor where it has a rule for each op; only then a note says so.
// CHECK: cleave-run-foreign.mlir:[[@LINE+4]]:8: error: 'f' cannot be compiled as a whole: 'other.op' is no op of a tensor graph
// CHECK-NOT: note
// REFERENCE: cleave-run-foreign.mlir:[[@LINE+2]]:8: error: the reference executor has no rule for 'other.op'
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = "other.op"(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
