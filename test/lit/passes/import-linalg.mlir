// RUN: cleave-opt --import-linalg --split-input-file --verify-diagnostics %s | FileCheck %s

// A sum whose initial value is not zero keeps it; one whose value is zero loses it.

// CHECK-LABEL: func.func @initial_values
// CHECK-SAME: tensor<4x6xf32, #cleave.dims<["m", "n"]>>, %[[INIT:.*]]: tensor<4xf32, #cleave.dims<["m"]>>
// CHECK-DAG: %[[SUM:.*]] = "cleave.reduce"(%{{.*}}) {kind = "sum", over = ["n"]}
// CHECK-DAG: %[[TWO:.*]] = "cleave.constant"() {value = 2.000000e+00 : f32}
// CHECK: %[[FIRST:.*]] = "cleave.add"(%[[INIT]], %[[SUM]])
// CHECK: %[[SECOND:.*]] = "cleave.add"(%[[TWO]], %[[SUM]])
// CHECK: return %[[FIRST]], %[[SECOND]], %[[SUM]]
func.func @initial_values(%x: tensor<4x6xf32>, %init: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %empty = tensor.empty() : tensor<4xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  %twos = linalg.fill ins(%two : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  %0 = linalg.reduce ins(%x : tensor<4x6xf32>) outs(%init : tensor<4xf32>) dimensions = [1]
    (%in: f32, %out: f32) { %s = arith.addf %in, %out : f32 linalg.yield %s : f32 }
  %1 = linalg.reduce ins(%x : tensor<4x6xf32>) outs(%twos : tensor<4xf32>) dimensions = [1]
    (%in: f32, %out: f32) { %s = arith.addf %in, %out : f32 linalg.yield %s : f32 }
  %2 = linalg.reduce ins(%x : tensor<4x6xf32>) outs(%zeros : tensor<4xf32>) dimensions = [1]
    (%in: f32, %out: f32) { %s = arith.addf %in, %out : f32 linalg.yield %s : f32 }
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// A maximum from minus infinity loses its initial value, one from zero keeps it.

// CHECK-LABEL: func.func @initial_maximum
// CHECK-DAG: %[[MAX:.*]] = "cleave.reduce"(%{{.*}}) {kind = "max", over = ["n"]}
// CHECK-DAG: %[[ZERO:.*]] = "cleave.constant"() {value = 0.000000e+00 : f32}
// CHECK: %[[CLIPPED:.*]] = "cleave.max"(%[[ZERO]], %[[MAX]])
// CHECK: return %[[MAX]], %[[CLIPPED]]
func.func @initial_maximum(%x: tensor<4x6xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4xf32>
  %lows = linalg.fill ins(%low : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  %0 = linalg.reduce ins(%x : tensor<4x6xf32>) outs(%lows : tensor<4xf32>) dimensions = [1]
    (%in: f32, %out: f32) { %s = arith.maximumf %in, %out : f32 linalg.yield %s : f32 }
  %1 = linalg.reduce ins(%x : tensor<4x6xf32>) outs(%zeros : tensor<4xf32>) dimensions = [1]
    (%in: f32, %out: f32) { %s = arith.maximumf %in, %out : f32 linalg.yield %s : f32 }
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// The index of a maximum that nobody uses disappears.

// CHECK-LABEL: func.func @unused_argmax
// CHECK-NOT: linalg
// CHECK-NOT: i64
// CHECK: "cleave.reduce"(%{{.*}}) {kind = "max", over = ["n"]}
func.func @unused_argmax(%x: tensor<4x6xf16>) -> tensor<4xf16> {
  %low = arith.constant 0xFC00 : f16
  %c0 = arith.constant 0 : i64
  %e0 = tensor.empty() : tensor<4xf16>
  %e1 = tensor.empty() : tensor<4xi64>
  %f0 = linalg.fill ins(%low : f16) outs(%e0 : tensor<4xf16>) -> tensor<4xf16>
  %f1 = linalg.fill ins(%c0 : i64) outs(%e1 : tensor<4xi64>) -> tensor<4xi64>
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x6xf16>) outs(%f0, %f1 : tensor<4xf16>, tensor<4xi64>) {
  ^bb0(%in: f16, %out: f16, %where: i64):
    %j = linalg.index 1 : index
    %i64 = arith.index_cast %j : index to i64
    %max = arith.maximumf %in, %out : f16
    %greater = arith.cmpf ogt, %in, %out : f16
    %new = arith.select %greater, %i64, %where : i64
    linalg.yield %max, %new : f16, i64
  } -> (tensor<4xf16>, tensor<4xi64>)
  return %r#0 : tensor<4xf16>
}

// -----

// One that is used keeps the op.

// CHECK-LABEL: func.func @used_argmax
// CHECK-SAME: (%{{.*}}: tensor<4x6xf16>) -> tensor<4xi64>
// CHECK: linalg.generic
func.func @used_argmax(%x: tensor<4x6xf16>) -> tensor<4xi64> {
  %low = arith.constant 0xFC00 : f16
  %c0 = arith.constant 0 : i64
  %e0 = tensor.empty() : tensor<4xf16>
  %e1 = tensor.empty() : tensor<4xi64>
  %f0 = linalg.fill ins(%low : f16) outs(%e0 : tensor<4xf16>) -> tensor<4xf16>
  %f1 = linalg.fill ins(%c0 : i64) outs(%e1 : tensor<4xi64>) -> tensor<4xi64>
  // expected-remark @+1 {{'linalg.generic' is not raised: its body reduces by 'arith.select'}}
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x6xf16>) outs(%f0, %f1 : tensor<4xf16>, tensor<4xi64>) {
  ^bb0(%in: f16, %out: f16, %where: i64):
    %j = linalg.index 1 : index
    %i64 = arith.index_cast %j : index to i64
    %max = arith.maximumf %in, %out : f16
    %greater = arith.cmpf ogt, %in, %out : f16
    %new = arith.select %greater, %i64, %where : i64
    linalg.yield %max, %new : f16, i64
  } -> (tensor<4xf16>, tensor<4xi64>)
  return %r#1 : tensor<4xi64>
}

// -----

// Operands keep their sides, whichever way the body writes them.

// CHECK-LABEL: func.func @sides
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32, #cleave.dims<["n"]>>, %[[Y:.*]]: tensor<4xf32, #cleave.dims<["n"]>>)
// CHECK: %[[DIFFERENCE:.*]] = "cleave.sub"(%[[Y]], %[[X]])
// CHECK: "cleave.div"(%[[Y]], %[[DIFFERENCE]])
func.func @sides(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x, %y : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.subf %b, %a : f32
    %1 = arith.divf %b, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// What a reduction subtracts is negated before it is summed, beside what it adds.

// CHECK-LABEL: func.func @subtracting_reduction
// CHECK: %[[TERM:.*]] = "cleave.sub"(%{{.*}}, %{{.*}})
// CHECK: "cleave.reduce"(%[[TERM]]) {kind = "sum", over = ["n"]}
func.func @subtracting_reduction(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>, %init: tensor<4xf32>) -> tensor<4xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x, %y : tensor<4x6xf32>, tensor<4x6xf32>) outs(%init : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.subf %out, %b : f32
    %1 = arith.addf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// The accumulator on the right of a subtraction alternates in sign: no reduction of ours.

// CHECK-LABEL: func.func @subtracted_accumulator
// CHECK: linalg.generic
func.func @subtracted_accumulator(%x: tensor<4x6xf32>, %init: tensor<4xf32>) -> tensor<4xf32> {
  // expected-remark @+1 {{'linalg.generic' is not raised: its body subtracts the accumulator}}
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x6xf32>) outs(%init : tensor<4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.subf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A kept dimension of extent 1 is broadcast back by name; in a result it is a dim of size 1.

// CHECK-LABEL: func.func @kept_dimension
// CHECK-SAME: -> (tensor<4x6xf32, #cleave.dims<["m", "n"]>>, tensor<4x1xf32, #cleave.dims<["m", "u=1"]>>)
// CHECK: %[[SUM:.*]] = "cleave.reduce"(%{{.*}}) {kind = "sum", over = ["n"]}
// CHECK: "cleave.div"(%{{.*}}, %[[SUM]])
func.func @kept_dimension(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x1xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x1xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<4x1xf32>) -> tensor<4x1xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, 0)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x6xf32>) outs(%zeros : tensor<4x1xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %e2 = tensor.empty() : tensor<4x6xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, 0)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x, %s : tensor<4x6xf32>, tensor<4x1xf32>) outs(%e2 : tensor<4x6xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4x6xf32>
  return %r, %s : tensor<4x6xf32>, tensor<4x1xf32>
}

// -----

// A transposed map is a matter of names; the result is written in the order that the signature has.

// CHECK-LABEL: func.func @transposed_map
// CHECK-SAME: (%[[X:.*]]: tensor<4x6xf32, #cleave.dims<["m", "n"]>>, %[[Y:.*]]: tensor<6x4xf32, #cleave.dims<["n", "m"]>>)
// CHECK: "cleave.add"(%[[X]], %[[Y]]) : {{.*}} -> tensor<6x4xf32, #cleave.dims<["n", "m"]>>
func.func @transposed_map(%x: tensor<4x6xf32>, %y: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %e = tensor.empty() : tensor<6x4xf32>
  %t = linalg.transpose ins(%x : tensor<4x6xf32>) outs(%e : tensor<6x4xf32>) permutation = [1, 0]
  %r = linalg.add ins(%t, %y : tensor<6x4xf32>, tensor<6x4xf32>) outs(%e : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %r : tensor<6x4xf32>
}

// -----

// One tensor in two roles: its dimension is renamed for the second.

// CHECK-LABEL: func.func @gram
// CHECK-SAME: (%[[X:.*]]: tensor<5x3xf16, #cleave.dims<["m", "k"]>>) -> tensor<5x5xf32, #cleave.dims<["m", "n=m"]>>
// CHECK: %[[Y:.*]] = "cleave.rename"(%[[X]]) {from = "m", to = "n=m"}
// CHECK: "cleave.contract"(%[[X]], %[[Y]]) {over = ["k"]}
func.func @gram(%x: tensor<5x3xf16>) -> tensor<5x5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x5xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<5x5xf32>) -> tensor<5x5xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %x : tensor<5x3xf16>, tensor<5x3xf16>) outs(%zeros : tensor<5x5xf32>) {
  ^bb0(%a: f16, %b: f16, %out: f32):
    %0 = arith.extf %a : f16 to f32
    %1 = arith.extf %b : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %out, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<5x5xf32>
  return %r : tensor<5x5xf32>
}

// -----

// x + xᵀ: both dimensions change roles at once.

// CHECK-LABEL: func.func @symmetrised
// CHECK: cleave.rename
// CHECK: cleave.rename
// CHECK: cleave.add
func.func @symmetrised(%x: tensor<5x5xf32>) -> tensor<5x5xf32> {
  %e = tensor.empty() : tensor<5x5xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x, %x : tensor<5x5xf32>, tensor<5x5xf32>) outs(%e : tensor<5x5xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<5x5xf32>
  return %r : tensor<5x5xf32>
}

// -----

// An f64 literal that is narrowed is the narrow literal; a comparison with a widened value is one in its own type.

// CHECK-LABEL: func.func @narrowed_literals
// CHECK-NOT: f64
// CHECK: "cleave.constant"() {value = 0.353553385 : f32}
// CHECK: "cleave.cmp"(%{{.*}}) {predicate = "eq"}
func.func @narrowed_literals(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi1>) {
  %scale = arith.constant 0.35355339059327379 : f64
  %low = arith.constant 0xFFF0000000000000 : f64
  %e0 = tensor.empty() : tensor<4xf32>
  %e1 = tensor.empty() : tensor<4xi1>
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%e0, %e1 : tensor<4xf32>, tensor<4xi1>) {
  ^bb0(%a: f32, %o0: f32, %o1: i1):
    %0 = arith.truncf %scale : f64 to f32
    %1 = arith.mulf %a, %0 : f32
    %2 = arith.extf %a : f32 to f64
    %3 = arith.cmpf oeq, %2, %low : f64
    linalg.yield %1, %3 : f32, i1
  } -> (tensor<4xf32>, tensor<4xi1>)
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xi1>
}

// -----

// All and any: min and max on i1.

// CHECK-LABEL: func.func @all_and_any
// CHECK: "cleave.reduce"(%{{.*}}) {kind = "min", over = ["n"]}
// CHECK: "cleave.reduce"(%{{.*}}) {kind = "max", over = ["n"]}
// CHECK-NOT: cleave.max
func.func @all_and_any(%x: tensor<4x6xi1>) -> (tensor<4xi1>, tensor<4xi1>) {
  %true = arith.constant true
  %false = arith.constant false
  %e = tensor.empty() : tensor<4xi1>
  %trues = linalg.fill ins(%true : i1) outs(%e : tensor<4xi1>) -> tensor<4xi1>
  %falses = linalg.fill ins(%false : i1) outs(%e : tensor<4xi1>) -> tensor<4xi1>
  %0 = linalg.reduce ins(%x : tensor<4x6xi1>) outs(%trues : tensor<4xi1>) dimensions = [1]
    (%in: i1, %out: i1) { %s = arith.andi %in, %out : i1 linalg.yield %s : i1 }
  %1 = linalg.reduce ins(%x : tensor<4x6xi1>) outs(%falses : tensor<4xi1>) dimensions = [1]
    (%in: i1, %out: i1) { %s = arith.ori %in, %out : i1 linalg.yield %s : i1 }
  return %0, %1 : tensor<4xi1>, tensor<4xi1>
}

// -----

// An op that has no form of ours stays, between what was raised before and after it.

// CHECK-LABEL: func.func @unraisable_middle
// CHECK-SAME: (%[[X:.*]]: tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK: %[[NAMED:.*]] = builtin.unrealized_conversion_cast %[[X]] : tensor<4x6xf32> to tensor<4x6xf32, #cleave.dims<["m", "n"]>>
// CHECK: %[[EXP:.*]] = "cleave.exp"(%[[NAMED]])
// CHECK: %[[PLAIN:.*]] = builtin.unrealized_conversion_cast %[[EXP]]
// CHECK: %[[SHIFTED:.*]] = linalg.generic {{.*}} ins(%[[PLAIN]]
// CHECK: %[[BACK:.*]] = builtin.unrealized_conversion_cast %[[SHIFTED]]
// CHECK: %[[TANH:.*]] = "cleave.tanh"(%[[BACK]])
// CHECK: %[[RESULT:.*]] = builtin.unrealized_conversion_cast %[[TANH]]
// CHECK: return %[[RESULT]]
func.func @unraisable_middle(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %e = tensor.empty() : tensor<4x6xf32>
  %0 = linalg.exp ins(%x : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  // expected-remark @+1 {{'linalg.generic' is not raised: the indexing map (d0, d1) -> (d0, -d1 + 5)}}
  %1 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, 5 - j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%a: f32, %out: f32):
    linalg.yield %a : f32
  } -> tensor<4x6xf32>
  %2 = linalg.tanh ins(%1 : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}

// -----

// The same where upstream would have fused all three.

// CHECK-LABEL: func.func @unraisable_scalar
// CHECK: cleave.exp
// CHECK: math.tan
// CHECK: cleave.tanh
func.func @unraisable_scalar(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %e = tensor.empty() : tensor<4x6xf32>
  %0 = linalg.exp ins(%x : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  // expected-remark @+1 {{'math.tan' is not raised: no tensor op of ours does that}}
  %1 = math.tan %0 : tensor<4x6xf32>
  %2 = linalg.tanh ins(%1 : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}

// -----

// Sums along a dimension in which the term does not vary still count it.

// CHECK-LABEL: func.func @constant_along_the_sum
// CHECK: "cleave.reduce"(%{{.*}}) {kind = "sum", over = ["p"]} : (tensor<4x6xf32, #cleave.dims<["n", "p"]>>)
func.func @constant_along_the_sum(%x: tensor<4xf32>, %like: tensor<4x6xf32>) -> (tensor<4xf32>, tensor<4x6xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %e2 = tensor.empty() : tensor<4x6xf32>
  %b = linalg.broadcast ins(%x : tensor<4xf32>) outs(%e2 : tensor<4x6xf32>) dimensions = [1]
  %s = linalg.reduce ins(%b : tensor<4x6xf32>) outs(%zeros : tensor<4xf32>) dimensions = [1]
    (%in: f32, %out: f32) { %s = arith.addf %in, %out : f32 linalg.yield %s : f32 }
  %r = linalg.add ins(%b, %like : tensor<4x6xf32>, tensor<4x6xf32>) outs(%e2 : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s, %r : tensor<4xf32>, tensor<4x6xf32>
}

// -----

// Positions, masks, small powers, unordered comparisons.

// CHECK-LABEL: func.func @positions
// CHECK-DAG: "cleave.index"() {dim = "m"} : () -> tensor<4xi64
// CHECK-DAG: "cleave.index"() {dim = "n"} : () -> tensor<6xi64
// CHECK: %[[CAUSAL:.*]] = "cleave.cmp"(%{{.*}}) {predicate = "le"}
// CHECK: %[[SQUARE:.*]] = "cleave.mul"(%[[X:.*]], %[[X]])
// CHECK: %[[CUBE:.*]] = "cleave.mul"(%[[SQUARE]], %[[X]])
// CHECK: %[[NEGATIVE:.*]] = "cleave.cmp"(%[[CUBE]], %[[ZERO:.*]]) {predicate = "le"}
// CHECK: %[[RELU:.*]] = "cleave.select"(%[[NEGATIVE]], %[[ZERO]], %[[CUBE]])
// CHECK: "cleave.select"(%[[CAUSAL]], %[[RELU]]
func.func @positions(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %c3 = arith.constant 3 : i64
  %zero = arith.constant 0.0 : f32
  %low = arith.constant -1.0e4 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%a: f32, %out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %i64 = arith.index_cast %i : index to i64
    %j64 = arith.index_cast %j : index to i64
    %causal = arith.cmpi sle, %j64, %i64 : i64
    %cube = math.fpowi %a, %c3 : f32, i64
    %positive = arith.cmpf ugt, %cube, %zero : f32
    %relu = arith.select %positive, %cube, %zero : f32
    %masked = arith.select %causal, %relu, %low : f32
    linalg.yield %masked : f32
  } -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}

// -----

// Several heads in one dimension: merged and split where the program keeps them so.

// CHECK-LABEL: func.func @heads
// CHECK-SAME: tensor<5x12xf32, #cleave.dims<["m", "hd=d*h"]>>
// CHECK: "cleave.split"(%{{.*}}) {dim = "hd", into = ["h", "d"]}
// CHECK: "cleave.merge"(%{{.*}}) {dims = ["h", "d"], into = "hd=d*h"}
func.func @heads(%x: tensor<5x12xf32>, %scale: tensor<3xf32>) -> tensor<5x12xf32> {
  %h = tensor.expand_shape %x [[0], [1, 2]] output_shape [5, 3, 4] : tensor<5x12xf32> into tensor<5x3x4xf32>
  %e = tensor.empty() : tensor<5x3x4xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, h, d) -> (i, h, d)>, affine_map<(i, h, d) -> (h)>, affine_map<(i, h, d) -> (i, h, d)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%h, %scale : tensor<5x3x4xf32>, tensor<3xf32>) outs(%e : tensor<5x3x4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<5x3x4xf32>
  %r = tensor.collapse_shape %s [[0], [1, 2]] : tensor<5x3x4xf32> into tensor<5x12xf32>
  return %r : tensor<5x12xf32>
}

// -----

// A mean over a dynamic dimension: its extent is as many ones as there are elements.

// CHECK-LABEL: func.func @dynamic_mean
// CHECK-SAME: tensor<?x?xf32, #cleave.dims<["m", "n"]>>
// CHECK: "cleave.reduce"(%{{.*}}) {kind = "sum", over = ["n"]} : (tensor<?xi64, #cleave.dims<["n"]>>)
// CHECK: "cleave.div"
// CHECK-NOT: tensor.dim
func.func @dynamic_mean(%x: tensor<?x?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %n64 = arith.index_cast %n : index to i64
  %count = arith.sitofp %n64 : i64 to f32
  %e = tensor.empty(%m) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.reduce ins(%x : tensor<?x?xf32>) outs(%zeros : tensor<?xf32>) dimensions = [1]
    (%in: f32, %out: f32) { %s = arith.addf %in, %out : f32 linalg.yield %s : f32 }
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%s : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.divf %a, %count : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

// Ops on whole tensors, a slice, and a function that another calls: its signature stays.

// CHECK-LABEL: func.func @callee
// CHECK-SAME: (%{{.*}}: tensor<4x6xf32>) -> tensor<4x3xf32>
// CHECK: "cleave.mul"
// CHECK: "cleave.slice"(%{{.*}}) {dim = "n", into = "p", offset = "2"}
func.func @callee(%x: tensor<4x6xf32>) -> tensor<4x3xf32> {
  %0 = arith.mulf %x, %x : tensor<4x6xf32>
  %1 = tensor.extract_slice %0[0, 2] [4, 3] [1, 1] : tensor<4x6xf32> to tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
func.func @entry(%x: tensor<4x6xf32>) -> tensor<4x3xf32> {
  // expected-remark @+1 {{'func.call' is not raised: no tensor op of ours says what it does}}
  %0 = func.call @callee(%x) : (tensor<4x6xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// -----

// A scalar argument enters as a tensor of rank 0.

// CHECK-LABEL: func.func @scalar_argument
// CHECK-SAME: (%{{.*}}: tensor<4xf32>, %[[S:.*]]: f32)
// CHECK: tensor.from_elements %[[S]] : tensor<f32>
// CHECK: "cleave.mul"
func.func @scalar_argument(%x: tensor<4xf32>, %s: f32) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.mulf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// Elements read at the loops' own indices make an operand; at an index that is computed otherwise they are gathered.

// CHECK-LABEL: func.func @gathered
// CHECK-DAG: "cleave.exp"
// CHECK-DAG: %[[POSITIONS:.*]] = "cleave.cast"({{.*}} -> tensor<4xi64
// CHECK-DAG: "cleave.gather"(%{{.*}}, %[[POSITIONS]])
func.func @gathered(%x: tensor<4x6xf32>, %y: tensor<?x6xf32>) -> (tensor<6x4xf32>, tensor<4x6xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = tensor.dim %y, %c0 : tensor<?x6xf32>
  %e0 = tensor.empty() : tensor<6x4xf32>
  %e1 = tensor.empty() : tensor<4x6xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      outs(%e0 : tensor<6x4xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %a = tensor.extract %x[%j, %i] : tensor<4x6xf32>
    %b = math.exp %a : f32
    linalg.yield %b : f32
  } -> tensor<6x4xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      outs(%e1 : tensor<4x6xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %other = arith.cmpi eq, %rows, %c1 : index
    %k = arith.select %other, %c0, %i : index
    %a = tensor.extract %x[%k, %j] : tensor<4x6xf32>
    linalg.yield %a : f32
  } -> tensor<4x6xf32>
  return %0, %1 : tensor<6x4xf32>, tensor<4x6xf32>
}

// -----

// A reshape whose axes fall into groups is a merge or a split; one after the other is nothing.

// CHECK-LABEL: func.func @regrouped
// CHECK-NOT: cleave.merge
// CHECK: "cleave.exp"
func.func @regrouped(%x: tensor<2x4x?xf32>) -> tensor<2x4x?xf32> {
  %c2 = arith.constant 2 : index
  %i2 = arith.constant 2 : i64
  %i4 = arith.constant 4 : i64
  %n = tensor.dim %x, %c2 : tensor<2x4x?xf32>
  %n64 = arith.index_cast %n : index to i64
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x4x?xf32> into tensor<8x?xf32>
  %shape = tensor.from_elements %i2, %i4, %n64 : tensor<3xi64>
  %0 = tensor.reshape %flat(%shape) : (tensor<8x?xf32>, tensor<3xi64>) -> tensor<2x4x?xf32>
  %1 = math.exp %0 : tensor<2x4x?xf32>
  return %1 : tensor<2x4x?xf32>
}

// -----

// Units at the border: dims of size 1, summed away where the program drops them.

// CHECK-LABEL: func.func @units
// CHECK-SAME: -> (tensor<1x4x1xf32, #cleave.dims<["u=1", "n", "p=1"]>>, tensor<1xf32, #cleave.dims<["{{.*}}=1"]>>,
// CHECK-SAME: tensor<f32, #cleave.dims<[]>>)
func.func @units(%x: tensor<1x4x1xf32>, %y: tensor<1x1x1xf32>) -> (tensor<1x4x1xf32>, tensor<1xf32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<1x4x1xf32>
  %e1 = tensor.empty() : tensor<1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<1xf32>) -> tensor<1xf32>
  %0 = linalg.exp ins(%x : tensor<1x4x1xf32>) outs(%e0 : tensor<1x4x1xf32>) -> tensor<1x4x1xf32>
  %1 = linalg.reduce ins(%0 : tensor<1x4x1xf32>) outs(%f : tensor<1xf32>) dimensions = [0, 1]
    (%in: f32, %out: f32) { %s = arith.addf %in, %out : f32 linalg.yield %s : f32 }
  %2 = tensor.collapse_shape %y [] : tensor<1x1x1xf32> into tensor<f32>
  return %0, %1, %2 : tensor<1x4x1xf32>, tensor<1xf32>, tensor<f32>
}

// -----

// Upstream's softmax, safe; and a function that only hands its argument on.

// CHECK-LABEL: func.func @softmax
// CHECK: %[[MAX:.*]] = "cleave.reduce"(%{{.*}}) {kind = "max", over = ["n"]}
// CHECK: %[[SHIFTED:.*]] = "cleave.sub"(%{{.*}}, %[[MAX]])
// CHECK: %[[EXP:.*]] = "cleave.exp"(%[[SHIFTED]])
// CHECK: %[[SUM:.*]] = "cleave.reduce"(%[[EXP]]) {kind = "sum", over = ["n"]}
// CHECK: "cleave.div"(%[[EXP]], %[[SUM]])
func.func @softmax(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %e = tensor.empty() : tensor<4x5xf32>
  %0 = linalg.softmax dimension(1) ins(%x : tensor<4x5xf32>) outs(%e : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}
// CHECK-LABEL: func.func @identity
// CHECK-SAME: tensor<4x5xf32, #cleave.dims<["m", "n"]>>
func.func @identity(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  return %x : tensor<4x5xf32>
}

// -----

// Memory and tensors with an encoding of somebody else's are left alone.

// CHECK-LABEL: func.func @memory
// CHECK: linalg.exp
func.func @memory(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-remark @+1 {{'linalg.exp' is not raised: it works on memory, not on tensors}}
  linalg.exp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// CHECK-LABEL: func.func @encoded
// CHECK: linalg.exp
func.func @encoded(%x: tensor<4xf32, "theirs">) -> tensor<4xf32, "theirs"> {
  // expected-remark @+1 {{the function is not raised: 'linalg.exp' has a tensor with an encoding}}
  %0 = linalg.exp ins(%x : tensor<4xf32, "theirs">) outs(%x : tensor<4xf32, "theirs">) -> tensor<4xf32, "theirs">
  return %0 : tensor<4xf32, "theirs">
}

// -----

// Reading memory that nothing has written has no meaning.

// CHECK-LABEL: func.func @unwritten
// CHECK: linalg.generic
func.func @unwritten(%x: tensor<4x6xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  // expected-remark @+1 {{'linalg.generic' is not raised: it reads a tensor that nothing has written}}
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x6xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Rotary angles computed where they are used: positions by frequencies, their cosine and sine.

// CHECK-LABEL: func.func @rotary
// CHECK: %[[I:.*]] = "cleave.index"
// CHECK: %[[ANGLE:.*]] = "cleave.mul"
// CHECK-DAG: "cleave.cos"(%[[ANGLE]])
// CHECK-DAG: "cleave.sin"(%[[ANGLE]])
func.func @rotary(%x: tensor<?x6xf32>, %y: tensor<?x6xf32>, %frequency: tensor<6xf32>) -> tensor<?x6xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x6xf32>
  %e = tensor.empty(%m) : tensor<?x6xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y, %frequency : tensor<?x6xf32>, tensor<?x6xf32>, tensor<6xf32>) outs(%e : tensor<?x6xf32>) {
  ^bb0(%a: f32, %b: f32, %f: f32, %out: f32):
    %i = linalg.index 0 : index
    %position = arith.index_cast %i : index to i32
    %0 = arith.sitofp %position : i32 to f32
    %angle = arith.mulf %0, %f : f32
    %c = math.cos %angle : f32
    %s = math.sin %angle : f32
    %1 = arith.mulf %a, %c : f32
    %2 = arith.mulf %b, %s : f32
    %3 = arith.subf %1, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x6xf32>
  return %0 : tensor<?x6xf32>
}

// -----

// Rotary embedding as exporters write it: halves of a head, one of them negated, joined the other way round.

// CHECK-LABEL: func.func @halves
// CHECK-DAG: %[[A:.*]] = "cleave.slice"(%[[X:.*]]) {dim = "n", into = "[[P:.*]]", offset = "0"}
// CHECK-DAG: %[[B:.*]] = "cleave.slice"(%[[X]]) {dim = "n", into = "[[Q:.*]]", offset = "3"}
// CHECK: %[[NEGATED:.*]] = "cleave.neg"(%[[B]])
// CHECK: %[[JOINED:.*]] = "cleave.concat"(%[[NEGATED]], %[[A]]) {dims = ["[[Q]]", "[[P]]"], into = "{{.*}}"}
// CHECK: "cleave.mul"(%[[JOINED]], %{{.*}})
func.func @halves(%x: tensor<4x?x6xf32>, %sine: tensor<?x6xf32>) -> tensor<4x?x6xf32> {
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c1 : tensor<4x?x6xf32>
  %a = tensor.extract_slice %x[0, 0, 0] [4, %m, 3] [1, 1, 1] : tensor<4x?x6xf32> to tensor<4x?x3xf32>
  %b = tensor.extract_slice %x[0, 0, 3] [4, %m, 3] [1, 1, 1] : tensor<4x?x6xf32> to tensor<4x?x3xf32>
  %negated = arith.negf %b : tensor<4x?x3xf32>
  %joined = tensor.concat dim(2) %negated, %a : (tensor<4x?x3xf32>, tensor<4x?x3xf32>) -> tensor<4x?x6xf32>
  %e = tensor.empty(%m) : tensor<4x?x6xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (i, j)>,
      affine_map<(h, i, j) -> (h, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%joined, %sine : tensor<4x?x6xf32>, tensor<?x6xf32>) outs(%e : tensor<4x?x6xf32>) {
  ^bb0(%r: f32, %s: f32, %out: f32):
    %1 = arith.mulf %r, %s : f32
    linalg.yield %1 : f32
  } -> tensor<4x?x6xf32>
  return %0 : tensor<4x?x6xf32>
}

// -----

// Keys appended to a cache: the length of the result is the sum of both. One tensor twice is renamed.

// CHECK-LABEL: func.func @appended
// CHECK: "cleave.concat"(%{{.*}}, %{{.*}}) {dims = ["m", "i"], into = "[[W:.*]]=i + m"}
// CHECK: %[[SAME:.*]] = "cleave.rename"(%[[X:.*]]) {from = "n", to = "[[SECOND:.*]]=n"}
// CHECK: "cleave.concat"(%[[X]], %[[SAME]]) {dims = ["n", "[[SECOND]]"], into = "{{.*}}"}
func.func @appended(%x: tensor<?x6xf32>, %y: tensor<?x6xf32>) -> (tensor<?x6xf32>, tensor<?x12xf32>) {
  %0 = tensor.concat dim(0) %x, %y : (tensor<?x6xf32>, tensor<?x6xf32>) -> tensor<?x6xf32>
  %1 = tensor.concat dim(1) %x, %x : (tensor<?x6xf32>, tensor<?x6xf32>) -> tensor<?x12xf32>
  return %0, %1 : tensor<?x6xf32>, tensor<?x12xf32>
}

// -----

// Slices written into fresh memory, and over a part of a tensor.

// CHECK-LABEL: func.func @written_slices
// CHECK: "cleave.concat"(%arg0, %arg1) {dims = ["n", "p"], into = "[[W:.*]]"}
// CHECK: "cleave.slice"(%arg1)
// CHECK: "cleave.concat"
// CHECK-NOT: insert_slice
func.func @written_slices(%a: tensor<4x2xf32>, %b: tensor<4x5xf32>) -> (tensor<4x7xf32>, tensor<4x5xf32>) {
  %e = tensor.empty() : tensor<4x7xf32>
  %0 = tensor.insert_slice %a into %e[0, 0] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x7xf32>
  %1 = tensor.insert_slice %b into %0[0, 2] [4, 5] [1, 1] : tensor<4x5xf32> into tensor<4x7xf32>
  %2 = tensor.insert_slice %a into %b[0, 1] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x5xf32>
  return %1, %2 : tensor<4x7xf32>, tensor<4x5xf32>
}

// -----

// One element of an axis, which the result lacks.

// CHECK-LABEL: func.func @selected
// CHECK: %[[ONE:.*]] = "cleave.slice"(%{{.*}}) {dim = "[[D:.*]]", into = "[[D]]_1=1", offset = "2"}
// CHECK: "cleave.reduce"(%[[ONE]]) {kind = "max", over = ["[[D]]_1"]}
func.func @selected(%x: tensor<3x4x6xf32>) -> tensor<4x6xf32> {
  %0 = tensor.extract_slice %x[2, 0, 0] [1, 4, 6] [1, 1, 1] : tensor<3x4x6xf32> to tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

// CHECK-LABEL: func.func @unwritten_rest
// CHECK: tensor.insert_slice
func.func @unwritten_rest(%a: tensor<4x2xf32>) -> tensor<4x7xf32> {
  %e = tensor.empty() : tensor<4x7xf32>
  // expected-remark @+1 {{it cuts several axes, leaves elements unwritten, or its extents are no literals}}
  %0 = tensor.insert_slice %a into %e[0, 0] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x7xf32>
  return %0 : tensor<4x7xf32>
}

// -----

// Padding by a constant: concatenations with it.

// CHECK-LABEL: func.func @padded
// CHECK: "cleave.constant"() {value = 1.500000e+00 : f32}
// CHECK-COUNT-2: "cleave.concat"
// CHECK-NOT: tensor.pad
func.func @padded(%x: tensor<4x2xf32>) -> tensor<4x5xf32> {
  %c = arith.constant 1.5 : f32
  %0 = tensor.pad %x low[0, 1] high[0, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %c : f32
  } : tensor<4x2xf32> to tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// -----

// Rows of a table at positions from memory, as exporters write an embedding.

// CHECK-LABEL: func.func @embedding
// CHECK-SAME: (%[[TABLE:.*]]: tensor<2x4xf32, {{.*}}>, %[[ROWS:.*]]: tensor<?xi1, {{.*}}>)
// CHECK: %[[POSITIONS:.*]] = "cleave.cast"(%[[ROWS]])
// CHECK: "cleave.gather"(%[[TABLE]], %[[POSITIONS]])
func.func @embedding(%table: tensor<2x4xf32>, %rows: tensor<?xi1>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %rows, %c0 : tensor<?xi1>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%rows : tensor<?xi1>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%row: i1, %out: f32):
    %wide = arith.extui %row : i1 to i64
    %i = arith.index_cast %wide : i64 to index
    %j = linalg.index 1 : index
    %v = tensor.extract %table[%i, %j] : tensor<2x4xf32>
    linalg.yield %v : f32
  } -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// -----

// Reading a part of each row: which one is not said by a dim.

// CHECK-LABEL: func.func @parts_of_rows
// CHECK: tensor.extract
func.func @parts_of_rows(%table: tensor<2x4xf32>, %rows: tensor<5xi1>) -> tensor<5x3xf32> {
  %e = tensor.empty() : tensor<5x3xf32>
  // expected-remark @+1 {{'linalg.generic' is not raised: its body reads a part of a tensor, or one whose extents are not known}}
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%rows : tensor<5xi1>) outs(%e : tensor<5x3xf32>) {
  ^bb0(%row: i1, %out: f32):
    %i = arith.index_castui %row : i1 to index
    %j = linalg.index 1 : index
    %v = tensor.extract %table[%i, %j] : tensor<2x4xf32>
    linalg.yield %v : f32
  } -> tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}

// -----

// Two caches appended to: their sums have the appended row in common, so what they had before is of one length.

// CHECK-LABEL: func.func @two_caches
// CHECK-SAME: tensor<?x8xf32, #cleave.dims<["[[M:.*]]", "n"]>>, %{{.*}}: tensor<?x8xf32, #cleave.dims<["[[M]]", "n"]>>
// CHECK-COUNT-2: "cleave.concat"
// CHECK: "cleave.mul"
func.func @two_caches(%k: tensor<?x8xf32>, %v: tensor<?x8xf32>, %nk: tensor<1x8xf32>, %nv: tensor<1x8xf32>)
    -> tensor<?x8xf32> {
  %0 = tensor.concat dim(0) %k, %nk : (tensor<?x8xf32>, tensor<1x8xf32>) -> tensor<?x8xf32>
  %1 = tensor.concat dim(0) %v, %nv : (tensor<?x8xf32>, tensor<1x8xf32>) -> tensor<?x8xf32>
  %2 = arith.mulf %0, %1 : tensor<?x8xf32>
  return %2 : tensor<?x8xf32>
}

// -----

// A batch of one beside the position from memory.

// CHECK-LABEL: func.func @one_batch
// CHECK: "cleave.gather"
func.func @one_batch(%table: tensor<1x2x4xf32>, %rows: tensor<3xi1>) -> tensor<1x3x4xf32> {
  %e = tensor.empty() : tensor<1x3x4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (i)>, affine_map<(b, i, j) -> (b, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%rows : tensor<3xi1>) outs(%e : tensor<1x3x4xf32>) {
  ^bb0(%row: i1, %out: f32):
    %i = arith.index_castui %row : i1 to index
    %b = linalg.index 0 : index
    %j = linalg.index 2 : index
    %v = tensor.extract %table[%b, %i, %j] : tensor<1x2x4xf32>
    linalg.yield %v : f32
  } -> tensor<1x3x4xf32>
  return %0 : tensor<1x3x4xf32>
}

// -----

// Nothing stands in the result, whatever is around it.

// CHECK-LABEL: func.func @empty_padded
func.func @empty_padded(%x: tensor<0x4xf32>) -> tensor<0x6xf32> {
  %c = arith.constant 1.5 : f32
  %0 = tensor.pad %x low[0, 1] high[0, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %c : f32
  } : tensor<0x4xf32> to tensor<0x6xf32>
  return %0 : tensor<0x6xf32>
}
