"""One layer of Llama 3 8B as subgraphs, and their composition: with Cleave's kernels, or with PyTorch's.

Rotary embeddings are of the half-split kind; the cache of keys and values is [sequence, position, head, element].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cleave
from cleave.bench.subgraphs import Sizes, Subgraph, rmsnorm_swiglu
from cleave.language.annotations import f16, f32

Part = Callable[..., Any]
PREFIX = "llama_"
LAYER = "llama_layer"


@dataclass(frozen=True)
class Model:
    """Extents of a layer: ``groups`` heads of queries share one of the ``heads`` of keys and values."""

    heads: int = 8
    groups: int = 4
    head_width: int = 128
    inner: int = 14336

    @property
    def width(self) -> int:
        return self.heads * self.groups * self.head_width

    @property
    def key_width(self) -> int:
        return self.heads * self.head_width


@dataclass(frozen=True)
class Case:
    """``rows`` tokens: of one sequence, or, with ``cached`` positions, the last one of as many sequences."""

    rows: int
    cached: int = 0


CASES: Mapping[str, Case] = {"prefill_2048": Case(2048), "decode_64": Case(64, cached=4096)}
LLAMA_3_8B = Model()


# --- the subgraphs ---------------------------------------------------------------------------------------------------


def norm_qkv(
    x: f16["m k"], g: f16["k"], a: f16["k p"], b: f16["k q"], c: f16["k r"]
) -> tuple[f16["m p"], f16["m q"], f16["m r"]]:
    y = cleave.rms_norm(x, "k", g)
    return cleave.contract(y, a, over="k"), cleave.contract(y, b, over="k"), cleave.contract(y, c, over="k")


def rope(x: f16["m h d=2*r"], cos: f32["m r"], sin: f32["m r"]) -> f16["m h d=2*r"]:
    one, two = x.slice("d", "r"), x.slice("d", "r", offset="r")
    turned = one * cos - two * sin, two * cos + one * sin
    return cleave.concat(turned[0].rename(r="r1"), turned[1].rename(r="r2"), "r1 r2", "d=2*r")


def _attention(model: Model, *, causal: bool) -> Part:
    scale = 1 / math.sqrt(model.head_width)

    def prefill(q: f16["m a g d"], k: f16["n a d"], v: f16["n a e"]) -> f16["m a g e"]:
        s = cleave.where(cleave.index("n") <= cleave.index("m"), cleave.contract(q, k, over="d") * scale, -math.inf)
        return cleave.contract(cleave.softmax(s, over="n"), v, over="n")

    def decode(q: f16["b a g d"], k: f16["b n a d"], v: f16["b n a e"]) -> f16["b a g e"]:
        return cleave.contract(cleave.softmax(cleave.contract(q, k, over="d") * scale, over="n"), v, over="n")

    return prefill if causal else decode


def product_added(x: f16["m k"], w: f16["k n"], rest: f16["m n"]) -> f16["m n"]:
    return cleave.contract(x, w, over="k") + rest


def llama_subgraphs(model: Model = LLAMA_3_8B) -> list[Subgraph]:
    """What a layer consists of, each at the sizes of the ``CASES``."""
    width, keys, inner = model.width, model.key_width, model.inner
    heads = {"a": model.heads, "g": model.groups, "d": model.head_width, "e": model.head_width}

    def rows(flops: Callable[[Sizes], float], name: str, function: Part, static: str, **fixed: int) -> Subgraph:
        shapes = {label: {"m": case.rows, **fixed} for label, case in CASES.items()}
        return Subgraph(PREFIX + name, function, shapes, flops, PREFIX + name, static, paper=False)

    def attention(name: str, causal: bool, label: str, sizes: Sizes) -> Subgraph:
        function, flops = _attention(model, causal=causal), _attention_flops(causal)
        return Subgraph(PREFIX + name, function, {label: sizes}, flops, PREFIX + name, "a g d e", paper=False)

    def three(sizes: Sizes) -> float:
        return 2.0 * sizes["m"] * sizes["k"] * (sizes["p"] + sizes["q"] + sizes["r"])

    def turns(sizes: Sizes) -> float:
        return 6.0 * sizes["m"] * sizes["h"] * sizes["r"]

    prefill, decode = CASES["prefill_2048"], CASES["decode_64"]
    return [
        rows(three, "qkv", norm_qkv, "k p q r", k=width, p=width, q=keys, r=keys),
        rows(turns, "rope", rope, "r", h=model.heads * model.groups, r=model.head_width // 2),
        attention("prefill", True, "prefill_2048", {"m": prefill.rows, "n": prefill.rows, **heads}),
        attention("decode", False, "decode_64", {"b": decode.rows, "n": decode.cached, **heads}),
        rows(_product_flops, "attention_out", product_added, "k n", k=width, n=width),
        rows(lambda s: 2 * _product_flops(s), "mlp", rmsnorm_swiglu, "k n", k=width, n=inner),
        rows(_product_flops, "mlp_out", product_added, "k n", k=inner, n=width),
    ]


def _product_flops(sizes: Sizes) -> float:
    return 2.0 * sizes["m"] * sizes["k"] * sizes["n"]


def _attention_flops(causal: bool) -> Callable[[Sizes], float]:
    def flops(sizes: Sizes) -> float:
        scores = sizes["a"] * sizes["g"] * sizes["n"] * (sizes["m"] / 2 if causal else sizes["b"])
        return 2.0 * scores * (sizes["d"] + sizes["e"])

    return flops


# --- the layer -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weights:
    """f16: gains [k]; products [k p], [k q], [k r], [p k], [k inner] twice, [inner k]."""

    attention_gain: Any
    queries: Any
    keys: Any
    values: Any
    attention_out: Any
    mlp_gain: Any
    gate: Any
    up: Any
    mlp_out: Any

    @staticmethod
    def shapes(model: Model) -> list[tuple[int, ...]]:
        width, keys, inner = model.width, model.key_width, model.inner
        attention = [(width,), (width, width), (width, keys), (width, keys), (width, width)]
        return [*attention, (width,), (width, inner), (width, inner), (inner, width)]


def layer(
    parts: Mapping[str, Part],
    model: Model,
    weights: Weights,
    x: Any,
    rotary: Sequence[Any],
    cache: Sequence[Any] | None = None,
) -> Any:
    """The layer's result for x [rows, width], with ``parts`` by the subgraphs' names, on NumPy's or PyTorch's arrays.

    ``rotary``: cosines and sines [rows, half a head], f32. ``cache``: keys and values, whose last position is set.
    """
    heads = (len(x), model.heads, model.groups, model.head_width)
    q, k, v = parts["llama_qkv"](x, weights.attention_gain, weights.queries, weights.keys, weights.values)
    q = parts["llama_rope"](q.reshape(len(x), -1, model.head_width), *rotary).reshape(heads)
    k = parts["llama_rope"](k.reshape(len(x), -1, model.head_width), *rotary)
    v = v.reshape(k.shape)
    if cache is None:
        y = parts["llama_prefill"](q, k, v)
    else:
        cache[0][:, -1], cache[1][:, -1] = k, v
        y = parts["llama_decode"](q, *cache)
    x = parts["llama_attention_out"](y.reshape(x.shape), weights.attention_out, x)
    inner = parts["llama_mlp"](x, weights.mlp_gain, weights.gate, weights.up)
    return parts["llama_mlp_out"](inner, weights.mlp_out, x)
