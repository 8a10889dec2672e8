// RUN: cleave-opt "--superopt{certificate=%t.json report=%t.html}" %s -o %t.mlir
// RUN: %python -m cleave.tools.check_certificate --smt %t.smt2 %t.json | FileCheck %s
// RUN: FileCheck %s --check-prefix=PAGE --input-file %t.html
// RUN: FileCheck %s --check-prefix=SMT --input-file %t.smt2
// RUN: sed "0,/1.250000e-01/s//2.500000e-01/" %t.json > %t.tampered.json
// RUN: not %python -m cleave.tools.check_certificate %t.tampered.json | FileCheck %s --check-prefix=TAMPERED
// RUN: not %python -m cleave.tools.check_certificate %s 2>&1 | FileCheck %s --check-prefix=NONE

// CHECK: scaled, alternative 1: equal
// CHECK: fields {{ *}}ok
// CHECK: f64 {{ *}}ok
// CHECK: {{[0-9]+}} equal, 0 not

// PAGE: What the superoptimiser found
// PAGE: Pareto front
// PAGE: Proof:

// SMT: (declare-fun exp (Real) Real)
// SMT: (check-sat)

// TAMPERED: NOT EQUAL
// TAMPERED: {{^}}0 equal

// NONE: check-certificate: error: {{.*}} is not JSON

func.func @scaled(%x: tensor<?x?xf32, #cleave.dims<["m", "k"]>>, %w: tensor<?x?xf32, #cleave.dims<["k", "n"]>>)
    -> tensor<?xf32, #cleave.dims<["m"]>> {
  %s = "cleave.constant"() {value = 0.125 : f32} : () -> tensor<f32, #cleave.dims<[]>>
  %y = "cleave.contract"(%x, %w) {over = ["k"]} : (tensor<?x?xf32, #cleave.dims<["m", "k"]>>, tensor<?x?xf32, #cleave.dims<["k", "n"]>>) -> tensor<?x?xf32, #cleave.dims<["m", "n"]>>
  %z = "cleave.mul"(%y, %s) : (tensor<?x?xf32, #cleave.dims<["m", "n"]>>, tensor<f32, #cleave.dims<[]>>) -> tensor<?x?xf32, #cleave.dims<["m", "n"]>>
  %r = "cleave.reduce"(%z) {kind = "sum", over = ["n"]} : (tensor<?x?xf32, #cleave.dims<["m", "n"]>>) -> tensor<?xf32, #cleave.dims<["m"]>>
  return %r : tensor<?xf32, #cleave.dims<["m"]>>
}
