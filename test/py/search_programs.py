"""Plain programs for the superoptimiser, as users write them, and a NumPy evaluator that knows nothing of it.

The evaluator uses masked arrays: elements past the end of a cut dimension are masked, so they do not exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cleave.dialects.dims import Dim
from cleave.dialects.graph import Graph, GraphBuilder, Value

Modify = Callable[[GraphBuilder, Value], Value]
MINUS_INFINITY = float("-inf")


# --- attention  ---


def softmax_times(b: GraphBuilder, z: Value, v: Value, f: str = "f16") -> Value:
    """Safe softmax over n, then the product with the values."""
    top = b.reduce(z, kind="max", over=["n"])
    p = b.exp(b.sub(z, top))
    return b.contract(b.cast(b.div(p, b.reduce(p, kind="sum", over=["n"])), dtype=f), v, over=["n"])


def scores(b: GraphBuilder, q: Value, k: Value, scale: float = 0.125) -> Value:
    return b.mul(b.contract(q, k, over=["d"], dtype="f32"), b.constant(scale, "f32"))


def qkv(b: GraphBuilder, f: str = "f16", lead: str = "h") -> tuple[Value, Value, Value]:
    return b.input(f"{lead} m d", f), b.input("h n d", f), b.input("h n e", f)


def attention(modify: Modify | None = None, f: str = "f16") -> Graph:
    b = GraphBuilder("attention")
    q, k, v = qkv(b, f)
    z = scores(b, q, k)
    return b.build(b.cast(softmax_times(b, modify(b, z) if modify else z, v, f), dtype=f))


def positions(b: GraphBuilder) -> tuple[Value, Value]:
    return b.index(dim="m", dtype="i64"), b.index(dim="n", dtype="i64")


def additive_mask(b: GraphBuilder, z: Value) -> Value:
    return b.add(z, b.input("m n", "f32"))


def causal(b: GraphBuilder, z: Value) -> Value:
    i, j = positions(b)
    return b.select(b.cmp(j, i, predicate="le"), z, b.constant(MINUS_INFINITY, "f32"))


def window(b: GraphBuilder, z: Value) -> Value:
    i, j = positions(b)
    inside = b.mul(b.cmp(j, i, predicate="le"), b.cmp(b.add(j, b.constant(3, "i64")), i, predicate="gt"))
    return b.select(inside, z, b.constant(MINUS_INFINITY, "f32"))


def soft_cap(b: GraphBuilder, z: Value) -> Value:
    return b.mul(b.tanh(b.div(z, b.constant(30.0, "f32"))), b.constant(30.0, "f32"))


def soft_cap_causal(b: GraphBuilder, z: Value) -> Value:
    return causal(b, soft_cap(b, z))


def alibi(b: GraphBuilder, z: Value) -> Value:
    i, j = positions(b)
    return b.add(z, b.mul(b.input("h", "f32"), b.cast(b.sub(j, i), dtype="f32")))


def sink() -> Graph:
    b = GraphBuilder("sink")
    q, k, v = qkv(b)
    z, extra = scores(b, q, k), b.input("h", "f32")
    top = b.max(b.reduce(z, kind="max", over=["n"]), extra)
    p = b.exp(b.sub(z, top))
    total = b.add(b.reduce(p, kind="sum", over=["n"]), b.exp(b.sub(extra, top)))
    return b.build(b.cast(b.contract(b.cast(b.div(p, total), dtype="f16"), v, over=["n"]), dtype="f16"))


def gqa() -> Graph:
    b = GraphBuilder("gqa")
    q, k, v = b.input("kv g m d", "f16"), b.input("kv n d", "f16"), b.input("kv n e", "f16")
    return b.build(b.cast(softmax_times(b, scores(b, q, k), v), dtype="f16"))


def exported_attention() -> Graph:
    """As torch exports it: the scores are rounded to f16 before and after the scale."""
    b = GraphBuilder("exported")
    q, k, v = qkv(b)
    z = b.mul(b.contract(q, k, over=["d"], dtype="f16"), b.constant(0.125, "f16"))
    return b.build(b.cast(softmax_times(b, b.cast(z, dtype="f32"), v), dtype="f16"))


def sdpa() -> Graph:
    """As torch decomposes it: scaled operands, all in f32, rows without a key give 0."""
    b = GraphBuilder("sdpa")
    q, k, v = qkv(b)
    root = b.constant(0.353553385, "f32")
    wide = [b.mul(b.cast(x, dtype="f32"), root) for x in (q, k)]
    z = b.contract(*wide, over=["d"])
    top = b.reduce(z, kind="max", over=["n"])
    p = b.exp(b.sub(z, top))
    probability = b.div(p, b.reduce(p, kind="sum", over=["n"]))
    none = b.reduce(b.cmp(z, b.constant(MINUS_INFINITY, "f32"), predicate="eq"), kind="min", over=["n"])
    probability = b.select(none, b.constant(0.0, "f32"), probability)
    return b.build(b.cast(b.contract(probability, b.cast(v, dtype="f32"), over=["n"]), dtype="f16"))


def norm(b: GraphBuilder, x: Value, over: str, gain: Value | None = None, size: float | None = None) -> Value:
    """x over its root mean square (root of its sum of squares without ``size``), rounded, times the gain."""
    wide = b.cast(x, dtype="f32")
    squares = b.reduce(b.mul(wide, wide), kind="sum", over=[over])
    if size is not None:
        squares = b.div(squares, b.constant(size, "f32"))
    y = b.cast(b.mul(wide, b.rsqrt(b.add(squares, b.constant(1e-6, "f32")))), dtype="f16")
    return y if gain is None else b.mul(y, gain)


def qk_norm() -> Graph:
    b = GraphBuilder("qk_norm")
    q, k, v = b.input("h m d=64", "f16"), b.input("h n d", "f16"), b.input("h n e", "f16")
    gains = b.input("d", "f16"), b.input("d", "f16")
    z = scores(b, norm(b, q, "d", gains[0], 64.0), norm(b, k, "d", gains[1], 64.0))
    return b.build(b.cast(softmax_times(b, z, v), dtype="f16"))


def cosine() -> Graph:
    b = GraphBuilder("cosine")
    q, k, v = qkv(b)
    z = b.mul(b.contract(norm(b, q, "d"), norm(b, k, "d"), over=["d"], dtype="f32"), b.input("h", "f32"))
    return b.build(b.cast(softmax_times(b, z, v), dtype="f16"))


def mla() -> Graph:
    """Keys and values are expanded from a latent c; the position part of the scores is not."""
    b = GraphBuilder("mla")
    q, c = b.input("h m d", "f16"), b.input("n r", "f16")
    wk, wv = b.input("h d r", "f16"), b.input("h r e", "f16")
    qp, kp = b.input("h m p", "f16"), b.input("n p", "f16")
    k, v = b.contract(c, wk, over=["r"], dtype="f16"), b.contract(c, wv, over=["r"], dtype="f16")
    z = b.add(b.contract(q, k, over=["d"], dtype="f32"), b.contract(qp, kp, over=["p"], dtype="f32"))
    return b.build(b.cast(softmax_times(b, b.mul(z, b.constant(0.0625, "f32")), v), dtype="f16"))


def differential() -> Graph:
    b = GraphBuilder("differential")
    v, weight = b.input("h n e", "f16"), b.input("h", "f32")

    def probabilities() -> Value:
        z = b.contract(b.input("h m d", "f16"), b.input("h n d", "f16"), over=["d"], dtype="f32")
        p = b.exp(b.sub(z, b.reduce(z, kind="max", over=["n"])))
        return b.div(p, b.reduce(p, kind="sum", over=["n"]))

    both = b.sub(probabilities(), b.mul(probabilities(), weight))
    return b.build(b.cast(b.contract(b.cast(both, dtype="f16"), v, over=["n"]), dtype="f16"))


def gated() -> Graph:
    b = GraphBuilder("gated")
    q, k, v = qkv(b)
    out = softmax_times(b, scores(b, q, k), v)
    return b.build(b.cast(b.mul(out, b.sigmoid(b.cast(b.input("h m e", "f16"), dtype="f32"))), dtype="f16"))


# --- norms, projections, losses  ---


def rmsnorm_linear(gain: bool = True) -> Graph:
    b = GraphBuilder("rmsnorm_linear")
    x, w = b.input("m k=128", "f16"), b.input("k n", "f16")
    y = norm(b, x, "k", b.input("k", "f16") if gain else None, 128.0)
    return b.build(b.cast(b.contract(y, w, over=["k"]), dtype="f16"))


def layernorm_linear() -> Graph:
    b = GraphBuilder("layernorm_linear")
    x, w = b.input("m k=128", "f16"), b.input("k n", "f16")
    gain, bias = (b.cast(b.input("k", "f16"), dtype="f32") for _ in range(2))
    size, wide = b.constant(128.0, "f32"), b.cast(x, dtype="f32")
    centred = b.sub(wide, b.div(b.reduce(wide, kind="sum", over=["k"]), size))
    variance = b.div(b.reduce(b.mul(centred, centred), kind="sum", over=["k"]), size)
    y = b.mul(centred, b.rsqrt(b.add(variance, b.constant(1e-5, "f32"))))
    y = b.cast(b.add(b.mul(y, gain), bias), dtype="f16")
    return b.build(b.cast(b.contract(y, w, over=["k"]), dtype="f16"))


def rmsnorm_swiglu() -> Graph:
    b = GraphBuilder("rmsnorm_swiglu")
    x, w1, w2 = b.input("m k=128", "f16"), b.input("k n", "f16"), b.input("k n", "f16")
    y = norm(b, x, "k", b.input("k", "f16"), 128.0)
    a, c = (b.contract(y, w, over=["k"], dtype="f32") for w in (w1, w2))
    return b.build(b.cast(b.mul(b.mul(a, b.sigmoid(a)), c), dtype="f16"))


def lora() -> Graph:
    b = GraphBuilder("lora")
    x, w, down, up = b.input("m k", "f16"), b.input("k n", "f16"), b.input("k r", "f16"), b.input("r n", "f16")
    y, t = b.contract(x, w, over=["k"], dtype="f32"), b.contract(x, down, over=["k"], dtype="f16")
    z = b.mul(b.contract(t, up, over=["r"], dtype="f32"), b.constant(2.0, "f32"))
    return b.build(b.cast(b.add(y, z), dtype="f16"))


def linear_attention() -> Graph:
    b = GraphBuilder("linear_attention")
    q, k, v = qkv(b)
    return b.build(b.cast(b.contract(b.contract(q, k, over=["d"], dtype="f16"), v, over=["n"]), dtype="f16"))


def logits(b: GraphBuilder) -> tuple[Value, Value]:
    """The logits of x·W, and their log-sum-exp."""
    x, w = b.input("m k", "f16"), b.input("k v", "f16")
    z = b.contract(x, w, over=["k"], dtype="f32")
    top = b.reduce(z, kind="max", over=["v"])
    return z, b.add(b.log(b.reduce(b.exp(b.sub(z, top)), kind="sum", over=["v"])), top)


def log_sum_exp() -> Graph:
    b = GraphBuilder("log_sum_exp")
    return b.build(logits(b)[1])


def cross_entropy() -> Graph:
    b = GraphBuilder("cross_entropy")
    z, total = logits(b)
    label = b.cmp(b.index(dim="v", dtype="i64"), b.input("m", "i64"), predicate="eq")
    return b.build(b.sub(total, b.reduce(b.select(label, z, b.constant(0.0, "f32")), kind="sum", over=["v"])))


def ngpt() -> Graph:
    b = GraphBuilder("ngpt")
    x, h, alpha = b.input("m k", "f32"), b.input("m k", "f32"), b.input("k", "f32")

    def unit(t: Value) -> Value:
        squares = b.reduce(b.mul(t, t), kind="sum", over=["k"])
        return b.mul(t, b.rsqrt(b.add(squares, b.constant(1e-6, "f32"))))

    return b.build(unit(b.add(x, b.mul(alpha, b.sub(unit(h), x)))))


def variance() -> Graph:
    b = GraphBuilder("variance")
    x, size = b.input("m k=128", "f32"), b.constant(128.0, "f32")
    centred = b.sub(x, b.div(b.reduce(x, kind="sum", over=["k"]), size))
    return b.build(b.div(b.reduce(b.mul(centred, centred), kind="sum", over=["k"]), size))


PROGRAMS: Mapping[str, Callable[[], Graph]] = {
    "attention": attention,
    "attention_bf16": lambda: attention(f="bf16"),
    "additive_mask": lambda: attention(additive_mask),
    "causal": lambda: attention(causal),
    "window": lambda: attention(window),
    "soft_cap": lambda: attention(soft_cap),
    "soft_cap_causal": lambda: attention(soft_cap_causal),
    "alibi": lambda: attention(alibi),
    "sink": sink,
    "gqa": gqa,
    "exported_attention": exported_attention,
    "sdpa": sdpa,
    "qk_norm": qk_norm,
    "cosine": cosine,
    "mla": mla,
    "differential": differential,
    "gated": gated,
    "rmsnorm_linear": rmsnorm_linear,
    "rmsnorm_linear_without_gain": lambda: rmsnorm_linear(gain=False),
    "layernorm_linear": layernorm_linear,
    "rmsnorm_swiglu": rmsnorm_swiglu,
    "lora": lora,
    "linear_attention": linear_attention,
    "log_sum_exp": log_sum_exp,
    "cross_entropy": cross_entropy,
    "ngpt": ngpt,
    "variance": variance,
}


# --- evaluation  ---

Array = Any  # a numpy masked array
_UNARY: Mapping[str, Callable[[Array], Array]] = {
    "neg": lambda x: -x,
    "exp": np.ma.exp,
    "exp2": lambda x: np.ma.exp(x * math.log(2.0)),
    "log": lambda x: np.ma.masked_array(np.log(x.data), np.ma.getmaskarray(x)),
    "sqrt": lambda x: np.ma.masked_array(np.sqrt(x.data), np.ma.getmaskarray(x)),
    "rsqrt": lambda x: np.ma.masked_array(1 / np.sqrt(x.data), np.ma.getmaskarray(x)),
    "tanh": np.ma.tanh,
    "abs": abs,
    "erf": lambda x: np.ma.masked_array(np.vectorize(math.erf)(x.data), x.mask),
    "sigmoid": lambda x: np.ma.masked_array(1 / (1 + np.exp(-x.data)), np.ma.getmaskarray(x)),
}
_BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: np.ma.masked_array(x.data / y.data, np.ma.mask_or(x.mask, y.mask, shrink=False)),
    "max": np.ma.maximum,
    "min": np.ma.minimum,
    "pow": lambda x, y: x**y,
}
_COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_REDUCE = {"sum": "sum", "prod": "prod", "max": "max", "min": "min"}


def evaluate(graph: Graph, inputs: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    """The outputs over the reals, in f64; casts between floats do nothing."""
    with np.errstate(all="ignore"):
        results: dict[Value, Array] = {}
        for value in graph.topological():
            if value.op == "input":
                results[value] = full_mask(np.ma.masked_array(inputs[value.attrs["index"]]))
            else:
                results[value] = full_mask(_apply(value, [(results[o], o.names) for o in value.operands], sizes))
        return [np.ma.filled(results[output].astype(float), np.nan) for output in graph.outputs]


def full_mask(array: Array) -> Array:
    array = np.ma.asarray(array)
    return np.ma.masked_array(array.data, np.ma.getmaskarray(array))


def _aligned(array: Array, names: Sequence[str], onto: Sequence[str]) -> Array:
    order = sorted(range(len(names)), key=lambda axis: onto.index(names[axis]))
    return full_mask(array.transpose(order)[tuple(slice(None) if name in names else None for name in onto)])


def _apply(value: Value, args: list[tuple[Array, tuple[str, ...]]], sizes: Mapping[str, int]) -> Array:
    op, attrs = value.op, value.attrs
    if op == "constant":
        number = float(np.float32(attrs["value"])) if value.dtype == "f32" else attrs["value"]
        return np.ma.masked_array(np.full([d.size.evaluate(sizes) for d in value.dims], number))
    if op == "index":
        return np.ma.arange(value.dims[0].size.evaluate(sizes))
    if op in ("contract", "reduce"):
        names = (*value.names, *attrs["over"])
        parts = [_aligned(array, own, names) for array, own in args]
        array = parts[0] * parts[1] if op == "contract" else parts[0]
        return getattr(array, _REDUCE[attrs.get("kind", "sum")])(axis=tuple(range(len(value.names), len(names))))
    if op in ("split", "slice"):
        return (_split if op == "split" else _slice)(value, *args[0], sizes)
    if op == "rename":
        return args[0][0]
    if op == "merge":
        array, own = args[0]
        rest = [name for name in own if name not in attrs["dims"]]
        array = full_mask(array.transpose([own.index(name) for name in (*rest, *attrs["dims"])]))
        array = array.reshape((*array.shape[: len(rest)], -1))
        into = Dim.parse(attrs["into"]).name
        return array.transpose([[*rest, into].index(name) for name in value.names])
    parts = [_aligned(array, own, value.names) for array, own in args]
    if op == "cast":
        return parts[0].astype(float if value.dtype[0] in "fbt" else bool if value.dtype == "i1" else int)
    if op == "cmp":
        return np.ma.masked_array(
            _COMPARE[attrs["predicate"]](parts[0].data, parts[1].data),
            np.ma.mask_or(parts[0].mask, parts[1].mask, shrink=False),
        )
    if op == "select":
        # An element exists only if all operands' do, also the one that is not chosen.
        missing = parts[0].mask | parts[1].mask | parts[2].mask
        return np.ma.masked_array(np.where(*(part.data for part in parts)), missing)
    if value.dtype == "i1":
        return np.ma.logical_and(*parts) if op in ("mul", "min") else np.ma.logical_or(*parts)
    if op == "div" and value.dtype[0] == "i":
        return np.ma.masked_array(np.trunc(parts[0].data / parts[1].data).astype(int), parts[0].mask | parts[1].mask)
    return _UNARY[op](parts[0]) if op in _UNARY else _BINARY[op](*parts)


def _slice(value: Value, array: Array, names: tuple[str, ...], sizes: Mapping[str, int]) -> Array:
    start, count = int(value.attrs["offset"]), Dim.parse(value.attrs["into"]).size.evaluate(sizes)
    return full_mask(array.take(np.arange(start, start + count), axis=names.index(value.attrs["dim"])))


def _split(value: Value, array: Array, names: tuple[str, ...], sizes: Mapping[str, int]) -> Array:
    axis = names.index(value.attrs["dim"])
    outer, inner = (Dim.parse(text).size.evaluate(sizes) for text in value.attrs["into"])
    extent, places = array.shape[axis], outer * inner
    padding = np.ma.masked_all((*array.shape[:axis], places - extent, *array.shape[axis + 1 :]), dtype=array.dtype)
    padding.data[...] = 0
    whole = np.ma.concatenate([array, padding], axis=axis)
    return whole.reshape((*array.shape[:axis], outer, inner, *array.shape[axis + 1 :]))


def sizes_of(graph: Graph, seed: int = 0) -> dict[str, int]:
    """Small sizes, the static ones as they are, cuts in three parts."""
    symbols = sorted({s for value in graph.topological() for dim in value.dims for s in dim.size.symbols})
    random = np.random.default_rng(seed)
    sizes = {symbol: int(random.integers(2, 8)) for symbol in symbols}
    return {**sizes, **graph.extents, "s": 3, "s1": 3, "s2": 3, "u": 1, "u1": 2, "u2": 1}


def inputs_of(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        shape = [dim.size.evaluate(sizes) for dim in value.dims]
        real = value.dtype[0] in "fb"
        arrays.append(random.standard_normal(shape) if real else random.integers(0, 2, size=shape))
    return arrays
