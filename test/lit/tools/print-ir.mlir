// RUN: cleave-opt --canonicalize --cleave-dce --mlir-print-ir-before=cleave-dce --mlir-print-ir-after=canonicalize %s 2>&1 >/dev/null | FileCheck %s --check-prefix=NAMED
// RUN: cleave-opt --canonicalize --cleave-dce --mlir-print-ir-before-all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=BEFORE
// RUN: cleave-opt --canonicalize --cleave-dce --mlir-print-ir-after-all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=AFTER
// RUN: cleave-opt --canonicalize --cleave-dce --mlir-print-ir-after-change %s 2>&1 >/dev/null | FileCheck %s --check-prefix=CHANGE
// RUN: cleave-opt --canonicalize --cleave-dce %s 2>&1 >/dev/null | FileCheck %s --check-prefix=QUIET --allow-empty

// NAMED: // -----// IR Dump After canonicalize //----- //
// NAMED: "cleave.exp"
// NAMED: // -----// IR Dump Before cleave-dce //----- //
// NAMED: "cleave.exp"
// NAMED-NOT: IR Dump

// BEFORE: IR Dump Before canonicalize
// BEFORE: IR Dump Before cleave-dce
// BEFORE: "cleave.exp"

// AFTER: IR Dump After canonicalize
// AFTER: "cleave.exp"
// AFTER: IR Dump After cleave-dce
// AFTER-NOT: "cleave.exp"

// CHANGE-NOT: canonicalize
// CHANGE: IR Dump After cleave-dce
// CHANGE-NOT: "cleave.exp"

// QUIET-NOT: {{.}}
!v = tensor<?xf32, #cleave.dims<["m"]>>
func.func @f(%a: !v) -> !v {
  %0 = "cleave.exp"(%a) : (!v) -> !v
  return %a : !v
}
