// RUN: %cleave-opt --split-input-file --verify-diagnostics --cleave-verify %s

!A = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
!B = tensor<?x?xf32, #cleave.dims<["k", "n"]>>
!C = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
func.func @over_unknown(%a: !A, %b: !B) -> !C {
  // expected-error @+1 {{'cleave.contract' 'over' names 'd', which no operand has (they have m, k, n)}}
  %0 = "cleave.contract"(%a, %b) {over = ["d"]} : (!A, !B) -> !C
  return %0 : !C
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
!B = tensor<?x?xf32, #cleave.dims<["k", "n"]>>
!C = tensor<?x?x?xf32, #cleave.dims<["m", "k", "n"]>>
func.func @result_dims(%a: !A, %b: !B) -> !C {
  // expected-error @+1 {{'cleave.contract' the result has dimensions [m, k, n], the operands give [m, n]}}
  %0 = "cleave.contract"(%a, %b) {over = ["k"]} : (!A, !B) -> !C
  return %0 : !C
}

// -----

!A = tensor<4x?xf32, #cleave.dims<["m", "k"]>>
!B = tensor<4x8xf32, #cleave.dims<["m", "k=8"]>>
func.func @not_provable(%a: !A, %b: !B) -> !A {
  // expected-error @+2 {{'cleave.add' cannot prove that dimension 'k' has one size: k and, in operand 1, 8}}
  // expected-note @+1 {{state the fact "k = 8" (cleave.facts, facts= of jit)}}
  %0 = "cleave.add"(%a, %b) : (!A, !B) -> !A
  return %0 : !A
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "k=2*n"]>>
!B = tensor<?x?xf32, #cleave.dims<["m", "k=2*n+1"]>>
func.func @sizes_differ(%a: !A, %b: !B) -> !A {
  // expected-error @+1 {{dimension 'k' has size 2*n and, in operand 1, size 2*n + 1}}
  %0 = "cleave.add"(%a, %b) : (!A, !B) -> !A
  return %0 : !A
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
!H = tensor<?xf16, #cleave.dims<["m"]>>
func.func @dtypes(%a: !A, %b: !H) -> !A {
  // expected-error @+2 {{'cleave.add' operands have different element types: f32, f16}}
  // expected-note @+1 {{insert cleave.cast}}
  %0 = "cleave.add"(%a, %b) : (!A, !H) -> !A
  return %0 : !A
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
!H = tensor<?xf16, #cleave.dims<["m"]>>
func.func @result_dtype(%a: !A) -> !H {
  // expected-error @+1 {{'cleave.exp' the result is f16, the operands give f32}}
  %0 = "cleave.exp"(%a) : (!A) -> !H
  return %0 : !H
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
func.func @misspelt(%a: !A) -> !A {
  // expected-error @+2 {{'cleave.exp' has an unknown attribute 'ovr'}}
  // expected-note @+1 {{known here: none}}
  %0 = "cleave.exp"(%a) {ovr = ["m"]} : (!A) -> !A
  return %0 : !A
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
!S = tensor<f32, #cleave.dims<[]>>
func.func @kind(%a: !A) -> !S {
  // expected-error @+1 {{'cleave.reduce' kind 'mean' is not one of sum, max, min, prod}}
  %0 = "cleave.reduce"(%a) {kind = "mean", over = ["m"]} : (!A) -> !S
  return %0 : !S
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
!S = tensor<f32, #cleave.dims<[]>>
func.func @missing_attribute(%a: !A) -> !S {
  // expected-error @+1 {{attribute "over" is expected but not provided}}
  %0 = "cleave.reduce"(%a) {kind = "sum"} : (!A) -> !S
  return %0 : !S
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
!S = tensor<f32, #cleave.dims<[]>>
func.func @attribute_kind(%a: !A) -> !S {
  // expected-error @+1 {{'cleave.reduce' attribute 'over' must be an array of strings, not [1]}}
  %0 = "cleave.reduce"(%a) {kind = "sum", over = [1]} : (!A) -> !S
  return %0 : !S
}

// -----

!E = tensor<4x0xf32, #cleave.dims<["m", "n=0"]>>
!A = tensor<4xf32, #cleave.dims<["m"]>>
func.func @empty_maximum(%a: !E) -> !A {
  // expected-error @+1 {{'cleave.reduce' max over the empty dimension 'n' has no value}}
  %0 = "cleave.reduce"(%a) {kind = "max", over = ["n"]} : (!E) -> !A
  return %0 : !A
}

// -----

!A = tensor<?xf32, #cleave.dims<["m", "n"]>>
// expected-error @+1 {{has rank 1 but names 2 dimensions}}
func.func @rank(%a: !A) -> !A {
  return %a : !A
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "m"]>>
// expected-error @+1 {{names a dimension twice}}
func.func @twice(%a: !A) -> !A {
  return %a : !A
}

// -----

!A = tensor<4x8xf32, #cleave.dims<["m", "k"]>>
!B = tensor<5xf32, #cleave.dims<["m"]>>
// expected-error @+1 {{dimension 'm' has extent 5 here and 4 before}}
func.func @extents(%a: !A, %b: !B) -> !A {
  return %a : !A
}

// -----

!A = tensor<5xf32, #cleave.dims<["m=4"]>>
// expected-error @+1 {{dimension 'm=4' has extent 5}}
func.func @extent_and_size(%a: !A) -> !A {
  return %a : !A
}

// -----

!A = tensor<?xf32, #cleave.dims<["n"]>>
!S = tensor<?x?xf32, #cleave.dims<["s", "t=floordiv(n, 2*s)"]>>
func.func @split_twice(%a: !A) -> !S {
  // expected-error @+1 {{'cleave.split' 'into' names 's' twice}}
  %0 = "cleave.split"(%a) {dim = "n", into = ["s", "s=ceildiv(n, s)"]} : (!A) -> !S
  return %0 : !S
}

// -----

!A = tensor<?xf32, #cleave.dims<["n"]>>
!S = tensor<?x?xf32, #cleave.dims<["s=2", "t=3"]>>
func.func @split_does_not_cover(%a: !A) -> !S attributes {cleave.facts = ["7 <= n"]} {
  // expected-error @+1 {{2 parts of 3 do not cover dimension 'n' of size n}}
  %0 = "cleave.split"(%a) {dim = "n", into = ["s=2", "t=3"]} : (!A) -> !S
  return %0 : !S
}

// -----

!A = tensor<?xf32, #cleave.dims<["n"]>>
// expected-error @+1 {{cleave.facts}}
func.func @facts(%a: !A) -> !A attributes {cleave.facts = ["n = n + 1"]} {
  return %a : !A
}

// -----

!A = tensor<?xf32, #cleave.dims<["n"]>>
// expected-error @+2 {{unknown attribute 'cleave.fact'}}
// expected-note @+1 {{known here: cleave.aligned, cleave.alternative, cleave.alternative_of}}
func.func @function_attribute(%a: !A) -> !A attributes {cleave.fact = ["1 <= n"]} {
  return %a : !A
}

// -----

!A = tensor<?xf32, #cleave.dims<["n"]>>
!P = tensor<?xf32>
func.func @no_names(%a: !P) -> !P {
  // expected-error @+2 {{names no dimensions}}
  // expected-note @+1 {{#cleave.dims<["m", "k"]>>}}
  %0 = "cleave.exp"(%a) : (!P) -> !P
  return %0 : !P
}

// -----

!I = tensor<?xi32, #cleave.dims<["n"]>>
func.func @integer_exp(%a: !I) -> !I {
  // expected-error @+2 {{'cleave.exp' needs a floating-point operand, not i32}}
  // expected-note @+1 {{insert cleave.cast}}
  %0 = "cleave.exp"(%a) : (!I) -> !I
  return %0 : !I
}

// -----

!A = tensor<?xf32, #cleave.dims<["n"]>>
func.func @condition(%a: !A) -> !A {
  // expected-error @+1 {{'cleave.select' the condition must be i1, not f32}}
  %0 = "cleave.select"(%a, %a, %a) : (!A, !A, !A) -> !A
  return %0 : !A
}

// -----

!S = tensor<f16, #cleave.dims<[]>>
func.func @constant_type() -> !S {
  // expected-error @+1 {{'cleave.constant' attribute 'value' is f32, the element type is f16}}
  %0 = "cleave.constant"() {value = 1.0 : f32} : () -> !S
  return %0 : !S
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
!T = tensor<16x16xf32, #cleave.dims<["m=16", "n=16"]>>
func.func private @k(%a: !A) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  // expected-error @+1 {{'cleave.load' the tile has dimensions ['n'] that the tensor [m, k] f32 has not}}
  %0 = "cleave.load"(%a, %c, %c, %c, %c) {fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 2, 2>} : (!A, index, index, index, index) -> !T
  return
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
!T = tensor<16x16xf32, #cleave.dims<["m=16", "k=16"]>>
func.func private @k(%a: !A) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  // expected-error @+1 {{'cleave.load' needs 2 offsets and as many bounds, one for each dimension of the tensor, not 1 and 2}}
  %0 = "cleave.load"(%a, %c, %c, %c) {fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 2>} : (!A, index, index, index) -> !T
  return
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
func.func private @k(%a: !A, %i: tensor<16xi32, #cleave.dims<["i=16"]>>) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  // expected-error @+1 {{'cleave.gather_load' needs one tile of indices for each of 'dims', not 1 for ['m', 'k']}}
  %0 = "cleave.gather_load"(%a, %i, %c, %c, %c, %c) {dims = ["m", "k"], fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (!A, tensor<16xi32, #cleave.dims<["i=16"]>>, index, index, index, index) -> tensor<16x16xf32, #cleave.dims<["i=16", "k=16"]>>
  return
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
func.func private @k(%a: !A, %i: tensor<16xi32, #cleave.dims<["i=16"]>>) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  // expected-error @+1 {{'cleave.gather_load' 'dims' names 'x', which the tensor [m, k] f32 has not}}
  %0 = "cleave.gather_load"(%a, %i, %c, %c, %c, %c) {dims = ["x"], fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (!A, tensor<16xi32, #cleave.dims<["i=16"]>>, index, index, index, index) -> tensor<16x16xf32, #cleave.dims<["i=16", "k=16"]>>
  return
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
func.func private @k(%a: !A, %i: tensor<16xf32, #cleave.dims<["i=16"]>>) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  // expected-error @+1 {{'cleave.gather_load' indices must be integers, not f32}}
  %0 = "cleave.gather_load"(%a, %i, %c, %c, %c, %c) {dims = ["m"], fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (!A, tensor<16xf32, #cleave.dims<["i=16"]>>, index, index, index, index) -> tensor<16x16xf32, #cleave.dims<["i=16", "k=16"]>>
  return
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
func.func private @k(%a: !A, %i: tensor<16xi32, #cleave.dims<["m=16"]>>) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  // expected-error @+1 {{'cleave.gather_load' the indices have the gathered dimension 'm' themselves}}
  %0 = "cleave.gather_load"(%a, %i, %c, %c, %c, %c) {dims = ["m"], fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (!A, tensor<16xi32, #cleave.dims<["m=16"]>>, index, index, index, index) -> tensor<16x16xf32, #cleave.dims<["i=16", "k=16"]>>
  return
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
func.func private @k(%a: !A, %i: tensor<16xi32, #cleave.dims<["i=16"]>>) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  // expected-error @+1 {{'cleave.gather_load' the tile [k=16] f32 lacks a dimension of the indices: i}}
  %0 = "cleave.gather_load"(%a, %i, %c, %c, %c, %c) {dims = ["m"], fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (!A, tensor<16xi32, #cleave.dims<["i=16"]>>, index, index, index, index) -> tensor<16xf32, #cleave.dims<["k=16"]>>
  return
}

// -----

!A = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
func.func private @k(%a: !A, %i: tensor<16xi32, #cleave.dims<["i=16"]>>) attributes {cleave.kernel} {
  %c = arith.constant 0 : index
  // expected-error @+1 {{'cleave.gather_load' the tile has dimensions ['m'] that the tensor [m, k] f32 has not}}
  %0 = "cleave.gather_load"(%a, %i, %c, %c, %c, %c) {dims = ["m"], fill = 0.0 : f32, operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (!A, tensor<16xi32, #cleave.dims<["i=16"]>>, index, index, index, index) -> tensor<16x16xf32, #cleave.dims<["i=16", "m=16"]>>
  return
}

// -----

!A = tensor<?xf32, #cleave.dims<["m"]>>
// expected-error @+1 {{cleave.choices: 's = ²' is not of the form "s = 8"}}
func.func @choices(%a: !A) -> !A attributes {cleave.choices = ["s = ²"]} {
  return %a : !A
}

// -----

!X = tensor<?xf32, #cleave.dims<["m"]>>
func.func private @scalar(%x: !X) attributes {cleave.kernel} {
  %f = "cleave.constant"() {value = 1.0 : f32} : () -> tensor<f32, #cleave.dims<[]>>
  // expected-error @+1 {{'cleave.scalar' the operand must be a rank-0 tensor of i32 or i64, not}}
  %i = "cleave.scalar"(%f) : (tensor<f32, #cleave.dims<[]>>) -> index
  return
}
