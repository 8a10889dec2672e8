// The report, checked against the source, at sizes that no tile divides.
// RUN: cleave-run --check --function=softmax --sizes=m=3,n=45 %s | FileCheck %s
// RUN: cleave-run --check --function=softmax --sizes=m=3,n=45 --no-superopt %s | FileCheck %s --check-prefix=WRITTEN
// RUN: cleave-run --function=softmax --stage=reference --seed=7 %s | FileCheck %s --check-prefix=REFERENCE
// RUN: cleave-run --json --check --function=softmax --sizes=m=3,n=45 %s | FileCheck %s --check-prefix=JSON
// RUN: cleave-run --function=softmax - < %s | FileCheck %s --check-prefix=STDIN

// RUN: cleave-run --check --sizes=m=3,n=45 --alternative=1 %S/../../../examples/attention.mlir | FileCheck %s --check-prefix=FIRST
// RUN: not cleave-run --function=softmax --alternative=99 %s 2>&1 | FileCheck %s --check-prefix=NINTH
// FIRST: program  superoptimised, alternative 1, as asked, of
// FIRST: out0 {{.*}} ok
// NINTH: error: there is no alternative 99: the search keeps {{[0-9]+}}

// CHECK:      {{.*}}cleave-run.mlir: @softmax
// CHECK-NEXT: sizes    m=3, n=45
// CHECK-NEXT: in       in0: f32[m=3, n=45]  random, seed 0
// CHECK-NEXT: program  superoptimised, {{the source(, best)?|alternative [0-9]+}} of {{[0-9]+}} program{{s?}}; 1 kernel (TTIR interpreter)
// CHECK-NEXT: kernel   softmax__k0: grid {{[0-9]+}} = ({{.+}}), {{[0-9]+}} warps
// CHECK-NEXT: out      out0: f32[m=3, n=45]
// CHECK-NEXT: time     compile {{[0-9.]+}} s, run {{[0-9.]+}} s, reference {{[0-9.]+}} s, unoptimised {{[0-9.]+}} s
// CHECK-NEXT: check    ‖out−ref‖/‖ref‖     compiled  as written    allowed
// CHECK-NEXT: out0 {{[0-9.e-]+ [0-9.e-]+ [0-9.e-]+}} ok

// WRITTEN: program  as written; 1 kernel (TTIR interpreter)

// REFERENCE:      sizes    m=70 (chosen), n=45 (chosen)
// REFERENCE-NEXT: in       in0: f32[m=70, n=45]  random, seed 7
// REFERENCE-NEXT: program  the source, by the reference executor in its declared types
// REFERENCE-NOT:  kernel

// JSON:     "function": "softmax"
// JSON:     "kernels": [
// JSON:     "passed": true

// STDIN: <stdin>: @softmax

func.func @softmax(%x: tensor<?x?xf32, #cleave.dims<["m", "n"]>>) -> tensor<?x?xf32, #cleave.dims<["m", "n"]>> {
  %m = "cleave.reduce"(%x) {kind = "max", over = ["n"]} : (tensor<?x?xf32, #cleave.dims<["m", "n"]>>) -> tensor<?xf32, #cleave.dims<["m"]>>
  %d = "cleave.sub"(%x, %m) : (tensor<?x?xf32, #cleave.dims<["m", "n"]>>, tensor<?xf32, #cleave.dims<["m"]>>) -> tensor<?x?xf32, #cleave.dims<["m", "n"]>>
  %e = "cleave.exp"(%d) : (tensor<?x?xf32, #cleave.dims<["m", "n"]>>) -> tensor<?x?xf32, #cleave.dims<["m", "n"]>>
  %l = "cleave.reduce"(%e) {kind = "sum", over = ["n"]} : (tensor<?x?xf32, #cleave.dims<["m", "n"]>>) -> tensor<?xf32, #cleave.dims<["m"]>>
  %p = "cleave.div"(%e, %l) : (tensor<?x?xf32, #cleave.dims<["m", "n"]>>, tensor<?xf32, #cleave.dims<["m"]>>) -> tensor<?x?xf32, #cleave.dims<["m", "n"]>>
  return %p : tensor<?x?xf32, #cleave.dims<["m", "n"]>>
}

// RUN: not cleave-run %s 2>&1 | FileCheck %s --check-prefix=SEVERAL
// SEVERAL: cleave-run.mlir: error: there are several functions: choose one with --function
// SEVERAL: note: functions: softmax, tangent

// RUN: not cleave-run --function=softmax --sizes=n=0 %s 2>&1 | FileCheck %s --check-prefix=EMPTY
// EMPTY: cleave-run.mlir:[[@LINE-14]]:1: error: dimension 'n' is empty in in0, and the function requires 1 <= n

// RUN: not cleave-run --function=tangent %s 2>&1 | FileCheck %s --check-prefix=FOREIGN
// FOREIGN: cleave-run.mlir:[[@LINE+4]]:8: error: 'tangent' cannot be compiled as a whole: '{{.*}}' is no op of a tensor graph
// FOREIGN: note: --stage=reference runs it

func.func @tangent(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = math.tan %x : tensor<?xf32>
  return %0 : tensor<?xf32>
}
