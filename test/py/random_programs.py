"""Random graphs from the search to interpreted kernels, by the accuracy contract.

usage: python test/py/random_programs.py FIRST LAST    (seeds; one line for each failure, a summary last)
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator

import graphs
import numpy as np
from compiled import alternatives, compile_graph, reference, static

from cleave.dialects.graph import Graph
from cleave.reference.accuracy import compare

EXTENTS = [1, 2, 3, 5, 7, 17, 31, 33, 40]
KINDS = {"f16": np.float16, "f32": np.float32}
TILINGS = 3
REORDERED = 1e-5
"""Sums of a few hundred terms in another order: more than a few units in the last place."""


def case(seed: int) -> tuple[Graph, list[np.ndarray]]:
    """A graph and inputs for it."""
    graph, rng = graphs.random_graph(seed, statistics=seed % 2 == 1), np.random.default_rng(seed)
    sizes = dict(zip("abc", rng.choice(EXTENTS, 3).tolist(), strict=True))
    shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in graph.inputs]
    return graph, [rng.standard_normal(s).astype(KINDS[v.dtype]) for s, v in zip(shapes, graph.inputs, strict=True)]


def problems(seed: int) -> Iterator[str]:
    """What is wrong with the graph as written, with static sizes, and with every alternative."""
    graph, inputs = case(seed)
    references, plain = reference(graph, inputs, "f64"), reference(graph, inputs)
    for program in (graph, static(graph, inputs), *alternatives(graph)):
        outputs = compile_graph(program, tilings=TILINGS)(inputs, {"s": 2})
        for ref, source, out, value in zip(references, plain, outputs, graph.outputs, strict=True):
            found = compare(ref, source, out, value.dtype)
            if not (found.holds or (np.isfinite(found.optimised) and found.optimised < REORDERED)):
                yield f"{program}\n{found}"


def main(first: int, last: int) -> int:
    start, failed = time.monotonic(), 0
    for seed in range(first, last):
        try:
            found = list(problems(seed))
        except Exception:  # the run goes on: every failure is to be seen
            found = [traceback.format_exc()]
        failed += bool(found)
        for text in found:
            print(f"seed {seed}: {text}", flush=True)
        if seed % 100 == 99:
            print(f"{seed + 1 - first} graphs, {failed} failed, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{last - first} graphs, {failed} failed, {time.monotonic() - start:.0f} s")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
