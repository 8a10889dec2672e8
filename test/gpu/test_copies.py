"""Warp-specialised kernels whose producer's threads copy, on a GPU: numbers of many runs, and times beside other forms.

Skipped where PyTorch finds no GPU, or one that is no Hopper; CI has none. ``-s`` shows the times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

import cleave
from cleave.language.annotations import bf16, f16, i32
from cleave.runtime.package import Package

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("no GPU of Hopper", allow_module_level=True)

Sizes = Mapping[str, int]


def eights(x: f16["m k=4100"], w: f16["k=4100 n=4100"]) -> f16:
    """Vectors of 8 bytes."""
    return cleave.contract(x, w, over="k").astype(f16)


def fours(x: f16["m k=4098"], w: f16["k=4098 n=4098"]) -> f16:
    """Vectors of 4 bytes."""
    return cleave.contract(x, w, over="k").astype(f16)


def embedding(table: bf16["v k=4096"], tokens: i32["m"], w: bf16["k=4096 n=136"]) -> bf16:
    return cleave.contract(table.gather("v", tokens), w, over="k").astype(bf16)


def paged(
    q: f16["h m d=128"], keys: f16["page slot=16 h d=128"], values: f16["page slot=16 h e=128"], table: i32["j"]
) -> f16:
    k, v = (x.gather("page", table).merge("j slot", "n=j*16") for x in (keys, values))
    return cleave.contract(cleave.softmax(cleave.contract(q, k, over="d") * 0.09, over="n"), v, over="n").astype(f16)


def _product(x: Any, w: Any) -> Any:
    return x.double() @ w.double()


def _embedding(table: Any, tokens: Any, w: Any) -> Any:
    return table[tokens.long()].double() @ w.double()


def _paged(q: Any, keys: Any, values: Any, table: Any) -> Any:
    k, v = (x[table.long()].flatten(0, 1).transpose(0, 1).double() for x in (keys, values))
    return torch.softmax(q.double() @ k.mT * 0.09, -1) @ v


CASES: list[tuple[Callable[..., Any], Callable[..., Any], Sizes]] = [
    (eights, _product, {"m": 4000}),
    (fours, _product, {"m": 4000}),
    (embedding, _embedding, {"m": 4000, "v": 32000}),
    (paged, _paged, {"h": 16, "m": 2000, "page": 1024, "j": 120}),
]


def inputs(function: Callable[..., Any], sizes: Sizes, seed: int) -> list[Any]:
    torch.manual_seed(seed)

    def floats(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.float32).to(
            torch.bfloat16 if function is embedding else torch.float16
        )

    def picks(rows: int, count: int) -> Any:
        return torch.randint(rows, (count,), device="cuda", dtype=torch.int32)

    m = sizes["m"]
    if function is embedding:
        return [floats(sizes["v"], 4096), picks(sizes["v"], m), floats(4096, 136)]
    if function is paged:
        shape = (sizes["page"], 16, sizes["h"], 128)
        return [floats(sizes["h"], m, 128), floats(*shape), floats(*shape), picks(sizes["page"], sizes["j"])]
    k = 4100 if function is eights else 4098
    return [floats(m, k), floats(k, k)]


def milliseconds(run: Callable[[], Any]) -> float:
    """The median of 20."""
    found: list[float] = []
    for _ in range(25):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end))
    return sorted(found[5:])[10]


def by_threads(function: Callable[..., Any], sizes: Sizes) -> Package:
    """The best program of that form, whether or not another one is predicted to be faster."""
    package = cleave.jit(function).candidates(8, "sm_90", **sizes)
    found = [each for each in package.variants if "async_copy_global_to_local" in "".join(each.ttir.values())]
    return replace(package, variants=tuple(found[:1]))


@pytest.mark.parametrize(("function", "exact", "sizes"), CASES, ids=[case[0].__name__ for case in CASES])
def test_numbers(function: Callable[..., Any], exact: Callable[..., Any], sizes: Sizes) -> None:
    """Of ten runs each on three inputs, of which all must agree: what is read too early varies."""
    special = by_threads(function, sizes)
    for seed in range(3):
        tensors = inputs(function, sizes, seed)
        first = special(*tensors).clone()
        wanted = exact(*tensors)
        bound = 1e-2 if first.dtype == torch.bfloat16 else 2e-3
        assert float((first.double() - wanted).abs().max() / wanted.abs().max()) < bound
        for _ in range(10):
            assert torch.equal(special(*tensors), first)


@pytest.mark.parametrize(("function", "exact", "sizes"), CASES, ids=[case[0].__name__ for case in CASES])
def test_times(function: Callable[..., Any], exact: Callable[..., Any], sizes: Sizes) -> None:
    tensors = inputs(function, sizes, 0)
    forms = {"by threads": by_threads(function, sizes), "as TTIR": cleave.jit(function, warp_specialise=False)}
    times = {form: milliseconds(lambda f=each: f(*tensors)) for form, each in forms.items()}
    print(f"\n{function.__name__}:", ", ".join(f"{form} {least:.3f} ms" for form, least in times.items()))
