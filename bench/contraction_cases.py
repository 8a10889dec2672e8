"""What ``contractions.py`` measures: contraction-bound subgraphs at 4096 rows, and their schedules."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "test" / "py"))

import graphs

from cleave.dialects.graph import Graph


@dataclass(frozen=True)
class Subject:
    """A graph with one kernel. ``tiles`` are those that all cases have; ``flops`` those of its contractions."""

    graph: Graph
    reference: str
    shapes: Sequence[Sequence[int]]
    flops: float
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    tiles: Mapping[str, int] = field(default_factory=dict[str, int])
    resident: Sequence[str] = ()


@dataclass(frozen=True)
class Case:
    subject: str
    tiles: Mapping[str, int]
    warps: int
    stages: int
    descriptors: bool = True
    group: int = 1


def _attention(heads: int, length: int, head: int = 128) -> Subject:
    graph = graphs.attention(division_last=True, head=head)
    graph = replace(graph, extents={**graph.extents, "m": length, "n": length})
    shapes = [[heads, length, head]] * 3
    flops = 4.0 * heads * length * length * head
    return Subject(graph, "attention", shapes, flops, {"h": heads}, {"d": head, "d_1": head}, ["d_1"])


def _product(n: int, graph: Graph, reference: str, products: int = 1) -> Subject:
    graph = replace(graph, extents={**graph.extents, "n": n} if "n" not in graph.extents else graph.extents)
    shapes = [[4096, 4096], *[[4096, n]] * products]
    return Subject(graph, reference, shapes, 2.0 * 4096 * 4096 * n * products, {"m": 4096})


SUBJECTS = {
    "matmul": _product(4096, replace(graphs.matmul(), extents={"k": 4096, "n": 4096}), "matmul"),
    "attention_16_8192": _attention(16, 8192),
    "attention_32_4096": _attention(32, 4096),
    "attention_64_4096_64": _attention(64, 4096, 64),
    "swiglu": _product(14336, graphs.swiglu_layer(), "swiglu", 2),
    "rmsnorm_matmul": _product(6144, graphs.rmsnorm_matmul(scale_last=True, size=4096), "rmsnorm_matmul"),
}


def _grid(subject: str, names: str, sizes: str, *rest: tuple[int, int, bool, int]) -> list[Case]:
    tiles = dict(zip(names.split(), map(int, sizes.split()), strict=True))
    return [Case(subject, tiles, *each) for each in rest]


_D, _P = True, False
_CHOSEN = [Case(name, {}, 0, 0) for name in SUBJECTS]
CASES = [
    *_CHOSEN,
    *_grid("matmul", "m n k", "128 256 64", (8, 3, _D, 1), (8, 3, _D, 8), (8, 4, _D, 1), (8, 4, _D, 8), (8, 3, _P, 8)),
    *_grid("matmul", "m n k", "256 128 64", (8, 3, _D, 8), (8, 4, _D, 8), (8, 4, _D, 4)),
    *_grid("matmul", "m n k", "128 128 64", (4, 3, _D, 8), (8, 3, _D, 8), (4, 3, _D, 1), (8, 4, _D, 8), (8, 4, _P, 8)),
    *_grid("matmul", "m n k", "128 128 32", (4, 5, _D, 8)),
    *_grid("matmul", "m n k", "64 256 64", (4, 3, _D, 8), (4, 4, _D, 8)),
    *_grid("attention_16_8192", "m n", "128 64", (4, 2, _D, 1), (4, 3, _D, 1), (8, 2, _D, 1), (8, 3, _D, 1)),
    *_grid("attention_16_8192", "m n", "128 128", (8, 2, _D, 1), (8, 3, _D, 1), (8, 3, _P, 1)),
    *_grid("attention_16_8192", "m n", "64 128", (4, 2, _D, 1)),
    *_grid("attention_16_8192", "m n", "64 64", (4, 3, _D, 1)),
    *_grid("attention_16_8192", "m n", "256 64", (8, 2, _D, 1), (8, 3, _D, 1), (8, 4, _D, 1)),
    *_grid("attention_32_4096", "m n", "256 64", (8, 3, _D, 1)),
    *_grid("attention_64_4096_64", "m n", "128 64", (4, 2, _D, 1), (4, 3, _D, 1)),
    *_grid("attention_64_4096_64", "m n", "128 128", (4, 2, _D, 1), (8, 2, _D, 1), (8, 3, _D, 1)),
    *_grid("attention_64_4096_64", "m n", "64 128", (4, 2, _D, 1)),
    *_grid("attention_64_4096_64", "m n", "64 64", (4, 3, _D, 1)),
    *_grid("matmul", "m n k", "128 256 128", (8, 2, _D, 8)),
    *_grid("matmul", "m n k", "256 128 128", (8, 2, _D, 16)),
    *_grid("matmul", "m n k", "128 128 128", (4, 2, _D, 8)),
    *_grid("swiglu", "m f k", "256 64 64", (8, 3, _D, 8), (8, 4, _D, 8)),
    *_grid("swiglu", "m f k", "128 128 128", (8, 2, _D, 16)),
    *_grid("attention_32_4096", "m n", "128 64", (4, 2, _D, 1), (4, 3, _D, 1)),
    *_grid("attention_32_4096", "m n", "128 128", (8, 3, _D, 1), (8, 3, _P, 1)),
    *_grid("swiglu", "m f k", "128 128 64", (8, 3, _D, 1), (8, 3, _D, 8), (8, 4, _D, 8), (8, 4, _D, 16), (8, 3, _P, 8)),
    *_grid("swiglu", "m f k", "128 64 64", (4, 3, _D, 8), (8, 4, _D, 8)),
    *_grid("swiglu", "m f k", "64 128 64", (4, 3, _D, 8)),
    *_grid("rmsnorm_matmul", "m n k", "128 256 64", (8, 3, _D, 8), (8, 3, _P, 8)),
    *_grid("rmsnorm_matmul", "m n k", "128 128 64", (8, 3, _D, 8), (8, 4, _D, 8), (8, 3, _P, 8), (4, 3, _D, 8)),
    *_grid("rmsnorm_matmul", "m n k", "64 256 64", (4, 3, _D, 8)),
]
