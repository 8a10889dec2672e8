// RUN: %cleave-opt --schedule --target=sm_80 --dump-pass-pipeline %s 2>&1 | FileCheck %s --check-prefix=A100
// RUN: %cleave-opt --schedule{target=h100} --target=sm_80 --dump-pass-pipeline %s 2>&1 | FileCheck %s --check-prefix=OWN
// RUN: not %cleave-opt --schedule --target=sm_42 %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// The scheduler's cost model is that of the target.
// A100: cleave-schedule{target=sm_80}
// OWN: cleave-schedule{target=h100}
// UNKNOWN: error: unknown target 'sm_42'
!X = tensor<?xf32, #cleave.dims<["m"]>>
func.func @f(%x: !X) -> !X {
  %y = "cleave.exp"(%x) : (!X) -> !X
  return %y : !X
}
