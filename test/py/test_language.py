"""Functions written in Python, traced, against NumPy in f64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import reference

import cleave
from cleave import bf16, f16, f32, i8, i32
from cleave.errors import CleaveError, Position
from cleave.language.tensor import Tensor
from cleave.language.trace import trace

SIZES = {"m": 5, "k": 7, "n": 6}
NUMPY = {"f16": np.float16, "f32": np.float32, "i32": np.int32}


def _evaluated(function: Callable[..., Any]) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
    """The inputs, and what the traced function makes of them in f64."""
    graph = trace(function)
    rng = np.random.default_rng(0)
    shapes = [[SIZES[name] for name in value.names] for value in graph.inputs]
    inputs = [
        rng.integers(0, 5, shape).astype(np.int32)
        if value.dtype == "i32"
        else rng.standard_normal(shape).astype(NUMPY[value.dtype])
        for value, shape in zip(graph.inputs, shapes, strict=True)
    ]
    return inputs, reference(graph, inputs, "f64")


def _operators(x: f32["m k"], y: f32["k"]) -> f32["m k"]:
    return -(2 * x + y) / (1.5 - x) ** 2 - y / 3


def _masks(x: f32["m n"]) -> f32["m n"]:
    seen = (cleave.index("n") <= cleave.index("m")) & (cleave.index("n") > cleave.index("m") - 3)
    return cleave.where(seen | cleave.index("n").equals(0), x, -math.inf)


def _transposed(x: f32["m k"]) -> f32["k m"]:
    return x


def _functions(x: f32["m k"]) -> f32["m k"]:
    y = cleave.exp(x) + cleave.log(cleave.absolute(x)) + cleave.tanh(x) * cleave.sigmoid(x)
    return y + cleave.gelu(x) + cleave.silu(x) + cleave.relu(x) + cleave.minimum(x, 0.5) + cleave.exp2(x)


def _norms(x: f32["m k"], g: f32["k"], b: f32["k"]) -> tuple[f32["m k"], f32["m k"]]:
    return cleave.layer_norm(x, "k", g, b), cleave.rms_norm(x, "k", g)


def _erf(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.vectorize(math.erf)(x)


def test_operators() -> None:
    (x, y), (result,) = _evaluated(_operators)
    x, y = x.astype(float), y.astype(float)
    np.testing.assert_allclose(result, -(2 * x + y) / (1.5 - x) ** 2 - y / 3, rtol=1e-12)


def test_masks() -> None:
    (x,), (result,) = _evaluated(_masks)
    i, j = np.arange(SIZES["m"])[:, None], np.arange(SIZES["n"])[None]
    np.testing.assert_array_equal(result, np.where(((j <= i) & (j > i - 3)) | (j == 0), x, -np.inf))


def test_the_annotation_of_the_result_orders_its_dims() -> None:
    (x,), (result,) = _evaluated(_transposed)
    np.testing.assert_array_equal(result, x.T)


def test_functions() -> None:
    (x,), (result,) = _evaluated(_functions)
    x = x.astype(float)
    sigmoid = 1 / (1 + np.exp(-x))
    wanted = np.exp(x) + np.log(abs(x)) + np.tanh(x) * sigmoid + x / 2 * (1 + _erf(x / math.sqrt(2))) + x * sigmoid
    np.testing.assert_allclose(result, wanted + np.maximum(x, 0) + np.minimum(x, 0.5) + 2**x, rtol=1e-7)


def test_norms() -> None:
    (x, g, b), (layer, rms) = _evaluated(_norms)
    x, g, b = x.astype(float), g.astype(float), b.astype(float)
    mean, var = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    np.testing.assert_allclose(layer, (x - mean) / np.sqrt(var + 1e-5) * g + b, rtol=1e-9)
    np.testing.assert_allclose(rms, x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * g, rtol=1e-9)


def test_softmax_and_logsumexp() -> None:
    def both(x: f32["m n"]) -> tuple[f32["m n"], f32["m"]]:
        return cleave.softmax(x, "n"), cleave.logsumexp(x, "n")

    (x,), (p, lse) = _evaluated(both)
    e = np.exp(x.astype(float))
    np.testing.assert_allclose(p, e / e.sum(1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(lse, np.log(e.sum(1)), rtol=1e-12)


def test_shapes() -> None:
    def shaped(x: f32["m k"], y: f32["n k"], i: i32["n"]) -> tuple[f32["n k"], f32["a m b"], f32["m e"], f32["r k"]]:
        pairs = x.rename(k="d").split("d", "a=7 b=1")
        merged = pairs.merge("a b", "c").slice("c", "e=3", offset=2)
        return x.gather("m", i), pairs, merged, cleave.concat(x, y, "m n", "r")

    (x, y, i), (taken, pairs, part, both) = _evaluated(shaped)
    np.testing.assert_array_equal(taken, x[i])
    np.testing.assert_array_equal(pairs, x.T[:, :, None])
    np.testing.assert_array_equal(part, x[:, 2:5])
    np.testing.assert_array_equal(both, np.concatenate([x, y]))


def test_nothing_is_rounded_without_being_told() -> None:
    def squares(x: f16["m k"]) -> Any:
        return (x * x).sum("k")

    graph = trace(squares)
    assert {value.dtype for value in graph.topological() if value.op != "input"} == {"f32"}


def test_a_contraction_takes_the_narrow_type_of_its_operands() -> None:
    def product(x: f32["m k"], w: bf16["k n"]) -> bf16["m n"]:
        return cleave.contract(x, w, over="k")

    graph = trace(product)
    contract = next(value for value in graph.topological() if value.op == "contract")
    assert [operand.dtype for operand in contract.operands] == ["bf16", "bf16"] and contract.dtype == "f32"
    assert graph.outputs[0].dtype == "bf16"


# --- mistakes --------------------------------------------------------------------------------------------------------


def _bare(x) -> Any:  # type: ignore[no-untyped-def]
    return x


def _branch(x: f32["m"]) -> Any:
    return x if x > 0 else -x


def _mixed(x: f32["m"], i: i32["m"]) -> Any:
    return x + i


def _disagreeing(x: f32["m d=64"], y: f32["d"]) -> Any:
    return x + y.rename(d="e") + cleave.contract(x, y, over="q")


def _other(x: f32["m k"]) -> f32["m n"]:
    return x


def _nothing(x: f32["m k"]) -> Any:
    cleave.exp(x)


def _number(x: f32["m k"]) -> Any:
    return 1.0


def _no_condition(x: f32["m k"]) -> f32["m k"]:
    return cleave.where(True, x, 0.0)  # type: ignore[arg-type]


def _huge(x: f32["m k"]) -> f32["m k"]:
    return x * 10**400


def _array(x: f32["m k"]) -> f32["m k"]:
    return np.ones((5, 7)) * x


def _member(x: f32["m k"]) -> f32["m k"]:
    return x if x in [0.0] else -x


def _product(x: f32["m k"], y: f32["k n"]) -> f32["m n"]:
    return x @ y


def _product_with_array(x: f32["m k"]) -> f32["m k"]:
    return np.ones((5, 7)) @ x


def _exp_of_numpy(x: f32["m k"]) -> f32["m k"]:
    return np.exp(x)


def _sum_of_numpy(x: f32["m k"]) -> f32["m"]:
    return np.add.reduce(x)


def _tangent_of_numpy(x: f32["m k"]) -> f32["m k"]:
    return np.tan(x)


def _float_positions(x: f32["m k"]) -> f32["m k"]:
    return x * cleave.index("m", "f32")


def _unknown_type(x: f32["m k"]) -> f32["m k"]:
    return x.astype("f33")


def _unreadable_dim(x: f32["m k"]) -> f32["m k"]:
    return x * cleave.index("m=").astype("f32")


def _largest_of_none(x: f32["m n=0"]) -> f32["m"]:
    return x.max("n")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_product, "write contract(x, y, over=...)"),
        (_product_with_array, "write contract(x, y, over=...)"),
        (_exp_of_numpy, "np.exp takes no tensors of a traced function\nnote: use cleave.exp"),
        (_sum_of_numpy, "use x.sum(over=...)"),
        (_tangent_of_numpy, "docs/python.md"),
        (_float_positions, "positions are of an integer type, not f32\nnote: cast them"),
        (_unknown_type, "there is no element type 'f33'"),
        (_unreadable_dim, "cannot read the size"),
        (_largest_of_none, "max over the empty dimension 'n' has no value"),
        (_bare, "parameter 'x' of _bare needs a tensor type"),
        (_branch, "a tensor has no truth value"),
        (_mixed, "elements of f32 and i32 do not mix"),
        (_disagreeing, "'q'"),
        (_other, "the function returns dims m k, its annotation says m n"),
        (_nothing, "the function returns nothing\nnote: it ends without a return"),
        (_number, "something else than tensors"),
        (_no_condition, "the condition is a bool, no tensor"),
        (_huge, "too large for f32"),
        (_array, "an ndarray is neither a tensor nor a number"),
        (_member, "a tensor has no truth value"),
    ],
)
def test_mistakes_are_at_their_line(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        trace(function)
    assert message in str(caught.value)
    place, first = Position.read(str(caught.value.location)), function.__code__.co_firstlineno
    assert place and place.file == __file__ and first <= place.line <= first + 2


def test_numbers_of_numpy_before_a_tensor() -> None:
    def f(x: f32["m"]) -> tuple[f32["m"], f32["m"]]:
        return np.float64(3) - x, (np.float64(1) < x).astype("f32")

    (x,), (difference, larger) = _evaluated(f)
    np.testing.assert_allclose(difference, 3.0 - x, rtol=1e-6)
    np.testing.assert_array_equal(larger, x > 1)


def test_positions_along_dims_that_were_made() -> None:
    def f(x: f32["m n=6"]) -> tuple[Tensor, Tensor, Tensor]:
        parts = x.split("n", "kv=2 g=3")
        a = parts + cleave.index("g").astype("f32") + cleave.index("kv").astype("f32")
        return a, x.rename(m="r") + cleave.index("r").astype("f32"), cleave.index("q=m+2")

    def free(x: f32["m"]) -> Tensor:
        return cleave.index("s=s")

    (x,), (a, b, q) = _evaluated(f)
    np.testing.assert_allclose(a, x.reshape(-1, 2, 3) + np.arange(3) + np.arange(2)[:, None], rtol=1e-6)
    np.testing.assert_allclose(b, x + np.arange(len(x))[:, None], rtol=1e-6)
    np.testing.assert_array_equal(q, np.arange(len(x) + 2))
    assert trace(free).outputs[0].names == ("s",)


def test_an_index_outside_of_a_function() -> None:
    with pytest.raises(CleaveError, match="for functions that are being traced"):
        cleave.index("n")


def test_unknown_types() -> None:
    def wrong(x: f32["m"]) -> Any:
        return x.astype("f31")

    with pytest.raises(CleaveError, match="there is no element type 'f31'"):
        trace(wrong)


def test_equality_is_element_by_element() -> None:
    def f(x: i32["m"]) -> tuple[f32["m"], f32["m"]]:
        return (x == 2).astype("f32"), (x != 2).astype("f32")

    (x,), (same, other) = _evaluated(f)
    np.testing.assert_array_equal(same, x == 2)
    np.testing.assert_array_equal(other, x != 2)


def test_a_power_that_is_a_tensor() -> None:
    def f(x: f32["m k"], y: f32["k"]) -> f32["m k"]:
        return cleave.exp(x) ** y

    (x, y), (out,) = _evaluated(f)
    np.testing.assert_allclose(out, np.exp(x.astype(float)) ** y, rtol=1e-6)


def test_a_negative_size() -> None:
    def f(x: f32["m n=-1"]) -> f32["m n=-1"]:
        return x

    with pytest.raises(CleaveError, match="the size of 'n' is -1"):
        cleave.jit(f)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ("m=-3", "the size of 'm' is -3; sizes are at least 0"),
        ("m=", "the dim 'm=' of f16['m='] has no size\nnote: 'm' alone is of any size"),
        ("4 4", "the dim '4' of f16['4 4'] has no name\nnote: a size has a name, too: 'm=4'"),
        ("m=2 * n", "the dim '*' of f16['m=2 * n'] has no name"),
        ("m=2*", "cannot read the size"),
    ],
)
def test_dims_that_are_none(dims: str, message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        f16[dims]
    assert message in str(caught.value) and str(caught.value).startswith(f"{__file__}:")


def test_results_are_as_many_as_their_annotation() -> None:
    def two(x: f32["m n"]) -> f32["m n"]:
        return x, x

    def one(x: f32["m n"]) -> tuple[f32["m n"], f32["m n"]]:
        return x + 1

    for function, counts in ((two, "2 tensors, its annotation says 1"), (one, "1 tensor, its annotation says 2")):
        with pytest.raises(CleaveError, match=f"the function returns {counts}\nnote: several results are a tuple"):
            cleave.jit(function)


# --- numbers beside tensors of integers ------------------------------------------------------------------------------


def test_numbers_at_the_ends_of_a_type() -> None:
    def f(x: i32["m"], y: f32["m"]) -> tuple[i32["m"], i32["m"], i8["m"], i32["m"], f32["m"], f32["m"]]:
        byte, all_of = x.astype("i8"), (x > 1) == True  # noqa: E712 - element by element
        ends = cleave.where(x < 2**31 - 1, x, -(2**31)), cleave.where(all_of, 2**31 - 1, x)
        flags = cleave.where((x > 1).equals(0) | False, 1, x)
        return *ends, cleave.where(byte >= -128, byte, 127), flags, cleave.minimum(y, math.inf), y * 2**100 / 2**100

    (x, y), (low, high, byte, flags, same, scaled) = _evaluated(f)
    np.testing.assert_array_equal(low, x)
    np.testing.assert_array_equal(high, np.where(x > 1, 2**31 - 1, x))
    np.testing.assert_array_equal(byte, x)
    np.testing.assert_array_equal(flags, np.where(x > 1, x, 1))
    np.testing.assert_array_equal(same, y)
    np.testing.assert_allclose(scaled, y, rtol=1e-6)


def test_relu_of_integers() -> None:
    def f(x: i32["m"]) -> i32["m"]:
        return cleave.relu(x - 2)

    (x,), (out,) = _evaluated(f)
    np.testing.assert_array_equal(out, np.maximum(x - 2, 0))


def test_numbers_of_numpy_are_numbers() -> None:
    def f(x: f32["m"], i: i32["m"]) -> tuple[f32["m"], i32["m"]]:
        half = np.float32(0.5)
        return cleave.where(i > np.int64(2), x - half, half) + np.array(1.0), np.int32(3) - i

    (x, i), (out, difference) = _evaluated(f)
    np.testing.assert_allclose(out, np.where(i > 2, x.astype(float) - 0.5, 0.5) + 1, rtol=1e-6)
    np.testing.assert_array_equal(difference, 3 - i)


def test_operators_of_python() -> None:
    def f(x: f32["m"], i: i32["m"]) -> tuple[f32["m"], f32["m"], f32["m"]]:
        return 2**x, abs(+x), (True & (i > 1) | False).astype("f32")

    (x, i), (power, absolute, larger) = _evaluated(f)
    np.testing.assert_allclose(power, 2.0 ** x.astype(float), rtol=1e-6)
    np.testing.assert_array_equal(absolute, abs(x))
    np.testing.assert_array_equal(larger, i > 1)


@cleave.jit
def doubled(x: f32["m"]) -> f32["m"]:
    return x * 2


def test_a_compiled_function_inside_another_is_inlined_as_a_plain_one() -> None:
    def f(x: f32["m"]) -> f32["m"]:
        return doubled.__wrapped__(x) + 1

    (x,), (out,) = _evaluated(f)
    np.testing.assert_allclose(out, 2 * x.astype(float) + 1, rtol=1e-12)


def _sizes(x: f32["m n k=3"]) -> tuple[f32["m n k"], f32["m k"]]:
    last = cleave.index("n") == cleave.size("n", "i32") - 1
    scaled = x / cleave.size("n") * (1.0 / cleave.size("k")) + cleave.size("m*n") - cleave.size("ceildiv(n, 4)")
    return scaled, cleave.where(last, x, 0.0).sum("n")


@pytest.mark.parametrize(("m", "n"), [(5, 7), (1, 1), (3, 0), (33, 130)])
def test_sizes_are_numbers(m: int, n: int) -> None:
    x = np.random.default_rng(1).standard_normal((m, n, 3)).astype(np.float32)
    scaled, last = cleave.jit(_sizes)(x)
    np.testing.assert_allclose(scaled, x / max(n, 1) / 3 + m * n - -(-n // 4), rtol=1e-5)
    np.testing.assert_array_equal(last, x[:, -1] if n else np.zeros((m, 3), np.float32))
