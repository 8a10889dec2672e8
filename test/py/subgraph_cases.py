"""The subgraphs that fusion is for, from the search to interpreted kernels, by the accuracy contract.

usage: python test/py/subgraph_cases.py [--quick] [NAME…]    (all of them; a line for each, with what is wrong)

Each program that the search returns is run on the schedule that the cost model chooses, whose tiles are larger than the
inputs, and on drawn ones with tiles that are smaller: at sizes that nothing divides, 1 and 0, with NaN in every other
head or row, and where it is split with few parts and with more than there are tiles. New memory is poisoned always.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import discovery_programs
import graphs
import numpy as np
import search_programs as programs
from compiled import Compiled, alternatives, compile_graph, drawn_schedules, reference
from random_programs import is_wrong

from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.errors import CleaveError
from cleave.reference.accuracy import compare

Sizes = Mapping[str, int]

ODD = {
    "a": 2, "b": 2, "d": 13, "e": 21, "f": 37, "g": 3, "h": 2, "k": 45, "m": 19, "n": 77, "o": 20, "p": 7, "q": 39,
    "r": 5, "v": 83, "w": 18,
}  # fmt: skip
"""By the names of dims; no two that occur together are alike."""
DRAWN, DRAWS = 2, 9
PARTS = (1, 2, 3, 7, 100)
QUICK = ("NaN", "ones", "no m")
NUMPY = {"f16": np.float16, "f32": np.float32}


# --- attention: masks by kinds of heads ------------------------------------------------------------------------------

HEADS = {
    "mha": ("h m d", "h n d", "h n e", "h"),
    "gqa": ("a g m d=24", "a n d", "a n e=20", "a g"),
    "mqa": ("g m d=16", "n d", "n e=16", "g"),
}
Mask = Callable[[GraphBuilder, Value, str], Value]
MASKS: Mapping[str, Mask] = {
    "plain": lambda b, z, heads: z,
    "causal": lambda b, z, heads: programs.causal(b, z),
    "additive": lambda b, z, heads: programs.additive_mask(b, z),
    "window": lambda b, z, heads: programs.window(b, z),
    "soft_cap": lambda b, z, heads: programs.soft_cap(b, z),
    "sink": lambda b, z, heads: z,
    "alibi": lambda b, z, heads: _alibi(b, z, heads),
}


def _alibi(b: GraphBuilder, z: Value, heads: str) -> Value:
    i, j = programs.positions(b)
    return b.add(z, b.mul(b.input(heads, "f32"), b.cast(b.sub(j, i), dtype="f32")))


def attention(kind: str, mask: str) -> Graph:
    b = GraphBuilder(f"{kind}_{mask}")
    *operands, heads = HEADS[kind]
    q, k, v = (b.input(dims, "f16") for dims in operands)
    z = MASKS[mask](b, programs.scores(b, q, k, 0.2), heads)
    top, extra = b.reduce(z, kind="max", over=["n"]), b.input(heads, "f32") if mask == "sink" else None
    top = b.max(top, extra) if extra else top
    p = b.exp(b.sub(z, top))
    total = b.reduce(p, kind="sum", over=["n"])
    total = b.add(total, b.exp(b.sub(extra, top))) if extra else total
    return b.build(b.contract(b.cast(b.div(p, total), dtype="f16"), v, over=["n"], dtype="f16"))


def qk_norm_decode() -> Graph:
    """One query of each of a group's heads; its norm and that of the keys have gains."""
    b = GraphBuilder("qk_norm_decode")
    q, k, v = b.input("a g d=32", "f16"), b.input("a n d", "f16"), b.input("a n e=32", "f16")
    q, k = (programs.norm(b, x, "d", b.input("d", "f16"), 32.0) for x in (q, k))
    return b.build(b.cast(programs.softmax_times(b, programs.scores(b, q, k), v), dtype="f16"))


# --- the table -------------------------------------------------------------------------------------------------------

SUBGRAPHS: Mapping[str, Callable[[], Graph]] = {
    "rmsnorm_swiglu": graphs.rmsnorm_swiglu,
    "lora": graphs.lora,
    "qk_norm_decode": qk_norm_decode,
    "mla_decode_absorbed": graphs.latent_attention,
    "mla_decode": discovery_programs.mla_decode,
    "mla_prefill": programs.mla,
    "layernorm_linear": programs.layernorm_linear,
    "layernorm_linear_f32": graphs.layernorm_matmul,
    "ngpt": programs.ngpt,
    "log_sum_exp": programs.log_sum_exp,
    "cross_entropy": graphs.cross_entropy,
    "linear_attention": programs.linear_attention,
    "two_outputs": graphs.matmul_and_rowsum,
    "attention_lse": partial(graphs.attention, lse=True, head=24),
    "qkv": graphs.qkv,
    "matmul": graphs.matmul,
    "matmul_matmul": graphs.matmul_matmul,
    "matmul_rowsum": graphs.matmul_rowsum,
    "swiglu": graphs.swiglu,
    "gated_mlp": graphs.gated_mlp,
    "rmsnorm_linear": programs.rmsnorm_linear,
    **{f"{kind}_{mask}": partial(attention, kind, mask) for kind in HEADS for mask in MASKS},
}


# --- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """Sizes for the dynamic dims, and whether every other element along the first kept dim is NaN."""

    what: str
    sizes: Sizes = field(hash=False)
    poisoned: bool = False


def dynamic(graph: Graph) -> list[str]:
    """The symbols that inputs give values to."""
    symbols = {symbol for value in graph.inputs for dim in value.dims for symbol in dim.size.symbols}
    return sorted(symbols - graph.extents.keys())


def runs(graph: Graph) -> list[Run]:
    odd = {name: ODD[name] for name in dynamic(graph)}
    empty = [Run(f"no {name}", {**odd, name: 0}) for name in odd]
    return [
        Run("odd", odd),
        Run("NaN", odd, poisoned=True),
        Run("ones", dict.fromkeys(odd, 1)),
        Run("alike", dict.fromkeys(odd, 33)),
        Run("tiles", {name: (129, 17, 65)[index % 3] if name in "kmnv" else 2 for index, name in enumerate(odd)}),
        *empty,
    ]


def inputs_of(graph: Graph, run: Run, seed: int) -> list[np.ndarray]:
    rng, sizes = np.random.default_rng(seed), {**run.sizes, **graph.extents}
    kept = next((name for name in graph.outputs[0].names if all(name in value.names for value in graph.outputs)), None)
    made: list[np.ndarray] = []
    for value in graph.inputs:
        shape = [dim.size.evaluate(sizes) for dim in value.dims]
        if value.dtype in NUMPY:
            array = rng.standard_normal(shape).astype(NUMPY[value.dtype])
            if run.poisoned and kept in value.names:
                array[(slice(None),) * value.names.index(kept) + (slice(1, None, 2),)] = np.nan
        else:  # positions along n
            array = rng.integers(0, max(sizes.get("n", 1), 1), shape).astype(value.dtype.replace("i", "int"))
        made.append(array)
    return made


@dataclass(frozen=True, eq=False)
class Expected:
    """Of one run: over the reals and as written; None where the function has no value."""

    run: Run
    inputs: Sequence[np.ndarray]
    exact: Sequence[np.ndarray] | None
    written: Sequence[np.ndarray] | None


@cache
def expected(graph: Graph, run: Run, seed: int = 0) -> Expected:
    inputs = inputs_of(graph, run, seed)
    try:
        with np.errstate(all="ignore"):
            return Expected(run, inputs, reference(graph, inputs, "f64"), reference(graph, inputs))
    except CleaveError:
        return Expected(run, inputs, None, None)


def counts(graph: Graph, program: Graph) -> list[dict[str, int]]:
    """For the symbols that no input binds, such as the number of parts."""
    used = {s for value in program.topological() for dim in value.dims for s in dim.size.symbols}
    free = sorted(used - set(dynamic(graph)) - program.extents.keys())
    return [dict.fromkeys(free, parts) for parts in PARTS] if free else [{}]


def problems(graph: Graph, *, quick: bool = False) -> Iterator[str]:
    """What is wrong with the graph as written and with its alternatives; ``quick``: with one of them, at few sizes."""
    cases = [expected(graph, run) for run in runs(graph) if not quick or run.what in QUICK]
    found = [graph, *alternatives(graph)]
    for index, program in enumerate(found[-1:] if quick else found):
        parts = counts(graph, program)
        for label, compiled in _schedules(graph, program, parts[-1], quick=quick):
            for case in cases:
                every = case.run.what in ("odd", "ones") and not quick
                for sizes in parts if every else parts[len(parts) // 2 :][:1]:
                    text = _problem(graph, compiled, case, sizes)
                    if text:
                        yield f"alternative {index}, {label}, {case.run.what} {sizes}: {text}"


def _schedules(graph: Graph, program: Graph, parts: Sizes, *, quick: bool) -> Iterator[tuple[str, Compiled]]:
    if not quick:
        yield "chosen", compile_graph(program, parts)
    small = {**{name: ODD[name] for name in dynamic(graph)}, **parts}
    for seed in range(DRAWN if program is graph else 1):
        with drawn_schedules(random.Random(seed)):
            yield f"drawn {seed}", compile_graph(program, small, tilings=1)


def _problem(graph: Graph, compiled: Compiled, case: Expected, sizes: Sizes) -> str | None:
    if case.exact is None or case.written is None:
        try:
            compiled(case.inputs, sizes)
        except CleaveError:
            return None
        return "gives a result where the function has none"
    # Errors of few elements differ by chance: what fails on one input is judged on average.
    return _judged(graph, compiled, [case], sizes) and _judged(
        graph, compiled, [expected(graph, case.run, seed) for seed in range(DRAWS)], sizes
    )


def _judged(graph: Graph, compiled: Compiled, cases: Sequence[Expected], sizes: Sizes) -> str | None:
    results = ((case.exact, case.written, compiled(case.inputs, sizes)) for case in cases)
    columns = [zip(*each, strict=True) for each in zip(*results, strict=True)]
    judged = zip(*columns, graph.outputs, strict=True)
    found = (compare(*map(np.stack, arrays), value.dtype) for *arrays, value in judged)
    return next((accuracy.problem for accuracy in found if is_wrong(accuracy)), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one program, schedule and three runs of each")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SUBGRAPHS)}")
    arguments, failed = parser.parse_args(), 0
    unknown = [name for name in arguments.names if name not in SUBGRAPHS]
    if unknown:
        parser.error(f"there is no subgraph {unknown[0]}; --help lists them")
    for name in arguments.names or SUBGRAPHS:
        start = time.monotonic()
        try:
            found = list(problems(SUBGRAPHS[name]().named(name), quick=arguments.quick))
        except Exception:  # the run goes on: every failure is to be seen
            found = [traceback.format_exc()]
        failed += bool(found)
        print(f"{name}: {len(found)} problems, {time.monotonic() - start:.0f} s", *found, sep="\n  ", flush=True)
    print(f"{failed} subgraphs failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
