// RUN: not cleave-opt --split-input-file %s > %t.out 2> %t.err
// RUN: FileCheck %s --input-file=%t.err
// RUN: not test -s %t.out

// Every part is tried, errors have the line in the whole file, and nothing is written if one part fails.
func.func @good() { return }

// -----

// CHECK: split-errors.mlir:[[@LINE+2]]:18: error: custom op 'first' is unknown
// CHECK-NEXT: func.func @a() {
func.func @a() { first }

// -----

// CHECK: split-errors.mlir:[[@LINE+1]]:18: error: custom op 'second' is unknown
func.func @a() { second }
