"""What PyTorch offers for each subgraph: eager, compiled, and the library kernels of its attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

Tensors = Sequence[Any]
Baseline = Callable[..., Any]


def _matmul(x: Any, w: Any) -> Any:
    return x @ w


def _matmul_matmul(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT) @ v


def _matmul_rowsum(x: Any, w: Any) -> Any:
    return (x @ w).sum(-1)


def _swiglu(x: Any, w: Any, v: Any) -> Any:
    torch = import_module("torch")
    return torch.nn.functional.silu(x @ w) * (x @ v)


def _rms(x: Any, gain: Any = None) -> Any:
    torch = import_module("torch")
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), gain, 1e-6)


def _rmsnorm_matmul(x: Any, w: Any) -> Any:
    return _rms(x) @ w


def _rmsnorm_swiglu(x: Any, g: Any, w: Any, v: Any) -> Any:
    return _swiglu(_rms(x, g), w, v)


def _layernorm_matmul(x: Any, g: Any, b: Any, w: Any) -> Any:
    return _layernorm(x, g, b) @ w


def _lora(x: Any, w: Any, a: Any, b: Any) -> Any:
    return x @ w + (x @ a) @ b


def _log_sum_exp(x: Any, w: Any) -> Any:
    return (x @ w).float().logsumexp(-1).to(x.dtype)


def _qkv(x: Any, a: Any, b: Any, c: Any) -> Any:
    return x @ a, x @ b, x @ c


def _attention(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
    """Queries [a, g, m, d], keys and values [a, n, d]. A group's rows share one product: no keys are copied."""
    s = (q.flatten(1, 2) @ k.mT).unflatten(1, q.shape[1:3]).float() / math.sqrt(q.shape[-1])
    if causal:
        torch = import_module("torch")
        m, n = s.shape[-2:]
        s = s.masked_fill(torch.ones(m, n, dtype=torch.bool, device=s.device).triu(1), -math.inf)
    return (s.softmax(-1).to(q.dtype).flatten(1, 2) @ v).unflatten(1, q.shape[1:3])


def _softmax(x: Any) -> Any:
    return x.softmax(-1)


def _layernorm(x: Any, g: Any, b: Any) -> Any:
    torch = import_module("torch")
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), g, b, 1e-5)


def _qknorm_attention(q: Any, k: Any, v: Any, gq: Any, gk: Any) -> Any:
    return _attention(_rms(q, gq), _rms(k, gk), v)


def _ngpt_residual(h: Any, y: Any, alpha: Any) -> Any:
    torch = import_module("torch")

    def unit(x: Any) -> Any:
        return torch.nn.functional.normalize(x, dim=-1)

    start = unit(h if h.dtype == torch.float64 else h.float())
    return unit(start + alpha * (unit(y.to(start.dtype)) - start)).to(h.dtype)


def _mla_decode(q: Any, c: Any, qr: Any, kr: Any) -> Any:
    s = ((q @ c.mT).float() + (qr @ kr.mT).float()) / math.sqrt(192)
    return s.softmax(-1).to(q.dtype) @ c


def _norm_qkv(x: Any, g: Any, a: Any, b: Any, c: Any) -> Any:
    return _qkv(_rms(x, g), a, b, c)


def _rope(x: Any, cos: Any, sin: Any) -> Any:
    """Rows, heads, elements; the tables have no heads."""
    torch = import_module("torch")
    one, two = x.to(cos.dtype).chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1).to(x.dtype)


def _llama_prefill(q: Any, k: Any, v: Any) -> Any:
    """Queries [m, a, g, d], keys and values [n, a, d]."""
    torch = import_module("torch")
    heads = [each.flatten(1, -2).transpose(0, 1)[None] for each in (q, k[:, :, None], v[:, :, None])]
    out = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1).reshape(q.shape)


def _llama_decode(q: Any, k: Any, v: Any) -> Any:
    """Queries [b, a, g, d], keys and values [b, n, a, d]."""
    torch = import_module("torch")
    heads = q.flatten(1, 2)[:, :, None], k.transpose(1, 2), v.transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(*heads, enable_gqa=True).reshape(q.shape)


def _product_added(x: Any, w: Any, rest: Any) -> Any:
    torch = import_module("torch")
    return torch.addmm(rest, x, w)


EAGER: dict[str, Baseline] = {
    "matmul": _matmul,
    "matmul_matmul": _matmul_matmul,
    "matmul_rowsum": _matmul_rowsum,
    "swiglu": _swiglu,
    "rmsnorm_matmul": _rmsnorm_matmul,
    "rmsnorm_swiglu": _rmsnorm_swiglu,
    "layernorm_matmul": _layernorm_matmul,
    "lora": _lora,
    "log_sum_exp": _log_sum_exp,
    "qkv": _qkv,
    "attention": _attention,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "qknorm_attention": _qknorm_attention,
    "ngpt_residual": _ngpt_residual,
    "mla_decode": _mla_decode,
    "llama_qkv": _norm_qkv,
    "llama_rope": _rope,
    "llama_prefill": _llama_prefill,
    "llama_decode": _llama_decode,
    "llama_attention_out": _product_added,
    "llama_mlp": _rmsnorm_swiglu,
    "llama_mlp_out": _product_added,
}


def reference(name: str, tensors: Tensors, settings: dict[str, Any]) -> list[Any]:
    """The results in f64."""
    results = EAGER[name](*(tensor.double() for tensor in tensors), **settings)
    return list(results) if isinstance(results, tuple) else [results]


def baselines(
    name: str, settings: dict[str, Any], wanted: Sequence[str], *, grouped: bool = False
) -> Iterator[tuple[str, Baseline]]:
    """(label, function) of the baselines among ``wanted``: eager, compile, autotune, flash, cudnn.

    ``grouped``: several heads of queries share keys, whose rows the libraries may be given as those of one head, too.
    """
    eager = EAGER[name]

    def plain(*tensors: Any) -> Any:
        return eager(*tensors, **settings)

    yield from plain_and_compiled(plain, wanted)
    if name == "attention":
        yield from _libraries(settings.get("causal", False), wanted, grouped)
    if name == "mla_decode":
        yield from _mla_libraries(wanted)


def plain_and_compiled(plain: Baseline, wanted: Sequence[str]) -> Iterator[tuple[str, Baseline]]:
    """The function as it is, and compiled by PyTorch, of those that are ``wanted``."""
    if "eager" in wanted:
        yield "eager", plain
    for label, mode in (("compile", "default"), ("autotune", "max-autotune-no-cudagraphs")):
        if label in wanted:
            yield label, _compiled(plain, mode)


def _compiled(function: Baseline, mode: str) -> Baseline:
    """By PyTorch, for the shapes that it is called with."""
    torch = import_module("torch")
    torch._dynamo.reset()
    return torch.compile(function, mode=mode, dynamic=False)


def _libraries(causal: bool, wanted: Sequence[str], grouped: bool) -> Iterator[tuple[str, Baseline]]:
    torch = import_module("torch")
    backends = {
        "flash": torch.nn.attention.SDPBackend.FLASH_ATTENTION,
        "cudnn": torch.nn.attention.SDPBackend.CUDNN_ATTENTION,
    }
    for label, backend in backends.items():
        if label in wanted:
            yield label, _sdpa(backend, causal)
            if grouped and not causal:
                yield f"{label} packed", _packed(_sdpa(backend, causal))


def _sdpa(backend: Any, causal: bool) -> Baseline:
    """Grouped heads as the libraries take them: [1, a*g, m, d] with [1, a, n, d]."""
    torch = import_module("torch")

    def call(q: Any, k: Any, v: Any) -> Any:
        a, g, m, d = q.shape
        with torch.nn.attention.sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(
                q.reshape(1, a * g, m, d), k[None], v[None], is_causal=causal, enable_gqa=g > 1
            )
        return out.reshape(a, g, m, v.shape[-1])

    return call


def _packed(attention: Baseline) -> Baseline:
    """A group's rows as those of one head, which reads its keys once; FlashAttention-2 takes 22 in place of 29 µs so
    (16 rows of 4 heads, d 128, on an H200)."""

    def call(q: Any, k: Any, v: Any) -> Any:
        return attention(q.flatten(1, 2)[:, None], k, v).reshape(*q.shape[:3], v.shape[-1])

    return call


def _mla_libraries(wanted: Sequence[str]) -> Iterator[tuple[str, Baseline]]:
    torch = import_module("torch")

    def cudnn(q: Any, c: Any, qr: Any, kr: Any) -> Any:
        query, key = torch.cat([q, qr], -1), torch.cat([c, kr], -1)
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.CUDNN_ATTENTION]):
            return torch.nn.functional.scaled_dot_product_attention(
                query[:, None], key[:, None], c[:, None], scale=1 / math.sqrt(192)
            )[:, 0]

    if "cudnn" in wanted:
        yield "cudnn", cudnn
