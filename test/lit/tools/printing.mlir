// RUN: cleave-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC
// RUN: cleave-opt %s --mlir-print-debuginfo | FileCheck %s --check-prefix=LOCATIONS
// RUN: cleave-opt %s --cleave-dce --mlir-timing 2>&1 >/dev/null | FileCheck %s --check-prefix=TIMING
// RUN: cleave-opt %s -o %t.mlir | FileCheck %s --check-prefix=NOTHING --allow-empty
// RUN: FileCheck %s --check-prefix=FILE --input-file=%t.mlir
// RUN: cleave-opt %t.mlir -o %t.mlir --mlir-print-op-generic
// RUN: FileCheck %s --check-prefix=GENERIC --input-file=%t.mlir

// GENERIC: "func.func"() <{
// LOCATIONS: loc("{{.*}}printing.mlir":[[@LINE+7]]:1)
// TIMING: execution time
// TIMING: % {{ *}}1  parser
// TIMING: % {{ *}}1  cleave-dce
// TIMING: total
// NOTHING-NOT: {{.}}
// FILE: func.func @f() {
func.func @f() { return }
