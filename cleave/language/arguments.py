"""Calls whose arguments do not fit: errors at the line of the function that is traced, with the arguments there are."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from cleave.errors import CleaveError
from cleave.language.places import caller

P = ParamSpec("P")
R = TypeVar("R")

_NAMED = 'dims have names: over="m" says which'
_ALIGNED = "leave it out: dims are aligned by name, a result broadcasts without those that were reduced"
_RESULT = "leave it out: a function returns its result"
_WIDE = 'leave it out: sums are accumulated in f32 or wider, and x.astype("f16") rounds the result'
_OF_OTHERS = {
    **dict.fromkeys(("axis", "axes", "dim", "dims", "normalized_shape"), _NAMED),
    **dict.fromkeys(("keepdim", "keepdims"), _ALIGNED),
    **dict.fromkeys(("out", "inplace"), _RESULT),
    "dtype": _WIDE,
    **dict.fromkeys(("where", "mask"), "cleave.where(condition, x, 0) chooses the elements"),
    "weight": "the gain is a tensor: gain=w",
    **dict.fromkeys(("ddof", "correction", "unbiased"), "leave it out: the variance is that of the whole population"),
    "approximate": "leave it out: gelu is the one with the error function",
    "index": "the positions are a tensor of integers: indices=rows",
    **dict.fromkeys(("x", "y", "other", "input"), "a tensor may stand without a name, in the order above"),
}
"""What NumPy and PyTorch call arguments that are other ones here, or none."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function of the language, with CleaveError in place of Python's TypeError for arguments that do not fit."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise _misfit(function.__name__, signature, str(error), kwargs) from None
        return function(*args, **kwargs)

    return call


def _misfit(name: str, signature: inspect.Signature, problem: str, given: Iterable[str]) -> CleaveError:
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    called = f"x.{name}" if len(parameters) < len(signature.parameters) else f"cleave.{name}"
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    unknown = [] if open_ended else [key for key in given if key not in signature.parameters]
    text = f"there is no argument '{unknown[0]}'" if unknown else problem
    notes = dict.fromkeys(_OF_OTHERS[key] for key in unknown if key in _OF_OTHERS)
    return CleaveError(f"{called}: {text}", caller(), (f"it is {_call(called, parameters)}", *notes))


def written(name: str, signature: inspect.Signature) -> str:
    """How a function of the module is called."""
    return _call(f"cleave.{name}", signature.parameters.values())


def _call(called: str, parameters: Iterable[inspect.Parameter]) -> str:
    return f"{called}({', '.join(map(_written, parameters))})"


def _written(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_KEYWORD:
        return 'old="new"'
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"
