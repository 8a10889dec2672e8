// RUN: not cleave-opt --canonicalise %s 2>&1 | FileCheck %s --check-prefix=MEANT
// RUN: not cleave-opt --canonicalize --mlir-print-ir-after=canonicalise %s 2>&1 | FileCheck %s --check-prefix=PRINT
// RUN: not cleave-opt --target=sm_86 --target=h200 %s 2>&1 | FileCheck %s --check-prefix=TARGETS
// RUN: cleave-opt "--schedule{target=h200}" --target=sm_86 %s 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: cleave-opt "--schedule{target=h100}" --target=sm_90 %s 2>&1 | FileCheck %s --check-prefix=SAME
// RUN: cleave-opt --schedule --schedule %s 2>&1 | FileCheck %s --check-prefix=AGAIN

// Nothing on the command line is passed over in silence.
// MEANT: error: no option or pass '--canonicalise'; did you mean --canonicalize?
// PRINT: cleave-opt: error: --mlir-print-ir-after: no pass 'canonicalise' runs
// PRINT: note: these do: canonicalize
// TARGETS: cleave-opt: error: --target is sm_86 and h200: a module is compiled for one GPU
// OTHER: warning: schedules are chosen for h200 (sm_90), and --target is sm_86
// SAME-NOT: warning
// AGAIN: warning: behind cleave-schedule, cleave-schedule finds nothing to do
module {}
