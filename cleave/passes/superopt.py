"""``cleave-superopt``: beside each tensor function, the equal programs that the search finds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.errors import CleaveError
from cleave.passes import diagnostics
from cleave.passes.functions import name_of, tensor_functions
from cleave.passes.graph_io import from_graph, to_graph
from cleave.search.superoptimise import Alternative, SearchOptions, SearchResult, superoptimise


@dataclass(frozen=True)
class Superopt:
    """Find programs equal to each tensor function for all sizes and put them beside it as alternatives.

    ``keep``: how many of each kind (whole, split). ``split``: cut reductions into a symbolic number of parts.
    ``max_classes``, ``time_limit`` (seconds): bounds of the search. ``explain``: what was rejected and why, as remarks.
    ``certificate``: a file for the proofs, as JSON.
    """

    keep: int = 4
    split: bool = True
    max_classes: int = 2000
    time_limit: float = 60.0
    seed: int = 0
    explain: bool = False
    certificate: str = ""

    def apply(self, ctx: ir.Context, module: ir.Module) -> None:
        options = SearchOptions(self.max_classes, self.time_limit, self.keep, self.split, self.seed)
        certificates: dict[str, list[dict[str, object]]] = {}
        with ctx, ir.Location.unknown(ctx):
            for func in [alternatives[0] for alternatives in tensor_functions(module) if len(alternatives) == 1]:
                result = superoptimise(to_graph(func).deduplicated(), options)
                _annotate(func, result, module)
                certificates[name_of(func)] = [_proof(alternative) for alternative in result.alternatives]
                _report(func, result, explain=self.explain)
        if self.certificate:
            _write(self.certificate, certificates)


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
        }
        from_graph(alternative.graph.named(f"{name}__alternative{index + 1}"), module, attributes)


def _proof(alternative: Alternative) -> dict[str, object]:
    return {"program": str(alternative.graph), "cost": str(alternative.cost), **alternative.certificate.to_dict()}


def _report(func: ir.Operation, result: SearchResult, *, explain: bool) -> None:
    if not result.statistics.complete:
        diagnostics.remark(func.location, f"the search of '{name_of(func)}' stopped early: these are the best so far")
    if explain:
        for rejected in result.rejected:
            diagnostics.remark(func.location, f"rejected {rejected.what}: {rejected.why}")


def _write(path: str, certificates: dict[str, list[dict[str, object]]]) -> None:
    try:
        Path(path).write_text(json.dumps(certificates, indent=2) + "\n")
    except OSError as error:
        raise CleaveError(f"cannot write {path}: {error.strerror}") from None
