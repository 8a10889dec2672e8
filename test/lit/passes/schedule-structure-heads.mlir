// RUN: %cleave-opt "--schedule{sizes=m=4096,n=4096,h=32,a=64,g=4}" %s > %t
// RUN: %python %S/../../../tools/outline.py --loops < %t | FileCheck %s --match-full-lines --strict-whitespace

// All of an attention is one loop over the keys, whatever masks and heads it has. Tiles, and the order in the loop, are free.

// Causal: keys up to the last one that a row of the tile sees.

// CHECK-LABEL:kernel @mha_causal__k0
//  CHECK-NEXT:  for {{.*}}
//   CHECK-DAG:    contract d
//   CHECK-DAG:    reduce max n
//   CHECK-DAG:    contract n
//   CHECK-DAG:{{ +}}reduce sum n
//   CHECK-NOT:  for {{.*}}
//   CHECK-NOT:kernel @mha_causal__k1
!T0 = tensor<?x?x64xf16, #cleave.dims<["h", "m", "d"]>>
!T1 = tensor<?x?x64xf16, #cleave.dims<["h", "n", "d"]>>
!T2 = tensor<?x?x64xf16, #cleave.dims<["h", "n", "e"]>>
!T3 = tensor<?x?x64xf16, #cleave.dims<["m", "h", "e"]>>
!T4 = tensor<?xi64, #cleave.dims<["n"]>>
!T5 = tensor<?xi64, #cleave.dims<["m"]>>
!T6 = tensor<?x?xi1, #cleave.dims<["n", "m"]>>
!T7 = tensor<?x?x?xf32, #cleave.dims<["h", "m", "n"]>>
!T8 = tensor<f32, #cleave.dims<[]>>
!T9 = tensor<?x?x?xf32, #cleave.dims<["n", "m", "h"]>>
!T10 = tensor<?x?xf32, #cleave.dims<["m", "h"]>>
!T11 = tensor<?x?x?xf16, #cleave.dims<["n", "m", "h"]>>
!T12 = tensor<?x?x64xf32, #cleave.dims<["m", "h", "e"]>>
func.func @mha_causal(%arg0: !T0, %arg1: !T1, %arg2: !T2) -> !T3 {
  %0 = "cleave.index"() {dim = "n"} : () -> !T4
  %1 = "cleave.index"() {dim = "m"} : () -> !T5
  %2 = "cleave.cmp"(%0, %1) {predicate = "le"} : (!T4, !T5) -> !T6
  %3 = "cleave.contract"(%arg0, %arg1) {over = ["d"]} : (!T0, !T1) -> !T7
  %4 = "cleave.constant"() {value = 1.250000e-01 : f32} : () -> !T8
  %5 = "cleave.mul"(%3, %4) : (!T7, !T8) -> !T7
  %6 = "cleave.constant"() {value = 0xFF800000 : f32} : () -> !T8
  %7 = "cleave.select"(%2, %5, %6) : (!T6, !T7, !T8) -> !T9
  %8 = "cleave.reduce"(%7) {kind = "max", over = ["n"]} : (!T9) -> !T10
  %9 = "cleave.sub"(%7, %8) : (!T9, !T10) -> !T9
  %10 = "cleave.exp"(%9) : (!T9) -> !T9
  %11 = "cleave.cast"(%10) : (!T9) -> !T11
  %12 = "cleave.contract"(%11, %arg2) {over = ["n"]} : (!T11, !T2) -> !T12
  %13 = "cleave.reduce"(%10) {kind = "sum", over = ["n"]} : (!T9) -> !T10
  %14 = "cleave.div"(%12, %13) : (!T12, !T10) -> !T12
  %15 = "cleave.cast"(%14) : (!T12) -> !T3
  return %15 : !T3
}

// A causal window: the tiles that it touches.

// CHECK-LABEL:kernel @mha_window__k0
//  CHECK-NEXT:  for {{.*}}
//   CHECK-DAG:    contract d
//   CHECK-DAG:    reduce max n
//   CHECK-DAG:    contract n
//   CHECK-DAG:{{ +}}reduce sum n
//   CHECK-NOT:  for {{.*}}
//   CHECK-NOT:kernel @mha_window__k1
!T13 = tensor<i64, #cleave.dims<[]>>
func.func @mha_window(%arg0: !T0, %arg1: !T1, %arg2: !T2) -> !T3 {
  %0 = "cleave.index"() {dim = "n"} : () -> !T4
  %1 = "cleave.index"() {dim = "m"} : () -> !T5
  %2 = "cleave.cmp"(%0, %1) {predicate = "le"} : (!T4, !T5) -> !T6
  %3 = "cleave.constant"() {value = 3 : i64} : () -> !T13
  %4 = "cleave.add"(%0, %3) : (!T4, !T13) -> !T4
  %5 = "cleave.cmp"(%4, %1) {predicate = "gt"} : (!T4, !T5) -> !T6
  %6 = "cleave.mul"(%2, %5) : (!T6, !T6) -> !T6
  %7 = "cleave.contract"(%arg0, %arg1) {over = ["d"]} : (!T0, !T1) -> !T7
  %8 = "cleave.constant"() {value = 1.250000e-01 : f32} : () -> !T8
  %9 = "cleave.mul"(%7, %8) : (!T7, !T8) -> !T7
  %10 = "cleave.constant"() {value = 0xFF800000 : f32} : () -> !T8
  %11 = "cleave.select"(%6, %9, %10) : (!T6, !T7, !T8) -> !T9
  %12 = "cleave.reduce"(%11) {kind = "max", over = ["n"]} : (!T9) -> !T10
  %13 = "cleave.sub"(%11, %12) : (!T9, !T10) -> !T9
  %14 = "cleave.exp"(%13) : (!T9) -> !T9
  %15 = "cleave.cast"(%14) : (!T9) -> !T11
  %16 = "cleave.contract"(%15, %arg2) {over = ["n"]} : (!T11, !T2) -> !T12
  %17 = "cleave.reduce"(%14) {kind = "sum", over = ["n"]} : (!T9) -> !T10
  %18 = "cleave.div"(%16, %17) : (!T12, !T10) -> !T12
  %19 = "cleave.cast"(%18) : (!T12) -> !T3
  return %19 : !T3
}

// Heads with keys of their own, divided before the product with the values.

// CHECK-LABEL:kernel @mha_plain__k0
//  CHECK-NEXT:  for {{.*}}
//   CHECK-DAG:    contract d
//   CHECK-DAG:    reduce max n
//   CHECK-DAG:{{ +}}reduce sum n
//   CHECK-DAG:    contract n
//   CHECK-NOT:  for {{.*}}
//   CHECK-NOT:kernel @mha_plain__k1
!T14 = tensor<?x?x64xf16, #cleave.dims<["h", "m", "e"]>>
!T15 = tensor<?x?xf32, #cleave.dims<["h", "m"]>>
!T16 = tensor<?x?x?xf16, #cleave.dims<["h", "m", "n"]>>
func.func @mha_plain(%arg0: !T0, %arg1: !T1, %arg2: !T2) -> !T14 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["d"]} : (!T0, !T1) -> !T7
  %1 = "cleave.constant"() {value = 2.000000e-01 : f32} : () -> !T8
  %2 = "cleave.mul"(%0, %1) : (!T7, !T8) -> !T7
  %3 = "cleave.reduce"(%2) {kind = "max", over = ["n"]} : (!T7) -> !T15
  %4 = "cleave.sub"(%2, %3) : (!T7, !T15) -> !T7
  %5 = "cleave.exp"(%4) : (!T7) -> !T7
  %6 = "cleave.reduce"(%5) {kind = "sum", over = ["n"]} : (!T7) -> !T15
  %7 = "cleave.div"(%5, %6) : (!T7, !T15) -> !T7
  %8 = "cleave.cast"(%7) : (!T7) -> !T16
  %9 = "cleave.contract"(%8, %arg2) {over = ["n"]} : (!T16, !T2) -> !T14
  return %9 : !T14
}

// Heads with the same keys.

// CHECK-LABEL:kernel @mqa_plain__k0
//  CHECK-NEXT:  for {{.*}}
//   CHECK-DAG:    contract d
//   CHECK-DAG:    reduce max n
//   CHECK-DAG:{{ +}}reduce sum n
//   CHECK-DAG:    contract n
//   CHECK-NOT:  for {{.*}}
//   CHECK-NOT:kernel @mqa_plain__k1
!T17 = tensor<?x?x64xf16, #cleave.dims<["g", "m", "d"]>>
!T18 = tensor<?x64xf16, #cleave.dims<["n", "d"]>>
!T19 = tensor<?x64xf16, #cleave.dims<["n", "e"]>>
!T20 = tensor<?x?x64xf16, #cleave.dims<["g", "m", "e"]>>
!T21 = tensor<?x?x?xf32, #cleave.dims<["g", "m", "n"]>>
!T22 = tensor<?x?xf32, #cleave.dims<["g", "m"]>>
!T23 = tensor<?x?x?xf16, #cleave.dims<["g", "m", "n"]>>
func.func @mqa_plain(%arg0: !T17, %arg1: !T18, %arg2: !T19) -> !T20 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["d"]} : (!T17, !T18) -> !T21
  %1 = "cleave.constant"() {value = 2.000000e-01 : f32} : () -> !T8
  %2 = "cleave.mul"(%0, %1) : (!T21, !T8) -> !T21
  %3 = "cleave.reduce"(%2) {kind = "max", over = ["n"]} : (!T21) -> !T22
  %4 = "cleave.sub"(%2, %3) : (!T21, !T22) -> !T21
  %5 = "cleave.exp"(%4) : (!T21) -> !T21
  %6 = "cleave.reduce"(%5) {kind = "sum", over = ["n"]} : (!T21) -> !T22
  %7 = "cleave.div"(%5, %6) : (!T21, !T22) -> !T21
  %8 = "cleave.cast"(%7) : (!T21) -> !T23
  %9 = "cleave.contract"(%8, %arg2) {over = ["n"]} : (!T23, !T19) -> !T20
  return %9 : !T20
}

// A prefill of latent attention: keys wider than values, whose 192 elements are summed in two tiles.

// CHECK-LABEL:kernel @mla_plain__k0
//  CHECK-NEXT:  for {{.*}}
//   CHECK-DAG:    contract d_0
//   CHECK-DAG:    contract d_128
//   CHECK-DAG:    reduce max n
//   CHECK-DAG:{{ +}}reduce sum n
//   CHECK-DAG:    contract n
//   CHECK-NOT:  for {{.*}}
//   CHECK-NOT:kernel @mla_plain__k1
!T24 = tensor<?x?x192xf16, #cleave.dims<["h", "m", "d"]>>
!T25 = tensor<?x?x192xf16, #cleave.dims<["h", "n", "d"]>>
!T26 = tensor<?x?x128xf16, #cleave.dims<["h", "n", "e"]>>
!T27 = tensor<?x?x128xf16, #cleave.dims<["h", "m", "e"]>>
func.func @mla_plain(%arg0: !T24, %arg1: !T25, %arg2: !T26) -> !T27 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["d"]} : (!T24, !T25) -> !T7
  %1 = "cleave.constant"() {value = 2.000000e-01 : f32} : () -> !T8
  %2 = "cleave.mul"(%0, %1) : (!T7, !T8) -> !T7
  %3 = "cleave.reduce"(%2) {kind = "max", over = ["n"]} : (!T7) -> !T15
  %4 = "cleave.sub"(%2, %3) : (!T7, !T15) -> !T7
  %5 = "cleave.exp"(%4) : (!T7) -> !T7
  %6 = "cleave.reduce"(%5) {kind = "sum", over = ["n"]} : (!T7) -> !T15
  %7 = "cleave.div"(%5, %6) : (!T7, !T15) -> !T7
  %8 = "cleave.cast"(%7) : (!T7) -> !T16
  %9 = "cleave.contract"(%8, %arg2) {over = ["n"]} : (!T16, !T26) -> !T27
  return %9 : !T27
}

// One query for each of a group's heads, with norms: that of queries once, that of keys in the loop.

// CHECK-LABEL:kernel @qk_norm_decode__k0
//  CHECK-NEXT:  reduce sum d
//  CHECK-NEXT:  for {{.*}}
//   CHECK-DAG:    reduce sum d
//   CHECK-DAG:    contract d
//   CHECK-DAG:    reduce max n
//   CHECK-DAG:{{ +}}reduce sum n
//   CHECK-DAG:    contract n
//   CHECK-NOT:  for {{.*}}
//   CHECK-NOT:kernel @qk_norm_decode__k1
!T28 = tensor<?x?x64xf16, #cleave.dims<["a", "g", "d"]>>
!T29 = tensor<?x?x64xf16, #cleave.dims<["a", "n", "d"]>>
!T30 = tensor<?x?x64xf16, #cleave.dims<["a", "n", "e"]>>
!T31 = tensor<64xf16, #cleave.dims<["d"]>>
!T32 = tensor<?x?x64xf16, #cleave.dims<["a", "g", "e"]>>
!T33 = tensor<?x?x64xf32, #cleave.dims<["a", "g", "d"]>>
!T34 = tensor<?x?xf32, #cleave.dims<["a", "g"]>>
!T35 = tensor<?x?x64xf32, #cleave.dims<["a", "n", "d"]>>
!T36 = tensor<?x?xf32, #cleave.dims<["a", "n"]>>
!T37 = tensor<?x?x?xf32, #cleave.dims<["a", "g", "n"]>>
!T38 = tensor<?x?x?xf16, #cleave.dims<["a", "g", "n"]>>
!T39 = tensor<?x?x64xf32, #cleave.dims<["a", "g", "e"]>>
func.func @qk_norm_decode(%arg0: !T28, %arg1: !T29, %arg2: !T30, %arg3: !T31, %arg4: !T31) -> !T32 {
  %0 = "cleave.cast"(%arg0) : (!T28) -> !T33
  %1 = "cleave.mul"(%0, %0) : (!T33, !T33) -> !T33
  %2 = "cleave.reduce"(%1) {kind = "sum", over = ["d"]} : (!T33) -> !T34
  %3 = "cleave.constant"() {value = 6.400000e+01 : f32} : () -> !T8
  %4 = "cleave.div"(%2, %3) : (!T34, !T8) -> !T34
  %5 = "cleave.constant"() {value = 9.99999997E-7 : f32} : () -> !T8
  %6 = "cleave.add"(%4, %5) : (!T34, !T8) -> !T34
  %7 = "cleave.rsqrt"(%6) : (!T34) -> !T34
  %8 = "cleave.mul"(%0, %7) : (!T33, !T34) -> !T33
  %9 = "cleave.cast"(%8) : (!T33) -> !T28
  %10 = "cleave.mul"(%9, %arg3) : (!T28, !T31) -> !T28
  %11 = "cleave.cast"(%arg1) : (!T29) -> !T35
  %12 = "cleave.mul"(%11, %11) : (!T35, !T35) -> !T35
  %13 = "cleave.reduce"(%12) {kind = "sum", over = ["d"]} : (!T35) -> !T36
  %14 = "cleave.div"(%13, %3) : (!T36, !T8) -> !T36
  %15 = "cleave.add"(%14, %5) : (!T36, !T8) -> !T36
  %16 = "cleave.rsqrt"(%15) : (!T36) -> !T36
  %17 = "cleave.mul"(%11, %16) : (!T35, !T36) -> !T35
  %18 = "cleave.cast"(%17) : (!T35) -> !T29
  %19 = "cleave.mul"(%18, %arg4) : (!T29, !T31) -> !T29
  %20 = "cleave.contract"(%10, %19) {over = ["d"]} : (!T28, !T29) -> !T37
  %21 = "cleave.constant"() {value = 1.250000e-01 : f32} : () -> !T8
  %22 = "cleave.mul"(%20, %21) : (!T37, !T8) -> !T37
  %23 = "cleave.reduce"(%22) {kind = "max", over = ["n"]} : (!T37) -> !T34
  %24 = "cleave.sub"(%22, %23) : (!T37, !T34) -> !T37
  %25 = "cleave.exp"(%24) : (!T37) -> !T37
  %26 = "cleave.reduce"(%25) {kind = "sum", over = ["n"]} : (!T37) -> !T34
  %27 = "cleave.div"(%25, %26) : (!T37, !T34) -> !T37
  %28 = "cleave.cast"(%27) : (!T37) -> !T38
  %29 = "cleave.contract"(%28, %arg2) {over = ["n"]} : (!T38, !T30) -> !T39
  %30 = "cleave.cast"(%29) : (!T39) -> !T32
  return %30 : !T32
}
