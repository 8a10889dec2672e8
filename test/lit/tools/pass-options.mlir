// RUN: not cleave-opt "--schedule{iterative_tilng=false}" %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not cleave-opt --schedule="target=h200 explain=perhaps" %s 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not cleave-opt "--schedule{explain explain}" %s 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not cleave-opt "--cleave-cse{fast}" %s 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not cleave-opt "--canonicalize{max-iteratons=3}" %s 2>&1 | FileCheck %s --check-prefix=THEIRS
// RUN: not cleave-opt "--canonicalize{max-iterations=many}" %s 2>&1 | FileCheck %s --check-prefix=THEIR-TYPE
// RUN: not cleave-opt "--cleave-cse[fast]" %s 2>&1 | FileCheck %s --check-prefix=SPELLING
// RUN: not cleave-opt "--superopt{keep=4" "explain}" %s 2>&1 | FileCheck %s --check-prefix=TORN
// RUN: not cleave-opt "--superoptkeep=4" "--superoptexplain" %s 2>&1 | FileCheck %s --check-prefix=EXPANDED
// RUN: not cleave-opt --superopts %s 2>&1 | FileCheck %s --check-prefix=FLAG
// RUN: not cleave-opt --verify-dagnostics %s 2>&1 | FileCheck %s --check-prefix=SWITCH
// RUN: not cleave-opt --emit=cubin2 %s 2>&1 | FileCheck %s --check-prefix=EMIT
// RUN: not cleave-opt --verify-each=maybe %s 2>&1 | FileCheck %s --check-prefix=BOOLEAN
// RUN: not cleave-opt %s -o 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not cleave-opt %s %s 2>&1 | FileCheck %s --check-prefix=INPUTS

// UNKNOWN: <command line>:1:12: error: cleave-schedule has no option 'iterative_tilng'; did you mean 'iterative_tiling'?
// UNKNOWN-NEXT: --schedule{iterative_tilng=false}
// UNKNOWN-NEXT: {{^}}           ^{{$}}
// UNKNOWN-NEXT: note: its options: {{.*}}iterative_tiling=true or false (default true)
// TYPE: <command line>:1:24: error: option 'explain' of cleave-schedule must be true or false, not 'perhaps'
// TWICE: <command line>:1:20: error: option 'explain' of cleave-schedule is given twice
// NONE: <command line>:1:14: error: cleave-cse has no option 'fast'
// NONE: note: it has no options
// THEIRS: <command line>:1:16: error: canonicalize has no option 'max-iteratons'
// THEIR-TYPE: <command line>:1:16: error: canonicalize does not take the options 'max-iterations=many'
// SPELLING: error: write the options as 'cleave-cse{a=1}' or 'cleave-cse=a=1'
// TORN: error: write the options as 'superopt{a=1}'
// TORN: note: the shell took the braces apart: quote it, as in "--superopt{keep=4 explain}"
// EXPANDED: error: no pass 'superoptkeep'
// EXPANDED: note: the shell took the braces apart: quote it
// FLAG: <command line>:1:1: error: no option or pass '--superopts'; did you mean --superopt?
// SWITCH: error: no option or pass '--verify-dagnostics'; did you mean --verify-diagnostics?
// EMIT: cleave-opt: error: --emit: no 'cubin2'; it is one of mlir, ttir, ttgir, llir, ptx, cubin
// BOOLEAN: cleave-opt: error: --verify-each=maybe: not true or false
// VALUE: cleave-opt: error: -o needs a value
// INPUTS: cleave-opt: error: more than one input
func.func @f() { return }
