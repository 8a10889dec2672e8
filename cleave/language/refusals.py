"""What Python does with arrays and numbers, and tensors have not while a function is traced: errors that say so."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from cleave.errors import CleaveError, a_kind_of
from cleave.language.places import caller

_REDUCTIONS = {"add": "sum", "maximum": "max", "minimum": "min", "multiply": "prod"}
"""By NumPy's function whose ``reduce`` it is."""
_PRODUCT = "cleave.contract(x, y, over=...) with the names of the dims that are summed"
_CLAMPED = "cleave.maximum and cleave.minimum"
_CALLED_OTHERWISE = {
    **dict.fromkeys(("matmul", "mm", "bmm", "einsum", "linear", "dot", "tensordot", "inner"), _PRODUCT),
    **dict.fromkeys(("clamp", "clip"), _CLAMPED),
    **dict.fromkeys(("cat", "concat", "concatenate"), 'cleave.concat(x, y, "p q", "n")'),
    "abs": "cleave.absolute",
    "amax": "x.max(over=...) with the names of the dims",
    "amin": "x.min(over=...) with the names of the dims",
    "var": "cleave.variance",
}
"""What other libraries' functions are here, where the name is another one."""
OTHER_DTYPES = {
    "float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32", "float64": "f64",
    "double": "f64", "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2", "bool": "i1", "int8": "i8", "int16": "i16",
    "int32": "i32", "int": "i32", "int64": "i64", "long": "i64",
}  # fmt: skip
"""What NumPy and PyTorch call element types."""
_OPERATORS_OF_TORCH = ("add", "sub", "mul", "div", "true_divide", "pow", "rsub", "lt", "le", "gt", "ge", "eq", "ne")
_PARTS = "x.slice(...) takes a part of a dim, x.gather(...) the elements at positions"
_FUNCTIONS = "docs/python.md lists the functions of tensors, such as cleave.exp"
_REMAINDER = "integers are divided by '/', toward zero: the remainder is x - x / n * n"
_SHIFT = "multiply or divide by a power of two"
_ROUND = 'astype("i32") rounds toward zero'
_BY_NAME = "dims are found by name, wherever they stand: rename, split and merge make others"
_SIZES = 'x.dims has the names of dims, cleave.size("m") is the size of one, cleave.size("m*n") of two'
CHANGE_TYPE = 'x.astype("f32") changes the type'
_ATTRIBUTES = {
    **dict.fromkeys(("T", "mT", "transpose", "permute", "view", "reshape", "flatten", "swapaxes"), _BY_NAME),
    **dict.fromkeys(("unsqueeze", "squeeze", "expand", "broadcast_to"), "ops broadcast along dims that they have not"),
    **dict.fromkeys(("shape", "size", "ndim", "numel"), _SIZES),
    **dict.fromkeys(("float", "half", "bfloat16", "double", "to", "type", "int", "bool"), CHANGE_TYPE),
}
"""What arrays of other libraries have, and what does it here."""
_INLINE = "call the plain Python function, as in f.__wrapped__(x): it adds its ops, and no rounding of its annotation"


def no_matmul() -> CleaveError:
    text = "tensors have no '@': it does not say which of the named dims is summed"
    return CleaveError(text, caller(), ("write contract(x, y, over=...) with the names of the dims",))


def no_function_of_numpy(name: str, method: str = "") -> CleaveError:
    return CleaveError(f"np.{name} takes no tensors of a traced function", caller(), (_instead_of(name, method),))


def no_function_of_torch(name: str, operands: Sequence[Any]) -> CleaveError:
    """For a function that was called with these, of which some are tensors of a traced function."""
    plain = name.removeprefix("special_")
    others = [operand for operand in operands if type(operand).__module__.partition(".")[0] == "torch"]
    if others and (name.startswith("__") or name in _OPERATORS_OF_TORCH):
        return CleaveError(f"{a_kind_of(others[0])} beside a tensor of a traced function", caller(), (AS_ARGUMENT,))
    note = "write an operator, as in x + y" if name in _OPERATORS_OF_TORCH else _instead_of(plain)
    return CleaveError(f"torch.{name} takes no tensors of a traced function", caller(), (note,))


class NoAttribute(CleaveError, AttributeError):
    """What ``hasattr`` takes for an answer."""


BOOLEANS_JOINED = "comparisons are joined by & and |, each in parentheses: (a <= b) & (c > 3)"
AS_ARGUMENT = "make it an argument of the function"
DECORATED = "make it an argument of a function that cleave.jit decorates"


def _as_function(name: str) -> str:
    """How a function of the module is called; empty if it is none."""
    import cleave
    from cleave.language import functions
    from cleave.language.arguments import written

    function = getattr(functions, name, None) if name in cleave.__all__ else None
    return f"it is a function: {written(name, inspect.signature(function))}" if function else ""


def other_name(name: str) -> str:
    """What something is called here that the module has not: ``; did you mean f16?``; empty where nothing is near."""
    import cleave

    if name in _CALLED_OTHERWISE:
        return f"; use {_CALLED_OTHERWISE[name]}"
    near = [OTHER_DTYPES[name]] if name in OTHER_DTYPES else difflib.get_close_matches(name, cleave.__all__, 1)
    return "".join(f"; did you mean {each}?" for each in near)


def _instead_of(name: str, method: str = "") -> str:
    import cleave

    if name in _CALLED_OTHERWISE:
        return f"use {_CALLED_OTHERWISE[name]}"
    if method == "reduce" and name in _REDUCTIONS:
        return f"use x.{_REDUCTIONS[name]}(over=...) with the names of the dims"
    if name in ("sum", "max", "min", "prod"):
        return f"use x.{name}(over=...) with the names of the dims"
    return f"use cleave.{name}" if name in cleave.__all__ else "docs/python.md lists the functions that do"


def _refused(text: str, note: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise CleaveError(text, caller(), (note,))

    return refuse


def _no_operator(symbol: str, note: str) -> Callable[..., NoReturn]:
    return _refused(f"tensors have no '{symbol}'", note)


class Refusals:
    """The methods behind that syntax and those functions."""

    __getitem__ = _refused("a tensor has named dims, which are not indexed", _PARTS)
    __setitem__ = _refused("a tensor does not change", "where(condition, a, b) makes another one")
    __iter__ = _refused(
        "a tensor has named dims, through which there are no loops", f"ops take whole tensors; {_PARTS}"
    )
    __len__ = _refused("a tensor has a size for each dim, and none is known here", _SIZES)
    __float__ = __int__ = __index__ = __complex__ = _refused("a tensor of a traced function is no number", _FUNCTIONS)
    __mod__ = __rmod__ = _no_operator("%", _REMAINDER)
    __floordiv__ = __rfloordiv__ = _no_operator("//", "integers are divided by '/', toward zero")
    __divmod__ = __rdivmod__ = _refused("tensors have no divmod", _REMAINDER)
    __invert__ = _no_operator("~", "write the opposite comparison, or mask == False")
    __xor__ = __rxor__ = _no_operator("^", "write a != b, of booleans too")
    __lshift__ = __rlshift__ = _no_operator("<<", _SHIFT)
    __rshift__ = __rrshift__ = _no_operator(">>", _SHIFT)
    __round__ = __trunc__ = __floor__ = __ceil__ = _refused("tensors have no rounding to integers as floats", _ROUND)
    __array__ = _refused("a tensor of a traced function is no array: it has no elements yet", _FUNCTIONS)
    __dlpack__ = __dlpack_device__ = _refused(
        "a compiled function takes arrays: a tensor of a function that is being traced has no elements yet", _INLINE
    )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # which Python and other libraries ask for
            raise AttributeError(name)
        note = _ATTRIBUTES.get(name) or _as_function(name) or _FUNCTIONS
        raise NoAttribute(f"tensors of a traced function have no '{name}'", caller(), (note,))

    def __matmul__(self, other: Any) -> NoReturn:
        raise no_matmul()

    __rmatmul__ = __matmul__

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        raise no_function_of_numpy(str(function.__name__))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, operands: Sequence[Any] = (), *_: Any) -> NoReturn:
        raise no_function_of_torch(str(getattr(function, "__name__", function)), operands)
