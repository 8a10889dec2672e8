// RUN: %cleave-opt --cleave-cse --split-input-file %s | FileCheck %s

// Equal ops become one, also when they become equal only by merging their operands.
// CHECK-LABEL: @chain
// CHECK:         %[[E:.*]] = "cleave.exp"(%arg0)
// CHECK-NEXT:    %[[N:.*]] = "cleave.neg"(%[[E]])
// CHECK-NEXT:    %[[A:.*]] = "cleave.add"(%[[N]], %[[N]])
// CHECK-NEXT:    return %[[A]]
!v = tensor<?xf32, #cleave.dims<["m"]>>
func.func @chain(%a: !v) -> !v {
  %0 = "cleave.exp"(%a) : (!v) -> !v
  %1 = "cleave.exp"(%a) : (!v) -> !v
  %2 = "cleave.neg"(%0) : (!v) -> !v
  %3 = "cleave.neg"(%1) : (!v) -> !v
  %4 = "cleave.add"(%2, %3) : (!v, !v) -> !v
  return %4 : !v
}

// -----

// Other attributes, operands or result types: other values.
// CHECK-LABEL: @differ
// CHECK-COUNT-2: "cleave.reduce"
// CHECK-COUNT-2: "cleave.sub"
// CHECK-COUNT-2: "cleave.cast"
// CHECK-COUNT-2: arith.cmpi
!m = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!v = tensor<?xf32, #cleave.dims<["m"]>>
!h = tensor<?xf16, #cleave.dims<["m"]>>
!b = tensor<?xbf16, #cleave.dims<["m"]>>
func.func @differ(%a: !m, %i: index) -> (!v, !v, !h, !b, i1, i1) {
  %0 = "cleave.reduce"(%a) {kind = "sum", over = ["n"]} : (!m) -> !v
  %1 = "cleave.reduce"(%a) {kind = "max", over = ["n"]} : (!m) -> !v
  %2 = "cleave.sub"(%0, %1) : (!v, !v) -> !v
  %3 = "cleave.sub"(%1, %0) : (!v, !v) -> !v
  %4 = "cleave.cast"(%0) : (!v) -> !h
  %5 = "cleave.cast"(%0) : (!v) -> !b
  %zero = arith.constant 0 : index
  %6 = arith.cmpi eq, %i, %zero : index
  %7 = arith.cmpi ne, %i, %zero : index
  return %2, %3, %4, %5, %6, %7 : !v, !v, !h, !b, i1, i1
}

// -----

// A loop sees what is computed before it; what is computed in one branch stands for nothing in the other.
// CHECK-LABEL: @regions
// CHECK:         %[[OUTSIDE:.*]] = arith.addi %arg0, %arg0
// CHECK:         scf.for
// CHECK-NOT:       arith.addi %arg0, %arg0
// CHECK:           arith.addi %{{.*}}, %[[OUTSIDE]]
// CHECK:         scf.if
// CHECK:           arith.muli
// CHECK:         else
// CHECK:           arith.muli
func.func @regions(%n: index, %c: i1) -> (index, index) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %outside = arith.addi %n, %n : index
  %sum = scf.for %i = %zero to %outside step %one iter_args(%s = %zero) -> index {
    %inside = arith.addi %n, %n : index
    %next = arith.addi %s, %inside : index
    scf.yield %next : index
  }
  %r = scf.if %c -> index {
    %x = arith.muli %n, %n : index
    scf.yield %x : index
  } else {
    %y = arith.muli %n, %n : index
    scf.yield %y : index
  }
  return %sum, %r : index, index
}

// -----

// Loads, stores and allocations stay as they are.
// CHECK-LABEL: @memory
// CHECK-COUNT-2: "cleave.load"
// CHECK:         "cleave.store"
// CHECK:         "cleave.load"
// CHECK-COUNT-2: "cleave.alloc"
!g = tensor<?xf32, #cleave.dims<["m"]>>
!t = tensor<64xf32, #cleave.dims<["m=64"]>>
func.func @memory(%x: !g, %n: index) -> (!t, !t, !t, !g, !g) {
  %o = arith.constant 0 : index
  %0 = "cleave.load"(%x, %o, %n) {fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 1>} : (!g, index, index) -> !t
  %1 = "cleave.load"(%x, %o, %n) {fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 1>} : (!g, index, index) -> !t
  "cleave.store"(%0, %x, %o, %n) {operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (!t, !g, index, index) -> ()
  %2 = "cleave.load"(%x, %o, %n) {fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 1>} : (!g, index, index) -> !t
  %3 = "cleave.alloc"() : () -> !g
  %4 = "cleave.alloc"() : () -> !g
  return %0, %1, %2, %3, %4 : !t, !t, !t, !g, !g
}
