"""Random graphs from the search to interpreted kernels, by the accuracy contract.

usage: python test/py/random_programs.py FIRST LAST    (seeds; one line for each failure, a summary last)

Schedules are drawn, too.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Iterator

import graphs
import numpy as np
from compiled import Compiled, alternatives, compile_graph, drawn_schedules, reference, static

from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.reference.accuracy import Accuracy, compare

EXTENTS = [1, 2, 3, 5, 7, 17, 31, 33, 40]
KINDS = {"f16": np.float16, "f32": np.float32}
PARTS, TILINGS = 2, 1
DRAWS = 30
"""Schedules of a program that may be refused before that counts as a failure."""
INPUTS = (1, 9, 99)
"""On how many a program must be wrong: errors of few elements differ by chance, and those of outputs may all be one."""
REORDERED = 1e-5
"""Sums of a few hundred terms in another order: more than a few units in the last place."""
RIGHT = 1e-2
"""Where the source's own error is larger, as for a sum that is 0 but for rounding, nothing is left to compare."""


def case(seed: int) -> tuple[Graph, list[list[np.ndarray]], dict[str, int]]:
    """A graph, several inputs for it, and the sizes of these."""
    graph, rng = graphs.random_graph(seed, statistics=seed % 2 == 1), np.random.default_rng(seed)
    sizes = dict(zip("abc", rng.choice(EXTENTS, 3).tolist(), strict=True))
    shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in graph.inputs]
    draws = [
        [rng.standard_normal(s).astype(KINDS[v.dtype]) for s, v in zip(shapes, graph.inputs, strict=True)]
        for _ in range(max(INPUTS))
    ]
    return graph, draws, sizes


def problems(seed: int) -> Iterator[str]:
    """What is wrong with the graph as written, its sizes dynamic or static, and with every alternative."""
    graph, draws, sizes = case(seed)
    written = static(graph, draws[0]) if seed % 4 >= 2 else graph
    for index, program in enumerate((written, *alternatives(graph))):
        run = _compiled(program, {**sizes, "s": PARTS}, random.Random(f"{seed} {index}"))
        wrong: list[Accuracy] = []
        for count in INPUTS:
            wrong = judged(graph, run, draws[:count])
            if not wrong:
                break
        yield from (f"{program}\n{found}" for found in wrong)


def _compiled(program: Graph, sizes: dict[str, int], rng: random.Random) -> Compiled:
    """On a drawn schedule; one that the scheduler knows it cannot make is drawn again, a few times."""
    for _ in range(DRAWS):
        try:
            with drawn_schedules(rng):
                return compile_graph(program, sizes, tilings=TILINGS)
        except CleaveError as error:
            failure = error
            if "cannot be scheduled yet" not in error.message:
                break
    raise failure


def judged(graph: Graph, run: Compiled, draws: list[list[np.ndarray]]) -> list[Accuracy]:
    """The outputs whose error over all inputs breaks the contract."""
    outputs = zip(*(run(inputs, {"s": PARTS}) for inputs in draws), strict=True)
    references = zip(*(reference(graph, inputs, "f64") for inputs in draws), strict=True)
    plain = zip(*(reference(graph, inputs) for inputs in draws), strict=True)
    found = [
        compare(*map(np.stack, arrays), value.dtype)
        for *arrays, value in zip(references, plain, outputs, graph.outputs, strict=True)
    ]
    return [accuracy for accuracy in found if is_wrong(accuracy)]


def is_wrong(found: Accuracy) -> bool:
    """Whether the contract is broken by more than the order of sums."""
    if found.problem is None or not found.problem.startswith("its error is"):  # infinities or NaN
        return not found.holds
    return found.unoptimised < RIGHT and found.optimised >= REORDERED


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    arguments = parser.parse_args()
    sys.exit(main(arguments.first, arguments.last))
