"""What traced functions call beside the operators of tensors. All align their operands by name."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from cleave.dialects.dims import Dim, Size, parse
from cleave.dialects.graph import GraphBuilder
from cleave.dialects.tensor_type import is_float
from cleave.errors import CleaveError, a_kind_of
from cleave.language.annotations import Dtype, dtype_of
from cleave.language.arguments import checked
from cleave.language.places import caller, mlir_location
from cleave.language.tensor import (
    Names,
    Tensor,
    apply,
    as_tensor,
    common_type,
    constant,
    name_in,
    names_in,
    pointwise,
    require_tensors,
    widened,
)  # fmt: skip
from cleave.language.trace import current_builder

_TENSOR_CORE = ("f16", "bf16", "f8E4M3FN", "f8E5M2", "tf32")


@checked
def exp(x: Tensor) -> Tensor:
    return pointwise("exp", x)


@checked
def exp2(x: Tensor) -> Tensor:
    return pointwise("exp2", x)


@checked
def log(x: Tensor) -> Tensor:
    return pointwise("log", x)


@checked
def sqrt(x: Tensor) -> Tensor:
    return pointwise("sqrt", x)


@checked
def rsqrt(x: Tensor) -> Tensor:
    return pointwise("rsqrt", x)


@checked
def tanh(x: Tensor) -> Tensor:
    return pointwise("tanh", x)


@checked
def erf(x: Tensor) -> Tensor:
    return pointwise("erf", x)


@checked
def sin(x: Tensor) -> Tensor:
    return pointwise("sin", x)


@checked
def cos(x: Tensor) -> Tensor:
    return pointwise("cos", x)


@checked
def sigmoid(x: Tensor) -> Tensor:
    return pointwise("sigmoid", x)


@checked
def absolute(x: Tensor) -> Tensor:
    return pointwise("abs", x)


@checked
def maximum(a: Any, b: Any) -> Tensor:
    return pointwise("max", a, b)


@checked
def minimum(a: Any, b: Any) -> Tensor:
    return pointwise("min", a, b)


@checked
def where(condition: Tensor, a: Any, b: Any) -> Tensor:
    """``a`` where the condition holds, ``b`` elsewhere; the operand that is not taken does not matter, be it NaN."""
    if not isinstance(condition, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CleaveError(
            f"the condition is {a_kind_of(condition)}, no tensor of the function that is traced", caller()
        )
    tensors = [x for x in (a, b) if isinstance(x, Tensor)]
    dtype = common_type(*tensors) if tensors else "f32"
    return apply("select", condition, *(as_tensor(x, condition.builder, dtype) for x in (a, b)))


@checked
def contract(a: Tensor, b: Tensor, over: Names) -> Tensor:
    """Sum of products over dims that both or one of them has, in f32 (f64 for f64).

    An operand in f32 beside one in f16 or bf16 is fed to the tensor cores in the narrow type; ``astype`` decides
    otherwise.
    """
    require_tensors(a, b)
    types = {a.value.dtype, b.value.dtype}
    narrow = [dtype for dtype in _TENSOR_CORE if dtype in types]
    if len(types) > 1 and len(narrow) == 1 and types <= {"f32", *narrow}:
        a, b = a.astype(narrow[0]), b.astype(narrow[0])
    elif len(types) > 1:
        raise CleaveError(f"{' and '.join(sorted(types))} do not mix in a contraction", caller(), ("use astype",))
    return apply("contract", a, b, over=names_in(over), dtype="f64" if "f64" in types else "f32")


@checked
def index(dim: str, dtype: Dtype | str = "i32") -> Tensor:
    """0, 1, 2, … along a dim that an argument or another tensor has, as integers; ``"k=n+1"`` is a new one.

    CleaveError for a name or a symbol that nothing has: ``"k=k"`` is a dim whose size calls give.
    """
    builder = current_builder()
    attrs = {"dim": _spelt(builder, name_in(dim)), "dtype": dtype_of(dtype)}
    return Tensor(builder, builder.op("index", location=mlir_location(caller()), **attrs))


@checked
def size(of: str, dtype: Dtype | str = "f32") -> Tensor:
    """The size of a dim, or an expression over sizes (``"m*n"``, ``"ceildiv(n, 4)"``), as a tensor without dims.

    CleaveError for a name or a symbol that nothing has.
    """
    builder = current_builder()
    known, text = builder.known_dims(), name_in(of)
    measured = known.get(text) or _fresh(parse(text), known)
    _require_known(builder, measured.size.symbols, ())
    return _as_number(builder, measured, dtype_of(dtype))


def _fresh(measured: Size, known: Mapping[str, Dim]) -> Dim:
    """A dim of this size, by a name of its own."""
    names = (f"counted{number}" for number in itertools.count(1))
    return Dim(next(name for name in names if name not in known), measured)


def _spelt(builder: GraphBuilder, text: str) -> str:
    """The dim with its size."""
    known = builder.known_dims()
    if text in known:
        return str(known[text])
    parsed = Dim.parse(text)
    own = {parsed.name} if "=" in text else set[str]()
    note = f'cleave.index("{parsed.name}={parsed.name}") has a size that calls give'
    _require_known(builder, parsed.size.symbols - own, (note,))
    return text


def _require_known(builder: GraphBuilder, symbols: AbstractSet[str], notes: tuple[str, ...]) -> None:
    known = builder.known_symbols()
    if unknown := symbols - known:
        names = ", ".join(sorted({*builder.known_dims(), *known}))
        raise CleaveError(f"no tensor has a dim or a size '{min(unknown)}'", caller(), (f"known are {names}", *notes))


@checked
def concat(a: Tensor, b: Tensor, dims: Names, into: str) -> Tensor:
    """``concat(x, y, "n1 n2", "n=n1+n2")``: the dims one after the other."""
    require_tensors(a, b)
    names = names_in(dims)
    if len(names) != 2:
        raise CleaveError(f"concat joins two dims, not {len(names)}", caller(), ('as in concat(x, y, "n1 n2", "n")',))
    first, second = names
    size = f"{into}={a.value.size(first)}+{b.value.size(second)}" if "=" not in name_in(into) else into
    return apply("concat", a, b, dims=[first, second], into=size)


# --- what is made of these -------------------------------------------------------------------------------------------


@checked
def softmax(x: Tensor, over: Names) -> Tensor:
    """exp(x − max x) / Σ exp(x − max x)."""
    require_tensors(x)
    e = exp(x - x.max(over))
    return e / e.sum(over)


@checked
def logsumexp(x: Tensor, over: Names) -> Tensor:
    require_tensors(x)
    top = x.max(over)
    return top + log(exp(x - top).sum(over))


@checked
def mean(x: Tensor, over: Names) -> Tensor:
    require_tensors(x)
    return x.sum(over) / _count(x, over)


@checked
def variance(x: Tensor, over: Names) -> Tensor:
    """Of the whole population, in two passes."""
    centred = widened(x) - mean(x, over)
    return mean(centred * centred, over)


@checked
def rms_norm(x: Tensor, over: Names, gain: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """x / √(mean x² + eps), times the gain if there is one."""
    scaled = x * rsqrt(mean(widened(x) * x, over) + eps)
    return scaled if gain is None else scaled * gain


@checked
def layer_norm(
    x: Tensor, over: Names, gain: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """(x − mean) / √(variance + eps), times the gain, plus the bias."""
    scaled = (x - mean(x, over)) * rsqrt(variance(x, over) + eps)
    scaled = scaled if gain is None else scaled * gain
    return scaled if bias is None else scaled + bias


@checked
def relu(x: Tensor) -> Tensor:
    return maximum(x, 0)


@checked
def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


@checked
def gelu(x: Tensor) -> Tensor:
    """With the error function."""
    return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)


def _count(x: Tensor, over: Names) -> Tensor:
    """The number of elements along dims, f32."""
    sizes = [_as_number(x.builder, Dim(name, x.value.size(name)), "f32") for name in names_in(over)]
    return functools.reduce(lambda total, extent: total * extent, sizes)


def _as_number(builder: GraphBuilder, dim: Dim, dtype: str) -> Tensor:
    """A static size as a number, a dynamic one counted."""
    if dim.size.symbols <= builder.extents.keys():
        extent = dim.size.evaluate(builder.extents)
        return constant(builder, float(extent) if is_float(dtype) else extent, dtype)
    builder.made.setdefault(dim.name, dim)
    return Tensor(builder, builder.constant(1, dtype, (dim,))).sum(dim.name)
