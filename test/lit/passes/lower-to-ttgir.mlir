// RUN: cleave-opt --lower-to-ttgir=run-on --split-input-file --mlir-print-op-generic %s 2>&1 | FileCheck %s

// Without a product there is no such form.
// CHECK: remark: 'rows__k0' is lowered to TTIR: no loop of it multiplies tiles that can be copied

func.func private @rows__k0(%x: tensor<?xf16, #cleave.dims<["m"]>>, %o: tensor<?xf16, #cleave.dims<["m"]>> {cleave.out})
    attributes {cleave.kernel, cleave.num_warps = 4 : i64} {
  %i = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %m = "cleave.extent"() {size = "m"} : () -> index
  %c128 = arith.constant 128 : index
  %o0 = arith.muli %i, %c128 : index
  %t = "cleave.load"(%x, %o0, %m) {fill = 0.0 : f16, operandSegmentSizes = array<i32: 1, 1, 1>}
    : (tensor<?xf16, #cleave.dims<["m"]>>, index, index) -> tensor<128xf16, #cleave.dims<["m=128"]>>
  "cleave.store"(%t, %o, %o0, %m) {operandSegmentSizes = array<i32: 1, 1, 1, 1>}
    : (tensor<128xf16, #cleave.dims<["m=128"]>>, tensor<?xf16, #cleave.dims<["m"]>>, index, index) -> ()
  return
}

// -----

// The rows are halved: their tile is copied once for each consumer. A product runs into the next iteration, at whose
// end it is awaited and its buffers are released.
// CHECK: sym_name = "matmul"
// CHECK: "ttg.warp_specialize"
// CHECK: "arith.constant"() <{value = 2 : i32}> {cleave.copying_warps}
// CHECK: "scf.for"
// CHECK: "ttng.wait_barrier"
// CHECK: "ttng.barrier_expect"{{.*}}size = 16384
// CHECK-COUNT-2: "ttng.async_tma_copy_global_to_local"
// CHECK: "ttng.wait_barrier"
// CHECK: "ttng.barrier_expect"{{.*}}size = 16384
// CHECK-COUNT-1: "ttng.async_tma_copy_global_to_local"
// CHECK-NOT: "ttng.async_tma_copy_global_to_local"
// CHECK: "ttg.warp_yield"
// CHECK: "ttg.warp_specialize.partitions"
// CHECK: "arith.constant"() <{value = 0 : i32}> {cleave.consumer}
// CHECK: "scf.for"
// CHECK-COUNT-2: "ttng.wait_barrier"
// CHECK: %[[DOT:.*]] = "ttng.warp_group_dot"({{.*}}isAsync = true
// CHECK: "ttng.warp_group_dot_wait"(%[[DOT]]){{.*}}pendings = 1
// CHECK-COUNT-2: "ttng.arrive_barrier"
// CHECK: "scf.yield"
// CHECK: "ttng.warp_group_dot_wait"{{.*}}pendings = 0
// CHECK-COUNT-2: "ttng.arrive_barrier"
// CHECK: "ttng.async_tma_copy_local_to_global"
// CHECK: "ttg.warp_return"
// CHECK: "arith.constant"() <{value = 1 : i32}> {cleave.consumer}
// CHECK: "ttng.async_tma_copy_local_to_global"
// CHECK: "ttg.warp_return"
// CHECK: requestedRegisters = array<i32: 240, 240>
// CHECK: cleave.arguments = ["in:0", "in:1", "in:2", "size:m", "desc:0:0,1:64x64", "desc:1:0,1:64x128", "desc:2:0,1:64x128"]

func.func @matmul(%arg0: tensor<?x4096xf16, #cleave.dims<["m", "k"]>>, %arg1: tensor<4096x4096xf16, #cleave.dims<["k", "n"]>>) -> tensor<?x4096xf16, #cleave.dims<["m", "n"]>> attributes {cleave.alternative = "matmul"} {
  %0 = "cleave.alloc"() : () -> tensor<?x4096xf16, #cleave.dims<["m", "n"]>>
  call @matmul__k0(%arg0, %arg1, %0) {cleave.grid = ["ceildiv(m, 128)*ceildiv(n, 128)"]} : (tensor<?x4096xf16, #cleave.dims<["m", "k"]>>, tensor<4096x4096xf16, #cleave.dims<["k", "n"]>>, tensor<?x4096xf16, #cleave.dims<["m", "n"]>>) -> ()
  return %0 : tensor<?x4096xf16, #cleave.dims<["m", "n"]>>
}
func.func private @matmul__k0(%arg0: tensor<?x4096xf16, #cleave.dims<["m", "k"]>>, %arg1: tensor<4096x4096xf16, #cleave.dims<["k", "n"]>>, %arg2: tensor<?x4096xf16, #cleave.dims<["m", "n"]>> {cleave.out}) attributes {cleave.descriptors, cleave.kernel, cleave.num_stages = 4 : i64, cleave.num_warps = 8 : i64} {
  %0 = "cleave.extent"() {size = "ceildiv(m, 128)"} : () -> index
  %c16 = arith.constant 16 : index
  %c1 = arith.constant 1 : index
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c15 = arith.constant 15 : index
  %c128 = arith.constant 128 : index
  %1 = "cleave.extent"() {size = "m"} : () -> index
  %c4096 = arith.constant 4096 : index
  %c64 = arith.constant 64 : index
  %2 = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %3 = arith.muli %0, %c16 : index
  %4 = arith.subi %0, %c1 : index
  %5 = arith.divui %2, %c256 : index
  %6 = arith.muli %5, %c16 : index
  %7 = arith.minsi %6, %4 : index
  %8 = arith.subi %0, %7 : index
  %9 = arith.minsi %8, %c16 : index
  %10 = arith.maxsi %9, %c1 : index
  %11 = arith.remui %2, %c256 : index
  %12 = arith.remui %11, %10 : index
  %13 = arith.addi %7, %12 : index
  %14 = arith.minsi %13, %4 : index
  %15 = arith.divui %11, %10 : index
  %16 = arith.minsi %15, %c15 : index
  %17 = arith.muli %14, %c128 : index
  %18 = arith.muli %16, %c128 : index
  %19 = "cleave.constant"() {value = 0.000000e+00 : f32} : () -> tensor<128x128xf32, #cleave.dims<["m=128", "n=128"]>>
  %20 = scf.for %arg3 = %c0 to %c4096 step %c64 iter_args(%arg4 = %19) -> (tensor<128x128xf32, #cleave.dims<["m=128", "n=128"]>>) {
    %22 = "cleave.load"(%arg0, %17, %arg3, %1, %c4096) {fill = 0.000000e+00 : f16, in_bounds = ["k"], operandSegmentSizes = array<i32: 1, 2, 2>} : (tensor<?x4096xf16, #cleave.dims<["m", "k"]>>, index, index, index, index) -> tensor<128x64xf16, #cleave.dims<["m=128", "k=64"]>>
    %23 = "cleave.load"(%arg1, %arg3, %18, %c4096, %c4096) {fill = 0.000000e+00 : f16, in_bounds = ["k", "n"], operandSegmentSizes = array<i32: 1, 2, 2>} : (tensor<4096x4096xf16, #cleave.dims<["k", "n"]>>, index, index, index, index) -> tensor<64x128xf16, #cleave.dims<["k=64", "n=128"]>>
    %24 = "cleave.contract"(%22, %23) {over = ["k"]} : (tensor<128x64xf16, #cleave.dims<["m=128", "k=64"]>>, tensor<64x128xf16, #cleave.dims<["k=64", "n=128"]>>) -> tensor<128x128xf32, #cleave.dims<["m=128", "n=128"]>>
    %25 = "cleave.add"(%arg4, %24) : (tensor<128x128xf32, #cleave.dims<["m=128", "n=128"]>>, tensor<128x128xf32, #cleave.dims<["m=128", "n=128"]>>) -> tensor<128x128xf32, #cleave.dims<["m=128", "n=128"]>>
    scf.yield %25 : tensor<128x128xf32, #cleave.dims<["m=128", "n=128"]>>
  }
  %21 = "cleave.cast"(%20) : (tensor<128x128xf32, #cleave.dims<["m=128", "n=128"]>>) -> tensor<128x128xf16, #cleave.dims<["m=128", "n=128"]>>
  "cleave.store"(%21, %arg2, %17, %18, %1, %c4096) {in_bounds = ["n"], operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (tensor<128x128xf16, #cleave.dims<["m=128", "n=128"]>>, tensor<?x4096xf16, #cleave.dims<["m", "n"]>>, index, index, index, index) -> ()
  return
}

// -----

// Rows that an index picks are copied by the threads of four warps, for each consumer its own, the others by a
// descriptor. A buffer is full when all threads have copied. Before products read what threads wrote stands a fence.
// CHECK: sym_name = "picked"
// CHECK: "ttng.init_barrier"{{.*}}count = 128
// CHECK: "ttng.init_barrier"{{.*}}count = 2
// CHECK: "ttng.init_barrier"{{.*}}count = 1
// CHECK: "ttg.warp_specialize"
// CHECK-NOT: cleave.copying_warps
// CHECK-COUNT-2: "tt.load"{{.*}}64xi32
// CHECK: "scf.for"
// CHECK: "scf.for"
// CHECK: "ttng.wait_barrier"
// CHECK-NOT: "ttng.barrier_expect"
// CHECK-COUNT-2: "ttg.async_copy_global_to_local"{{.*}}contiguity = 8
// CHECK-NEXT: "ttng.async_copy_mbarrier_arrive"{{.*}}noIncrement
// CHECK: "ttng.wait_barrier"
// CHECK: "ttng.barrier_expect"{{.*}}size = 32768
// CHECK: "ttng.async_tma_copy_global_to_local"
// CHECK: "scf.yield"
// CHECK-COUNT-2: "tt.load"{{.*}}64xi32
// CHECK: "scf.yield"
// CHECK: "ttg.warp_yield"
// CHECK: "scf.for"
// CHECK: "scf.for"
// CHECK: "ttng.wait_barrier"
// CHECK-NEXT: "ttng.fence_async_shared"
// CHECK: "ttng.wait_barrier"
// CHECK-NOT: "ttng.fence_async_shared"
// CHECK: "ttng.warp_group_dot"
// CHECK: "ttg.warp_return"
// CHECK: partitionNumWarps = array<i32: 4, 4>, requestedRegisters = array<i32: 216, 216>

func.func @picked(%x: tensor<?x4096xf16, #cleave.dims<["v", "k"]>>, %rows: tensor<?xi32, #cleave.dims<["m"]>>, %w: tensor<4096x256xf16, #cleave.dims<["k", "n"]>>) -> tensor<?x256xf16, #cleave.dims<["m", "n"]>> {
  %0 = "cleave.alloc"() : () -> tensor<?x256xf16, #cleave.dims<["m", "n"]>>
  call @picked__k0(%x, %rows, %w, %0) {cleave.grid = ["ceildiv(m, 128)"]} : (tensor<?x4096xf16, #cleave.dims<["v", "k"]>>, tensor<?xi32, #cleave.dims<["m"]>>, tensor<4096x256xf16, #cleave.dims<["k", "n"]>>, tensor<?x256xf16, #cleave.dims<["m", "n"]>>) -> ()
  return %0 : tensor<?x256xf16, #cleave.dims<["m", "n"]>>
}
func.func private @picked__k0(%x: tensor<?x4096xf16, #cleave.dims<["v", "k"]>>, %rows: tensor<?xi32, #cleave.dims<["m"]>>, %w: tensor<4096x256xf16, #cleave.dims<["k", "n"]>>, %o: tensor<?x256xf16, #cleave.dims<["m", "n"]>> {cleave.out}) attributes {cleave.kernel, cleave.num_warps = 8 : i64} {
  %v = "cleave.extent"() {size = "v"} : () -> index
  %m = "cleave.extent"() {size = "m"} : () -> index
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %c4096 = arith.constant 4096 : index
  %block = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %row = arith.muli %block, %c128 : index
  %index = "cleave.load"(%rows, %row, %m) {fill = -1 : i32, operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<?xi32, #cleave.dims<["m"]>>, index, index) -> tensor<128xi32, #cleave.dims<["m=128"]>>
  %zero = "cleave.constant"() {value = 0.000000e+00 : f32} : () -> tensor<128x256xf32, #cleave.dims<["m=128", "n=256"]>>
  %sum = scf.for %k = %c0 to %c4096 step %c64 iter_args(%before = %zero) -> (tensor<128x256xf32, #cleave.dims<["m=128", "n=256"]>>) {
    %a = "cleave.gather_load"(%x, %index, %c0, %k, %v, %c4096) {dims = ["v"], fill = 0.000000e+00 : f16, in_bounds = ["k"], operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (tensor<?x4096xf16, #cleave.dims<["v", "k"]>>, tensor<128xi32, #cleave.dims<["m=128"]>>, index, index, index, index) -> tensor<128x64xf16, #cleave.dims<["m=128", "k=64"]>>
    %b = "cleave.load"(%w, %k, %c0, %c4096, %c256) {fill = 0.000000e+00 : f16, in_bounds = ["k", "n"], operandSegmentSizes = array<i32: 1, 2, 2>} : (tensor<4096x256xf16, #cleave.dims<["k", "n"]>>, index, index, index, index) -> tensor<64x256xf16, #cleave.dims<["k=64", "n=256"]>>
    %ab = "cleave.contract"(%a, %b) {over = ["k"]} : (tensor<128x64xf16, #cleave.dims<["m=128", "k=64"]>>, tensor<64x256xf16, #cleave.dims<["k=64", "n=256"]>>) -> tensor<128x256xf32, #cleave.dims<["m=128", "n=256"]>>
    %after = "cleave.add"(%before, %ab) : (tensor<128x256xf32, #cleave.dims<["m=128", "n=256"]>>, tensor<128x256xf32, #cleave.dims<["m=128", "n=256"]>>) -> tensor<128x256xf32, #cleave.dims<["m=128", "n=256"]>>
    scf.yield %after : tensor<128x256xf32, #cleave.dims<["m=128", "n=256"]>>
  }
  %narrow = "cleave.cast"(%sum) : (tensor<128x256xf32, #cleave.dims<["m=128", "n=256"]>>) -> tensor<128x256xf16, #cleave.dims<["m=128", "n=256"]>>
  "cleave.store"(%narrow, %o, %row, %c0, %m, %c256) {in_bounds = ["n"], operandSegmentSizes = array<i32: 1, 1, 2, 2>} : (tensor<128x256xf16, #cleave.dims<["m=128", "n=256"]>>, tensor<?x256xf16, #cleave.dims<["m", "n"]>>, index, index, index, index) -> ()
  return
}
