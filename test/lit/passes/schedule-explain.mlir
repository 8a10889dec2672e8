// RUN: cleave-opt "--superopt{split=false}" "--schedule{explain sizes=m=256}" %s 2>&1 >/dev/null | FileCheck %s
// RUN: cleave-opt "--schedule{explain compile=14 sizes=m=256}" %s 2>&1 >/dev/null | FileCheck %s --check-prefix=COMPILED

// What each alternative is predicted to take, then the kernels of the chosen one.
// CHECK: alternatives, predicted µs of all their launches:
// CHECK-NEXT: {{[0-9.]+}}  chosen
// CHECK-NEXT: {{[0-9.]+( \(from few tilings\))?$}}
// CHECK: scores__k0: grid
// CHECK-NEXT: tiles {{ *}}loads by  warps  stages {{ *}}µs {{ *}}DRAM {{ *}}L2 {{ *}}tensor  special  other  latency  waves  shared  regs
// CHECK-NEXT: 0 {{.*}} chosen
// CHECK: {{^}}tiles: elements of a thread block
// CHECK-NEXT: µs: predicted
// CHECK: waves: rounds of thread blocks
// CHECK-NEXT: sizes: {{.*}} taken to be 1024
// CHECK-NOT: tiles:
// COMPILED-NOT: alternatives
// COMPILED: 0 {{.*}} chosen
func.func @scores(%x: tensor<?x64xf16, #cleave.dims<["m", "k"]>>, %w: tensor<64x64xf16, #cleave.dims<["k", "n"]>>) -> tensor<?xf32, #cleave.dims<["m"]>> {
  %y = "cleave.contract"(%x, %w) {over = ["k"]} : (tensor<?x64xf16, #cleave.dims<["m", "k"]>>, tensor<64x64xf16, #cleave.dims<["k", "n"]>>) -> tensor<?x64xf32, #cleave.dims<["m", "n"]>>
  %s = "cleave.reduce"(%y) {kind = "sum", over = ["n"]} : (tensor<?x64xf32, #cleave.dims<["m", "n"]>>) -> tensor<?xf32, #cleave.dims<["m"]>>
  return %s : tensor<?xf32, #cleave.dims<["m"]>>
}
