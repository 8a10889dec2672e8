// RUN: cleave-opt --superopt --schedule --lower-to-triton --verify-diagnostics %s
// RUN: cleave-opt --lower-to-triton --verify-diagnostics %s

// A function that is no tensor graph stays, and a remark says at which op it is none; once for all passes.
func.func @sum(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // expected-remark @+1 {{'sum' is left as it is: 'arith.addf' is no op of a tensor graph}}
  %z = arith.addf %x, %y : tensor<4xf32>
  return %z : tensor<4xf32>
}

// expected-remark @+1 {{'itself' is left as it is: its arguments and results are not all tensors with named dimensions}}
func.func @itself(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

func.func @branch(%condition: i1) -> i1 {
  // expected-remark @+1 {{'branch' is left as it is: 'cf.br' is no op of a tensor graph}}
  cf.br ^end
^end:
  return %condition : i1
}
