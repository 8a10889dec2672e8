"""Arrays of f64 as a domain of the checks' interpreter: exact for f64, or rounded as the declared types say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import is_float
from cleave.search.interpret import Unsupported


class FloatDomain:
    """f64 arrays; in the ``declared`` types every result is rounded as its type says.

    ``overflowed``: whether a finite number became infinite by that.
    """

    def __init__(self, declared: bool) -> None:
        self.declared, self.overflowed = declared, False

    def constant(self, value: float | int, dtype: str) -> Any:
        import numpy as np

        if is_float(dtype):
            return round_to(np.asarray(value, dtype=np.float64), dtype)
        return np.asarray(value, dtype=bool if dtype == "i1" else np.int64)

    def positions(self, count: int, dtype: str) -> Any:
        import numpy as np

        return np.arange(count)

    def pointwise(self, value: Value, args: Sequence[Any]) -> Any:
        import numpy as np

        if value.op == "cast":
            return args[0].astype(np.float64 if is_float(value.dtype) else bool if value.dtype == "i1" else np.int64)
        if value.op == "cmp":
            return _COMPARISONS[value.attrs["predicate"]](np)(*args)
        if value.op == "select":
            return np.where(*args)
        if value.dtype == "i1":
            return np.logical_and(*args) if value.op in ("mul", "min") else np.logical_or(*args)
        if value.op == "div" and not is_float(value.dtype):
            return np.trunc(args[0] / args[1]).astype(np.int64)
        return _FUNCTIONS[value.op](np)(*args)

    def contract(self, factors: Sequence[Any], axes: tuple[int, ...], valid: Any, value: Value) -> Any:
        import numpy as np

        return self.reduce("sum", np.multiply(*factors), axes, valid, value)

    def reduce(self, kind: str, array: Any, axes: tuple[int, ...], valid: Any, value: Value) -> Any:
        import numpy as np

        neutral: Any
        function: Any
        if value.dtype == "i1":
            neutral, function = (True, np.all) if kind in ("min", "prod") else (False, np.any)
        else:
            least, most = (-np.inf, np.inf) if array.dtype.kind not in "iu" else _limits(array.dtype)
            neutral, function = {
                "sum": (0, np.sum),
                "prod": (1, np.prod),
                "max": (least, np.max),
                "min": (most, np.min),
            }[kind]
        if valid is not None:
            array = np.where(valid, array, neutral)
        if kind in ("max", "min") and value.dtype != "i1":
            return function(array, axis=axes, initial=neutral)
        return function(array, axis=axes)

    def rounded(self, array: Any, value: Value, transparent: bool) -> Any:
        import numpy as np

        if not self.declared or not is_float(value.dtype):
            return array
        result = round_to(array, value.dtype)
        self.overflowed = self.overflowed or bool(np.any(np.isinf(result) & np.isfinite(array)))
        return result


def round_to(array: Any, dtype: str) -> Any:
    """f64 values rounded to nearest even as the type would hold them."""
    import numpy as np

    if dtype == "f64":
        return array
    single = np.asarray(array, dtype=np.float64).astype(np.float32)
    if dtype == "f32":
        return single.astype(np.float64)
    if dtype == "f16":
        return np.asarray(array, dtype=np.float64).astype(np.float16).astype(np.float64)
    bits = {"bf16": 16, "tf32": 13}.get(dtype)
    if bits is None:
        raise Unsupported(f"'{dtype}' is not rounded here")
    raw = single.view(np.uint32)
    half = np.uint32((1 << (bits - 1)) - 1) + ((raw >> np.uint32(bits)) & np.uint32(1))
    cut = ((raw + half) & np.uint32(0xFFFFFFFF ^ ((1 << bits) - 1))).view(np.float32)
    return np.where(np.isfinite(single), cut, single).astype(np.float64)


def _erf(np: Any) -> Callable[[Any], Any]:
    import math

    return np.vectorize(math.erf, otypes=[float])


_COMPARISONS: Mapping[str, Callable[[Any], Any]] = {
    "lt": lambda np: np.less,
    "le": lambda np: np.less_equal,
    "eq": lambda np: np.equal,
    "ne": lambda np: np.not_equal,
    "gt": lambda np: np.greater,
    "ge": lambda np: np.greater_equal,
}


def _limits(dtype: Any) -> tuple[int, int]:
    import numpy as np

    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "neg": lambda np: np.negative,
    "exp": lambda np: np.exp,
    "exp2": lambda np: np.exp2,
    "log": lambda np: np.log,
    "sqrt": lambda np: np.sqrt,
    "rsqrt": lambda np: lambda x: 1.0 / np.sqrt(x),
    "tanh": lambda np: np.tanh,
    "erf": _erf,
    "sin": lambda np: np.sin,
    "cos": lambda np: np.cos,
    "sigmoid": lambda np: lambda x: 1.0 / (1.0 + np.exp(-x)),
    "abs": lambda np: np.abs,
    "add": lambda np: np.add,
    "sub": lambda np: np.subtract,
    "mul": lambda np: np.multiply,
    "div": lambda np: np.divide,
    "max": lambda np: np.maximum,
    "min": lambda np: np.minimum,
    "pow": lambda np: np.power,
}
