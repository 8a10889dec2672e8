// RUN: cleave-opt --pass-pipeline="builtin.module(func.func(canonicalize{max-iterations=2}, cse),cleave-cse, cleave-dce{ })" %s | FileCheck %s
// RUN: cleave-opt --pass-pipeline="builtin.module()" %s | FileCheck %s --check-prefix=EMPTY
// RUN: not cleave-opt --pass-pipeline="canonicalize" %s 2>&1 | FileCheck %s --check-prefix=ANCHOR
// RUN: not cleave-opt --pass-pipeline="builtin.module(func.func(canonicalize)" %s 2>&1 | FileCheck %s --check-prefix=OPEN
// RUN: not cleave-opt --pass-pipeline="builtin.module(cleave-cse{a=(1)" %s 2>&1 | FileCheck %s --check-prefix=BRACE
// RUN: not cleave-opt --pass-pipeline="builtin.module(cse,,cse)" %s 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not cleave-opt --pass-pipeline="builtin.module(cse;cse)" %s 2>&1 | FileCheck %s --check-prefix=COMMA
// RUN: not cleave-opt --pass-pipeline="builtin.module(cse),cse" %s 2>&1 | FileCheck %s --check-prefix=AFTER
// RUN: not cleave-opt --pass-pipeline="builtin.module(func.func(cleave-cse))" %s 2>&1 | FileCheck %s --check-prefix=OURS
// RUN: not cleave-opt --pass-pipeline="builtin.module(convert-gpu-to-nvvm)" %s 2>&1 | FileCheck %s --check-prefix=THEIRS
// RUN: not cleave-opt --pass-pipeline="builtin.module(canonicalise)" %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// CHECK-COUNT-1: "cleave.exp"
// CHECK-NOT: arith.addi
// EMPTY-COUNT-2: "cleave.exp"
// EMPTY: arith.addi

// ANCHOR: <--pass-pipeline>:1:1: error: a pipeline starts with 'builtin.module('
// ANCHOR: note: write builtin.module(canonicalize)
// OPEN: <--pass-pipeline>:1:15: error: this '(' is never closed
// OPEN-NEXT: builtin.module(func.func(canonicalize)
// OPEN-NEXT: {{^}}              ^{{$}}
// BRACE: <--pass-pipeline>:1:26: error: this '{' is never closed
// NAME: <--pass-pipeline>:1:20: error: expected the name of a pass
// COMMA: <--pass-pipeline>:1:19: error: expected ',' or ')', not ';'
// AFTER: <--pass-pipeline>:1:20: error: text after the end of the pipeline
// OURS: <--pass-pipeline>:1:26: error: cleave-cse runs on builtin.module, not on func.func
// THEIRS: <--pass-pipeline>:1:16: error: convert-gpu-to-nvvm runs on gpu.module, not on builtin.module
// THEIRS: note: nest it: gpu.module(convert-gpu-to-nvvm)
// UNKNOWN: <--pass-pipeline>:1:16: error: no pass 'canonicalise'
// UNKNOWN: note: --list-passes lists Cleave's; MLIR's are taken by name
!v = tensor<?xf32, #cleave.dims<["m"]>>
func.func @f(%a: !v, %i: index) -> (!v, index) {
  %0 = "cleave.exp"(%a) : (!v) -> !v
  %1 = "cleave.exp"(%a) : (!v) -> !v
  %2 = "cleave.add"(%0, %1) : (!v, !v) -> !v
  %zero = arith.constant 0 : index
  %j = arith.addi %i, %zero : index
  return %2, %j : !v, index
}
