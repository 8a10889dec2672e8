"""Symbolic tensors: what a traced function computes with.

Ops align their operands by name. Arithmetic on floats narrower than f32 gives f32: nothing is rounded but where the
function says ``astype``, or feeds a contraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from cleave.dialects.graph import GraphBuilder, Value
from cleave.dialects.tensor_type import INSERT_CAST, is_float
from cleave.errors import CleaveError, a_kind_of
from cleave.language.annotations import Dtype, dtype_of
from cleave.language.arguments import checked
from cleave.language.places import caller, mlir_location
from cleave.language.refusals import (
    AS_ARGUMENT,
    BOOLEANS_JOINED,
    CHANGE_TYPE,
    DECORATED,
    Refusals,
    no_function_of_numpy,
    no_matmul,
)  # fmt: skip

Names = str | Sequence[str]
"""Of dims: "m n", or a list of them."""
_NARROW = ("f16", "bf16", "f8E4M3FN", "f8E5M2")


@dataclass(frozen=True, eq=False)
class Tensor(Refusals):
    """A tensor of the function that is being traced."""

    builder: GraphBuilder
    value: Value

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the dims, in the order of memory."""
        return self.value.names

    @property
    def dtype(self) -> Dtype:
        return Dtype(self.value.dtype)

    def __repr__(self) -> str:
        return f"Tensor({self.value.type})"

    # --- arithmetic ---

    def __add__(self, other: Any) -> Tensor:
        return pointwise("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return pointwise("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return pointwise("sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return pointwise("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return pointwise("mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return pointwise("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return pointwise("div", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return pointwise("div", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return self * self if isinstance(other, (int, float)) and other == 2 else pointwise("pow", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return pointwise("pow", other, self)

    def __neg__(self) -> Tensor:
        return pointwise("neg", self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return pointwise("abs", self)

    def __and__(self, other: Any) -> Tensor:
        return pointwise("mul", _boolean(self), other)

    def __or__(self, other: Any) -> Tensor:
        return pointwise("max", _boolean(self), other)

    __rand__, __ror__ = __and__, __or__

    # --- comparisons ---

    def __lt__(self, other: Any) -> Tensor:
        return pointwise("cmp", self, other, predicate="lt")

    def __le__(self, other: Any) -> Tensor:
        return pointwise("cmp", self, other, predicate="le")

    def __gt__(self, other: Any) -> Tensor:
        return pointwise("cmp", self, other, predicate="gt")

    def __ge__(self, other: Any) -> Tensor:
        return pointwise("cmp", self, other, predicate="ge")

    def __eq__(self, other: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return pointwise("cmp", self, other, predicate="eq")

    def __ne__(self, other: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return pointwise("cmp", self, other, predicate="ne")

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> Tensor:
        """NumPy's operators beside a tensor are the tensor's own; CleaveError for its other functions."""
        name = str(ufunc.__name__)
        if method == "__call__" and name in _OPERATORS:
            op, attrs = _OPERATORS[name]
            return pointwise(op, *inputs, **attrs)
        raise no_matmul() if name == "matmul" else no_function_of_numpy(name, method)

    @checked
    def equals(self, other: Any) -> Tensor:
        """The same as ``==``."""
        return self == other

    def __bool__(self) -> bool:
        notes = _USE_WHERE, BOOLEANS_JOINED
        raise CleaveError("a tensor has no truth value while a function is traced", caller(), notes)

    # --- reductions ---

    @checked
    def sum(self, over: Names) -> Tensor:
        return self._reduce("sum", over)

    @checked
    def max(self, over: Names) -> Tensor:
        return self._reduce("max", over)

    @checked
    def min(self, over: Names) -> Tensor:
        return self._reduce("min", over)

    @checked
    def prod(self, over: Names) -> Tensor:
        return self._reduce("prod", over)

    def _reduce(self, kind: str, over: Names) -> Tensor:
        return apply("reduce", widened(self), kind=kind, over=names_in(over))

    # --- shape and type ---

    @checked
    def astype(self, dtype: Dtype | str) -> Tensor:
        """Rounded to ``dtype``: before a contraction the type that is multiplied, elsewhere a rounding that stays."""
        return self if self.value.dtype == dtype_of(dtype) else apply("cast", self, dtype=dtype_of(dtype))

    @checked
    def rename(self, **names: str) -> Tensor:
        """``x.rename(m="n")``: the dim m under the name n; the same tensor in another role."""
        tensor = self
        for old, new in names.items():
            tensor = apply("rename", tensor, from_=old, to=name_in(new))
        return tensor

    @checked
    def split(self, dim: str, into: Names) -> Tensor:
        """``x.split("h", "kv g=4")``: one dim as two, the second one's size dividing it or not."""
        return apply("split", self, dim=name_in(dim), into=names_in(into))

    @checked
    def merge(self, dims: Names, into: str) -> Tensor:
        """``x.merge("kv g", "h")``: dims as one, row-major; ``into`` may say the size, as in "h=kv*g"."""
        merged = names_in(dims)
        name, sizes = name_in(into).partition("=")[0], "*".join(f"({self._size(dim)})" for dim in merged)
        return apply("merge", self, dims=merged, into=into if "=" in into else f"{name}={sizes}")

    @checked
    def slice(self, dim: str, into: str, offset: str | int = 0) -> Tensor:
        """``x.slice("d", "e=32", offset=32)``: a part of a dim, from an offset that may be a size expression."""
        if not isinstance(offset, (str, int)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CleaveError(f"the offset {offset!r} is neither an integer nor a text", caller(), ('as in "n - 4"',))
        return apply("slice", self, dim=name_in(dim), into=name_in(into), offset=str(offset))

    @checked
    def gather(self, dim: str, indices: Tensor) -> Tensor:
        """The elements at ``indices`` along ``dim``, whose dims take its place."""
        return apply("gather", self, indices, dim=name_in(dim))

    def _size(self, dim: str) -> str:
        return str(self.value.size(dim))


_USE_WHERE = "where(condition, a, b) chooses element by element"
_COMPARISONS = {
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
}  # fmt: skip
_OPERATORS: dict[str, tuple[str, dict[str, str]]] = {
    **{name: (op, {}) for name, op in {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div"}.items()},
    **{name: ("cmp", {"predicate": predicate}) for name, predicate in _COMPARISONS.items()},
}
"""NumPy's names of the operators that a number or an array may stand before."""


def names_in(dims: Names) -> list[str]:
    """CleaveError, at the line of the function that is traced, for what are no names."""
    names: Any = dims.split() if isinstance(dims, str) else dims
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in cast(Sequence[Any], names)):
        raise CleaveError(f"{dims!r}: names of dims are texts", caller(), ('dims have names, as in "m n"',))
    return list(cast(Sequence[str], names))


def name_in(dim: str) -> str:
    """CleaveError, at the line of the function that is traced, for what is no text."""
    if not isinstance(dim, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CleaveError(f"{dim!r} is no name of a dim", caller(), ('as in "m"',))
    return dim


def require_tensors(*operands: Any) -> None:
    for operand in operands:
        if not isinstance(operand, Tensor):
            raise _no_tensor(operand)


def _no_tensor(operand: Any) -> CleaveError:
    notes = (DECORATED,) if hasattr(operand, "shape") else ()
    return CleaveError(f"{a_kind_of(operand)} is no tensor of the function that is traced", caller(), notes)


def apply(op: str, *operands: Tensor, dtype: str | None = None, **attrs: Any) -> Tensor:
    """One op of the dialect; CleaveError where its operands do not fit."""
    require_tensors(*operands)
    builder, location = operands[0].builder, caller()
    if any(operand.builder is not builder for operand in operands):
        raise CleaveError("tensors of two different functions are combined", location)
    values = [operand.value for operand in operands]
    try:
        return Tensor(builder, builder.op(op, *values, dtype=dtype, location=mlir_location(location), **attrs))
    except CleaveError as error:
        if INSERT_CAST not in error.notes:
            raise
        raise CleaveError(f"'{op}' {error.message}", location, (CHANGE_TYPE,)) from None


def pointwise(op: str, *operands: Any, **attrs: Any) -> Tensor:
    """An op on elements; numbers become constants, narrow floats are widened to f32."""
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    if not tensors:
        raise _no_tensor(operands[0])
    common = _common([tensor.value.dtype for tensor in tensors])
    return apply(op, *(as_tensor(operand, tensors[0].builder, common) for operand in operands), **attrs)


def widened(tensor: Tensor) -> Tensor:
    """In f32, if it was narrower."""
    require_tensors(tensor)
    return tensor.astype("f32") if tensor.value.dtype in _NARROW else tensor


def constant(builder: GraphBuilder, value: float, dtype: str) -> Tensor:
    """CleaveError for a number that is none of the type: too large, or no integer where the type is of integers."""
    try:
        return Tensor(builder, builder.constant(value, dtype))
    except CleaveError as error:
        raise error.at(caller()) from None


def common_type(*tensors: Tensor) -> str:
    """The element type in which an op on these tensors computes."""
    return _common([tensor.value.dtype for tensor in tensors])


def _common(dtypes: Sequence[str]) -> str:
    found = list(dict.fromkeys("f32" if dtype in _NARROW else dtype for dtype in dtypes))
    floats = [dtype for dtype in found if is_float(dtype)]
    if len(found) > 1 and len(floats) == len(found):
        return "f64" if "f64" in found else "f32"
    if len(found) > 1:
        note = BOOLEANS_JOINED if "i1" in found else "use astype on one of them"
        raise CleaveError(f"elements of {' and '.join(found)} do not mix", caller(), (note,))
    return found[0]


def as_tensor(operand: Any, builder: GraphBuilder, dtype: str) -> Tensor:
    """A tensor or a number, be it one of NumPy's, in the type."""
    if isinstance(operand, Tensor):
        return operand.astype(dtype)
    number = operand.item() if getattr(operand, "shape", None) == () else operand
    if isinstance(number, (bool, int, float)):
        return constant(builder, number, dtype)
    notes = (AS_ARGUMENT,) if hasattr(operand, "shape") else ()
    raise CleaveError(f"{a_kind_of(operand)} is neither a tensor nor a number", caller(), notes)


def _boolean(tensor: Tensor) -> Tensor:
    if tensor.value.dtype != "i1":
        text = f"& and | are for booleans, not {tensor.value.dtype}"
        raise CleaveError(text, caller(), (BOOLEANS_JOINED,))
    return tensor
