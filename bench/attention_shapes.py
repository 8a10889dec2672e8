"""Attention at shapes that ``cleave-bench`` has not: bf16, long sequences, causal masks with few heads.

    python bench/attention_shapes.py prepare FOLDER --jobs 6      # no GPU
    python bench/attention_shapes.py run FOLDER -o shapes.jsonl   # on a GPU, with PyTorch

Results of the first and the last head are compared with float64, then all programs and PyTorch's libraries are timed by
turns, with a cold L2 cache.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cleave
from cleave.bench.numbers import TOLERANCE
from cleave.errors import CleaveError
from cleave.language import annotations
from cleave.runtime.package import Package
from cleave.tools.exit_code import exit_code

CANDIDATES = 8


@dataclass(frozen=True)
class Shape:
    """``rows`` queries and ``keys`` keys of each head, ``width`` wide, whose values are ``values`` wide."""

    dtype: str
    heads: int
    width: int
    values: int
    rows: int
    keys: int
    causal: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}-{self.heads}x{self.rows}x{self.keys}-{self.width}-{self.values}{'-causal' * self.causal}"

    @property
    def flops(self) -> float:
        whole = 2.0 * self.heads * self.rows * self.keys * (self.width + self.values)
        return whole / 2 if self.causal else whole

    def path(self, folder: Path) -> Path:
        return folder / f"{self}.cleave"


def _square(dtype: str, heads: int, width: int, rows: int, *, causal: bool = False) -> Shape:
    return Shape(dtype, heads, width, width, rows, rows, causal)


SHAPES = [
    *(_square("bf16", 32, width, 4096, causal=causal) for causal in (False, True) for width in (64, 128)),
    *(Shape("bf16", 128, 192, 128, rows, 4096) for rows in (1024, 4096)),
    *(_square("f16", 16, width, rows) for rows in (8192, 16384) for width in (64, 128)),
    *(_square("f16", 16, width, 16384, causal=True) for width in (64, 128)),
    *(_square("f16", 8, width, rows, causal=True) for rows in (4096, 8192) for width in (64, 128)),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="schedule, lower and compile")
    prepare.add_argument("folder", type=Path)
    prepare.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    run = commands.add_parser("run", help="numbers, then times")
    run.add_argument("folder", type=Path)
    run.add_argument("-o", "--output", type=Path, default=Path("shapes.jsonl"))
    parsed = parser.parse_args()
    if parsed.command == "prepare":
        parsed.folder.mkdir(parents=True, exist_ok=True)
        with multiprocessing.get_context("spawn").Pool(parsed.jobs) as pool:
            for line in pool.imap_unordered(partial(_prepared, parsed.folder), SHAPES):
                print(line, flush=True)
        return 0
    rows = list(_measured(parsed.folder))
    parsed.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 0


def _prepared(folder: Path, shape: Shape) -> str:
    try:
        function = cleave.jit(_function(shape)).specialised(a=shape.heads)
        package = function.candidates(CANDIDATES, "sm_90", m=shape.rows, n=shape.keys)
        package.save(shape.path(folder))
        return f"{shape}: {len(package.variants)} programs"
    except CleaveError as error:
        return f"{shape}: REFUSED {error.message}"


def _function(shape: Shape) -> Callable[..., Any]:
    dtype = getattr(annotations, shape.dtype)

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = cleave.contract(q, k, over="d") * (1 / math.sqrt(shape.width))
        if shape.causal:
            scores = cleave.where(cleave.index("n") <= cleave.index("m"), scores, -math.inf)
        return cleave.contract(cleave.softmax(scores, over="n"), v, over="n").astype(dtype)

    width, values = f"d={shape.width}", f"e={shape.values}"
    attention.__annotations__ = {
        "q": dtype[f"a m {width}"],
        "k": dtype[f"a n {width}"],
        "v": dtype[f"a n {values}"],
        "return": dtype[f"a m {values}"],
    }
    return attention


def _measured(folder: Path) -> Iterator[Mapping[str, Any]]:
    from cleave.tuner.timing import Timer

    timer = Timer()
    for shape in SHAPES:
        if shape.path(folder).exists():
            row = _row(shape, Package.load(shape.path(folder)), timer)
            print(
                f"{shape!s:34} {row['microseconds']:8.1f} µs {row['tflops']:4.0f} TFLOP/s; {row['baseline']} "
                f"{row['baseline_microseconds']:8.1f}: {row['ratio']:.2f}; error {row['error']:.1e}, "
                f"{len(row['wrong'])} wrong",
                flush=True,
            )
            yield row


def _row(shape: Shape, package: Package, timer: Any) -> Mapping[str, Any]:
    from cleave.tuner.tune import measure

    torch = timer.torch
    tensors = _inputs(shape, torch)
    wanted = {head: _reference(shape, tensors, head, torch) for head in (0, shape.heads - 1)}
    libraries = dict(_libraries(shape, tensors, torch))
    allowed = max(TOLERANCE, 2 * max((_error(call()[0], wanted) for call in libraries.values()), default=0.0))
    errors, calls = list[float](), dict[str, Callable[[], Any]]()

    def check(results: Sequence[Any]) -> str:
        errors.append(_error(results[0], wanted))
        return "" if errors[-1] <= allowed else f"error {errors[-1]:.1e}, {allowed:.1e} is allowed"

    def microseconds(label: str, call: Callable[[], Any]) -> float:
        calls[label] = call
        return timer.microseconds(call)

    measured = {v.label: measure(package, v, tensors, check, partial(microseconds, v.label)) for v in package.variants}
    every = {**calls, **libraries}
    times = dict(zip(every, timer.in_turn(list(every.values())), strict=True))
    own, other = (min(each, key=lambda label: times[label]) for each in (calls, libraries))
    return {
        **asdict(shape),
        "microseconds": times[own],
        "tflops": shape.flops / times[own] / 1e6,
        "program": own,
        "baseline": other,
        "baseline_microseconds": times[other],
        "ratio": times[other] / times[own],
        "error": max(errors),
        "wrong": {label: each.refused for label, each in measured.items() if each.refused},
        "programs": {label: times[label] for label in calls},
    }


def _inputs(shape: Shape, torch: Any) -> tuple[Any, ...]:
    generator = torch.Generator(device="cuda").manual_seed(7)
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[shape.dtype]
    extents = ((shape.rows, shape.width), (shape.keys, shape.width), (shape.keys, shape.values))
    return tuple(torch.randn((shape.heads, *each), generator=generator, device="cuda").to(dtype) for each in extents)


def _reference(shape: Shape, tensors: Sequence[Any], head: int, torch: Any) -> Any:
    q, k, v = (tensor[head].double() for tensor in tensors)
    scores = q @ k.T / math.sqrt(shape.width)
    if shape.causal:
        unseen = torch.ones(shape.rows, shape.keys, device="cuda", dtype=torch.bool).triu(1)
        scores = scores.masked_fill(unseen, -math.inf)
    return torch.softmax(scores, 1) @ v


def _libraries(shape: Shape, tensors: Sequence[Any], torch: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Those that take such tensors."""
    backends = torch.nn.attention.SDPBackend

    def call(backend: Any) -> Any:
        with torch.nn.attention.sdpa_kernel([backend]):
            q, k, v = (tensor[None] for tensor in tensors)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=shape.causal)

    for label, backend in (("cudnn", backends.CUDNN_ATTENTION), ("flash", backends.FLASH_ATTENTION)):
        try:
            call(backend)
        except RuntimeError:
            continue
        yield label, partial(call, backend)


def _error(result: Any, wanted: Mapping[int, Any]) -> float:
    """The largest ‖out − ref‖ / ‖ref‖ of the heads."""
    return max(float((result[head].double() - ref).norm() / ref.norm()) for head, ref in wanted.items())


if __name__ == "__main__":
    sys.exit(exit_code("attention_shapes.py", main))
