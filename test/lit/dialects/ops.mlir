// RUN: %cleave-opt %s | %cleave-opt | FileCheck %s
// Every op of the dialect parses, verifies and prints.

!X = tensor<4x?x64xf16, #cleave.dims<["h", "m", "d"]>>
!W = tensor<4x?x64xf32, #cleave.dims<["h", "m", "d"]>>
!R = tensor<4x?xf32, #cleave.dims<["h", "m"]>>
!P = tensor<4x?x64xi1, #cleave.dims<["h", "m", "d"]>>
!S = tensor<f32, #cleave.dims<[]>>
!I = tensor<?xi32, #cleave.dims<["i"]>>

// CHECK-LABEL: func.func @graph
func.func @graph(%x: !X, %at: !I) -> (!R, !P) attributes {cleave.facts = ["1 <= s"]} {
  // CHECK: "cleave.cast"
  %w = "cleave.cast"(%x) : (!X) -> !W
  // CHECK: "cleave.constant"() {value = 5.000000e-01 : f32}
  %c = "cleave.constant"() {value = 0.5 : f32} : () -> !S
  %u0 = "cleave.neg"(%w) : (!W) -> !W
  %u1 = "cleave.exp"(%u0) : (!W) -> !W
  %u2 = "cleave.exp2"(%u1) : (!W) -> !W
  %u3 = "cleave.log"(%u2) : (!W) -> !W
  %u4 = "cleave.sqrt"(%u3) : (!W) -> !W
  %u5 = "cleave.rsqrt"(%u4) : (!W) -> !W
  %u6 = "cleave.tanh"(%u5) : (!W) -> !W
  %u7 = "cleave.erf"(%u6) : (!W) -> !W
  %u8 = "cleave.sin"(%u7) : (!W) -> !W
  %u9 = "cleave.cos"(%u8) : (!W) -> !W
  %u10 = "cleave.sigmoid"(%u9) : (!W) -> !W
  %u11 = "cleave.abs"(%u10) : (!W) -> !W
  %b0 = "cleave.add"(%u11, %c) : (!W, !S) -> !W
  %b1 = "cleave.sub"(%c, %b0) : (!S, !W) -> !W
  %b2 = "cleave.mul"(%b1, %w) : (!W, !W) -> !W
  %b3 = "cleave.div"(%b2, %c) : (!W, !S) -> !W
  %b4 = "cleave.max"(%b3, %c) : (!W, !S) -> !W
  %b5 = "cleave.min"(%b4, %c) : (!W, !S) -> !W
  %b6 = "cleave.pow"(%b5, %c) : (!W, !S) -> !W
  // CHECK: "cleave.cmp"{{.*}} {predicate = "lt"}
  %p = "cleave.cmp"(%b6, %c) {predicate = "lt"} : (!W, !S) -> !P
  %s = "cleave.select"(%p, %b6, %c) : (!P, !W, !S) -> !W
  // CHECK: "cleave.contract"{{.*}} {over = ["d"]}
  %r = "cleave.contract"(%s, %w) {over = ["d"]} : (!W, !W) -> !R
  %t = "cleave.reduce"(%s) {kind = "max", over = ["d"]} : (!W) -> !R
  %n = "cleave.index"() {dim = "m"} : () -> tensor<?xi64, #cleave.dims<["m"]>>
  // CHECK: "cleave.split"{{.*}} {dim = "m", into = ["s", "t=ceildiv(m, s)"]}
  %sp = "cleave.split"(%t) {dim = "m", into = ["s", "t=ceildiv(m, s)"]} : (!R) -> tensor<4x?x?xf32, #cleave.dims<["h", "s", "t=ceildiv(m, s)"]>>
  %mg = "cleave.merge"(%x) {dims = ["h", "m"], into = "r=h*m"} : (!X) -> tensor<?x64xf16, #cleave.dims<["r=h*m", "d"]>>
  %rn = "cleave.rename"(%x) {from = "m", to = "q=m"} : (!X) -> tensor<4x?x64xf16, #cleave.dims<["h", "q=m", "d"]>>
  %sl = "cleave.slice"(%x) {dim = "d", into = "e=32", offset = "16"} : (!X) -> tensor<4x?x32xf16, #cleave.dims<["h", "m", "e=32"]>>
  %cc = "cleave.concat"(%x, %x) {dims = ["d", "d"], into = "e=2*d"} : (!X, !X) -> tensor<4x?x128xf16, #cleave.dims<["h", "m", "e=2*d"]>>
  %ga = "cleave.gather"(%x, %at) {dim = "m"} : (!X, !I) -> tensor<4x64x?xf16, #cleave.dims<["h", "d", "i"]>>
  return %r, %p : !R, !P
}

!V = tensor<?x64xf16, #cleave.dims<["m", "d"]>>
!T = tensor<16x64xf16, #cleave.dims<["m=16", "d=64"]>>

// CHECK-LABEL: func.func @host
func.func @host(%x: !V) -> !V {
  // CHECK: "cleave.alloc"
  %o = "cleave.alloc"() : () -> !V
  // CHECK: call @kernel{{.*}} {cleave.grid = ["ceildiv(m, 16)"]}
  func.call @kernel(%x, %o) {cleave.grid = ["ceildiv(m, 16)"]} : (!V, !V) -> ()
  return %o : !V
}

// CHECK-LABEL: func.func private @kernel
func.func private @kernel(%x: !V, %o: !V {cleave.out}) attributes {cleave.kernel, cleave.num_warps = 4 : i64} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %d = arith.constant 64 : index
  // CHECK: "cleave.extent"() {size = "m"}
  %m = "cleave.extent"() {size = "m"} : () -> index
  // CHECK: "cleave.program_id"() {axis = 0 : i64}
  %p = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %at = arith.muli %p, %c16 : index
  // CHECK: "cleave.splat"
  %s = "cleave.splat"(%at) : (index) -> tensor<i64, #cleave.dims<[]>>
  // CHECK: "cleave.scalar"
  %back = "cleave.scalar"(%s) : (tensor<i64, #cleave.dims<[]>>) -> index
  // CHECK: "cleave.load"
  %t = "cleave.load"(%x, %at, %c0, %m, %d) {fill = 0.0 : f16, in_bounds = ["d"], operandSegmentSizes = array<i32: 1, 2, 2>} : (!V, index, index, index, index) -> !T
  %i = "cleave.index"() {dim = "i=32"} : () -> tensor<32xi64, #cleave.dims<["i=32"]>>
  // CHECK: "cleave.gather_load"
  %g = "cleave.gather_load"(%x, %i, %c0, %c0, %m, %d) {dims = ["m"], fill = 0.0 : f16, operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (!V, tensor<32xi64, #cleave.dims<["i=32"]>>, index, index, index, index) -> tensor<64x32xf16, #cleave.dims<["d=64", "i=32"]>>
  // CHECK: "cleave.store"
  "cleave.store"(%t, %o, %at, %c0, %m, %d) {operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (!T, !V, index, index, index, index) -> ()
  return
}
