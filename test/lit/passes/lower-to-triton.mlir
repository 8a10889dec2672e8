// RUN: cleave-opt --lower-to-triton --split-input-file %s | FileCheck %s

// A matrix product with static sizes: no size arguments, no masks, 32-bit offsets within a tile on a 64-bit base, the
// accumulator within tt.dot. The host function stays; the kernel's declaration is what it calls.
// CHECK-LABEL: func.func @matmul
// CHECK:         "cleave.alloc"
// CHECK:         call @matmul__k0({{.*}}) {cleave.grid = ["8*ceildiv(n, 64)"]}
// CHECK:       module attributes {cleave.arguments = ["in:0", "in:1", "in:2"], cleave.kernel_module = "matmul__k0"
// CHECK-SAME:      cleave.num_stages = 3 : i64, cleave.num_warps = 4 : i64}
// CHECK:         "tt.func"() ({
// CHECK-NEXT:    ^bb0(%[[A:.*]]: !tt.ptr<f16>, %[[B:.*]]: !tt.ptr<f16>, %[[C:.*]]: !tt.ptr<f16>):
// CHECK:         %[[P:.*]] = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
// CHECK:         arith.remui %[[P]], %{{.*}} : i32
// CHECK:         %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<64x64xf32>
// CHECK:         %[[LOOP:.*]] = scf.for %[[K:.*]] = {{.*}} iter_args(%[[ACC:.*]] = %[[ZERO]]) -> (tensor<64x64xf32>) : i32
// CHECK:           %[[K64:.*]] = arith.extsi %[[K]] : i32 to i64
// CHECK:           %[[BASE:.*]] = "tt.addptr"(%[[A]], %{{.*}}) : (!tt.ptr<f16>, i64) -> !tt.ptr<f16>
// CHECK:           %[[PTRS:.*]] = "tt.splat"(%[[BASE]])
// CHECK:           "tt.addptr"(%[[PTRS]], %{{.*}}) : (tensor<64x32x!tt.ptr<f16>>, tensor<64x32xi32>)
// CHECK:           %[[TA:.*]] = "tt.load"(%{{.*}}) {operandSegmentSizes = array<i32: 1, 0, 0>}
// CHECK:           %[[TB:.*]] = "tt.load"
// CHECK:           %[[DOT:.*]] = "tt.dot"(%[[TA]], %[[TB]], %[[ACC]])
// CHECK-NEXT:      scf.yield %[[DOT]]
// CHECK:         %[[H:.*]] = arith.truncf %[[LOOP]]
// CHECK:         "tt.store"(%{{.*}}, %[[H]])
// CHECK:         "tt.return"
// CHECK:         arg_attrs = [{tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}]
// CHECK-SAME:    sym_name = "matmul__k0", sym_visibility = "public"
// CHECK:       func.func private @matmul__k0({{.*}} {cleave.out}) attributes {cleave.kernel
!a = tensor<512x256xf16, #cleave.dims<["m", "k"]>>
!b = tensor<256x512xf16, #cleave.dims<["k", "n"]>>
!c = tensor<512x512xf16, #cleave.dims<["m", "n"]>>
!ta = tensor<64x32xf16, #cleave.dims<["m=64", "k=32"]>>
!tb = tensor<32x64xf16, #cleave.dims<["k=32", "n=64"]>>
!acc = tensor<64x64xf32, #cleave.dims<["m=64", "n=64"]>>
!tc = tensor<64x64xf16, #cleave.dims<["m=64", "n=64"]>>
func.func @matmul(%a: !a, %b: !b) -> !c {
  %c = "cleave.alloc"() : () -> !c
  func.call @matmul__k0(%a, %b, %c) {cleave.grid = ["8*ceildiv(n, 64)"]} : (!a, !b, !c) -> ()
  return %c : !c
}
func.func private @matmul__k0(%a: !a, %b: !b, %c: !c {cleave.out})
    attributes {cleave.kernel, cleave.num_warps = 4 : i64, cleave.num_stages = 3 : i64} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %c512 = arith.constant 512 : index
  %p = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %pn = arith.remui %p, %c8 : index
  %pm = arith.divui %p, %c8 : index
  %m = arith.muli %pm, %c64 : index
  %n = arith.muli %pn, %c64 : index
  %zero = "cleave.constant"() {value = 0.0 : f32} : () -> !acc
  %sum = scf.for %k = %c0 to %c256 step %c32 iter_args(%acc = %zero) -> (!acc) {
    %x = "cleave.load"(%a, %m, %k, %c512, %c256) {fill = 0.0 : f16, in_bounds = ["m", "k"],
      operandSegmentSizes = array<i32: 1, 2, 2>} : (!a, index, index, index, index) -> !ta
    %y = "cleave.load"(%b, %k, %n, %c256, %c512) {fill = 0.0 : f16, in_bounds = ["k", "n"],
      operandSegmentSizes = array<i32: 1, 2, 2>} : (!b, index, index, index, index) -> !tb
    %xy = "cleave.contract"(%x, %y) {over = ["k"]} : (!ta, !tb) -> !acc
    %next = "cleave.add"(%acc, %xy) : (!acc, !acc) -> !acc
    scf.yield %next : !acc
  }
  %half = "cleave.cast"(%sum) : (!acc) -> !tc
  "cleave.store"(%half, %c, %m, %n, %c512, %c512) {in_bounds = ["m", "n"],
    operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (!tc, !c, index, index, index, index) -> ()
  return
}

// -----

// A masked row sum with dynamic sizes: each symbol is an i32 argument, rows may be long (64-bit offsets across them), the
// part that does not exist reads as the fill value; sums of f16 are accumulated in f32 and rounded once.
// CHECK-LABEL: func.func @row_sum
// CHECK:       module attributes {cleave.arguments = ["in:0", "in:1", "size:n", "size:m"], cleave.kernel_module = "row_sum__k0"
// CHECK:         ^bb0(%[[X:.*]]: !tt.ptr<f16>, %[[Y:.*]]: !tt.ptr<f16>, %[[N:.*]]: i32, %[[M:.*]]: i32):
// CHECK-DAG:     %[[ROWS:.*]] = "tt.make_range"() {end = 16 : i32, start = 0 : i32} : () -> tensor<16xi32>
// CHECK-DAG:     %[[COLS:.*]] = "tt.make_range"() {end = 64 : i32, start = 0 : i32} : () -> tensor<64xi32>
// CHECK:         scf.for %[[I:.*]] = %{{.*}} to %[[N]] step
// CHECK:           "tt.addptr"(%{{.*}}, %{{.*}}) : (tensor<16x64x!tt.ptr<f16>>, tensor<16x64xi64>)
// CHECK:           %[[RM:.*]] = arith.subi %[[M]], %{{.*}} : i32
// CHECK:           %[[SM:.*]] = "tt.splat"(%[[RM]]) : (i32) -> tensor<16xi32>
// CHECK:           arith.cmpi slt, %[[ROWS]], %[[SM]]
// CHECK:           %[[RN:.*]] = arith.subi %[[N]], %[[I]] : i32
// CHECK:           %[[SN:.*]] = "tt.splat"(%[[RN]]) : (i32) -> tensor<64xi32>
// CHECK:           arith.cmpi slt, %[[COLS]], %[[SN]]
// CHECK:           %[[MASK:.*]] = arith.andi
// CHECK:           %[[FILL:.*]] = arith.constant dense<0.000000e+00> : tensor<16x64xf16>
// CHECK:           %[[T:.*]] = "tt.load"(%{{.*}}, %[[MASK]], %[[FILL]]) {operandSegmentSizes = array<i32: 1, 1, 1>}
// CHECK:           %[[W:.*]] = arith.extf %[[T]] : tensor<16x64xf16> to tensor<16x64xf32>
// CHECK:           "tt.reduce"(%[[W]]) ({
// CHECK:             arith.addf {{.*}} : f32
// CHECK:           }) {axis = 1 : i32}
// CHECK:         "tt.store"({{.*}}) : (tensor<16x!tt.ptr<f16>>, tensor<16xf16>, tensor<16xi1>) -> ()
!x = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
!y = tensor<?xf16, #cleave.dims<["m"]>>
!tx = tensor<16x64xf16, #cleave.dims<["m=16", "n=64"]>>
!ty = tensor<16xf16, #cleave.dims<["m=16"]>>
!s = tensor<16xf32, #cleave.dims<["m=16"]>>
!w = tensor<16x64xf32, #cleave.dims<["m=16", "n=64"]>>
func.func @row_sum(%x: !x) -> !y {
  %y = "cleave.alloc"() : () -> !y
  func.call @row_sum__k0(%x, %y) {cleave.grid = ["ceildiv(m, 16)"]} : (!x, !y) -> ()
  return %y : !y
}
func.func private @row_sum__k0(%x: !x, %y: !y {cleave.out}) attributes {cleave.kernel} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %m = "cleave.extent"() {size = "m"} : () -> index
  %n = "cleave.extent"() {size = "n"} : () -> index
  %p = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %row = arith.muli %p, %c16 : index
  %zero = "cleave.constant"() {value = 0.0 : f32} : () -> !s
  %sum = scf.for %i = %c0 to %n step %c64 iter_args(%acc = %zero) -> (!s) {
    %t = "cleave.load"(%x, %row, %i, %m, %n) {fill = 0.0 : f16, operandSegmentSizes = array<i32: 1, 2, 2>}
      : (!x, index, index, index, index) -> !tx
    %wide = "cleave.cast"(%t) : (!tx) -> !w
    %part = "cleave.reduce"(%wide) {kind = "sum", over = ["n"]} : (!w) -> !s
    %next = "cleave.add"(%acc, %part) : (!s, !s) -> !s
    scf.yield %next : !s
  }
  %half = "cleave.cast"(%sum) : (!s) -> !ty
  "cleave.store"(%half, %y, %row, %m) {operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (!ty, !y, index, index) -> ()
  return
}

// -----

// Attention with a running maximum: K's tile is transposed for tt.dot; positions are compared in 32 bits; the difference
// from the maximum is taken before it is scaled, so that no digits are lost; the division rounds to f16, so it may be fast.
// CHECK-LABEL: func.func @attention
// CHECK:       module attributes {cleave.arguments = ["in:0", "in:1", "in:2", "in:3", "size:m", "size:n"]
// CHECK:         scf.for
// CHECK:           %[[KT:.*]] = "tt.trans"(%{{.*}}) {order = array<i32: 1, 0>}
// CHECK:           %[[S:.*]] = "tt.dot"(%{{.*}}, %[[KT]], %{{.*}}) : (tensor<64x64xf16>, tensor<64x32xf16>, tensor<64x32xf32>)
// CHECK:           %[[POS:.*]] = arith.addi %{{.*}}, %{{.*}} : tensor<32xi32>
// CHECK:           arith.cmpi slt, %[[POS]], %{{.*}} : tensor<32xi32>
// CHECK:           %[[MASKED:.*]] = arith.select %{{.*}}, %[[S]], %{{.*}}
// CHECK:           arith.maximumf {{.*}} : f32
// CHECK:           %[[NEW:.*]] = arith.maximumf {{.*}} : tensor<64xf32>
// CHECK:           %[[D:.*]] = arith.subf %[[MASKED]],
// CHECK:           %[[L:.*]] = arith.constant dense<1.44269502> : tensor<64x32xf32>
// CHECK:           %[[E:.*]] = arith.mulf %[[D]], %[[L]]
// CHECK:           math.exp2 %[[E]]
// CHECK:           "tt.dot"(%{{.*}}, %{{.*}}, %{{.*}}) : (tensor<64x32xf16>, tensor<32x64xf16>, tensor<64x64xf32>)
// CHECK:         arith.divf
// CHECK-NOT:     precise_divf
!q = tensor<?x64xf16, #cleave.dims<["m", "d"]>>
!kv = tensor<?x64xf16, #cleave.dims<["n", "d"]>>
!tq = tensor<64x64xf16, #cleave.dims<["m=64", "d=64"]>>
!tkv = tensor<32x64xf16, #cleave.dims<["n=32", "d=64"]>>
!s = tensor<64x32xf32, #cleave.dims<["m=64", "n=32"]>>
!p = tensor<64x32xf16, #cleave.dims<["m=64", "n=32"]>>
!o = tensor<64x64xf32, #cleave.dims<["m=64", "d=64"]>>
!row = tensor<64xf32, #cleave.dims<["m=64"]>>
!i = tensor<i64, #cleave.dims<[]>>
!f = tensor<f32, #cleave.dims<[]>>
!n = tensor<32xi64, #cleave.dims<["n=32"]>>
!c = tensor<32xi1, #cleave.dims<["n=32"]>>
func.func @attention(%q: !q, %k: !kv, %v: !kv) -> !q {
  %o = "cleave.alloc"() : () -> !q
  func.call @attention__k0(%q, %k, %v, %o) {cleave.grid = ["ceildiv(m, 64)"]} : (!q, !kv, !kv, !q) -> ()
  return %o : !q
}
func.func private @attention__k0(%q: !q, %k: !kv, %v: !kv, %o: !q {cleave.out}) attributes {cleave.kernel} {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %m = "cleave.extent"() {size = "m"} : () -> index
  %n = "cleave.extent"() {size = "n"} : () -> index
  %p = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %row = arith.muli %p, %c64 : index
  %tq = "cleave.load"(%q, %row, %c0, %m, %c64) {fill = 0.0 : f16, in_bounds = ["d"],
    operandSegmentSizes = array<i32: 1, 2, 2>} : (!q, index, index, index, index) -> !tq
  %lowest = "cleave.constant"() {value = 0xFF800000 : f32} : () -> !row
  %zero = "cleave.constant"() {value = 0.0 : f32} : () -> !row
  %zeros = "cleave.constant"() {value = 0.0 : f32} : () -> !o
  %r:3 = scf.for %j = %c0 to %n step %c32 iter_args(%top = %lowest, %sum = %zero, %acc = %zeros) -> (!row, !row, !o) {
    %tk = "cleave.load"(%k, %j, %c0, %n, %c64) {fill = 0.0 : f16, in_bounds = ["d"],
      operandSegmentSizes = array<i32: 1, 2, 2>} : (!kv, index, index, index, index) -> !tkv
    %s = "cleave.contract"(%tq, %tk) {over = ["d"]} : (!tq, !tkv) -> !s
    %along = "cleave.index"() {dim = "n=32"} : () -> !n
    %jt = "cleave.splat"(%j) : (index) -> !i
    %nt = "cleave.splat"(%n) : (index) -> !i
    %at = "cleave.add"(%along, %jt) : (!n, !i) -> !n
    %there = "cleave.cmp"(%at, %nt) {predicate = "lt"} : (!n, !i) -> !c
    %none = "cleave.constant"() {value = 0xFF800000 : f32} : () -> !f
    %masked = "cleave.select"(%there, %s, %none) : (!c, !s, !f) -> !s
    %part = "cleave.reduce"(%masked) {kind = "max", over = ["n"]} : (!s) -> !row
    %new = "cleave.max"(%top, %part) : (!row, !row) -> !row
    %diff = "cleave.sub"(%masked, %new) : (!s, !row) -> !s
    %e = "cleave.exp"(%diff) : (!s) -> !s
    %moved = "cleave.sub"(%top, %new) : (!row, !row) -> !row
    %scale = "cleave.exp"(%moved) : (!row) -> !row
    %es = "cleave.reduce"(%e) {kind = "sum", over = ["n"]} : (!s) -> !row
    %old = "cleave.mul"(%sum, %scale) : (!row, !row) -> !row
    %total = "cleave.add"(%old, %es) : (!row, !row) -> !row
    %rescaled = "cleave.mul"(%acc, %scale) : (!o, !row) -> !o
    %eh = "cleave.cast"(%e) : (!s) -> !p
    %tv = "cleave.load"(%v, %j, %c0, %n, %c64) {fill = 0.0 : f16, in_bounds = ["d"],
      operandSegmentSizes = array<i32: 1, 2, 2>} : (!kv, index, index, index, index) -> !tkv
    %pv = "cleave.contract"(%eh, %tv) {over = ["n"]} : (!p, !tkv) -> !o
    %next = "cleave.add"(%rescaled, %pv) : (!o, !o) -> !o
    scf.yield %new, %total, %next : !row, !row, !o
  }
  %normal = "cleave.div"(%r#2, %r#1) : (!o, !row) -> !o
  %half = "cleave.cast"(%normal) : (!o) -> !tq
  "cleave.store"(%half, %o, %row, %c0, %m, %c64) {in_bounds = ["d"],
    operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (!tq, !q, index, index, index, index) -> ()
  return
}
