"""Calls on a GPU as users make them: streams, graphs, threads, several GPUs, other libraries' arrays, tuning.

Skipped where PyTorch finds no GPU; CI has none. ``python -m pytest test/gpu`` on a machine that has one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from threads import in_threads

import cleave
from cleave.errors import CleaveError
from cleave.language.annotations import f16, f32

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)


def plain_product(x: f16["m k"], w: f16["k n"]) -> f16:
    return cleave.contract(x, w, over="k").astype(f16)


product = cleave.jit(plain_product)


@cleave.jit(sizes=[{"a": 8, "m": 16, "n": 4096}])
def attention(q: f16["a m d=64"], k: f16["a n d=64"], v: f16["a n e=64"]) -> f16:
    return cleave.contract(cleave.softmax(cleave.contract(q, k, over="d") * 0.125, over="n"), v, over="n").astype(f16)


@cleave.jit
def doubled(x: f32["m n"]) -> f32:
    return x + x


def random(*shape: int, dtype: Any = torch.float16, device: Any = "cuda") -> Any:
    return torch.randn(shape, device=device).to(dtype)


def exact(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q.double() @ k.double().mT * 0.125, -1) @ v.double()


def close(out: Any, wanted: Any, tolerance: float = 2e-3) -> bool:
    return bool((out.double() - wanted).norm() <= tolerance * wanted.norm())


def operands(rows: int = 16, keys: int = 4096, heads: int = 8, device: Any = "cuda") -> list[Any]:
    return [random(heads, n, 64, device=device) for n in (rows, keys, keys)]


@pytest.mark.parametrize("sizes", [(16, 4096, 8), (1, 1, 1), (77, 129, 3), (300, 1000, 2)])
def test_numbers(sizes: tuple[int, int, int]) -> None:
    tensors = operands(*sizes)
    for _ in range(3):
        assert close(attention(*tensors), exact(*tensors))


def test_no_rows() -> None:
    assert attention(*operands(0, 16, 2)).shape == (2, 0, 64)
    assert not product(random(3, 0), random(0, 5)).any()


def test_the_callers_stream() -> None:
    """Inputs that the stream has yet to write are waited for, without a synchronisation."""
    stream, x = torch.cuda.Stream(), torch.zeros(512, 512, device="cuda", dtype=torch.float32)
    doubled(x)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(3.0)
        out = doubled(x)
    stream.synchronize()
    assert bool((out == 6.0).all())


def test_a_graph_is_captured_and_replayed() -> None:
    tensors = operands()
    attention(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(*tensors)
    for _ in range(20):
        for tensor in tensors:
            tensor.copy_(torch.randn_like(tensor))
        graph.replay()
        assert close(out, exact(*tensors))
    assert close(attention(*tensors), exact(*tensors))


def test_a_graph_is_replayed_beside_calls() -> None:
    """Those on the stream that captured it and on another one: each has a workspace of its own."""
    tensors, others, side = operands(), operands(), torch.cuda.Stream()
    wanted = exact(*tensors), exact(*others)
    for _ in range(2):
        attention(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(*tensors)
    torch.cuda.synchronize()
    for _ in range(50):
        with torch.cuda.stream(side):
            graph.replay()
        outs = [attention(*others) for _ in range(3)]
        torch.cuda.synchronize()
        assert close(out, wanted[0]) and all(close(other, wanted[1]) for other in outs)


@pytest.mark.parametrize("own", [True, False])
def test_threads_with_streams_of_their_own_and_on_one(own: bool) -> None:
    """On one stream the launches of a call may come between those of another."""

    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream() if own else torch.cuda.default_stream()):
            tensors = operands(8 + number, 1000 + number, 4)
            wanted = exact(*tensors)
            for _ in range(50):
                assert close(attention(*tensors), wanted)

    in_threads(work)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_several_gpus() -> None:
    def work(number: int) -> None:
        device = f"cuda:{number % torch.cuda.device_count()}"
        tensors = operands(8, 1000, 4, device=device)
        for _ in range(20):
            out = attention(*tensors)
            assert out.device == tensors[0].device and close(out, exact(*tensors))

    in_threads(work, 4)
    q, k, v = operands(8, 1000, 4)
    with pytest.raises(CleaveError, match="v is on GPU 1"):
        attention(q, k, v.to("cuda:1"))


def test_views_are_read_where_they_lie() -> None:
    """Heads of one projection, and a part of a cache: nothing of their size is allocated."""
    wide = random(65536, 8, 3, 64)
    q, k, v = (wide[:, :, number].transpose(0, 1) for number in range(3))
    q, cache = q[:, :16], random(8, 70000, 64)[:, :65536]
    attention(q, k, v), attention(q, cache, cache)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    outs = [attention(q, k, v), attention(q, cache, cache)]
    assert torch.cuda.max_memory_allocated() - before < k.numel()
    for out, tensors in zip(outs, ((q, k, v), (q, cache, cache)), strict=True):
        assert close(out, exact(*tensors))


def test_a_package_reads_views_where_they_lie() -> None:
    """With such a layout nothing of their size is allocated; without it they are copied, which a warning says once."""
    x, w = random(4096, 8192)[:, :4096], random(4096, 4096).T
    major, minor = torch.cuda.get_device_capability()
    package = product.package(f"sm_{major}{minor}", sizes=[{"m": 4096}], layouts=[{"x": "m k+", "w": "n k"}])
    package(x, w)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = package(x, w)
    assert torch.cuda.max_memory_allocated() - before < 1.1 * 2 * out.numel()
    assert close(out, x.double() @ w.double())
    plain = replace(package, variants=package.variants[:1])
    with pytest.warns(UserWarning, match='layouts=.*"x": "m k'):
        assert close(plain(x, w), x.double() @ w.double())


def test_a_thread_that_has_not_used_the_gpu_yet() -> None:
    tensors = operands()
    attention(*tensors)
    outs: list[Any] = []
    in_threads(lambda number: outs.append(attention(*tensors)), 2)
    assert len(outs) == 2 and all(close(out, exact(*tensors)) for out in outs)


def test_other_strides() -> None:
    q, k, v = operands(20, 300, 3)
    wide = torch.stack([k, v], -1)
    out = attention(q.mT.contiguous().mT, wide[..., 0], wide[..., 1])
    assert close(out, exact(q, k, v))
    for x, w in (
        (random(64, 48), random(80, 48).T),
        (random(64, 100)[:, :48], random(48, 77)[:, 5:]),
        (random(1, 48).expand(64, 48), random(48, 80)),
    ):
        assert close(product(x, w), x.double() @ w.double())


def test_arrays_of_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    x, w = random(33, 100), random(100, 65)
    for left, right in ((x, w), (x[:, 1:], w[1:]), (x.T.contiguous().T, w), (x[:1].expand(33, 100), w)):
        out = product(cupy.asarray(left), cupy.asarray(right))
        assert close(torch.as_tensor(out, device="cuda"), left.double() @ right.double())


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (lambda: [random(4, 8), random(9, 5)], "'k'"),
        (lambda: [random(4, 8, dtype=torch.float32), random(8, 5)], "f16"),
        (lambda: [random(4, 8), random(8)], "rank|dims|dimension"),
        (lambda: [random(4, 8), random(8, 5, device="cpu")], "argument 1 on cpu"),
    ],
    ids=["sizes", "dtype", "rank", "device"],
)
def test_wrong_tensors_are_named(tensors: Callable[[], list[Any]], message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        product(*tensors())
    assert close(product(*(good := [random(4, 8), random(8, 5)])), good[0].double() @ good[1].double())


def test_what_a_call_costs_on_the_host() -> None:
    """The least of several series: other work on the machine only adds. ``-s`` shows it."""
    times: dict[str, float] = {}
    for name, function, tensors in (
        ("torch.empty", lambda *tensors: torch.empty((16, 16), dtype=torch.float16, device="cuda"), []),
        ("product", product, [random(16, 64), random(64, 16)]),
        ("attention", attention, operands()),
        ("torch.matmul", torch.matmul, [random(16, 64), random(64, 16)]),
    ):
        function(*tensors)
        series: list[float] = []
        for _ in range(20):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(100):
                function(*tensors)
            series.append(1e4 * (time.perf_counter() - start))
        torch.cuda.synchronize()
        times[name] = min(series)
    print("µs of the host for a call:", ", ".join(f"{name} {least:.1f}" for name, least in times.items()))
    assert times["product"] < 2 * times["torch.matmul"] + 5


def test_tuning_goes_on_where_it_was(tmp_path: Path) -> None:
    store, tensors = tmp_path / "tuned.sqlite", [random(128, 256), random(256, 192)]
    first = list(product.tune(*tensors, candidates=4, store=store))
    assert first and all(progress.measured.refused == "" for progress in first)
    again = list(product.tune(*tensors, candidates=4, store=store))
    assert [p.measured for p in again] == [p.measured for p in first]
    wide = random(128, 512)[:, :256]
    assert all(p.measured.refused == "" for p in product.tune(wide, tensors[1], candidates=4, store=store))
    tuned = cleave.jit(plain_product, tuned=store)
    assert close(tuned(wide, tensors[1]), wide.double() @ tensors[1].double())
    assert close(tuned(*tensors), tensors[0].double() @ tensors[1].double())
