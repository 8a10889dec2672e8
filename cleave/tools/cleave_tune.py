"""``cleave-tune``: measure the schedules of a function on the GPU in hand, and keep the fastest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cleave import __version__
from cleave.errors import CleaveError
from cleave.tools.arguments import positive
from cleave.tools.exit_code import exit_code
from cleave.tuner.attempts import is_child, supervised

_TORCH = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i1": "bool", "i8": "int8",
    "i32": "int32", "i64": "int64",
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_code("cleave-tune", lambda: _main(arguments), stopped="stopped; the same command goes on from here")


def _main(arguments: Sequence[str] | None) -> int:
    parsed = _parser().parse_args(arguments)
    if parsed.list:
        return _list(parsed.store)
    _check(parsed)
    if is_child():
        return _tune(parsed)
    return supervised("cleave.tools.cleave_tune", sys.argv[1:] if arguments is None else arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cleave-tune", description=(__doc__ or "").replace("``", ""))
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("input", nargs="?", type=Path, help="linalg on tensors, or our dialect")
    parser.add_argument("--store", type=Path, required=True, help="the file of results, for CLEAVE_TUNED")
    parser.add_argument("--list", action="store_true", help="show what the file holds, and do nothing else")
    parser.add_argument("--sizes", default="", help="of all dynamic dims, as in m=16,n=4096")
    parser.add_argument("--function", help="one of several functions")
    parser.add_argument("--candidates", type=positive, default=16, help="how many programs are measured (default 16)")
    parser.add_argument("--no-library", action="store_true", help="leave cuBLAS out; for cleave.jit(library=False)")
    return parser


def _list(store: Path) -> int:
    from cleave.tuner.store import Store

    if not store.is_file():
        raise CleaveError(f"there is no file {store}", notes=("cleave-tune IN.mlir --store FILE makes one",))
    rows = Store(store).rows()
    for what, microseconds in rows:
        print(f"{microseconds:9.1f} µs  {what}")
    if not rows:
        print(f"{store} has no results", file=sys.stderr)
    return 0


def _check(parsed: argparse.Namespace) -> None:
    if parsed.input is None:
        raise CleaveError("no input", notes=("usage: cleave-tune IN.mlir --sizes m=16 --store FILE",))


def _tune(parsed: argparse.Namespace) -> int:
    import cleave
    from cleave.passes.options import parse_sizes

    function = cleave.compile(parsed.input, parsed.function, library=False if parsed.no_library else None)
    tensors = _inputs(function, parse_sizes(parsed.sizes))
    right = 0
    for progress in function.tune(*tensors, candidates=parsed.candidates, store=parsed.store):
        print(progress, file=sys.stderr, flush=True)
        right += progress.measured.microseconds is not None
    if not right:
        raise CleaveError("no candidate is right", notes=("the lines above say what is wrong with each",))
    return 0


def _inputs(function: Any, sizes: dict[str, int]) -> list[Any]:
    """Random tensors on the GPU."""
    from cleave.dialects.given_sizes import GIVEN, check_given
    from cleave.runtime.bind_sizes import Sizes
    from cleave.runtime.layout import shape_of
    from cleave.tuner.timing import torch_on_gpu

    plan = function.signature
    bound = Sizes(plan.facts)
    check_given(sizes, plan.extents, bound.facts)
    bound.add({**plan.extents, **sizes}, GIVEN)
    try:
        shapes = [shape_of(spec, bound) for spec in plan.arguments]
    except CleaveError as error:
        raise CleaveError(error.message, notes=("give it one in --sizes",) if error.notes else ()) from None
    torch = torch_on_gpu()
    generator = torch.Generator(device="cuda").manual_seed(0)
    return [_drawn(torch, spec.dtype, shape, generator) for spec, shape in zip(plan.arguments, shapes, strict=True)]


def _drawn(torch: Any, dtype: str, shape: tuple[int, ...], generator: Any) -> Any:
    kind = getattr(torch, _TORCH.get(dtype, "float32"))
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator, device="cuda").to(kind)
    return torch.randint(0, 2, shape, generator=generator, device="cuda").to(kind)


if __name__ == "__main__":
    sys.exit(main())
