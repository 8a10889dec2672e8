"""The subgraphs: written as a user would, with the shapes at which they are measured.

Source of the first nine and of their shapes: the evaluation of the paper *Cleave* (arXiv 2610.07742), fp16 in and out
with f32 accumulation; its attention has no maximum, here it is the safe one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import cleave
from cleave.language.annotations import f16
from cleave.language.tensor import Tensor

Sizes = Mapping[str, int]

PREFILL = (256, 512, 1024, 2048, 4096)
DECODE = (16, 32, 64, 128)
KEYS = 4096


@dataclass(frozen=True)
class Subgraph:
    """``function`` is traced for each shape; ``shapes`` are sizes by a label such as "decode_16".

    ``flops`` are those of contractions, ``traffic`` the bytes that must be moved, at given sizes. ``static`` are the
    symbols whose sizes are compiled in. ``torch`` names the baseline's function.
    """

    name: str
    function: Callable[..., Any]
    shapes: Mapping[str, Sizes]
    flops: Callable[[Sizes], float]
    torch: str
    static: str
    paper: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _rows(**fixed: int) -> dict[str, Sizes]:
    """Prefill and decode, which differ in the number of rows ``m``."""
    prefill = {f"prefill_{rows}": {"m": rows, **fixed} for rows in PREFILL}
    return {**prefill, **{f"decode_{rows}": {"m": rows, **fixed} for rows in DECODE}}


# --- the functions ---------------------------------------------------------------------------------------------------


def matmul(x: f16["m k"], w: f16["k n"]) -> f16:
    return cleave.contract(x, w, over="k")


def matmul_matmul(q: f16["h m d"], k: f16["h n d"], v: f16["h n e"]) -> f16:
    return cleave.contract(cleave.contract(q, k, over="d").astype(f16), v, over="n")


def matmul_rowsum(x: f16["m k"], w: f16["k n"]) -> f16:
    return cleave.contract(x, w, over="k").sum("n")


def swiglu(x: f16["m k"], w: f16["k n"], v: f16["k n"]) -> f16:
    return cleave.silu(cleave.contract(x, w, over="k")) * cleave.contract(x, v, over="k")


def rmsnorm_matmul(x: f16["m k"], w: f16["k n"]) -> f16:
    return cleave.contract(cleave.rms_norm(x, "k"), w, over="k")


def rmsnorm_swiglu(x: f16["m k"], g: f16["k"], w: f16["k n"], v: f16["k n"]) -> f16:
    y = cleave.rms_norm(x, "k", g)
    return cleave.silu(cleave.contract(y, w, over="k")) * cleave.contract(y, v, over="k")


def layernorm_matmul(x: f16["m k"], g: f16["k"], b: f16["k"], w: f16["k n"]) -> f16:
    return cleave.contract(cleave.layer_norm(x, "k", g, b), w, over="k")


def lora(x: f16["m k"], w: f16["k n"], a: f16["k r"], b: f16["r n"]) -> f16:
    return cleave.contract(x, w, over="k") + cleave.contract(cleave.contract(x, a, over="k").astype(f16), b, over="r")


def attention(q: f16["a g m d"], k: f16["a n d"], v: f16["a n e"], *, causal: bool, scale: float) -> Tensor:
    """``a`` heads of keys with ``g`` heads of queries each; causal: the last query sees all keys."""
    s = cleave.contract(q, k, over="d") * scale
    if causal:
        s = cleave.where(cleave.index("n") <= cleave.index("m"), s, -math.inf)
    return cleave.contract(cleave.softmax(s, over="n"), v, over="n").astype(f16)


def _attention(width: int, causal: bool = False) -> Callable[..., Any]:
    made = partial(attention, causal=causal, scale=1 / math.sqrt(width))

    def function(q: f16["a g m d"], k: f16["a n d"], v: f16["a n e"]) -> f16["a g m e"]:
        return made(q, k, v)

    return function


def mla_decode(q: f16["b h d"], c: f16["b n d"], qr: f16["b h r"], kr: f16["b n r"]) -> f16["b h d"]:
    """Multi-head latent attention, absorbed: the latent is key and value; a part of the scores is rotary."""
    latent = c.rename(d="e")
    s = (cleave.contract(q, c, over="d") + cleave.contract(qr, kr, over="r")) * (1 / math.sqrt(192))
    return cleave.contract(cleave.softmax(s, over="n"), latent, over="n").rename(e="d")


def log_sum_exp(x: f16["m k"], w: f16["k n"]) -> f16:
    return cleave.logsumexp(cleave.contract(x, w, over="k"), "n")


def qkv(x: f16["m k"], a: f16["k p"], b: f16["k q"], c: f16["k r"]) -> tuple[f16["m p"], f16["m q"], f16["m r"]]:
    return cleave.contract(x, a, over="k"), cleave.contract(x, b, over="k"), cleave.contract(x, c, over="k")


def softmax(x: f16["m k"]) -> f16["m k"]:
    return cleave.softmax(x, "k")


def layernorm(x: f16["m k"], g: f16["k"], b: f16["k"]) -> f16["m k"]:
    return cleave.layer_norm(x, "k", g, b)


def qknorm_attention(q: f16["a g m d"], k: f16["a n d"], v: f16["a n e"], gq: f16["d"], gk: f16["d"]) -> f16["a g m e"]:
    """Queries and keys are normalised over their elements."""
    return attention(
        cleave.rms_norm(q, "d", gq).astype(f16), cleave.rms_norm(k, "d", gk).astype(f16), v,
        causal=False, scale=1 / math.sqrt(128),
    )  # fmt: skip


def _unit(x: Tensor) -> Tensor:
    return x * cleave.rsqrt((x * x).sum("k"))


def ngpt_residual(h: f16["m k"], y: f16["m k"], alpha: f16["k"]) -> f16["m k"]:
    """A step on the sphere from h towards y, as in nGPT (arXiv 2410.01131)."""
    start = _unit(h * 1.0)
    return _unit(start + alpha * (_unit(y * 1.0) - start))


# --- the table -------------------------------------------------------------------------------------------------------


def _product(*names: str, times: float = 2.0) -> Callable[[Sizes], float]:
    return lambda sizes: times * math.prod(sizes[name] for name in names)


def _attention_flops(sizes: Sizes, share: float = 1.0) -> float:
    scores = sizes["a"] * sizes["g"] * sizes["m"] * sizes["n"]
    return 2.0 * share * scores * (sizes["d"] + sizes["e"])


def _attentions() -> list[Subgraph]:
    found: list[Subgraph] = []
    for name, heads in (("mha", (32, 1)), ("gqa", (8, 4)), ("mqa", (1, 32))):
        for width in (64, 128):
            shapes = _rows(a=heads[0], g=heads[1], n=KEYS, d=width, e=width)
            label = f"{name}_d{width}"
            found.append(Subgraph(label, _attention(width), shapes, _attention_flops, "attention", "a g d e"))
    for width in (64, 128):
        shapes = {f"prefill_{n}": {"a": 32, "g": 1, "m": n, "n": n, "d": width, "e": width} for n in (2048, 4096, 8192)}
        half = partial(_attention_flops, share=0.5)
        label, function = f"causal_d{width}", _attention(width, causal=True)
        settings = {"causal": True}
        found.append(Subgraph(label, function, shapes, half, "attention", "a g d e", False, settings))
    latent = {f"prefill_{m}": {"a": 128, "g": 1, "m": m, "n": KEYS, "d": 192, "e": 128} for m in PREFILL}
    found.append(Subgraph("mla", _attention(192), latent, _attention_flops, "attention", "a g d e"))
    return found


def _norms() -> list[Subgraph]:
    """Those whose time is that of memory, and attention in front of which there is a norm."""
    heads = {"a": 8, "g": 4, "n": KEYS, "d": 128, "e": 128}
    queries = {f"decode_{m}": {"m": m, **heads} for m in DECODE}
    rows = {f"rows_{m}": {"m": m, "k": 4096} for m in (2048, 16384)}

    def steps(sizes: Sizes) -> float:
        return 12.0 * sizes["m"] * sizes["k"]

    return [
        Subgraph("qknorm_gqa", qknorm_attention, queries, _attention_flops, "qknorm_attention", "a g d e", False),
        Subgraph("softmax", softmax, rows, steps, "softmax", "k", False),
        Subgraph("layernorm", layernorm, rows, steps, "layernorm", "k", False),
        Subgraph("ngpt_residual", ngpt_residual, rows, steps, "ngpt_residual", "k", False),
    ]


def _mla_decode() -> Subgraph:
    shapes = {f"decode_{n}": {"b": 128, "h": 128, "d": 512, "n": n, "r": 64} for n in (1024, 2048, 4096)}

    def flops(sizes: Sizes) -> float:
        return 2.0 * sizes["b"] * sizes["h"] * sizes["n"] * (2 * sizes["d"] + sizes["r"])

    return Subgraph("mla_decode", mla_decode, shapes, flops, "mla_decode", "h d r")


def _contractions() -> list[Subgraph]:
    def chain(sizes: Sizes) -> float:
        return 2.0 * sizes["h"] * sizes["m"] * sizes["n"] * (sizes["d"] + sizes["e"])

    def added(sizes: Sizes) -> float:
        return 2.0 * sizes["m"] * (sizes["k"] * sizes["n"] + sizes["r"] * (sizes["k"] + sizes["n"]))

    def three(sizes: Sizes) -> float:
        return 2.0 * sizes["m"] * sizes["k"] * (sizes["p"] + sizes["q"] + sizes["r"])

    plain, gates = _product("m", "k", "n"), _product("m", "k", "n", times=4.0)
    square, wide = {"k": 4096, "n": 4096}, {"k": 4096, "n": 14336}
    few = {label: sizes for label, sizes in _rows(k=4096, n=128256).items() if sizes["m"] <= 512}
    return [
        Subgraph("matmul", matmul, _rows(**square), plain, "matmul", "k n"),
        Subgraph("matmul_matmul", matmul_matmul, _rows(h=32, n=KEYS, d=64, e=64), chain, "matmul_matmul", "h d e"),
        Subgraph("matmul_rowsum", matmul_rowsum, _rows(k=64, n=4096), plain, "matmul_rowsum", "k n"),
        Subgraph("swiglu", swiglu, _rows(**wide), gates, "swiglu", "k n"),
        Subgraph("rmsnorm_matmul", rmsnorm_matmul, _rows(k=4096, n=6144), plain, "rmsnorm_matmul", "k n"),
        Subgraph("rmsnorm_swiglu", rmsnorm_swiglu, _rows(**wide), gates, "rmsnorm_swiglu", "k n", False),
        Subgraph("layernorm_matmul", layernorm_matmul, _rows(**square), plain, "layernorm_matmul", "k n", False),
        Subgraph("lora", lora, _rows(**square, r=16), added, "lora", "k n r", False),
        Subgraph("log_sum_exp", log_sum_exp, few, plain, "log_sum_exp", "k n", False),
        Subgraph("qkv", qkv, _rows(k=4096, p=4096, q=1024, r=1024), three, "qkv", "k p q r", False),
    ]


def subgraphs() -> dict[str, Subgraph]:
    """All, by name; those of a layer of Llama come last."""
    from cleave.bench.llama import llama_subgraphs

    found = [*_contractions(), *_attentions(), *_norms(), _mla_decode(), *llama_subgraphs()]
    return {subgraph.name: subgraph for subgraph in found}
