"""The inputs of the superoptimiser's table of discoveries, as a user writes them, by row.

Those of `search_programs` and `graphs`, and the ones that these lack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import graphs
import search_programs as programs
from search_programs import causal, norm, positions, qkv, scores, soft_cap, softmax_times

from cleave.dialects.dims import Dim
from cleave.dialects.graph import Graph, GraphBuilder, Value


def static_attention(keys: int) -> Graph:
    """Attention with all sizes static, so that the search could depend on them."""
    b = GraphBuilder("attention")
    q, k, v = b.input("h=8 m=128 d=64", "f16"), b.input(f"h n={keys} d", "f16"), b.input("h n e=64", "f16")
    return b.build(b.cast(softmax_times(b, scores(b, q, k), v), dtype="f16"))


def repeated_heads() -> Graph:
    """Query heads h = kv·g in one dim, cut for the keys and put together again after."""
    b = GraphBuilder("gqa_heads", facts=["1 <= g"])
    q, k, v = b.input("h=kv*g m d", "f16"), b.input("kv n d", "f16"), b.input("kv n e", "f16")
    q = b.split(q, dim="h", into=["kv", "g"])
    out = softmax_times(b, scores(b, q, k), v)
    return b.build(b.cast(b.merge(out, dims=["kv", "g"], into="h=kv*g"), dtype="f16"))


def mqa() -> Graph:
    b = GraphBuilder("mqa")
    q, k, v = b.input("h m d", "f16"), b.input("n d", "f16"), b.input("n e", "f16")
    return b.build(b.cast(softmax_times(b, scores(b, q, k), v), dtype="f16"))


def mla_decode() -> Graph:
    """One query; keys and values of all heads are made from the latent c, as written; kp is the position part."""
    b = GraphBuilder("mla_decode")
    q, qp = b.input("h d", "f16"), b.input("h p", "f16")
    c, kp = b.input("n r", "f16"), b.input("n p", "f16")
    return b.build(_mla(b, q, qp, c, kp, b.input("h d r", "f16"), b.input("h r e", "f16")))


def mla_cache() -> Graph:
    """The same with the latent and the position part in one tensor of the cache, of static width."""
    b = GraphBuilder("mla_cache")
    h, d, e, p, r = map(Dim.parse, ("h", "d", "e", "p=16", "r=64"))
    q, qp, cache = b.input([h, d], "f16"), b.input([h, p], "f16"), b.input("n w=80", "f16")
    c = b.slice(cache, dim="w", into="r=64", offset="0")
    kp = b.slice(cache, dim="w", into="p=16", offset="64")
    return b.build(_mla(b, q, qp, c, kp, b.input([h, d, r], "f16"), b.input([h, r, e], "f16")))


def _mla(b: GraphBuilder, q: Value, qp: Value, c: Value, kp: Value, wk: Value, wv: Value) -> Value:
    k, v = b.contract(c, wk, over=["r"], dtype="f16"), b.contract(c, wv, over=["r"], dtype="f16")
    z = b.add(b.contract(q, k, over=["d"], dtype="f32"), b.contract(qp, kp, over=["p"], dtype="f32"))
    return b.cast(softmax_times(b, b.mul(z, b.constant(0.0625, "f32")), v), dtype="f16")


def rmsnorm_linear_bias() -> Graph:
    b = GraphBuilder("rmsnorm_linear_bias")
    x, w, bias = b.input("m k=128", "f16"), b.input("k n", "f16"), b.input("n", "f32")
    y = b.contract(norm(b, x, "k", b.input("k", "f16"), 128.0), w, over=["k"])
    return b.build(b.cast(b.add(y, bias), dtype="f16"))


def layernorm_linear_bias() -> Graph:
    """LayerNorm without gain and bias of its own, then a linear layer with a bias."""
    b = GraphBuilder("layernorm_linear_bias")
    x, w, bias = b.input("m k=128", "f16"), b.input("k n", "f16"), b.input("n", "f32")
    size, wide = b.constant(128.0, "f32"), b.cast(x, dtype="f32")
    centred = b.sub(wide, b.div(b.reduce(wide, kind="sum", over=["k"]), size))
    variance = b.div(b.reduce(b.mul(centred, centred), kind="sum", over=["k"]), size)
    y = b.cast(b.mul(centred, b.rsqrt(b.add(variance, b.constant(1e-5, "f32")))), dtype="f16")
    return b.build(b.cast(b.add(b.contract(y, w, over=["k"]), bias), dtype="f16"))


def layernorm_linear_symbolic() -> Graph:
    """LayerNorm and a linear layer of a width that is known only when it runs."""
    b = GraphBuilder("layernorm_linear_symbolic")
    x, w, gain, bias = b.input("m k", "f16"), b.input("k n", "f16"), b.input("k", "f16"), b.input("k", "f16")
    wide, gain, bias = (b.cast(t, dtype="f32") for t in (x, gain, bias))
    size = b.reduce(b.constant(1.0, "f32", (x.dims[1],)), kind="sum", over=["k"])
    centred = b.sub(wide, b.div(b.reduce(wide, kind="sum", over=["k"]), size))
    variance = b.div(b.reduce(b.mul(centred, centred), kind="sum", over=["k"]), size)
    y = b.mul(centred, b.rsqrt(b.add(variance, b.constant(1e-5, "f32"))))
    y = b.cast(b.add(b.mul(y, gain), bias), dtype="f16")
    return b.build(b.cast(b.contract(y, w, over=["k"]), dtype="f16"))


def appended() -> Graph:
    """Attention to cached keys and values and to new ones behind them."""
    b = GraphBuilder("appended")
    q = b.input("m d", "f16")
    k, v = (b.concat(b.input(f"c {f}", "f16"), b.input(f"u {f}", "f16"), dims=["c", "u"], into="n=c+u") for f in "de")
    return b.build(b.cast(softmax_times(b, scores(b, q, k), v), dtype="f16"))


def lora_shared() -> Graph:
    """Two projections of x, each with an update of low rank; both updates share their first factor."""
    b = GraphBuilder("lora_shared")
    x, a = b.input("m k", "f16"), b.input("k r=16", "f16")
    low = b.contract(x, a, over=["k"], dtype="f16")
    outputs: list[Value] = []
    for name in ("n", "o"):
        y = b.contract(x, b.input(f"k {name}", "f16"), over=["k"])
        outputs.append(b.cast(b.add(y, b.contract(low, b.input(f"r {name}", "f16"), over=["r"])), dtype="f16"))
    return b.build(*outputs)


def top_probability() -> Graph:
    """The largest probability of a softmax over the vocabulary."""
    b = GraphBuilder("top_probability")
    z = b.contract(b.input("m k", "f16"), b.input("k v", "f16"), over=["k"])
    p = b.exp(b.sub(z, b.reduce(z, kind="max", over=["v"])))
    return b.build(b.reduce(b.div(p, b.reduce(p, kind="sum", over=["v"])), kind="max", over=["v"]))


def window_cap_sink() -> Graph:
    """A causal window, a soft cap and a sink at once."""
    b = GraphBuilder("window_cap_sink")
    q, k, v = qkv(b)
    z, extra = causal(b, soft_cap(b, scores(b, q, k))), b.input("h", "f32")
    i, j = positions(b)
    inside = b.cmp(b.add(j, b.constant(64, "i64")), i, predicate="gt")
    z = b.select(inside, z, b.constant(float("-inf"), "f32"))
    top = b.max(b.reduce(z, kind="max", over=["n"]), extra)
    p = b.exp(b.sub(z, top))
    total = b.add(b.reduce(p, kind="sum", over=["n"]), b.exp(b.sub(extra, top)))
    return b.build(b.cast(b.contract(b.cast(b.div(p, total), dtype="f16"), v, over=["n"]), dtype="f16"))


def opaque_middle() -> Graph:
    """A gather between a projection and the attention over what it picks."""
    b = GraphBuilder("opaque_middle")
    x, w, where = b.input("r c", "f16"), b.input("c d", "f16"), b.input("n", "i64")
    k = b.gather(b.contract(x, w, over=["c"], dtype="f16"), where, dim="r")
    q, v = b.input("m d", "f16"), b.input("n e", "f16")
    return b.build(softmax_times(b, b.contract(q, k, over=["d"], dtype="f32"), v))


def layers(count: int) -> Graph:
    """A decoder of pre-norm layers as exported: heads in one dim, QK-norm, causal attention, SwiGLU; 73 ops each."""
    b = GraphBuilder("layers")
    x = b.input("m c", "f16")
    for _ in range(count):
        x = _feed_forward(b, _attention_block(b, x))
    return b.build(x)


def _attention_block(b: GraphBuilder, x: Value) -> Value:
    y = norm(b, x, "c", b.input("c", "f16"), 4096.0)

    def heads(width: str, merged: str, rows: str = "m") -> Value:
        t = b.contract(y, b.input(f"c {merged}=h*{width}", "f16"), over=["c"], dtype="f16")
        t = b.split(t, dim=merged, into=["h", width])
        return t if rows == "m" else b.rename(t, **{"from": "m", "to": f"{rows}=m"})

    q, k, v = heads("d", "hd"), heads("d", "hd", "n"), heads("e", "he", "n")
    z = scores(b, *(norm(b, t, "d", b.input("d", "f16"), 64.0) for t in (q, k)))
    future = b.cmp(b.index(dim="n=m", dtype="i64"), b.index(dim="m", dtype="i64"), predicate="gt")
    z = b.select(future, b.constant(float("-inf"), "f32"), z)
    out = b.merge(b.cast(softmax_times(b, z, v), dtype="f16"), dims=["h", "e"], into="he=h*e")
    return _residual(b, x, b.contract(out, b.input("he=h*e o=c", "f16"), over=["he"]))


def _feed_forward(b: GraphBuilder, x: Value) -> Value:
    y = norm(b, x, "c", b.input("c", "f16"), 4096.0)
    gate, up = (b.contract(y, b.input("c f", "f16"), over=["c"], dtype="f32") for _ in range(2))
    t = b.cast(b.mul(b.mul(gate, b.sigmoid(gate)), up), dtype="f16")
    return _residual(b, x, b.contract(t, b.input("f o=c", "f16"), over=["f"]))


def _residual(b: GraphBuilder, x: Value, update: Value) -> Value:
    update = b.rename(update, **{"from": "o", "to": "c"})
    return b.cast(b.add(b.cast(x, dtype="f32"), update), dtype="f16")


#: Graphs beyond the bound of one search.
LARGE: Mapping[str, Callable[[], Graph]] = {"layers": lambda: layers(3)}

PROGRAMS: Mapping[str, Callable[[], Graph]] = {
    **programs.PROGRAMS,
    "window_cap_sink": window_cap_sink,
    "gqa_heads": repeated_heads,
    "mqa": mqa,
    "mla_decode": mla_decode,
    "mla_cache": mla_cache,
    "rmsnorm_linear_bias": rmsnorm_linear_bias,
    "layernorm_linear_bias": layernorm_linear_bias,
    "layernorm_linear_symbolic": layernorm_linear_symbolic,
    "appended": appended,
    "matmul": graphs.matmul,
    "matmul_matmul": graphs.matmul_matmul,
    "matmul_rowsum": graphs.matmul_rowsum,
    "lora_shared": lora_shared,
    "top_probability": top_probability,
    "attention_lse": lambda: graphs.attention(lse=True),
    "opaque_middle": opaque_middle,
    "attention_n128": lambda: static_attention(128),
    "attention_n131072": lambda: static_attention(131072),
}
