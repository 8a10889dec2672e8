// RUN: not cleave-opt --finalize-memref-to-llvm %s > %t.out 2> %t.err
// RUN: FileCheck %s --input-file=%t.err
// RUN: not test -s %t.out

// An assertion of MLIR ends the process; that is an error like any other.
// CHECK: crash.mlir:1:1: error: pass finalize-memref-to-llvm crashed (signal 6, SIGABRT)
// CHECK: note: {{.*}}Assertion
// CHECK: note: no input should do this; please report it
func.func @f(%m: memref<4xi1>, %v: i1, %i: index) {
  memref.store %v, %m[%i] : memref<4xi1>
  return
}
