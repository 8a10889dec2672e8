"""What functions written in Python may not say: refused at its line, with what to write instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import f32, i8, i32
from cleave.errors import CleaveError, Position
from cleave.language.tensor import Tensor
from cleave.language.trace import trace


def _assert_refused_at(function: Callable[..., Any], line: int, message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        trace(function)
    assert message in str(caught.value)
    place = Position.read(str(caught.value.location))
    assert place and (place.file, place.line) == (__file__, line)


def torch(name: str) -> Any:
    """A function of PyTorch, which asks its operands for their ``__torch_function__``."""
    return SimpleNamespace(__name__=name)


class Torch:
    """A tensor of PyTorch."""

    shape = (8,)


Torch.__module__, Torch.__name__ = "torch", "Tensor"


@cleave.jit
def compiled(x: f32["m"]) -> f32["m"]:
    return x * 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, byte, y: y * (cleave.index("m") * 0.5).astype("f32"), '0.5 is a float beside elements of i32'),
        (lambda x, byte, y: x / 2.5, 'or astype("f32") on the tensor'),
        (lambda x, byte, y: (y > 1) & byte, "each in parentheses"),
        (lambda x, byte, y: y if 0 < y <= 3 else x, "each in parentheses"),
        (lambda x, byte, y: y.view(-1), "no 'view'\nnote: dims are found by name"),
        (lambda x, byte, y: y.float(), """no 'float'\nnote: x.astype("f32") changes the type"""),
        (lambda x, byte, y: y * y.shape[0], "no 'shape'\nnote: x.dims has the names of dims, cleave.size"),
        (lambda x, byte, y: y.einsum, "no 'einsum'\nnote: docs/python.md"),
        (lambda x, byte, y: x / 2.0, "2.0 is a float beside"),
        (lambda x, byte, y: 2.0 - x, "2.0 is a float beside"),
        (lambda x, byte, y: cleave.where(x > -0.5, y, 0), "-0.5 is a float beside"),
        (lambda x, byte, y: cleave.where(y > 0, x, 0.5), "0.5 is a float beside"),
        (lambda x, byte, y: cleave.where(x < 2**31, x, -1), "out of the range of i32\nnote: i32 has the integers"),
        (lambda x, byte, y: cleave.where(byte < 200, byte, -1), "i8 has the integers -128 to 127"),
        (lambda x, byte, y: byte + -129, "out of the range of i8"),
        (lambda x, byte, y: x + 2**40, "out of the range of i32"),
        (lambda x, byte, y: x + 10**5000, "out of the range of i32"),
        (lambda x, byte, y: x.astype("i64") + 2**63, "out of the range of i64"),
        (lambda x, byte, y: cleave.maximum(x, -math.inf), "-inf is a float beside"),
        (lambda x, byte, y: cleave.maximum(math.nan, x), "nan is a float beside"),
        (lambda x, byte, y: np.float64(0.5) < x, "0.5 is a float beside"),
        (lambda x, byte, y: (x > 1) & 2, "out of the range of i1"),
        (lambda x, byte, y: (x > 1) == 1.0, "1.0 is a float beside"),
        (lambda x, byte, y: y * 1e39, "too large for f32"),
        (lambda x, byte, y: y.astype("f16") * 1e39, "too large for f32"),
        (lambda x, byte, y: y.astype("f64") * 10**400, "too large for f64"),
    ],
)  # fmt: skip
def test_numbers_that_the_type_has_not(function: Callable[..., Any], message: str) -> None:
    def f(x: i32["m"], byte: i8["m"], y: f32["m"]) -> Any:
        return function(x, byte, y)

    _assert_refused_at(f, function.__code__.co_firstlineno, message)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, i: x[0], "named dims, which are not indexed\nnote: x.slice"),
        (lambda x, i: [row + 1 for row in x], "there are no loops"),
        (lambda x, i: x if 0.0 in x else i, "there are no loops"),
        (lambda x, i: x * len(x), 'cleave.size("m") is the size of one'),
        (lambda x, i: float(x), "is no number\nnote: docs/python.md"),
        (lambda x, i: x * int(i), "is no number"),
        (lambda x, i: list(range(i)), "is no number"),
        (lambda x, i: math.sin(x), "such as cleave.exp"),
        (lambda x, i: x * complex(x), "is no number"),
        (lambda x, i: i % 2, "tensors have no '%'\nnote: integers are divided by '/'"),
        (lambda x, i: 2 % i, "tensors have no '%'"),
        (lambda x, i: i // 2, "tensors have no '//'"),
        (lambda x, i: divmod(i, 2), "tensors have no divmod"),
        (lambda x, i: ~(i > 2), "mask == False"),
        (lambda x, i: (i > 2) ^ (x > 0), "write a != b"),
        (lambda x, i: i << 2, "tensors have no '<<'"),
        (lambda x, i: 1 >> i, "tensors have no '>>'"),
        (lambda x, i: round(x), "rounds toward zero"),
        (lambda x, i: math.floor(x), "rounds toward zero"),
        (lambda x, i: np.asarray(x), "is no array"),
        (lambda x, i: np.where(x > 0, x, 0.0), "np.where takes no tensors of a traced function\nnote: use cleave"),
        (lambda x, i: np.sum(x), "use x.sum(over=...)"),
        (lambda x, i: np.from_dlpack(x), "takes arrays"),
        (lambda x, i: compiled(x), "note: call the plain Python function, as in f.__wrapped__(x)"),
        (lambda x, i: compiled(x=x), "f.__wrapped__(x)"),
        (lambda x, i: compiled(x, i), "f.__wrapped__(x)"),
        (lambda x, i: x.gather(i, "m"), "Tensor([m] i32) is no name of a dim"),
        (lambda x, i: x.gather("m", "m"), "a str is no tensor of the function"),
        (lambda x, i: x.rename(m=5), "5 is no name of a dim"),
        (lambda x, i: x.split(0, "a b"), "0 is no name of a dim"),
        (lambda x, i: x.merge("m", 5), "5 is no name of a dim"),
        (lambda x, i: x.slice("m", 4), "4 is no name of a dim"),
        (lambda x, i: x.slice("m", "e=4", 0.5), "the offset 0.5 is neither"),
        (lambda x, i: x.slice("m", "e=4", -1), "the slice of dimension 'm' starts at -1, below 0"),
        (lambda x, i: x * cleave.index(0), "0 is no name of a dim"),
        (lambda x, i: x * cleave.index("n").astype("f32"), "no tensor has a dim or a size 'n'\nnote: known are m\n"),
        (lambda x, i: cleave.index("n=k+1").astype("f32"), "no tensor has a dim or a size 'k'"),
        (lambda x, i: x / cleave.size("n"), "no tensor has a dim or a size 'n'\nnote: known are m"),
        (lambda x, i: x / cleave.size(5), "5 is no name of a dim"),
        (lambda x, i: x / cleave.size("m +"), "expected a number, a name or '('"),
        (lambda x, i: x / m, "no variable 'm'\nnote: cleave.size(\"m\") is the size"),  # pyright: ignore
        (lambda x, i: x.sum(-1), '-1: names of dims are texts\nnote: dims have names, as in "m n"'),
        (lambda x, i: x.max(), "x.max: missing a required argument: 'over'\nnote: it is x.max(over)"),
        (lambda x, i: x.sum(axis=-1), "no argument 'axis'\nnote: it is x.sum(over)\nnote: dims have names"),
        (lambda x, i: cleave.softmax(x, dim=-1), "cleave.softmax(x, over)\nnote: dims have names"),
        (lambda x, i: x.sum("m", keepdims=True), "note: leave it out: dims are aligned by name"),
        (lambda x, i: cleave.exp(), "cleave.exp: missing a required argument: 'x'\nnote: it is cleave.exp(x)"),
        (lambda x, i: x.rename("m", "n"), 'too many positional arguments\nnote: it is x.rename(old="new")'),
        (lambda x, i: cleave.rms_norm(x, "m", weight=x), "rms_norm(x, over, gain=None, eps=1e-06)\nnote: the gain is"),
        (lambda x, i: x.split(32, dim=1), "multiple values for argument 'dim'\nnote: it is x.split(dim, into)"),
        (lambda x, i: x.__torch_function__(torch("mul"), (), (Torch(), x)), "a torch.Tensor beside a tensor"),
        (lambda x, i: x * Torch(), "a torch.Tensor is neither a tensor nor a number\nnote: make it an argument"),
        (lambda x, i: x.__torch_function__(torch("exp"), (), (x,)), "traced function\nnote: use cleave.exp"),
        (lambda x, i: x.__torch_function__(torch("special_erf"), (), (x,)), "use cleave.erf"),
        (lambda x, i: x.__torch_function__(torch("matmul"), (), (Torch(), x)), "use cleave.contract(x, y, over=...)"),
        (lambda x, i: x.__torch_function__(torch("amax"), (), (x,)), "use x.max(over=...)"),
        (lambda x, i: x.__torch_function__(torch("add"), (), (x, 1)), "note: write an operator, as in x + y"),
        (lambda x, i: x.__torch_function__(torch("stack"), (), (x,)), "docs/python.md lists the functions that do"),
        (lambda x, i: cleave.contract(x, 2.0, over="m"), "a float is no tensor of the function"),
        (lambda x, i: cleave.concat(x, 2.0, "m n", "r"), "a float is no tensor of the function"),
        (lambda x, i: cleave.concat(x, x.rename(m="n"), "m n", 7), "7 is no name of a dim"),
        (lambda x, i: x * cleave.softmax(2.0, "m"), "a float is no tensor of the function"),
        (lambda x, i: x * cleave.logsumexp(2.0, "m"), "a float is no tensor of the function"),
        (lambda x, i: x * cleave.mean(2.0, "m"), "a float is no tensor of the function"),
        (lambda x, i: x * cleave.rms_norm(2.0, "m"), "a float is no tensor of the function"),
        (lambda x, i: cleave.where(x > 0, x, "0"), "a str is neither a tensor nor a number"),
        (lambda x, i: cleave.where(x > 0, x, np.zeros(5)), "an ndarray is neither a tensor nor a number"),
        (lambda x, i: cleave.where(i > 0, i, np.float32(0.5)), "0.5 is a float beside"),
        (lambda x, i: cleave.exp(i), "'exp' needs a floating-point operand, not i32\nnote: x.astype(\"f32\") changes"),
        (lambda x, i: x.softmax("m"), "have no 'softmax'\nnote: it is a function: cleave.softmax(x, over)"),
        (lambda x, i: x.f32, "have no 'f32'\nnote: docs/python.md lists"),
        (lambda x, i: x.astype("float16"), "there is no element type 'float16'; did you mean 'f16'?"),
        (lambda x, i: x.astype(np.float32), "there is no element type 'float32'; did you mean 'f32'?"),
        (lambda x, i: cleave.where(True, x, 0), "the condition is a bool, no tensor"),
        (lambda x, i: cleave.exp(2), "an int is no tensor of the function"),
    ],
)  # fmt: skip
def test_what_tensors_have_not_is_said_at_its_line(function: Callable[..., Any], message: str) -> None:
    def f(x: f32["m=8"], i: i32["m=8"]) -> Any:
        return function(x, i)

    _assert_refused_at(f, function.__code__.co_firstlineno, message)


def _twice(x: f32["m m"]) -> f32["m"]:
    return x.sum("m")


def _result_twice(x: f32["m"]) -> f32["m m=5"]:
    return x


def _unreadable_parameter(x: f32["m n=="]) -> f32["m"]:
    return x.sum("n")


def _two_sizes(x: f32["m k=8"], y: f32["n k=16"]) -> Any:
    return cleave.contract(x, y, over="k")


def _other_size(x: f32["m k=512"]) -> f32["m k=51"]:
    return x


def _other_symbol(x: f32["m k"]) -> f32["m k=m"]:
    return x


def _no_such_size(x: f32["m k"]) -> f32["m k=512"]:
    return x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_two_sizes, "the size 'k' is 8 and 16"),
        (_other_size, "the size of 'k' in the result is 512, its annotation says 51"),
        (_other_symbol, "the size of 'k' in the result is k, its annotation says m"),
        (_no_such_size, "the size of 'k' in the result is k, its annotation says 512"),
        (_twice, "two dims of f32['m m'] are called 'm'"),
        (_result_twice, "two dims of f32['m m=5'] are called 'm'"),
        (_unreadable_parameter, "expected"),
    ],
)
def test_annotations_are_refused_at_the_function(function: Callable[..., Any], message: str) -> None:
    _assert_refused_at(function, function.__code__.co_firstlineno, message)


def _parted(x: f32["m k=512"]) -> f32["m k=512"]:
    return x


def test_sizes_of_results_that_are_so() -> None:
    assert trace(_parted).outputs[0].names == ("m", "k")


def test_a_fact_about_nothing_of_the_function_is_refused() -> None:
    with pytest.raises(CleaveError, match="the fact 'kk = 16\\*k16' is about no size of _parted"):
        trace(_parted, ["kk = 16*k16"])
    assert trace(_parted, ["m = 16*m16"]).facts.texts == ("m = 16*m16",)


def test_an_annotation_that_is_evaluated_at_once_is_refused_where_it_stands() -> None:
    with pytest.raises(CleaveError, match="two dims") as caught:
        f32["k k"]
    assert str(caught.value.location).startswith(f"{__file__}:")


def test_an_offset_that_may_be_below_0_is_required_not_to_be() -> None:
    def f(x: f32["m"], y: f32["k"]) -> f32["e"]:
        return x.slice("m", "e=4", "k - 3") + y.slice("k", "e=4")

    assert "0 <= k - 3" in trace(f).coverage()


def test_dims_stand_apart_by_blanks() -> None:
    with pytest.raises(CleaveError, match=r"by blanks: f32\['m k'\]"):
        f32["m, k"]


_METHODS = [name for name in vars(Tensor) if not name.startswith("_") and callable(getattr(Tensor, name))]


@pytest.mark.parametrize("name", [*cleave._FUNCTIONS, *(f"x.{method}" for method in _METHODS)])  # pyright: ignore[reportPrivateUsage]
def test_arguments_that_a_function_has_not(name: str) -> None:
    def f(x: f32["m"]) -> Any:
        called = getattr(x, name[2:]) if name.startswith("x.") else getattr(cleave, name)
        return called(x, x, x, x, x, x, q=x)  # more than any has

    _assert_refused_at(f, f.__code__.co_firstlineno + 2, f"note: it is {name if '.' in name else f'cleave.{name}'}(")


def test_two_dims_of_one_name() -> None:
    def f(x: f32["m n"], y: f32["m n=k"], z: f32["k"]) -> Any:
        return x.sum("n") + z.sum("k") - y.sum("n")

    _assert_refused_at(f, f.__code__.co_firstlineno, "cannot prove that dimension 'n' has one size: k and")

    def sliced(x: f32["m n"], z: f32["k"]) -> Any:
        part = x.slice("n", "p=k", 0).rename(p="n=k")
        return x.sum("n") - part.sum("n") + z.sum("k")

    _assert_refused_at(sliced, sliced.__code__.co_firstlineno + 1, "cannot prove that dimension 'n' has one size")


def test_a_name_that_is_taken() -> None:
    """No fact makes a slice as long as the dim; another name is what helps."""

    def sliced(x: f32["m n"]) -> Any:
        return x.slice("n", "n=3")

    def counted(x: f32["m n"]) -> Any:
        return x, cleave.index("m=3")

    def added(x: f32["m n"]) -> Any:
        return x + cleave.index("m=3").astype("f32")

    for f, text in (
        (sliced, "another name than 'n' here"),
        (counted, "another name than 'm' here"),
        (added, "another"),
    ):
        _assert_refused_at(f, f.__code__.co_firstlineno + 1, f"note: choose {text}")


def test_functions_of_tensors_take_no_arrays() -> None:
    for function in (lambda x: cleave.exp(x), lambda x: cleave.softmax(x, over="m")):
        with pytest.raises(CleaveError) as caught:
            function(np.zeros(5))
        assert "an ndarray is no tensor of the function that is traced\nnote: make it an argument" in str(caught.value)
