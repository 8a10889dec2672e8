// Softmax attention of one head, as a user writes it: any number of queries (m) and keys (n), head size 64.
// Dimensions have names; ops align operands by them, so nothing is broadcast or transposed.
//
//     cleave-opt --superopt --schedule examples/attention.mlir

!q = tensor<?x64xf16, #cleave.dims<["m", "d"]>>
!k = tensor<?x64xf16, #cleave.dims<["n", "d"]>>
!v = tensor<?x64xf16, #cleave.dims<["n", "e"]>>
!scores = tensor<?x?xf32, #cleave.dims<["m", "n"]>>
!probabilities = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
!row = tensor<?xf32, #cleave.dims<["m"]>>
!scalar = tensor<f32, #cleave.dims<[]>>
!out = tensor<?x64xf16, #cleave.dims<["m", "e"]>>

func.func @attention(%q: !q, %k: !k, %v: !v) -> !out {
  %qk = "cleave.contract"(%q, %k) {over = ["d"]} : (!q, !k) -> !scores
  %scale = "cleave.constant"() {value = 0.125 : f32} : () -> !scalar
  %s = "cleave.mul"(%qk, %scale) : (!scores, !scalar) -> !scores
  %max = "cleave.reduce"(%s) {kind = "max", over = ["n"]} : (!scores) -> !row
  %shifted = "cleave.sub"(%s, %max) : (!scores, !row) -> !scores
  %e = "cleave.exp"(%shifted) : (!scores) -> !scores
  %sum = "cleave.reduce"(%e) {kind = "sum", over = ["n"]} : (!scores) -> !row
  %p = "cleave.div"(%e, %sum) : (!scores, !row) -> !scores
  %narrow = "cleave.cast"(%p) : (!scores) -> !probabilities
  %out = "cleave.contract"(%narrow, %v) {over = ["n"]} : (!probabilities, !v) -> !out
  return %out : !out
}
