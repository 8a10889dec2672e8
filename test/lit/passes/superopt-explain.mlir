// RUN: cleave-opt "--superopt{explain}" %s 2>&1 >/dev/null | FileCheck %s
// RUN: cleave-opt --superopt %s 2>&1 >/dev/null | FileCheck %s --check-prefix=QUIET --allow-empty

// One-pass variance: what it computes, and the draw on which it is worse than the source; less an offset it passes.
// CHECK: superopt-explain.mlir:{{.*}}: remark: rejected whole: reduction chain k; {{.*}}: error {{.*}} against the source's {{.*}} on the draw 'large mean'
// The program itself, as an alternative is written.
// CHECK: note: func.func @variance(%arg0: tensor<?x128xf32, #cleave.dims<["m", "k"]>>)
// CHECK: "cleave.mul"(%arg0, %arg0)
// CHECK: return
// Those that were passed over for others stand last, each once.
// CHECK: remark: rejected whole: {{.*}}: another program has the same cost
// CHECK: remark: rejected whole: {{.*}}: dominated by reduction chain
// CHECK-NOT: remark
// QUIET-NOT: rejected
func.func @variance(%x: tensor<?x128xf32, #cleave.dims<["m", "k"]>>) -> tensor<?xf32, #cleave.dims<["m"]>> {
  %size = "cleave.constant"() {value = 128.0 : f32} : () -> tensor<f32, #cleave.dims<[]>>
  %sum = "cleave.reduce"(%x) {kind = "sum", over = ["k"]} : (tensor<?x128xf32, #cleave.dims<["m", "k"]>>) -> tensor<?xf32, #cleave.dims<["m"]>>
  %mean = "cleave.div"(%sum, %size) : (tensor<?xf32, #cleave.dims<["m"]>>, tensor<f32, #cleave.dims<[]>>) -> tensor<?xf32, #cleave.dims<["m"]>>
  %d = "cleave.sub"(%x, %mean) : (tensor<?x128xf32, #cleave.dims<["m", "k"]>>, tensor<?xf32, #cleave.dims<["m"]>>) -> tensor<?x128xf32, #cleave.dims<["m", "k"]>>
  %s = "cleave.mul"(%d, %d) : (tensor<?x128xf32, #cleave.dims<["m", "k"]>>, tensor<?x128xf32, #cleave.dims<["m", "k"]>>) -> tensor<?x128xf32, #cleave.dims<["m", "k"]>>
  %t = "cleave.reduce"(%s) {kind = "sum", over = ["k"]} : (tensor<?x128xf32, #cleave.dims<["m", "k"]>>) -> tensor<?xf32, #cleave.dims<["m"]>>
  %v = "cleave.div"(%t, %size) : (tensor<?xf32, #cleave.dims<["m"]>>, tensor<f32, #cleave.dims<[]>>) -> tensor<?xf32, #cleave.dims<["m"]>>
  return %v : tensor<?xf32, #cleave.dims<["m"]>>
}
