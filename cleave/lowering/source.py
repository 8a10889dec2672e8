"""What is to be compiled, as the text of a module in which every op says where it stands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cleave.bindings import MLIRError, context, ir
from cleave.dialects.facts import Facts
from cleave.dialects.given_sizes import check_given
from cleave.dialects.graph import Graph
from cleave.errors import CleaveError, Position, a_kind_of
from cleave.lowering.run_functions import entry
from cleave.passes import diagnostics, pipelines, registry
from cleave.passes.functions import name_of
from cleave.passes.graph_io import EMPTY_ROWS, from_graph, to_graph
from cleave.runtime.call import check_names

_UNNAMED = "-"
"""What MLIR calls the file of a text."""
TEXT = "<source>"
"""The file that messages name for a text."""


def text_of(source: Any) -> str:
    """The text of a graph, of a module, of its text, or of the file at a path.

    One line without a body in braces is a path. CleaveError, located, for a file or text that cannot be read.
    """
    if isinstance(source, Graph):
        return graph_text(source)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source and "{" not in source):
        try:
            with open(source, encoding="utf-8") as file:
                return _located(file.read(), os.fspath(source))
        except (OSError, ValueError) as error:
            raise CleaveError(f"cannot read {source}: {getattr(error, 'strerror', error)}") from None
    if isinstance(source, str) or type(source).__name__ == "Module":
        return _located(str(source), TEXT)
    raise CleaveError(f"{a_kind_of(source)} is no program", notes=("give a graph, MLIR, or the path of a file",))


def _located(text: str, file: str) -> str:
    _, module = parsed(text, file)
    quoted = file.replace("\\", "\\\\").replace('"', '\\"')
    return str(module.operation.get_asm(enable_debug_info=True)).replace(f'loc("{_UNNAMED}":', f'loc("{quoted}":')


def graph_text(graph: Graph, *, empty_rows: bool = False) -> str:
    """As MLIR, with locations; ``empty_rows``: with ``cleave.empty_rows = "zero"``."""
    with context(allow_unregistered=True), ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module, {EMPTY_ROWS: ir.StringAttr.get("zero")} if empty_rows else {})
        return str(module.operation.get_asm(enable_debug_info=True))


def without_locations(text: str) -> str:
    """The same module whatever file it was written in."""
    _, module = parsed(text)
    return str(module)


def with_extents(text: str, name: str, sizes: Mapping[str, int]) -> str:
    """The function alone, with static sizes for some symbols."""
    graph, empty_rows = entry_graph(text, name)
    known = {symbol for value in graph.topological() for dim in value.dims for symbol in dim.size.symbols}
    check_names(name, sizes, known)
    check_given(sizes, graph.extents, graph.facts)
    return graph_text(replace(graph, extents={**graph.extents, **sizes}), empty_rows=empty_rows)


def with_facts(text: str, name: str, facts: Sequence[str], *, empty_rows: bool = False) -> str:
    """The function alone, with more facts on its sizes; ``empty_rows``: and with ``cleave.empty_rows = "zero"``.

    CleaveError for facts that cannot be read, contradict others or extents, or are about no size that it has.
    """
    graph, has_empty_rows = entry_graph(text, name)
    graph.require_sizes_of(facts)
    known = Facts.parse((*graph.facts.texts, *facts))
    known.given(graph.extents)
    return graph_text(replace(graph, facts=known), empty_rows=empty_rows or has_empty_rows)


def entry_graph(text: str, name: str) -> tuple[Graph, bool]:
    """The function of a module as a graph, and whether it has ``cleave.empty_rows``."""
    ctx, module = parsed(text)
    with ctx:
        pipelines.run([registry.create("cleave-import-linalg")], module)
        func = entry(module, name)
        return to_graph(func), EMPTY_ROWS in func.attributes


def parsed(text: str, file: str = _UNNAMED) -> tuple[ir.Context, ir.Module]:
    """A context and the module; CleaveError, located in ``file``, where the text is none."""
    ctx = context(allow_unregistered=True)
    found: list[diagnostics.Diagnostic] = []

    def keep(info: ir.Diagnostic) -> bool:
        found.append(diagnostics.from_mlir(info))
        return True

    handler: Any = ctx.attach_diagnostic_handler(keep)
    try:
        with ctx, ir.Location.unknown():
            return ctx, ir.Module.parse(text)
    except MLIRError:
        first = found[0] if found else diagnostics.Diagnostic("error", None, "this is no module")
        place = first.position
        raise CleaveError(first.message, place and Position(file, place.line, place.column)) from None
    finally:
        handler.detach()


def chosen(text: str, function: str | None) -> str:
    """The name of the function: the one asked for, or the only one."""
    ctx, module = parsed(text)
    with ctx:
        return name_of(entry(module, function, option="function=NAME"))
