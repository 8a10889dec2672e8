"""Products that cuBLAS makes, on a GPU: numbers, streams, graphs, threads, several GPUs, and times beside PyTorch's.

Skipped where PyTorch finds no GPU; CI has none. ``-s`` shows the times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from threads import in_threads

import cleave
from cleave.language.annotations import bf16, f16, f32, f64
from cleave.runtime.cublas import Cublas, shared_cublas
from cleave.tuner.tune import NO_LIBRARY

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)


def plain_product(x: f16["m k"], w: f16["k n"]) -> f16["m n"]:
    return cleave.contract(x, w, over="k")


@cleave.jit(library=True)
def in_bf16(x: bf16["m k"], w: bf16["n k"]) -> bf16["m n"]:
    return cleave.contract(x, w, over="k")


@cleave.jit(library=True)
def kept_in_f32(x: f16["m k"], w: f16["k n"]) -> f32["n m"]:
    return cleave.contract(x, w, over="k")


@cleave.jit(library=True)
def in_f32(x: f32["b m k"], w: f32["b k n"]) -> f32["b m n"]:
    return cleave.contract(x, w, over="k")


@cleave.jit(library=True)
def in_f64(x: f64["b k m"], w: f64["k n"]) -> f64["b m n"]:
    return cleave.contract(x, w, over="k")


@cleave.jit(library=True)
def heads(q: f16["a m d"], k: f16["a n d"]) -> f32["a m n"]:
    return cleave.contract(q, k, over="d")


product = cleave.jit(plain_product, library=True)
EXTENTS = {"m": 77, "n": 130, "k": 515, "b": 3, "a": 5, "d": 64}
CASES: list[tuple[Any, str, str, str, float]] = [
    (product, "m k", "k n", "mk,kn->mn", 1e-3),
    (in_bf16, "m k", "n k", "mk,nk->mn", 8e-3),
    (kept_in_f32, "m k", "k n", "mk,kn->nm", 1e-5),
    (in_f32, "b m k", "b k n", "bmk,bkn->bmn", 1e-5),
    (heads, "a m d", "a n d", "amd,and->amn", 1e-5),
]


def random(dims: str, dtype: str, sizes: dict[str, int], device: Any = "cuda") -> Any:
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}[dtype]
    return torch.randn([sizes[name] for name in dims.split()], device=device, dtype=torch.float64).to(kind)


def error(out: Any, wanted: Any) -> float:
    return float((out.double() - wanted).norm() / wanted.norm())


def test_the_library_is_pytorchs() -> None:
    library = shared_cublas()
    assert isinstance(library, Cublas), library
    print(library, library.path)


@pytest.mark.parametrize("odd", [False, True], ids=["vectors", "odd"])
@pytest.mark.parametrize(("function", "x", "w", "letters", "bar"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_numbers(function: Any, x: str, w: str, letters: str, bar: float, odd: bool) -> None:
    """f32 without tf32, whose error would be 1e-4 and more; results in f32 are not rounded on the way."""
    sizes = EXTENTS if odd else {name: -(-size // 16) * 16 for name, size in EXTENTS.items()}
    dtypes = [spec.dtype for spec in function.signature.arguments]
    first, second = (random(dims, dtype, sizes) for dims, dtype in zip((x, w), dtypes, strict=True))
    wanted = torch.einsum(letters, first.double(), second.double())
    outs = [function(first, second) for _ in range(3)]
    assert all(error(out, wanted) < bar for out in outs) and bool((outs[0] == outs[1]).all())
    assert bool((outs[0] == outs[2]).all()) and not function._programs.kept


def test_numbers_in_f64() -> None:
    x, w = random("b k m", "f64", EXTENTS), random("k n", "f64", EXTENTS)
    out = in_f64(x, w)
    assert error(out, torch.einsum("bkm,kn->bmn", x, w)) < 1e-14


@pytest.mark.parametrize("sizes", [(0, 5, 7), (5, 0, 7), (5, 7, 0), (1, 1, 1), (1, 4096, 1), (1, 64, 4096)])
def test_empty_and_single(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    x, w = (random("r c", "f16", {"r": r, "c": c}) for r, c in ((m, k), (k, n)))
    wanted = x.double() @ w.double()
    assert float((product(x, w).double() - wanted).norm()) <= 1e-3 * float(wanted.norm())


def test_long_sums_are_kept_in_f32() -> None:
    """Partial sums of a split would show if they were rounded to f16: all terms have one sign."""
    x, w = (random("m k", "f16", {"m": 16, "k": 2**16}).abs() for _ in range(2))
    out = product(x, w.T.contiguous())
    assert error(out, x.double() @ w.double().T) < 6e-4


def test_nothing_beside_the_operands_is_read() -> None:
    around = torch.full((2, 300, 320), float("nan"), device="cuda", dtype=torch.float16)
    around[0, 100:228, 64:192], around[1, 100:228, 64:192] = 1.0, 2.0
    out = product(around[0, 100:228, 64:192], around[1, 100:228, 64:192])
    assert bool((out == 256.0).all())


def test_parts_and_transposed_tensors_are_read_where_they_lie() -> None:
    x, w = random("m k", "f16", {"m": 256, "k": 1024})[:, :512], random("n k", "f16", {"n": 384, "k": 512}).T
    assert error(product(x, w), x.double() @ w.double()) < 1e-3
    assert not any(wider._programs.kept for wider in product._wider.known.values())


def test_streams_and_graphs() -> None:
    """A graph is replayed beside calls on another stream: each has a workspace of its own."""
    tensors = [random("r c", "f16", {"r": r, "c": c}) for r, c in ((32, 16384), (16384, 64))]
    product(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = product(*tensors)
    others = [random("r c", "f16", {"r": r, "c": c}) for r, c in ((32, 16384), (16384, 64))]
    wanted, side = others[0].double() @ others[1].double(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(50):
        tensors[0].copy_(torch.randn_like(tensors[0]))
        with torch.cuda.stream(side):
            other = product(*others)
        graph.replay()
        torch.cuda.synchronize()
        assert error(other, wanted) < 1e-3
        assert error(out, tensors[0].double() @ tensors[1].double()) < 1e-3


def test_threads() -> None:
    def work(number: int) -> None:
        device = f"cuda:{number % torch.cuda.device_count()}"
        with torch.cuda.stream(torch.cuda.Stream(device)):
            pair = [random("r c", "f16", {"r": r, "c": c}, device) for r, c in ((8 + number, 4096), (4096, 96))]
            wanted = pair[0].double() @ pair[1].double()
            for _ in range(100):
                assert error(product(*pair), wanted) < 1e-3

    in_threads(work)


def test_tuning_measures_it_beside_the_kernels(tmp_path: Path) -> None:
    store, tensors = tmp_path / "tuned.sqlite", [random("r c", "f16", {"r": r, "c": 4096}) for r in (256, 4096)]
    tuned = cleave.jit(plain_product, tuned=store)
    steps = list(tuned.tune(*tensors, candidates=6, store=store))
    assert all(not step.measured.refused or step.measured.refused.startswith(NO_LIBRARY) for step in steps)
    assert any("cuBLAS" in step.label and not step.measured.refused for step in steps)
    fastest = min(steps, key=lambda step: step.measured.microseconds or 1e9)
    assert f"measured to be the fastest here: {fastest.label}" in tuned.explain(m=256, k=4096, n=4096)
    assert error(tuned(*tensors), tensors[0].double() @ tensors[1].double()) < 1e-3


def test_it_takes_no_longer_than_pytorchs() -> None:
    """On the GPU: PyTorch calls the same library. The host's part is in ``test_calls``."""
    from cleave.tuner.timing import Timer

    timer = Timer()
    for rows in (16, 128, 256, 1024):
        x, w = random("r c", "f16", {"r": rows, "c": 4096}), random("r c", "f16", {"r": 4096, "c": 4096})
        ours, theirs = (timer.microseconds(lambda call=call, x=x, w=w: call(x, w)) for call in (product, torch.matmul))
        print(f"{rows} rows: {ours:.1f} µs, PyTorch {theirs:.1f} µs")
        assert ours < 1.1 * theirs + 1
