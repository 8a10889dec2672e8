"""What the device check compiles and runs: graphs of the tests, in several types, sizes and schedules."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "test" / "py"))

import graphs

from cleave.dialects.dims import Facts
from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import TensorType

Sizes = Mapping[str, int]

TOLERANCE = {"f16": 1.5e-3, "bf16": 1e-2, "f32": 1e-5, "random": 1e-2}
"""Of the relative error in the 2-norm, by the narrowest type that values are rounded to."""

ONE = dict.fromkeys("hmnkfo", 1)
ODD = {"h": 3, "m": 70, "n": 133, "k": 50, "f": 33, "o": 20}
MIDDLE = {"h": 4, "m": 256, "n": 512, "k": 384, "f": 640, "o": 128}
COUNTS = (1, 2, 3, 7, 16)


@dataclass(frozen=True)
class Subject:
    """A graph, with the sizes that it is scheduled for (``hints``) and those that it is run with.

    ``reference`` names the computation in ``device_reference``, None where only a carried reference will do.
    ``timed`` are the runs that are timed as well.
    """

    name: str
    graph: Graph
    tolerance: float
    hints: Sequence[Sizes]
    runs: Sequence[Sizes]
    reference: str | None
    timed: Sequence[Sizes] = ()
    options: Mapping[str, bool] = field(default_factory=dict[str, bool])


def retyped(graph: Graph, narrow: str) -> Graph:
    """The graph with ``narrow`` in the place of f16."""
    new: dict[Value, Value] = {}
    for value in graph.topological():
        dtype = narrow if value.dtype == "f16" else value.dtype
        operands = tuple(new[operand] for operand in value.operands)
        if value.op == "cast" and operands[0].dtype == dtype:
            new[value] = operands[0]
        else:
            new[value] = Value(value.op, operands, TensorType(value.dims, dtype), value.attrs, value.location)
    inputs, outputs = (tuple(new[value] for value in values) for values in (graph.inputs, graph.outputs))
    return replace(graph, inputs=inputs, outputs=outputs)


def aligned(graph: Graph, *symbols: str) -> Graph:
    """The graph for sizes that are multiples of 16, so that rows of 16-bit numbers begin at multiples of 32 bytes."""
    facts = Facts.parse((*graph.facts.texts, *(f"{symbol} = 16*{symbol}16" for symbol in symbols)))
    return replace(graph, facts=facts)


def static(graph: Graph, **extents: int) -> Graph:
    return replace(graph, extents={**graph.extents, **extents})


def subjects() -> Iterator[Subject]:
    for dtype in ("f16", "bf16", "f32"):
        yield from _matmuls(dtype)
        yield from _attentions(dtype)
        yield from _others(dtype)
    for graph in (graphs.softmax(), graphs.variance()):
        rows = {"m": 4096, "n": 4096}
        runs = [ONE, ODD, MIDDLE, {"m": 3, "n": 40000}, rows]
        yield Subject(graph.name, graph, TOLERANCE["f32"], [rows, {"m": 8, "n": 100}], runs, graph.name, [rows])
        known = aligned(graph, "n")
        runs = [{"m": 7, "n": 48}, MIDDLE, rows]
        yield Subject(f"{graph.name}_aligned", known, TOLERANCE["f32"], [rows], runs, graph.name, [rows])
    for seed in range(30):
        graph, hints = graphs.random_graph(seed), [{"a": 32, "b": 64, "c": 16}]
        runs = [{"a": 5, "b": 17, "c": 35}, {"a": 1, "b": 33, "c": 2}, {"a": 32, "b": 64, "c": 16}]
        yield Subject(graph.name, graph, TOLERANCE["random"], hints, runs, None)


def _subject(
    graph: Graph,
    dtype: str,
    name: str,
    hints: Sequence[Sizes],
    runs: Sequence[Sizes],
    reference: str,
    timed: Sequence[Sizes] = (),
) -> Subject:
    return Subject(f"{name}-{dtype}", retyped(graph, dtype), TOLERANCE[dtype], hints, runs, reference, timed)


def _matmuls(dtype: str) -> Iterator[Subject]:
    square = {"m": 4096, "n": 4096, "k": 4096}
    hints = [square, {"m": 16, "n": 4096, "k": 4096}]
    runs = [ONE, ODD, MIDDLE, {"m": 5, "n": 6, "k": 0}, {"m": 0, "n": 6, "k": 5}, {"m": 1000, "n": 1001, "k": 1002}]
    yield _subject(graphs.matmul(), dtype, "matmul", hints, [*runs, square], "matmul", [square])
    multiple = {"m": 48, "n": 80, "k": 208}
    known = aligned(graphs.matmul(), "n", "k")
    yield _subject(known, dtype, "matmul_aligned", hints, [multiple, MIDDLE, square], "matmul", [square])
    rows = [{"m": m} for m in (1, 16, 70, 128, 4096)]
    fixed = static(graphs.matmul(), k=4096, n=4096)
    timed = [{"m": m} for m in (16, 128, 4096)]
    yield _subject(fixed, dtype, "matmul_static", [{"m": 4096}, {"m": 16}, {"m": 128}], rows, "matmul", timed)
    yield _subject(graphs.matmul_rowsum(), dtype, "matmul_rowsum", hints, [ONE, ODD, MIDDLE, square], "matmul_rowsum")
    both = graphs.matmul_and_rowsum()
    yield _subject(both, dtype, "matmul_and_rowsum", hints, [ONE, ODD, MIDDLE, square], "matmul_and_rowsum", [square])
    splits = [{**sizes, "s": s} for s in COUNTS for sizes in (ONE, ODD, {"m": 16, "n": 4096, "k": 4096})]
    decode = [{"m": 16, "n": 4096, "k": 4096, "s": 7}]
    yield _subject(graphs.split_matmul(), dtype, "split_matmul", [{**hints[1], "s": 4}], splits, "matmul", decode)
    splits = [{**sizes, "s": s} for s in COUNTS for sizes in (multiple, {"m": 16, "n": 4096, "k": 4096})]
    known = aligned(graphs.split_matmul(), "n", "k")
    yield _subject(known, dtype, "split_matmul_aligned", [{**hints[1], "s": 4}], splits, "matmul", decode)


def _attentions(dtype: str) -> Iterator[Subject]:
    prefill, decode = {"h": 32, "m": 1024, "n": 1024}, {"h": 32, "m": 16, "n": 4096}
    runs = [ONE, ODD, MIDDLE, decode, prefill]
    for head in (64, 128) if dtype != "f32" else (64,):
        for mask, lse, last in ((0, 0, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 0), (1, 1, 1)):
            graph = graphs.attention(mask=bool(mask), lse=bool(lse), division_last=bool(last), head=head)
            name = f"attention{head}" + "_mask" * mask + "_lse" * lse + "_last" * last
            timed = [prefill] if last and not mask and not lse else []
            yield _subject(graph, dtype, name, [prefill, decode], runs, "attention", timed)
        splits = [{**sizes, "s": s} for s in COUNTS for sizes in (ONE, ODD, decode)]
        graph = graphs.split_attention(head=head)
        timed = [{**decode, "s": 7}]
        yield _subject(graph, dtype, f"split_attention{head}", [{**decode, "s": 8}], splits, "attention", timed)


def _others(dtype: str) -> Iterator[Subject]:
    for last in (False, True):
        name = "rmsnorm_matmul" + "_last" * last
        square = {"m": 4096, "n": 4096}
        small = graphs.rmsnorm_matmul(scale_last=last)
        yield _subject(small, dtype, name, [square], [ONE, ODD, MIDDLE, square], "rmsnorm_matmul")
        fixed = static(graphs.rmsnorm_matmul(scale_last=last, size=4096), n=4096)
        rows = [{"m": m} for m in (1, 16, 70, 128, 4096)]
        timed = [{"m": m} for m in (16, 128, 4096)]
        yield _subject(fixed, dtype, f"{name}_static", [{"m": 4096}, {"m": 16}], rows, "rmsnorm_matmul", timed)
    mlp = {"m": 128, "k": 1024, "f": 2816, "o": 1024}
    hints = [{"m": 16, "k": 1024, "f": 2816, "o": 1024}, {**mlp, "m": 4096}]
    yield _subject(graphs.gated_mlp(), dtype, "gated_mlp", hints, [ONE, ODD, MIDDLE, mlp], "gated_mlp", [mlp])
    known = aligned(graphs.gated_mlp(), "k", "f", "o")
    yield _subject(known, dtype, "gated_mlp_aligned", hints, [MIDDLE, {**mlp, "m": 5}, mlp], "gated_mlp", [mlp])
