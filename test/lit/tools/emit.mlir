// RUN: cleave-opt --schedule --lower-to-triton --emit=ttir %s | FileCheck %s --check-prefix=TTIR
// RUN: cleave-opt --schedule --lower-to-triton --emit=ptx --target=sm_80 %s -o %t.ptx
// RUN: FileCheck %s --check-prefix=PTX --input-file=%t.ptx
// RUN: not cleave-opt --schedule --lower-to-triton --emit=ptx --target=sm_12 %s 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not cleave-opt --schedule --emit=ttir %s 2>&1 | FileCheck %s --check-prefix=LOWER
// RUN: not cleave-opt --lower-to-triton --emit=ttir %s 2>&1 | FileCheck %s --check-prefix=UNSCHEDULED
// RUN: not cleave-opt --emit=ttir --split-input-file %s 2>&1 | FileCheck %s --check-prefix=SPLIT

// RUN: cleave-opt --schedule --lower-to-triton --emit=ttir --kernel=exp__k0 %s | FileCheck %s --check-prefix=TTIR
// RUN: not cleave-opt --schedule --lower-to-triton --emit=ttir --kernel=log %s 2>&1 | FileCheck %s --check-prefix=KERNEL
// RUN: not cleave-opt --kernel=exp__k0 %s 2>&1 | FileCheck %s --check-prefix=PICKS
// RUN: not cleave-opt --schedule --lower-to-ttgir --emit=ttgir --target=sm_80 %s 2>&1 | FileCheck %s --check-prefix=FORM
// RUN: cleave-opt --schedule --lower-to-ttgir --target=h200 %s | FileCheck %s --check-prefix=SAME
// RUN: not cleave-opt --schedule="sizes=q=4" %s 2>&1 | FileCheck %s --check-prefix=SIZES
// KERNEL: error: no kernel 'log'
// PICKS: cleave-opt: error: --kernel picks what --emit=
// FORM: error: --lower-to-ttgir makes warp-specialised kernels for sm_90, and --target is sm_80
// FORM: note: {{.*}}--lower-to-triton takes every target
// SAME: tt.func
// SIZES: error: no function has a size 'q'
// SIZES: note: {{.*}}their sizes: m

// TTIR: // kernel: exp__k0
// TTIR: "tt.func"
// PTX: .target sm_80
// PTX: ex2.approx
// PTX-NOT: <unknown>
// PTX: .file{{.*}}emit.mlir"
// PTX-NOT: .file
// TARGET: error: --target: unknown target 'sm_12'
// TARGET: note: {{.*}}sm_80
// LOWER: error: no kernels
// LOWER: note: kernels are there, but not lowered: run cleave-lower-to-triton
// UNSCHEDULED: error: no kernels
// UNSCHEDULED: note: no function was scheduled into kernels: cleave-schedule does that
// UNSCHEDULED: note: these passes remark why
// SPLIT: cleave-opt: error: --emit writes one module
!v = tensor<?xf32, #cleave.dims<["m"]>>
func.func @exp(%a: !v) -> !v {
  %0 = "cleave.exp"(%a) : (!v) -> !v
  return %0 : !v
}
