// RUN: not cleave-opt --import-linalg --split-input-file %s 2>&1 | FileCheck %s

// What other tools export in a dialect that MLIR has not is said to need lowering, and by what.
// CHECK: other-dialects.mlir:[[@LINE+3]]:{{[0-9]+}}: error:
// CHECK: note: lower it to linalg on tensors first: torch_mlir.fx.export_and_import
module {
  func.func @f(%x: !torch.vtensor<[4],f16>) -> !torch.vtensor<[4],f16> {
    return %x : !torch.vtensor<[4],f16>
  }
}

// -----

// CHECK: error: Dialect `stablehlo' not found
// CHECK: note: lower it to linalg on tensors first: stablehlo-opt --stablehlo-legalize-to-linalg
func.func @g(%x: tensor<4xf16>) -> tensor<4xf16> {
  %0 = stablehlo.negate %x : tensor<4xf16>
  return %0 : tensor<4xf16>
}
