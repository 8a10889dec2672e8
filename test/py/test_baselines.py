"""The libraries' attention as the benchmark calls it, with an attention in NumPy in place of PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cleave.bench.baselines import _packed, baselines

A, G, M, N, D, E = 2, 3, 4, 5, 8, 6
"""Heads of keys, heads of queries for each, rows, keys, elements of these and of values."""


class Tensor(np.ndarray):
    """An array with PyTorch's ``flatten``."""

    def flatten(self, first: int, last: int) -> Tensor:  # type: ignore[override]
        return self.reshape(*self.shape[:first], -1, *self.shape[last + 1 :])


def softmax_times(s: np.ndarray, v: np.ndarray, *, causal: bool) -> np.ndarray:
    rows, keys = s.shape[-2:]
    p = np.exp(s) * (np.tri(rows, keys) if causal else 1.0)
    return p / p.sum(-1, keepdims=True) @ v


def grouped(q: np.ndarray, k: np.ndarray, v: np.ndarray, *, causal: bool = False) -> np.ndarray:
    """[a, g, m, d], [a, n, d] and [a, n, e], head by head."""
    heads = [[softmax_times(q[a, g] @ k[a].T / D**0.5, v[a], causal=causal) for g in range(G)] for a in range(A)]
    return np.array(heads)


class Torch:
    """``used``: the backend, and heads of queries and of keys, of each call."""

    def __init__(self) -> None:
        self.used: list[tuple[str, int, int]] = []
        self.backend = ""
        backends = SimpleNamespace(FLASH_ATTENTION="flash", CUDNN_ATTENTION="cudnn")
        functional = SimpleNamespace(scaled_dot_product_attention=self.attention)
        self.nn = SimpleNamespace(
            attention=SimpleNamespace(SDPBackend=backends, sdpa_kernel=self.kernel), functional=functional
        )

    @contextmanager
    def kernel(self, backend: str) -> Iterator[None]:
        self.backend = backend
        yield
        self.backend = ""

    def attention(self, q: Any, k: Any, v: Any, *, is_causal: bool, enable_gqa: bool) -> Any:
        """As PyTorch documents it: with ``enable_gqa`` each head of keys is of as many of queries in turn."""
        heads, keys = q.shape[1], k.shape[1]
        assert enable_gqa or heads == keys
        k, v = (np.repeat(each, heads // keys, axis=1) for each in (k, v))
        self.used.append((self.backend, heads, keys))
        return softmax_times(q @ np.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5, v, causal=is_causal)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    made = Torch()
    monkeypatch.setattr("cleave.bench.baselines.import_module", lambda name: made)
    return made


def tensors(rows: int = M, keys: int = N) -> list[Tensor]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).view(Tensor) for shape in ((A, G, rows, D), (A, keys, D), (A, keys, E))]


def test_packed_heads_give_the_same_numbers(torch: Torch) -> None:
    found = dict(baselines("attention", {}, ["flash", "cudnn"], grouped=True))
    assert list(found) == ["flash", "flash packed", "cudnn", "cudnn packed"]
    inputs = tensors()
    for call in found.values():
        np.testing.assert_allclose(call(*inputs), grouped(*inputs), rtol=1e-12)
    each = [(A * G, A), (A, A)]
    assert torch.used == [(backend, *heads) for backend in ("flash", "cudnn") for heads in each]


def test_packed_heads_are_offered_only_where_they_are_grouped_and_see_all_keys(torch: Torch) -> None:
    """A mask by rows would take those of the other heads for later ones."""
    for settings, group in (({}, False), ({"causal": True}, True), ({"causal": True}, False)):
        assert [label for label, _ in baselines("attention", settings, ["flash"], grouped=group)] == ["flash"]
    inputs = tensors(N)
    ((_, flash),) = baselines("attention", {"causal": True}, ["flash"], grouped=True)
    exact = grouped(*inputs, causal=True)
    np.testing.assert_allclose(flash(*inputs), exact, rtol=1e-12)
    assert np.abs(_packed(flash)(*inputs) - exact).max() > 0.1
