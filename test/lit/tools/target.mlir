// RUN: %cleave-opt --schedule --target=sm_80 --dump-pass-pipeline %s 2>&1 | FileCheck %s --check-prefix=A100
// RUN: %cleave-opt --schedule{target=h100} --target=sm_80 --dump-pass-pipeline %s 2>&1 | FileCheck %s --check-prefix=OWN
// RUN: not %cleave-opt --schedule --target=sm_42 %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not %cleave-opt --schedule{target=sm_42} %s 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not %cleave-opt --schedule{sizes=m=²} %s 2>&1 | FileCheck %s --check-prefix=SIZES

// The scheduler's cost model is that of the target.
// A100: cleave-schedule{target=sm_80}
// OWN: cleave-schedule{target=h100}
// OPTION: <command line>:1:12: error: cleave-schedule: unknown target 'sm_42'
// SIZES: <command line>:1:12: error: cleave-schedule: 'm=²' is no size
// SIZES: note: write sizes as in m=128,n=4096
// UNKNOWN: cleave-opt: error: --target: unknown target 'sm_42'
!X = tensor<?xf32, #cleave.dims<["m"]>>
func.func @f(%x: !X) -> !X {
  %y = "cleave.exp"(%x) : (!X) -> !X
  return %y : !X
}
