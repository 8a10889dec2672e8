// RUN: %cleave-opt "--schedule{sizes=m=32768,n=4096,k=4096,h=32,kv=8,g=4,q=4096,v=1024,w=1024,b=32}" %s > %t
// RUN: %python %S/../../../tools/outline.py --loops < %t | FileCheck %s --match-full-lines --strict-whitespace

// Which contractions and reductions share which loop, for graphs as their users write them.

// A product.

//      CHECK:kernel @matmul__k0
// CHECK-NEXT:  for k
// CHECK-NEXT:    contract k
!T0 = tensor<?x?xf16, #cleave.dims<["m", "k"]>>
!T1 = tensor<?x?xf16, #cleave.dims<["k", "n"]>>
!T2 = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
func.func @matmul(%arg0: !T0, %arg1: !T1) -> !T2 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["k"]} : (!T0, !T1) -> !T2
  return %0 : !T2
}

// Two products in a row: what lies between them is not written.

//      CHECK:kernel @matmul_matmul__k0
// CHECK-NEXT:  for n
// CHECK-NEXT:    contract d
// CHECK-NEXT:    contract n
!T3 = tensor<?x?x64xf16, #cleave.dims<["h", "m", "d"]>>
!T4 = tensor<?x?x64xf16, #cleave.dims<["h", "n", "d"]>>
!T5 = tensor<?x?x64xf16, #cleave.dims<["h", "n", "e"]>>
!T6 = tensor<?x?x64xf32, #cleave.dims<["h", "m", "e"]>>
!T7 = tensor<?x?x?xf32, #cleave.dims<["h", "m", "n"]>>
!T8 = tensor<?x?x?xf16, #cleave.dims<["h", "m", "n"]>>
func.func @matmul_matmul(%arg0: !T3, %arg1: !T4, %arg2: !T5) -> !T6 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["d"]} : (!T3, !T4) -> !T7
  %1 = "cleave.cast"(%0) : (!T7) -> !T8
  %2 = "cleave.contract"(%1, %arg2) {over = ["n"]} : (!T8, !T5) -> !T6
  return %2 : !T6
}

// The row sums of a product.

//      CHECK:kernel @matmul_rowsum__k0
// CHECK-NEXT:  for n
// CHECK-NEXT:    contract k
// CHECK-NEXT:    reduce sum n
!T9 = tensor<?x64xf16, #cleave.dims<["m", "k"]>>
!T10 = tensor<64x?xf16, #cleave.dims<["k", "n"]>>
!T11 = tensor<?xf32, #cleave.dims<["m"]>>
!T12 = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
func.func @matmul_rowsum(%arg0: !T9, %arg1: !T10) -> !T11 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["k"]} : (!T9, !T10) -> !T12
  %1 = "cleave.reduce"(%0) {kind = "sum", over = ["n"]} : (!T12) -> !T11
  return %1 : !T11
}

// Two products of one input whose rows are not whole vectors: large tiles, a kernel each.

//      CHECK:kernel @swiglu__k0
// CHECK-NEXT:  for k
// CHECK-NEXT:    contract k
//      CHECK:kernel @swiglu__k1
// CHECK-NEXT:  for k
// CHECK-NEXT:    contract k
!T13 = tensor<?x?xf16, #cleave.dims<["m", "k"]>>
!T14 = tensor<?x?xf16, #cleave.dims<["k", "n"]>>
!T15 = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
!T16 = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
func.func @swiglu(%arg0: !T13, %arg1: !T14, %arg2: !T14) -> !T15 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["k"]} : (!T13, !T14) -> !T16
  %1 = "cleave.sigmoid"(%0) : (!T16) -> !T16
  %2 = "cleave.mul"(%0, %1) : (!T16, !T16) -> !T16
  %3 = "cleave.contract"(%arg0, %arg2) {over = ["k"]} : (!T13, !T14) -> !T16
  %4 = "cleave.mul"(%2, %3) : (!T16, !T16) -> !T16
  %5 = "cleave.cast"(%4) : (!T16) -> !T15
  return %5 : !T15
}

// A norm and the product it scales: for many rows, the norm first.

//      CHECK:kernel @rmsnorm_matmul__k0
//      CHECK:kernel @rmsnorm_matmul__k1
// CHECK-NEXT:  for 200
// CHECK-NEXT:    contract k
!T17 = tensor<?x200xf16, #cleave.dims<["m", "k"]>>
!T18 = tensor<200x?xf16, #cleave.dims<["k", "n"]>>
!T19 = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
!T20 = tensor<?x200xf32, #cleave.dims<["m", "k"]>>
!T21 = tensor<?xf32, #cleave.dims<["m"]>>
!T22 = tensor<f32, #cleave.dims<[]>>
func.func @rmsnorm_matmul(%arg0: !T17, %arg1: !T18) -> !T19 {
  %0 = "cleave.cast"(%arg0) : (!T17) -> !T20
  %1 = "cleave.mul"(%0, %0) : (!T20, !T20) -> !T20
  %2 = "cleave.reduce"(%1) {kind = "sum", over = ["k"]} : (!T20) -> !T21
  %3 = "cleave.constant"() {value = 2.000000e+02 : f32} : () -> !T22
  %4 = "cleave.div"(%2, %3) : (!T21, !T22) -> !T21
  %5 = "cleave.constant"() {value = 9.99999997E-7 : f32} : () -> !T22
  %6 = "cleave.add"(%4, %5) : (!T21, !T22) -> !T21
  %7 = "cleave.rsqrt"(%6) : (!T21) -> !T21
  %8 = "cleave.mul"(%0, %7) : (!T20, !T21) -> !T20
  %9 = "cleave.cast"(%8) : (!T20) -> !T17
  %10 = "cleave.contract"(%9, %arg1) {over = ["k"]} : (!T17, !T18) -> !T19
  return %10 : !T19
}

// A low-rank update: the input once, for both products over k.

//      CHECK:kernel @lora__k0
// CHECK-NEXT:  for k
// CHECK-NEXT:    contract k
// CHECK-NEXT:    contract k
// CHECK-NEXT:  contract r
!T23 = tensor<?x?xf16, #cleave.dims<["m", "k"]>>
!T24 = tensor<?x?xf16, #cleave.dims<["k", "n"]>>
!T25 = tensor<?x16xf16, #cleave.dims<["k", "r"]>>
!T26 = tensor<16x?xf16, #cleave.dims<["r", "n"]>>
!T27 = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
!T28 = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!T29 = tensor<?x16xf32, #cleave.dims<["m", "r"]>>
!T30 = tensor<?x16xf16, #cleave.dims<["m", "r"]>>
func.func @lora(%arg0: !T23, %arg1: !T24, %arg2: !T25, %arg3: !T26) -> !T27 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["k"]} : (!T23, !T24) -> !T28
  %1 = "cleave.contract"(%arg0, %arg2) {over = ["k"]} : (!T23, !T25) -> !T29
  %2 = "cleave.cast"(%1) : (!T29) -> !T30
  %3 = "cleave.contract"(%2, %arg3) {over = ["r"]} : (!T30, !T26) -> !T28
  %4 = "cleave.add"(%0, %3) : (!T28, !T28) -> !T28
  %5 = "cleave.cast"(%4) : (!T28) -> !T27
  return %5 : !T27
}

// Attention of grouped heads, divided before the product with the values: online softmax, sums by ratios.

//      CHECK:kernel @gqa__k0
// CHECK-NEXT:  for n
// CHECK-NEXT:    contract d
// CHECK-NEXT:    reduce max n
// CHECK-NEXT:    reduce sum n
// CHECK-NEXT:    contract n
!T31 = tensor<?x?x?x32xf16, #cleave.dims<["kv", "g", "m", "d"]>>
!T32 = tensor<?x?x32xf16, #cleave.dims<["kv", "n", "d"]>>
!T33 = tensor<?x?x32xf16, #cleave.dims<["kv", "n", "e"]>>
!T34 = tensor<?x?x?x32xf16, #cleave.dims<["kv", "g", "m", "e"]>>
!T35 = tensor<?x?x?x?xf32, #cleave.dims<["kv", "g", "m", "n"]>>
!T36 = tensor<f32, #cleave.dims<[]>>
!T37 = tensor<?x?x?xf32, #cleave.dims<["kv", "g", "m"]>>
!T38 = tensor<?x?x?x?xf16, #cleave.dims<["kv", "g", "m", "n"]>>
func.func @gqa(%arg0: !T31, %arg1: !T32, %arg2: !T33) -> !T34 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["d"]} : (!T31, !T32) -> !T35
  %1 = "cleave.constant"() {value = 2.000000e-01 : f32} : () -> !T36
  %2 = "cleave.mul"(%0, %1) : (!T35, !T36) -> !T35
  %3 = "cleave.reduce"(%2) {kind = "max", over = ["n"]} : (!T35) -> !T37
  %4 = "cleave.sub"(%2, %3) : (!T35, !T37) -> !T35
  %5 = "cleave.exp"(%4) : (!T35) -> !T35
  %6 = "cleave.reduce"(%5) {kind = "sum", over = ["n"]} : (!T35) -> !T37
  %7 = "cleave.div"(%5, %6) : (!T35, !T37) -> !T35
  %8 = "cleave.cast"(%7) : (!T35) -> !T38
  %9 = "cleave.contract"(%8, %arg2) {over = ["n"]} : (!T38, !T33) -> !T34
  return %9 : !T34
}

// Causal, with a soft cap and a sink.

//      CHECK:kernel @causal_attention_cap_sink__k0
// CHECK-NEXT:  for n
// CHECK-NEXT:    contract d
// CHECK-NEXT:    reduce max n
// CHECK-NEXT:    reduce sum n
// CHECK-NEXT:    contract n
!T39 = tensor<?x?x32xf16, #cleave.dims<["h", "m", "d"]>>
!T40 = tensor<?x?x32xf16, #cleave.dims<["h", "n", "d"]>>
!T41 = tensor<?x?x32xf16, #cleave.dims<["h", "n", "e"]>>
!T42 = tensor<?xf32, #cleave.dims<["h"]>>
!T43 = tensor<?x?x32xf16, #cleave.dims<["m", "h", "e"]>>
!T44 = tensor<?xi64, #cleave.dims<["n"]>>
!T45 = tensor<?xi64, #cleave.dims<["m"]>>
!T46 = tensor<?x?xi1, #cleave.dims<["n", "m"]>>
!T47 = tensor<?x?x?xf32, #cleave.dims<["h", "m", "n"]>>
!T48 = tensor<f32, #cleave.dims<[]>>
!T49 = tensor<?x?x?xf32, #cleave.dims<["n", "m", "h"]>>
!T50 = tensor<?x?xf32, #cleave.dims<["m", "h"]>>
!T51 = tensor<?x?xf32, #cleave.dims<["h", "m"]>>
!T52 = tensor<?x?x?xf16, #cleave.dims<["n", "m", "h"]>>
func.func @causal_attention_cap_sink(%arg0: !T39, %arg1: !T40, %arg2: !T41, %arg3: !T42) -> !T43 {
  %0 = "cleave.index"() {dim = "n"} : () -> !T44
  %1 = "cleave.index"() {dim = "m"} : () -> !T45
  %2 = "cleave.cmp"(%0, %1) {predicate = "le"} : (!T44, !T45) -> !T46
  %3 = "cleave.contract"(%arg0, %arg1) {over = ["d"]} : (!T39, !T40) -> !T47
  %4 = "cleave.constant"() {value = 2.000000e-01 : f32} : () -> !T48
  %5 = "cleave.mul"(%3, %4) : (!T47, !T48) -> !T47
  %6 = "cleave.constant"() {value = 3.000000e+01 : f32} : () -> !T48
  %7 = "cleave.div"(%5, %6) : (!T47, !T48) -> !T47
  %8 = "cleave.tanh"(%7) : (!T47) -> !T47
  %9 = "cleave.mul"(%8, %6) : (!T47, !T48) -> !T47
  %10 = "cleave.constant"() {value = 0xFF800000 : f32} : () -> !T48
  %11 = "cleave.select"(%2, %9, %10) : (!T46, !T47, !T48) -> !T49
  %12 = "cleave.reduce"(%11) {kind = "max", over = ["n"]} : (!T49) -> !T50
  %13 = "cleave.max"(%12, %arg3) : (!T50, !T42) -> !T50
  %14 = "cleave.sub"(%11, %13) : (!T49, !T50) -> !T49
  %15 = "cleave.exp"(%14) : (!T49) -> !T49
  %16 = "cleave.reduce"(%15) {kind = "sum", over = ["n"]} : (!T49) -> !T50
  %17 = "cleave.sub"(%arg3, %13) : (!T42, !T50) -> !T51
  %18 = "cleave.exp"(%17) : (!T51) -> !T51
  %19 = "cleave.add"(%16, %18) : (!T50, !T51) -> !T50
  %20 = "cleave.div"(%15, %19) : (!T49, !T50) -> !T49
  %21 = "cleave.cast"(%20) : (!T49) -> !T52
  %22 = "cleave.contract"(%21, %arg2) {over = ["n"]} : (!T52, !T41) -> !T43
  return %22 : !T43
}

// An additive mask, and the log-sum-exp as a second output.

//      CHECK:kernel @attention__k0
// CHECK-NEXT:  for n
// CHECK-NEXT:    contract d_1
// CHECK-NEXT:    reduce max n
// CHECK-NEXT:    contract n
// CHECK-NEXT:    reduce sum n
!T53 = tensor<?x?x64xf16, #cleave.dims<["h", "m", "d"]>>
!T54 = tensor<?x?x64xf16, #cleave.dims<["h", "n", "d"]>>
!T55 = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!T56 = tensor<?x?xf32, #cleave.dims<["h", "m"]>>
!T57 = tensor<?x?x?xf32, #cleave.dims<["h", "m", "n"]>>
!T58 = tensor<f32, #cleave.dims<[]>>
!T59 = tensor<?x?x?xf16, #cleave.dims<["h", "m", "n"]>>
!T60 = tensor<?x?x64xf32, #cleave.dims<["h", "m", "d"]>>
func.func @attention(%arg0: !T53, %arg1: !T54, %arg2: !T54, %arg3: !T55) -> (!T53, !T56) {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["d"]} : (!T53, !T54) -> !T57
  %1 = "cleave.constant"() {value = 1.250000e-01 : f32} : () -> !T58
  %2 = "cleave.mul"(%0, %1) : (!T57, !T58) -> !T57
  %3 = "cleave.add"(%2, %arg3) : (!T57, !T55) -> !T57
  %4 = "cleave.reduce"(%3) {kind = "max", over = ["n"]} : (!T57) -> !T56
  %5 = "cleave.sub"(%3, %4) : (!T57, !T56) -> !T57
  %6 = "cleave.exp"(%5) : (!T57) -> !T57
  %7 = "cleave.cast"(%6) : (!T57) -> !T59
  %8 = "cleave.contract"(%7, %arg2) {over = ["n"]} : (!T59, !T54) -> !T60
  %9 = "cleave.reduce"(%6) {kind = "sum", over = ["n"]} : (!T57) -> !T56
  %10 = "cleave.div"(%8, %9) : (!T60, !T56) -> !T60
  %11 = "cleave.cast"(%10) : (!T60) -> !T53
  %12 = "cleave.log"(%9) : (!T56) -> !T56
  %13 = "cleave.add"(%4, %12) : (!T56, !T56) -> !T56
  return %11, %13 : !T53, !T56
}

// Norms of queries and keys: of keys inside the loop.

//      CHECK:kernel @qk_norm_attention__k0
// CHECK-NEXT:  reduce sum d
// CHECK-NEXT:  for n
// CHECK-NEXT:    reduce sum d
// CHECK-NEXT:    contract d
// CHECK-NEXT:    reduce max n
// CHECK-NEXT:    reduce sum n
// CHECK-NEXT:    contract n
!T61 = tensor<?x?x32xf16, #cleave.dims<["h", "m", "d"]>>
!T62 = tensor<?x?x32xf16, #cleave.dims<["h", "n", "d"]>>
!T63 = tensor<?x?x32xf16, #cleave.dims<["h", "n", "e"]>>
!T64 = tensor<?x?x32xf16, #cleave.dims<["h", "m", "e"]>>
!T65 = tensor<?x?x32xf32, #cleave.dims<["h", "m", "d"]>>
!T66 = tensor<?x?xf32, #cleave.dims<["h", "m"]>>
!T67 = tensor<f32, #cleave.dims<[]>>
!T68 = tensor<?x?x32xf32, #cleave.dims<["h", "n", "d"]>>
!T69 = tensor<?x?xf32, #cleave.dims<["h", "n"]>>
!T70 = tensor<?x?x?xf32, #cleave.dims<["h", "m", "n"]>>
!T71 = tensor<?x?x?xf16, #cleave.dims<["h", "m", "n"]>>
func.func @qk_norm_attention(%arg0: !T61, %arg1: !T62, %arg2: !T63) -> !T64 {
  %0 = "cleave.cast"(%arg0) : (!T61) -> !T65
  %1 = "cleave.mul"(%0, %0) : (!T65, !T65) -> !T65
  %2 = "cleave.reduce"(%1) {kind = "sum", over = ["d"]} : (!T65) -> !T66
  %3 = "cleave.constant"() {value = 3.200000e+01 : f32} : () -> !T67
  %4 = "cleave.div"(%2, %3) : (!T66, !T67) -> !T66
  %5 = "cleave.constant"() {value = 9.99999997E-7 : f32} : () -> !T67
  %6 = "cleave.add"(%4, %5) : (!T66, !T67) -> !T66
  %7 = "cleave.rsqrt"(%6) : (!T66) -> !T66
  %8 = "cleave.mul"(%0, %7) : (!T65, !T66) -> !T65
  %9 = "cleave.cast"(%8) : (!T65) -> !T61
  %10 = "cleave.cast"(%arg1) : (!T62) -> !T68
  %11 = "cleave.mul"(%10, %10) : (!T68, !T68) -> !T68
  %12 = "cleave.reduce"(%11) {kind = "sum", over = ["d"]} : (!T68) -> !T69
  %13 = "cleave.div"(%12, %3) : (!T69, !T67) -> !T69
  %14 = "cleave.add"(%13, %5) : (!T69, !T67) -> !T69
  %15 = "cleave.rsqrt"(%14) : (!T69) -> !T69
  %16 = "cleave.mul"(%10, %15) : (!T68, !T69) -> !T68
  %17 = "cleave.cast"(%16) : (!T68) -> !T62
  %18 = "cleave.contract"(%9, %17) {over = ["d"]} : (!T61, !T62) -> !T70
  %19 = "cleave.constant"() {value = 2.000000e-01 : f32} : () -> !T67
  %20 = "cleave.mul"(%18, %19) : (!T70, !T67) -> !T70
  %21 = "cleave.reduce"(%20) {kind = "max", over = ["n"]} : (!T70) -> !T66
  %22 = "cleave.sub"(%20, %21) : (!T70, !T66) -> !T70
  %23 = "cleave.exp"(%22) : (!T70) -> !T70
  %24 = "cleave.reduce"(%23) {kind = "sum", over = ["n"]} : (!T70) -> !T66
  %25 = "cleave.div"(%23, %24) : (!T70, !T66) -> !T70
  %26 = "cleave.cast"(%25) : (!T70) -> !T71
  %27 = "cleave.contract"(%26, %arg2) {over = ["n"]} : (!T71, !T63) -> !T64
  return %27 : !T64
}

// A latent cache in two roles.

//      CHECK:kernel @latent_attention__k0
// CHECK-NEXT:  for n
// CHECK-NEXT:    contract d_1
// CHECK-NEXT:    contract p
// CHECK-NEXT:    reduce max n
// CHECK-NEXT:    reduce sum n
// CHECK-NEXT:    contract n
!T72 = tensor<?x?x64xf16, #cleave.dims<["b", "h", "d"]>>
!T73 = tensor<?x?x16xf16, #cleave.dims<["b", "h", "p"]>>
!T74 = tensor<?x?x64xf16, #cleave.dims<["b", "n", "d"]>>
!T75 = tensor<?x?x16xf16, #cleave.dims<["b", "n", "p"]>>
!T76 = tensor<?x?x?xf32, #cleave.dims<["b", "h", "n"]>>
!T77 = tensor<f32, #cleave.dims<[]>>
!T78 = tensor<?x?xf32, #cleave.dims<["b", "h"]>>
!T79 = tensor<?x?x?xf16, #cleave.dims<["b", "h", "n"]>>
func.func @latent_attention(%arg0: !T72, %arg1: !T73, %arg2: !T74, %arg3: !T75) -> !T72 {
  %0 = "cleave.contract"(%arg0, %arg2) {over = ["d"]} : (!T72, !T74) -> !T76
  %1 = "cleave.contract"(%arg1, %arg3) {over = ["p"]} : (!T73, !T75) -> !T76
  %2 = "cleave.add"(%0, %1) : (!T76, !T76) -> !T76
  %3 = "cleave.constant"() {value = 1.000000e-01 : f32} : () -> !T77
  %4 = "cleave.mul"(%2, %3) : (!T76, !T77) -> !T76
  %5 = "cleave.reduce"(%4) {kind = "max", over = ["n"]} : (!T76) -> !T78
  %6 = "cleave.sub"(%4, %5) : (!T76, !T78) -> !T76
  %7 = "cleave.exp"(%6) : (!T76) -> !T76
  %8 = "cleave.reduce"(%7) {kind = "sum", over = ["n"]} : (!T76) -> !T78
  %9 = "cleave.div"(%7, %8) : (!T76, !T78) -> !T76
  %10 = "cleave.cast"(%9) : (!T76) -> !T79
  %11 = "cleave.contract"(%10, %arg2) {over = ["n"]} : (!T79, !T74) -> !T72
  return %11 : !T72
}

// A log-sum-exp head.

//      CHECK:kernel @log_sum_exp__k0
// CHECK-NEXT:  for n
// CHECK-NEXT:    contract k
// CHECK-NEXT:    reduce max n
// CHECK-NEXT:    reduce sum n
!T80 = tensor<?x64xf16, #cleave.dims<["m", "k"]>>
!T81 = tensor<64x?xf16, #cleave.dims<["k", "n"]>>
!T82 = tensor<?xf32, #cleave.dims<["m"]>>
!T83 = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
func.func @log_sum_exp(%arg0: !T80, %arg1: !T81) -> !T82 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["k"]} : (!T80, !T81) -> !T83
  %1 = "cleave.reduce"(%0) {kind = "max", over = ["n"]} : (!T83) -> !T82
  %2 = "cleave.sub"(%0, %1) : (!T83, !T82) -> !T83
  %3 = "cleave.exp"(%2) : (!T83) -> !T83
  %4 = "cleave.reduce"(%3) {kind = "sum", over = ["n"]} : (!T83) -> !T82
  %5 = "cleave.log"(%4) : (!T82) -> !T82
  %6 = "cleave.add"(%1, %5) : (!T82, !T82) -> !T82
  return %6 : !T82
}

// Cross-entropy.

//      CHECK:kernel @cross_entropy__k0
// CHECK-NEXT:  for n
// CHECK-NEXT:    contract k
// CHECK-NEXT:    reduce max n
// CHECK-NEXT:    reduce sum n
// CHECK-NEXT:    reduce sum n
!T84 = tensor<?x64xf16, #cleave.dims<["m", "k"]>>
!T85 = tensor<64x?xf16, #cleave.dims<["k", "n"]>>
!T86 = tensor<?xi32, #cleave.dims<["m"]>>
!T87 = tensor<?xf32, #cleave.dims<["m"]>>
!T88 = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!T89 = tensor<?xi32, #cleave.dims<["n"]>>
!T90 = tensor<?x?xi1, #cleave.dims<["n", "m"]>>
!T91 = tensor<f32, #cleave.dims<[]>>
!T92 = tensor<?x?xf32, #cleave.dims<["n", "m"]>>
func.func @cross_entropy(%arg0: !T84, %arg1: !T85, %arg2: !T86) -> !T87 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["k"]} : (!T84, !T85) -> !T88
  %1 = "cleave.reduce"(%0) {kind = "max", over = ["n"]} : (!T88) -> !T87
  %2 = "cleave.sub"(%0, %1) : (!T88, !T87) -> !T88
  %3 = "cleave.exp"(%2) : (!T88) -> !T88
  %4 = "cleave.reduce"(%3) {kind = "sum", over = ["n"]} : (!T88) -> !T87
  %5 = "cleave.log"(%4) : (!T87) -> !T87
  %6 = "cleave.add"(%1, %5) : (!T87, !T87) -> !T87
  %7 = "cleave.index"() {dim = "n"} : () -> !T89
  %8 = "cleave.cmp"(%7, %arg2) {predicate = "eq"} : (!T89, !T86) -> !T90
  %9 = "cleave.constant"() {value = 0.000000e+00 : f32} : () -> !T91
  %10 = "cleave.select"(%8, %0, %9) : (!T90, !T88, !T91) -> !T92
  %11 = "cleave.reduce"(%10) {kind = "sum", over = ["n"]} : (!T92) -> !T87
  %12 = "cleave.sub"(%6, %11) : (!T87, !T87) -> !T87
  return %12 : !T87
}

// Attention without softmax.

//      CHECK:kernel @linear_attention__k0
// CHECK-NEXT:  for d
// CHECK-NEXT:    contract d
// CHECK-NEXT:kernel @linear_attention__k1
// CHECK-NEXT:  for n
// CHECK-NEXT:    contract n
!T93 = tensor<?x?xf16, #cleave.dims<["m", "d"]>>
!T94 = tensor<?x?xf16, #cleave.dims<["n", "d"]>>
!T95 = tensor<?x?xf16, #cleave.dims<["n", "e"]>>
!T96 = tensor<?x?xf32, #cleave.dims<["m", "e"]>>
!T97 = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!T98 = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
func.func @linear_attention(%arg0: !T93, %arg1: !T94, %arg2: !T95) -> !T96 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["d"]} : (!T93, !T94) -> !T97
  %1 = "cleave.cast"(%0) : (!T97) -> !T98
  %2 = "cleave.contract"(%1, %arg2) {over = ["n"]} : (!T98, !T95) -> !T96
  return %2 : !T96
}

// Two outputs of one input, for many rows: a loop each, one after the other or side by side.

//      CHECK:kernel @matmul_and_rowsum__k0
//      CHECK:{{ *}}for k
// CHECK-NEXT:{{ *}}contract k
//      CHECK:{{ *}}for k
// CHECK-NEXT:{{ *}}reduce sum k
!T99 = tensor<?x?xf16, #cleave.dims<["m", "k"]>>
!T100 = tensor<?x?xf16, #cleave.dims<["k", "n"]>>
!T101 = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
!T102 = tensor<?xf32, #cleave.dims<["m"]>>
!T103 = tensor<?x?xf32, #cleave.dims<["m", "k"]>>
func.func @matmul_and_rowsum(%arg0: !T99, %arg1: !T100) -> (!T101, !T102) {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["k"]} : (!T99, !T100) -> !T101
  %1 = "cleave.cast"(%arg0) : (!T99) -> !T103
  %2 = "cleave.reduce"(%1) {kind = "sum", over = ["k"]} : (!T103) -> !T102
  return %0, %2 : !T101, !T102
}

// The norm of a mix with a normalised vector: a polynomial in its scale.

//      CHECK:kernel @ngpt__k0
// CHECK-NEXT:  for n
// CHECK-NEXT:    reduce sum n
// CHECK-NEXT:    reduce sum n
// CHECK-NEXT:    reduce sum n
// CHECK-NEXT:    reduce sum n
!T104 = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!T105 = tensor<?xf32, #cleave.dims<["n"]>>
!T106 = tensor<?xf32, #cleave.dims<["m"]>>
!T107 = tensor<?x?xf32, #cleave.dims<["n", "m"]>>
func.func @ngpt(%arg0: !T104, %arg1: !T104, %arg2: !T105) -> !T106 {
  %0 = "cleave.mul"(%arg1, %arg1) : (!T104, !T104) -> !T104
  %1 = "cleave.reduce"(%0) {kind = "sum", over = ["n"]} : (!T104) -> !T106
  %2 = "cleave.rsqrt"(%1) : (!T106) -> !T106
  %3 = "cleave.mul"(%arg1, %2) : (!T104, !T106) -> !T104
  %4 = "cleave.sub"(%3, %arg0) : (!T104, !T104) -> !T104
  %5 = "cleave.mul"(%arg2, %4) : (!T105, !T104) -> !T107
  %6 = "cleave.add"(%arg0, %5) : (!T104, !T107) -> !T104
  %7 = "cleave.mul"(%6, %6) : (!T104, !T104) -> !T104
  %8 = "cleave.reduce"(%7) {kind = "sum", over = ["n"]} : (!T104) -> !T106
  return %8 : !T106
}

// Variance: Chan's recurrence.

//      CHECK:kernel @variance__k0
// CHECK-NEXT:  for n
// CHECK-NEXT:    reduce sum n
// CHECK-NEXT:    reduce sum n
// CHECK-NEXT:    reduce sum n
!T108 = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!T109 = tensor<?xf32, #cleave.dims<["m"]>>
!T110 = tensor<?xf32, #cleave.dims<["n"]>>
!T111 = tensor<f32, #cleave.dims<[]>>
func.func @variance(%arg0: !T108) -> !T109 {
  %0 = "cleave.reduce"(%arg0) {kind = "sum", over = ["n"]} : (!T108) -> !T109
  %1 = "cleave.constant"() {value = 1.000000e+00 : f32} : () -> !T110
  %2 = "cleave.reduce"(%1) {kind = "sum", over = ["n"]} : (!T110) -> !T111
  %3 = "cleave.div"(%0, %2) : (!T109, !T111) -> !T109
  %4 = "cleave.sub"(%arg0, %3) : (!T108, !T109) -> !T108
  %5 = "cleave.mul"(%4, %4) : (!T108, !T108) -> !T108
  %6 = "cleave.reduce"(%5) {kind = "sum", over = ["n"]} : (!T108) -> !T109
  %7 = "cleave.div"(%6, %2) : (!T109, !T111) -> !T109
  return %7 : !T109
}

// Projections of different widths side by side.

//      CHECK:kernel @qkv__k0
// CHECK-NEXT:  branch
// CHECK-NEXT:    branch
// CHECK-NEXT:      for k
// CHECK-NEXT:        contract k
// CHECK-NEXT:    else
// CHECK-NEXT:  else
// CHECK-NEXT:  branch
// CHECK-NEXT:    branch
// CHECK-NEXT:      for k
// CHECK-NEXT:        contract k
// CHECK-NEXT:    else
// CHECK-NEXT:  else
// CHECK-NEXT:  branch
// CHECK-NEXT:    branch
// CHECK-NEXT:      for k
// CHECK-NEXT:        contract k
// CHECK-NEXT:    else
// CHECK-NEXT:  else
!T112 = tensor<?x?xf16, #cleave.dims<["m", "k"]>>
!T113 = tensor<?x?xf16, #cleave.dims<["k", "q"]>>
!T114 = tensor<?x?xf16, #cleave.dims<["k", "v"]>>
!T115 = tensor<?x?xf16, #cleave.dims<["k", "w"]>>
!T116 = tensor<?x?xf16, #cleave.dims<["m", "q"]>>
!T117 = tensor<?x?xf16, #cleave.dims<["m", "v"]>>
!T118 = tensor<?x?xf16, #cleave.dims<["m", "w"]>>
func.func @qkv(%arg0: !T112, %arg1: !T113, %arg2: !T114, %arg3: !T115) -> (!T116, !T117, !T118) {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["k"]} : (!T112, !T113) -> !T116
  %1 = "cleave.contract"(%arg0, %arg2) {over = ["k"]} : (!T112, !T114) -> !T117
  %2 = "cleave.contract"(%arg0, %arg3) {over = ["k"]} : (!T112, !T115) -> !T118
  return %0, %1, %2 : !T116, !T117, !T118
}
