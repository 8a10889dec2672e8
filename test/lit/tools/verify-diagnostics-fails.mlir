// RUN: not cleave-opt --split-input-file --verify-diagnostics %s > %t.out 2> %t.err
// RUN: FileCheck %s --input-file=%t.err
// RUN: not test -s %t.out

// CHECK: verify-diagnostics-fails.mlir:[[@LINE+1]]:1: error: expected error "no such thing" was not produced
// expected-error@+1 {{no such thing}}
func.func @missing() { return }

// -----

// CHECK: verify-diagnostics-fails.mlir:[[@LINE+1]]:30: error: unexpected error: custom op 'unknown' is unknown
func.func @not_announced() { unknown }

// -----

// Not this text, not this line, not this severity.
// CHECK: error: unexpected error: custom op 'unknown'
// CHECK: error: expected error "another text" was not produced
// expected-error@+1 {{another text}}
func.func @text() { unknown }

// -----

// CHECK: error: unexpected error: custom op 'unknown'
// CHECK: error: expected error "custom op" was not produced
// expected-error@+2 {{custom op}}
func.func @line() { unknown }

// -----

// CHECK: error: unexpected error: custom op 'unknown'
// CHECK: error: expected warning "custom op" was not produced
// expected-warning@+1 {{custom op}}
func.func @severity() { unknown }

// -----

// One comment stands for one diagnostic.
// CHECK: error: expected error "custom op" was not produced
// expected-error@+2 {{custom op}}
// expected-error@+1 {{custom op}}
func.func @once() { unknown }

// -----

// CHECK: verify-diagnostics-fails.mlir:[[@LINE+1]]:1: error: malformed comment; write expected-error @+1
// expected-error@+1 {custom op}
