"""A whole layer on the GPU: the fastest programs of its subgraphs, composed, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from cleave.bench.baselines import EAGER, plain_and_compiled
from cleave.bench.llama import CASES, LAYER, LLAMA_3_8B, Case, Weights, layer, llama_subgraphs
from cleave.bench.numbers import Numbers
from cleave.bench.run import Row, package_path

ROTARY_BASE = 500_000.0


def measured_layers(
    rows: Sequence[Row], folder: Path, baselines: Sequence[str], done: Container[tuple[str, str, str]] = ()
) -> Iterator[Row]:
    """A row for each case that is not ``done`` and all of whose subgraphs are among ``rows``, measured and right."""
    from cleave.tuner.timing import Timer

    fastest = {(row.subgraph, row.shape): row.program for row in rows if not row.ablation and not row.wrong}
    for label, case in CASES.items():
        wanted = [subgraph for subgraph in llama_subgraphs() if label in subgraph.shapes]
        if (LAYER, label, "") not in done and all((subgraph.name, label) in fastest for subgraph in wanted):
            flops = sum(subgraph.flops(subgraph.shapes[label]) for subgraph in wanted)
            parts = {s.name: _program(folder, s.name, label, fastest[s.name, label]) for s in wanted}
            yield _measured(label, case, flops, parts, baselines, Timer())


def _program(folder: Path, subgraph: str, shape: str, label: str) -> Callable[..., Any]:
    from cleave.runtime.package import Package

    package = Package.load(package_path(folder, subgraph, shape, ""))
    chosen = tuple(variant for variant in package.variants if variant.label == label)
    return replace(package, variants=chosen)


def _measured(
    label: str, case: Case, flops: float, parts: Mapping[str, Callable[..., Any]], baselines: Sequence[str], timer: Any
) -> Row:
    torch = timer.torch
    x, weights, rotary, cache = _inputs(torch, case)

    def run(parts: Mapping[str, Callable[..., Any]]) -> Any:
        return layer(parts, LLAMA_3_8B, weights, x, rotary, cache)

    tensors = [x, *_arrays(weights), *(cache or ())]
    known = Numbers(tensors, [_exact(x, weights, rotary, cache)], [run(EAGER)])
    error = known.error([run(parts)])
    wrong = known.problem(error)
    times = {} if wrong else {"cleave": timer.microseconds(lambda: run(parts))}
    for name, call in plain_and_compiled(lambda: run(EAGER), baselines):
        call()  # which compiles it
        times[name] = timer.microseconds(call)
    sizes = {"m": case.rows, "n": case.cached or case.rows}
    return Row(LAYER, label, "", sizes, flops, known.traffic, error, wrong, times)


def _arrays(weights: Weights) -> list[Any]:
    return [getattr(weights, entry.name) for entry in fields(weights)]


def _exact(x: Any, weights: Weights, rotary: Sequence[Any], cache: Sequence[Any] | None) -> Any:
    """The layer in f64."""
    wide = Weights(*(array.double() for array in _arrays(weights)))
    caches = [array.double() for array in cache] if cache else None
    return layer(EAGER, LLAMA_3_8B, wide, x.double(), [table.double() for table in rotary], caches)


def _inputs(torch: Any, case: Case) -> tuple[Any, Weights, list[Any], list[Any] | None]:
    """Normal numbers; weights keep the scale of rows."""
    generator = torch.Generator(device="cuda").manual_seed(0)

    def random(shape: Sequence[int], scale: float = 1.0) -> Any:
        return (torch.randn(shape, generator=generator, device="cuda") * scale).to(torch.float16)

    model, rows = LLAMA_3_8B, case.rows
    weights = Weights(*(random(s, s[0] ** -0.5 if len(s) > 1 else 1.0) for s in Weights.shapes(model)))
    numbers = torch.arange(rows, device="cuda")
    positions = torch.full_like(numbers, case.cached - 1) if case.cached else numbers
    pairs = model.head_width // 2
    speeds = ROTARY_BASE ** (-torch.arange(pairs, device="cuda") / pairs)
    angles = positions[:, None] * speeds
    shape = (rows, case.cached, model.heads, model.head_width)
    cache = [random(shape), random(shape)] if case.cached else None
    return random((rows, model.width)), weights, [angles.cos(), angles.sin()], cache
