// RUN: not cleave-opt %s 2>&1 | FileCheck %s
// RUN: not cleave-opt --canonicalize %s 2>&1 | FileCheck %s
// RUN: cleave-opt --verify-each=0 --canonicalize %s | FileCheck %s --check-prefix=OFF

// CHECK: verify-each.mlir:[[@LINE+5]]:8: error: 'cleave.exp'
// CHECK-NEXT: %0 = "cleave.exp"(%a)
// CHECK-NEXT: {{^ +\^$}}
// OFF: "cleave.exp"
func.func @f(%a: tensor<?xf32, #cleave.dims<["m"]>>) -> tensor<?xf32, #cleave.dims<["n"]>> {
  %0 = "cleave.exp"(%a) : (tensor<?xf32, #cleave.dims<["m"]>>) -> tensor<?xf32, #cleave.dims<["n"]>>
  return %0 : tensor<?xf32, #cleave.dims<["n"]>>
}
