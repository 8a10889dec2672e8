"""The reference executor against NumPy written out by hand, and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleave.bindings import context, ir
from cleave.errors import CleaveError
from cleave.reference import run
from cleave.reference.numerics import round_tf32

RNG = np.random.default_rng(7)


def execute(text: str, *inputs: np.ndarray, precision: str = "f64", function: str | None = None, **sizes: int
            ) -> list[np.ndarray]:  # fmt: skip
    ctx = context()
    with ctx, ir.Location.unknown():
        module = ir.Module.parse(text)
    return run(module, function, list(inputs), precision=precision, sizes=sizes)  # pyright: ignore


def tensor(dims: str, dtype: str = "f32") -> str:
    """The type with these dims: ``n`` is dynamic, ``n=4`` has extent 4, ``n:8=2*m`` has extent 8 and size 2*m."""
    shape, entries = "", []
    for word in dims.split():
        name, _, rest = word.replace("=", ":", 1).partition(":") if ":" not in word else word.partition(":")
        extent, _, size = rest.partition("=")
        shape += f"{extent or '?'}x"
        entries.append(f'"{name}={size}"' if size else f'"{name}"')
    return f"tensor<{shape}{dtype}, #cleave.dims<[{', '.join(entries)}]>>"


def graph(arguments: str, ops: str, results: str, types: str) -> str:
    return f"func.func @f({arguments}) -> ({types}) {{\n{ops}\nreturn {results} : {types}\n}}"


def unary(name: str, dtype: str = "f64") -> str:
    t = tensor("n", dtype)
    return graph(f"%x: {t}", f'%0 = "cleave.{name}"(%x) : ({t}) -> {t}', "%0", t)


# --- pointwise -------------------------------------------------------------------------------------------------------

UNARY: dict[str, Callable[[float], float]] = {
    "neg": lambda x: -x, "exp": math.exp, "exp2": lambda x: 2.0**x, "log": math.log, "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x), "tanh": math.tanh, "erf": math.erf, "sin": math.sin, "cos": math.cos,
    "abs": abs, "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    x = np.array([0.25, 1.0, 3.5])
    (got,) = execute(unary(name), x)
    np.testing.assert_allclose(got, [UNARY[name](v) for v in x], rtol=1e-15)


def test_every_pointwise_op_has_a_rule() -> None:
    from cleave.dialects.ops import OPS
    from cleave.reference.executor import RULES

    assert {f"cleave.{name}" for name in OPS} <= RULES.keys()


@pytest.mark.parametrize(
    ("name", "function"),
    [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide), ("pow", np.power),
     ("max", np.maximum), ("min", np.minimum)],
)  # fmt: skip
def test_binary_aligns_by_name(name: str, function: Callable[..., np.ndarray]) -> None:
    a, b = RNG.random((3, 4)), RNG.random((4, 2))
    text = graph(
        f"%a: {tensor('m k', 'f64')}, %b: {tensor('k n', 'f64')}",
        f'%0 = "cleave.{name}"(%a, %b) : ({tensor("m k", "f64")}, {tensor("k n", "f64")}) -> {tensor("n k m", "f64")}',
        "%0", tensor("n k m", "f64"),
    )  # fmt: skip
    (got,) = execute(text, a, b)
    np.testing.assert_array_equal(got, function(a.T[None], b.T[:, :, None]))


def test_not_a_number_spreads_through_max_and_fails_comparisons() -> None:
    t, b = tensor("n", "f32"), tensor("n", "i1")
    ops = f'%0 = "cleave.max"(%x, %y) : ({t}, {t}) -> {t}\n' + "\n".join(
        f'%{p} = "cleave.cmp"(%x, %y) {{predicate = "{p}"}} : ({t}, {t}) -> {b}' for p in ("lt", "ge", "ne")
    )
    x, y = np.array([np.nan, 1, 2], np.float32), np.array([1, np.nan, 2], np.float32)
    top, lt, ge, ne = execute(graph(f"%x: {t}, %y: {t}", ops, "%0, %lt, %ge, %ne", f"{t}, {b}, {b}, {b}"), x, y)
    assert np.isnan(top[:2]).all() and top[2] == 2
    assert (lt.tolist(), ge.tolist(), ne.tolist()) == ([False] * 3, [False, False, True], [True, True, False])


def test_integers_are_exact_and_divide_toward_zero() -> None:
    t = tensor("n", "i64")
    text = graph(f"%x: {t}, %y: {t}", f'%0 = "cleave.div"(%x, %y) : ({t}, {t}) -> {t}', "%0", t)
    x = np.array([7, -7, 7, -7, 2**62 + 1], np.int64)
    (got,) = execute(text, x, np.array([2, 2, -2, -2, 1], np.int64))
    assert got.tolist() == [3, -3, -3, 3, 2**62 + 1]


# --- precision -------------------------------------------------------------------------------------------------------


def cast(source: str, target: str) -> str:
    x, y = tensor("n", source), tensor("n", target)
    return graph(f"%x: {x}", f'%0 = "cleave.cast"(%x) : ({x}) -> {y}', "%0", y)


@pytest.mark.parametrize(("name", "kind"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16),
                                            ("f8E5M2", ml_dtypes.float8_e5m2)])  # fmt: skip
def test_float_casts_round_in_declared_and_not_in_f64(name: str, kind: type) -> None:
    x = np.array([1.0001, 3.14159, -0.3333], np.float32)
    (exact,) = execute(cast("f32", name), x)
    (rounded,) = execute(cast("f32", name), x, precision="declared")
    np.testing.assert_array_equal(exact, x.astype(np.float64))
    assert rounded.dtype == kind
    np.testing.assert_array_equal(rounded, x.astype(kind))


def test_a_literal_has_its_types_rounding_in_both() -> None:
    t = tensor("", "f32")
    ops = f'%c = "cleave.constant"() {{value = 0.1 : f64}} : () -> {tensor("", "f64")}\n'
    ops += f'%0 = "cleave.cast"(%c) : ({tensor("", "f64")}) -> {t}'
    (got,) = execute(graph("", ops, "%0", t))
    assert got == np.float32(0.1)


@given(st.floats(width=32, allow_nan=False))
def test_tf32_is_the_nearest_of_eleven_bits(x: float) -> None:
    if not np.isfinite(x) or abs(x) < 2.0**-120 or abs(x) > 2.0**126:
        return
    step = 2.0 ** (math.floor(math.log2(abs(x))) - 10)
    assert float(round_tf32(np.float32(x))) == round(float(np.float32(x)) / step) * step


def test_pointwise_is_rounded_once_in_declared() -> None:
    x = RNG.standard_normal(1000).astype(np.float16)
    (got,) = execute(unary("exp", "f16"), x, precision="declared")
    np.testing.assert_array_equal(got, np.exp(x.astype(np.float32)).astype(np.float16))


def test_contract_accumulates_in_f32_and_rounds_once() -> None:
    a, b, out = tensor("k", "f16"), tensor("k", "f16"), tensor("", "f16")
    text = graph(
        f"%a: {a}, %b: {b}", f'%0 = "cleave.contract"(%a, %b) {{over = ["k"]}} : ({a}, {b}) -> {out}', "%0", out
    )
    ones = np.ones(4096, np.float16)  # a sum of ones in f16 sticks at 2048
    (got,) = execute(text, ones, ones, precision="declared")
    assert got.dtype == np.float16 and got == 4096


def test_linalg_bodies_round_at_their_declared_type() -> None:
    (got,) = execute(reduction("f16", "arith.addf", "0.0"), np.ones((1, 4096), np.float16), precision="declared")
    assert got.tolist() == [2048.0]


# --- contractions, reductions, splits --------------------------------------------------------------------------------


def test_contract_is_einsum() -> None:
    q, k = RNG.random((2, 3, 4, 5)), RNG.random((3, 2, 6, 5))
    a, b, out = tensor("b h m d", "f64"), tensor("h b n d", "f64"), tensor("m b n h", "f64")
    text = graph(
        f"%a: {a}, %b: {b}", f'%0 = "cleave.contract"(%a, %b) {{over = ["d"]}} : ({a}, {b}) -> {out}', "%0", out
    )
    np.testing.assert_allclose(execute(text, q, k)[0], np.einsum("bhmd,hbnd->mbnh", q, k), rtol=1e-14)


def test_contract_over_a_dim_of_one_operand() -> None:
    a, b, out = tensor("m k", "f64"), tensor("n", "f64"), tensor("m n", "f64")
    text = graph(
        f"%a: {a}, %b: {b}", f'%0 = "cleave.contract"(%a, %b) {{over = ["k"]}} : ({a}, {b}) -> {out}', "%0", out
    )
    x, y = RNG.random((3, 4)), RNG.random(2)
    np.testing.assert_allclose(execute(text, x, y)[0], np.einsum("mk,n->mn", x, y), rtol=1e-14)


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
def test_reduce(kind: str) -> None:
    x = RNG.standard_normal((3, 4, 5))
    t, out = tensor("a b c", "f64"), tensor("b", "f64")
    text = graph(
        f"%x: {t}", f'%0 = "cleave.reduce"(%x) {{kind = "{kind}", over = ["c", "a"]}} : ({t}) -> {out}', "%0", out
    )
    np.testing.assert_allclose(execute(text, x)[0], getattr(np, kind)(x, axis=(0, 2)), rtol=1e-14)


def test_empty_sums_are_zero_and_empty_maxima_an_error_that_names_the_dim() -> None:
    t, out = tensor("m n", "f32"), tensor("m", "f32")
    text = graph(f"%x: {t}", f'%0 = "cleave.reduce"(%x) {{kind = "KIND", over = ["n"]}} : ({t}) -> {out}', "%0", out)
    assert execute(text.replace("KIND", "sum"), np.zeros((2, 0), np.float32))[0].tolist() == [0, 0]
    with pytest.raises(CleaveError, match="max over the empty dimension 'n'") as error:
        execute(text.replace("KIND", "max"), np.zeros((2, 0), np.float32))
    assert str(error.value.location).endswith(":2:6")


SPLIT = """
func.func @f(%x: tensor<?xf32, #cleave.dims<["n"]>>, %y: tensor<?xf32, #cleave.dims<["n"]>>)
    -> (tensor<f32, #cleave.dims<[]>>, tensor<f32, #cleave.dims<[]>>, tensor<f32, #cleave.dims<[]>>) {
  %0 = "cleave.split"(%x) {dim = "n", into = ["s", "t=ceildiv(n,s)"]}
    : (tensor<?xf32, #cleave.dims<["n"]>>) -> tensor<?x?xf32, #cleave.dims<["s", "t=ceildiv(n,s)"]>>
  %1 = "cleave.split"(%y) {dim = "n", into = ["s", "t=ceildiv(n,s)"]}
    : (tensor<?xf32, #cleave.dims<["n"]>>) -> tensor<?x?xf32, #cleave.dims<["s", "t=ceildiv(n,s)"]>>
  %e = "cleave.exp"(%0)
    : (tensor<?x?xf32, #cleave.dims<["s", "t=ceildiv(n,s)"]>>) -> tensor<?x?xf32, #cleave.dims<["s", "t=ceildiv(n,s)"]>>
  %p = "cleave.reduce"(%e) {kind = "sum", over = ["t"]}
    : (tensor<?x?xf32, #cleave.dims<["s", "t=ceildiv(n,s)"]>>) -> tensor<?xf32, #cleave.dims<["s"]>>
  %sum = "cleave.reduce"(%p) {kind = "sum", over = ["s"]}
    : (tensor<?xf32, #cleave.dims<["s"]>>) -> tensor<f32, #cleave.dims<[]>>
  %m = "cleave.reduce"(%0) {kind = "max", over = ["s", "t"]}
    : (tensor<?x?xf32, #cleave.dims<["s", "t=ceildiv(n,s)"]>>) -> tensor<f32, #cleave.dims<[]>>
  %dot = "cleave.contract"(%e, %1) {over = ["s", "t"]}
    : (tensor<?x?xf32, #cleave.dims<["s", "t=ceildiv(n,s)"]>>, tensor<?x?xf32, #cleave.dims<["s", "t=ceildiv(n,s)"]>>)
    -> tensor<f32, #cleave.dims<[]>>
  return %sum, %m, %dot : tensor<f32, #cleave.dims<[]>>, tensor<f32, #cleave.dims<[]>>, tensor<f32, #cleave.dims<[]>>
}
"""


@pytest.mark.parametrize("s", [1, 2, 3, 4, 7, 11])
def test_elements_past_the_end_of_a_split_do_not_exist(s: int) -> None:
    """All of x is negative, so that padding with zeros would show in the maximum and as exp(0) in the sum."""
    x = -1 - RNG.random(7)
    y = RNG.standard_normal(7)
    total, top, dot = execute(SPLIT, x.astype(np.float64), y, s=s)
    np.testing.assert_allclose([total, top, dot], [np.exp(x).sum(), x.max(), np.exp(x) @ y], rtol=1e-13)


@pytest.mark.parametrize("s", [1, 2, 3, 5, 8])
def test_scores_of_a_split_do_not_exist_past_its_end(s: int) -> None:
    """The contraction over another dim keeps what does not exist: exp(0) of the missing keys must not be summed."""
    q, k = tensor("d", "f64"), tensor("n d", "f64")
    kt = 'tensor<?x?x?xf64, #cleave.dims<["s", "t=ceildiv(n,s)", "d"]>>'
    p = 'tensor<?x?xf64, #cleave.dims<["s", "t=ceildiv(n,s)"]>>'
    ops = f"""
      %0 = "cleave.split"(%k) {{dim = "n", into = ["s", "t=ceildiv(n,s)"]}} : ({k}) -> {kt}
      %1 = "cleave.contract"(%q, %0) {{over = ["d"]}} : ({q}, {kt}) -> {p}
      %2 = "cleave.exp"(%1) : ({p}) -> {p}
      %3 = "cleave.reduce"(%2) {{kind = "sum", over = ["t"]}} : ({p}) -> {tensor("s", "f64")}
      %4 = "cleave.reduce"(%3) {{kind = "sum", over = ["s"]}} : ({tensor("s", "f64")}) -> {tensor("", "f64")}"""
    x, y = RNG.standard_normal(3), RNG.standard_normal((7, 3))
    (got,) = execute(graph(f"%q: {q}, %k: {k}", ops, "%4", tensor("", "f64")), x, y, s=s)
    np.testing.assert_allclose(got, np.exp(y @ x).sum(), rtol=1e-13)


def test_merge_undoes_split() -> None:
    n, parts = tensor("n"), tensor("s:3=3 t:3=3")
    ops = f'%0 = "cleave.split"(%x) {{dim = "n", into = ["s=3", "t=3"]}} : ({n}) -> {parts}\n'
    ops += f'%1 = "cleave.merge"(%0) {{dims = ["s", "t"], into = "n=n"}} : ({parts}) -> {n}'
    x = RNG.random(7).astype(np.float32)
    np.testing.assert_array_equal(execute(graph(f"%x: {n}", ops, "%1", n), x)[0], x)


def test_merge_is_row_major_in_the_order_written() -> None:
    t, out = tensor("g=2 m=3 kv=4"), tensor("h:8=kv*g m=3")
    ops = f'%0 = "cleave.merge"(%x) {{dims = ["kv", "g"], into = "h=kv*g"}} : ({t}) -> {out}'
    x = RNG.random((2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(execute(graph(f"%x: {t}", ops, "%0", out), x)[0], np.moveaxis(x, 2, 0).reshape(8, 3))


def test_slice_concat_rename_gather_index() -> None:
    n = tensor("n=6 d=2", "f64")
    ops = f"""
      %a = "cleave.slice"(%x) {{dim = "n", into = "p", offset = "1"}} : ({n}) -> {tensor("p=3 d=2", "f64")}
      %b = "cleave.rename"(%a) {{from = "p", to = "q=p"}} : ({tensor("p=3 d=2", "f64")}) -> {tensor("q:3=p d=2", "f64")}
      %c = "cleave.concat"(%a, %b) {{dims = ["p", "q"], into = "r=2*p"}}
        : ({tensor("p=3 d=2", "f64")}, {tensor("q:3=p d=2", "f64")}) -> {tensor("r:6=2*p d=2", "f64")}
      %g = "cleave.gather"(%x, %i) {{dim = "n"}} : ({n}, {tensor("d=2 k=4", "i64")}) -> {tensor("k=4 d=2", "f64")}
      %j = "cleave.index"() {{dim = "n"}} : () -> {tensor("n=6", "i32")}"""
    x, i = RNG.random((6, 2)), RNG.integers(0, 6, (2, 4))
    types = ", ".join((tensor("r:6=2*p d=2", "f64"), tensor("k=4 d=2", "f64"), tensor("n=6", "i32")))
    joined, gathered, index = execute(graph(f"%x: {n}, %i: {tensor('d=2 k=4', 'i64')}", ops, "%c, %g, %j", types), x, i)
    np.testing.assert_array_equal(joined, np.concatenate([x[1:4], x[1:4]]))
    np.testing.assert_array_equal(gathered, np.stack([x[i[0], 0], x[i[1], 1]], 1))
    assert index.tolist() == [0, 1, 2, 3, 4, 5] and index.dtype == np.int32


# --- linalg ----------------------------------------------------------------------------------------------------------


def reduction(dtype: str, combine: str, initial: str) -> str:
    return f"""
      func.func @f(%x: tensor<?x?x{dtype}>) -> tensor<?x{dtype}> {{
        %c0 = arith.constant 0 : index
        %init = arith.constant {initial} : {dtype}
        %m = tensor.dim %x, %c0 : tensor<?x?x{dtype}>
        %e = tensor.empty(%m) : tensor<?x{dtype}>
        %f = linalg.fill ins(%init : {dtype}) outs(%e : tensor<?x{dtype}>) -> tensor<?x{dtype}>
        %0 = linalg.reduce ins(%x : tensor<?x?x{dtype}>) outs(%f : tensor<?x{dtype}>) dimensions = [1]
          (%in: {dtype}, %out: {dtype}) {{
            %s = {combine} %in, %out : {dtype}
            linalg.yield %s : {dtype}
          }}
        return %0 : tensor<?x{dtype}>
      }}"""


def test_reduction_is_sequential_in_order() -> None:
    """in − out, step by step: no associative shortcut gives this."""
    x = RNG.random((3, 5))
    want = np.zeros(3)
    for column in x.T:
        want = column - want
    np.testing.assert_allclose(execute(reduction("f64", "arith.subf", "0.0"), x)[0], want, rtol=1e-15)


def test_argmax_is_the_first() -> None:
    x = np.array([[1, 5, 5, 2], [np.nan, 1, 3, 3]], np.float32)
    top, where = execute(LINALG_ARGMAX, x)
    np.testing.assert_array_equal(top, [5, np.nan])
    assert where.tolist() == [1, 0]


LINALG_ARGMAX = """
func.func @f(%x: tensor<?x4xf32>) -> (tensor<?xf32>, tensor<?xi64>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i64
  %low = arith.constant 0xFF800000 : f32
  %m = tensor.dim %x, %c0 : tensor<?x4xf32>
  %e0 = tensor.empty(%m) : tensor<?xf32>
  %e1 = tensor.empty(%m) : tensor<?xi64>
  %f0 = linalg.fill ins(%low : f32) outs(%e0 : tensor<?xf32>) -> tensor<?xf32>
  %f1 = linalg.fill ins(%zero : i64) outs(%e1 : tensor<?xi64>) -> tensor<?xi64>
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
      affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x4xf32>)
      outs(%f0, %f1 : tensor<?xf32>, tensor<?xi64>) {
  ^bb0(%in: f32, %out: f32, %where: i64):
    %j = linalg.index 1 : index
    %i64 = arith.index_cast %j : index to i64
    %max = arith.maximumf %in, %out : f32
    %greater = arith.cmpf ogt, %in, %out : f32
    %new = arith.select %greater, %i64, %where : i64
    linalg.yield %max, %new : f32, i64
  } -> (tensor<?xf32>, tensor<?xi64>)
  return %r#0, %r#1 : tensor<?xf32>, tensor<?xi64>
}
"""


def test_convolution_has_sums_in_its_map() -> None:
    text = """
      func.func @f(%x: tensor<8xf64>, %w: tensor<3xf64>, %init: tensor<6xf64>) -> tensor<6xf64> {
        %0 = linalg.conv_1d ins(%x, %w : tensor<8xf64>, tensor<3xf64>) outs(%init : tensor<6xf64>) -> tensor<6xf64>
        return %0 : tensor<6xf64>
      }"""
    x, w, init = RNG.random(8), RNG.random(3), RNG.random(6)
    np.testing.assert_allclose(execute(text, x, w, init)[0], init + np.correlate(x, w, "valid"), rtol=1e-14)


def test_tensor_ops() -> None:
    text = """
      func.func @f(%x: tensor<4x6xf32>, %n: index)
          -> (tensor<4x3xf32>, tensor<6x6xf32>, tensor<2x2x6xf32>, tensor<4x6xf32>) {
        %zero = arith.constant -1.0 : f32
        %0 = tensor.extract_slice %x[0, %n] [4, 3] [1, 2] : tensor<4x6xf32> to tensor<4x3xf32>
        %1 = tensor.pad %x low[1, 0] high[1, 0] {
        ^bb0(%i: index, %j: index):
          tensor.yield %zero : f32
        } : tensor<4x6xf32> to tensor<6x6xf32>
        %2 = tensor.expand_shape %x [[0, 1], [2]] output_shape [2, 2, 6] : tensor<4x6xf32> into tensor<2x2x6xf32>
        %3 = tensor.insert_slice %0 into %x[0, 3] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x6xf32>
        return %0, %1, %2, %3 : tensor<4x3xf32>, tensor<6x6xf32>, tensor<2x2x6xf32>, tensor<4x6xf32>
      }"""
    x = RNG.random((4, 6)).astype(np.float32)
    cut, padded, expanded, inserted = execute(text, x, np.asarray(1))
    np.testing.assert_array_equal(cut, x[:, 1:6:2])
    np.testing.assert_array_equal(padded, np.pad(x, ((1, 1), (0, 0)), constant_values=-1))
    np.testing.assert_array_equal(expanded, x.reshape(2, 2, 6))
    np.testing.assert_array_equal(inserted, np.concatenate([x[:, :3], x[:, 1:6:2]], 1))


def test_control_flow_and_calls() -> None:
    text = """
      func.func @f(%n: index) -> i64 {
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %one = arith.constant 1 : i64
        %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %one) -> (i64) {
          %x = func.call @step(%acc, %i) : (i64, index) -> i64
          scf.yield %x : i64
        }
        return %r : i64
      }
      func.func private @step(%acc: i64, %i: index) -> i64 {
        %c2 = arith.constant 2 : index
        %small = arith.cmpi slt, %i, %c2 : index
        %r = scf.if %small -> (i64) {
          %0 = arith.addi %acc, %acc : i64
          scf.yield %0 : i64
        } else {
          %three = arith.constant 3 : i64
          %1 = arith.muli %acc, %three : i64
          scf.yield %1 : i64
        }
        return %r : i64
      }"""
    assert execute(text, np.asarray(4))[0] == 2 * 2 * 3 * 3


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_dense_constants(dtype: str) -> None:
    text = f"""
      func.func @f() -> (tensor<2x2x{dtype}>, tensor<2x{dtype}>) {{
        %0 = arith.constant dense<[[1.0, 2.5], [-3.0, 0.5]]> : tensor<2x2x{dtype}>
        %1 = arith.constant dense<0.25> : tensor<2x{dtype}>
        return %0, %1 : tensor<2x2x{dtype}>, tensor<2x{dtype}>
      }}"""
    matrix, splat = execute(text, precision="declared")
    assert (
        matrix.astype(np.float64).tolist() == [[1, 2.5], [-3, 0.5]] and splat.astype(np.float64).tolist() == [0.25] * 2
    )


# --- kernels ---------------------------------------------------------------------------------------------------------

MATMUL = """
func.func @f(%q: MK, %w: KN) -> NM {
  %o = "cleave.alloc"() : () -> NM
  func.call @f__k0(%q, %w, %o) {cleave.grid = ["ceildiv(m,4)", "ceildiv(n,4)"]} : (MK, KN, NM) -> ()
  return %o : NM
}
func.func private @f__k0(%q: MK, %w: KN, %o: NM {cleave.out}) attributes {cleave.kernel} {
  %p0 = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %p1 = "cleave.program_id"() {axis = 1 : i64} : () -> index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %c0 = arith.constant 0 : index
  %m0 = arith.muli %p0, %c4 : index
  %n0 = arith.muli %p1, %c4 : index
  %m = "cleave.extent"() {size = "m"} : () -> index
  %n = "cleave.extent"() {size = "n"} : () -> index
  %k = "cleave.extent"() {size = "k"} : () -> index
  %z = "cleave.constant"() {value = 0.0 : f32} : () -> ACC
  %acc = scf.for %i = %c0 to %k step %c8 iter_args(%a = %z) -> (ACC) {
    %qt = "cleave.load"(%q, %m0, %i, %m, %k) {fill = 0.0 : f16, operandSegmentSizes = array<i32: 1, 2, 2>}
      : (MK, index, index, index, index) -> tensor<4x8xf16, #cleave.dims<["m=4", "k=8"]>>
    %wt = "cleave.load"(%w, %i, %n0, %k, %n) {fill = 0.0 : f16, operandSegmentSizes = array<i32: 1, 2, 2>}
      : (KN, index, index, index, index) -> tensor<8x4xf16, #cleave.dims<["k=8", "n=4"]>>
    %c = "cleave.contract"(%qt, %wt) {over = ["k"]}
      : (tensor<4x8xf16, #cleave.dims<["m=4", "k=8"]>>, tensor<8x4xf16, #cleave.dims<["k=8", "n=4"]>>)
      -> ACC
    %s = "cleave.add"(%a, %c) : (ACC, ACC)
      -> ACC
    scf.yield %s : ACC
  }
  %r = "cleave.cast"(%acc) : (ACC) -> tensor<4x4xf16, #cleave.dims<["m=4", "n=4"]>>
  "cleave.store"(%r, %o, %n0, %m0, %n, %m) {operandSegmentSizes = array<i32: 1, 1, 2, 2>}
    : (tensor<4x4xf16, #cleave.dims<["m=4", "n=4"]>>, NM, index, index, index, index) -> ()
  return
}
"""
for short, dims in (("MK", "m k"), ("KN", "k n"), ("NM", "n m"), ("ACC", "m:4=4 n:4=4")):
    MATMUL = MATMUL.replace(short, tensor(dims, "f32" if short == "ACC" else "f16"))


@pytest.mark.parametrize(("m", "n", "k"), [(4, 4, 8), (5, 7, 9), (1, 1, 1), (8, 3, 0), (0, 5, 8)])
def test_matmul_kernel(m: int, n: int, k: int) -> None:
    a, b = (RNG.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    want = (a.astype(np.float64) @ b.astype(np.float64)).T
    np.testing.assert_allclose(execute(MATMUL, a, b)[0], want, rtol=1e-14, atol=1e-14)
    got = execute(MATMUL, a, b, precision="declared")[0]
    assert got.dtype == np.float16 and got.shape == want.shape
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-3, atol=1e-3)


def test_inputs_are_not_changed() -> None:
    a, b = np.ones((4, 8), np.float16), np.ones((8, 4), np.float16)
    execute(MATMUL, a, b)
    assert (a == 1).all() and (b == 1).all()


def test_what_no_program_writes_stays_poison() -> None:
    text = MATMUL.replace('"ceildiv(m,4)", "ceildiv(n,4)"', '"1", "1"')
    got = execute(text, np.ones((4, 8), np.float16), np.ones((8, 6), np.float16))[0]
    assert np.isnan(got[4:]).all() and not np.isnan(got[:4]).any()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%m0, %i, %m, %k) {", '%m0, %i, %m, %k) {in_bounds = ["k"], ',
         "index 15 leaves dimension 'k' of extent 9 and is not masked"),
        ("%n0, %m0, %n, %m)", "%n0, %m0, %n, %c8)", "index 7 leaves dimension 'm' of extent 5 and is not masked"),
        ('"ceildiv(m,4)", "ceildiv(n,4)"', '"ceildiv(m,4)"', "the grid has no axis 1"),
    ],
)  # fmt: skip
def test_access_outside_memory_is_an_error(old: str, new: str, message: str) -> None:
    assert old in MATMUL
    with pytest.raises(CleaveError, match=message) as error:
        execute(MATMUL.replace(old, new), np.ones((5, 9), np.float16), np.ones((9, 7), np.float16))
    assert error.value.location is not None


# --- errors ----------------------------------------------------------------------------------------------------------


def test_sizes_that_disagree_name_the_dim_both_tensors_and_both_values() -> None:
    t = tensor("n")
    text = graph(f"%x: {t}, %y: {t}", f'%0 = "cleave.add"(%x, %y) : ({t}, {t}) -> {t}', "%0", t)
    with pytest.raises(CleaveError, match="dimension 'n' is 5 by input 0 and 6 in input 1"):
        execute(text, np.zeros(5, np.float32), np.zeros(6, np.float32))


def test_plain_sizes_that_disagree() -> None:
    text = """
      func.func @f(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
        %0 = linalg.add ins(%x, %y : tensor<?xf32>, tensor<?xf32>) outs(%x : tensor<?xf32>) -> tensor<?xf32>
        return %0 : tensor<?xf32>
      }"""
    with pytest.raises(CleaveError, match="loop d0 runs to 5 by operand 0 and to 6 by operand 1") as error:
        execute(text, np.zeros(5, np.float32), np.zeros(6, np.float32))
    assert str(error.value.location) == "-:3:14"


def test_a_size_that_is_an_expression_binds_and_is_checked() -> None:
    t = 'tensor<?xf32, #cleave.dims<["n=16*q"]>>'
    text = graph(f"%x: {t}", f'%0 = "cleave.neg"(%x) : ({t}) -> {t}', "%0", t)
    assert execute(text, np.ones(48, np.float32))[0].shape == (48,)
    with pytest.raises(CleaveError, match=r"dimension 'n' of input 0 is 50, but 16\*q is that for no q"):
        execute(text, np.ones(50, np.float32))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([np.zeros(5, np.int32)], "input 0 has element type int32, the function takes float32 or float64"),
        ([np.zeros((5, 1), np.float32)], "input 0 has rank 2"),
        ([], "the function takes 1 inputs, not 0"),
    ],
)
def test_inputs_that_do_not_fit(inputs: list[np.ndarray], message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        execute(unary("neg", "f32"), *inputs)


def test_static_extents_are_checked() -> None:
    t = tensor("n=4")
    with pytest.raises(CleaveError, match="input 0 has extent 5 on axis 0"):
        execute(graph(f"%x: {t}", "", "%x", t), np.zeros(5, np.float32))


def test_unknown_op_is_an_error_at_its_place() -> None:
    text = """
      func.func @f(%x: f32) -> f32 {
        %0 = math.acosh %x : f32
        return %0 : f32
      }"""
    with pytest.raises(CleaveError, match=r"no rule for 'math.acosh'") as error:
        execute(text, np.asarray(1.0))
    assert str(error.value.location) == "-:3:14"


def test_a_symbol_without_a_value() -> None:
    with pytest.raises(CleaveError, match="no input gives size 's' a value"):
        execute(SPLIT, np.zeros(4), np.zeros(4))


def test_the_entry_must_be_clear() -> None:
    two = unary("neg") + "\n" + unary("neg").replace("@f", "@g")
    with pytest.raises(CleaveError, match="no single entry") as error:
        execute(two, np.zeros(3))
    assert error.value.notes == ("candidates: f, g",)
    assert execute(two, np.ones(3), function="g")[0].tolist() == [-1, -1, -1]
    with pytest.raises(CleaveError, match="no function 'h'"):
        execute(two, np.zeros(3), function="h")


def test_failed_assertion() -> None:
    text = """
      func.func @f(%x: i1) -> i1 {
        cf.assert %x, "sizes agree"
        return %x : i1
      }"""
    with pytest.raises(CleaveError, match="assertion failed: sizes agree"):
        execute(text, np.asarray(False))
