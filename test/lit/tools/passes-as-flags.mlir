// RUN: cleave-opt --cleave-cse --canonicalize --cleave-dce --dump-pass-pipeline %s 2>&1 | FileCheck %s --check-prefixes=ORDER,BOTH
// RUN: cleave-opt --cleave-cse --cleave-dce %s | FileCheck %s --check-prefixes=OURS,BOTH
// RUN: cleave-opt -cleave-cse=" " --cleave-dce{} -canonicalize="max-iterations=3 region-simplify=disabled" %s --dump-pass-pipeline 2>&1 | FileCheck %s --check-prefix=OPTIONS
// RUN: cleave-opt --linalg-generalize-named-ops --convert-gpu-to-nvvm --dump-pass-pipeline %s 2>&1 | FileCheck %s --check-prefix=NEST
// RUN: cleave-opt --schedule --superopt %s 2>&1 | FileCheck %s --check-prefix=LATE
// RUN: cleave-opt --schedule --import-linalg --superopt %s 2>&1 | FileCheck %s --check-prefix=IN-TIME

// LATE: 1:1: warning: behind cleave-schedule, cleave-superopt finds nothing to do: put it before cleave-schedule
// LATE-NEXT: --superopt
// IN-TIME-NOT: warning
// ORDER: builtin.module(cleave-cse,canonicalize,cleave-dce)
// OPTIONS: builtin.module(cleave-cse{{.*}},cleave-dce,canonicalize{max-iterations=3 region-simplify=disabled})
// NEST: builtin.module(linalg-generalize-named-ops,gpu.module(convert-gpu-to-nvvm))

// Cleave's cse merges the ops of Cleave, and MLIR's canonicalize folds the addition of zero.
// BOTH-COUNT-1: "cleave.exp"
// ORDER-NOT: arith.addi
// OURS: arith.addi
!v = tensor<?xf32, #cleave.dims<["m"]>>
func.func @f(%a: !v, %i: index) -> (!v, index) {
  %0 = "cleave.exp"(%a) : (!v) -> !v
  %1 = "cleave.exp"(%a) : (!v) -> !v
  %2 = "cleave.add"(%0, %1) : (!v, !v) -> !v
  %zero = arith.constant 0 : index
  %j = arith.addi %i, %zero : index
  return %2, %j : !v, index
}
