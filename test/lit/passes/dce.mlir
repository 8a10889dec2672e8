// RUN: %cleave-opt --cleave-dce --split-input-file %s | FileCheck %s

// A chain that nobody uses goes from its end to its start.
// CHECK-LABEL: @chain
// CHECK-NEXT:    return %arg0
!v = tensor<?xf32, #cleave.dims<["m"]>>
func.func @chain(%a: !v) -> !v {
  %0 = "cleave.exp"(%a) : (!v) -> !v
  %1 = "cleave.neg"(%0) : (!v) -> !v
  %2 = "cleave.add"(%1, %0) : (!v, !v) -> !v
  return %a : !v
}

// -----

// Unused loads and allocations go; stores, calls and what they need stay.
// CHECK-LABEL: @memory
// CHECK-NOT:     "cleave.load"
// CHECK:         %[[A:.*]] = "cleave.alloc"
// CHECK-NOT:     "cleave.alloc"
// CHECK:         call @k(%[[A]])
// CHECK:         %[[T:.*]] = "cleave.constant"
// CHECK:         "cleave.store"(%[[T]]
!g = tensor<?xf32, #cleave.dims<["m"]>>
!t = tensor<64xf32, #cleave.dims<["m=64"]>>
func.func private @k(!g)
func.func @memory(%x: !g, %n: index) {
  %o = arith.constant 0 : index
  %0 = "cleave.load"(%x, %o, %n) {fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 1>} : (!g, index, index) -> !t
  %1 = "cleave.alloc"() : () -> !g
  %2 = "cleave.alloc"() : () -> !g
  func.call @k(%1) : (!g) -> ()
  %3 = "cleave.constant"() {value = 1.0 : f32} : () -> !t
  "cleave.store"(%3, %x, %o, %n) {operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (!t, !g, index, index) -> ()
  return
}

// -----

// A loop goes when nobody uses its results and it stores nothing.
// CHECK-LABEL: @loops
// CHECK-COUNT-1: scf.for
// CHECK:           "cleave.store"
// CHECK-NOT:     scf.for
// CHECK:         return
!g = tensor<?xf32, #cleave.dims<["m"]>>
!t = tensor<64xf32, #cleave.dims<["m=64"]>>
func.func @loops(%x: !g, %n: index) {
  %zero = arith.constant 0 : index
  %step = arith.constant 64 : index
  %unused = scf.for %i = %zero to %n step %step iter_args(%s = %zero) -> index {
    %next = arith.addi %s, %i : index
    scf.yield %next : index
  }
  %t = "cleave.constant"() {value = 1.0 : f32} : () -> !t
  scf.for %i = %zero to %n step %step {
    %dead = arith.muli %i, %i : index
    "cleave.store"(%t, %x, %i, %n) {operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (!t, !g, index, index) -> ()
  }
  return
}

// -----

// Ops of other dialects are not ours to judge.
// CHECK-LABEL: @foreign
// CHECK:         tensor.empty
func.func @foreign() {
  %0 = tensor.empty() : tensor<4xf32>
  return
}
