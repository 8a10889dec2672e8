"""Graphs for tests: the ones everybody knows, and random ones."""

from __future__ import annotations

import random

from cleave.dialects.graph import Graph, GraphBuilder, Value


def matmul() -> Graph:
    b = GraphBuilder("matmul")
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    return b.build(b.contract(x, w, over=["k"], dtype="f16"))


def matmul_rowsum() -> Graph:
    """The row sums of a product."""
    b = GraphBuilder("matmul_rowsum")
    x, w = b.input("m k=64", "f16"), b.input("k n", "f16")
    return b.build(b.reduce(b.contract(x, w, over=["k"]), kind="sum", over=["n"]))


def matmul_and_rowsum() -> Graph:
    """A product and the row sums of its left operand: two reductions over k."""
    b = GraphBuilder("matmul_and_rowsum")
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    wide = b.cast(x, dtype="f32")
    return b.build(b.contract(x, w, over=["k"], dtype="f16"), b.reduce(wide, kind="sum", over=["k"]))


def attention(*, mask: bool = False, lse: bool = False, division_last: bool = False, head: int = 64) -> Graph:
    """Safe softmax attention as a user writes it, or with the division after the product with the values."""
    b = GraphBuilder("attention")
    q, k, v = b.input(f"h m d={head}", "f16"), b.input("h n d", "f16"), b.input("h n d", "f16")
    s = b.mul(b.contract(q, k, over=["d"], dtype="f32"), b.constant(0.125, "f32"))
    if mask:
        s = b.add(s, b.input("m n", "f32"))
    top = b.reduce(s, kind="max", over=["n"])
    e = b.exp(b.sub(s, top))
    total = b.reduce(e, kind="sum", over=["n"])
    if division_last:
        out = b.div(b.contract(b.cast(e, dtype="f16"), v, over=["n"]), total)
    else:
        out = b.contract(b.cast(b.div(e, total), dtype="f16"), v, over=["n"])
    return b.build(b.cast(out, dtype="f16"), *([b.add(top, b.log(total))] if lse else []))


def split_attention(*, head: int = 64, group: int = 0) -> Graph:
    """FlashDecoding: the keys in s parts, each with its own maximum, combined after.

    ``group``: heads that share keys.
    """
    b = GraphBuilder("split_attention", facts=["1 <= s"])
    shared = f"g={group} " * bool(group)
    q, k, v = b.input(f"h {shared}m d={head}", "f16"), b.input("h n d", "f16"), b.input("h n d", "f16")
    into = ("s", "t=ceildiv(n, s)")
    k, v = (b.split(x, dim="n", into=into) for x in (k, v))
    z = b.mul(b.contract(q, k, over=["d"], dtype="f32"), b.constant(0.125, "f32"))
    top = b.reduce(z, kind="max", over=["t"])
    empty = b.cmp(top, b.constant(float("-inf"), "f32"), predicate="eq")
    guarded = b.select(empty, b.constant(0.0, "f32"), top)
    e = b.exp(b.sub(z, guarded))
    total, product = b.reduce(e, kind="sum", over=["t"]), b.contract(b.cast(e, dtype="f16"), v, over=["t"])
    factor = b.exp(b.sub(top, b.reduce(top, kind="max", over=["s"])))
    out = b.div(b.contract(factor, product, over=["s"]), b.contract(factor, total, over=["s"]))
    return b.build(b.cast(out, dtype="f16"))


def split_matmul() -> Graph:
    """Split-K."""
    b = GraphBuilder("split_matmul", facts=["1 <= s"])
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    x, w = (b.split(value, dim="k", into=("s", "t=ceildiv(k, s)")) for value in (x, w))
    return b.build(b.cast(b.reduce(b.contract(x, w, over=["t"]), kind="sum", over=["s"]), dtype="f16"))


def rmsnorm_matmul(*, scale_last: bool = False, size: int = 200) -> Graph:
    b = GraphBuilder("rmsnorm_matmul")
    x, w = b.input(f"m k={size}", "f16"), b.input("k n", "f16")
    wide = b.cast(x, dtype="f32")
    mean = b.div(b.reduce(b.mul(wide, wide), kind="sum", over=["k"]), b.constant(float(size), "f32"))
    r = b.rsqrt(b.add(mean, b.constant(1e-6, "f32")))
    if scale_last:
        return b.build(b.cast(b.mul(b.contract(x, w, over=["k"]), r), dtype="f16"))
    return b.build(b.contract(b.cast(b.mul(wide, r), dtype="f16"), w, over=["k"], dtype="f16"))


def softmax() -> Graph:
    b = GraphBuilder("softmax")
    x = b.input("m n", "f32")
    e = b.exp(b.sub(x, b.reduce(x, kind="max", over=["n"])))
    return b.build(b.div(e, b.reduce(e, kind="sum", over=["n"])))


def variance() -> Graph:
    b = GraphBuilder("variance")
    x = b.input("m n", "f32")
    count = b.reduce(b.constant(1.0, "f32", x.dims[1:]), kind="sum", over=["n"])
    d = b.sub(x, b.div(b.reduce(x, kind="sum", over=["n"]), count))
    return b.build(b.div(b.reduce(b.mul(d, d), kind="sum", over=["n"]), count))


def gated_mlp() -> Graph:
    b = GraphBuilder("gated_mlp")
    x, wg, wu = b.input("m k", "f16"), b.input("k f", "f16"), b.input("k f", "f16")
    wd = b.input("f o", "f16")
    g, u = b.contract(x, wg, over=["k"]), b.contract(x, wu, over=["k"])
    h = b.cast(b.mul(b.mul(g, b.sigmoid(g)), u), dtype="f16")
    return b.build(b.contract(h, wd, over=["f"], dtype="f16"))


def layernorm_matmul() -> Graph:
    b = GraphBuilder("layernorm_matmul")
    x, g, bias, w = b.input("m k", "f32"), b.input("k", "f32"), b.input("k", "f32"), b.input("k n", "f32")
    count = b.reduce(b.constant(1.0, "f32", x.dims[1:]), kind="sum", over=["k"])
    d = b.sub(x, b.div(b.reduce(x, kind="sum", over=["k"]), count))
    var = b.div(b.reduce(b.mul(d, d), kind="sum", over=["k"]), count)
    y = b.add(b.mul(b.mul(d, b.rsqrt(b.add(var, b.constant(1e-5, "f32")))), g), bias)
    return b.build(b.contract(y, w, over=["k"]))


def _rms(b: GraphBuilder, x: Value, dim: str, size: int) -> Value:
    wide = b.cast(x, dtype="f32")
    mean = b.div(b.reduce(b.mul(wide, wide), kind="sum", over=[dim]), b.constant(float(size), "f32"))
    return b.mul(wide, b.rsqrt(b.add(mean, b.constant(1e-6, "f32"))))


def rmsnorm_swiglu() -> Graph:
    b = GraphBuilder("rmsnorm_swiglu")
    x, g = b.input("m k=256", "f16"), b.input("k", "f16")
    w, v = b.input("k f", "f16"), b.input("k f", "f16")
    y = b.mul(b.cast(_rms(b, x, "k", 256), dtype="f16"), g)
    a, u = b.contract(y, w, over=["k"]), b.contract(y, v, over=["k"])
    return b.build(b.cast(b.mul(b.mul(a, b.sigmoid(a)), u), dtype="f16"))


def lora() -> Graph:
    b = GraphBuilder("lora")
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    a, c = b.input("k r=16", "f16"), b.input("r n", "f16")
    low = b.contract(b.cast(b.contract(x, a, over=["k"]), dtype="f16"), c, over=["r"])
    return b.build(b.cast(b.add(b.contract(x, w, over=["k"]), low), dtype="f16"))


def linear_attention() -> Graph:
    b = GraphBuilder("linear_attention")
    q, k, v = b.input("m d", "f16"), b.input("n d", "f16"), b.input("n e", "f16")
    return b.build(b.contract(b.cast(b.contract(q, k, over=["d"]), dtype="f16"), v, over=["n"]))


def log_sum_exp() -> Graph:
    b = GraphBuilder("log_sum_exp")
    s = b.contract(b.input("m k=64", "f16"), b.input("k n", "f16"), over=["k"])
    top = b.reduce(s, kind="max", over=["n"])
    return b.build(b.add(top, b.log(b.reduce(b.exp(b.sub(s, top)), kind="sum", over=["n"]))))


def cross_entropy() -> Graph:
    b = GraphBuilder("cross_entropy")
    x, w, label = b.input("m k=64", "f16"), b.input("k n", "f16"), b.input("m", "i32")
    s = b.contract(x, w, over=["k"])
    top = b.reduce(s, kind="max", over=["n"])
    total = b.add(top, b.log(b.reduce(b.exp(b.sub(s, top)), kind="sum", over=["n"])))
    hit = b.cmp(b.index(dim="n", dtype="i32"), label, predicate="eq")
    return b.build(b.sub(total, b.reduce(b.select(hit, s, b.constant(0.0, "f32")), kind="sum", over=["n"])))


def _softmax_product(b: GraphBuilder, s: Value, v: Value, sink: Value | None = None) -> Value:
    top = b.reduce(s, kind="max", over=["n"])
    top = b.max(top, sink) if sink else top
    e = b.exp(b.sub(s, top))
    total = b.reduce(e, kind="sum", over=["n"])
    total = b.add(total, b.exp(b.sub(sink, top))) if sink else total
    return b.contract(b.cast(b.div(e, total), dtype="f16"), v, over=["n"], dtype="f16")


def causal_attention(*, cap: bool = False, sink: bool = False) -> Graph:
    """With a causal mask from index and cmp; with a soft cap; with an attention sink."""
    b = GraphBuilder("causal_attention" + "_cap" * cap + "_sink" * sink)
    q, k, v = b.input("h m d=32", "f16"), b.input("h n d", "f16"), b.input("h n e=32", "f16")
    s = b.mul(b.contract(q, k, over=["d"]), b.constant(0.2, "f32"))
    if cap:
        s = b.mul(b.tanh(b.div(s, b.constant(30.0, "f32"))), b.constant(30.0, "f32"))
    seen = b.cmp(b.index(dim="n"), b.index(dim="m"), predicate="le")
    s = b.select(seen, s, b.constant(float("-inf"), "f32"))
    return b.build(_softmax_product(b, s, v, b.input("h", "f32") if sink else None))


def gqa() -> Graph:
    b = GraphBuilder("gqa")
    q, k, v = b.input("kv g m d=32", "f16"), b.input("kv n d", "f16"), b.input("kv n e=32", "f16")
    return b.build(_softmax_product(b, b.mul(b.contract(q, k, over=["d"]), b.constant(0.2, "f32")), v))


def qk_norm_attention() -> Graph:
    b = GraphBuilder("qk_norm_attention")
    q, k, v = b.input("h m d=32", "f16"), b.input("h n d", "f16"), b.input("h n e=32", "f16")
    q, k = (b.cast(_rms(b, x, "d", 32), dtype="f16") for x in (q, k))
    return b.build(_softmax_product(b, b.mul(b.contract(q, k, over=["d"]), b.constant(0.2, "f32")), v))


def matmul_matmul() -> Graph:
    b = GraphBuilder("matmul_matmul")
    q, k, v = b.input("h m d=64", "f16"), b.input("h n d", "f16"), b.input("h n e=64", "f16")
    return b.build(b.contract(b.cast(b.contract(q, k, over=["d"]), dtype="f16"), v, over=["n"]))


def random_graph(seed: int, *, ops: int = 8, narrow: bool = True, statistics: bool = False) -> Graph:
    """A random graph over dims a, b, c with one or two outputs; every op keeps ordinary numbers ordinary.

    ``narrow``: some contractions are fed in f16 or tf32. ``statistics``: with means, variances and norms.
    """
    rng = random.Random(seed)
    b = GraphBuilder(f"random{seed}")
    dims = ["a", "b", "c"]
    values: list[Value] = []
    for _ in range(rng.randint(2, 3)):
        names = rng.sample(dims, rng.randint(1, 3))
        value = b.input(" ".join(names), rng.choice(["f16", "f32"]))
        values.append(b.cast(value, dtype="f32") if value.dtype == "f16" else value)
    for _ in range(ops):
        statistic = statistics and rng.random() < 0.4
        values.append(_random_statistic(rng, b, values[-3:]) if statistic else _random_op(rng, b, values, narrow))
    outputs = [values[-1]]
    other = rng.choice(values)
    if rng.random() < 0.3 and other.op != "input" and other is not values[-1]:
        outputs.append(other)
    return b.build(*outputs)


def _random_statistic(rng: random.Random, b: GraphBuilder, values: list[Value]) -> Value:
    x = rng.choice(values)
    if not x.names:
        return b.tanh(x)
    over = rng.choice(x.names)
    count = b.reduce(b.constant(1.0, "f32", [d for d in x.dims if d.name == over]), kind="sum", over=[over])
    kind = rng.choice(["centre", "variance", "norm", "share", "weighted"])
    if kind == "norm":
        return b.mul(x, b.rsqrt(b.add(b.reduce(b.mul(x, x), kind="sum", over=[over]), b.constant(0.5, "f32"))))
    if kind == "share":
        return b.div(x, b.add(b.reduce(b.abs(x), kind="sum", over=[over]), b.constant(0.5, "f32")))
    centred = b.sub(x, b.div(b.reduce(x, kind="sum", over=[over]), count))
    if kind == "centre":
        return centred
    other = rng.choice([value for value in values if over in value.names])
    return b.reduce(b.mul(centred, centred if kind == "variance" else other), kind="sum", over=[over])


def _random_op(rng: random.Random, b: GraphBuilder, values: list[Value], narrow: bool) -> Value:
    x, y = rng.choice(values[-4:]), rng.choice(values)
    shared = [name for name in x.names if name in y.names]
    kind = rng.choice(["unary", "binary", "binary", "reduce", "contract", "softmax", "scale", "select"])
    if kind == "contract" and shared:
        dtype = rng.choice(["f32", "f32", "f16", "tf32"]) if narrow else "f32"
        x, y = (v if dtype == "f32" else b.cast(v, dtype=dtype) for v in (x, y))
        return b.contract(x, y, over=rng.sample(shared, rng.randint(1, len(shared))))
    if kind == "reduce" and x.names:
        over = rng.sample(x.names, rng.randint(1, len(x.names)))
        return b.reduce(x, kind=rng.choice(["sum", "max", "min"]), over=over)
    if kind == "softmax" and x.names:
        over = [rng.choice(x.names)]
        e = b.exp(b.sub(x, b.reduce(x, kind="max", over=over)))
        return b.div(e, b.reduce(e, kind="sum", over=over)) if rng.random() < 0.5 else e
    if kind == "select":
        return b.select(b.cmp(x, y, predicate=rng.choice(["lt", "ge"])), x, b.constant(0.5, "f32"))
    if kind == "binary":
        return getattr(b, rng.choice(["add", "sub", "mul", "max", "min"]))(x, y)
    if kind == "scale":
        return b.div(x, b.add(b.abs(y), b.constant(1.5, "f32")))
    return getattr(b, rng.choice(["neg", "abs", "tanh", "sigmoid"]))(x)


def qkv() -> Graph:
    """Three projections of one input, of different widths."""
    b = GraphBuilder("qkv")
    x = b.input("m k", "f16")
    widths = ("q", "v", "w")
    return b.build(*(b.contract(x, b.input(f"k {name}", "f16"), over=["k"], dtype="f16") for name in widths))


def swiglu() -> Graph:
    b = GraphBuilder("swiglu")
    x = b.input("m k", "f16")
    g, u = (b.contract(x, b.input("k n", "f16"), over=["k"]) for _ in range(2))
    return b.build(b.cast(b.mul(b.mul(g, b.sigmoid(g)), u), dtype="f16"))


def latent_attention() -> Graph:
    """One step of decoding with a latent cache that is keys and values at once, and its positional part."""
    b = GraphBuilder("latent_attention")
    q, qp = b.input("b h d=64", "f16"), b.input("b h p=16", "f16")
    c, cp = b.input("b n d", "f16"), b.input("b n p", "f16")
    s = b.add(b.contract(q, c, over=["d"]), b.contract(qp, cp, over=["p"]))
    return b.build(_softmax_product(b, b.mul(s, b.constant(0.1, "f32")), c))


def gram() -> Graph:
    """All inner products of the rows of one tensor."""
    b = GraphBuilder("gram")
    x = b.input("m k", "f16")
    return b.build(b.contract(x, b.rename(x, from_="m", to="n=m"), over=["k"]))


def symmetric_attention() -> Graph:
    """Attention of rows to one another by a computed projection of them: one value in two roles."""
    b = GraphBuilder("symmetric_attention")
    x, w = b.input("m k=32", "f16"), b.input("k d=32", "f16")
    y = b.contract(x, w, over=["k"], dtype="f16")
    other = b.rename(y, from_="m", to="n=m")
    return b.build(_softmax_product(b, b.mul(b.contract(y, other, over=["d"]), b.constant(0.2, "f32")), other))


def centred_gram() -> Graph:
    """The covariances of rows: one computed value, its own transpose's partner."""
    b = GraphBuilder("centred_gram")
    x = b.input("m k", "f32")
    count = b.reduce(b.constant(1.0, "f32", x.dims[1:]), kind="sum", over=["k"])
    d = b.sub(x, b.div(b.reduce(x, kind="sum", over=["k"]), count))
    return b.build(b.contract(d, b.rename(d, from_="m", to="n=m"), over=["k"]))


def grouped_attention(kv: int, group: int, head: int, value: int) -> Graph:
    """Safe softmax attention of kv x group heads, divided last, as the superoptimiser leaves it."""
    b = GraphBuilder("attention")
    q = b.input(f"a={kv} g={group} m d={head}", "f16")
    k, v = b.input("a n d", "f16"), b.input(f"a n e={value}", "f16")
    s = b.mul(b.contract(q, k, over=["d"], dtype="f32"), b.constant(0.125, "f32"))
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    total = b.reduce(e, kind="sum", over=["n"])
    return b.build(b.cast(b.div(b.contract(b.cast(e, dtype="f16"), v, over=["n"]), total), dtype="f16"))


def swiglu_layer(*, norm: bool = False, size: int = 4096, inner: int = 14336) -> Graph:
    """silu(x w) * (x v), with the factor of an RMSNorm applied to both products where ``norm``."""
    b = GraphBuilder("rmsnorm_swiglu" if norm else "swiglu")
    x, w, v = b.input(f"m k={size}", "f16"), b.input(f"k f={inner}", "f16"), b.input("k f", "f16")
    a, u = b.contract(x, w, over=["k"]), b.contract(x, v, over=["k"])
    if norm:
        wide = b.cast(x, dtype="f32")
        mean = b.div(b.reduce(b.mul(wide, wide), kind="sum", over=["k"]), b.constant(float(size), "f32"))
        scale = b.rsqrt(b.add(mean, b.constant(1e-6, "f32")))
        a, u = b.mul(a, scale), b.mul(u, scale)
    return b.build(b.cast(b.mul(b.mul(a, b.sigmoid(a)), u), dtype="f16"))
