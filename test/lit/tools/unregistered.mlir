// RUN: cleave-opt --allow-unregistered-dialect %s | FileCheck %s
// RUN: not cleave-opt %s 2>&1 | FileCheck %s --check-prefix=ERROR

// CHECK: "other.op"() : () -> ()
// ERROR: unregistered.mlir:[[@LINE+2]]:{{[0-9]+}}: error: operation being parsed with an unregistered dialect
func.func @f() {
  "other.op"() : () -> ()
  return
}
