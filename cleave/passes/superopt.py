"""``cleave-superopt``: beside each tensor function, the equal programs that the search finds."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.empty_parts import without_empty_parts
from cleave.dialects.graph import Graph, Value
from cleave.errors import CleaveError
from cleave.passes import diagnostics
from cleave.passes.diagnostics import progress
from cleave.passes.functions import name_of, tensor_functions
from cleave.passes.graph_io import EMPTY_ROWS, from_graph, to_graph
from cleave.passes.superopt_rejected import remark_rejected
from cleave.search.result import SearchOptions, SearchResult
from cleave.search.superoptimise import superoptimise

CERTIFICATE_VERSION = 1


@dataclass(frozen=True)
class Superopt:
    """Find programs equal to each tensor function for all sizes and put them beside it as alternatives.

    ``keep``: how many of each kind (whole, split). ``split``: cut reductions into a symbolic number of parts.
    ``cuts=2``: also two dims at once, in one program more.
    ``max_ops``: a function of more ops is cut into parts of at most so many, which are searched one by one; remarks
    say where, of equal ops at the first one and how many more. ``max_classes``: the bound on the space of each part.
    ``time_limit``: seconds for each function; where a limit is reached, a remark says so. ``stabilise``: subtract a
    maximum where exponentials are summed without one.
    ``explain``: what was rejected and why, as remarks; the programs as notes, up to 12 of them.
    ``certificate``: a file for the programs and their proofs, as JSON, which tools/check-certificate checks again.
    ``report``: a file for one HTML page on what was explored and found.
    """

    keep: int = 4
    split: bool = True
    cuts: int = 1
    max_ops: int = 64
    max_classes: int = 2000
    time_limit: float = 60.0
    seed: int = 0
    stabilise: bool = False
    explain: bool = False
    certificate: str = ""
    report: str = ""

    def __post_init__(self) -> None:
        _ = self.options

    @property
    def options(self) -> SearchOptions:
        """What the search is told. CleaveError for a bound that is none."""
        return SearchOptions(
            self.max_classes, self.time_limit, self.keep, self.split, self.seed, self.stabilise, self.max_ops, self.cuts
        )

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        self.run(ctx, module)

    def run(self, ctx: ir.Context, module: ir.Module) -> dict[str, SearchResult]:
        """``apply``; returns what was found for each function, by its name."""
        options = self.options
        results: dict[str, SearchResult] = {}
        with ctx, ir.Location.unknown(ctx):
            functions = [alternatives[0] for alternatives in tensor_functions(module) if len(alternatives) == 1]
            for number, func in enumerate(functions):
                name = name_of(func)
                title = f"superopt: {name} ({number + 1} of {len(functions)})"
                progress(title)
                graph = without_empty_parts(to_graph(func)).deduplicated()
                results[name] = result = superoptimise(graph, options, lambda text, t=title: progress(f"{t}, {text}"))
                _annotate(func, result, module)
                progress("")
                _remarks(func, result, explain=self.explain)
            if self.certificate:
                _write(self.certificate, _certificates(results))
            if self.report:
                from cleave.passes.superopt_report import page

                _write(self.report, page(results))
        return results


def _annotate(func: ir.Operation, result: SearchResult, module: ir.Module) -> None:
    """The costs as attributes, and each alternative as a function of its own."""
    name = name_of(func)
    source, *others = result.alternatives
    func.attributes["cleave.cost"] = cleave.attribute("string", source.cost)
    for index, alternative in enumerate(others):
        attributes = {
            "cleave.alternative_of": ir.FlatSymbolRefAttr.get(name),
            "cleave.cost": cleave.attribute("string", alternative.cost),
            "cleave.certificate": cleave.attribute("strings", alternative.certificate.normal_form),
            **{name: func.attributes[name] for name in (EMPTY_ROWS,) if name in func.attributes},
        }
        from_graph(alternative.graph.named(f"{name}__alternative{index + 1}"), module, attributes)


def _certificates(results: Mapping[str, SearchResult]) -> str:
    """All programs as modules of one function each, with what was proved and tested of them."""
    functions = {
        name: [
            {"program": _module_text(a.graph), "cost": str(a.cost), "split": a.split, **a.certificate.to_dict()}
            for a in result.alternatives
        ]
        for name, result in results.items()
    }
    return json.dumps({"version": CERTIFICATE_VERSION, "functions": functions}, indent=2) + "\n"


def _module_text(graph: Graph) -> str:
    module = ir.Module.create()
    from_graph(graph, module)
    return str(module)


def _remarks(func: ir.Operation, result: SearchResult, *, explain: bool) -> None:
    for value, more in _cuts(result.cuts, explain=explain):
        what = f"superopt: cut here: '{value.op}' {value.type} is computed in one part and taken as given in others"
        diagnostics.remark(value.location, f"{what}; and {more} more such, which 'explain' shows" if more else what)
    if stopped := result.statistics.stopped:
        what = f"the search of '{name_of(func)}' stopped early: these are the best so far; {'; '.join(stopped)}"
        diagnostics.remark(func.location, what)
    if explain:
        remark_rejected(func, result.rejected)


def _cuts(cuts: Sequence[Value], *, explain: bool) -> Iterator[tuple[Value, int]]:
    """The values at which a function is cut, or of those of one op and type the first and how many more there are."""
    alike: dict[Hashable, list[Value]] = {}
    for value in cuts:
        alike.setdefault(value if explain else (value.op, value.type), []).append(value)
    return ((first, len(others)) for first, *others in alike.values())


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise CleaveError(f"cannot write {path}: {error.strerror}") from None
