"""The front ends: ``jit`` makes a ``Function`` of a Python function, ``compile`` of MLIR or a graph."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from cleave.arguments import checked
from cleave.dialects.graph import Graph
from cleave.errors import CleaveError, a_kind_of
from cleave.function import Function, Sizes
from cleave.language.places import caller

if TYPE_CHECKING:
    from cleave.bindings import ir

_P = ParamSpec("_P")
_T = TypeVar("_T")


@checked
def jit(
    function: Callable[..., Any] | None = None,
    *,
    facts: Sequence[str] = (),
    empty_rows: Literal["zero"] | None = None,
    sizes: Sequence[Sizes] = (),
    static: str | Sequence[str] = "",
    superopt: bool = True,
    schedule: Mapping[str, Any] | None = None,
    tuned: str | os.PathLike[str] | None = None,
    warp_specialise: bool | None = None,
    library: bool | None = None,
) -> Any:
    """Decorate a function whose parameters are annotated with tensor types: it becomes a ``Function``.

        @cleave.jit
        def attention(q: f16["h m d"], k: f16["h n d"], v: f16["h n e"]) -> f16: ...

    ``facts`` on sizes, such as "n = 16*n16"; ``empty_rows="zero"``: softmax rows without an unmasked key are 0, and not
    NaN (docs/semantics.md); ``sizes``, ``static`` ("d e") and the others as in ``Function``.
    """
    options = {
        "sizes": sizes,
        "static": _at(caller(), _names, static),
        "superopt": superopt,
        "schedule": schedule,
        "tuned": tuned,
        "warp_specialise": warp_specialise,
        "library": library,
    }
    decorate = functools.partial(_traced, facts=facts, empty_rows=_at(caller(), _is_zero, empty_rows), options=options)
    return decorate if function is None else decorate(function)


def _traced(
    function: Callable[..., Any], facts: Sequence[str], empty_rows: bool, options: Mapping[str, Any]
) -> Function:
    from cleave.language.trace import parameter_names, place_of_function, trace
    from cleave.lowering.source import graph_text

    if not inspect.isfunction(function):
        raise CleaveError(f"{a_kind_of(function)} is no function to trace", caller())
    text, names = graph_text(trace(function, facts), empty_rows=empty_rows), parameter_names(function)
    where = place_of_function(function)
    made = _at(where, Function, text, name=function.__name__, arguments=names, **options)
    functools.update_wrapper(made, function)
    return made


@checked
def compile(
    source: Graph | ir.Module | str | os.PathLike[str],
    function: str | None = None,
    *,
    facts: Sequence[str] = (),
    empty_rows: Literal["zero"] | None = None,
    sizes: Sequence[Sizes] = (),
    static: str | Sequence[str] = "",
    superopt: bool = True,
    schedule: Mapping[str, Any] | None = None,
    tuned: str | os.PathLike[str] | None = None,
    warp_specialise: bool | None = None,
    library: bool | None = None,
) -> Function:
    """A ``Function`` from a graph, an MLIR module (linalg on tensors or our dialect), its text, or a file of it.

    ``function`` chooses one of several; ``facts`` and ``empty_rows``, as in ``jit``, are added to what the source says;
    the others are as in ``Function``. CleaveError, located, for what cannot be read.
    """
    from cleave.language.trace import fact_texts
    from cleave.lowering.source import chosen, text_of, with_facts

    where = caller()
    more, zero = _at(where, fact_texts, facts), _at(where, _is_zero, empty_rows)
    text = text_of(source)
    name = chosen(text, function)
    return _at(
        where,
        Function,
        _at(where, with_facts, text, name, more, empty_rows=zero) if more or zero else text,
        name=name,
        sizes=sizes,
        static=_at(where, _names, static),
        superopt=superopt,
        schedule=schedule,
        tuned=tuned,
        warp_specialise=warp_specialise,
        library=library,
    )


def _at(where: str | None, made: Callable[_P, _T], *values: _P.args, **named: _P.kwargs) -> _T:
    """What a call gives; its CleaveErrors that have no place are at the line of the user's."""
    try:
        return made(*values, **named)
    except CleaveError as error:
        raise error.at(where) from None


def _is_zero(empty_rows: Any) -> bool:
    """Whether that is what becomes of them; CleaveError for what is neither that nor None."""
    if empty_rows not in ("zero", None):
        raise CleaveError(f"empty_rows={empty_rows!r}: either 'zero' or None", notes=("None: they are NaN",))
    return empty_rows == "zero"


def _names(static: Any) -> list[str]:
    names = static.split() if isinstance(static, str) else static
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise CleaveError(f"static={static!r}: names of sizes", notes=('as in static="d e"',))
    return list(names)
