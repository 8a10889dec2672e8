"""Float64 references and library baselines in PyTorch, by hand: independent of everything in Cleave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


def matmul(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return (x @ w,)


def matmul_rowsum(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return ((x @ w).sum(1),)


def matmul_and_rowsum(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return x @ w, x.sum(1)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, ...]:
    """The output and the logarithm of the sums of exponentials."""
    scores = torch.einsum("hmd,hnd->hmn", q, k) * 0.125
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, dim=-1) @ v, torch.logsumexp(scores, dim=-1)


def rmsnorm_matmul(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return ((x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6)) @ w,)


def softmax(x: Tensor) -> tuple[Tensor, ...]:
    return (torch.softmax(x, dim=1),)


def variance(x: Tensor) -> tuple[Tensor, ...]:
    return (x.var(1, correction=0),)


def gated_mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> tuple[Tensor, ...]:
    return ((torch.nn.functional.silu(x @ gate) * (x @ up)) @ down,)


REFERENCES: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    function.__name__: function
    for function in (
        matmul, matmul_rowsum, matmul_and_rowsum, attention, rmsnorm_matmul, softmax, variance, gated_mlp,
    )
}  # fmt: skip


def masked_rows(reference: str, outputs: tuple[Tensor, ...], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Rows that are masked out entirely have no maximum: NaN by the graph, -inf in torch's ``logsumexp``."""
    if reference != "attention" or len(inputs) < 4:
        return outputs
    empty = torch.isneginf(inputs[3]).all(1)
    for output in outputs:
        output[:, empty] = torch.nan
    return outputs


def _sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], scale=0.125)


BASELINES: dict[str, Callable[..., Any]] = {**REFERENCES, "attention": _sdpa}
"""What PyTorch runs for the same result, in the same types."""
