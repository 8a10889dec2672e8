// RUN: cleave-opt --lower-to-triton --verify-diagnostics %s | FileCheck %s
// RUN: cleave-opt --lower-to-ttgir --verify-diagnostics %s | FileCheck %s

// What is no kernel yet stays, and a remark says what makes kernels; not of a function that only returns its argument
// or a view of it.
!x = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
// CHECK: "cleave.exp"
// expected-remark @+2 {{'exponential' is left as it is: it is not scheduled}}
// expected-note @+1 {{cleave-schedule makes kernels of it, before this pass}}
func.func @exponential(%x: !x) -> !x {
  %y = "cleave.exp"(%x) : (!x) -> !x
  return %y : !x
}

// CHECK: @itself
func.func @itself(%x: !x) -> !x {
  return %x : !x
}

// CHECK: @view
func.func @view(%x: !x) -> tensor<?xf32, #cleave.dims<["z=m*n"]>> {
  %z = "cleave.merge"(%x) {dims = ["m", "n"], into = "z=m*n"} : (!x) -> tensor<?xf32, #cleave.dims<["z=m*n"]>>
  return %z : tensor<?xf32, #cleave.dims<["z=m*n"]>>
}
