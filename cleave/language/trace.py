"""From a Python function with annotated arguments to a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, get_args, get_origin

from cleave.dialects.dims import Answer, parse
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.language.annotations import Dtype, TensorAnnotation
from cleave.language.places import last_place, mlir_location, place_of
from cleave.language.tensor import Tensor

OF_CALLS = ("sizes", "stream")
"""What calls of functions take by name, which no tensor can be given by."""
_FACTS = ('as in facts=["n = 16*n16"]',)
_BUILDER: ContextVar[GraphBuilder | None] = ContextVar("cleave_builder", default=None)


def current_builder() -> GraphBuilder:
    """The builder of the function that is being traced; CleaveError outside of one."""
    builder = _BUILDER.get()
    if builder is None:
        raise CleaveError(
            "this is for functions that are being traced", notes=("decorate the function with cleave.jit",)
        )
    return builder


def trace(function: Callable[..., Any], facts: Sequence[str] = ()) -> Graph:
    """The graph of a function whose parameters are annotated as in ``x: f16["m k"]``.

    What it returns, a tensor or a tuple of them, is cast to and ordered as the annotation of the result says, if there
    is one. CleaveError, at the line of the function, for a parameter without annotation and for ops that do not fit.
    """
    where = place_of_function(function)
    builder = _builder(function.__name__, facts, where)
    annotations = _annotations(function, where)
    tensors = [
        _input(builder, _parameter(function, name, annotations, where), where) for name in _parameters(function, where)
    ]
    token = _BUILDER.set(builder)
    try:
        results = function(*tensors)
    except CleaveError as error:
        raise error.at(place_of(error) or where) from None
    except NameError as error:
        if error.name not in builder.known_dims():
            raise
        note = f'cleave.size("{error.name}") is the size of the dim, as a number'
        raise CleaveError(f"there is no variable '{error.name}'", last_place(error), (note,)) from None
    finally:
        _BUILDER.reset(token)
    outputs = _outputs(results, annotations.get("return"), where)
    graph = builder.build(*(tensor.value for tensor in outputs))
    graph.requirements()  # refused here, a maximum over nothing is at its line
    graph.require_one_size_each(everywhere=True)
    try:
        graph.require_sizes_of(graph.facts.texts)
    except CleaveError as error:
        raise error.at(where) from None
    return graph


def _builder(name: str, facts: Sequence[str], where: str) -> GraphBuilder:
    try:
        return GraphBuilder(name, fact_texts(facts))
    except CleaveError as error:
        raise error.at(where) from None


def fact_texts(facts: Sequence[str]) -> tuple[str, ...]:
    """One fact or a list of them; CleaveError for anything else."""
    texts = [facts] if isinstance(facts, str) else facts
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CleaveError(f"facts={facts!r}: a list of texts", notes=_FACTS)
    if not all(text.strip() for text in texts):
        raise CleaveError(f"facts={facts!r}: a fact is not empty", notes=_FACTS)
    return tuple(texts)


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _annotations(function: Callable[..., Any], where: str) -> dict[str, Any]:
    """The annotations as objects, also under ``from __future__ import annotations``."""
    try:
        return inspect.get_annotations(function, eval_str=True)
    except CleaveError as error:
        raise CleaveError(error.message, where, error.notes) from None
    except (NameError, SyntaxError, AttributeError) as error:
        raise CleaveError(f"an annotation of {function.__name__} cannot be read: {error}", where) from None


def _parameters(function: Callable[..., Any], where: str) -> tuple[str, ...]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in OF_CALLS:
            note = f"calls take {' and '.join(OF_CALLS)} by name, beside the tensors"
            raise CleaveError(f"parameter '{parameter.name}' of {function.__name__} needs another name", where, (note,))
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise CleaveError(f"parameter '{parameter.name}' of {function.__name__} is not positional", where)
    return parameter_names(function)


def _parameter(function: Callable[..., Any], name: str, annotations: dict[str, Any], where: str) -> TensorAnnotation:
    annotation = annotations.get(name)
    if not isinstance(annotation, TensorAnnotation):
        text = f"parameter '{name}' of {function.__name__} needs a tensor type"
        raise CleaveError(text, where, (f'as in {name}: f16["m k"]',))
    return annotation


def _input(builder: GraphBuilder, annotation: TensorAnnotation, where: str) -> Tensor:
    try:
        return Tensor(builder, builder.input(annotation.dims, annotation.dtype, mlir_location(where)))
    except CleaveError as error:
        raise error.at(where) from None


def _outputs(results: Any, annotation: Any, where: str) -> list[Tensor]:
    if results is None:
        notes = ("it ends without a return, as in return cleave.exp(x)",)
        raise CleaveError("the function returns nothing", where, notes)
    tensors = list(results) if isinstance(results, (tuple, list)) else [results]
    if not tensors or not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise CleaveError("the function returns something else than tensors", where)
    same = 1 if isinstance(annotation, TensorAnnotation) else len(tensors)
    wanted = list(get_args(annotation)) if get_origin(annotation) is tuple else [annotation] * same
    if len(wanted) != len(tensors):
        count = f"{len(tensors)} tensor{'s' * (len(tensors) != 1)}"
        notes = ('several results are a tuple, annotated as tuple[f16["m k"], f32["m"]]',)
        raise CleaveError(f"the function returns {count}, its annotation says {len(wanted)}", where, notes)
    return [_as_annotated(tensor, type_, where) for tensor, type_ in zip(tensors, wanted, strict=True)]


def _as_annotated(tensor: Tensor, annotation: Any, where: str) -> Tensor:
    if isinstance(annotation, Dtype):
        return _cast(tensor, annotation.name, tensor.dims, where)
    if annotation in (None, Any, Tensor):
        return tensor
    if not isinstance(annotation, TensorAnnotation):
        raise CleaveError(f"the annotation of the result, {annotation}, is no type of a tensor", where)
    if sorted(annotation.names) != sorted(tensor.dims):
        text = f"the function returns dims {' '.join(tensor.dims)}, its annotation says {' '.join(annotation.names)}"
        raise CleaveError(text, where)
    _check_sizes(tensor, annotation, where)
    return _cast(tensor, annotation.dtype, annotation.names, where)


def _cast(tensor: Tensor, dtype: str, order: Sequence[str], where: str) -> Tensor:
    """In this type and with the dims in this order, at the place of the function."""
    if (dtype, tuple(order)) == (tensor.value.dtype, tuple(tensor.dims)):
        return tensor
    value = tensor.builder.op("cast", tensor.value, dtype=dtype, order=order, location=mlir_location(where))
    return Tensor(tensor.builder, value)


def _check_sizes(tensor: Tensor, annotation: TensorAnnotation, where: str) -> None:
    """CleaveError where the annotation of a result says other sizes than those that it has."""
    builder = tensor.builder
    facts = builder.facts.given(builder.extents)
    for name, size in annotation.sizes.items():
        found = tensor.value.size(name)
        if facts.equal(found, parse(size)) is not Answer.YES:
            extent = builder.extents.get(str(found), found)
            raise CleaveError(f"the size of '{name}' in the result is {extent}, its annotation says {size}", where)


def place_of_function(function: Callable[..., Any]) -> str:
    """``file:line:1`` of its first line."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}:1"
