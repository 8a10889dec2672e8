"""Right answers from practice: each case on the reference executor, compiled as written, and for every alternative."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from compiled import alternatives, compile_graph, reference, static
from known_gaps import gap
from semantics_cases import CASES, Case

from cleave.dialects.graph import Graph

_EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}


def assert_right(case: Case, outputs: list[np.ndarray], what: str) -> None:
    for value, expected, out in zip(case.graph.outputs, case.expected, outputs, strict=True):
        expected, wide = np.asarray(expected, np.float64), out.astype(np.float64)
        assert wide.shape == expected.shape, what
        np.testing.assert_array_equal(np.isfinite(wide), np.isfinite(expected), what)
        tolerance = case.ulps * _EPSILON[value.dtype]
        np.testing.assert_allclose(wide, expected, rtol=tolerance, atol=0, err_msg=what)


def runs(case: Case, graph: Graph, path: str) -> Iterator[tuple[str, list[np.ndarray]]]:
    """(what it was, outputs) for everything that the path makes of the graph."""
    if path == "reference":
        yield "the graph as written", reference(graph, case.inputs)
        return
    programs = [graph] if path == "compiled" else alternatives(graph)
    for program in programs:
        compiled = compile_graph(program)
        for sizes in case.sizes:
            yield f"{program} {sizes}", compiled(case.inputs, {**sizes} if path == "alternatives" else None)


@pytest.mark.parametrize("path", ["reference", "compiled", "alternatives"])
@pytest.mark.parametrize("sizes", ["symbolic", "static"])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, sizes: str, path: str, request: pytest.FixtureRequest) -> None:
    reason = gap(name, sizes, path)
    if reason is not None:
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    case = CASES[name]()
    before = [array.copy() for array in case.inputs]
    graph = case.graph if sizes == "symbolic" else static(case.graph, case.inputs)
    for what, outputs in runs(case, graph, path):
        assert_right(case, outputs, what)
    for array, copy in zip(case.inputs, before, strict=True):
        np.testing.assert_array_equal(array, copy, "an input was changed")
