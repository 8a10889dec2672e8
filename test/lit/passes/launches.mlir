// RUN: %cleave-opt --split-input-file --verify-diagnostics --cleave-verify %s

// Launches that overlap, and blocks that wait for one another: what would be a race or never end is refused.

!A = tensor<?xf32, #cleave.dims<["m"]>>
!T = tensor<16xf32, #cleave.dims<["m=16"]>>
func.func @right(%a: !A, %g: !A) -> !A {
  %b = "cleave.alloc"() : () -> !A
  %c = "cleave.alloc"() : () -> !A
  func.call @first(%a, %b) {cleave.grid = ["1"]} : (!A, !A) -> ()
  func.call @second(%b, %g, %c) {cleave.grid = ["1"], cleave.overlaps} : (!A, !A, !A) -> ()
  return %c : !A
}
func.func private @first(%a: !A, %b: !A {cleave.out}) attributes {cleave.kernel} {
  "cleave.trigger"() : () -> ()
  %c = arith.constant 0 : index
  %0 = "cleave.load"(%a, %c, %c) {fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 1>} : (!A, index, index) -> !T
  "cleave.store"(%0, %b, %c, %c) {operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (!T, !A, index, index) -> ()
  return
}
func.func private @second(%b: !A, %g: !A, %o: !A {cleave.out}) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  %0 = "cleave.load"(%g, %c, %c) {fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 1>} : (!A, index, index) -> !T
  "cleave.wait"() : () -> ()
  %1 = "cleave.load"(%b, %c, %c) {fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 1>} : (!A, index, index) -> !T
  "cleave.store"(%1, %o, %c, %c) {operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (!T, !A, index, index) -> ()
  return
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
!V = tensor<?xf32, #cleave.dims<["n=m"]>>
!T = tensor<16xf32, #cleave.dims<["n=16"]>>
func.func @early_load(%a: !A) -> !A {
  %b = "cleave.alloc"() : () -> !A
  %c = "cleave.alloc"() : () -> !A
  func.call @first(%a, %b) {cleave.grid = ["1"]} : (!A, !A) -> ()
  %v = "cleave.rename"(%b) {from = "m", to = "n=m"} : (!A) -> !V
  func.call @second(%v, %c) {cleave.grid = ["1"], cleave.overlaps} : (!V, !A) -> ()
  return %c : !A
}
func.func private @first(%a: !A, %b: !A {cleave.out}) attributes {cleave.kernel} {
  return
}
func.func private @second(%b: !V, %o: !A {cleave.out}) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  // expected-error @+1 {{'cleave.load' before the wait of what a launch writes}}
  %0 = "cleave.load"(%b, %c, %c) {fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 1>} : (!V, index, index) -> !T
  "cleave.wait"() : () -> ()
  return
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
!T = tensor<16xf32, #cleave.dims<["m=16"]>>
func.func @early_store(%a: !A) -> !A {
  %b = "cleave.alloc"() : () -> !A
  func.call @first(%a, %b) {cleave.grid = ["1"]} : (!A, !A) -> ()
  func.call @second(%b) {cleave.grid = ["1"], cleave.overlaps} : (!A) -> ()
  return %b : !A
}
func.func private @first(%a: !A, %b: !A {cleave.out}) attributes {cleave.kernel} {
  return
}
func.func private @second(%o: !A {cleave.out}) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  %0 = "cleave.constant"() {value = 0.0 : f32} : () -> !T
  // expected-error @+1 {{'cleave.store' before the wait: earlier launches may still use that memory}}
  "cleave.store"(%0, %o, %c, %c) {operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (!T, !A, index, index) -> ()
  "cleave.wait"() : () -> ()
  return
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
func.func @no_wait(%a: !A) {
  // expected-error @+1 {{the first launch has none to overlap with}}
  func.call @waits(%a) {cleave.grid = ["1"], cleave.overlaps} : (!A) -> ()
  // expected-error @+1 {{'rushes' overlaps with the launch before it, so it needs one cleave.wait, outside all loops}}
  func.call @rushes(%a) {cleave.grid = ["1"], cleave.overlaps} : (!A) -> ()
  return
}
func.func private @waits(%a: !A) attributes {cleave.kernel} {
  "cleave.wait"() : () -> ()
  return
}
func.func private @rushes(%a: !A) attributes {cleave.kernel} {
  return
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
!C = tensor<?xi32, #cleave.dims<["g"]>>
func.func @never_ends(%a: !A, %c: !C) {
  // expected-error @+2 {{the blocks of 'meets' wait for one another}}
  // expected-note @+1 {{mark the launch cleave.cooperative: blocks that are not running cannot arrive}}
  func.call @meets(%c) {cleave.grid = ["g"]} : (!C) -> ()
  // expected-error @+1 {{'cleave.unless' names 'meets', which no cooperative launch before runs}}
  func.call @plain(%a) {cleave.grid = ["1"], cleave.unless = @meets} : (!A) -> ()
  return
}
func.func private @meets(%c: !C {cleave.out}) attributes {cleave.kernel} {
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  scf.for %i = %0 to %1 step %1 {
    // expected-error @+1 {{'cleave.group_barrier' stands outside all loops}}
    "cleave.group_barrier"(%c, %i, %1) : (!C, index, index) -> ()
  }
  return
}
func.func private @plain(%a: !A) attributes {cleave.kernel} {
  return
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
func.func @counters(%a: !A, %i: index) {
  // expected-error @+1 {{'cleave.group_barrier' the counters must be a rank-1 tensor of i32, not [m] f32}}
  "cleave.group_barrier"(%a, %i, %i) : (!A, index, index) -> ()
  // expected-error @+1 {{'cleave.alloc' attribute 'contents' must be "zero"}}
  %0 = "cleave.alloc"() {contents = "one"} : () -> !A
  return
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
func.func @of_one(%a: !A) {
  // expected-error @+1 {{'moves' is said to be a product, which has two operands and a result}}
  func.call @moves(%a, %a) {cleave.grid = ["1"], cleave.product = 1 : i64} : (!A, !A) -> ()
  // expected-error @+2 {{'cleave.product' is the number of a library's algorithm, from 1 to 1024, not unit}}
  // expected-error @+1 {{'moves' is said to be a product, which has two operands and a result}}
  func.call @moves(%a, %a) {cleave.grid = ["1"], cleave.product} : (!A, !A) -> ()
  return
}
func.func private @moves(%a: !A, %b: !A {cleave.out}) attributes {cleave.kernel} {
  return
}

// -----

!A = tensor<?x?xi8, #cleave.dims<["m", "k"]>>
!B = tensor<?x?xi8, #cleave.dims<["k", "n"]>>
!D = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
func.func @of_bytes(%a: !A, %b: !B, %d: !D) {
  // expected-error @+2 {{'cleave.product' is the number of a library's algorithm, from 1 to 1024, not 2147483648}}
  // expected-error @+1 {{'multiplies' is said to be a product, which no library makes of i8 in f32}}
  func.call @multiplies(%a, %b, %d) {cleave.grid = ["1"], cleave.product = 2147483648 : i64} : (!A, !B, !D) -> ()
  return
}
func.func private @multiplies(%a: !A, %b: !B, %d: !D {cleave.out}) attributes {cleave.kernel} {
  return
}
