// RUN: %cleave-opt "--schedule{sizes=m=16,n=4096,f=14336}" %s > %t
// RUN: %python %S/../../../tools/outline.py --loops < %t | FileCheck %s --match-full-lines --strict-whitespace

// For few rows, too, a norm has a kernel of its own: in the loop of the product that it scales its loads are not pipelined.

// Two products of one input, and the norm that scales both.

// CHECK-LABEL:kernel @rmsnorm_swiglu__k0
//  CHECK-NEXT:  for {{.*}}
//       CHECK:{{ +}}reduce sum k
// CHECK-LABEL:kernel @rmsnorm_swiglu__k1
//  CHECK-NEXT:  for {{.*}}
//  CHECK-NEXT:    contract k
//  CHECK-NEXT:    contract k
//   CHECK-NOT:kernel @rmsnorm_swiglu__k2
!T0 = tensor<?x4096xf16, #cleave.dims<["m", "k"]>>
!T1 = tensor<4096x14336xf16, #cleave.dims<["k", "f"]>>
!T2 = tensor<?x14336xf16, #cleave.dims<["m", "f"]>>
!T3 = tensor<?x14336xf32, #cleave.dims<["m", "f"]>>
!T4 = tensor<?x4096xf32, #cleave.dims<["m", "k"]>>
!T5 = tensor<?xf32, #cleave.dims<["m"]>>
!T6 = tensor<f32, #cleave.dims<[]>>
func.func @rmsnorm_swiglu(%arg0: !T0, %arg1: !T1, %arg2: !T1) -> !T2 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["k"]} : (!T0, !T1) -> !T3
  %1 = "cleave.cast"(%arg0) : (!T0) -> !T4
  %2 = "cleave.mul"(%1, %1) : (!T4, !T4) -> !T4
  %3 = "cleave.reduce"(%2) {kind = "sum", over = ["k"]} : (!T4) -> !T5
  %4 = "cleave.constant"() {value = 4.096000e+03 : f32} : () -> !T6
  %5 = "cleave.div"(%3, %4) : (!T5, !T6) -> !T5
  %6 = "cleave.constant"() {value = 9.99999997E-7 : f32} : () -> !T6
  %7 = "cleave.add"(%5, %6) : (!T5, !T6) -> !T5
  %8 = "cleave.rsqrt"(%7) : (!T5) -> !T5
  %9 = "cleave.mul"(%0, %8) : (!T3, !T5) -> !T3
  %10 = "cleave.sigmoid"(%9) : (!T3) -> !T3
  %11 = "cleave.mul"(%9, %10) : (!T3, !T3) -> !T3
  %12 = "cleave.contract"(%arg0, %arg2) {over = ["k"]} : (!T0, !T1) -> !T3
  %13 = "cleave.mul"(%12, %8) : (!T3, !T5) -> !T3
  %14 = "cleave.mul"(%11, %13) : (!T3, !T3) -> !T3
  %15 = "cleave.cast"(%14) : (!T3) -> !T2
  return %15 : !T2
}

// A product, and the mean and the variance (by Chan's recurrence) of its input.

// CHECK-LABEL:kernel @layernorm_linear__k0
//       CHECK:{{.*}}contract k
// CHECK-LABEL:kernel @layernorm_linear__k1
//       CHECK:{{ +}}reduce sum k
//   CHECK-NOT:kernel @layernorm_linear__k2
!T7 = tensor<4096x?xf16, #cleave.dims<["k", "n"]>>
!T8 = tensor<?xf32, #cleave.dims<["n"]>>
!T9 = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
!T10 = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
func.func @layernorm_linear(%arg0: !T0, %arg1: !T7, %arg2: !T8, %arg3: !T8) -> !T9 {
  %0 = "cleave.contract"(%arg0, %arg1) {over = ["k"]} : (!T0, !T7) -> !T10
  %1 = "cleave.cast"(%arg0) : (!T0) -> !T4
  %2 = "cleave.reduce"(%1) {kind = "sum", over = ["k"]} : (!T4) -> !T5
  %3 = "cleave.constant"() {value = 4.096000e+03 : f32} : () -> !T6
  %4 = "cleave.div"(%2, %3) : (!T5, !T6) -> !T5
  %5 = "cleave.mul"(%4, %arg2) : (!T5, !T8) -> !T10
  %6 = "cleave.sub"(%0, %5) : (!T10, !T10) -> !T10
  %7 = "cleave.sub"(%1, %4) : (!T4, !T5) -> !T4
  %8 = "cleave.mul"(%7, %7) : (!T4, !T4) -> !T4
  %9 = "cleave.reduce"(%8) {kind = "sum", over = ["k"]} : (!T4) -> !T5
  %10 = "cleave.div"(%9, %3) : (!T5, !T6) -> !T5
  %11 = "cleave.constant"() {value = 9.99999974E-6 : f32} : () -> !T6
  %12 = "cleave.add"(%10, %11) : (!T5, !T6) -> !T5
  %13 = "cleave.rsqrt"(%12) : (!T5) -> !T5
  %14 = "cleave.mul"(%6, %13) : (!T10, !T5) -> !T10
  %15 = "cleave.add"(%14, %arg3) : (!T10, !T8) -> !T10
  %16 = "cleave.cast"(%15) : (!T10) -> !T9
  return %16 : !T9
}
