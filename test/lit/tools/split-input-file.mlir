// RUN: cleave-opt --split-input-file %s | FileCheck %s
// RUN: cleave-opt --split-input-file --canonicalize - < %s | FileCheck %s
// RUN: not cleave-opt %s 2>&1 | FileCheck %s --check-prefix=WHOLE

// WHOLE: split-input-file.mlir:[[@LINE+7]]:1: error: redefinition of symbol named 'f'

// CHECK: func.func @f() {
// CHECK: {{^}}// -----{{$}}
// CHECK: func.func @f(%arg0: i32) {
func.func @f() { return }
// -----
func.func @f(%a: i32) { return }
