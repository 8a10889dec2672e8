"""Calls whose arguments do not fit: CleaveErrors with the arguments there are, in place of Python's TypeErrors."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from cleave.errors import CleaveError

_P = ParamSpec("_P")
_T = TypeVar("_T")


def checked(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """The function; CleaveError for arguments that it has not, and for sizes by name that are none."""
    signature = inspect.signature(function)
    has_sizes = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())

    @functools.wraps(function)
    def call(*values: _P.args, **named: _P.kwargs) -> _T:
        try:
            given = signature.bind(*values, **named)
        except TypeError as error:
            raise _misfit(function, signature, str(error), named) from None
        if has_sizes:
            from cleave.runtime.call import check_sizes

            check_sizes(given.arguments.get("sizes", {}))
        return function(*values, **named)

    return call


def check_options(superopt: Any, schedule: Any, tuned: Any, **choices: Any) -> None:
    """CleaveError for options of a function that are none; ``choices`` may be None, where the compiler decides.

    A file of tuning results need not be there yet.
    """
    if not isinstance(superopt, bool):
        raise CleaveError(f"superopt={superopt!r}: either True or False")
    for name, choice in choices.items():
        if not (choice is None or isinstance(choice, bool)):
            raise CleaveError(f"{name}={choice!r}: True, False or None")
    if not (schedule is None or isinstance(schedule, Mapping)):
        notes = ('as in schedule={"split": False}; cleave-opt --list-passes has the options of cleave-schedule',)
        raise CleaveError(f"schedule={schedule!r}: a dictionary of options", notes=notes)
    if not (tuned is None or isinstance(tuned, (str, os.PathLike))):
        raise CleaveError(f"tuned={tuned!r}: the path of a file of tuning results")
    if tuned and os.path.exists(tuned):
        from cleave.tuner.store import check_kind

        check_kind(tuned)


def _misfit(function: Callable[..., Any], signature: inspect.Signature, problem: str, named: Any) -> CleaveError:
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    called = f"f.{function.__name__}" if "." in function.__qualname__ else f"cleave.{function.__name__}"
    unknown = [name for name in named if name not in known]
    if not unknown or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return CleaveError(f"{called}: {problem}", notes=(f"it is {called}({', '.join(map(_written, parameters))})",))
    near = "".join(f"; did you mean {each}?" for each in difflib.get_close_matches(unknown[0], known, 1))
    text = f"{called} has no argument '{unknown[0]}'{near}"
    return CleaveError(text, notes=(f"its arguments: {', '.join(known)}",))


def _written(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_KEYWORD:
        return "m=16"
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL)
    return stars + parameter.name + (f"={parameter.default!r}" if parameter.default is not parameter.empty else "")
