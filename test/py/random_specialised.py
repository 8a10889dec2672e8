"""Random products behind norms as warp-specialised TTGIR, with numbers from the interpreter against f64.

usage: python test/py/random_specialised.py FIRST LAST    (seeds; one line for each failure, a summary last)

Drawn are the statistics of a row that the product is combined with, extents that no tile divides, the schedule, the
form, stages, pieces in which results are stored, and how many blocks run at once.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import asdict, fields, replace
from unittest.mock import patch

import ml_dtypes
import numpy as np
from compiled import CTX, reference

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.errors import CleaveError
from cleave.lowering import outgoing, rings, to_ttgir
from cleave.lowering.emit import kernel_modules
from cleave.lowering.form import Form
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.passes.tile_io import from_tile_program
from cleave.runtime import execute
from cleave.runtime.choose_sizes import choose_free
from cleave.runtime.launch_plan import LaunchPlan
from cleave.schedule.scheduler import ScheduleOptions, Schedules, with_candidates

NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
LARGE = {"m": 4096, "j": 32, "i": 128}
"""What is scheduled for."""
SMALL = {"m": [0, 1, 129, 300, 513], "j": [1, 9, 33], "i": [1, 125, 130]}
"""What is run."""
RIGHT = 2e-2  # of the largest number: results in bf16
Lowered = tuple[LaunchPlan, dict[str, str]]


class _Rows:
    """Statistics of the rows of ``x``, in f32."""

    def __init__(self, b: GraphBuilder, x: Value) -> None:
        self.b, self.x, self.wide = b, x, b.cast(x, dtype="f32")
        self.one, self.share = b.constant(1.0, "f32"), b.constant(1 / 256, "f32")

    def _reduced(self, value: Value, kind: str = "sum") -> Value:
        return self.b.reduce(value, kind=kind, over=["k"])

    def mean(self) -> Value:
        return self.b.mul(self._reduced(self.wide), self.share)

    def norm(self) -> Value:
        squares = self._reduced(self.b.mul(self.wide, self.wide))
        return self.b.sqrt(self.b.add(self.b.mul(squares, self.share), self.one))

    def deviation(self) -> Value:
        apart = self.b.sub(self.wide, self.mean())
        return self.b.sqrt(self.b.add(self.b.mul(self._reduced(self.b.mul(apart, apart)), self.share), self.one))

    def largest(self) -> Value:
        return self._reduced(self.wide, "max")

    def narrow(self) -> Value:
        return self.b.cast(self.b.reduce(self.x, kind="min", over=["k"]), dtype="f32")

    def logarithm(self) -> Value:
        largest = self.largest()
        return self.b.add(largest, self.b.log(self._reduced(self.b.exp(self.b.sub(self.wide, largest)))))


def graph_of(rng: random.Random) -> Graph:
    b = GraphBuilder("drawn")
    k, n = rng.choice(["k=256", "k=264", "k=320", "k=8*j"]), rng.choice(["n=1024", "n=1000", "n=8*i", "n=192", "n=520"])
    dtype, turned = rng.choice(["f16", "f16", "bf16"]), rng.random() < 0.4
    batch = "h=3 " if rng.random() < 0.15 else ""
    x = b.input(f"{batch}m {k}", dtype)
    weights = [b.input(f"{n} {k}" if turned else f"{k} {n}", dtype) for _ in range(rng.choice([1, 1, 2]))]
    rows = _Rows(b, x)
    names = ["mean", "norm", "deviation", "largest", "narrow", "logarithm"]
    statistics = [getattr(rows, name)() for name in rng.sample(names, rng.choice([1, 1, 2, 3]))]
    first, *others = (b.contract(x, w, over=["k"], dtype="f32") for w in weights)
    for other in others:
        first = rng.choice([b.add, b.mul])(first, b.mul(other, rows.share))
    for each in statistics:
        shrunk = b.div(rows.one, b.add(b.mul(each, each), rows.one))
        first = rng.choice([b.add(first, each), b.sub(first, each), b.mul(first, shrunk)])
    narrow = rng.choice(["f16", "bf16", ""])
    return b.build(b.cast(first, dtype=narrow) if narrow else first)


def program_of(graph: Graph, rng: random.Random) -> str | None:
    """One of the best warp-specialised schedules of one launch, if there is one."""
    sizes = {name: LARGE[name] for name in _symbols(graph)}
    schedules = Schedules(graph.deduplicated(), ScheduleOptions(sizes=sizes, warp_specialise=True)).finalists(64)
    single = [each for each in schedules if len(each.candidates) == 1]
    found = [(s.program, c) for s in single for c in s.candidates[0] if c.warp_specialised][:6]
    if not found:
        return None
    program, chosen = rng.choice(found)
    with CTX, ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(with_candidates(program, [chosen]), module)
        return str(module)


def _symbols(graph: Graph) -> list[str]:
    """The sizes that are not static."""
    return sorted({name for value in graph.inputs for dim in value.dims for name in dim.size.symbols} & SMALL.keys())


def lowered(text: str, form: Form, stages: int, name: str = "drawn") -> Lowered:
    """``name``: the graph's."""
    with CTX, ir.Location.unknown(), patch.object(rings, "MOST_STAGES", stages):
        module = ir.Module.parse(text)
        LowerToTtgir(**asdict(form)).apply(CTX, module)
        kernels = {kernel.name: kernel for kernel in kernel_modules(module)}
        return plan_of(module, name, kernels), {name: kernel.text for name, kernel in kernels.items()}


def error(graph: Graph, found: Lowered, sizes: dict[str, int], seed: int) -> float:
    """The largest one, relative to the largest number."""
    plan, texts = found
    rng, bound = np.random.default_rng(seed), {**graph.extents, **sizes}
    shapes = [[dim.size.evaluate(bound) for dim in value.dims] for value in graph.inputs]
    inputs = [rng.standard_normal(s).astype(NUMPY[v.dtype]) for s, v in zip(shapes, graph.inputs, strict=True)]
    (expected,) = reference(graph, inputs, "f64", bound)
    (result,) = execute.execute(plan, texts, inputs, choose_free(plan, sizes), seed=seed)
    if result.dtype == np.uint16:
        result = result.view(ml_dtypes.bfloat16)
    difference = np.abs(result.astype(float) - expected).max(initial=0.0)
    return float(difference / np.abs(expected).max(initial=1e-30))


def judged(seed: int) -> tuple[str, str]:
    """What came of it ("right", "kept" if something was kept between tiles, "none" without such a form), and what is
    wrong."""
    rng = random.Random(seed)
    graph = graph_of(rng)
    text = program_of(graph, rng)
    if text is None:
        return "none", ""
    form = Form()
    if rng.random() < 0.3:
        name = rng.choice([field.name for field in fields(form) if field.name != "persistent"])
        form = replace(form, **{name: not getattr(form, name)})
    stages, pieces = rng.choice([2, 3, 6]), rng.choice([outgoing.PIECES, (2,), (4,)])
    with patch.object(to_ttgir, "PIECES", pieces), patch.object(execute, "RESIDENT", rng.choice([2, 3, 5, 32])):
        found = lowered(text, form, stages)
        kept = found[1] != lowered(text, replace(form, kept_between_tiles=False), stages)[1]
        for _ in range(2):
            sizes = {name: rng.choice(SMALL[name]) for name in _symbols(graph)}
            wrong = error(graph, found, sizes, seed)
            if not wrong <= RIGHT:
                return "wrong", f"error {wrong:.1e} at {sizes}{form.label}, {stages} stages, pieces {pieces}"
    return "kept" if kept else "right", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parsed = parser.parse_args()
    started, counts = time.monotonic(), Counter[str]()
    for seed in range(parsed.first, parsed.last + 1):
        try:
            outcome, problem = judged(seed)
        except CleaveError as refused:
            outcome, problem = "refused", refused.message
        except Exception:
            outcome, problem = "crashed", traceback.format_exc()
        counts[outcome] += 1
        if problem:
            print(f"{seed}: {outcome}: {problem}", flush=True)
    print(f"{dict(counts)}, {time.monotonic() - started:.0f} s")
    return int(bool(counts["wrong"] + counts["crashed"]))


if __name__ == "__main__":
    sys.exit(main())
