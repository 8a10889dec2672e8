"""What ``--superopt{explain}`` says of programs that the search has rejected: each once, with its ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from cleave.bindings import ir
from cleave.dialects.graph import Graph
from cleave.passes import diagnostics
from cleave.passes.graph_io import from_graph
from cleave.search.candidates import lines_of
from cleave.search.result import Rejected

LISTED = 12
"""Programs of a function that are shown; the others are counted."""


class _Row(NamedTuple):
    """In the order in which they are told: what a space lacks, programs that failed a check, those not needed."""

    stage: int
    what: str
    why: str
    ops: str


def remark_rejected(function: ir.Operation, rejected: Sequence[Rejected]) -> None:
    """A remark for each space and the first programs, the program as a note, and one that counts the others."""
    graphs = {_row(each): each.graph for each in rejected}
    rows = sorted(graphs)
    spaces = [row for row in rows if graphs[row] is None]
    programs = [(row, graph) for row in rows if (graph := graphs[row]) is not None]
    for row in spaces:
        diagnostics.remark(function.location, f"rejected {row.what}: {row.why}")
    for row, graph in programs[:LISTED]:
        diagnostics.remark(function.location, f"rejected {row.what}: {row.why}", (_function_text(graph),))
    if left := programs[LISTED:]:
        reasons = Counter(row.why for row, _ in left)
        notes = tuple(f"{count}: {why}" for why, count in sorted(reasons.items()))
        diagnostics.remark(function.location, f"rejected {len(left)} more programs", notes)


def _row(rejected: Rejected) -> _Row:
    if rejected.graph is None:
        return _Row(0, rejected.what, rejected.why, "")
    return _Row(2 if rejected.passed_over else 1, rejected.what, rejected.why, lines_of(rejected.graph))


def _function_text(graph: Graph) -> str:
    """As that of an alternative."""
    module = ir.Module.create()  # which owns the function
    return str(from_graph(graph, module)).rstrip()
