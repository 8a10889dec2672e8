// Softmax attention as torch-mlir (20261001) exported it from PyTorch: p = softmax(q kᵀ / √d); p v, with B 2, H 4, M 64,
// N 128, d 64, f16 in and out. Unedited but for this comment: the original is
// test/lit/inputs/samples/attention_softmax.f16.static.linalg-on-tensors.mlir.
//
//     cleave-opt --import-linalg --superopt --schedule examples/attention.linalg.mlir

#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @attention_softmax(%arg0: tensor<2x4x64x64xf16>, %arg1: tensor<2x4x128x64xf16>, %arg2: tensor<2x4x128x64xf16>) -> tensor<2x4x64x64xf16> {
    %cst = arith.constant 0.000000e+00 : f32
    %c0_i64 = arith.constant 0 : i64
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 1.250000e-01 : f16
    %0 = tensor.empty() : tensor<2x4x64x128xf16>
    %transposed = linalg.transpose ins(%arg1 : tensor<2x4x128x64xf16>) outs(%0 : tensor<2x4x64x128xf16>) permutation = [0, 1, 3, 2] 
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x4x64x64xf16> into tensor<8x64x64xf16>
    %collapsed_2 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x4x64x128xf16> into tensor<8x64x128xf16>
    %1 = tensor.empty() : tensor<8x64x128xf32>
    %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<8x64x128xf32>) -> tensor<8x64x128xf32>
    %3 = linalg.batch_matmul ins(%collapsed, %collapsed_2 : tensor<8x64x64xf16>, tensor<8x64x128xf16>) outs(%2 : tensor<8x64x128xf32>) -> tensor<8x64x128xf32>
    %4 = tensor.empty() : tensor<8x64x128xf16>
    %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%3 : tensor<8x64x128xf32>) outs(%4 : tensor<8x64x128xf16>) {
    ^bb0(%in: f32, %out: f16):
      %26 = arith.truncf %in : f32 to f16
      linalg.yield %26 : f16
    } -> tensor<8x64x128xf16>
    %expanded = tensor.expand_shape %5 [[0, 1], [2], [3]] output_shape [2, 4, 64, 128] : tensor<8x64x128xf16> into tensor<2x4x64x128xf16>
    %6 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x4x64x128xf16>) outs(%0 : tensor<2x4x64x128xf16>) {
    ^bb0(%in: f16, %out: f16):
      %26 = arith.mulf %in, %cst_1 : f16
      linalg.yield %26 : f16
    } -> tensor<2x4x64x128xf16>
    %7 = tensor.empty() : tensor<2x4x64x128xf32>
    %8 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%6 : tensor<2x4x64x128xf16>) outs(%7 : tensor<2x4x64x128xf32>) {
    ^bb0(%in: f16, %out: f32):
      %26 = arith.extf %in : f16 to f32
      linalg.yield %26 : f32
    } -> tensor<2x4x64x128xf32>
    %9 = tensor.empty() : tensor<2x4x64xi64>
    %10 = linalg.fill ins(%c0_i64 : i64) outs(%9 : tensor<2x4x64xi64>) -> tensor<2x4x64xi64>
    %11 = tensor.empty() : tensor<2x4x64xf32>
    %12 = linalg.fill ins(%cst_0 : f32) outs(%11 : tensor<2x4x64xf32>) -> tensor<2x4x64xf32>
    %13:2 = linalg.generic {indexing_maps = [#map1, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%8 : tensor<2x4x64x128xf32>) outs(%12, %10 : tensor<2x4x64xf32>, tensor<2x4x64xi64>) {
    ^bb0(%in: f32, %out: f32, %out_7: i64):
      %26 = linalg.index 3 : index
      %27 = arith.index_cast %26 : index to i64
      %28 = arith.maximumf %in, %out : f32
      %29 = arith.cmpf ogt, %in, %out : f32
      %30 = arith.select %29, %27, %out_7 : i64
      linalg.yield %28, %30 : f32, i64
    } -> (tensor<2x4x64xf32>, tensor<2x4x64xi64>)
    %expanded_3 = tensor.expand_shape %13#0 [[0], [1], [2, 3]] output_shape [2, 4, 64, 1] : tensor<2x4x64xf32> into tensor<2x4x64x1xf32>
    %14 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8, %expanded_3 : tensor<2x4x64x128xf32>, tensor<2x4x64x1xf32>) outs(%7 : tensor<2x4x64x128xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %26 = arith.subf %in, %in_7 : f32
      linalg.yield %26 : f32
    } -> tensor<2x4x64x128xf32>
    %15 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14 : tensor<2x4x64x128xf32>) outs(%7 : tensor<2x4x64x128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %26 = math.exp %in : f32
      linalg.yield %26 : f32
    } -> tensor<2x4x64x128xf32>
    %16 = tensor.empty() : tensor<2x4x64x1xf32>
    %17 = linalg.fill ins(%cst : f32) outs(%16 : tensor<2x4x64x1xf32>) -> tensor<2x4x64x1xf32>
    %18 = linalg.generic {indexing_maps = [#map1, #map3], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%15 : tensor<2x4x64x128xf32>) outs(%17 : tensor<2x4x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %26 = arith.addf %in, %out : f32
      linalg.yield %26 : f32
    } -> tensor<2x4x64x1xf32>
    %19 = linalg.generic {indexing_maps = [#map1, #map3, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15, %18 : tensor<2x4x64x128xf32>, tensor<2x4x64x1xf32>) outs(%7 : tensor<2x4x64x128xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %26 = arith.divf %in, %in_7 : f32
      linalg.yield %26 : f32
    } -> tensor<2x4x64x128xf32>
    %20 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%19 : tensor<2x4x64x128xf32>) outs(%0 : tensor<2x4x64x128xf16>) {
    ^bb0(%in: f32, %out: f16):
      %26 = arith.truncf %in : f32 to f16
      linalg.yield %26 : f16
    } -> tensor<2x4x64x128xf16>
    %collapsed_4 = tensor.collapse_shape %20 [[0, 1], [2], [3]] : tensor<2x4x64x128xf16> into tensor<8x64x128xf16>
    %collapsed_5 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x4x128x64xf16> into tensor<8x128x64xf16>
    %21 = tensor.empty() : tensor<8x64x64xf32>
    %22 = linalg.fill ins(%cst : f32) outs(%21 : tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
    %23 = linalg.batch_matmul ins(%collapsed_4, %collapsed_5 : tensor<8x64x128xf16>, tensor<8x128x64xf16>) outs(%22 : tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
    %24 = tensor.empty() : tensor<8x64x64xf16>
    %25 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%23 : tensor<8x64x64xf32>) outs(%24 : tensor<8x64x64xf16>) {
    ^bb0(%in: f32, %out: f16):
      %26 = arith.truncf %in : f32 to f16
      linalg.yield %26 : f16
    } -> tensor<8x64x64xf16>
    %expanded_6 = tensor.expand_shape %25 [[0, 1], [2], [3]] output_shape [2, 4, 64, 64] : tensor<8x64x64xf16> into tensor<2x4x64x64xf16>
    return %expanded_6 : tensor<2x4x64x64xf16>
  }
}
